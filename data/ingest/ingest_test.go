package ingest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/data/synth"
	"github.com/specstream/specstream/internal/testdata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// byteTokenizer has a token for each byte, and one that begins and one that
// ends a sequence.
type byteTokenizer struct{}

func (byteTokenizer) Encode(dst []int32, text string) []int32 {
	for i := range len(text) {
		dst = append(dst, int32(text[i]))
	}
	return dst
}

func (byteTokenizer) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		if id < 256 {
			b = append(b, byte(id))
		}
	}
	return string(b)
}
func (byteTokenizer) BOS() (int32, bool)        { return 256, true }
func (byteTokenizer) EOS() (int32, bool)        { return 257, true }
func (byteTokenizer) VocabSize() int            { return 258 }
func (byteTokenizer) Digest() specstream.Digest { return specstream.DigestBytes([]byte("bytes")) }

// collector keeps the samples.
type collector struct {
	samples []data.Sample
	lineage shard.Lineage
	fail    error // of every Write
	onWrite func()
}

func (c *collector) Write(ctx context.Context, s data.Sample) error {
	if c.onWrite != nil {
		c.onWrite()
	}
	c.samples = append(c.samples, s)
	return errors.Join(c.fail, ctx.Err())
}

func (c *collector) Commit(_ context.Context, l shard.Lineage) (shard.Manifest, error) {
	c.lineage = l
	return shard.Manifest{Schema: shard.ManifestVersion, Lineage: l, Shards: make([]shard.Shard, 1)}, nil
}

func memory(files map[string]string) data.Opener {
	return func(ctx context.Context, uri string) (io.ReadCloser, error) {
		text, ok := files[uri]
		if !ok {
			return nil, fmt.Errorf("get %s: %w", uri, os.ErrNotExist)
		}
		return io.NopCloser(strings.NewReader(text)), ctx.Err()
	}
}

func sqlLine(i int) string {
	return fmt.Sprintf(`{"question":"How many %d?","context":"CREATE TABLE t (a INTEGER)","answer":"SELECT COUNT(*) FROM t WHERE a = %d"}`, i, i) + "\n"
}

func sumOf(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// mixed has good, bad, skipped and over-long records of chat.
const mixed = `{"id":"a","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"hello"},{"from":"human","value":"more"},{"from":"gpt","value":"sure"}]}
{"id":"b","conversations":[]}
{"id":"c","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":7}]}
{"id":"d","conversations":[{"from":"human","value":"hi"},{"from":"human","value":"ho"},{"from":"gpt","value":"x"}]}
{"id":"e","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"this answer is much too long for the least of limits"}]}
{"id":"f","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"ok"},{"from":"human","value":"and then?"},{"from":"gpt","value":"this answer is much too long for the least of limits"},{"from":"human","value":"?"}]}
`

func TestAccount(t *testing.T) {
	overhead := len(data.VicunaSystem) + len(" USER: hi ASSISTANT: ")
	for _, c := range []struct {
		name  string
		turns string
		want  Account
	}{
		{"expand", specstream.TurnsExpand, Account{
			Read: 6, Kept: 2, Quarantined: 2,
			Dropped: map[string]int64{data.BadEmptyRecord: 1, data.BadType: 1, data.SkipTurnOrder: 1, data.SkipTooLong: 1},
			Changed: map[string]int64{data.ChangedTrailingTurns: 1},
			Samples: 3, SamplesDropped: map[string]int64{data.SkipTooLong: 2},
			CompletionTokens: 6 + 5 + 3, Shards: 1,
		}},
		{"inline", specstream.TurnsInline, Account{
			Read: 6, Kept: 1, Quarantined: 2,
			Dropped: map[string]int64{data.BadEmptyRecord: 1, data.BadType: 1, data.SkipTurnOrder: 1, data.SkipTooLong: 2},
			Changed: map[string]int64{},
			Samples: 1, SamplesDropped: map[string]int64{data.SkipTooLong: 2},
			CompletionTokens: 6 + 5, Shards: 1,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var quarantine bytes.Buffer
			var told []Progress
			w := &collector{}
			got, err := Run(context.Background(), Options{
				Spec:      specstream.DataSpec{Format: "sharegpt", Inputs: []string{"in"}, MaxBad: "2", MaxLength: overhead + 36, Turns: c.turns},
				Tokenizer: byteTokenizer{}, Opener: memory(map[string]string{"in": mixed}), Writer: w, Quarantine: &quarantine,
				Progress: func(p Progress) { told = append(told, p) },
			})
			require.NoError(t, err)
			require.Equal(t, got.Read, got.Kept+sumOf(got.Dropped))
			for _, s := range w.samples {
				c.want.Tokens += int64(len(s.Tokens))
			}
			require.NoError(t, got.Manifest.Validate())
			c.want.Manifest, c.want.Dataset = got.Manifest, got.Dataset
			require.Equal(t, c.want, got)
			require.Equal(t, []string{
				`{"file":"in","record":2,"field":"conversations","code":"empty_conversation","reason":"the conversation is empty"}`,
				`{"file":"in","record":3,"field":"conversations[1].value","code":"wrong_type","reason":"want a string, got a number"}`,
			}, strings.Split(strings.TrimSpace(quarantine.String()), "\n"))
			require.Equal(t, Progress{File: "in", Bytes: int64(len(mixed)), Read: 6, Kept: got.Kept, Quarantined: 2, Samples: got.Samples, Tokens: got.Tokens}, told[len(told)-1])
			require.Equal(t, []shard.Source{{URI: "in", Bytes: int64(len(mixed)), SHA256: specstream.DigestBytes([]byte(mixed)), Records: 6}}, w.lineage.Sources)
			require.Equal(t, "vicuna/1", w.lineage.Template)

			b, err := json.Marshal(got)
			require.NoError(t, err)
			for _, key := range []string{`"read":6`, `"kept":`, `"dropped":{`, `"changed":{`, `"tokens":`, `"shards":1`, `"manifest":"sha256:`} {
				require.Contains(t, string(b), key)
			}
		})
	}
}

func TestTolerance(t *testing.T) {
	lines := ""
	for i := range 100 {
		if i%25 == 3 { // four of a hundred, the first is record 4
			lines += `{"question":"q","context":"CREATE TABLE t (a INTEGER)","answer":5}` + "\n"
			continue
		}
		lines += sqlLine(i)
	}
	for _, c := range []struct {
		maxBad string
		read   int64 // when it fails
		fails  bool
	}{{"", 4, true}, {"0", 4, true}, {"3", 79, true}, {"4", 0, false}, {"3.9%", 100, true}, {"4%", 0, false}, {"100%", 0, false}} {
		t.Run("max_bad="+c.maxBad, func(t *testing.T) {
			got, err := Run(context.Background(), Options{
				Spec:      specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, MaxBad: c.maxBad},
				Tokenizer: byteTokenizer{}, Opener: memory(map[string]string{"in": lines}), Writer: &collector{},
			})
			if !c.fails {
				require.NoError(t, err)
				require.Equal(t, Account{Read: 100, Kept: 96, Quarantined: 4, Dropped: map[string]int64{data.BadType: 4}},
					Account{Read: got.Read, Kept: got.Kept, Quarantined: got.Quarantined, Dropped: got.Dropped})
				return
			}
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, "in", in.File)
			require.Equal(t, int64(4), in.Record)
			require.Equal(t, "answer", in.Field)
			require.Contains(t, in.Hint, "max_bad")
			require.Equal(t, c.read, got.Read)
		})
	}
}

// TestDamageIsAlwaysFatal: no tolerance covers a damaged container, and what is
// reported does not depend on timing.
func TestDamageIsAlwaysFatal(t *testing.T) {
	good := ""
	for i := range 500 {
		good += sqlLine(i)
	}
	for _, c := range []struct {
		name, text string
		record     int64
	}{
		{"cut line", good + `{"question":"q","con`, 501},
		{"syntax inside a record", sqlLine(1) + `{"question":"q",,}` + "\n" + good, 2},
		{"text between records", sqlLine(1) + "oops\n" + good, 2},
		{"bad record, then cut", sqlLine(1) + `{"question":1}` + "\n" + good + `{"q`, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 {
				_, err := Run(context.Background(), Options{
					Spec:      specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, MaxBad: "100%"},
					Tokenizer: byteTokenizer{}, Opener: memory(map[string]string{"in": c.text}), Writer: &collector{}, Workers: 4,
				})
				var in *specstream.InputError
				require.ErrorAs(t, err, &in)
				require.Equal(t, "in", in.File)
				require.Equal(t, c.record, in.Record, err.Error())
				require.Contains(t, err.Error(), "damaged JSON")
			}
		})
	}
}

// TestOrder: samples come in the order of the inputs whatever the number of
// workers, and a limit keeps the first records.
func TestOrder(t *testing.T) {
	files := map[string]string{"a": "", "b": "", "c": ""}
	var want []string
	for i, f := range []string{"b", "a", "c"} {
		for k := range 700 {
			files[f] += sqlLine(1000*i + k)
			want = append(want, fmt.Sprintf("SELECT COUNT(*) FROM t WHERE a = %d", 1000*i+k))
		}
	}
	for _, c := range []struct{ workers, limit, files int }{{1, 0, 3}, {7, 0, 3}, {3, 1, 1}, {3, 700, 1}, {3, 701, 2}, {2, 5000, 3}} {
		t.Run(fmt.Sprintf("workers=%d,limit=%d", c.workers, c.limit), func(t *testing.T) {
			w := &collector{}
			got, err := Run(context.Background(), Options{
				Spec:      specstream.DataSpec{Format: "sql", Inputs: []string{"b", "a", "c"}, Limit: c.limit},
				Tokenizer: byteTokenizer{}, Opener: memory(files), Writer: w, Workers: c.workers,
			})
			require.NoError(t, err)
			n := len(want)
			if c.limit > 0 {
				n = min(n, c.limit)
			}
			var refs []string
			for _, s := range w.samples {
				refs = append(refs, s.Reference)
			}
			require.Equal(t, want[:n], refs)
			require.Equal(t, int64(n), got.Read)
			require.Len(t, w.lineage.Sources, c.files)
			for _, s := range w.lineage.Sources { // whole files, also the one the limit cut
				require.Equal(t, specstream.DigestBytes([]byte(files[s.URI])), s.SHA256)
			}
		})
	}
}

func TestBadSpecs(t *testing.T) {
	for _, c := range []struct {
		name  string
		spec  specstream.DataSpec
		files map[string]string
		want  string
	}{
		{"format", specstream.DataSpec{Format: "xml", Inputs: []string{"in"}}, nil, "format"},
		{"no inputs", specstream.DataSpec{Format: "sql"}, nil, "inputs"},
		{"absent input", specstream.DataSpec{Format: "sql", Inputs: []string{"nowhere"}}, nil, "nowhere: there is no such input"},
		{"named twice", specstream.DataSpec{Format: "sql", Inputs: []string{"in", "in"}}, nil, "named twice"},
		{"pattern", specstream.DataSpec{Format: "sql", Inputs: []string{"no-such-*.json"}}, nil, "matches no file"},
		{"template", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, Template: "chatml"}, nil, "template"},
		{"nothing kept", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, MaxLength: 5}, map[string]string{"in": sqlLine(1)}, "too_long:1"},
		{"no records", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}}, map[string]string{"in": "[]"}, "none of the 0 records"},
		{"empty file", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}}, map[string]string{"in": ""}, "in: record 1: damaged JSON: the file is empty"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Run(context.Background(), Options{Spec: c.spec, Tokenizer: byteTokenizer{}, Opener: memory(c.files), Writer: &collector{}})
			require.ErrorContains(t, err, c.want)
			require.True(t, specstream.BadInput(err), "%v", err)
		})
	}
}

// endless gives records until it is closed or its context ends.
type endless struct {
	ctx context.Context
	i   int
}

func (e *endless) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	e.i++
	return copy(p, sqlLine(e.i)), nil
}
func (e *endless) Close() error { return nil }

func TestCancel(t *testing.T) {
	for _, after := range []int{0, 1, 1000} {
		t.Run(fmt.Sprintf("after %d samples", after), func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			n := 0
			w := &collector{onWrite: func() {
				if n++; n == after {
					cancel()
				}
			}}
			if after == 0 {
				cancel()
			}
			done := make(chan error, 1)
			go func() {
				_, err := Run(ctx, Options{
					Spec:      specstream.DataSpec{Format: "sql", Inputs: []string{"endless"}},
					Tokenizer: byteTokenizer{}, Writer: w, Workers: 3,
					Opener: func(ctx context.Context, _ string) (io.ReadCloser, error) { return &endless{ctx: ctx}, nil },
				})
				done <- err
			}()
			select {
			case err := <-done:
				require.ErrorIs(t, err, context.Canceled)
				require.False(t, specstream.BadInput(err))
			case <-time.After(10 * time.Second):
				t.Fatal("ingest does not stop when its context ends")
			}
			goleak.VerifyNone(t) // no goroutine outlives Run
		})
	}
}

// TestStoreErrors: failures of stores are not the input's fault, so that they
// are retried.
func TestStoreErrors(t *testing.T) {
	lost := errors.New("connection reset")
	cut := func(ctx context.Context, _ string) (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(sqlLine(1)+`{"ques`), errReader{lost})), nil
	}
	for _, c := range []struct {
		name string
		o    Options
	}{
		{"open", Options{Opener: func(context.Context, string) (io.ReadCloser, error) { return nil, lost }, Writer: &collector{}}},
		{"read", Options{Opener: cut, Writer: &collector{}}},
		{"write", Options{Opener: memory(map[string]string{"in": sqlLine(1)}), Writer: &collector{fail: lost}}},
		{"quarantine", Options{Opener: memory(map[string]string{"in": `{"question":1}`}), Writer: &collector{}, Quarantine: errWriter{lost}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.Spec = specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, MaxBad: "5"}
			c.o.Tokenizer = byteTokenizer{}
			_, err := Run(context.Background(), c.o)
			require.ErrorIs(t, err, lost)
			require.False(t, specstream.BadInput(err), "%v", err)
		})
	}
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

type errWriter struct{ err error }

func (w errWriter) Write([]byte) (int, error) { return 0, w.err }

// TestShards ingests generated data of every format into real shards; the data
// set's digest does not depend on the number of workers.
func TestShards(t *testing.T) {
	for _, format := range specstream.Formats {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			in := filepath.Join(dir, "in")
			f, err := os.Create(in)
			require.NoError(t, err)
			require.NoError(t, synth.Write(f, format, 1, 300, synth.Train))
			require.NoError(t, f.Close())
			var digests []specstream.Digest
			for _, workers := range []int{1, 5} {
				w, err := shard.NewWriter(shard.Options{Blobs: shard.DirBlobs{Dir: filepath.Join(dir, fmt.Sprint("out", workers))}, ShardTokens: 100_000})
				require.NoError(t, err)
				got, err := Run(context.Background(), Options{
					Spec:      specstream.DataSpec{Format: format, Inputs: []string{in}, MaxLength: 8192},
					Tokenizer: byteTokenizer{}, Writer: w, Workers: workers,
				})
				require.NoError(t, err)
				require.Equal(t, int64(300), got.Kept)
				require.Equal(t, got.Tokens, got.Dataset.Counts.Tokens)
				require.Equal(t, got.CompletionTokens, got.Dataset.Counts.CompletionTokens)
				require.Equal(t, got.Samples, got.Dataset.Counts.Samples)
				require.Equal(t, len(got.Dataset.Shards), got.Shards)
				digests = append(digests, got.Manifest)
			}
			require.Equal(t, digests[0], digests[1])
		})
	}
}

// TestRealData ingests real chat with its known share of bad records.
func TestRealData(t *testing.T) {
	in := testdata.Shared(t, "sharegpt/mix_train.json.gz")
	w := &collector{}
	got, err := Run(context.Background(), Options{
		Spec:      specstream.DataSpec{Format: "sharegpt", Inputs: []string{in}, MaxBad: "0.1%", MaxLength: 20_000},
		Tokenizer: byteTokenizer{}, Writer: w,
	})
	require.NoError(t, err)
	require.Equal(t, int64(3031), got.Read)
	require.Equal(t, int64(3), got.Quarantined)
	require.Equal(t, got.Read, got.Kept+sumOf(got.Dropped))
	require.Equal(t, got.Samples, int64(len(w.samples)))
	for _, s := range w.samples {
		sp := s.Spans[0]
		require.Len(t, s.Spans, 1)
		require.Equal(t, s.Reference, byteTokenizer{}.Decode(s.Tokens[sp.Start:sp.End]))
		require.Equal(t, int32(257), s.Tokens[sp.End-1])
	}
}

func BenchmarkRun(b *testing.B) {
	in := testdata.Shared(b, "sql/wikisql_train_4k.json")
	st, err := os.Stat(in)
	require.NoError(b, err)
	b.SetBytes(st.Size())
	for b.Loop() {
		_, err := Run(context.Background(), Options{Spec: specstream.DataSpec{Format: "sql", Inputs: []string{in}}, Tokenizer: byteTokenizer{}, Writer: &collector{}})
		require.NoError(b, err)
	}
}
