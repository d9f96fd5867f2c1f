package data

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestHostileElements is the table of what becomes of elements that no honest
// writer makes. Each stands for every format: the decoders share what judges it.
func TestHostileElements(t *testing.T) {
	chat := func(value string) string {
		return `{"id":"x","conversations":[{"from":"human","value":"u"},{"from":"gpt","value":` + value + `}]}`
	}
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for _, c := range []struct{ name, format, text, want string }{
		{"number in place of a string", "sharegpt", chat(`1`), "bad: wrong_type"},
		{"array in place of a string", "sql", `{"question":["q"],"context":"c","answer":"a"}`, "bad: wrong_type"},
		{"object in place of a string", "alpaca", `{"instruction":{},"output":"o"}`, "bad: wrong_type"},
		{"boolean in place of a string", "dialogsum", `{"dialogue":true,"summary":"s"}`, "bad: wrong_type"},
		{"string in place of an array", "specbench", `{"turns":"q"}`, "bad: wrong_type"},
		{"null in place of a string", "sql", `{"question":null,"context":"c","answer":"a"}`, "bad: missing_field"},
		{"white space around the record", "sql", " {\"question\":\"q\",\"context\":\"c\",\"answer\":\"a\"}\n", "kept"},
		{"null in place of the record", "sql", `null`, "bad: wrong_type"},
		{"array in place of the record", "sharegpt", `[]`, "bad: wrong_type"},
		{"null in place of a turn", "sharegpt", `{"conversations":[null]}`, "bad: missing_field"},
		{"empty object", "sharegpt", `{}`, "bad: missing_field"},
		{"empty object for a mapping", "mapping", `{}`, "bad: missing_field"},

		{"escaped NUL in a text", "sharegpt", chat(`"a\u0000b"`), "kept"},
		{"raw NUL in a text", "sharegpt", chat("\"a\x00b\""), "damaged"},
		{"raw line break in a text", "sql", "{\"question\":\"a\nb\",\"context\":\"c\",\"answer\":\"a\"}", "damaged"},
		{"NUL between tokens", "sql", "{\"question\":\x00\"q\",\"context\":\"c\",\"answer\":\"a\"}", "damaged"},
		{"lone high surrogate", "sharegpt", chat(`"a\ud800"`), "changed: lone_surrogates_replaced"},
		{"lone low surrogate", "alpaca", `{"instruction":"i","output":"\udc00 o"}`, "changed: lone_surrogates_replaced"},
		{"surrogates in the wrong order", "mapping", `{"instruction":"i","input":"\udc00\ud800","output":"o"}`, "changed: lone_surrogates_replaced"},
		{"surrogate pair", "sharegpt", chat(`"\ud83d\ude00"`), "kept"},
		{"invalid UTF-8 in a text", "sharegpt", chat("\"a\xff\""), "bad: invalid_utf8"},
		{"invalid UTF-8 in an ignored field", "sql", "{\"x\":\"\xc3\",\"question\":\"q\",\"context\":\"c\",\"answer\":\"a\"}", "bad: invalid_utf8"},
		{"surrogate as UTF-8", "sharegpt", chat("\"\xed\xa0\x80\""), "bad: invalid_utf8"},
		{"overlong UTF-8", "sharegpt", chat("\"\xc0\xaf\""), "bad: invalid_utf8"},
		{"invalid UTF-8 and malformed JSON", "sql", "{\"question\":\"\xff\",,}", "damaged"},
		{"BOM inside a text", "sharegpt", chat(`"\ufeffa"`), "kept"},
		{"text of nothing but a BOM", "sharegpt", chat("\"\ufeff\""), "bad: empty_completion"},
		{"BOM in front of the record", "sql", "\ufeff{\"question\":\"q\"}", "damaged"},

		{"deep nesting in an ignored field", "sharegpt", `{"x":` + nested(maxDepth-1) + `,"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}`, "kept"},
		{"deeper nesting", "sharegpt", `{"x":` + nested(maxDepth) + `,"conversations":[]}`, "bad: nested_too_deep"},
		{"nesting beyond what can be checked", "sql", `{"x":` + nested(1_000_000) + `}`, "damaged"},
		{"deep nesting of objects", "mapping", strings.Repeat(`{"instruction":`, 5000) + "1" + strings.Repeat("}", 5000), "bad: nested_too_deep"},
		{"deep nesting that is malformed", "sql", `{"x":` + strings.Repeat("[", 5000) + "," + strings.Repeat("]", 5000) + `}`, "damaged"},

		{"duplicate key", "sql", `{"question":"q","context":"c","answer":"a","answer":"b"}`, "bad: duplicate_key"},
		{"duplicate key with the same value", "sql", `{"question":"q","question":"q","context":"c","answer":"a"}`, "bad: duplicate_key"},
		{"duplicate key in other case", "sql", `{"question":"q","context":"c","answer":"a","Answer":"b"}`, "bad: duplicate_key"},
		{"duplicate key spelled with escapes", "sql", `{"question":"q","context":"c","answer":"a","\u0061nswer":"b"}`, "bad: duplicate_key"},
		{"duplicate key in a turn", "sharegpt", `{"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a","value" :"b"}]}`, "bad: duplicate_key"},
		{"duplicate list", "sharegpt", `{"conversations":[{"from":"human","value":"u"}],"conversations":[]}`, "bad: duplicate_key"},
		{"duplicate key of a mapping", "mapping", `{"instruction":"i","input":"x","output":"o","output":"p"}`, "bad: duplicate_key"},
		{"keys of a mapping that differ in case", "mapping", `{"instruction":"i","input":"x","output":"o","Output":"p"}`, "kept"},
		{"duplicate key that is not read", "sql", `{"x":1,"x":2,"question":"q","context":"c","answer":"a"}`, "kept"},
		{"the same key in two turns", "sharegpt", chat(`"a"`), "kept"},
		{"a key's name as a text", "sql", `{"question":"answer","context":"\"answer\"","answer":"answer\":"}`, "kept"},
		{"duplicate key in malformed JSON", "sql", `{"answer":1,"answer":2,}`, "damaged"},

		{"huge number in an ignored field", "sharegpt", `{"x":1e999999,"y":` + strings.Repeat("9", 10000) + `,"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}`, "kept"},
		{"huge number for an id", "sharegpt", `{"id":1e999999,"conversations":[{"from":"human","value":"u"},{"from":"gpt","value":"a"}]}`, "kept"},
		{"huge number in place of a string", "sql", `{"question":1e999999,"context":"c","answer":"a"}`, "bad: wrong_type"},
		{"huge number in a mapped text", "mapping", `{"instruction":"i","input":-1E+999999,"output":"o"}`, "kept"},
		{"huge number that is not read by a mapping", "mapping", `{"x":1e999999,"instruction":"i","input":"","output":"o"}`, "kept"},
		{"malformed number", "sql", `{"question":01,"context":"c","answer":"a"}`, "damaged"},
		{"not a number", "mapping", `{"instruction":NaN,"input":"","output":"o"}`, "damaged"},

		{"unknown escape", "sql", `{"question":"\x"}`, "damaged"},
		{"unknown escape in an ignored field", "sql", `{"x":"\e","question":"q","context":"c","answer":"` + strings.Repeat("a", 100) + `"}`, "damaged"},
		{"trailing comma", "sharegpt", `{"conversations":[],}`, "damaged"},
		{"single quotes", "sql", `{'question':'q'}`, "damaged"},
		{"comment", "sql", `{"question":"q"/**/}`, "damaged"},
		{"thousands of turns", "sharegpt", `{"conversations":[` + strings.Repeat(`{"from":"human","value":"u"},{"from":"gpt","value":"a"},`, 1<<14) + `{"from":"x","value":"u"}]}`, "bad: unknown_role"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, outcome(t, formatNamed(t, c.format), Raw{Number: 1, JSON: []byte(c.text)}))
		})
	}
}

// TestHostileCells is the same for rows of CSV.
func TestHostileCells(t *testing.T) {
	for _, c := range []struct {
		name string
		row  Raw
		want string
	}{
		{"ragged row", Raw{Bad: bad(BadColumns, "", "has 1 columns, the header has 2")}, "bad: wrong_number_of_columns"},
		{"invalid UTF-8", Raw{Cells: []string{"name[A]", "\xff"}}, "bad: invalid_utf8"},
		{"NUL", Raw{Cells: []string{"name[A]", "a\x00b"}}, "kept"},
		{"BOM inside a cell", Raw{Cells: []string{"name[A]", "\ufeffa"}}, "kept"},
		{"empty cell", Raw{Cells: []string{"name[A]", ""}}, "bad: empty_completion"},
		{"malformed meaning", Raw{Cells: []string{"name[A", "a"}}, "bad: malformed_field"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, outcome(t, formatNamed(t, "e2e"), c.row))
		})
	}
	rows, err := mappingFormat(rowsMapping, repeatedDrop)
	require.NoError(t, err)
	require.Equal(t, "bad: invalid_utf8", outcome(t, rows, Raw{Cells: []string{"p", "\xff"}}))
	require.Equal(t, "bad: wrong_number_of_columns", outcome(t, rows, Raw{Bad: bad(BadColumns, "", "")}))
	require.Equal(t, "bad: empty_completion", outcome(t, rows, Raw{Cells: []string{"p", ""}}))
}

func TestKeySet(t *testing.T) {
	fold, exact := keysOf(false, "id", "Value", "id"), keysOf(true, "id", "Value")
	require.Equal(t, []string{"id", "Value"}, fold.names)
	for text, want := range map[string][2]int{
		"id": {0, 0}, "ID": {0, -1}, "value": {1, -1}, "Value": {1, 1}, "": {-1, -1}, "values": {-1, -1}, `\u0069d`: {0, 0}, `\u0049d`: {0, -1},
		`i\`: {-1, -1}, `\u0056\u0061lue`: {1, 1}, `\\u0069d`: {-1, -1}, "vàlu": {-1, -1},
	} {
		require.Equal(t, want, [2]int{fold.find([]byte(text)), exact.find([]byte(text))}, text)
	}
	names := make([]string, maxKeys+1)
	for i := range names {
		names[i] = strings.Repeat("x", i+1)
	}
	require.NotNil(t, keysOf(true, names[:maxKeys]...))
	require.Nil(t, keysOf(true, names...))
}
