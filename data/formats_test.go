package data

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// TestDialects: elements of every make become the same kind of record.
func TestDialects(t *testing.T) {
	pair := []Turn{{User, "u"}, {Assistant, "a"}}
	for _, c := range []struct {
		name, format, text string
		want               Record
	}{
		{"items of the raw crawl", "sharegpt", `{"id":"x","items":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}`, Record{ID: "x", Turns: pair}},
		{"pairs", "sharegpt", `{"conversation_id":7,"conversation":[{"human":"u","assistant":"a"}]}`, Record{ID: "7", Turns: pair}},
		{"an id beside a conversation id", "sharegpt", `{"conversation_id":7,"id":"x","conversation":[{"human":"u","assistant":"a"}]}`, Record{ID: "x", Turns: pair}},
		{"messages under another name", "sharegpt", `{"conversation":[{"role":"user","content":"u"},{"role":"model","content":"a"}]}`, Record{Turns: pair}},
		{"lists that are null or empty", "sharegpt", `{"messages":[],"items":null,"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}],"conversation":[]}`, Record{Turns: pair}},
		{"role with value", "sharegpt", `{"conversations":[{"role":"user","value":"u"},{"from":"assistant","content":"a"}]}`, Record{}},
		{"from and role that agree", "sharegpt", `{"conversations":[{"from":"human","role":"user","value":"u","content":"u"},{"from":"gpt","role":"assistant","value":"a"}]}`, Record{Turns: pair}},
		{"keys in capitals", "sharegpt", `{"Conversations":[{"From":"human","Value":"u"},{"From":"gpt","Value":"a"}]}`, Record{Turns: pair}},
		{"developer", "sharegpt", `{"messages":[{"role":"developer","content":"s"},{"role":"user","content":"u"},{"role":"assistant","content":"a"}]}`,
			Record{Turns: []Turn{{System, "s"}, {User, "u"}, {Assistant, "a"}}}},
		{"system column", "sharegpt", `{"system":"s","tools":"","conversations":[{"from":"gpt","value":"0"},{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}`,
			Record{Turns: []Turn{{System, "s"}, {User, "u"}, {Assistant, "a"}}, Changed: []string{ChangedLeadingTurns}}},
		{"system column and the same turn", "sharegpt", `{"system":"s","conversations":[{"from":"system","value":"s"},{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}`,
			Record{Turns: []Turn{{System, "s"}, {User, "u"}, {Assistant, "a"}}}},
		{"parts", "sharegpt", `{"messages":[{"role":"user","content":[{"type":"text","text":"u"}]},{"role":"assistant","content":"a"}]}`, Record{Turns: pair}},
		{"several parts", "sharegpt", `{"id":1,"messages":[{"role":"user","content":[{"type":"text","text":"u"},{"text":"v"},"w"]},{"role":"assistant","content":"a"}]}`,
			Record{ID: "1", Turns: []Turn{{User, "u\nv\nw"}, {Assistant, "a"}}, Changed: []string{ChangedParts}}},
		{"tool calls", "sharegpt", `{"messages":[{"role":"user","content":"u"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{\"x\": \"<1>\"}"}}]},
			{"role":"tool","tool_call_id":"c1","content":"42"},{"role":"assistant","content":"a","tool_calls":[]}]}`,
			Record{Turns: []Turn{{User, "u"}, {Assistant, `{"name": "f", "arguments": {"x": "<1>"}}`}, {User, "42"}, {Assistant, "a"}}, Changed: []string{ChangedToolCalls, ChangedToolRoles}}},
		{"several tool calls behind a text", "sharegpt", `{"messages":[{"role":"user","content":"u"},
			{"role":"assistant","content":"t","tool_calls":[{"function":{"name":"f","arguments":{"x":1}}},{"name":"g","arguments":"not JSON"},{"name":"h"}]}]}`,
			Record{Turns: []Turn{{User, "u"}, {Assistant, "t\n" + `[{"name": "f", "arguments": {"x":1}}, {"name": "g", "arguments": "not JSON"}, {"name": "h", "arguments": {}}]`}}, Changed: []string{ChangedToolCalls, ChangedToolRoles}}},
		{"function call of old", "sharegpt", `{"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"","function_call":{"name":"f","arguments":"{}"}}]}`,
			Record{Turns: []Turn{{User, "u"}, {Assistant, `{"name": "f", "arguments": {}}`}}, Changed: []string{ChangedToolCalls, ChangedToolRoles}}},

		{"dialogsum of Hugging Face", "dialogsum", `{"id":"train_0","dialogue":"d","summary":"s","topic":"t"}`, Record{ID: "train_0",
			Turns: []Turn{{User, "Summarize the following conversation.\n\nd\n\nSummary: "}, {Assistant, "s"}}, Fields: map[string]string{"dialogue": "d", "topic": "t"}, Alternatives: []string{}}},
		{"dialogsum with three topics", "dialogsum", `{"fname":"t","id":9,"dialogue":"d","summary1":"a","summary2":"b","summary3":"c","topic1":"x","topic2":"y","topic3":"z"}`, Record{ID: "t",
			Turns:  []Turn{{User, "Summarize the following conversation.\n\nd\n\nSummary: "}, {Assistant, "a"}},
			Fields: map[string]string{"dialogue": "d", "topic": "x", "topic2": "y", "topic3": "z"}, Alternatives: []string{"b", "c"}}},
		{"spider", "sql", `{"db_id":"d","question":"q","context":"c","query":"SELECT 1"}`, Record{
			Turns: []Turn{{User, "c\n\nQuestion: q\nSQL: "}, {Assistant, "SELECT 1"}}, Fields: map[string]string{"question": "q", "context": "c"}}},
		{"query that equals the answer", "sql", `{"question":"q","context":"c","query":"SELECT 1","answer":"SELECT 1"}`, Record{
			Turns: []Turn{{User, "c\n\nQuestion: q\nSQL: "}, {Assistant, "SELECT 1"}}, Fields: map[string]string{"question": "q", "context": "c"}}},
		{"e2e as objects", "e2e", `{"mr":"name[A]","ref":"A."}`, Record{Turns: []Turn{{User, "name : A\nText: "}, {Assistant, "A."}}, Fields: map[string]string{"mr": "name[A]"}}},

		{"alpaca", "alpaca", `{"instruction":"i","input":"","output":"o","text":"ignored"}`, Record{Turns: []Turn{{User, "i"}, {Assistant, "o"}}, Fields: map[string]string{"instruction": "i", "input": ""}}},
		{"alpaca with an input", "alpaca", `{"id":3,"instruction":"i","input":"in","output":"o"}`, Record{ID: "3", Turns: []Turn{{User, "i\n\nin"}, {Assistant, "o"}}, Fields: map[string]string{"instruction": "i", "input": "in"}}},
		{"alpaca without an input", "alpaca", `{"instruction":"i","input":null,"output":"o","history":null}`, Record{Turns: []Turn{{User, "i"}, {Assistant, "o"}}, Fields: map[string]string{"instruction": "i", "input": ""}}},
		{"alpaca with a history", "alpaca", `{"instruction":"i","output":"o","system":"s","history":[["a","b"],["c","d"]]}`, Record{
			Turns: []Turn{{System, "s"}, {User, "a"}, {Assistant, "b"}, {User, "c"}, {Assistant, "d"}, {User, "i"}, {Assistant, "o"}}, Fields: map[string]string{"instruction": "i", "input": ""}}},

		{"question", "specbench", `{"question_id":5,"category":"qa","turns":["q"]}`, Record{ID: "5", Category: "qa", Turns: []Turn{{User, "q"}}}},
		{"question with a reference", "specbench", `{"question_id":"5","category":"translation","turns":["q"],"reference":["r"]}`,
			Record{ID: "5", Category: "translation", Turns: []Turn{{User, "q"}, {Assistant, "r"}}, Alternatives: []string{}}},
		{"question with several references", "specbench", `{"question_id":5,"category":"rag","turns":["q"],"reference":[["r","s"]]}`,
			Record{ID: "5", Category: "rag", Turns: []Turn{{User, "q"}, {Assistant, "r"}}, Alternatives: []string{"s"}}},
		{"question with a list of references", "specbench", `{"turns":["q"],"reference":["r","s"]}`,
			Record{Turns: []Turn{{User, "q"}, {Assistant, "r"}}, Alternatives: []string{"s"}}},
		{"question of two turns", "specbench", `{"question_id":5,"category":"math","turns":["q","p"],"reference":["r","s"]}`,
			Record{ID: "5", Category: "math", Turns: []Turn{{User, "q"}, {Assistant, "r"}}, Alternatives: []string{}, Followups: []string{"p"}, FollowupReferences: [][]string{{"s"}}}},
		{"reference of the second turn only", "specbench", `{"question_id":5,"turns":["q","p"],"reference":["","s"]}`,
			Record{ID: "5", Turns: []Turn{{User, "q"}}, Followups: []string{"p"}, FollowupReferences: [][]string{{"s"}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := formatNamed(t, c.format).decode(Raw{Number: 1, JSON: []byte(c.text)})
			if c.want.Turns == nil {
				c.want.Turns = pair
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestBadDialects: what could be read in two ways is not read.
func TestBadDialects(t *testing.T) {
	for _, c := range []struct{ name, format, text, code, want string }{
		{"two conversations", "sharegpt", `{"conversations":[{"from":"human","value":"u"}],"messages":[{"role":"user","content":"u"}]}`, BadAmbiguous, `field "conversations": holds turns, and so does "messages"`},
		{"two speakers", "sharegpt", `{"conversations":[{"from":"human","role":"assistant","value":"u"}]}`, BadAmbiguous, `field "conversations[0].from": is "human", but "role" is "assistant"`},
		{"two texts", "sharegpt", `{"conversations":[{"from":"human","value":"u","content":"v"}]}`, BadAmbiguous, `field "conversations[0].value": differs from "content"`},
		{"two system texts", "sharegpt", `{"system":"s","conversations":[{"from":"system","value":"t"},{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}`, BadAmbiguous, `field "system": differs`},
		{"number for the system text", "sharegpt", `{"system":1,"conversations":[{"from":"human","value":"u"}]}`, BadType, `field "system": want a string, got a number`},
		{"half a pair", "sharegpt", `{"conversation":[{"human":"u"}]}`, BadMissing, `field "conversation[0].assistant": is missing`},
		{"other half of a pair", "sharegpt", `{"conversation":[{"assistant":"a"}]}`, BadMissing, `field "conversation[0].human": is missing`},
		{"empty half of a pair", "sharegpt", `{"conversation":[{"human":"u","assistant":" "}]}`, BadEmptyCompletion, `field "conversation[0].assistant": is empty`},
		{"image", "sharegpt", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{}}]}]}`, BadType, `field "messages[0].content[0]": is a part of type "image_url": only text can be trained on`},
		{"number for a part", "sharegpt", `{"messages":[{"role":"user","content":[5]}]}`, BadType, `field "messages[0].content[0]": want a string, got a number`},
		{"parts and a wrong role", "sharegpt", `{"messages":[{"role":7,"content":["u"]}]}`, BadType, `field "messages[0].role": want a string, got a number`},
		{"call without a name", "sharegpt", `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"function":{}}]}]}`, BadMissing, `field "messages[0].tool_calls[0].name": is missing`},
		{"calls of the wrong type", "sharegpt", `{"messages":[{"role":"assistant","content":null,"tool_calls":7}]}`, BadType, `field "messages[0].tool_calls": is not a list of calls`},
		{"two kinds of calls", "sharegpt", `{"messages":[{"role":"assistant","content":null,"tool_calls":[{"name":"f"}],"function_call":{"name":"g"}}]}`, BadAmbiguous, `field "messages[0].tool_calls": stands beside "function_call"`},
		{"no text and no call", "sharegpt", `{"messages":[{"role":"assistant","content":null}]}`, BadMissing, `field "messages[0].content": is missing`},
		{"spider without a schema", "sql", `{"question":"q","query":"SELECT 1"}`, BadMissing, `field "context": is missing`},
		{"query that differs from the answer", "sql", `{"question":"q","context":"c","query":"x","answer":"y"}`, BadAmbiguous, `field "answer": differs from "query"`},
		{"empty query", "sql", `{"question":"q","context":"c","query":""}`, BadEmptyCompletion, `field "query": is empty`},
		{"object for an id", "dialogsum", `{"id":{},"dialogue":"d","summary":"s"}`, BadType, `field "id": want a string or a number`},
		{"no instruction", "alpaca", `{"input":"i","output":"o"}`, BadMissing, `field "instruction": is missing`},
		{"no output", "alpaca", `{"instruction":"i"}`, BadMissing, `field "output": is missing`},
		{"blank output", "alpaca", `{"instruction":"i","output":"\n"}`, BadEmptyCompletion, `field "output": is empty`},
		{"list for an output", "alpaca", `{"instruction":"i","output":["o"]}`, BadType, `field "output": want a string, got an array`},
		{"object for a history", "alpaca", `{"instruction":"i","output":"o","history":{}}`, BadType, `field "history": want an array of pairs, got an object`},
		{"texts for a history", "alpaca", `{"instruction":"i","output":"o","history":["a"]}`, BadType, `field "history[0]": want a pair of instruction and output, got a string`},
		{"numbers in a history", "alpaca", `{"instruction":"i","output":"o","history":[["a",1]]}`, BadType, `field "history[0][1]": want a string, got a number`},
		{"history of single texts", "alpaca", `{"instruction":"i","output":"o","history":[["a"]]}`, BadType, `field "history[0]": want a pair of instruction and output, got 1 texts`},
		{"history without an answer", "alpaca", `{"instruction":"i","output":"o","history":[["a",""]]}`, BadEmptyCompletion, `field "history[0][1]": is empty`},
		{"no turns", "specbench", `{"question_id":1}`, BadMissing, `field "turns": is missing`},
		{"empty turns", "specbench", `{"question_id":1,"turns":[]}`, BadEmptyRecord, `field "turns"`},
		{"null turn", "specbench", `{"turns":["a",null]}`, BadMissing, `field "turns[1]": is missing`},
		{"text for turns", "specbench", `{"turns":"a"}`, BadType, `field "turns": want an array of texts, got a string`},
		{"number for a turn", "specbench", `{"turns":[1]}`, BadType, `field "turns[0]": want a string, got a number`},
		{"number for a category", "specbench", `{"category":1,"turns":["a"]}`, BadType, `field "category": want a string`},
		{"more references than turns", "specbench", `{"turns":["a","b"],"reference":["1","2","3"]}`, BadType, `field "reference": has 3 entries for 2 turns`},
		{"number for a reference", "specbench", `{"turns":["a"],"reference":[1]}`, BadType, `field "reference[0]": want a string or strings, got a number`},
		{"number among references", "specbench", `{"turns":["a"],"reference":[["r",1]]}`, BadType, `field "reference[0][1]": want a string, got a number`},
		{"object for references", "specbench", `{"turns":["a"],"reference":{"a":1}}`, BadType, `field "reference": want a string or an array, got an object`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := formatNamed(t, c.format).decode(Raw{Number: 1, JSON: []byte(c.text)})
			var b *BadRecordError
			require.ErrorAs(t, err, &b)
			require.Equal(t, c.code, b.Code)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestRepeatedTurns(t *testing.T) {
	f := chatFor(t, repeatedMerge)
	r, err := f.decode(Raw{JSON: []byte(`{"conversations":[{"from":"gpt","value":"0"},{"from":"human","value":"1"},{"from":"system","value":""},{"from":"human","value":"2"},{"from":"observation","value":"3"},{"from":"gpt","value":"4"},{"from":"gpt","value":"5"},{"from":"human","value":"6"},{"from":"human","value":"7"}]}`)})
	require.NoError(t, err)
	require.Equal(t, []Turn{{User, "1\n\n2\n\n3"}, {Assistant, "4\n\n5"}}, r.Turns)
	require.Equal(t, []string{ChangedEmptySystem, ChangedToolRoles, ChangedLeadingTurns, ChangedTrailingTurns, ChangedRepeated}, r.Changed)

	_, err = FormatFor(specstream.DataSpec{Format: "sharegpt", Clean: &specstream.CleanSpec{RepeatedTurns: "keep"}})
	require.ErrorContains(t, err, `field "clean.repeated_turns": "keep" is neither`)
}

func TestFormatFor(t *testing.T) {
	for _, name := range specstream.Formats {
		f := formatNamed(t, name)
		require.Equal(t, name, f.Name())
		require.Regexp(t, `^`+name+`/\d+$`, f.Version())
		if name != "mapping" {
			of, err := FormatOf(name)
			require.NoError(t, err)
			require.Equal(t, name, of.Name())
			require.Equal(t, f.Columns(), of.Columns())
		}
	}
	require.Equal(t, "csv", formatNamed(t, "e2e").Container())
	require.Equal(t, "", formatNamed(t, "alpaca").Container())

	_, err := FormatOf("mapping")
	require.ErrorContains(t, err, "needs a mapping")
	_, err = FormatFor(specstream.DataSpec{Format: "mapping"})
	require.ErrorContains(t, err, "needs a mapping")
	_, err = FormatFor(specstream.DataSpec{Format: "sql", Mapping: &specstream.MappingSpec{}})
	require.ErrorContains(t, err, `goes with the format "mapping", not "sql"`)
	_, err = FormatOf("csv")
	require.ErrorContains(t, err, `"csv" is not one of sharegpt`)
}

func TestCheckColumns(t *testing.T) {
	for _, c := range []struct {
		format  string
		columns []string
		field   string // of the error; empty for none
	}{
		{"sharegpt", []string{"id", "Conversations"}, ""},
		{"sharegpt", []string{"items"}, ""},
		{"sharegpt", []string{"id", "text"}, "conversations"},
		{"sql", []string{"question", "context", "query"}, ""},
		{"sql", []string{"question", "context"}, "answer"},
		{"sql", []string{"question", "answer"}, "context"},
		{"dialogsum", []string{"id", "dialogue", "summary", "topic"}, ""},
		{"dialogsum", []string{"dialogue", "summary1"}, ""},
		{"dialogsum", []string{"dialogue", "summary2"}, "summary"},
		{"e2e", []string{" MR ", "ref"}, ""},
		{"e2e", []string{"mr"}, "ref"},
		{"alpaca", []string{"instruction", "output"}, ""},
		{"alpaca", nil, "instruction"},
		{"specbench", []string{"turns"}, ""},
		{"specbench", []string{"question"}, "turns"},
		{"mapping", []string{"instruction", "input", "output", "x"}, ""},
		{"mapping", []string{"instruction", "Input", "output"}, "input"}, // names of a mapping keep their case
	} {
		err := formatNamed(t, c.format).CheckColumns(c.columns)
		if c.field == "" {
			require.NoError(t, err, "%s %q", c.format, c.columns)
			continue
		}
		var in *specstream.InputError
		require.True(t, errors.As(err, &in), "%s %q", c.format, c.columns)
		require.Equal(t, c.field, in.Field)
	}
}

func TestAlpacaPrompt(t *testing.T) {
	require.Equal(t, "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\ni\n\n### Response:\n", AlpacaPrompt("i", ""))
	require.Equal(t, "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n### Instruction:\ni\n\n### Input:\nx\n\n### Response:\n", AlpacaPrompt("i", "x"))
}
