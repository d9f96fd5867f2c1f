package clean

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

func TestStripInterface(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"controls at the end", "Text.\n2 / 2\nRegenerate response\nCopy code", "Text."},
		{"with Windows line ends", "Text.\r\nMore.\r\n2 / 2\r\nRegenerate response\r\n", "Text.\r\nMore."},
		{"share", "Text.\nShare Prompt", "Text."},
		{"count at the beginning", "1 / 2\n\nText.", "Text."},
		{"count with zero-width spaces", "\u200b1 / 1\u200b\nText.", "Text."},
		{"button on a line", "Do this:\n\npython\nCopy code\nimport x\n", "Do this:\n\nimport x"},
		{"button behind a colon", "Do this:\nc++\nCopy code\nint x;", "Do this:\nint x;"},
		{"button without a language", "Do this:\nCopy code\nimport x", "Do this:\nimport x"},
		{"a line before the button that is prose", "Do\nthat\nCopy code\nx", "Do\nthat\nx"},
		{"head behind a fence", "```pythonCopy code\nx\n```", "```python\nx\n```"},
		{"head in the first line", "```\npythonCopy codeimport x\ny\n```", "```python\nimport x\ny\n```"},
		{"head as the first line", "```\nbashCopy code\nls\n```", "```bash\nls\n```"},
		{"button as the first line", "```go\nCopy code\nx\n```", "```go\nx\n```"},
		{"nothing but a head", "a\n```\nCopy code\n```\nb", "a\nb"},
		{"counts of what was copied", "a\nCopy12 chars / 3 words\nb Copy1 chars / 1 words", "a\nb"},
		{"controls behind a block", "```\nx\n```\nCopy code\nRegenerate response", "```\nx\n```"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, removed := stripInterface(c.in)
			require.True(t, removed)
			require.Equal(t, c.want, got)
			again, removed := stripInterface(got)
			require.False(t, removed, "%q", again)
		})
	}
	for name, in := range map[string]string{
		"a fraction":                      "1 / 2",
		"a fraction at the end":           "The answer is:\n1 / 2",
		"a quotient first":                "80 / 4 = 20\nSo 20.",
		"a big quotient":                  "100 / 7\nis about 14.",
		"prose about the button":          "Press Copy code and then Regenerate response to go on.",
		"a list item":                     "- Copy code\n- Regenerate response",
		"the button inside code":          "```html\n<b>\nCopy code\n</b>\n```",
		"the button as a comment":         "```\nCopy code to here\n```",
		"a fence in a line":               "```Copy code``` is what it says",
		"trailing white space left alone": "Text. \n\n",
		"empty":                           "",
	} {
		t.Run(name, func(t *testing.T) {
			got, removed := stripInterface(in)
			require.False(t, removed)
			require.Equal(t, in, got)
		})
	}
}

func FuzzInterface(f *testing.F) {
	for _, s := range []string{"a\n2 / 2\nCopy code", "```\npythonCopy codex\n```", "```\nCopy code\n```", "1 / 1\n1 / 1\nx", "python\nCopy code\n~~~", "Copy1 chars / 1 words"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, removed := stripInterface(in)
		if removed == (in == out) && removed {
			t.Fatalf("%q: said to have changed", in)
		}
		if !removed && in != out {
			t.Fatalf("%q became %q in silence", in, out)
		}
		if len(out) > len(in) {
			t.Fatalf("%q grew to %q", in, out)
		}
	})
}

func TestClean(t *testing.T) {
	all := specstream.CleanSpec{HTML: true, BlockedPhrases: []string{"default", "Straße nach Ω"}, Languages: []string{"en", "de", "zh"}}
	const german = "Das ist ein ganz gewöhnlicher deutscher Satz, der lang genug ist, um als solcher erkannt zu werden, und noch ein wenig mehr dazu."
	for _, c := range []struct {
		name          string
		record        data.Record
		reason, field string
		want          string // in the message, or the last turn when nothing is wrong
		changed       []string
	}{
		{"unchanged", chat("q", "An answer."), "", "", "An answer.", nil},
		{"both changes, each said once", chat("q", chatDiv+"<p>a</p></div>\nCopy code", "q", chatDiv+"<p>b</p></div>\n2 / 2\nCopy code"), "", "", "b", []string{ChangedHTML, ChangedInterface}},
		{"only markup", chat("q", chatDiv+"<p> </p></div>"), SkipEmpty, "turns[1]", "no text but markup", nil},
		{"only interface text", chat("q", "a", "q", "2 / 2\nRegenerate response"), SkipEmpty, "turns[3]", "no text", nil},
		{"phrase", chat("q", "Well, as an AI  Language\nModel, no."), SkipPhrase, "turns[1]", `"as an AI language model"`, nil},
		{"phrase with a typographic apostrophe", chat("q", "I’m sorry, but I cannot."), SkipPhrase, "turns[1]", `"I'm sorry, but I cannot"`, nil},
		{"phrase in full-width letters", chat("q", "ＡＳ ＡＮ ＡＩ ＬＡＮＧＵＡＧＥ ＭＯＤＥＬ"), SkipPhrase, "turns[1]", "as an AI language model", nil},
		{"phrase in Chinese", chat("q", "作为一个语言模型，我没有感情。"), SkipPhrase, "turns[1]", "作为一个语言模型", nil},
		{"own phrase, case folded", chat("q", "Die STRASSE NACH ω."), SkipPhrase, "turns[1]", `"Straße nach Ω"`, nil},
		{"phrase of the user", chat("You are, as an AI language model, bound.", "No."), "", "", "No.", nil},
		{"phrase under markup", chat("q", chatDiv+"<p>as an <b>AI</b> language&#32;model</p></div>"), "", "", "as an **AI** language model", []string{ChangedHTML}},
		{"wanted language", chat(german, german), "", "", german, nil},
		{"language that is not wanted", chat("제품 개발 계획 수립을 도와줬으면 해.", "나라의 북쪽 날씨는 여기보다 훨씬 춥습니다."), SkipLanguage, "", `"ko"`, nil},
		{"script that is not wanted", chat("да", "нет"), SkipLanguage, "", "none of them is written in its script", nil},
		{"language unknown", chat("q", "```python\nprint('x')\n```"), "", "", "```python\nprint('x')\n```", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := c.record
			err := newCleaner(t, all).Clean(&r)
			if c.reason == "" {
				require.NoError(t, err)
				require.Equal(t, c.want, r.Turns[len(r.Turns)-1].Text)
				require.Equal(t, c.changed, r.Changed)
				return
			}
			var s *data.SkipError
			require.ErrorAs(t, err, &s)
			require.Equal(t, c.reason, s.Reason)
			require.Equal(t, c.field, s.Input.Field)
			require.Equal(t, "in.json", s.Input.File)
			require.Equal(t, int64(7), s.Input.Record)
			require.ErrorContains(t, err, c.want)
			require.True(t, specstream.BadInput(err))
		})
	}
}

// TestNothingAsked: a specification that asks for nothing changes nothing.
func TestNothingAsked(t *testing.T) {
	c := newCleaner(t, specstream.CleanSpec{})
	r := chat("q", chatDiv+"<p>as an AI language model</p></div>\nCopy code")
	want := slices.Clone(r.Turns)
	require.NoError(t, c.Clean(&r))
	require.Equal(t, want, r.Turns)
	require.Empty(t, r.Changed)
	require.False(t, c.Dedupes())
	require.NoError(t, c.Dedupe(t.Context(), nil, "", func(Duplicate) error { panic("none") }))
}

func TestBadSpecs(t *testing.T) {
	for _, c := range []struct {
		name string
		spec specstream.CleanSpec
		want string
	}{
		{"language that cannot be told", specstream.CleanSpec{Languages: []string{"en", "xx"}}, `clean.languages`},
		{"language to skip that cannot be told", specstream.CleanSpec{SkipLanguages: []string{"qq"}}, `clean.skip_languages`},
		{"both", specstream.CleanSpec{Languages: []string{"en"}, SkipLanguages: []string{"de"}}, "skip_languages"},
		{"empty phrase", specstream.CleanSpec{BlockedPhrases: []string{" "}}, "blocked_phrases"},
		{"phrase without a shape", specstream.CleanSpec{BlockedPhrases: []string{"\u200b\ufeff"}}, "blocked_phrases"},
		{"dedupe", specstream.CleanSpec{Dedupe: "fuzzy"}, "dedupe"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := New(c.spec.WithDefaults())
			require.ErrorContains(t, err, c.want)
			require.True(t, specstream.BadInput(err))
		})
	}
}

// TestMatcher compares the automaton with searching for each phrase.
func TestMatcher(t *testing.T) {
	phrases := []string{"abc", "bc", "bcd", "aab", "a", "世界", "界a"}
	for _, set := range [][]string{phrases, phrases[:4], phrases[1:4], phrases[5:]} {
		m, err := newMatcher(set)
		require.NoError(t, err)
		for _, text := range []string{"", "xabcx", "aabc", "bbcd", "b", "ab", "世界a", "世", "界a", "xxbxcxd", strings.Repeat("ab", 50) + "c"} {
			want := ""
			end := len(text) + 1
			for _, p := range set {
				if i := strings.Index(text, p); i >= 0 && i+len(p) < end {
					end = i + len(p)
				}
			}
			got := m.find([]byte(text))
			if end <= len(text) {
				require.True(t, got != "" && strings.HasSuffix(text[:end], got), "%q in %q: %q", set, text, got)
			} else {
				require.Equal(t, want, got, "%q in %q", set, text)
			}
		}
	}
	m, err := newMatcher(defaultPhrases)
	require.NoError(t, err)
	for _, p := range defaultPhrases { // each is found, whatever its case
		require.NotEmpty(t, m.find(new(folder).append(nil, "x "+strings.ToUpper(p)+" y")), p)
	}
}

func TestLanguages(t *testing.T) {
	for want, text := range map[string]string{
		"en": "The weather in the north of the country is much colder than it is here, and that is why you should take a coat with you.",
		"de": "Das Wetter im Norden des Landes ist viel kälter als hier, und deshalb sollten Sie unbedingt einen Mantel mitnehmen, wenn Sie reisen.",
		"fr": "Le temps dans le nord du pays est beaucoup plus froid qu'ici, et c'est pourquoi vous devriez emporter un manteau avec vous.",
		"es": "El tiempo en el norte del país es mucho más frío que aquí, y por eso usted debería llevar consigo un abrigo cuando viaje.",
		"ru": "Погода на севере страны намного холоднее, чем здесь, и поэтому вам следует взять с собой тёплое пальто и перчатки.",
		"uk": "Погода на півночі країни набагато холодніша, ніж тут, і тому вам слід узяти з собою тепле пальто та рукавички, щоб не змерзнути. Ще краще було б залишитися вдома й почекати, доки не прийде весна.",
		"zh": "北方的天气比这里冷得多，所以你应该带上一件外套。Use the Python library requests and the JSON module.",
		"ja": "国の北部の天気はここよりずっと寒いので、コートを持って行くべきです。",
		"ko": "나라의 북쪽 날씨는 여기보다 훨씬 춥기 때문에 외투를 가져가야 합니다.",
		"ar": "الطقس في شمال البلاد أبرد بكثير مما هو عليه هنا، ولهذا السبب يجب أن تأخذ معك معطفا دافئا عندما تسافر إلى هناك.",
		"el": "Ο καιρός στα βόρεια της χώρας είναι πολύ πιο κρύος από εδώ και γι' αυτό πρέπει να πάρετε παλτό.",
		"hi": "देश के उत्तर में मौसम यहाँ की तुलना में बहुत ठंडा है और इसीलिए आपको अपने साथ एक गर्म कोट लेकर जाना चाहिए।",
		"th": "อากาศทางตอนเหนือของประเทศหนาวกว่าที่นี่มาก ดังนั้นคุณควรนำเสื้อโค้ทไปด้วย",
		"":   "OK, hello!",
	} {
		t.Run(want, func(t *testing.T) {
			for range 5 { // the same every time
				code, _ := detect(sample(chat("q", text).Turns))
				require.Equal(t, want, code)
			}
		})
	}
	code, in := detect("12345 + 678 = ?")
	require.Empty(t, code)
	require.Nil(t, in)
	code, _ = detect(sample(chat("解释这段代码的意思，谢谢你的帮助。", "```python\n"+strings.Repeat("the value of that is to be this\n", 50)+"```\n这段代码打印一些文字。").Turns))
	require.Equal(t, "zh", code, "code is no language")
	require.LessOrEqual(t, len(sample(chat(strings.Repeat("世界 ", 5000), strings.Repeat("a ", 5000)).Turns)), sampleAll+1)

	skip, err := newLanguages(nil, []string{"no"})
	require.NoError(t, err)
	require.Equal(t, []string{"nb"}, skip.skip)
}

// TestConcurrentUse runs one Cleaner in many goroutines, for the race detector.
func TestConcurrentUse(t *testing.T) {
	c := newCleaner(t, specstream.CleanSpec{HTML: true, BlockedPhrases: []string{"default"}, SkipLanguages: []string{"fr"}, Dedupe: specstream.DedupeNear})
	want := c.Sign(chat("q", strings.Repeat("some words Ünd ", 50)))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for range 50 {
				r := chat("q", strings.Repeat("some words Ünd ", 50))
				if err := c.Clean(&r); err != nil || c.Sign(r) != want {
					t.Errorf("%v, or another signature", err)
					return
				}
			}
		})
	}
	group.Wait()
}
