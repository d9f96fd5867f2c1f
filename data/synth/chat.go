package synth

import (
	"fmt"
	"maps"
	"slices"
)

type chatJSON struct {
	ID            string     `json:"id"`
	Conversations []turnJSON `json:"conversations"`
}

type turnJSON struct {
	From  string `json:"from"`
	Value string `json:"value"`
}

// exchange is a user turn and its answer, each with variants.
type exchange struct{ asked, answered []string }

// topic is the frame of a conversation: one opening exchange, then some of the
// further ones in random order.
type topic struct {
	slots  map[string][]string
	open   exchange
	follow []exchange
	// compute adds slots that depend on numbers; may be nil.
	compute func(r *rng, slots map[string]string)
}

var systems = []string{
	"You are a helpful assistant.",
	"You are a friendly assistant who answers briefly.",
	"You answer questions clearly and politely.",
	"You are an expert. Give short, practical answers.",
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func chatRecord(r *rng, split Split, i int) chatJSON {
	topics := trainTopics
	if split == HeldOut {
		topics = heldOutTopics
	}
	t := pick(r, topics)
	slots := map[string]string{
		"name": r.value("first"), "city": r.value("city"), "day": r.value("weekday"), "month": r.value("month"),
	}
	for _, k := range sortedKeys(t.slots) {
		slots[k] = pick(r, t.slots[k])
	}
	if t.compute != nil {
		t.compute(r, slots)
	}
	c := chatJSON{ID: fmt.Sprintf("%s_%d", split, i)}
	say := func(from, text string) {
		c.Conversations = append(c.Conversations, turnJSON{from, sentence(fill(text, slots))})
	}
	if r.chance(0.3) {
		say("system", pick(r, systems))
	}
	more := min(1+r.IntN(4), len(t.follow))
	for _, e := range append([]exchange{t.open}, shuffled(r, t.follow)[:more]...) {
		say("human", pick(r, e.asked))
		say("gpt", pick(r, e.answered))
	}
	return c
}

var trainTopics = []topic{
	{
		slots: map[string][]string{"dish": {"tomato soup", "pancakes", "fried rice", "lentil stew", "an omelette", "vegetable curry"}, "main": {"onions", "eggs", "carrots", "flour", "garlic", "rice"}, "spice": {"pepper", "basil", "cumin", "ginger", "parsley"}, "minutes": {"10", "15", "20", "30", "45"}},
		open: exchange{[]string{"How do I make {dish}?", "Can you give me a simple recipe for {dish}?"},
			[]string{"To make {dish}, prepare {main} first, cook everything for about {minutes} minutes, and season it with {spice}.", "Here is a simple way to make {dish}: 1. Prepare the {main}. 2. Cook for {minutes} minutes. 3. Add {spice} and serve."}},
		follow: []exchange{
			{[]string{"I don't have {spice}. What else can I use?", "What can replace {spice}?"}, []string{"You can leave out the {spice} or use a little salt and lemon instead.", "Without {spice}, salt and lemon work well."}},
			{[]string{"Can I make it for ten people?", "How do I make more of it?"}, []string{"Yes. Use a larger pot, double the {main} and cook it a few minutes longer.", "Just double everything, above all the {main}, and use a larger pot."}},
			{[]string{"How long does it keep?", "Can I store the rest?"}, []string{"{dish} keeps for two days in the fridge.", "Yes, put it in the fridge and eat it within two days."}},
			{[]string{"What goes well with it?", "What should I serve with it?"}, []string{"Fresh bread and a green salad go well with {dish}.", "I would serve {dish} with bread or a salad."}},
		},
	},
	{
		slots: map[string][]string{"days": {"two", "three", "four", "five"}, "like": {"art", "good food", "old buildings", "music", "nature"}, "see": {"the old town", "the main museum", "the harbor", "the big market", "the castle"}, "ride": {"the subway", "a bike", "the tram", "the bus"}},
		open: exchange{[]string{"I am going to {city} for {days} days. What should I see?", "Can you plan {days} days in {city} for me?"},
			[]string{"In {days} days in {city} you can see a lot. Start with {see}, then leave some time for {like}.", "On the first day visit {see} in {city}. Use the rest of your {days} days for {like}."}},
		follow: []exchange{
			{[]string{"How do I get around?", "What is the best way to get around in {city}?"}, []string{"Take {ride}; it is cheap and quick.", "I recommend {ride}. You can also walk in the center."}},
			{[]string{"Is {month} a good time to go?", "What is it like in {month}?"}, []string{"{month} is fine, but take a light jacket.", "Yes, in {month} there are fewer visitors than usual."}},
			{[]string{"I like {like}. Any ideas?", "Where can I find {like}?"}, []string{"For {like}, ask at the visitor center near {see}.", "There is a lot of {like} in the streets around {see}."}},
			{[]string{"Is it expensive?", "How much money do I need?"}, []string{"That depends on your hotel. For food and {ride}, plan a small budget for each day.", "{city} is not too expensive if you use {ride} and eat at markets."}},
		},
	},
	{
		slots: map[string][]string{"thing": {"pencils", "apples", "tickets", "bottles", "books", "chairs"}, "box": {"boxes", "bags", "rows", "rooms", "shelves"}},
		compute: func(r *rng, s map[string]string) {
			a, b, c := r.between(3, 12, 1), r.between(4, 25, 1), r.between(2, 9, 1)
			s["a"], s["b"], s["c"] = fmt.Sprint(a), fmt.Sprint(b), fmt.Sprint(c)
			s["ab"], s["left"], s["twice"] = fmt.Sprint(a*b), fmt.Sprint(a*b-c), fmt.Sprint(2*a*b)
			s["plus"] = fmt.Sprint((a + 1) * b)
		},
		open: exchange{[]string{"There are {a} {box} with {b} {thing} each. How many {thing} are there?", "If I have {a} {box} of {b} {thing}, how many {thing} do I have?"},
			[]string{"{a} times {b} is {ab}, so there are {ab} {thing}.", "There are {a} * {b} = {ab} {thing}."}},
		follow: []exchange{
			{[]string{"What if I take away {c} {thing}?", "And if {c} {thing} are lost?"}, []string{"Then {ab} - {c} = {left} {thing} are left.", "{ab} minus {c} leaves {left} {thing}."}},
			{[]string{"What if I have twice as many {box}?", "And with twice the number of {box}?"}, []string{"Then you have 2 * {ab} = {twice} {thing}.", "Twice {ab} is {twice}."}},
			{[]string{"And with one more of the {box}?", "What if there is one more?"}, []string{"One more adds {b} {thing}: {ab} + {b} = {plus}.", "Then there are {plus} {thing}, because {ab} + {b} = {plus}."}},
		},
	},
	{
		slots: map[string][]string{"to": {"my manager", "a customer", "my landlord", "my teacher", "a colleague"}, "about": {"a late delivery", "a day off", "a broken heater", "the next meeting", "an unpaid invoice"}, "tone": {"more formal", "shorter", "friendlier"}},
		open: exchange{[]string{"Write a short email to {to} about {about}.", "Help me write an email to {to}. It is about {about}."},
			[]string{"Subject: {about}\n\nHello,\n\nI am writing to you about {about}. Could we talk about it on {day}?\n\nBest regards,\n{name}", "Subject: {about}\n\nDear Sir or Madam,\n\nplease let me know by {day} how we should handle {about}.\n\nKind regards,\n{name}"}},
		follow: []exchange{
			{[]string{"Can you make it {tone}?", "Please make it {tone}."}, []string{"Subject: {about}\n\nHello,\n\ncan we talk about {about} on {day}?\n\nThank you,\n{name}", "Here is a version that is {tone}:\n\nHello,\n\nthis is about {about}. Is {day} all right for you?\n\n{name}"}},
			{[]string{"What is a good subject line?", "Suggest another subject."}, []string{"A good subject line is \"Question about {about}\".", "You could write \"{about}: please reply by {day}\"."}},
			{[]string{"When should I send it?", "Is {day} a good day to send it?"}, []string{"Send it in the morning, so that it is read on the same day.", "Yes, if you send it before noon."}},
		},
	},
	{
		slots: map[string][]string{"plant": {"tomatoes", "roses", "herbs", "orchids", "strawberries"}, "spot": {"a sunny window", "a shady corner", "the balcony", "the garden"}, "often": {"every day", "twice a week", "once a week"}, "pest": {"small flies", "yellow leaves", "white spots"}},
		open: exchange{[]string{"How do I grow {plant}?", "I want to grow {plant}. Where do I begin?"},
			[]string{"{plant} like {spot}. Water them {often} and use good soil.", "Put the {plant} in {spot}, and water them {often}."}},
		follow: []exchange{
			{[]string{"My {plant} have {pest}. What can I do?", "What does it mean if I see {pest}?"}, []string{"If your {plant} have {pest}, give them less water and remove the worst leaves.", "That often comes from too much water. Cut off the parts with {pest}."}},
			{[]string{"When is the best time to plant them?", "Can I start in {month}?"}, []string{"Most people plant {plant} in spring, when the nights are no longer cold.", "It is best to begin when there is no more frost."}},
			{[]string{"How often should I water them?", "How much water do they need?"}, []string{"Water the {plant} {often}.", "{often} is enough, a little more in summer."}},
		},
	},
	{
		slots: map[string][]string{"lang": {"Python", "Go", "JavaScript", "Ruby"}, "task": {"reverse a list", "read a file", "sort numbers", "count words", "parse a date"}, "err": {"an index error", "a type error", "a syntax error", "a missing file error"}},
		open: exchange{[]string{"How do I {task} in {lang}?", "What is the easiest way to {task} in {lang}?"},
			[]string{"In {lang}, the standard library can {task} for you. Look for a function with that name and pass your data to it.", "The easiest way to {task} in {lang} is the standard library. Write a small function around it and test it."}},
		follow: []exchange{
			{[]string{"I get {err}. What does it mean?", "Why do I see {err}?"}, []string{"It means that {lang} could not use the value you gave it. Print the value before the line that fails.", "Usually {err} comes from a value you did not expect. Check your input first."}},
			{[]string{"How can I test it?", "How do I know that it is right?"}, []string{"Write a small test with an empty input, one item and many items.", "Try an empty input first, then one item, then many."}},
			{[]string{"Is it fast enough for large inputs?", "Will it be slow?"}, []string{"For most inputs it is fast. Measure it before you change anything.", "Measure first. To {task} is rarely the slow part."}},
		},
	},
	{
		slots: map[string][]string{"goal": {"run five kilometers", "get stronger", "lose weight", "sleep better", "become more flexible"}, "do": {"walk", "swim", "stretch", "cycle", "lift light weights"}, "times": {"twice", "three times", "four times"}},
		open: exchange{[]string{"I want to {goal}. What should I do?", "How can I {goal}?"},
			[]string{"To {goal}, {do} {times} a week and rest on the other days.", "Start slowly: {do} {times} a week. After a month you will notice a change."}},
		follow: []exchange{
			{[]string{"I have little time. Is there a shorter plan?", "What if I have only ten minutes?"}, []string{"Ten minutes a day are enough to begin. {do} whenever you can.", "Then {do} for ten minutes on each day."}},
			{[]string{"What should I eat?", "Does food matter?"}, []string{"Eat vegetables and enough protein, and drink water.", "Yes. Eat regular meals and avoid a lot of sugar."}},
			{[]string{"How do I stay motivated?", "I always give up. Any advice?"}, []string{"Write down each time you {do}, and ask a friend to join you.", "Set a small goal for each week and reward yourself."}},
		},
	},
	{
		compute: func(r *rng, s map[string]string) {
			income, share := r.between(1000, 6000, 100), pick(r, []int{5, 10, 20, 25})
			rent := r.between(300, 900, 50)
			s["income"], s["share"], s["rent"] = fmt.Sprint(income), fmt.Sprint(share), fmt.Sprint(rent)
			s["save"], s["year"], s["left"] = fmt.Sprint(income*share/100), fmt.Sprint(12*(income*share/100)), fmt.Sprint(income-rent)
		},
		open: exchange{[]string{"I earn {income} dollars a month and want to save {share} percent. How much is that?", "How much is {share} percent of {income} dollars?"},
			[]string{"{share} percent of {income} dollars is {save} dollars.", "That is {save} dollars a month."}},
		follow: []exchange{
			{[]string{"How much is it in a year?", "And after one year?"}, []string{"In a year you save 12 * {save} = {year} dollars.", "After a year you have {year} dollars."}},
			{[]string{"My rent is {rent} dollars. What is left of my income?", "What is left after {rent} dollars of rent?"}, []string{"{income} - {rent} = {left} dollars are left.", "After the rent, {left} dollars are left."}},
			{[]string{"Any tips to save more?", "How can I spend less?"}, []string{"Write down what you spend, and move the money you save on the first day of the month.", "Cancel what you do not use, and cook at home more often."}},
		},
	},
	{
		slots: map[string][]string{"term": {"gravity", "photosynthesis", "inflation", "evaporation", "magnetism"}},
		open: exchange{[]string{"Explain {term} to a child.", "What is {term}, in simple words?"},
			[]string{"{term} is something you can see every day. Think of a simple example at home, and you will find that the same thing happens again and again.", "In simple words, {term} is the name for something that always happens in the same way."}},
		follow: []exchange{
			{[]string{"Can you give an example?", "Where do I see {term} in daily life?"}, []string{"You see {term} in the kitchen, in the garden and in the street.", "A good example of {term} can be found in almost every home."}},
			{[]string{"Who first described {term}?", "Who discovered it?"}, []string{"Many people studied {term} over a long time, so there is no single name.", "Several people worked on {term}, each on a part of it."}},
			{[]string{"Is there an experiment I can try?", "How can I show it?"}, []string{"Yes. Use a glass of water and a lamp, and write down what you see about {term}.", "Ask a teacher for a simple experiment about {term}."}},
		},
	},
}

var heldOutTopics = []topic{
	{
		slots: map[string][]string{"pet": {"a cat", "a dog", "a rabbit", "a parrot"}, "food": {"dry food", "fresh vegetables", "seeds", "special food"}, "often": {"twice a day", "once a day", "three times a day"}},
		open: exchange{[]string{"I would like to get {pet}. What do I need?", "What should I know before I get {pet}?"},
			[]string{"For {pet} you need time, a quiet place and {food}. Feed it {often}.", "Before you get {pet}, prepare a quiet place and buy {food}."}},
		follow: []exchange{
			{[]string{"How often should I feed it?", "What does it eat?"}, []string{"Give it {food} {often}.", "{food}, {often}, and fresh water."}},
			{[]string{"Can it stay at home alone?", "What about holidays?"}, []string{"Not for long. Ask a friend to visit it {often}.", "Find somebody who can feed it {often}."}},
			{[]string{"Is it good for children?", "My son is small. Is that a problem?"}, []string{"Yes, if you show the child how to be gentle.", "It can work well, but never leave them alone at first."}},
		},
	},
	{
		compute: func(r *rng, s map[string]string) {
			speed, hours := r.between(40, 120, 10), r.between(2, 9, 1)
			s["speed"], s["hours"], s["far"], s["half"] = fmt.Sprint(speed), fmt.Sprint(hours), fmt.Sprint(speed*hours), fmt.Sprint(speed*hours/2)
		},
		open: exchange{[]string{"A train goes {speed} kilometers an hour for {hours} hours. How far does it go?", "How far do I get in {hours} hours at {speed} kilometers an hour?"},
			[]string{"{speed} * {hours} = {far}, so {far} kilometers.", "The distance is {speed} times {hours}, which is {far} kilometers."}},
		follow: []exchange{
			{[]string{"And in half the time?", "What if it goes for half as long?"}, []string{"Then it goes {half} kilometers.", "Half of {far} is {half} kilometers."}},
			{[]string{"What is the rule?", "How do I calculate that myself?"}, []string{"Distance is speed times time.", "Multiply the speed by the time."}},
		},
	},
	{
		slots: map[string][]string{"kind": {"detective stories", "poems", "history books", "science fiction"}, "mood": {"funny", "sad", "exciting", "calm"}},
		open: exchange{[]string{"Can you recommend something to read? I like {kind}.", "I am looking for a {mood} book. I often read {kind}."},
			[]string{"If you like {kind}, try a collection of short pieces first. Many of them are {mood}.", "There are many {mood} {kind}. Ask at your library in {city} for a list."}},
		follow: []exchange{
			{[]string{"I prefer short books.", "Is there something shorter?"}, []string{"Then choose short stories; you can finish one in an evening.", "Yes, short stories would suit you."}},
			{[]string{"Could it be less {mood}?", "That sounds too {mood}."}, []string{"In that case, ask for {kind} for younger readers.", "Then try {kind} by another author."}},
			{[]string{"Where can I get it?", "Can I borrow it?"}, []string{"Most libraries have {kind}.", "Yes, in a library or from a friend."}},
		},
	},
}
