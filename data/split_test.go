package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream/internal/testdata"
)

// elements splits a stream; whatever ends it but io.EOF is returned.
func elements(s *splitter) (out []string, err error) {
	for {
		b, err := s.next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, string(b))
	}
}

func TestSplitter(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     []string
		damage   string // part of the reason; empty when sound
	}{
		{"array", `[{"a":1},{"b":[2,{"c":"]}"}]}]`, []string{`{"a":1}`, `{"b":[2,{"c":"]}"}]}`}, ""},
		{"array with space", " \r\n[ {} ,\n{} ]\n\t", []string{"{}", "{}"}, ""},
		{"empty array", "[ ]", nil, ""},
		{"other values", `[1,"x,]\"",null,[2]]`, []string{"1", `"x,]\""`, "null", "[2]"}, ""},
		{"escapes", `[{"a":"\\"},{"b":"\\\""}]`, []string{`{"a":"\\"}`, `{"b":"\\\""}`}, ""},
		{"lines", "{\"a\":1}\n{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}, ""},
		{"lines without the last break", "{}\r\n\r\n{}", []string{"{}", "{}"}, ""},
		{"one object over lines", "{\n\"a\":\n1}\n", []string{"{\n\"a\":\n1}"}, ""},
		{"not JSON to the decoder", `[{"a":tru]}]`, []string{`{"a":tru]`}, "comma or the closing bracket"},

		{"nothing", "", nil, "empty"},
		{"white space", " \n", nil, "empty"},
		{"text", "hello", nil, "want a JSON array or JSON Lines, got 'h' at byte 0"},
		{"binary", "\x80", nil, "byte 0x80"},
		{"cut behind the bracket", "[", nil, "closing bracket is missing"},
		{"cut behind an element", `[{}`, []string{"{}"}, "behind element 1: the closing bracket is missing"},
		{"cut behind a comma", `[{},`, []string{"{}"}, "closing bracket is missing"},
		{"cut inside an element", `[{"a":1`, nil, "inside the element that begins at byte 1"},
		{"cut inside a string", `[{"a":"b`, nil, "closing quote"},
		{"cut inside a literal", `[tru`, nil, "ends inside the element"},
		{"no comma", `[{} {}]`, []string{"{}"}, "want a comma or the closing bracket behind element 1, got '{' at byte 4"},
		{"two commas", `[{},,{}]`, []string{"{}"}, "want an element behind the comma"},
		{"comma first", `[,{}]`, []string{""}, "want an element behind the comma"},
		{"comma last", `[{},]`, []string{"{}"}, "want an element behind the comma, got ']'"},
		{"text between", `[{},x{}]`, []string{"{}", "x{}"}, ""},
		{"two arrays", `[{}][{}]`, []string{"{}"}, "behind the closing bracket: '[' at byte 4"},
		{"text behind", "[{}]\nx", []string{"{}"}, "behind the closing bracket"},
		{"zeros behind", "[{}]\n\x00\x00", []string{"{}"}, "behind the closing bracket"},
		{"two values a line", "{} {}", []string{"{}"}, "want a line break behind value 1"},
		{"comma between lines", "{},\n{}", []string{"{}"}, "want a line break"},
		{"text line", "{}\noops\n{}", []string{"{}"}, "want a JSON object on each line, got 'o' at byte 3"},
		{"array line", "{}\n[1]\n", []string{"{}"}, "want a JSON object on each line"},
		{"cut line", "{}\n{\"a\"", []string{"{}"}, "inside the element that begins at byte 3"},
	} {
		for _, readers := range []struct {
			name string
			wrap func(io.Reader) io.Reader
		}{
			{"whole", func(r io.Reader) io.Reader { return r }},
			{"bytewise", iotest.OneByteReader},
			{"data with EOF", iotest.DataErrReader},
		} {
			t.Run(c.name+"/"+readers.name, func(t *testing.T) {
				s := newSplitter(readers.wrap(strings.NewReader(c.in)), 0)
				s.buf = make([]byte, 4) // grows, and moves all the time
				got, err := elements(s)
				if c.name == "comma first" || c.name == "text between" {
					// The splitter leaves it to the decoder that these elements
					// are not JSON; what matters is that it sees them.
					ok := false
					for _, e := range got {
						ok = ok || !json.Valid([]byte(e))
					}
					require.True(t, ok || err != nil)
					return
				}
				require.Equal(t, c.want, got)
				if c.damage == "" {
					require.NoError(t, err)
					return
				}
				var d *damage
				require.ErrorAs(t, err, &d)
				require.ErrorContains(t, err, c.damage)
			})
		}
	}
}

func TestSplitterBoundsMemory(t *testing.T) {
	s := newSplitter(strings.NewReader(`[{"a":"`+strings.Repeat("x", 1<<20)+`"}]`), 0)
	s.max = 512 << 10
	_, err := elements(s)
	require.ErrorContains(t, err, "longer than")

	s = newSplitter(strings.NewReader(`[`+strings.Repeat(`{"a":1},`, 1<<20)+`{}]`), 0)
	size := len(s.buf)
	got, err := elements(s)
	require.NoError(t, err)
	require.Len(t, got, 1<<20+1)
	require.Len(t, s.buf, size, "short elements need no more memory, however many there are")
}

func TestSplitterKeepsReadErrors(t *testing.T) {
	lost := errors.New("connection reset")
	for _, in := range []string{"", "[", `[{"a":`, `[{}`, "{}\n"} {
		_, err := elements(newSplitter(io.MultiReader(strings.NewReader(in), iotest.ErrReader(lost)), 0))
		require.ErrorIs(t, err, lost, in)
	}
	_, err := elements(newSplitter(stuck{}, 0))
	require.ErrorIs(t, err, io.ErrNoProgress)
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

// FuzzSplitter compares with encoding/json: an array that is valid JSON is
// split into exactly its elements, and an array whose elements all are valid
// is valid itself.
func FuzzSplitter(f *testing.F) {
	for _, s := range []string{"[]", `[{}]`, `[{"a":"\\\""},{"b":[1,{}]}]`, "{}\n{}", `[1 , "x"]`, `[{},]`, "[[[]]]", `[nul`, `["a"1]`} {
		f.Add([]byte(s), 7)
	}
	f.Fuzz(func(t *testing.T, in []byte, size int) {
		s := newSplitter(bytes.NewReader(in), 0)
		s.buf = make([]byte, 1+(size&0xff))
		got, err := elements(s)
		var want []json.RawMessage
		array := json.Unmarshal(in, &want) == nil && bytes.HasPrefix(bytes.TrimLeft(in, " \t\r\n"), []byte("["))
		if array {
			if err != nil {
				t.Fatalf("%q is an array, got %v", in, err)
			}
			if len(got) != len(want) {
				t.Fatalf("%q: %d elements, want %d", in, len(got), len(want))
			}
			for i := range want {
				if got[i] != string(want[i]) {
					t.Fatalf("%q: element %d is %q, want %q", in, i, got[i], want[i])
				}
			}
			return
		}
		if err != nil {
			return
		}
		for _, e := range got {
			if !json.Valid([]byte(e)) {
				return // the decoder reports it
			}
		}
		if bytes.HasPrefix(bytes.TrimLeft(in, " \t\r\n"), []byte("[")) {
			t.Fatalf("%q is not valid JSON, and neither splitter nor decoder reports it", in)
		}
		// A sequence: its values are the lines.
		d := json.NewDecoder(bytes.NewReader(in))
		for i := 0; ; i++ {
			var v json.RawMessage
			if err := d.Decode(&v); err == io.EOF {
				if i != len(got) {
					t.Fatalf("%q: %d values, want %d", in, len(got), i)
				}
				break
			} else if err != nil {
				t.Fatalf("%q: not reported: %v", in, err)
			}
		}
	})
}

func BenchmarkSplitter(b *testing.B) {
	for _, file := range []string{"sql/wikisql_train_4k.json", "sharegpt/mix_dev.json", "dialogsum/train_2k.jsonl"} {
		text, err := os.ReadFile(testdata.Shared(b, file))
		require.NoError(b, err)
		b.Run(file, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s := newSplitter(bytes.NewReader(text), 0)
				for {
					if _, err := s.next(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func ExampleReader_Decode() {
	raw := Raw{Number: 3, JSON: []byte(`{"question": 7, "context": "CREATE TABLE t (a INTEGER)", "answer": "SELECT a FROM t"}`)}
	_, err := (&Reader{uri: "train.json", name: "train.json", format: formats[2]}).Decode(raw)
	fmt.Println(err)
	// Output: train.json: record 3: field "question": want a string, got a number
}
