package data

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	sqlOne  = `{"question":"How many?","context":"CREATE TABLE t (a INTEGER)","answer":"SELECT COUNT(*) FROM t"}`
	dlgOne  = `{"fname":"d0","dialogue":"#Person1#: Hi.\n#Person2#: Hello.","summary":"They greet.","topic":"greeting"}`
	chatOne = `{"id":"c0","conversations":[{"from":"human","value":"Hi"},{"from":"gpt","value":"Hello"}]}`
	e2eOne  = "mr,ref\r\n\"name[A], eatType[pub]\",\"A is\r\na pub.\"\r\n"
)

func gzipped(t testing.TB, text string) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	require.NoError(t, err)
	_, err = io.WriteString(w, text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

func zstdOf(t testing.TB, text string) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, w.Close()) }()
	return w.EncodeAll([]byte(text), nil)
}

// TestEncodings: compression and byte-order marks are recognised by content,
// whatever the name says.
func TestEncodings(t *testing.T) {
	const bom = "\ufeff"
	array := "[" + sqlOne + "," + sqlOne + "]"
	for _, c := range []struct {
		name, format string
		stored       []byte
		records      int
	}{
		{"plain", "sql", []byte(array), 2},
		{"BOM", "sql", []byte(bom + array), 2},
		{"gzip", "sql", gzipped(t, array), 2},
		{"gzip, BOM inside", "sql", gzipped(t, bom+array), 2},
		{"two gzip members", "sql", append(gzipped(t, sqlOne+"\n"), gzipped(t, sqlOne+"\n")...), 2},
		{"zstd", "sql", zstdOf(t, array), 2},
		{"two zstd frames", "sql", append(zstdOf(t, sqlOne+"\n"), zstdOf(t, sqlOne+"\n")...), 2},
		{"CSV with BOM", "e2e", []byte(bom + e2eOne), 1},
		{"gzipped CSV", "e2e", gzipped(t, e2eOne), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := OpenWith(context.Background(), formatNamed(t, c.format), "in", memory(map[string][]byte{"in": c.stored}))
			require.NoError(t, err)
			got, err := readAll(r)
			require.NoError(t, err)
			require.Equal(t, c.records, got.records)
			require.Empty(t, got.bad)
			require.NoError(t, r.Close())
		})
	}
}

// TestTruncation cuts a small input of each kind at every byte. Cut JSON and
// cut compressed files are always reported, as bad input. A CSV or JSON Lines
// file that is cut between two records can't be told from a whole one; at any
// other place it is reported.
func TestTruncation(t *testing.T) {
	array := "[" + sqlOne + ",\n " + sqlOne + "]"
	lines := sqlOne + "\n" + sqlOne
	chats := "[" + chatOne + "," + chatOne + "]"
	csv := "mr,ref\r\n\"name[A], eatType[pub]\",\"A is a pub.\"\r\n\"name[B]\",\"B.\""
	for _, c := range []struct {
		name, format string
		stored       []byte
		whole        func(n int) bool // lengths that may pass
	}{
		{"SQL array", "sql", []byte(array), nil},
		{"chat array", "sharegpt", []byte(chats), nil},
		{"dialogue array", "dialogsum", []byte("[" + dlgOne + "]"), nil},
		{"pretty object", "sharegpt", []byte(strings.ReplaceAll(chatOne, ",", ",\n")), nil},
		{"lines", "sql", []byte(lines), func(n int) bool { return n == len(sqlOne) || n == len(sqlOne)+1 }},
		{"gzip", "sql", gzipped(t, array), nil},
		{"zstd", "sql", zstdOf(t, array), nil},
		{"CSV", "e2e", []byte(csv), func(n int) bool {
			return n >= 6 && n <= 8 || n >= 45 && n <= 47 // behind the header, behind row 1
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for n := range len(c.stored) {
				r, err := OpenWith(context.Background(), formatNamed(t, c.format), "in", memory(map[string][]byte{"in": c.stored[:n]}))
				var got tally
				if err == nil {
					got, err = readAll(r)
					require.NoError(t, r.Close())
				}
				if c.whole != nil && c.whole(n) {
					require.NoError(t, err, "%q", c.stored[:n])
					continue
				}
				if err == nil && len(got.bad) > 0 {
					continue // reported as a bad record
				}
				var in *specstream.InputError
				require.ErrorAs(t, err, &in, "cut at %d passes: %q", n, c.stored[:n])
				require.Equal(t, "in", in.File)
				require.NotEmpty(t, in.Reason)
			}
		})
	}
}

// TestBitRot: a flipped byte of a compressed file is reported.
func TestBitRot(t *testing.T) {
	whole := gzipped(t, "["+sqlOne+"]")
	reported := 0
	for i := range whole {
		rotten := bytes.Clone(whole)
		rotten[i] ^= 0x10
		r, err := OpenWith(context.Background(), formatNamed(t, "sql"), "in", memory(map[string][]byte{"in": rotten}))
		if err == nil {
			_, err = readAll(r)
			require.NoError(t, r.Close())
		}
		if err != nil {
			require.True(t, specstream.BadInput(err), "%v", err)
			reported++
		}
	}
	// The gzip header's time and system bytes carry nothing, nor does the padding.
	require.GreaterOrEqual(t, reported, len(whole)-8)
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	for _, c := range []struct{ name, format, path, want string }{
		{"absent", "sql", filepath.Join(dir, "absent.json"), "absent.json: there is no such input"},
		{"folder", "sql", dir, "is a folder"},
		{"no store", "sql", "s3://bucket/key.json", "no store for s3:// inputs"},
		{"UTF-16", "sql", write("b.json", "\xff\xfe[\x00"), "UTF-16"},
		{"empty CSV", "e2e", write("c.csv", ""), "the file is empty"},
		{"column missing", "e2e", write("d.csv", "MR\nname[A]\n"), `field "ref": the column is missing`},
		{"column twice", "e2e", write("e.csv", "mr,ref,mr\n"), "names the column twice"},
		{"not gzip inside", "sql", write("f.gz", "\x1f\x8bxyz"), "compressed file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Open(context.Background(), formatNamed(t, c.format), c.path)
			require.Nil(t, r)
			require.ErrorContains(t, err, c.want)
			require.True(t, specstream.BadInput(err))
		})
	}
}

func TestReaderAfterTheEnd(t *testing.T) {
	r, err := openText(t, "sql", "["+sqlOne+"] x")
	require.NoError(t, err)
	_, err = r.Next()
	require.NoError(t, err)
	_, first := r.Next()
	require.Error(t, first)
	_, again := r.Next()
	require.Equal(t, first, again, "an error that ends reading stays")
}

func TestCancelledRead(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	text := "[" + strings.Repeat(sqlOne+",", 20000) + sqlOne + "]"
	r, err := OpenWith(ctx, formatNamed(t, "sql"), "in", memory(map[string][]byte{"in": []byte(text)}))
	require.NoError(t, err)
	_, err = r.Next()
	require.NoError(t, err)
	cancel()
	_, err = readAll(r)
	require.ErrorIs(t, err, context.Canceled)
	require.False(t, specstream.BadInput(err))
	require.NoError(t, r.Close())
}

func TestStoreErrorsAreNotBadInput(t *testing.T) {
	lost := errors.New("connection reset")
	for name, text := range map[string]string{
		"json": "[" + sqlOne + ",", "gzip": string(gzipped(t, "["+sqlOne+"]")[:40]), "zstd": string(zstdOf(t, "["+sqlOne+"]")[:40]), "at once": "",
	} {
		t.Run(name, func(t *testing.T) {
			r, err := OpenWith(context.Background(), formatNamed(t, "sql"), "in", func(context.Context, string) (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(strings.NewReader(text), failing{lost})), nil
			})
			if err == nil {
				_, err = readAll(r)
				require.NoError(t, r.Close())
			}
			require.ErrorIs(t, err, lost)
			require.False(t, specstream.BadInput(err), "%v", err)
		})
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestExpand(t *testing.T) {
	dir := t.TempDir()
	for _, f := range []string{"b.json", "a.json", "c.csv", "x[1].json"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
	}
	at := func(names ...string) (out []string) {
		for _, n := range names {
			if !strings.Contains(n, "://") {
				n = filepath.Join(dir, n)
			}
			out = append(out, n)
		}
		return out
	}
	for _, c := range []struct {
		in, want []string
		err      string
	}{
		{at("c.csv", "[ab].json"), at("c.csv", "a.json", "b.json"), ""},
		{at("x[1].json"), at("x[1].json"), ""},
		{at("https://host/a.json?b=*", "s3://bucket/a.json", "absent"), at("https://host/a.json?b=*", "s3://bucket/a.json", "absent"), ""},
		{at("s3://bucket/a?.json"), nil, "no store for s3://"},
		{at("*.parquet"), nil, "matches no file"},
		{at("a.json", "[ab].json"), nil, "named twice"},
		{at("[a"), nil, "bad pattern"},
	} {
		t.Run(fmt.Sprint(c.in), func(t *testing.T) {
			got, err := Expand(t.Context(), c.in, nil)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				require.True(t, specstream.BadInput(err))
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestExpandRemote: patterns of stores are listed, sorted, and must match.
func TestExpandRemote(t *testing.T) {
	lost := errors.New("connection reset")
	list := func(_ context.Context, pattern string) ([]string, error) {
		switch pattern {
		case "s3://b/*.json":
			return []string{"s3://b/c.json", "s3://b/a.json"}, nil
		case "s3://b/[":
			return nil, lost
		}
		return nil, nil
	}
	got, err := Expand(t.Context(), []string{"s3://b/*.json"}, list)
	require.NoError(t, err)
	require.Equal(t, []string{"s3://b/a.json", "s3://b/c.json"}, got)
	_, err = Expand(t.Context(), []string{"s3://b/z?"}, list)
	require.ErrorContains(t, err, "matches no file")
	_, err = Expand(t.Context(), []string{"s3://b/["}, list)
	require.ErrorIs(t, err, lost)
	require.False(t, specstream.BadInput(err))
	_, err = Expand(t.Context(), []string{"s3://b/a.json", "s3://b/*.json"}, list)
	require.ErrorContains(t, err, "named twice")
}

func TestCSVRowBound(t *testing.T) {
	endless := io.MultiReader(strings.NewReader("mr,ref\nname[A],\""), &repeated{text: strings.Repeat("x", 4096)})
	r, err := OpenWith(context.Background(), formatNamed(t, "e2e"), "in", func(context.Context, string) (io.ReadCloser, error) { return io.NopCloser(endless), nil })
	require.NoError(t, err)
	_, err = r.Next()
	require.ErrorContains(t, err, "a closing quote or bracket may be missing")
	require.True(t, specstream.BadInput(err))
	require.NoError(t, r.Close())
}
