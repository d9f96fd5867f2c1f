package synth

import "strings"

// vocabularies are the values that text columns draw from. "person" and
// "company" are composed; see (*rng).value.
var vocabularies = map[string][]string{
	"first":     words("Anna Ben Clara David Emma Felix Grace Henry Iris Jack Kate Leo Mia Noah Olga Paul Quinn Rosa Sam Tara Umar Vera Will Xenia Yara Zoe Alan Betty Carl Diana Erik Fiona Greg Hana Ivan Julia Kevin Laura Marco Nina"),
	"last":      words("Adams Baker Chen Diaz Evans Fischer Garcia Hughes Ito Jensen Khan Lopez Meyer Novak Olsen Patel Quist Rossi Smith Turner Ueda Vargas Walsh Xu Young Zimmer Brown Clark Dubois Ellis Ford Green Hill Irwin Jones Kim Lee Moore Nash Owens"),
	"city":      words("Oslo Paris Lima Cairo Dublin Austin Kyoto Prague Boston Madrid Seoul Geneva Naples Denver Bergen Toronto Lagos Mumbai Sydney Vienna Quito Athens Zurich Milan Perth Tunis Havana Krakow Lisbon Riga"),
	"country":   words("Norway France Peru Egypt Ireland Japan Spain Canada Brazil India Kenya Italy Chile Poland Greece Turkey Mexico Sweden Ghana Vietnam Austria Finland Jordan Nepal"),
	"region":    words("North South East West Central Coastal Highland Lakeside"),
	"color":     words("red blue green black white silver gold gray orange purple brown yellow"),
	"month":     words("January February March April May June July August September October November December"),
	"weekday":   words("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"),
	"status":    words("open closed pending active cancelled delayed approved rejected archived planned"),
	"level":     words("low medium high beginner advanced expert basic premium"),
	"grade":     words("A B C D E F"),
	"size":      words("small medium large tiny huge"),
	"language":  words("English French Spanish German Arabic Hindi Korean Dutch Polish Swahili Turkish Italian"),
	"material":  words("wood steel glass cotton leather plastic stone paper wool bronze marble rubber"),
	"music":     words("jazz rock opera folk blues techno soul reggae pop metal"),
	"genre":     words("drama comedy thriller fantasy horror romance mystery history western satire"),
	"sport":     words("tennis football rowing boxing hockey cricket judo sailing cycling fencing golf rugby"),
	"cuisine":   words("Thai Greek Indian Mexican French Lebanese Korean Italian Cuban Polish"),
	"fruit":     words("apple banana cherry grape lemon mango peach pear plum kiwi"),
	"animal":    words("tiger panda zebra otter falcon python koala lynx camel walrus gorilla heron"),
	"job":       words("manager engineer nurse driver chef lawyer analyst clerk pilot teacher designer plumber editor guard"),
	"subject":   words("biology physics history algebra art music chemistry geography economics drama"),
	"brand":     words("Acme Nordic Zenith Orion Vertex Lumen Apex Delta Cobalt Aster Nimbus Quasar"),
	"vehicle":   words("truck sedan van bus wagon coupe tram scooter"),
	"fuel":      words("diesel petrol electric hybrid hydrogen"),
	"weather":   words("sunny rainy cloudy windy foggy snowy stormy clear"),
	"disease":   words("asthma diabetes flu migraine allergy measles anemia arthritis"),
	"drug":      words("Zolin Cardex Nuvia Pramox Lorin Veltra Dexin Amoral"),
	"metal":     words("iron copper zinc nickel lead tin silver cobalt"),
	"position":  words("goalkeeper defender midfielder striker captain coach"),
	"payment":   words("cash card invoice transfer voucher"),
	"room":      words("single double suite studio loft"),
	"team":      words("Hawks Lions Sharks Wolves Bears Eagles Rovers United Comets Pirates Storm Rangers"),
	"street":    words("Main Oak Elm Park Hill Lake River Station Church Garden"),
	"adjective": words("Silent Golden Hidden Broken Bright Frozen Crimson Gentle Distant Endless Lonely Royal Wild Ancient"),
	"noun":      words("River Garden Empire Mirror Winter Harbor Forest Signal Shadow Crown Bridge Letter Comet Voyage"),
	"suffix":    words("Group Labs Works Partners Systems Foods Motors Trading"),
	"crop":      words("wheat maize rice barley oats soy cotton potato"),
	"shape":     words("round square oval flat curved hexagonal"),
	"category":  words("standard special seasonal classic modern local imported limited"),
	"method":    words("online phone mail counter agent"),
	"gender":    words("female male"),
	"license":   words("MIT Apache BSD GPL Mozilla"),
	"platform":  words("web mobile desktop console tablet"),
	"planet":    words("Mercury Venus Mars Jupiter Saturn Uranus Neptune"),
	"season":    words("spring summer autumn winter"),
}

func words(s string) []string { return strings.Fields(s) }

// value draws from a vocabulary, composing names of people, companies and
// titles.
func (r *rng) value(vocabulary string) string {
	v := func(name string) string { return pick(r, vocabularies[name]) }
	switch vocabulary {
	case "person":
		return v("first") + " " + v("last")
	case "company":
		if r.chance(0.5) {
			return v("last") + " " + v("suffix")
		}
		return v("noun") + " " + v("suffix")
	case "title":
		return v("adjective") + " " + v("noun")
	case "place":
		return v("street") + " " + v("noun")
	}
	return v(vocabulary)
}
