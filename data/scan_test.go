package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/internal/testdata"
)

// seekable is an input in memory that can seek.
type seekable struct{ *bytes.Reader }

func (seekable) Close() error { return nil }

func seekableOpener(stored []byte) Opener {
	return func(context.Context, string) (io.ReadCloser, error) { return seekable{bytes.NewReader(stored)}, nil }
}

// streamOpener gives a stream that can't seek and comes in pieces as wrap makes them.
func streamOpener(stored []byte, wrap func(io.Reader) io.Reader) Opener {
	return func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(wrap(bytes.NewReader(stored))), nil
	}
}

// rawsOf reads all elements of a reader as text.
func rawsOf(r *Reader, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var out []string
	for {
		raw, err := r.NextRaw()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		text := fmt.Sprintf("%d %s %q", raw.Number, raw.JSON, raw.Cells)
		if raw.Bad != nil {
			text = fmt.Sprintf("%d bad %v", raw.Number, raw.Bad)
		}
		out = append(out, text)
	}
}

// partsOf reads all parts of a scan.
func partsOf(t testing.TB, f Format, s Scanned, open Opener) []string {
	t.Helper()
	var out []string
	for _, p := range s.Parts {
		got, err := rawsOf(OpenPart(t.Context(), f, p, open, 0))
		require.NoError(t, err, "%+v", p)
		require.Len(t, got, int(p.Records))
		out = append(out, got...)
	}
	return out
}

func jsonArray(n int, sep string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString("," + sep)
		}
		fmt.Fprintf(&b, `{"question":"How many %d?","context":"CREATE TABLE t (a INTEGER)","answer":"SELECT %d"}`, i, i)
	}
	return "[" + sep + b.String() + sep + "]" + sep
}

func jsonLines(n int, end string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"question":"How many %d?","context":"c","answer":"SELECT %d"}%s`, i, i, end)
	}
	return b.String()
}

func csvRows(n int) string {
	var b strings.Builder
	b.WriteString("mr,ref\r\n")
	for i := range n {
		fmt.Fprintf(&b, "\"name[A %d], eatType[pub]\",\"A is\r\na \"\"pub\"\", %d.\"\r\n", i, i)
		if i%7 == 0 {
			b.WriteString("\r\n")
		}
	}
	return b.String()
}

// TestScan: the parts of an input, read one by one, are the input; they do not
// depend on how its bytes arrive; and their digests are those of their bytes.
func TestScan(t *testing.T) {
	const bom = "\ufeff"
	for _, c := range []struct {
		name, format, text string
		container          string
	}{
		{"array", "sql", jsonArray(100, ""), ContainerArray},
		{"array over lines", "sql", bom + " " + jsonArray(100, "\n  "), ContainerArray},
		{"array with much space", "sql", jsonArray(4, strings.Repeat(" \n", 100<<10)), ContainerArray},
		{"array of other values", "sql", `[1, "a", null ,[2],true]`, ContainerArray},
		{"lines", "sql", jsonLines(100, "\n"), ContainerLines},
		{"lines with CRLF and empty ones", "sql", bom + "\r\n" + jsonLines(100, "\r\n\r\n"), ContainerLines},
		{"lines without the last break", "sql", strings.TrimSpace(jsonLines(100, "\n")), ContainerLines},
		{"CSV", "e2e", csvRows(100), ContainerCSV},
		{"CSV with BOM, without the last break", "e2e", bom + strings.TrimSpace(csvRows(99)), ContainerCSV},
		{"ragged CSV", "e2e", csvRows(3) + "one\r\n" + csvRows(3)[8:], ContainerCSV},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := formatNamed(t, c.format)
			stored := []byte(c.text)
			whole, err := rawsOf(OpenWith(t.Context(), f, "in", seekableOpener(stored)))
			require.NoError(t, err)
			require.NotEmpty(t, whole)
			for _, size := range []int64{0, 1, 100, 1000, 1 << 30} {
				o := ScanOptions{Format: f, URI: "in", Open: seekableOpener(stored), PartBytes: size}
				s, err := Scan(t.Context(), o)
				require.NoError(t, err)
				require.Equal(t, Input{URI: "in", Bytes: int64(len(stored)), SHA256: specstream.DigestBytes(stored), Records: int64(len(whole)), Container: c.container}, s.Input)
				var bytesOfParts, end int64
				for i, p := range s.Parts {
					require.Equal(t, c.container, p.Container)
					require.Greater(t, p.Start, end-1)
					text := stored[p.Start:p.End]
					sum := xxh3.Hash128(text).Bytes()
					require.Equal(t, fmt.Sprintf("xxh3:%x", sum), p.Digest)
					require.NotContains(t, " \r\n,]", string(text[0]))
					if size > 1 && i+1 < len(s.Parts) {
						require.GreaterOrEqual(t, p.End-p.Start, size)
					}
					end = p.End
					bytesOfParts += p.Bytes
				}
				require.Equal(t, int64(len(stored)), bytesOfParts)
				if size == 1 {
					require.Len(t, s.Parts, len(whole))
				}
				require.Equal(t, whole, partsOf(t, f, s, seekableOpener(stored)))
				if len(stored) < 100<<10 {
					for _, wrap := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
						o.Open = streamOpener(stored, wrap)
						again, err := Scan(t.Context(), o)
						require.NoError(t, err)
						require.Equal(t, s, again)
					}
					if size == 1000 {
						require.Equal(t, whole, partsOf(t, f, s, streamOpener(stored, iotest.HalfReader)))
					}
				}
			}
			for name, packed := range map[string][]byte{compressionGzip: gzipped(t, c.text), compressionZstd: zstdOf(t, c.text)} {
				s, err := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: seekableOpener(packed), PartBytes: 100})
				require.NoError(t, err)
				require.Len(t, s.Parts, 1, "a compressed input is one part")
				p := s.Parts[0]
				sum := xxh3.Hash128(stored[p.Start:p.End]).Bytes()
				require.Equal(t, fmt.Sprintf("xxh3:%x", sum), p.Digest)
				require.Equal(t, name, p.Compression)
				require.Equal(t, int64(len(packed)), p.Bytes)
				require.Equal(t, specstream.DigestBytes(packed), s.Input.SHA256)
				require.Equal(t, whole, partsOf(t, f, s, seekableOpener(packed)))
			}
		})
	}
}

func TestScanLimit(t *testing.T) {
	f := formatNamed(t, "sql")
	stored := []byte(jsonArray(100, "\n"))
	whole, err := rawsOf(OpenWith(t.Context(), f, "in", seekableOpener(stored)))
	require.NoError(t, err)
	for _, limit := range []int64{1, 49, 50, 99, 100, 101} {
		for _, packed := range [][]byte{stored, gzipped(t, string(stored))} {
			s, err := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: seekableOpener(packed), PartBytes: 1000, Limit: limit})
			require.NoError(t, err)
			require.Equal(t, min(limit, 100), s.Input.Records)
			require.Equal(t, specstream.DigestBytes(packed), s.Input.SHA256, "the rest is hashed")
			require.Equal(t, int64(len(packed)), s.Input.Bytes)
			require.Equal(t, whole[:min(limit, 100)], partsOf(t, f, s, seekableOpener(packed)))
		}
	}
}

// TestGrownInput: what is added to the end of a file leaves the parts before it
// as they were.
func TestGrownInput(t *testing.T) {
	f := formatNamed(t, "sql")
	scan := func(text string) []Part {
		s, err := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: seekableOpener([]byte(text)), PartBytes: 1000})
		require.NoError(t, err)
		return s.Parts
	}
	before, after := scan(jsonLines(100, "\n")), scan(jsonLines(150, "\n"))
	require.Greater(t, len(before), 5)
	require.Equal(t, before[:len(before)-1], after[:len(before)-1])
	require.Greater(t, len(after), len(before))
}

func TestScanPin(t *testing.T) {
	f := formatNamed(t, "sql")
	stored := []byte(jsonArray(3, ""))
	o := ScanOptions{Format: f, URI: "in", Open: seekableOpener(stored), Pin: specstream.DigestBytes(stored)}
	_, err := Scan(t.Context(), o)
	require.NoError(t, err)
	o.Pin = specstream.DigestBytes(nil)
	_, err = Scan(t.Context(), o)
	require.ErrorContains(t, err, `in: field "sha256": the input is `+string(specstream.DigestBytes(stored)))
	require.True(t, specstream.BadInput(err))
}

func TestScanProgress(t *testing.T) {
	stored := []byte(jsonLines(60_000, "\n"))
	var told []int64
	_, err := Scan(t.Context(), ScanOptions{Format: formatNamed(t, "sql"), URI: "in", Open: seekableOpener(stored), Progress: func(n int64) { told = append(told, n) }})
	require.NoError(t, err)
	require.True(t, slices.IsSorted(told))
	require.Greater(t, len(told), 2)
	require.Equal(t, int64(len(stored)), told[len(told)-1])
}

// TestChangedInput: an input that isn't what was scanned any more is reported by
// every part that differs, at the latest at its end.
func TestChangedInput(t *testing.T) {
	for _, c := range []struct{ name, format, text string }{
		{"array", "sql", jsonArray(12, "\n")},
		{"lines", "sql", jsonLines(12, "\n")},
		{"CSV", "e2e", csvRows(12)},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := formatNamed(t, c.format)
			stored := []byte(c.text)
			s, err := Scan(t.Context(), ScanOptions{Format: f, URI: "in", Open: seekableOpener(stored), PartBytes: 200})
			require.NoError(t, err)
			require.Greater(t, len(s.Parts), 2)
			p := s.Parts[1]
			report := func(how string, stored []byte) {
				for _, open := range []Opener{seekableOpener(stored), memory(map[string][]byte{"in": stored})} {
					_, err := rawsOf(OpenPart(t.Context(), f, p, open, 0))
					require.ErrorContains(t, err, "the input changed since it was scanned", how)
					require.True(t, specstream.BadInput(err))
				}
			}
			for i := range stored {
				for _, to := range []byte{stored[i] ^ 1, '"', '\n', '}'} {
					if int64(i) < p.Start || int64(i) >= p.End || to == stored[i] {
						continue
					}
					other := slices.Clone(stored)
					other[i] = to
					report(fmt.Sprintf("byte %d of %d..%d becomes %q", i, p.Start, p.End, to), other)
				}
			}
			for n := range p.End {
				report(fmt.Sprintf("cut at %d", n), stored[:n])
			}
			report("one byte more before", slices.Concat([]byte(" "), stored))
			report("compressed", gzipped(t, c.text))
			p.Records++
			report("more records", stored)
			p.Records -= 2
			report("fewer records", stored)
		})
	}
}

func TestOpenPartRefuses(t *testing.T) {
	f := formatNamed(t, "sql")
	good := Part{URI: "in", Container: ContainerLines, End: 10, First: 1, Records: 1}
	for name, change := range map[string]func(*Part){
		"negative start": func(p *Part) { p.Start = -1 }, "empty": func(p *Part) { p.End = 0 }, "no record": func(p *Part) { p.Records = 0 },
		"number 0": func(p *Part) { p.First = 0 }, "container": func(p *Part) { p.Container = "xml" },
	} {
		p := good
		change(&p)
		_, err := OpenPart(t.Context(), f, p, seekableOpener([]byte(jsonLines(1, "\n"))), 0)
		require.Error(t, err, name)
		require.True(t, specstream.BadInput(err), name)
	}
}

// TestContainerChoice: Parquet and compression are told by content, CSV by format
// or name, the rest is JSON.
func TestContainerChoice(t *testing.T) {
	rows := "question,context,answer\nq,c,a\n"
	for _, c := range []struct{ format, uri, text, container, want string }{
		{"sql", "a.csv", rows, ContainerCSV, ""},
		{"sql", "dir/A.CSV.GZ", rows, ContainerCSV, ""},
		{"sql", "https://host/a.csv?token=x.json", rows, ContainerCSV, ""},
		{"e2e", "a.json", e2eOne, ContainerCSV, ""},
		{"sql", "a.txt", rows, "", "want a JSON array or JSON Lines"},
		{"sql", "a.csv", "a,b\n", "", "the column is missing"},
		{"sql", "a.csv.parquet", jsonLines(1, "\n"), ContainerLines, ""},
		{"sql", "a.json", "PAR1", "", "damaged Parquet"},
	} {
		t.Run(c.uri, func(t *testing.T) {
			s, err := Scan(t.Context(), ScanOptions{Format: formatNamed(t, c.format), URI: c.uri, Open: seekableOpener([]byte(c.text))})
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				require.True(t, specstream.BadInput(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.container, s.Input.Container)
		})
	}
	_, err := Scan(t.Context(), ScanOptions{Format: formatNamed(t, "sql"), URI: "in", Open: seekableOpener(gzipped(t, "PAR1"))})
	require.ErrorContains(t, err, "is Parquet inside a compressed file")
}

// TestCSVObjects: rows of formats that don't read cells become JSON objects of
// strings by the header's names.
func TestCSVObjects(t *testing.T) {
	text := "\ufeffquestion,context,\"an\"\"swer\",answer\r\n\"How, \"\"many\"\"?\",\"a\r\nb\",\\\t,1\r\n"
	r, err := OpenWith(t.Context(), formatNamed(t, "sql"), "in.csv", seekableOpener([]byte(text)))
	require.NoError(t, err)
	raw, err := r.NextRaw()
	require.NoError(t, err)
	require.Equal(t, `{"question":"How, \"many\"?","context":"a\nb","an\"swer":"\\\u0009","answer":"1"}`, string(raw.JSON))
	rec, err := r.Decode(raw)
	require.NoError(t, err)
	require.Equal(t, "1", rec.Turns[1].Text)
	require.NoError(t, r.Close())
}

func TestScanStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	_, err := Scan(ctx, ScanOptions{Format: formatNamed(t, "sql"), URI: "in",
		Progress: func(int64) { cancel(why) },
		Open: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(&repeated{text: sqlOne + "\n"}), nil
		}})
	require.ErrorIs(t, err, why)
	require.False(t, specstream.BadInput(err))

	lost := errors.New("connection reset")
	_, err = Scan(t.Context(), ScanOptions{Format: formatNamed(t, "sql"), URI: "in", Open: func(context.Context, string) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader("["+sqlOne), failing{lost})), nil
	}})
	require.ErrorIs(t, err, lost)
	require.False(t, specstream.BadInput(err))
}

// TestSharedParts: reading the real data in parts is reading them.
func TestSharedParts(t *testing.T) {
	for _, c := range []struct {
		format, file string
		parts        int
	}{
		{"sql", "sql/wikisql_train_4k.json", 16}, {"dialogsum", "dialogsum/train_2k.jsonl", 30}, {"e2e", "e2e/trainset_4k.csv", 14},
		{"sharegpt", "sharegpt/mix_dev.json", 10}, {"e2e", "e2e/trainset.csv.gz", 1},
	} {
		t.Run(c.file, func(t *testing.T) {
			path := testdata.Shared(t, c.file)
			f := formatNamed(t, c.format)
			s, err := Scan(t.Context(), ScanOptions{Format: f, URI: path, PartBytes: 64 << 10})
			require.NoError(t, err)
			require.InDelta(t, c.parts, len(s.Parts), float64(c.parts)/2)
			whole, err := rawsOf(Open(t.Context(), f, path))
			require.NoError(t, err)
			require.Equal(t, whole, partsOf(t, f, s, nil))
			stored, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, specstream.DigestBytes(stored), s.Input.SHA256)
		})
	}
}

// FuzzScan: whatever the text, scanning agrees with reading, and the parts are
// the whole.
func FuzzScan(f *testing.F) {
	for _, s := range []string{"[]", "[1,2]", "[\x01\x00\x93\x93]", "[{},{}]", "\ufeff[ {} ,\n{} ]", "{}\n{}", "[1,2", "{}{}", "[[],{}]x", "PAR1"} {
		f.Add([]byte(s), "sql", "in", 3)
	}
	for _, s := range []string{"a,b\n1,2\n\"x\ny\",\"\"\"\"\n", "a\n\"", "\n\na,b\r\n1\r\n", "question,context,answer\n1,2,3"} {
		f.Add([]byte(s), "sql", "in.csv", 2)
		f.Add([]byte("mr,ref\n"+s), "e2e", "in", 2)
	}
	f.Fuzz(func(t *testing.T, text []byte, format, uri string, size int) {
		ft, err := FormatOf(format)
		if err != nil {
			t.Skip()
		}
		ctx := context.Background()
		whole, werr := rawsOf(OpenWith(ctx, ft, uri, seekableOpener(text)))
		s, err := Scan(ctx, ScanOptions{Format: ft, URI: uri, Open: seekableOpener(text), PartBytes: int64(size)})
		if (err == nil) != (werr == nil) {
			t.Fatalf("%q: scan: %v; read: %v", text, err, werr)
		}
		if err != nil {
			if !specstream.BadInput(err) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		var got []string
		for _, p := range s.Parts {
			raws, err := rawsOf(OpenPart(ctx, ft, p, seekableOpener(text), 0))
			if err != nil {
				t.Fatalf("%q: %+v: %v", text, p, err)
			}
			got = append(got, raws...)
		}
		if !slices.Equal(got, whole) {
			t.Fatalf("%q: parts give %q, the whole %q", text, got, whole)
		}
	})
}
