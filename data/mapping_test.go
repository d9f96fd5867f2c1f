package data

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

var rowsMapping = specstream.MappingSpec{Container: "csv", Prompt: "Q: {question}", Completion: "answer"}

func mapped(t testing.TB, m specstream.MappingSpec) Format {
	t.Helper()
	f, err := FormatFor(specstream.DataSpec{Format: "mapping", Mapping: &m}.WithDefaults())
	require.NoError(t, err)
	return f
}

func TestMapping(t *testing.T) {
	chat := specstream.MappingSpec{Messages: "data.turns", Role: "who", Content: "said.text", Roles: map[string]string{"Doctor": "assistant", "user": "assistant", "patient": "user"}}
	for _, c := range []struct {
		name    string
		mapping specstream.MappingSpec
		text    string
		want    Record
	}{
		{"fields", specstream.MappingSpec{Prompt: "prompt", Completion: "completion"}, `{"prompt":"p","completion":"c"}`, Record{Turns: []Turn{{User, "p"}, {Assistant, "c"}}}},
		{"texts", specstream.MappingSpec{Prompt: "{{{a.b}}} is {a.c.1}?\n", Completion: "{y}.", System: "Be {mood}."}, `{"a":{"b":"B","c":["0",1.50]},"y":true,"mood":"kind"}`,
			Record{Turns: []Turn{{System, "Be kind."}, {User, "{B} is 1.50?\n"}, {Assistant, "true."}}}},
		{"id and references", specstream.MappingSpec{Prompt: "p", Completion: "refs.0", ID: "meta.id", References: []string{"refs.1", "more", "none", "blank"}},
			`{"meta":{"id":12345678901234567890},"p":"p","refs":["a","b"],"more":["c",1.0],"none":null,"blank":""}`,
			Record{ID: "12345678901234567890", Turns: []Turn{{User, "p"}, {Assistant, "a"}}, Alternatives: []string{"b", "c", "1.0"}}},
		{"keys with dots and braces", specstream.MappingSpec{Prompt: `a\.b`, Completion: `{c\}\\}`}, `{"a.b":"p","c}\\":"c","a":{"b":"x"}}`, Record{Turns: []Turn{{User, "p"}, {Assistant, "c"}}}},
		{"keys with spaces", specstream.MappingSpec{Prompt: "{The question} ", Completion: "The answer"}, `{"The question":"p","The answer":"c"}`, Record{Turns: []Turn{{User, "p "}, {Assistant, "c"}}}},
		{"numbers as keys", specstream.MappingSpec{Prompt: "0.1", Completion: "1"}, `{"0":{"1":"p"},"1":2}`, Record{Turns: []Turn{{User, "p"}, {Assistant, "2"}}}},
		{"blank system", specstream.MappingSpec{Prompt: "p", Completion: "c", System: "s"}, `{"p":"p","c":"c","s":" "}`, Record{Turns: []Turn{{User, "p"}, {Assistant, "c"}}, Changed: []string{ChangedEmptySystem}}},
		{"null system", specstream.MappingSpec{Prompt: "p", Completion: "c", System: "s"}, `{"p":"p","c":"c","s":null}`, Record{Turns: []Turn{{User, "p"}, {Assistant, "c"}}}},
		{"messages", specstream.MappingSpec{Messages: "messages", System: "s"}, `{"s":"S","messages":[{"role":"user","content":"u"},{"role":"assistant","content":[{"type":"text","text":"a"}]}]}`,
			Record{Turns: []Turn{{System, "S"}, {User, "u"}, {Assistant, "a"}}}},
		{"roles of its own", chat, `{"data":{"turns":[{"who":"Patient","said":{"text":"u"}},{"who":"DOCTOR ","said":{"text":"a"}},{"who":"human","said":{"text":"v"}},{"who":"user","said":{"text":"b"}}]}}`,
			Record{Turns: []Turn{{User, "u"}, {Assistant, "a"}, {User, "v"}, {Assistant, "b"}}}},
		{"cut at its ends", chat, `{"data":{"turns":[{"who":"doctor","said":{"text":"0"}},{"who":"patient","said":{"text":"u"}},{"who":"doctor","said":{"text":"a"}},{"who":"patient","said":{"text":"v"}}]}}`,
			Record{Turns: []Turn{{User, "u"}, {Assistant, "a"}}, Changed: []string{ChangedLeadingTurns, ChangedTrailingTurns}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := mapped(t, c.mapping).decode(Raw{Number: 1, JSON: []byte(c.text)})
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestMappingRows(t *testing.T) {
	f := mapped(t, specstream.MappingSpec{Container: "csv", Prompt: "Q: {question} ({topic})", Completion: "answer", ID: "n", References: []string{"topic"}})
	require.Equal(t, "csv", f.Container())
	require.Equal(t, []string{"question", "topic", "answer", "n"}, f.Columns())
	want := Record{ID: "7", Turns: []Turn{{User, "Q: q (t)"}, {Assistant, "a"}}, Alternatives: []string{"t"}}
	for name, raw := range map[string]Raw{
		"cells":  {Cells: []string{"q", "t", "a", "7"}},
		"object": {JSON: []byte(`{"n":"7","question":"q","answer":"a","topic":"t","further":""}`)},
	} {
		got, err := f.decode(raw)
		require.NoError(t, err, name)
		require.Equal(t, want, got, name)
	}
	var in *specstream.InputError
	require.ErrorAs(t, f.CheckColumns([]string{"n", "question", "answers", "topic"}), &in)
	require.Equal(t, "answer", in.Field)
	require.NoError(t, f.CheckColumns([]string{"x", "n", "question", "answer", "topic"}))
}

func TestBadMappedRecords(t *testing.T) {
	pair := specstream.MappingSpec{Prompt: "{a.b.1} {x}", Completion: "c", ID: "id", References: []string{"r"}}
	chat := specstream.MappingSpec{Messages: "m", Role: "r", Content: "c.t"}
	for _, c := range []struct {
		name    string
		mapping specstream.MappingSpec
		text    string
		code    string
		want    string
	}{
		{"missing key", pair, `{"id":1,"a":{}}`, BadMissing, `field "a.b": is missing`},
		{"missing element", pair, `{"id":1,"a":{"b":["0"]}}`, BadMissing, `field "a.b.1": is missing: the array has 1 elements`},
		{"null on the way", pair, `{"id":1,"a":null}`, BadMissing, `field "a": is null`},
		{"null at the end", pair, `{"id":1,"a":{"b":["0",null]}}`, BadMissing, `field "a.b.1": is null`},
		{"text on the way", pair, `{"id":1,"a":"x"}`, BadType, `field "a": want an object or an array, got a string`},
		{"key of an array", pair, `{"id":1,"a":[]}`, BadType, `field "a": is an array, and "b" is not an index`},
		{"object for a text", pair, `{"id":1,"a":{"b":["0",{}]}}`, BadType, `field "a.b.1": want a text, got an object`},
		{"array for a text", pair, `{"id":1,"a":{"b":["0",[]]}}`, BadType, `field "a.b.1": want a text, got an array`},
		{"blank text", pair, `{"id":1,"a":{"b":["0"," "]},"x":"","c":"c"}`, BadEmpty, `field "{a.b.1} {x}": is empty`},
		{"blank completion", pair, `{"id":1,"a":{"b":["0","1"]},"x":"","c":""}`, BadEmptyCompletion, `field "c": is empty`},
		{"no id", pair, `{"a":{"b":["0","1"]},"x":"","c":"c"}`, BadMissing, `field "id": is missing`},
		{"object for an id", pair, `{"id":{},"a":{"b":["0","1"]},"x":"","c":"c"}`, BadType, `field "id": want a string or a number`},
		{"no reference", pair, `{"id":1,"a":{"b":["0","1"]},"x":"","c":"c"}`, BadMissing, `field "r": is missing`},
		{"object for a reference", pair, `{"id":1,"a":{"b":["0","1"]},"x":"","c":"c","r":[{}]}`, BadType, `field "r": want a text, got an object`},
		{"not an object", pair, `[]`, BadType, `want a JSON object, got an array`},
		{"system missing", specstream.MappingSpec{Prompt: "p", Completion: "c", System: "s"}, `{"p":"p","c":"c"}`, BadMissing, `field "s": is missing`},
		{"no messages", chat, `{}`, BadMissing, `field "m": is missing`},
		{"null messages", chat, `{"m":null}`, BadMissing, `field "m": is null`},
		{"text for messages", chat, `{"m":"x"}`, BadType, `field "m": want an array of turns, got a string`},
		{"empty messages", chat, `{"m":[]}`, BadEmptyRecord, `field "m": the conversation is empty`},
		{"text for a turn", chat, `{"m":["x"]}`, BadType, `field "m[0]": want an object, got a string`},
		{"no role", chat, `{"m":[{"c":{"t":"x"}}]}`, BadMissing, `field "m[0].r": is missing`},
		{"number for a role", chat, `{"m":[{"r":1,"c":{"t":"x"}}]}`, BadType, `field "m[0].r": want a string, got a number`},
		{"unknown role", chat, `{"m":[{"r":"nurse","c":{"t":"x"}}]}`, BadRole, `field "m[0].r": "nurse" is not a role that is known: mapping.roles may name it`},
		{"no content", chat, `{"m":[{"r":"user","c":{}}]}`, BadMissing, `field "m[0].c.t": is missing`},
		{"null content", chat, `{"m":[{"r":"user","c":{"t":null}}]}`, BadMissing, `field "m[0].c.t": is missing`},
		{"number for content", chat, `{"m":[{"r":"user","c":{"t":1}}]}`, BadType, `field "m[0].c.t": want a string or parts of text, got a number`},
		{"empty content", chat, `{"m":[{"r":"user","c":{"t":"q"}},{"r":"assistant","c":{"t":""}}]}`, BadEmptyCompletion, `field "m[1].c.t": is empty`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := mapped(t, c.mapping).decode(Raw{Number: 1, JSON: []byte(c.text)})
			var b *BadRecordError
			require.ErrorAs(t, err, &b)
			require.Equal(t, c.code, b.Code)
			require.ErrorContains(t, err, c.want)
		})
	}
	_, err := mapped(t, chat).decode(Raw{JSON: []byte(`{"m":[{"r":"user","c":{"t":"1"}},{"r":"user","c":{"t":"2"}},{"r":"gpt","c":{"t":"3"}}]}`)})
	var s *SkipError
	require.ErrorAs(t, err, &s)
	require.Equal(t, SkipTurnOrder, s.Reason)
	require.Equal(t, "m[1]", s.Input.Field)
}

func TestBadMappings(t *testing.T) {
	many := ""
	for i := range maxKeys {
		many += "{" + strings.Repeat("k", i+1) + "}"
	}
	for _, c := range []struct {
		name    string
		mapping specstream.MappingSpec
		want    string
	}{
		{"no prompt", specstream.MappingSpec{Completion: "c"}, `field "mapping.prompt": a field has no name`},
		{"empty field", specstream.MappingSpec{Prompt: "a{}", Completion: "c"}, `field "mapping.prompt": a field has no name`},
		{"open brace", specstream.MappingSpec{Prompt: "p", Completion: "a {b"}, `field "mapping.completion": the brace of {b is not closed`},
		{"closing brace", specstream.MappingSpec{Prompt: "p", Completion: "a b}"}, `field "mapping.completion": a closing brace has no opening one`},
		{"brace in braces", specstream.MappingSpec{Prompt: "{a{b}}", Completion: "c"}, `field "mapping.prompt": a brace is opened inside the braces of {a{b}}`},
		{"empty part", specstream.MappingSpec{Prompt: "a..b", Completion: "c"}, `field "mapping.prompt": the path "a..b" has an empty part`},
		{"dot at the end", specstream.MappingSpec{Prompt: "{a.}", Completion: "c"}, `the path "a." has an empty part`},
		{"backslash", specstream.MappingSpec{Prompt: `a\b`, Completion: "c"}, `stands before none of`},
		{"backslash at the end", specstream.MappingSpec{Prompt: `a\`, Completion: "c"}, `stands before none of`},
		{"braces in a path", specstream.MappingSpec{Messages: "{m}"}, `field "mapping.messages": a brace stands in the name "{m}"`},
		{"constant completion", specstream.MappingSpec{Prompt: "p", Completion: "{{}}"}, `field "mapping.completion": names no field`},
		{"bad role path", specstream.MappingSpec{Messages: "m", Role: "."}, `field "mapping.role"`},
		{"bad reference", specstream.MappingSpec{Prompt: "p", Completion: "c", References: []string{"r", ""}}, `field "mapping.references[1]": a field has no name`},
		{"bad id", specstream.MappingSpec{Prompt: "p", Completion: "c", ID: "a}"}, `field "mapping.id"`},
		{"bad system", specstream.MappingSpec{Prompt: "p", Completion: "c", System: "{"}, `field "mapping.system"`},
		{"too many keys", specstream.MappingSpec{Prompt: many, Completion: "c"}, `names more than 64 keys`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := mappingFormat(c.mapping, repeatedDrop)
			require.ErrorContains(t, err, c.want)
			require.True(t, specstream.BadInput(err))
		})
	}
}

// FuzzMappingText: a text that parses takes fields of exactly the keys it names,
// and what it is made of spells it again.
func FuzzMappingText(f *testing.F) {
	for _, s := range []string{"a", "a.b.0", "{a}\n\n{b.c}", "{{{a}}}", `{a\.b\}}`, "{", "}}", `\`, "{a..b}", "{}", "€{ü}"} {
		f.Add(s, `{"a":"x","b":{"c":1}}`)
	}
	f.Fuzz(func(t *testing.T, text, record string) {
		parsed, err := parseText(text)
		if err != nil {
			return
		}
		spelled, data, want := "", map[string]any{}, ""
		braces := strings.ContainsAny(text, "{}")
		for _, p := range parsed.parts {
			if p.path.keys == nil {
				spelled += strings.NewReplacer("{", "{{", "}", "}}").Replace(p.literal)
				want += p.literal
				continue
			}
			keys := make([]string, len(p.path.keys))
			for i, k := range p.path.keys {
				if k == "" {
					t.Fatalf("%q has an empty key", text)
				}
				keys[i] = strings.NewReplacer(`\`, `\\`, ".", `\.`, "{", `\{`, "}", `\}`).Replace(k)
			}
			again, err := parsePath(strings.Join(keys, "."))
			if err != nil || strings.Join(again.keys, "\x00") != strings.Join(p.path.keys, "\x00") {
				t.Fatalf("%q: keys %q became %q, %v", text, p.path.keys, again.keys, err)
			}
			if braces {
				spelled += "{" + p.path.text + "}"
			} else {
				spelled += p.path.text
			}
			in := data
			for _, k := range p.path.keys[:len(p.path.keys)-1] {
				next, ok := in[k].(map[string]any)
				if !ok {
					next = map[string]any{}
					in[k] = next
				}
				in = next
			}
			in[p.path.keys[len(p.path.keys)-1]] = "value"
			want += "value"
		}
		if spelled != text {
			t.Fatalf("%q is spelled %q", text, spelled)
		}
		if got, err := parsed.of(data); err == nil && got != want { // a path may lead through another's value
			t.Fatalf("%q gives %q, want %q", text, got, want)
		}
		if v, err := anyValue([]byte(record)); err == nil {
			if _, err := parsed.of(v); err != nil && !recoverable(err) {
				t.Fatal(err)
			}
		}
	})
}
