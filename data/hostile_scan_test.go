package data

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// repeated is text without an end.
type repeated struct {
	text string
	at   int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) {
		c := copy(p[n:], r.text[r.at:])
		n += c
		r.at = (r.at + c) % len(r.text)
	}
	return n, nil
}

// TestHugeRecord: a single record of 1 GB, which no memory should hold, is
// refused after 64 MiB, whatever it is.
func TestHugeRecord(t *testing.T) {
	for _, c := range []struct{ name, format, head, body string }{
		{"string in an array", "sql", `[{"question":"`, "x"},
		{"string of escapes", "sql", `{"question":"`, `\"`},
		{"list in lines", "sql", `{"question":[`, "1,"},
		{"number", "sql", "[", "7"},
		{"CSV cell", "e2e", "mr,ref\n\"", "x\n"},
		{"CSV row", "e2e", "mr,ref\n", "x,"},
		{"CSV header", "e2e", "", "x,"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && c.name != "string in an array" {
				t.Skip("reads 64 MiB")
			}
			var n int64
			_, err := Scan(t.Context(), ScanOptions{Format: formatNamed(t, c.format), URI: "in", Progress: func(b int64) { n = b },
				Open: func(context.Context, string) (io.ReadCloser, error) {
					return io.NopCloser(io.MultiReader(strings.NewReader(c.head), io.LimitReader(&repeated{text: strings.Repeat(c.body, 4096)}, 1<<30))), nil
				}})
			require.ErrorContains(t, err, "is longer than 64 MiB; a closing quote or bracket may be missing")
			require.True(t, specstream.BadInput(err))
			require.Less(t, n, int64(80<<20))
		})
	}
}

// TestBoundedMemory scans and reads a JSON array of 3 GiB, which is generated as
// it is read.
func TestBoundedMemory(t *testing.T) {
	size := int64(3 << 30)
	if testing.Short() {
		size = 64 << 20
	}
	record := `{"id":"c0","conversations":[{"from":"human","value":"` + strings.Repeat("How are you? ", 80) + `"},{"from":"gpt","value":"` + strings.Repeat("I am \\\"fine\\\".\\n", 400) + `"}]},` + "\n"
	n := size / int64(len(record))
	open := func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("["), io.LimitReader(&repeated{text: record}, n*int64(len(record))), strings.NewReader(chatOne+"]"))), nil
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	s, err := Scan(t.Context(), ScanOptions{Format: formatNamed(t, "sharegpt"), URI: "in", Open: open, PartBytes: 64 << 20})
	require.NoError(t, err)
	require.Equal(t, n+1, s.Input.Records)
	r, err := OpenPart(t.Context(), formatNamed(t, "sharegpt"), s.Parts[len(s.Parts)-1], open, 0)
	require.NoError(t, err)
	for {
		if _, err := r.NextRaw(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	require.NoError(t, r.Close())
	runtime.ReadMemStats(&after)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(16<<20), "bytes allocated in all")
}

// TestBombs: a compressed file that expands beyond MaxExpansion is refused long
// before it has filled memory or time.
func TestBombs(t *testing.T) {
	text := strings.Repeat(`{"question":"q","context":"c","answer":"`+strings.Repeat("a", 984)+`"}`+"\n", 80<<10) // 80 MiB
	packed := gzipped(t, text)
	for _, c := range []struct {
		name      string
		stored    []byte
		expansion int
		want      string
	}{
		{"gzip", packed, 200, "expands to more than 200 times its size"},
		{"gzip by default", packed, 0, "expands to more than 200 times its size"},
		{"zstd", zstdOf(t, text), 1000, "expands to more than 1000 times its size"},
		{"trusted", packed, 100_000, ""},
		{"below 64 MiB", gzipped(t, text[:len(text)/4*3]), 1, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := Scan(t.Context(), ScanOptions{Format: formatNamed(t, "sql"), URI: "in", Open: seekableOpener(c.stored), MaxExpansion: c.expansion})
			if c.want == "" {
				require.NoError(t, err)
				require.GreaterOrEqual(t, s.Input.Records, int64(60<<10))
				return
			}
			require.ErrorContains(t, err, c.want)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, "max_expansion", in.Field)
			require.Equal(t, "in", in.File)
			require.Contains(t, in.Hint, "max_expansion")
		})
	}
	s, err := Scan(t.Context(), ScanOptions{Format: formatNamed(t, "sql"), URI: "in", Open: seekableOpener(packed), MaxExpansion: 100_000})
	require.NoError(t, err)
	_, err = rawsOf(OpenPart(t.Context(), formatNamed(t, "sql"), s.Parts[0], seekableOpener(packed), 3))
	require.ErrorContains(t, err, "max_expansion")
}

// TestHostileContainers is the table of what becomes of containers that no honest
// writer makes. "damaged" ends reading, whatever max_bad allows; "kept" elements
// are left to their decoding, for which TestHostileElements has the same table.
func TestHostileContainers(t *testing.T) {
	nested := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	row := "mr,ref\n"
	for _, c := range []struct{ name, format, text, want string }{
		{"nothing", "sql", "", "damaged: the file is empty"},
		{"nothing but a BOM", "sql", "\ufeff", "damaged: the file is empty"},
		{"two BOMs", "sql", "\ufeff\ufeff[]", "damaged: want a JSON array"},
		{"UTF-16", "sql", "\xff\xfe[\x00]\x00", "damaged: UTF-16 or UTF-32"},
		{"UTF-32, big-endian", "sql", "\x00\x00\xfe\xff\x00\x00\x00[", "damaged: UTF-16 or UTF-32"},
		{"UTF-16 without a BOM", "sql", "\x00[\x00]", "damaged: want a JSON array"},
		{"empty array", "sql", "[]", "0 kept"},
		{"NUL behind an array", "sql", "[{}]\x00", "damaged: data behind the closing bracket"},
		{"NUL between elements", "sql", "[{},\x00{}]", "2 kept"}, // the decoder reports the second
		{"NUL between lines", "sql", "{}\n\x00{}", "damaged: want a JSON object on each line"},
		{"NULs in place of the rest", "sql", "{}\n\x00\x00\x00\x00", "damaged: want a JSON object on each line"},
		{"text behind an array", "sql", "[{}] x", "damaged: data behind the closing bracket"},
		{"array behind an array", "sql", "[{}]\n[{}]", "damaged: data behind the closing bracket"},
		{"array behind lines", "sql", "{}\n[{}]", "damaged: want a JSON object on each line"},
		{"cut array", "sql", "[{},{}", "damaged: the closing bracket is missing"},
		{"cut line", "sql", "{}\n{\"a\":", "damaged: the file ends inside the element"},
		{"cut gzip", "sql", string(gzipped(t, "[{}]")[:20]), "damaged: the compressed file ends too early"},
		{"text behind gzip", "sql", string(gzipped(t, "[{}]")) + "x", "damaged: the compressed file"},
		{"NULs behind gzip", "sql", string(gzipped(t, "[{}]")) + "\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "damaged: the compressed file"},
		{"text behind zstd", "sql", string(zstdOf(t, "[{}]")) + "xxxx", "damaged: the compressed file"},
		{"gzip in gzip", "sql", string(gzipped(t, string(gzipped(t, "[]")))), "damaged: want a JSON array"},
		{"deep nesting", "sql", "[" + nested(maxNesting) + "]", "1 kept"},
		{"deeper nesting", "sql", "[" + nested(maxNesting+1) + "]", "damaged: nested deeper than 1000 levels"},
		{"nothing but brackets", "sql", strings.Repeat("[", 1<<20), "damaged: nested deeper than 1000 levels"},
		{"nothing but braces", "sql", strings.Repeat(`{"a":`, 1<<20), "damaged: nested deeper than 1000 levels"},
		{"brackets of the wrong kind", "sql", "[{]]", "1 kept"}, // the decoder reports it
		{"duplicate keys, huge numbers, lone surrogates, invalid UTF-8", "sql", "{\"a\":1,\"a\":1e999999,\"b\":\"\\ud800\xff\"}", "1 kept"},
		{"invalid UTF-8 between elements", "sql", "[{}\xff]", "damaged: want a comma"},

		{"CSV without rows", "e2e", row, "0 kept"},
		{"empty CSV", "e2e", "", "damaged: the file is empty"},
		{"empty lines for CSV", "e2e", "\n\r\n\n", "damaged: the file is empty"},
		{"ragged rows", "e2e", row + "a\na,b\na,b,c\n", "1 kept, 2 bad"},
		{"bare quote", "e2e", row + "a,b\"c\n", "damaged: bare \" in non-quoted-field in the row that begins at byte 7"},
		{"text behind a quote", "e2e", row + "\"a\"x,b\n", "damaged: extraneous or missing"},
		{"quote that isn't closed", "e2e", row + "a,\"b\nc,d\n", "damaged: extraneous or missing"},
		{"NUL in a cell", "e2e", row + "a,\x00b\n", "1 kept"},
		{"CR alone", "e2e", row + "a,b\rc\n", "1 kept"},
		{"header twice", "e2e", "mr,ref,MR \n", "damaged: the header names the column twice"},
		{"header lacks a column", "e2e", "mr\nx\n", "damaged: the column is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := formatNamed(t, c.format)
			s, err := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: seekableOpener([]byte(c.text)), PartBytes: 1})
			_, rerr := rawsOf(OpenWith(t.Context(), f, "in", seekableOpener([]byte(c.text))))
			if reason, ok := strings.CutPrefix(c.want, "damaged: "); ok {
				require.ErrorContains(t, err, reason)
				require.Equal(t, err, rerr, "scanning and reading agree")
				var in *specstream.InputError
				require.ErrorAs(t, err, &in)
				require.Equal(t, "in", in.File)
				return
			}
			require.NoError(t, err)
			require.NoError(t, rerr)
			kept, bad := 0, 0
			for _, raw := range partsOf(t, f, s, seekableOpener([]byte(c.text))) {
				if strings.Contains(raw, " bad ") {
					bad++
				} else {
					kept++
				}
			}
			got := fmt.Sprintf("%d kept", kept)
			if bad > 0 {
				got += fmt.Sprintf(", %d bad", bad)
			}
			require.Equal(t, c.want, got)
		})
	}
}
