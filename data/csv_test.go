package data

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// allRows reads CSV with rows; header included, ragged rows as nil.
func allRows(text []byte, buffer int) (out [][]string, err error) {
	c := newRows(bytes.NewReader(text), 0)
	c.buf = make([]byte, buffer)
	for {
		cells, err := c.row()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, slices.Clone(cells))
	}
}

// FuzzRows compares with encoding/csv on the whole text: the bounds of rows are
// those it finds, and what it refuses is refused.
func FuzzRows(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "a\r\n\r\n\"b\r\nc\"\r\n", "\"a\"\"b\",\n", "a\"b\n", "\"a\"b\n", "\"", "\n\n", "\r", "a\r", "\r\r\n", "a\n\r", ",\n\"\n\"", "\"\"\n"} {
		f.Add([]byte(s), 3)
	}
	f.Fuzz(func(t *testing.T, text []byte, buffer int) {
		want := csv.NewReader(bytes.NewReader(text))
		want.FieldsPerRecord = -1
		rows, werr := want.ReadAll()
		got, err := allRows(text, 1+buffer&0xff)
		if (err == nil) != (werr == nil) {
			t.Fatalf("%q: %v, want %v", text, err, werr)
		}
		var d *damage
		if err != nil && !errors.As(err, &d) {
			t.Fatalf("%q: %v", text, err)
		}
		if err == nil && !slices.EqualFunc(got, rows, slices.Equal[[]string]) {
			t.Fatalf("%q: %q, want %q", text, got, rows)
		}
	})
}

func TestAppendJSONString(t *testing.T) {
	for r := rune(0); r < 0x3000; r++ {
		s := "a" + string(r) + "b"
		var back string
		require.NoError(t, json.Unmarshal(appendJSONString(nil, s), &back))
		require.Equal(t, s, back)
	}
	require.Equal(t, "x\"\xff\\n\"", string(appendJSONString([]byte("x"), "\xff\n")))
}

func BenchmarkRows(b *testing.B) {
	text := []byte(csvRows(20_000))
	f, err := FormatOf("e2e")
	require.NoError(b, err)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		r, err := OpenWith(b.Context(), f, "in", seekableOpener(text))
		require.NoError(b, err)
		for {
			if _, err := r.NextRaw(); err == io.EOF {
				break
			} else if err != nil {
				b.Fatal(err)
			}
		}
		require.NoError(b, r.Close())
	}
}
