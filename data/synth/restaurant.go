package synth

import "strings"

// Names of restaurants and of what is near them, by split.
var (
	trainPlaces   = list("Blue Spoon|The Copper Kettle|Green Olive|The Fox and Hound|Sunny Corner|The Old Mill|Bella Vista|The Red Lion|Rice and Spice|The Silver Fork|Harbor Grill|The Quiet Duck|Maple Kitchen|The Stone Oven|Lucky Panda|The Garden Gate|Little Havana|The White Swan|Corner Bistro|The Barrel House")
	trainNear     = list("Central Station|the Grand Hotel|City Park|the Old Bridge|Cafe Luna|the Opera House|Market Square|the Town Hall")
	heldOutPlaces = list("Purple Plum|The Wooden Table|Golden Anchor|The Hungry Bear|Seaside Pantry|The Brass Bell|Mountain Inn|The Tin Plate")
	heldOutNear   = list("the Clock Tower|Rose Theatre|Cafe Mirabel|the North Pier")
)

func list(s string) []string { return strings.Split(s, "|") }

// phrases says how an attribute's values read in a text.
var (
	eatTypes = list("restaurant|pub|coffee shop")
	foods    = list("French|Italian|Indian|Chinese|Japanese|English|Fast food")
	prices   = map[string]string{
		"cheap": "cheap prices", "moderate": "moderate prices", "high": "high prices",
		"less than \u00a320": "prices below \u00a320", "\u00a320-25": "prices of \u00a320-25", "more than \u00a330": "prices above \u00a330",
	}
	ratings = map[string]string{
		"low": "a low customer rating", "average": "an average customer rating", "high": "a high customer rating",
		"1 out of 5": "a customer rating of 1 out of 5", "3 out of 5": "a customer rating of 3 out of 5", "5 out of 5": "a customer rating of 5 out of 5",
	}
	areas    = map[string]string{"city centre": "in the city centre", "riverside": "by the riverside"}
	families = map[string][]string{
		"yes": {"It is family friendly.", "Families with children are welcome.", "It is a good place to take children."},
		"no":  {"It is not family friendly.", "It is not a place for children.", "It is for adults only."},
	}
)

// restaurantRow makes a meaning representation with three to eight attributes
// and a text that says all of them and no other.
func restaurantRow(r *rng, split Split) (mr, ref string) {
	places, near := trainPlaces, trainNear
	if split == HeldOut {
		places, near = heldOutPlaces, heldOutNear
	}
	v := map[string]string{
		"name": pick(r, places), "eatType": pick(r, eatTypes), "food": pick(r, foods),
		"priceRange": pick(r, sortedKeys(prices)), "customer rating": pick(r, sortedKeys(ratings)),
		"area": pick(r, sortedKeys(areas)), "familyFriendly": pick(r, sortedKeys(families)), "near": pick(r, near),
	}
	order := list("name|eatType|food|priceRange|customer rating|area|familyFriendly|near")
	keep := map[string]bool{"name": true}
	for _, k := range shuffled(r, order[1:])[:2+r.IntN(6)] {
		keep[k] = true
	}
	var attrs []string
	for _, k := range order {
		if keep[k] {
			attrs = append(attrs, k+"["+v[k]+"]")
		} else {
			delete(v, k)
		}
	}
	return strings.Join(attrs, ", "), realise(r, v)
}

// realise says all attributes of v in one to four sentences.
func realise(r *rng, v map[string]string) string {
	kind := "place"
	if t, ok := v["eatType"]; ok {
		kind = t
	}
	food := v["food"]
	if food != "" && food != "Fast food" {
		food += " food"
	}
	food = strings.Replace(food, "Fast food", "fast food", 1)

	var where []string
	if a, ok := v["area"]; ok {
		where = append(where, areas[a])
	}
	if n, ok := v["near"]; ok {
		where = append(where, "near "+n)
	}
	place := strings.Join(shuffled(r, where), " ")
	article := "a "
	var b []string
	switch {
	case food != "" && place != "":
		b = append(b, pick(r, []string{
			v["name"] + " is " + article + kind + " " + place + " that serves " + food + ".",
			"There is " + article + kind + " " + place + " called " + v["name"] + ", which serves " + food + ".",
			upperFirst(place) + ", you can find " + v["name"] + ", " + article + kind + " with " + food + ".",
		}))
	case food != "":
		b = append(b, pick(r, []string{
			v["name"] + " is " + article + kind + " that serves " + food + ".",
			v["name"] + " is " + article + kind + " with " + food + ".",
		}))
	case place != "":
		b = append(b, pick(r, []string{
			v["name"] + " is " + article + kind + " " + place + ".",
			"There is " + article + kind + " " + place + " called " + v["name"] + ".",
			upperFirst(place) + ", there is " + article + kind + " called " + v["name"] + ".",
		}))
	default:
		b = append(b, v["name"]+" is "+article+kind+".")
	}
	var has []string
	if p, ok := v["priceRange"]; ok {
		has = append(has, prices[p])
	}
	if c, ok := v["customer rating"]; ok {
		has = append(has, ratings[c])
	}
	if len(has) > 0 {
		b = append(b, pick(r, []string{"It has ", "You will find ", "This " + kind + " has "})+strings.Join(shuffled(r, has), " and ")+".")
	}
	if f, ok := v["familyFriendly"]; ok {
		b = append(b, pick(r, families[f]))
	}
	return strings.Join(b, " ")
}
