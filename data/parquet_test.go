package data

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"
	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// anyFormat takes records of any make, for tests of containers.
var anyFormat = Format{name: "any", decode: func(Raw) (Record, error) { return Record{}, nil }}

// exact makes the numbers of a JSON value comparable whatever their spelling.
func exact(v any) any {
	switch v := v.(type) {
	case json.Number:
		r, _ := new(big.Rat).SetString(v.String())
		return r.RatString()
	case []any:
		for i := range v {
			v[i] = exact(v[i])
		}
	case map[string]any:
		for k := range v {
			v[k] = exact(v[k])
		}
	}
	return v
}

func jsonValue(t testing.TB, b []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	require.NoError(t, d.Decode(&v), "%s", b)
	return exact(v)
}

// TestParquetVectors reads files of other writers, in all compressions and both
// versions of pages; testdata/make_parquet.py says what is in them.
func TestParquetVectors(t *testing.T) {
	text, err := os.ReadFile("testdata/parquet/nested.jsonl")
	require.NoError(t, err)
	want := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	files, err := filepath.Glob("testdata/parquet/nested-*.parquet")
	require.NoError(t, err)
	require.Len(t, files, 6)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			f, err := FormatOf("sharegpt")
			require.NoError(t, err)
			s, err := Scan(t.Context(), ScanOptions{Format: f, URI: file, PartBytes: 1})
			require.NoError(t, err)
			require.Len(t, s.Parts, 3, "one for each row group")
			require.Equal(t, ContainerParquet, s.Input.Container)
			stored, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, specstream.DigestBytes(stored), s.Input.SHA256)
			i := 0
			for _, p := range s.Parts {
				r, err := OpenPart(t.Context(), f, p, nil, 0)
				require.NoError(t, err)
				for ; ; i++ {
					raw, err := r.NextRaw()
					if err == io.EOF {
						break
					}
					require.NoError(t, err)
					require.Equal(t, int64(i+1), raw.Number)
					require.Equal(t, jsonValue(t, want[i]), jsonValue(t, raw.JSON), "row %d: %s", i, raw.JSON)
					require.True(t, bytes.HasPrefix(raw.JSON, []byte(`{"id":`)), "columns keep their order")
				}
				require.NoError(t, r.Close())
			}
			require.Equal(t, len(want), i)
			whole, err := rawsOf(Open(t.Context(), f, file))
			require.NoError(t, err)
			require.Equal(t, whole, partsOf(t, f, s, nil))
		})
	}
	t.Run("duckdb", func(t *testing.T) {
		r, err := Open(t.Context(), formatNamed(t, "alpaca"), "testdata/parquet/duckdb.parquet")
		require.NoError(t, err)
		for i := range 300 {
			rec, err := r.Next()
			require.NoError(t, err)
			require.Equal(t, fmt.Sprintf("Say %d.", i), rec.Turns[0].Text)
			require.Equal(t, strings.Repeat(fmt.Sprint(i), i%50+1), rec.Turns[1].Text)
			require.Equal(t, int64(i+1), rec.Number)
		}
		_, err = r.Next()
		require.Equal(t, io.EOF, err)
		require.NoError(t, r.Close())
	})
}

// TestParquetRepeated: fields that repeat without being annotated as a list are
// arrays.
func TestParquetRepeated(t *testing.T) {
	type turn struct {
		From  string `parquet:"from"`
		Value string `parquet:"value"`
	}
	type row struct {
		Conversations []turn   `parquet:"conversations"`
		Tags          []string `parquet:"tags"`
	}
	var b bytes.Buffer
	rows := []row{{[]turn{{"human", "hi"}, {"gpt", "ho"}}, nil}, {nil, []string{"a"}}, {[]turn{{"human", ""}}, []string{"b", "c"}}}
	require.NoError(t, parquet.Write(&b, rows))
	got, err := rawsOf(OpenWith(t.Context(), anyFormat, "in", seekableOpener(b.Bytes())))
	require.NoError(t, err)
	require.Equal(t, []string{
		`1 {"conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"ho"}],"tags":[]} []`,
		`2 {"conversations":[],"tags":["a"]} []`,
		`3 {"conversations":[{"from":"human","value":""}],"tags":["b","c"]} []`,
	}, got)
}

type sqlRow struct {
	Question string `parquet:"question"`
	Context  string `parquet:"context"`
	Answer   string `parquet:"answer"`
}

// parquetOf writes groups of rows.
func parquetOf[T any](t testing.TB, groups [][]T, options ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, options...)
	for _, g := range groups {
		_, err := w.Write(g)
		require.NoError(t, err)
		require.NoError(t, w.Flush())
	}
	require.NoError(t, w.Close())
	return b.Bytes()
}

func sqlGroups(groups, rows int) (out [][]sqlRow) {
	for g := range groups {
		var rs []sqlRow
		for i := range rows {
			rs = append(rs, sqlRow{fmt.Sprintf("How many %d?", g*rows+i), "CREATE TABLE t (a INTEGER)", fmt.Sprintf("SELECT %d", g*rows+i)})
		}
		out = append(out, rs)
	}
	return out
}

func TestParquetParts(t *testing.T) {
	f := formatNamed(t, "sql")
	stored := parquetOf(t, sqlGroups(6, 50), parquet.Compression(&parquet.Zstd))
	whole, err := rawsOf(OpenWith(t.Context(), f, "in", seekableOpener(stored)))
	require.NoError(t, err)
	require.Len(t, whole, 300)
	for _, c := range []struct {
		size, limit  int64
		parts        int
		records      int64
		seekableOnly bool
	}{{0, 0, 1, 300, false}, {1, 0, 6, 300, false}, {5000, 0, 3, 300, true}, {1, 120, 3, 120, false}, {0, 1, 1, 1, false}, {1, 300, 6, 300, false}, {1, 1000, 6, 300, false}} {
		t.Run(fmt.Sprint(c.size, c.limit), func(t *testing.T) {
			// One opener has ReadAt, the other can only seek.
			for _, open := range []Opener{seekableOpener(stored), func(context.Context, string) (io.ReadCloser, error) {
				return struct {
					io.ReadSeeker
					io.Closer
				}{bytes.NewReader(stored), io.NopCloser(nil)}, nil
			}} {
				s, err := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: open, PartBytes: c.size, Limit: c.limit})
				require.NoError(t, err)
				require.Equal(t, c.records, s.Input.Records)
				require.Equal(t, specstream.DigestBytes(stored), s.Input.SHA256)
				require.Len(t, s.Parts, c.parts)
				require.Equal(t, whole[:c.records], partsOf(t, f, s, open))
			}
		})
	}
	_, err = OpenWith(t.Context(), f, "in", streamOpener(stored, func(r io.Reader) io.Reader { return r }))
	require.ErrorContains(t, err, "this store can't seek")
	require.False(t, specstream.BadInput(err))
}

// TestParquetGrown: row groups written into another file with more of them have
// the digests they had, wherever they lie.
func TestParquetGrown(t *testing.T) {
	scan := func(stored []byte) (out []string) {
		s, err := Scan(t.Context(), ScanOptions{Format: anyFormat, URI: "in", Open: seekableOpener(stored), PartBytes: 1})
		require.NoError(t, err)
		for _, p := range s.Parts {
			out = append(out, p.Digest)
		}
		return out
	}
	groups := sqlGroups(4, 50)
	a, b := scan(parquetOf(t, groups[:3])), scan(parquetOf(t, groups))
	require.Equal(t, a, b[:3])
	require.Equal(t, a[1:], scan(parquetOf(t, groups[1:3])))
	require.NotContains(t, b[:3], b[3])
}

func TestParquetChanged(t *testing.T) {
	f := formatNamed(t, "sql")
	stored := parquetOf(t, sqlGroups(3, 40))
	s, err := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: seekableOpener(stored), PartBytes: 1})
	require.NoError(t, err)
	for name, other := range map[string][]byte{
		"other rows": parquetOf(t, [][]sqlRow{sqlGroups(1, 40)[0], sqlGroups(1, 40)[0], sqlGroups(1, 40)[0]}),
		"fewer rows": parquetOf(t, sqlGroups(3, 39)), "fewer groups": parquetOf(t, sqlGroups(1, 40)),
		"other schema": parquetOf(t, [][]struct {
			Question string `parquet:"question"`
			Context  string `parquet:"context"`
			Query    string `parquet:"query"`
		}{make([]struct {
			Question string `parquet:"question"`
			Context  string `parquet:"context"`
			Query    string `parquet:"query"`
		}, 40), nil, nil}),
	} {
		_, err := rawsOf(OpenPart(t.Context(), f, s.Parts[1], seekableOpener(other), 0))
		require.ErrorContains(t, err, "the input changed since it was scanned", name)
		require.True(t, specstream.BadInput(err))
	}
}

// TestParquetWrongSchema: a file of other columns is an error, never empty
// records.
func TestParquetWrongSchema(t *testing.T) {
	type other struct {
		Text string `parquet:"text"`
	}
	stored := parquetOf(t, [][]other{{{"a"}, {"b"}}})
	for _, format := range specstream.Formats {
		f := formatNamed(t, format)
		_, err := OpenWith(t.Context(), f, "in", seekableOpener(stored))
		var in *specstream.InputError
		require.ErrorAs(t, err, &in, format)
		require.Equal(t, "in", in.File)
		require.Contains(t, in.Error(), "the column is missing")
		require.Contains(t, in.Error(), `["text"]`)
		_, serr := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: seekableOpener(stored)})
		require.Equal(t, err, serr)
	}
	// The right name for another type is told record by record.
	type wrong struct {
		Question int64  `parquet:"question"`
		Context  string `parquet:"context"`
		Answer   string `parquet:"answer"`
	}
	r, err := OpenWith(t.Context(), formatNamed(t, "sql"), "in", seekableOpener(parquetOf(t, [][]wrong{{{1, "c", "a"}}})))
	require.NoError(t, err)
	_, err = r.Next()
	var b *BadRecordError
	require.ErrorAs(t, err, &b)
	require.Equal(t, BadType, b.Code)
	require.NoError(t, r.Close())
}

// TestParquetDamage: a file that is cut anywhere, or in which a byte is another,
// is reported, or else the byte was of no account (a statistic, say) and the
// records are what they were.
func TestParquetDamage(t *testing.T) {
	f := formatNamed(t, "sql")
	for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Zstd, &parquet.Brotli, &parquet.Lz4Raw} {
		t.Run(codec.String(), func(t *testing.T) {
			stored := parquetOf(t, sqlGroups(2, 30), parquet.Compression(codec))
			good, err := rawsOf(OpenWith(t.Context(), f, "in", seekableOpener(stored)))
			require.NoError(t, err)
			check := func(name string, stored []byte, must bool) {
				s, err := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: seekableOpener(stored)})
				if err == nil {
					for _, p := range s.Parts {
						_, perr := rawsOf(OpenPart(t.Context(), f, p, seekableOpener(stored), 0))
						err = errors.Join(err, perr)
					}
				}
				got, rerr := rawsOf(OpenWith(t.Context(), f, "in", seekableOpener(stored)))
				if err == nil && rerr == nil {
					require.False(t, must, "%s is not reported", name)
					require.Equal(t, good, got, name)
					return
				}
				for _, err := range []error{err, rerr} {
					require.True(t, specstream.BadInput(err), "%s: %v", name, err)
				}
			}
			for n := 4; n < len(stored); n += 13 {
				check(fmt.Sprintf("cut at %d", n), stored[:n], true)
			}
			step := 7
			if testing.Short() {
				step = 41
			}
			for i := 4; i < len(stored); i += step {
				other := bytes.Clone(stored)
				other[i] ^= 0x21
				check(fmt.Sprintf("byte %d of %d is another", i, len(stored)), other, false)
			}
		})
	}
}

// TestParquetPageBomb: what a page states is checked before room is made for it.
func TestParquetPageBomb(t *testing.T) {
	type row struct {
		Text string `parquet:"text,plain"`
	}
	rows := make([]row, 512<<10)
	for i := range rows {
		rows[i].Text = strings.Repeat("a", 160)
	}
	stored := parquetOf(t, [][]row{rows}, parquet.Compression(&parquet.Zstd))
	_, err := Scan(t.Context(), ScanOptions{Format: anyFormat, URI: "in", Open: seekableOpener(stored)})
	var in *specstream.InputError
	require.ErrorAs(t, err, &in)
	require.Equal(t, "max_expansion", in.Field)
	_, err = Scan(t.Context(), ScanOptions{Format: anyFormat, URI: "in", Open: seekableOpener(stored), MaxExpansion: 1_000_000})
	require.NoError(t, err)
	_, err = rawsOf(OpenPart(t.Context(), anyFormat, Part{URI: "in", Container: ContainerParquet, End: 1, First: 1, Records: 1, Digest: "xxh3:00"}, seekableOpener(stored), 1_000_000))
	require.ErrorContains(t, err, "are others")
}

// FuzzParquet: whatever the bytes, a file is read, whole rows of all its columns,
// or refused as bad input.
func FuzzParquet(f *testing.F) {
	for _, codec := range []compress.Codec{&parquet.Uncompressed, &parquet.Snappy, &parquet.Gzip, &parquet.Zstd, &parquet.Brotli, &parquet.Lz4Raw} {
		f.Add(parquetOf(f, sqlGroups(2, 10), parquet.Compression(codec)), 0, byte(0))
	}
	files, err := filepath.Glob("testdata/parquet/*.parquet")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, 100, byte(7))
	}
	f.Fuzz(func(t *testing.T, stored []byte, at int, flip byte) {
		if len(stored) < 4 || string(stored[:4]) != magicParquet {
			t.Skip()
		}
		if at >= 4 && at < len(stored) {
			stored = bytes.Clone(stored)
			stored[at] ^= flip
		}
		ctx := context.Background()
		s, err := Scan(ctx, ScanOptions{Format: anyFormat, URI: "in", Open: seekableOpener(stored)})
		if err != nil {
			if !specstream.BadInput(err) {
				t.Fatal(err)
			}
			return
		}
		for _, p := range s.Parts {
			r, err := OpenPart(ctx, anyFormat, p, seekableOpener(stored), 0)
			if err != nil {
				t.Fatalf("what was scanned is not opened: %v", err)
			}
			n := int64(0)
			for ; ; n++ {
				raw, err := r.NextRaw()
				if err == io.EOF {
					if n != p.Records {
						t.Fatalf("%d of %d records", n, p.Records)
					}
					break
				}
				if err != nil {
					if !specstream.BadInput(err) {
						t.Fatal(err)
					}
					break
				}
				if len(raw.JSON) < 2 || raw.JSON[0] != '{' || raw.JSON[1] == '}' {
					t.Fatalf("an empty record: %s", raw.JSON)
				}
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
