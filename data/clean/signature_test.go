package clean

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

func TestNormalForm(t *testing.T) {
	var f folder
	for in, want := range map[string]string{
		"":                                   "",
		"  A\tb\r\n c  ":                     "a b c",
		"Straße ΣΊΣΥΦΟΣ":                     "strasse σίσυφοσ",
		"e\u0301 É":                          "é é",
		"ﬁ Ａ １ ㍿":                            "fi a 1 株式会社",
		"\ufeffa\u200bb\u00adc\u00a0d\u3000": "abc d",
		"a\u0301\u200d\u0323":                "ạ́",
		"👍\ufe0f":                            "👍",
		"İ":                                  "i̇",
		"x\u0000y":                           "x\x00y",
	} {
		require.Equal(t, want, string(f.append(nil, in)), "%q", in)
		require.Equal(t, "kept"+want, string(f.append([]byte("kept"), in)), "%q", in)
	}
}

func FuzzNormalForm(f *testing.F) {
	for _, s := range []string{"Äb  c", "e\u0301\u0323", "ﷺ", "\ufeff \u200b", "가각", "世e\u0301界\u0301 A世", "\xff\xfe", strings.Repeat("\u0301", 100)} {
		f.Add(s)
	}
	var g folder
	f.Fuzz(func(t *testing.T, in string) {
		out := string(g.append(nil, in))
		if strings.ContainsAny(out, "\n\r\t") || strings.Contains(out, "  ") || strings.TrimSpace(out) != out {
			t.Fatalf("%q became %q", in, out)
		}
		if len(in) > 60 || !utf8.ValidString(in) { // beyond 30 marks in a row, x/text inserts what it then sees as a bound
			return
		}
		// The short cuts for ASCII and ideographs change nothing.
		whole := strings.Join(strings.FieldsFunc(string(g.casefold(in)), unicode.IsSpace), " ")
		if whole = strings.ReplaceAll(whole, "\u034f", ""); whole != out {
			t.Fatalf("%+q became %+q, at once %+q", in, out, whole)
		}
	})
}

func TestExactSignatures(t *testing.T) {
	c := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeExact})
	base := chat("One  two", "Three")
	for name, same := range map[string]data.Record{
		"case":        chat("ONE two", "three"),
		"white space": chat("One\n two ", "\tThree"),
		"shapeless":   chat("\ufeffOne tw\u00ado", "Three"),
		"wide":        chat("Ｏne two", "Three"),
	} {
		same.ID, same.Number = "other", 3
		require.Equal(t, c.Sign(base), c.Sign(same), name)
	}
	for name, other := range map[string]data.Record{
		"word":                chat("One too", "Three"),
		"words run together":  chat("Onetwo", "Three"),
		"turns cut elsewhere": chat("One", "two Three"),
		"fewer turns":         chat("One two Three"),
		"role":                {Turns: []data.Turn{{Role: data.System, Text: "One two"}, {Role: data.Assistant, Text: "Three"}}},
		"role inside a text":  chat("One two\nassistant\nThree"),
		"punctuation":         chat("One, two", "Three"),
		"empty turn":          chat("One two", "Three", ""),
	} {
		require.NotEqual(t, c.Sign(base), c.Sign(other), name)
	}
}

// words counts the words of a text as signatures see them.
func words(text string) int {
	s := new(signer)
	s.sign(chat(text).Turns, true)
	if n := s.grams(); n > 0 {
		return n + gram - 1
	}
	return -1
}

func TestWords(t *testing.T) {
	for in, want := range map[string]int{
		"a b c d e":               5,
		"a, b. c! d? (e)":         5,
		"snake_case don't 12.5 x": 6, // don t, 12 5
		"我喜欢吃苹果":                  6,
		"これはペンです":                 7,
		"나라의 북쪽 날씨는 여기보다 훨씬":              5,
		"i < b && c = d + e":              8, // && is punctuation
		"👍👍👍👍👍":                           5,
		"user user assistant user system": 5,
	} {
		require.Equal(t, want, words(in), in)
	}
}

func TestShortTexts(t *testing.T) {
	c := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeNear})
	require.Equal(t, tooShort, c.Sign(chat(strings.Repeat("a ", 23))).kind)
	require.Equal(t, full, c.Sign(chat(strings.Repeat("a ", 20), "b b b b")).kind)
	exact := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeExact})
	require.Equal(t, exactOnly, exact.Sign(chat(strings.Repeat("a ", 100))).kind)
}

// document is n words of a vocabulary, each different from what chance repeats.
func document(r *rand.Rand, n int) []string {
	w := make([]string, n)
	for i := range w {
		w[i] = fmt.Sprintf("w%d", r.IntN(50_000))
	}
	return w
}

// edited replaces words of a document at random places.
func edited(r *rand.Rand, doc []string, edits int) []string {
	out := append([]string(nil), doc...)
	for range edits {
		out[r.IntN(len(out))] = fmt.Sprintf("e%d", r.IntN(50_000))
	}
	return out
}

// jaccard is the true similarity of two documents' 5-grams.
func jaccard(a, b []string) float64 {
	set := map[string]int{}
	for side, doc := range [][]string{a, b} {
		for i := 0; i+gram <= len(doc); i++ {
			set[strings.Join(doc[i:i+gram], " ")] |= 1 << side
		}
	}
	both := 0
	for _, s := range set {
		if s == 3 {
			both++
		}
	}
	return float64(both) / float64(len(set))
}

func estimate(a, b Signature) float64 {
	n := 0
	for i := range a.near {
		if a.near[i] == b.near[i] {
			n++
		}
	}
	return float64(n) / permutations
}

// TestEstimate holds MinHash to the statistics it promises: no bias, and the
// standard error of 128 draws.
func TestEstimate(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeNear})
	var sum, squares, z float64
	const pairs = 2000
	for range pairs {
		a := document(r, 60+r.IntN(300))
		b := edited(r, a, r.IntN(len(a)/5))
		truth := jaccard(a, b)
		e := estimate(c.Sign(chat(strings.Join(a, " "))), c.Sign(chat(strings.Join(b, " ")))) - truth
		sum += e
		squares += e * e
		if v := truth * (1 - truth) / permutations; v > 0 {
			z += e * e / v
		} else {
			z++
			require.Zero(t, e)
		}
	}
	require.Less(t, math.Abs(sum/pairs), 0.004, "bias")
	require.Less(t, math.Sqrt(squares/pairs), 0.045, "error")
	require.Less(t, z/pairs, 1.1, "error against that of independent hashes")
}

func TestMatches(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	a, b := make([]byte, nearBytes), make([]byte, nearBytes)
	for range 2000 {
		want := 0
		for i := 0; i < nearBytes; i += 2 {
			a[i], a[i+1] = byte(r.IntN(256)), byte(r.IntN(256))
			b[i], b[i+1] = a[i], a[i+1]
			switch r.IntN(4) {
			case 0:
				b[i] ^= 1 << r.IntN(8)
			case 1:
				b[i+1] ^= 1 << r.IntN(8)
			default:
				want++
			}
		}
		require.Equal(t, want, matches(a, b, 0))
		need := r.IntN(permutations + 1)
		if got := matches(a, b, need); want >= need {
			require.Equal(t, want, got)
		} else {
			require.Less(t, got, need)
		}
	}
}

// TestGolden notices any change in what is cleaned or signed: then rules must
// grow, and the digest here with it.
func TestGolden(t *testing.T) {
	c := newCleaner(t, specstream.CleanSpec{HTML: true, BlockedPhrases: []string{"default"}, SkipLanguages: []string{"fr"}, Dedupe: specstream.DedupeNear})
	h := xxh3.New()
	r := rand.New(rand.NewPCG(5, 6))
	pieces := []string{"<p>", "</p>", "<b>x</b>", "Ünï", " 我们 ", "\n", "Copy code", "```", "1 / 2", "<ul><li>", "</ul>", "of the ", "αβΓ", "e\u0301", "&amp;", "<pre>", "as an AI language model", "👍", "_z", "bonjour le monde "}
	for range 600 {
		var b strings.Builder
		for range r.IntN(60) {
			b.WriteString(pieces[r.IntN(len(pieces))])
		}
		rec := chat("q "+b.String(), chatDiv+b.String()+"</div>")
		err := c.Clean(&rec)
		fmt.Fprint(h, err, rec.Changed, rec.Turns, c.Sign(rec))
	}
	sum := h.Sum128().Bytes()
	require.Equal(t, "bd47b75cca0813a605563d5003ac2dda", hex.EncodeToString(sum[:]), "rules changed: raise the version of the rules")
	require.True(t, strings.HasPrefix(c.Version(), fmt.Sprintf("%d+unicode", rules)))
}

func sampleSignatures(near bool, n int) []Signature {
	spec := specstream.CleanSpec{Dedupe: specstream.DedupeExact}
	if near {
		spec.Dedupe = specstream.DedupeNear
	}
	c, err := New(spec.WithDefaults())
	if err != nil {
		panic(err)
	}
	var out []Signature
	for i := range n {
		out = append(out, c.Sign(chat(strings.Repeat(fmt.Sprintf("w%d x ", i), i%30))))
	}
	return out
}

func TestSignatureFile(t *testing.T) {
	for _, n := range []int{0, 1, 40} {
		for _, near := range []bool{false, true} {
			sigs := sampleSignatures(near, n)
			var back []Signature
			err := readSignatures(signatures(t, sigs), 0, func(head, near []byte) error {
				s := Signature{kind: rowKind(head)}
				copy(s.exact[:], rowExact(head))
				for i := range len(near) / 2 {
					s.near[i] = uint16(near[2*i]) | uint16(near[2*i+1])<<8
				}
				back = append(back, s)
				require.Equal(t, int64(len(back)), rowNumber(head))
				return nil
			})
			require.NoError(t, err)
			require.Equal(t, sigs, back)
		}
	}
}

func readAll(src SignatureSource) (rows int, err error) {
	err = readSignatures(src, 3, func(_, _ []byte) error { rows++; return nil })
	return rows, err
}

// TestDamagedSignatureFile: any byte lost, changed or added is an error that
// says which part, and that signing it again helps.
func TestDamagedSignatureFile(t *testing.T) {
	src := signatures(t, sampleSignatures(true, 20))
	whole := make([]byte, src.Size())
	_, err := src.ReadAt(whole, 0)
	require.NoError(t, err)
	check := func(b []byte, what string) {
		_, err := readAll(bytes.NewReader(b))
		var in *specstream.InputError
		require.ErrorAs(t, err, &in, what)
		require.Equal(t, "signatures of part 3", in.File, what)
		require.NotEmpty(t, in.Hint)
	}
	for i := range whole {
		check(whole[:i], fmt.Sprintf("cut at %d", i))
		for _, bit := range []byte{1, 0x80} {
			b := bytes.Clone(whole)
			b[i] ^= bit
			check(b, fmt.Sprintf("bit of byte %d", i))
		}
	}
	check(append(bytes.Clone(whole), 0), "a byte more")
	check(append(bytes.Clone(whole), whole...), "twice")

	_, err = readAll(failing{src})
	require.ErrorIs(t, err, errDisk)
	require.False(t, specstream.BadInput(err), "a failing disk is worth another try")
}

var errDisk = errors.New("the disk failed")

type failing struct{ SignatureSource }

func (f failing) ReadAt(p []byte, off int64) (int, error) { return 0, errDisk }

func TestSignatureWriter(t *testing.T) {
	var b bytes.Buffer
	w := NewSignatureWriter(&b)
	require.ErrorContains(t, w.Write(0, Signature{}), "must grow")
	require.NoError(t, w.Write(5, Signature{}))
	require.ErrorContains(t, w.Write(5, Signature{}), "record 5 after that of record 5")
	require.NoError(t, w.Write(9, Signature{}))
	require.NoError(t, w.Close())
	require.Error(t, w.Close())
	require.Error(t, w.Write(10, Signature{}))
	n, err := readAll(bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	require.Equal(t, 2, n)

	w = NewSignatureWriter(full0{})
	for i := int64(1); err == nil && i < 100_000; i++ {
		err = w.Write(i, Signature{})
	}
	require.ErrorIs(t, err, io.ErrShortWrite)
	require.ErrorIs(t, w.Close(), io.ErrShortWrite)
}

type full0 struct{}

func (full0) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func FuzzSignatureFile(f *testing.F) {
	for _, n := range []int{0, 1, 30} {
		for _, near := range []bool{false, true} {
			src := signatures(f, sampleSignatures(near, n))
			b := make([]byte, src.Size())
			if _, err := src.ReadAt(b, 0); err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	f.Add([]byte(signatureMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := readAll(bytes.NewReader(b))
		if err != nil && !specstream.BadInput(err) {
			t.Fatal(err)
		}
		if err == nil && len(b) < 8+n*rowHead+25 {
			t.Fatalf("%d rows in %d bytes", n, len(b))
		}
	})
}

func textSize(records []data.Record) (size int64) {
	for _, r := range records {
		for _, t := range r.Turns {
			size += int64(len(t.Text))
		}
	}
	return size
}

func BenchmarkClean(b *testing.B) {
	records := conversations(b, "sharegpt/mix_train.json.gz")
	size := textSize(records)
	html := make([]data.Record, len(records))
	for i, r := range records {
		for _, t := range r.Turns {
			if t.Role == data.Assistant {
				t.Text = chatDiv + "<p>" + strings.ReplaceAll(strings.ReplaceAll(t.Text, "<", "&lt;"), "\n", "</p><p>") + "</p></div>"
			}
			html[i].Turns = append(html[i].Turns, t)
		}
	}
	for _, c := range []struct {
		name    string
		spec    specstream.CleanSpec
		records []data.Record
	}{
		{"default", specstream.CleanSpec{HTML: true, BlockedPhrases: []string{"default"}}, records},
		{"html-off", specstream.CleanSpec{BlockedPhrases: []string{"default"}}, records},
		{"html-in", specstream.CleanSpec{HTML: true}, html},
		{"languages", specstream.CleanSpec{SkipLanguages: []string{"fr"}}, records},
	} {
		b.Run(c.name, func(b *testing.B) {
			clean := newCleaner(b, c.spec)
			reportCPU(b, size, func() {
				for _, r := range c.records {
					r.Turns = append([]data.Turn(nil), r.Turns...)
					if err := clean.Clean(&r); err != nil && !errors.As(err, new(*data.SkipError)) {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

func BenchmarkSign(b *testing.B) {
	records := conversations(b, "sharegpt/mix_train.json.gz")
	size := textSize(records)
	for _, dedupe := range []string{specstream.DedupeExact, specstream.DedupeNear} {
		b.Run(dedupe, func(b *testing.B) {
			c := newCleaner(b, specstream.CleanSpec{Dedupe: dedupe})
			reportCPU(b, size, func() {
				for _, r := range records {
					c.Sign(r)
				}
			})
		})
	}
}
