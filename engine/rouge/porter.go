package rouge

import "strings"

// irregular holds the forms NLTK's stemmer looks up before any rule.
var irregular = map[string]string{
	"sky": "sky", "skies": "sky", "dying": "die", "lying": "lie", "tying": "tie", "news": "news",
	"innings": "inning", "inning": "inning", "outings": "outing", "outing": "outing", "cannings": "canning", "canning": "canning",
	"howe": "howe", "proceed": "proceed", "exceed": "exceed", "succeed": "succeed",
}

// stem is Porter's stemmer ("An algorithm for suffix stripping", 1980) with the
// extensions of NLTK's default mode, which rouge-score uses. The word is lower
// case, ASCII, and longer than three letters.
func stem(word string) string {
	if s, ok := irregular[word]; ok {
		return s
	}
	for _, step := range []func(string) string{step1a, step1b, step1c, step2, step3, step4, step5a, step5b} {
		word = step(word)
	}
	return word
}

// consonants classifies every letter of word: a vowel is a, e, i, o, u, or a y
// after a consonant.
func consonants(word string) []bool {
	c := make([]bool, len(word))
	for i := range word {
		switch word[i] {
		case 'a', 'e', 'i', 'o', 'u':
		case 'y':
			c[i] = i == 0 || !c[i-1]
		default:
			c[i] = true
		}
	}
	return c
}

// measure is Porter's m: the number of vowel-consonant turns.
func measure(stem string) int {
	c := consonants(stem)
	m := 0
	for i := 1; i < len(c); i++ {
		if !c[i-1] && c[i] {
			m++
		}
	}
	return m
}

func positiveMeasure(stem string) bool { return measure(stem) > 0 }

func measureOver1(stem string) bool { return measure(stem) > 1 }

func hasVowel(stem string) bool {
	for _, c := range consonants(stem) {
		if !c {
			return true
		}
	}
	return false
}

func endsDoubleConsonant(word string) bool {
	n := len(word)
	return n >= 2 && word[n-1] == word[n-2] && consonants(word)[n-1]
}

// endsCVC is Porter's *o, consonant-vowel-consonant where the last is not w, x
// or y; NLTK adds two-letter words vowel-consonant.
func endsCVC(word string) bool {
	c, n := consonants(word), len(word)
	if n >= 3 && c[n-3] && !c[n-2] && c[n-1] {
		last := word[n-1]
		return last != 'w' && last != 'x' && last != 'y'
	}
	return n == 2 && !c[0] && c[1]
}

// rule replaces a suffix where a condition on the stem holds; nil always holds.
type rule struct {
	suffix, replacement string
	condition           func(stem string) bool
}

// apply applies the first rule whose suffix matches; later ones are not tried
// even where its condition fails.
func apply(word string, rules []rule) string {
	for _, r := range rules {
		if stem, ok := strings.CutSuffix(word, r.suffix); ok {
			if r.condition == nil || r.condition(stem) {
				return stem + r.replacement
			}
			return word
		}
	}
	return word
}

func step1a(word string) string {
	if len(word) == 4 && strings.HasSuffix(word, "ies") {
		return word[:1] + "ie"
	}
	return apply(word, []rule{{"sses", "ss", nil}, {"ies", "i", nil}, {"ss", "ss", nil}, {"s", "", nil}})
}

func step1b(word string) string {
	if stem, ok := strings.CutSuffix(word, "ied"); ok {
		if len(word) == 4 {
			return stem + "ie"
		}
		return stem + "i"
	}
	if stem, ok := strings.CutSuffix(word, "eed"); ok {
		if positiveMeasure(stem) {
			return stem + "ee"
		}
		return word
	}
	stem, ok := strings.CutSuffix(word, "ed")
	if !ok || !hasVowel(stem) {
		stem, ok = strings.CutSuffix(word, "ing")
		if !ok || !hasVowel(stem) {
			return word
		}
	}
	for _, e := range []string{"at", "bl", "iz"} {
		if strings.HasSuffix(stem, e) {
			return stem + "e"
		}
	}
	if endsDoubleConsonant(stem) {
		if last := stem[len(stem)-1]; last != 'l' && last != 's' && last != 'z' {
			return stem[:len(stem)-1]
		}
		return stem
	}
	if measure(stem) == 1 && endsCVC(stem) {
		return stem + "e"
	}
	return stem
}

func step1c(word string) string {
	return apply(word, []rule{{"y", "i", func(stem string) bool {
		c := consonants(stem)
		return len(c) > 1 && c[len(c)-1]
	}}})
}

func step2(word string) string {
	if stem, ok := strings.CutSuffix(word, "alli"); ok && positiveMeasure(stem) {
		return step2(stem + "al")
	}
	m := positiveMeasure
	return apply(word, []rule{
		{"ational", "ate", m}, {"tional", "tion", m}, {"enci", "ence", m}, {"anci", "ance", m}, {"izer", "ize", m}, {"bli", "ble", m},
		{"alli", "al", m}, {"entli", "ent", m}, {"eli", "e", m}, {"ousli", "ous", m}, {"ization", "ize", m}, {"ation", "ate", m},
		{"ator", "ate", m}, {"alism", "al", m}, {"iveness", "ive", m}, {"fulness", "ful", m}, {"ousness", "ous", m}, {"aliti", "al", m},
		{"iviti", "ive", m}, {"biliti", "ble", m}, {"fulli", "ful", m},
		// The l counts with the stem, so that geo- and theo- work as archaeo- does.
		{"logi", "log", func(stem string) bool { return positiveMeasure(stem + "l") }},
	})
}

func step3(word string) string {
	m := positiveMeasure
	return apply(word, []rule{
		{"icate", "ic", m}, {"ative", "", m}, {"alize", "al", m}, {"iciti", "ic", m}, {"ical", "ic", m}, {"ful", "", m}, {"ness", "", m},
	})
}

func step4(word string) string {
	m := measureOver1
	return apply(word, []rule{
		{"al", "", m}, {"ance", "", m}, {"ence", "", m}, {"er", "", m}, {"ic", "", m}, {"able", "", m}, {"ible", "", m}, {"ant", "", m},
		{"ement", "", m}, {"ment", "", m}, {"ent", "", m},
		{"ion", "", func(stem string) bool {
			return measureOver1(stem) && (strings.HasSuffix(stem, "s") || strings.HasSuffix(stem, "t"))
		}},
		{"ou", "", m}, {"ism", "", m}, {"ate", "", m}, {"iti", "", m}, {"ous", "", m}, {"ive", "", m}, {"ize", "", m},
	})
}

func step5a(word string) string {
	stem, ok := strings.CutSuffix(word, "e")
	if ok && (measure(stem) > 1 || measure(stem) == 1 && !endsCVC(stem)) {
		return stem
	}
	return word
}

func step5b(word string) string {
	if strings.HasSuffix(word, "ll") && measureOver1(word[:len(word)-1]) {
		return word[:len(word)-1]
	}
	return word
}
