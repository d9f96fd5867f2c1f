package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// generated is one element for each format, of about the size and make of real
// ones.
func generated(t testing.TB) map[string]Raw {
	t.Helper()
	sentence := "The quick brown fox said: \"over there\", and jumped over\nthe lazy dog. Naïve cafés cost 3 € — or so it seems. "
	chat := map[string]any{"id": "gen_0", "conversations": []any{}}
	turns := []any{}
	for i := range 8 {
		turns = append(turns, map[string]any{"from": []string{"human", "gpt"}[i%2], "value": strings.Repeat(sentence, 1+5*(i%2))})
	}
	chat["conversations"] = turns
	out := map[string]Raw{"e2e": {Number: 1, Cells: []string{"name[The Vaults], eatType[pub], priceRange[more than £30], near[Café Adriatic]", "The Vaults pub near Café Adriatic has a 5 star rating."}}}
	for name, v := range map[string]any{
		"sharegpt":  chat,
		"dialogsum": map[string]any{"fname": "gen_0", "dialogue": strings.Repeat("#Person1#: "+sentence, 7), "summary": sentence, "topic": "a fox"},
		"sql":       map[string]any{"question": "How many singers are older than 30?", "context": "CREATE TABLE singer (name VARCHAR, age INTEGER)", "answer": "SELECT COUNT(*) FROM singer WHERE age > 30"},
		"alpaca":    map[string]any{"instruction": "Name the animals of the sentence.", "input": sentence, "output": strings.Repeat("The fox and the dog. ", 20), "text": strings.Repeat(sentence, 4)},
		"specbench": map[string]any{"question_id": 81, "category": "writing", "turns": []string{strings.Repeat(sentence, 3), sentence}, "reference": []string{sentence, ""}},
	} {
		b, err := json.Marshal(v)
		require.NoError(t, err)
		out[name] = Raw{Number: 1, JSON: b}
	}
	out["mapping"] = out["alpaca"]
	return out
}

func formatNamed(t testing.TB, name string) Format {
	t.Helper()
	spec := specstream.DataSpec{Format: name}
	if name == "mapping" {
		spec.Mapping = &specstream.MappingSpec{Prompt: "{instruction}\n\n{input}", Completion: "output"}
	}
	f, err := FormatFor(spec.WithDefaults())
	require.NoError(t, err)
	return f
}

func BenchmarkDecode(b *testing.B) {
	all := generated(b)
	for _, name := range specstream.Formats {
		b.Run(name, func(b *testing.B) {
			f, raw := formatNamed(b, name), all[name]
			size := len(raw.JSON)
			for _, c := range raw.Cells {
				size += len(c)
			}
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.decode(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkScan is the part of decoding that finds what sonic passes over.
func BenchmarkScan(b *testing.B) {
	all := generated(b)
	for name, keys := range map[string]*keySet{"sharegpt": chatKeys, "sql": sqlKeys, "dialogsum": dialogSumKeys, "alpaca": alpacaKeys} {
		b.Run(name, func(b *testing.B) {
			text := all[name].JSON
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				if s := scan(text, keys); s != (scanned{}) {
					b.Fatal(s)
				}
			}
		})
	}
}

// fuzzElements feeds a format's decoder any element: what is not well-formed JSON
// is damage and nothing else is, and every record it gives is normalised.
func fuzzElements(f *testing.F, format Format, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		// sonic goes another way where many bytes follow.
		if _, err := format.decode(Raw{Number: 1, JSON: append(slices.Clone(in), bytes.Repeat([]byte(" "), 128)...)}); (err == nil || recoverable(err)) != json.Valid(in) {
			t.Fatalf("%q and spaces: valid JSON is %v, got %v", in, json.Valid(in), err)
		}
		r, err := format.decode(Raw{Number: 1, JSON: in})
		valid := json.Valid(in)
		if damage := err != nil && !recoverable(err); damage == valid || damage && !specstream.BadInput(err) {
			t.Fatalf("%q: valid JSON is %v, got %v", in, valid, err)
		}
		if err != nil {
			return
		}
		if format.Name() == "specbench" && r.Turns[len(r.Turns)-1].Role == User {
			r.Turns = append(r.Turns, Turn{Assistant, "none"}) // a question without a reference
		}
		checkNormal(t, r)
		for _, turn := range r.Turns {
			if !utf8.ValidString(turn.Text) {
				t.Fatalf("%q gives a text that is not UTF-8", in)
			}
		}
	})
}

func FuzzAlpaca(f *testing.F) {
	fuzzElements(f, formatNamed(f, "alpaca"), `{"instruction":"i","input":"x","output":"o","history":[["a","b"]],"system":"s"}`, `{"instruction":1}`, `[]`, `{"history":[[null,""],["a"]]}`)
}

func FuzzSpecBench(f *testing.F) {
	fuzzElements(f, formatNamed(f, "specbench"), `{"question_id":1,"category":"qa","turns":["a","b"],"reference":["",["c","d"]]}`, `{"turns":["a"],"reference":"b"}`, `{"turns":[null]}`)
}

func FuzzMapping(f *testing.F) {
	format, err := mappingFormat(specstream.MappingSpec{Prompt: "{a.0.b} {c}", Completion: "d", System: "s", ID: "id", References: []string{"r"}}, repeatedDrop)
	require.NoError(f, err)
	fuzzElements(f, format, `{"a":[{"b":"x"}],"c":1e999,"d":"y","s":null,"id":7,"r":["z",null]}`, `{"a":{"0":{"b":"\ud800"}},"c":true,"d":"y","s":"","id":null,"r":""}`, `{"a":1}`, `7`)
}

func FuzzMappedConversation(f *testing.F) {
	format, err := mappingFormat(specstream.MappingSpec{Messages: "m", Role: "r", Content: "c", System: "s", Roles: map[string]string{"x": "user"}}, repeatedMerge)
	require.NoError(f, err)
	fuzzElements(f, format, `{"s":"S","m":[{"r":"X","c":"u"},{"r":"user","c":"v"},{"r":"gpt","c":["a",{"text":"b"}]}]}`, `{"s":null,"m":[{"r":"system","c":""}]}`, `{"m":{}}`)
}

func FuzzMergedChat(f *testing.F) {
	format, err := FormatFor(specstream.DataSpec{Format: "sharegpt", Clean: &specstream.CleanSpec{RepeatedTurns: repeatedMerge}})
	require.NoError(f, err)
	fuzzElements(f, format, `{"conversation_id":1,"conversation":[{"human":"u","assistant":"a"},{"human":"v","assistant":"b"}],"system":"s","tools":"[1]"}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"user","content":"v"},{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}]}`,
		`{"items":[{"from":"gpt","value":"0","function_call":{"name":"g"}},{"from":"human","role":"user","value":"u"}]}`)
}

// duplicate walks over well-formed JSON token by token and reports whether an
// object has one of the keys twice.
func duplicate(t testing.TB, text []byte, keys *keySet) bool {
	t.Helper()
	match := func(a, b string) bool {
		return a == b || !keys.exact && len(a) == len(b) && equalFold([]byte(a), b)
	}
	type level struct {
		object, value bool // an object; its next token is a value
		seen          []string
	}
	var open []level
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		token, err := d.Token()
		if err == io.EOF {
			return false
		}
		if ute := new(json.UnmarshalTypeError); errors.As(err, &ute) {
			token, err = 0.0, nil // a number beyond float64
		}
		require.NoError(t, err)
		if delim, ok := token.(json.Delim); ok && (delim == '}' || delim == ']') {
			open = open[:len(open)-1]
			continue
		}
		if n := len(open); n > 0 && open[n-1].object {
			top := &open[n-1]
			if top.value = !top.value; top.value {
				for i, name := range keys.names {
					if !match(token.(string), name) {
						continue
					}
					if slices.Contains(top.seen, keys.names[i]) {
						return true
					}
					top.seen = append(top.seen, keys.names[i])
				}
				continue
			}
		}
		if delim, ok := token.(json.Delim); ok {
			open = append(open, level{object: delim == '{'})
		}
	}
}

// FuzzDuplicateKeys holds the scan to encoding/json's tokens.
func FuzzDuplicateKeys(f *testing.F) {
	for _, s := range []string{`{"a":1,"a":2}`, `{"a":{"b":1,"A":2},"b":[{"a":1},{"a":2}]}`, `{"\u0061":"a\\","a" :"\""}`, `[{"bb":1,"bb":2}]`, `{"a":"a","b":"\\\"a\":"}`, `{"":1,"":2}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, exact := range []bool{true, false} {
			keys := keysOf(exact, "a", "bb", "value")
			err := scan(text, keys).problem
			var b *BadRecordError
			if !utf8.Valid(text) || !json.Valid(text) || errors.As(err, &b) && b.Code == BadDepth {
				continue
			}
			if want := duplicate(t, text, keys); want != (err != nil) {
				t.Fatalf("%q: a duplicate key is %v, got %v", text, want, err)
			}
		}
	})
}
