package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/internal/testdata"
)

// one reads the only record of a text.
func one(t testing.TB, format, text string) (Record, error) {
	t.Helper()
	r, err := openText(t, format, text)
	require.NoError(t, err)
	rec, err := r.Next()
	if err == nil || recoverable(err) {
		_, end := r.Next()
		require.Equal(t, io.EOF, end)
	}
	return rec, err
}

func TestDecode(t *testing.T) {
	for _, c := range []struct {
		name, format, text string
		want               Record
	}{
		{"sql", "sql", sqlOne, Record{
			ID: "in#1", Source: "in", Number: 1,
			Turns:  []Turn{{User, "CREATE TABLE t (a INTEGER)\n\nQuestion: How many?\nSQL: "}, {Assistant, "SELECT COUNT(*) FROM t"}},
			Fields: map[string]string{"question": "How many?", "context": "CREATE TABLE t (a INTEGER)"},
		}},
		{"dialogsum", "dialogsum", dlgOne, Record{
			ID: "d0", Source: "in", Number: 1,
			Turns: []Turn{
				{User, "Summarize the following conversation.\n\n#Person1#: Hi.\n#Person2#: Hello.\n\nSummary: "},
				{Assistant, "They greet."},
			},
			Fields:       map[string]string{"dialogue": "#Person1#: Hi.\n#Person2#: Hello.", "topic": "greeting"},
			Alternatives: []string{},
		}},
		{"dialogsum test", "dialogsum", `{"fname":"t","dialogue":"d","summary1":"a","summary2":"b","summary3":"c","topic1":"x"}`, Record{
			ID: "t", Source: "in", Number: 1,
			Turns:        []Turn{{User, "Summarize the following conversation.\n\nd\n\nSummary: "}, {Assistant, "a"}},
			Fields:       map[string]string{"dialogue": "d", "topic": "x"},
			Alternatives: []string{"b", "c"},
		}},
		{"e2e", "e2e", e2eOne, Record{
			ID: "in#1", Source: "in", Number: 1,
			Turns:  []Turn{{User, "name : A | Type : pub\nText: "}, {Assistant, "A is\na pub."}}, // the CSV line break is \n
			Fields: map[string]string{"mr": "name[A], eatType[pub]"},
		}},
		{"e2e names", "e2e", "ref,mr\nx,\"name[B], priceRange[more than £30], customer rating[5 out of 5], familyFriendly[yes], near[Café, Z]\"\n", Record{
			ID: "in#1", Source: "in", Number: 1,
			Turns:  []Turn{{User, "name : B | price : more than £30 | customer rating : 5 out of 5 | family friendly : yes | near : Café, Z\nText: "}, {Assistant, "x"}},
			Fields: map[string]string{"mr": "name[B], priceRange[more than £30], customer rating[5 out of 5], familyFriendly[yes], near[Café, Z]"},
		}},
		{"chat", "sharegpt", chatOne, Record{ID: "c0", Source: "in", Number: 1, Turns: []Turn{{User, "Hi"}, {Assistant, "Hello"}}}},
		{"messages", "sharegpt", `{"messages":[{"role":"system","content":"S"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}`,
			Record{ID: "in#1", Source: "in", Number: 1, Turns: []Turn{{System, "S"}, {User, "u"}, {Assistant, "a"}}}},
		{"names of speakers", "sharegpt", `[{"id":12345678901234567890,"conversations":[{"from":"Human ","value":"1"},{"from":"GPT","value":"2"},{"from":"user","value":"3"},{"from":"chatgpt","value":"4"},{"from":"human","value":"5"},{"from":"bing","value":"6"},{"from":"human","value":"7"},{"from":"bard","value":"8"}]}]`,
			Record{ID: "12345678901234567890", Source: "in", Number: 1, Turns: []Turn{{User, "1"}, {Assistant, "2"}, {User, "3"}, {Assistant, "4"}, {User, "5"}, {Assistant, "6"}, {User, "7"}, {Assistant, "8"}}}},
		{"tools", "sharegpt", `{"id":null,"tools":"[{}]","conversations":[{"from":"human","value":"1"},{"from":"function_call","value":"2"},{"from":"observation","value":"3"},{"from":"gpt","value":"4"}]}`,
			Record{ID: "in#1", Source: "in", Number: 1, Turns: []Turn{{User, "1"}, {Assistant, "2"}, {User, "3"}, {Assistant, "4"}}, Changed: []string{ChangedToolRoles, ChangedToolsIgnored}}},
		{"ends cut off", "sharegpt", `{"id":"x","conversations":[{"from":"system","value":" "},{"from":"gpt","value":"0"},{"from":"gpt","value":"0"},{"from":"human","value":"1"},{"from":"gpt","value":"2"},{"from":"human","value":"3"},{"from":"human","value":"4"}]}`,
			Record{ID: "x", Source: "in", Number: 1, Turns: []Turn{{User, "1"}, {Assistant, "2"}}, Changed: []string{ChangedEmptySystem, ChangedLeadingTurns, ChangedTrailingTurns}}},
		{"surrogates", "sharegpt", `{"id":"x","conversations":[{"from":"human","value":"\ud83d\ude00"},{"from":"gpt","value":"a\ud83d"}]}`,
			Record{ID: "x", Source: "in", Number: 1, Turns: []Turn{{User, "😀"}, {Assistant, "a\ufffd"}}, Changed: []string{ChangedSurrogates}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := one(t, c.format, c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestBadRecords(t *testing.T) {
	for _, c := range []struct{ name, format, text, code, want string }{
		{"number for text", "sql", `{"question":1,"context":"c","answer":"a"}`, BadType, `in: record 1: field "question": want a string, got a number`},
		{"array for text", "sql", `{"question":"q","context":["c"],"answer":"a"}`, BadType, `field "context": want a string, got an array`},
		{"null", "sql", `{"question":null,"context":"c","answer":"a"}`, BadMissing, `field "question": is missing`},
		{"missing", "sql", `{"question":"q","context":"c"}`, BadMissing, `field "answer": is missing`},
		{"empty answer", "sql", `{"question":"q","context":"c","answer":" \n"}`, BadEmptyCompletion, `field "answer": is empty: there is nothing to train on`},
		{"empty question", "sql", `{"question":"","context":"c","answer":"a"}`, BadEmpty, `field "question": is empty`},
		{"number for a record", "sql", `[7]`, BadType, "want a JSON object, got a number"},
		{"null for a record", "sql", `[null]`, BadType, "want a JSON object, got null"},
		{"string for a record", "dialogsum", `["x"]`, BadType, "want a JSON object, got a string"},
		{"array for a record", "sharegpt", `[[1]]`, BadType, "want a JSON object, got an array"},
		{"invalid UTF-8", "sql", `{"question":"` + "\xff" + `","context":"c","answer":"a"}`, BadUTF8, "not valid UTF-8"},
		{"no summary", "dialogsum", `{"dialogue":"d"}`, BadMissing, `field "summary": is missing`},
		{"second summary empty", "dialogsum", `{"dialogue":"d","summary1":"a","summary2":""}`, BadEmptyCompletion, `field "summary2"`},
		{"boolean dialogue", "dialogsum", `{"dialogue":true,"summary":"s"}`, BadType, `field "dialogue": want a string, got a boolean`},
		{"no conversation", "sharegpt", `{"id":"x"}`, BadMissing, `field "conversations": is missing`},
		{"empty conversation", "sharegpt", `{"id":"x","conversations":[]}`, BadEmptyRecord, `field "conversations": the conversation is empty`},
		{"conversation of the wrong type", "sharegpt", `{"conversations":"hello"}`, BadType, `field "conversations": want an array of turns, got a string`},
		{"turn of the wrong type", "sharegpt", `{"conversations":["hello"]}`, BadType, `field "conversations[0]": want an object, got a string`},
		{"value of the wrong type", "sharegpt", `{"conversations":[{"from":"human","value":"1"},{"from":"gpt","value":{}}]}`, BadType, `field "conversations[1].value": want a string, got an object`},
		{"content of the wrong type", "sharegpt", `{"messages":[{"role":"user","content":[{"type":"text"}]}]}`, BadMissing, `field "messages[0].content[0].text": is missing`},
		{"id of the wrong type", "sharegpt", `{"id":{},"conversations":[{"from":"human","value":"1"}]}`, BadType, `field "id": want a string or a number, got an object`},
		{"no value", "sharegpt", `{"conversations":[{"from":"human"}]}`, BadMissing, `field "conversations[0].value": is missing`},
		{"no content", "sharegpt", `{"messages":[{"role":"user"}]}`, BadMissing, `field "messages[0].content": is missing`},
		{"no speaker", "sharegpt", `{"conversations":[{"value":"x"}]}`, BadMissing, `field "conversations[0].from": is missing`},
		{"unknown speaker", "sharegpt", `{"conversations":[{"from":"narrator","value":"x"}]}`, BadRole, `"narrator" is not a role that is known`},
		{"empty user turn", "sharegpt", `{"conversations":[{"from":"human","value":""},{"from":"gpt","value":"a"}]}`, BadEmpty, `field "conversations[0].value": is empty`},
		{"zero-width answer", "sharegpt", `{"conversations":[{"from":"human","value":"q"},{"from":"gpt","value":"\u200b\ufeff"}]}`, BadEmptyCompletion, `field "conversations[1].value"`},
		{"too few columns", "e2e", "mr,ref\nname[A]\n", BadColumns, "has 1 columns, the header has 2"},
		{"too many columns", "e2e", "mr,ref\nname[A],x,y\n", BadColumns, "has 3 columns"},
		{"empty ref", "e2e", "mr,ref\nname[A],\n", BadEmptyCompletion, `field "ref"`},
		{"empty mr", "e2e", "mr,ref\n,x\n", BadEmpty, `field "mr"`},
		{"mr without brackets", "e2e", "mr,ref\nhello,x\n", BadSyntax, `want attribute[value], got "hello"`},
		{"mr not closed", "e2e", "mr,ref\nname[A,x\n", BadSyntax, `the value of "name" has no closing bracket`},
		{"mr nested", "e2e", "mr,ref\nname[A[b]],x\n", BadSyntax, "closing bracket"},
		{"mr without comma", "e2e", "mr,ref\nname[A] food[B],x\n", BadSyntax, "want a comma"},
		{"ref not UTF-8", "e2e", "mr,ref\nname[A],\xff\n", BadUTF8, `field "ref"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := one(t, c.format, c.text)
			var b *BadRecordError
			require.ErrorAs(t, err, &b)
			require.Equal(t, c.code, b.Code)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, "in", b.Input.File)
			require.Equal(t, int64(1), b.Input.Record)
			require.True(t, specstream.BadInput(err))
		})
	}
}

func TestSkippedRecords(t *testing.T) {
	for _, c := range []struct{ name, text, reason, field string }{
		{"two questions", `{"conversations":[{"from":"human","value":"1"},{"from":"human","value":"2"},{"from":"gpt","value":"3"}]}`, SkipTurnOrder, "conversations[1]"},
		{"two answers", `{"messages":[{"role":"user","content":"1"},{"role":"assistant","content":"2"},{"role":"assistant","content":"3"}]}`, SkipTurnOrder, "messages[2]"},
		{"system inside", `{"conversations":[{"from":"human","value":"1"},{"from":"gpt","value":"2"},{"from":"system","value":"3"}]}`, SkipSystemInside, "conversations[2]"},
		{"only questions", `{"conversations":[{"from":"human","value":"1"}]}`, SkipNoPair, "conversations"},
		{"only answers", `{"conversations":[{"from":"gpt","value":"1"}]}`, SkipNoPair, "conversations"},
		{"only system", `{"conversations":[{"from":"system","value":"1"}]}`, SkipNoPair, "conversations"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := one(t, "sharegpt", c.text)
			var s *SkipError
			require.ErrorAs(t, err, &s)
			require.Equal(t, c.reason, s.Reason)
			require.Equal(t, c.field, s.Input.Field)
			require.Equal(t, int64(1), s.Input.Record)
		})
	}
}

// TestReadingGoesOn: bad records don't disturb those around them.
func TestReadingGoesOn(t *testing.T) {
	text := strings.Join([]string{chatOne, `{"conversations":[]}`, chatOne, `{"conversations":7}`, chatOne}, ",")
	r, err := openText(t, "sharegpt", "["+text+"]")
	require.NoError(t, err)
	got, err := readAll(r)
	require.NoError(t, err)
	require.Equal(t, 5, got.records)
	require.Equal(t, map[string]int{BadEmptyRecord: 1, BadType: 1}, got.bad)
	require.Equal(t, int64(5), got.last.Number)
}

// TestDamagedElements: text inside an element that is not JSON ends reading.
func TestDamagedElements(t *testing.T) {
	for name, text := range map[string]string{
		"comma":       `[{"question":"q",,"context":"c"}]`,
		"literal":     `[{"question":nul}]`,
		"unknown key": `[{"question":"q","context":"c","answer":"a","x":tru}]`,
		"brackets":    `[{"question":["q"}]`,
		"line break":  "[{\"question\":\"a\nb\",\"context\":\"c\",\"answer\":\"a\"}]",
		"garbage":     `[garbage]`,
		"escape":      `[{"question":"\x","context":"c","answer":"a"}]`,
		"number":      `[{"question":01}]`,
	} {
		t.Run(name, func(t *testing.T) {
			r, err := openText(t, "sql", text)
			require.NoError(t, err)
			_, err = r.Next()
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.False(t, recoverable(err), "%v", err)
			require.Equal(t, int64(1), in.Record)
			_, again := r.Next()
			require.Equal(t, err, again)
		})
	}
}

func TestEscapes(t *testing.T) {
	for in, want := range map[string]bool{
		`"\ud83d\ude00"`: false, `"\ud83d"`: true, `"\ude00"`: true, `"\ud83d\u0041"`: true, `"\\ud83d"`: false, `"\uD83D\uDE00\uD83D"`: true, `"\u0041\ud7ff\ue000"`: false, `"\ud83dx\ude00"`: true,
		`"\"\\\/\b\f\n\r\t"`: false,
	} {
		require.Equal(t, scanned{lone: want}, scan([]byte(in), sqlKeys), in)
	}
	for _, in := range []string{`"\x"`, `"\`, `"\u12`, `"\u12"34"`, `"\u12g4"`, `"\ud83d\u12"`, `"\\\U0041"`, "\"\\\n\"", `"`, `"\"`, `{"a":"b`} {
		require.True(t, scan([]byte(in), sqlKeys).unsound, in)
	}
}

// fuzzFormat feeds a reader any text: it neither panics nor loops, every record
// it gives is normalised, and sound JSON lines are judged as encoding/json does.
func fuzzFormat(f *testing.F, format string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r, err := openText(t, format, string(in))
		if err != nil {
			if !specstream.BadInput(err) {
				t.Fatalf("%v is not bad input", err)
			}
			return
		}
		for n := int64(1); ; n++ {
			raw, err := r.NextRaw()
			if err == io.EOF {
				return
			}
			if err != nil {
				if !specstream.BadInput(err) {
					t.Fatalf("%v is not bad input", err)
				}
				return
			}
			rec, err := r.Decode(raw)
			if raw.JSON != nil {
				if valid := json.Valid(raw.JSON); valid == (err != nil && !recoverable(err)) && !errors.As(err, new(*BadRecordError)) {
					t.Fatalf("%q: valid JSON is %v, got %v", raw.JSON, valid, err)
				}
			}
			if err != nil {
				continue
			}
			if rec.Number != n || rec.ID == "" && !bytes.Contains(raw.JSON, []byte(`""`)) {
				t.Fatalf("record %d is %+v", n, rec)
			}
			checkNormal(t, rec)
		}
	})
}

func checkNormal(t *testing.T, r Record) {
	t.Helper()
	turns := r.Turns
	if len(turns) > 0 && turns[0].Role == System {
		turns = turns[1:]
	}
	if len(turns) == 0 || len(turns)%2 != 0 {
		t.Fatalf("%d turns: %+v", len(turns), r)
	}
	for i, turn := range turns {
		if want := []Role{User, Assistant}[i%2]; turn.Role != want || blank(turn.Text) {
			t.Fatalf("turn %d of %+v", i, r)
		}
	}
}

func FuzzSQL(f *testing.F) {
	fuzzFormat(f, "sql", sqlOne, "["+sqlOne+","+sqlOne+"]", `{"question":null}`, `[{"Question":"q"}]`)
}

func FuzzDialogSum(f *testing.F) {
	fuzzFormat(f, "dialogsum", dlgOne, `{"dialogue":"d","summary1":"a","summary2":"b"}`)
}

func FuzzShareGPT(f *testing.F) {
	fuzzFormat(f, "sharegpt", chatOne, `[{"id":1,"messages":[{"role":"user","content":"\ud800"}]}]`, `{"conversations":[null,{"from":"human","value":"x"}]}`)
}

func FuzzE2E(f *testing.F) {
	fuzzFormat(f, "e2e", e2eOne, "ref,mr\n\"a\"\"b\",name[x]\n", "mr,ref\nx\n")
}

func BenchmarkRead(b *testing.B) {
	for _, c := range []struct{ format, file string }{
		{"sql", "sql/wikisql_train_4k.json"}, {"sharegpt", "sharegpt/mix_dev.json"},
		{"dialogsum", "dialogsum/train_2k.jsonl"}, {"e2e", "e2e/trainset_4k.csv"},
	} {
		text, err := os.ReadFile(testdata.Shared(b, c.file))
		require.NoError(b, err)
		b.Run(c.file, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				r, err := openText(b, c.format, string(text))
				require.NoError(b, err)
				_, err = readAll(r)
				require.NoError(b, err)
			}
		})
	}
}
