package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
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

// mixed has good, bad, skipped and over-long records of chat.
const mixed = `{"id":"a","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"hello"},{"from":"human","value":"more"},{"from":"gpt","value":"sure"}]}
{"id":"b","conversations":[]}
{"id":"c","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":7}]}
{"id":"d","conversations":[{"from":"human","value":"hi"},{"from":"human","value":"ho"},{"from":"gpt","value":"x"}]}
{"id":"e","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"this answer is much too long for the least of limits"}]}
{"id":"f","conversations":[{"from":"human","value":"hi"},{"from":"gpt","value":"ok"},{"from":"human","value":"and then?"},{"from":"gpt","value":"this answer is much too long for the least of limits"},{"from":"human","value":"?"}]}
`

// asIs leaves records as they are.
var asIs = &specstream.CleanSpec{}

func TestAccount(t *testing.T) {
	overhead := len(data.VicunaSystem) + len(" USER: hi ASSISTANT: ")
	for _, c := range []struct {
		name  string
		turns string
		want  Counts
		lost  []Quarantined // beside the bad records
	}{
		{"expand", specstream.TurnsExpand, Counts{
			Read: 6, Kept: 2, Quarantined: 2,
			Dropped: map[string]int64{data.BadEmptyRecord: 1, data.BadType: 1, data.SkipTurnOrder: 1, data.SkipTooLong: 1},
			Changed: map[string]int64{data.ChangedTrailingTurns: 1},
			Samples: 3, SamplesDropped: map[string]int64{data.SkipTooLong: 2},
			CompletionTokens: 7 + 6 + 4, // with the space before an answer, and the end token
		}, []Quarantined{
			{File: "in", Record: 5, Code: data.SkipTooLong, Action: ActionDropped},
			{File: "in", Record: 6, Code: data.SkipTooLong, Action: ActionDropped, Samples: 1},
			{File: "in", Record: 6, Code: data.ChangedTrailingTurns, Action: ActionChanged},
		}},
		{"inline", specstream.TurnsInline, Counts{
			Read: 6, Kept: 1, Quarantined: 2,
			Dropped: map[string]int64{data.BadEmptyRecord: 1, data.BadType: 1, data.SkipTurnOrder: 1, data.SkipTooLong: 2},
			Changed: map[string]int64{},
			Samples: 1, SamplesDropped: map[string]int64{data.SkipTooLong: 2},
			CompletionTokens: 7 + 6,
		}, []Quarantined{
			{File: "in", Record: 5, Code: data.SkipTooLong, Action: ActionDropped},
			{File: "in", Record: 6, Code: data.SkipTooLong, Action: ActionDropped},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var quarantine []Quarantined
			var told []Progress
			o := with(map[string]string{"in": mixed}, func(o *Options) {
				o.Quarantine = collect(&quarantine)
				o.Progress = func(p Progress) { told = append(told, p) }
				o.Show = 2
			})
			got, err := Run(t.Context(), specstream.DataSpec{Format: "sharegpt", Inputs: []string{"in"}, MaxBad: "2", Template: "vicuna", MaxLength: overhead + 36, Turns: c.turns, Clean: asIs}, o)
			require.NoError(t, err)
			require.Equal(t, got.Read, got.Kept+sumOf(got.Dropped))
			written := samples(t, o.Blobs, got.Dataset)
			for _, s := range written {
				c.want.Tokens += int64(len(s.Tokens))
			}
			require.Equal(t, c.want, got.Counts)
			require.Equal(t, written[:len(got.Shown)], got.Shown)
			require.Len(t, got.Shown, min(2, len(written)))
			require.Equal(t, []Quarantined{
				{File: "in", Record: 2, Field: "conversations", Code: data.BadEmptyRecord, Reason: "the conversation is empty", Action: ActionQuarantined},
				{File: "in", Record: 3, Field: "conversations[1].value", Code: data.BadType, Reason: "want a string, got a number", Action: ActionQuarantined},
			}, quarantine[:2])
			require.Equal(t, data.SkipTurnOrder, quarantine[2].Code)
			require.Equal(t, ActionDropped, quarantine[2].Action)
			require.Equal(t, c.lost, quarantine[3:])
			require.Equal(t, Progress{Stage: StagePlan, Bytes: int64(len(mixed)), Done: 1, Parts: 1}, still(lastOf(told, StagePlan)))
			last := still(told[len(told)-1])
			require.Equal(t, Progress{Stage: StageProcess, Bytes: last.Total, Total: last.Total, Done: 1, Parts: 1, Read: 6, Kept: got.Kept, Quarantined: 2,
				Samples: got.Samples, Tokens: got.Tokens}, last)
			l := got.Dataset.Lineage
			require.Equal(t, []shard.Source{{URI: "in", Bytes: int64(len(mixed)), SHA256: specstream.DigestBytes([]byte(mixed)), Records: 6}}, l.Sources)
			require.Len(t, l.Parts, 1)

			b, err := json.Marshal(got)
			require.NoError(t, err)
			for _, key := range []string{`"read":6`, `"kept":`, `"dropped":{`, `"changed":{`, `"tokens":`, `"shards":1`, `"manifest":"sha256:`} {
				require.Contains(t, string(b), key)
			}
		})
	}
}

func lastOf(told []Progress, stage string) (last Progress) {
	for _, p := range told {
		if p.Stage == stage {
			last = p
		}
	}
	return last
}

// still is a progress without what depends on time.
func still(p Progress) Progress {
	p.RecordsPerSecond, p.BytesPerSecond, p.ETASeconds = 0, 0, 0
	return p
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
		fails  bool
	}{{"", true}, {"0", true}, {"3", true}, {"4", false}, {"3.9%", true}, {"4%", false}, {"100%", false}} {
		for _, dedupe := range []string{specstream.DedupeNone, specstream.DedupeExact} {
			for _, size := range []int64{1, 300, 1 << 20} { // of parts
				t.Run(fmt.Sprintf("max_bad=%s,dedupe=%s,part=%d", c.maxBad, dedupe, size), func(t *testing.T) {
					var quarantine []Quarantined
					got, err := Run(t.Context(), specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, MaxBad: c.maxBad, PartitionBytes: size,
						Clean: &specstream.CleanSpec{Dedupe: dedupe}}, with(map[string]string{"in": lines}, func(o *Options) { o.Quarantine = collect(&quarantine); o.Workers = 5 }))
					require.Equal(t, Quarantined{File: "in", Record: 4, Field: "answer", Code: data.BadType, Reason: "want a string, got a number", Action: ActionQuarantined}, quarantine[0])
					if !c.fails {
						require.NoError(t, err)
						require.Equal(t, int64(100), got.Read)
						require.Equal(t, int64(96), got.Kept)
						require.Equal(t, int64(4), got.Quarantined)
						require.Equal(t, map[string]int64{data.BadType: 4}, got.Dropped)
						require.Len(t, quarantine, 4)
						return
					}
					var in *specstream.InputError
					require.ErrorAs(t, err, &in)
					require.Equal(t, "in", in.File)
					require.Equal(t, int64(4), in.Record)
					require.Equal(t, "answer", in.Field)
					require.Contains(t, in.Hint, "max_bad")
				})
			}
		}
	}
}

// TestDamageIsAlwaysFatal: no tolerance covers a damaged container, and what is
// reported does not depend on timing.
func TestDamageIsAlwaysFatal(t *testing.T) {
	good := sqlLines(0, 500)
	for _, c := range []struct {
		name, text string
		record     int64
	}{
		{"cut line", good + `{"question":"q","con`, 501},
		{"syntax inside a record", sqlLine(1) + `{"question":"q",,}` + "\n" + good, 2},
		{"text between records", sqlLine(1) + "oops\n" + good, 2},
		{"bad record, then cut", sqlLine(1) + `{"question":1}` + "\n" + good + `{"q`, 503},
		{"twice", sqlLine(1) + good + `{"question":"q",,}` + "\n" + good + `{"question":"q",,}` + "\n", 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			for range 20 {
				_, err := Run(t.Context(), specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, MaxBad: "100%", PartitionBytes: 10_000},
					with(map[string]string{"in": c.text}, func(o *Options) { o.Workers = 4 }))
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
			o := with(files, func(o *Options) { o.Workers = c.workers })
			got, err := Run(t.Context(), specstream.DataSpec{Format: "sql", Inputs: []string{"b", "a", "c"}, Limit: c.limit, PartitionBytes: 20_000}, o)
			require.NoError(t, err)
			n := len(want)
			if c.limit > 0 {
				n = min(n, c.limit)
			}
			var refs []string
			for _, s := range samples(t, o.Blobs, got.Dataset) {
				refs = append(refs, s.Reference)
			}
			require.Equal(t, want[:n], refs)
			require.Equal(t, int64(n), got.Read)
			l := got.Dataset.Lineage
			require.Len(t, l.Sources, c.files)
			for _, s := range l.Sources { // whole files, also the one the limit cut
				require.Equal(t, specstream.DigestBytes([]byte(files[s.URI])), s.SHA256)
			}
			shards := 0
			for _, p := range l.Parts {
				require.Equal(t, shards, p.Shards[0])
				shards = p.Shards[1]
			}
			require.Equal(t, got.Shards, shards)
		})
	}
}

func TestBadSpecs(t *testing.T) {
	good := map[string]string{"in": sqlLine(1)}
	other := specstream.DigestBytes([]byte("other"))
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
		{"template", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, Template: "nonsense"}, nil, "template"},
		{"nothing kept", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, MaxLength: 5}, good, "too_long:1"},
		{"no records", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}}, map[string]string{"in": "[]"}, "none of the 0 records"},
		{"empty file", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}}, map[string]string{"in": ""}, "the file is empty"},
		{"pin of another input", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, SHA256: map[string]specstream.Digest{"im": other}}, good, "im is not among the inputs"},
		{"wrong pin", specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, SHA256: map[string]specstream.Digest{"in": other}}, good, "in: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Run(t.Context(), c.spec, with(c.files, nil))
			require.ErrorContains(t, err, c.want)
			require.True(t, specstream.BadInput(err), "%v", err)
		})
	}
}

// endless gives records until its context ends.
type endless struct {
	ctx    context.Context
	i      int
	onRead func()
}

func (e *endless) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, err
	}
	e.onRead()
	e.i++
	return copy(p, sqlLine(e.i)), nil
}
func (e *endless) Close() error { return nil }

func TestCancel(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(o *Options, step func())
	}{
		{"before", func(_ *Options, step func()) {
			for range 10 {
				step()
			}
		}},
		{"while it scans", func(o *Options, step func()) {
			o.Open = func(ctx context.Context, _ string) (io.ReadCloser, error) {
				return &endless{ctx: ctx, onRead: step}, nil
			}
		}},
		{"while it processes", func(o *Options, step func()) {
			o.Shards = &memBlobs{onPut: func() error { step(); return nil }}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			o := with(map[string]string{"in": sqlLines(0, 3000)}, func(o *Options) { o.Workers = 3 })
			var n atomic.Int64
			c.edit(&o, func() {
				if n.Add(1) == 10 {
					cancel(specstream.ErrDrained)
				}
			})
			done := make(chan error, 1)
			go func() {
				_, err := Run(ctx, specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, PartitionBytes: 10_000}, o)
				done <- err
			}()
			select {
			case err := <-done:
				require.ErrorIs(t, err, specstream.ErrDrained, "the cause is told")
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
	for _, c := range []struct {
		name string
		edit func(*Options)
	}{
		{"open", func(o *Options) {
			o.Open = func(context.Context, string) (io.ReadCloser, error) { return nil, errLost }
		}},
		{"read", func(o *Options) {
			o.Open = func(context.Context, string) (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(strings.NewReader(sqlLine(1)+`{"ques`), errReader{errLost})), nil
			}
		}},
		{"write", func(o *Options) { o.Shards = &memBlobs{onPut: func() error { return errLost }} }},
		{"plan", func(o *Options) { o.Blobs = &memBlobs{onPut: func() error { return errLost }} }},
		{"quarantine", func(o *Options) { o.Quarantine = func(Quarantined) error { return errLost } }},
		{"recall", func(o *Options) { o.Memo = lostMemo{get: true} }},
		{"remember", func(o *Options) { o.Memo = lostMemo{} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Run(t.Context(), specstream.DataSpec{Format: "sql", Inputs: []string{"in"}, MaxBad: "5"},
				with(map[string]string{"in": sqlLine(1) + `{"question":1}`}, c.edit))
			require.ErrorIs(t, err, errLost)
			require.False(t, specstream.BadInput(err), "%v", err)
		})
	}
}

type lostMemo struct{ get bool }

func (m lostMemo) Get(context.Context, string) ([]byte, bool, error) {
	if m.get {
		return nil, false, errLost
	}
	return nil, false, nil
}
func (lostMemo) Put(context.Context, string, []byte) error { return errLost }

// TestShards ingests generated data of every format into real shards; the data
// set's digest does not depend on the number of workers.
func TestShards(t *testing.T) {
	for _, format := range []string{"sharegpt", "dialogsum", "sql", "e2e"} {
		t.Run(format, func(t *testing.T) {
			dir := t.TempDir()
			in := filepath.Join(dir, "in")
			f, err := os.Create(in)
			require.NoError(t, err)
			require.NoError(t, synth.Write(f, format, 1, 300, synth.Train))
			require.NoError(t, f.Close())
			var digests []specstream.Digest
			for _, workers := range []int{1, 5} {
				got, err := Run(t.Context(), specstream.DataSpec{Format: format, Inputs: []string{in}, MaxLength: 8192, ShardTokens: 100_000, PartitionBytes: 30_000, Clean: asIs}, Options{
					Tokenizer: byteTokenizer{}, Blobs: shard.DirBlobs{Dir: filepath.Join(dir, fmt.Sprint("out", workers))}, Workers: workers,
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
	if testing.Short() {
		t.Skip("reads 3,000 conversations as bytes")
	}
	in := testdata.Shared(t, "sharegpt/mix_train.json.gz")
	o := with(nil, func(o *Options) { o.Open = nil })
	got, err := Run(t.Context(), specstream.DataSpec{Format: "sharegpt", Inputs: []string{in}, MaxBad: "0.1%", MaxLength: 20_000, Clean: asIs}, o)
	require.NoError(t, err)
	require.Equal(t, int64(3031), got.Read)
	require.Equal(t, int64(3), got.Quarantined)
	require.Equal(t, got.Read, got.Kept+sumOf(got.Dropped))
	written := samples(t, o.Blobs, got.Dataset)
	require.Equal(t, got.Samples, int64(len(written)))
	for _, s := range written {
		sp := s.Spans[0]
		require.Len(t, s.Spans, 1)
		require.Equal(t, " "+s.Reference, byteTokenizer{}.Decode(s.Tokens[sp.Start:sp.End]))
		require.Equal(t, int32(257), s.Tokens[sp.End-1])
	}
}

func BenchmarkRun(b *testing.B) {
	in := testdata.Shared(b, "sql/wikisql_train_4k.json")
	st, err := os.Stat(in)
	require.NoError(b, err)
	b.SetBytes(st.Size())
	for b.Loop() {
		_, err := Run(b.Context(), specstream.DataSpec{Format: "sql", Inputs: []string{in}}, Options{Tokenizer: byteTokenizer{}, Blobs: &memBlobs{}, Shards: Discard{}})
		require.NoError(b, err)
	}
}
