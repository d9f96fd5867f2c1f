package clean

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/abadojack/whatlanggo"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// Of every record a sample is enough, and keeps the filter's cost in bounds:
// telling Latin languages apart reads about a megabyte a second.
const (
	sampleTurn = 400  // bytes of prose of one turn
	sampleAll  = 1200 // bytes of prose of a record
	// minLetters is the weight of letters below which no language is told, and
	// minTrigrams that below which trigrams tell none.
	minLetters  = 24
	minTrigrams = 80
)

// script is what a language is written in, with its weight in mixed text: an
// ideograph says as much as a few Latin letters, and texts in other scripts are
// full of Latin names.
type script struct {
	table  *unicode.RangeTable
	weight int
}

// scripts beside Latin, which ASCII letters and whatever else is Latin count for.
var scripts = []script{
	{unicode.Han, 3}, {unicode.Hiragana, 2}, {unicode.Katakana, 2}, {unicode.Hangul, 3},
	{unicode.Cyrillic, 1}, {unicode.Arabic, 1}, {unicode.Hebrew, 1}, {unicode.Greek, 1}, {unicode.Devanagari, 1}, {unicode.Bengali, 1},
	{unicode.Tamil, 1}, {unicode.Telugu, 1}, {unicode.Kannada, 1}, {unicode.Malayalam, 1}, {unicode.Gujarati, 1}, {unicode.Gurmukhi, 1},
	{unicode.Oriya, 1}, {unicode.Sinhala, 1}, {unicode.Thai, 1}, {unicode.Khmer, 1}, {unicode.Myanmar, 1}, {unicode.Georgian, 1},
	{unicode.Ethiopic, 1},
}

// notLatin are the languages of other scripts that can be told.
var notLatin = map[string]*unicode.RangeTable{
	"zh": unicode.Han, "ja": unicode.Han, "ko": unicode.Hangul,
	"ru": unicode.Cyrillic, "uk": unicode.Cyrillic, "bg": unicode.Cyrillic, "be": unicode.Cyrillic, "mk": unicode.Cyrillic, "sr": unicode.Cyrillic,
	"ar": unicode.Arabic, "fa": unicode.Arabic, "ur": unicode.Arabic, "ug": unicode.Arabic, "he": unicode.Hebrew, "yi": unicode.Hebrew,
	"hi": unicode.Devanagari, "mr": unicode.Devanagari, "ne": unicode.Devanagari, "bh": unicode.Devanagari,
	"el": unicode.Greek, "bn": unicode.Bengali, "ta": unicode.Tamil, "te": unicode.Telugu, "kn": unicode.Kannada, "ml": unicode.Malayalam,
	"gu": unicode.Gujarati, "pa": unicode.Gurmukhi, "or": unicode.Oriya, "si": unicode.Sinhala, "th": unicode.Thai, "km": unicode.Khmer,
	"my": unicode.Myanmar, "ka": unicode.Georgian, "am": unicode.Ethiopic, "ti": unicode.Ethiopic,
}

// known maps the codes of all languages that can be told to their scripts.
var known = func() map[string]*unicode.RangeTable {
	m := map[string]*unicode.RangeTable{}
	for l := whatlanggo.Afr; l <= whatlanggo.Zul; l++ {
		if code := languageCode(l); code != "" && notLatin[code] == nil {
			m[code] = unicode.Latin
		}
	}
	for code, s := range notLatin {
		m[code] = s
	}
	return m
}()

// languageCode is a language's ISO 639-1 code, "" if it has none.
func languageCode(l whatlanggo.Lang) string {
	switch l {
	case whatlanggo.Pes:
		return "fa"
	case whatlanggo.Ydd:
		return "yi"
	}
	return l.Iso6391()
}

// languages is the filter by language. A record whose language cannot be told
// for certain, for it is short or all code, passes it; but if only some
// languages are wanted, not when it is in a script that none of them has.
type languages struct {
	keep, skip []string
	scripts    []*unicode.RangeTable // of keep
}

// newLanguages returns nil when every language is wanted.
func newLanguages(keep, skip []string) (*languages, error) {
	if len(keep)+len(skip) == 0 {
		return nil, nil
	}
	l := &languages{keep: slices.Clone(keep), skip: slices.Clone(skip)}
	for _, f := range []struct {
		name  string
		codes []string
	}{{"languages", l.keep}, {"skip_languages", l.skip}} {
		for i, c := range f.codes {
			if c == "no" { // the code for both of Norway's; texts are told as the commoner one
				f.codes[i] = "nb"
			} else if known[c] == nil {
				return nil, specstream.Invalid("clean."+f.name, "%q is not a language that can be told from its text", c)
			}
		}
	}
	for _, c := range l.keep {
		l.scripts = append(l.scripts, known[c])
	}
	return l, nil
}

// objection says why turns are in a language that is not wanted, "" if they are
// not known to be.
func (l *languages) objection(turns []data.Turn) string {
	code, script := detect(sample(turns))
	switch {
	case code != "" && slices.Contains(l.skip, code), code != "" && len(l.keep) > 0 && !slices.Contains(l.keep, code):
		return fmt.Sprintf("is in the language %q", code)
	case code == "" && script != nil && len(l.keep) > 0 && !slices.Contains(l.scripts, script):
		return "is in no language that is wanted: none of them is written in its script"
	}
	return ""
}

// sample takes the beginnings of turns without their code. System turns are in
// English whatever the conversation is in.
func sample(turns []data.Turn) string {
	out := make([]byte, 0, sampleAll)
	for _, t := range turns {
		if t.Role == data.System {
			continue
		}
		out = prose(out, t.Text, min(len(out)+sampleTurn, sampleAll))
		if len(out) >= sampleAll-utf8.UTFMax {
			break
		}
	}
	return string(out)
}

// prose appends text to dst up to a length of most, without fenced code, code
// within lines and addresses.
func prose(dst []byte, s string, most int) []byte {
	for s != "" && len(dst) < most {
		var cut string
		switch {
		case strings.HasPrefix(s, "```"):
			_, s, _ = strings.Cut(s[3:], "```")
			dst = append(dst, ' ')
			continue
		case s[0] == '`':
			line, _, _ := strings.Cut(s[1:], "\n")
			if i := strings.IndexByte(line, '`'); i >= 0 {
				s = s[i+2:]
				dst = append(dst, ' ')
				continue
			}
			cut = s[:1]
		case strings.HasPrefix(s, "http://"), strings.HasPrefix(s, "https://"):
			i := strings.IndexAny(s, " \t\r\n)")
			if i < 0 {
				i = len(s)
			}
			s = s[i:]
			continue
		default:
			_, n := utf8.DecodeRuneInString(s)
			cut = s[:n]
		}
		if len(dst)+len(cut) > most {
			break
		}
		dst = append(dst, cut...)
		s = s[len(cut):]
	}
	return append(dst, '\n')
}

// detect tells the language of a text by its code, "" if it cannot be told for
// certain, and the script that most of it is in, nil if it has no letters.
// Japanese counts as written in Han.
func detect(text string) (code string, in *unicode.RangeTable) {
	latin, total := 0, 0
	counts := make([]int, len(scripts))
	last := 0 // letters of one script follow each other
	for _, r := range text {
		switch {
		case r < utf8.RuneSelf:
			if c := r | 0x20; c >= 'a' && c <= 'z' {
				latin++
			}
		case unicode.Is(scripts[last].table, r):
			counts[last] += scripts[last].weight
		case unicode.Is(unicode.Latin, r):
			latin++
		case unicode.IsLetter(r):
			for i, s := range scripts {
				if unicode.Is(s.table, r) {
					counts[i] += s.weight
					last = i
					break
				}
			}
		}
	}
	const han, hiragana, katakana = 0, 1, 2
	kana := counts[hiragana] + counts[katakana]
	counts[han] += kana
	counts[hiragana], counts[katakana] = 0, 0
	best, most := unicode.Latin, latin
	for i, n := range counts {
		total += n
		if n > most {
			best, most = scripts[i].table, n
		}
	}
	if total += latin; total == 0 {
		return "", nil
	}
	switch {
	case most < minLetters:
		return "", best
	case best == unicode.Han && kana*8 >= most:
		return "ja", best
	case best == unicode.Han:
		return "zh", best
	case best == unicode.Hangul:
		return "ko", best
	case best == unicode.Latin && isEnglish(text):
		return "en", best
	}
	if most < minTrigrams && (best == unicode.Latin || best == unicode.Cyrillic || best == unicode.Arabic || best == unicode.Devanagari) {
		return "", best
	}
	if info := whatlanggo.Detect(text); info.IsReliable() {
		if c := languageCode(info.Lang); known[c] == best {
			return c, best
		}
	}
	return "", best
}

// englishWords are frequent in English and rare in every other language.
var englishWords = map[string]bool{"the": true, "and": true, "of": true, "to": true, "that": true, "with": true, "this": true, "you": true,
	"your": true, "are": true, "which": true, "have": true, "from": true, "can": true, "it": true, "is": true, "be": true, "as": true}

// isEnglish spares most English texts the slow way: a fifth of their words and
// more are of the few above.
func isEnglish(text string) bool {
	words, hits := 0, 0
	for w := range strings.FieldsFuncSeq(text, func(r rune) bool { return !unicode.IsLetter(r) && r != '\'' }) {
		words++
		if len(w) <= 5 && englishWords[strings.ToLower(w)] {
			hits++
		}
	}
	return hits >= 6 && hits*5 >= words
}
