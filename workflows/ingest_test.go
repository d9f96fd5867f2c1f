package workflows_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/ingest"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/infra/devserver"
	"github.com/specstream/specstream/infra/devserver/devservertest"
	"github.com/specstream/specstream/workflows"
)

func ingestInput() workflows.IngestInput {
	return workflows.IngestInput{Spec: specstream.DataSpec{Format: "sql", Inputs: []string{"a"}}, Base: ref("base")}
}

func TestIngestSpreadsParts(t *testing.T) {
	plan := ref("plan").Digest
	for _, c := range []struct {
		name        string
		plan        workflows.DatasetPlan
		unprocessed [][2]int
		want        []string // the parts worked on, in any order
		calls       map[string]int
	}{
		{"all", workflows.DatasetPlan{Plan: plan, Parts: 3, Pending: [][2]int{{0, 3}}}, nil,
			[]string{"process 0", "process 1", "process 2"}, map[string]int{"ingest": 1, "process": 3, "commit": 1}},
		{"what is left", workflows.DatasetPlan{Plan: plan, Parts: 9, Pending: [][2]int{{1, 2}, {6, 8}}}, nil,
			[]string{"process 1", "process 6", "process 7"}, map[string]int{"ingest": 1, "process": 3, "commit": 1}},
		{"nothing is left", workflows.DatasetPlan{Plan: plan, Parts: 9}, nil, nil, map[string]int{"ingest": 1, "commit": 1}},
		{"duplicates", workflows.DatasetPlan{Plan: plan, Parts: 3, Dedupes: true, Pending: [][2]int{{2, 3}}}, [][2]int{{0, 1}, {2, 3}},
			[]string{"sign 2", "process 0", "process 2"}, map[string]int{"ingest": 1, "sign": 1, "resolve duplicates": 1, "process": 2, "commit": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeWork{plan: &c.plan, unprocessed: c.unprocessed}
			env := newEnv(t, f)
			env.ExecuteWorkflow(workflows.IngestDatasetWorkflow, ingestInput())
			require.NoError(t, env.GetWorkflowError())
			require.ElementsMatch(t, c.want, f.parts)
			require.Equal(t, c.calls, f.calls)
			require.Equal(t, plan, f.committed[0].Plan)
			require.Equal(t, c.plan.Dedupes, f.committed[0].Resolution != "")
			var got workflows.DatasetInfo
			require.NoError(t, env.GetWorkflowResult(&got))
			require.NoError(t, got.Digest.Validate())
		})
	}
}

// TestIngestFailsAtTheFirstBadPart: of several parts with bad input, the error of
// the first is told, whichever failed first, and nothing is committed.
func TestIngestFailsAtTheFirstBadPart(t *testing.T) {
	f := &fakeWork{plan: &workflows.DatasetPlan{Plan: ref("plan").Digest, Parts: 9, Pending: [][2]int{{0, 9}}}}
	f.onPart = func(ctx context.Context, _ string, in workflows.IngestStep) error {
		switch in.Part {
		case 3:
			time.Sleep(50 * time.Millisecond)
			return badInput("a.json: record 31: field %q: missing", "answer")
		case 7:
			return badInput("a.json: record 71: field %q: missing", "answer")
		}
		return nil
	}
	env := newEnv(t, f)
	env.ExecuteWorkflow(workflows.IngestDatasetWorkflow, ingestInput())
	requireBadInput(t, env.GetWorkflowError(), "record 31")
	require.Empty(t, f.committed)
}

// TestIngestRetriesLostParts: a part whose worker is lost is done elsewhere.
func TestIngestRetriesLostParts(t *testing.T) {
	f := &fakeWork{plan: &workflows.DatasetPlan{Plan: ref("plan").Digest, Parts: 5, Pending: [][2]int{{0, 5}}}}
	var tries atomic.Int64
	f.onPart = func(_ context.Context, _ string, in workflows.IngestStep) error {
		if in.Part == 2 && tries.Add(1) < 4 {
			return []error{errors.New("connection reset"), temporal.NewApplicationError("told to stop", workflows.Drained)}[tries.Load()%2]
		}
		return nil
	}
	env := newEnv(t, f)
	env.ExecuteWorkflow(workflows.IngestDatasetWorkflow, ingestInput())
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, 5+3, f.called("process"))
	require.Equal(t, 1, f.called("commit"))
}

// TestIngestOfManyPartsGoesOnAsNewRuns: no history grows beyond bounds, and no
// part is done twice.
func TestIngestOfManyPartsGoesOnAsNewRuns(t *testing.T) {
	const parts = 1203
	f := &fakeWork{plan: &workflows.DatasetPlan{Plan: ref("plan").Digest, Parts: parts, Bytes: 100 * parts, Dedupes: true, Pending: [][2]int{{0, 600}, {601, parts}}},
		unprocessed: [][2]int{{1, parts}}}
	in, runs := any(ingestInput()), 0
	for ; ; runs++ {
		env := newEnv(t, f)
		env.ExecuteWorkflow(workflows.IngestDatasetWorkflow, in)
		err := env.GetWorkflowError()
		var again *workflow.ContinueAsNewError
		if !errors.As(err, &again) {
			require.NoError(t, err)
			break
		}
		require.Equal(t, workflows.IngestDatasetWorkflow, again.WorkflowType.Name)
		in = raw(string(again.Input.Payloads[0].Data))
		s := ingestStatus(t, env)
		require.Less(t, s.Done, parts)
		require.Equal(t, parts, s.Parts)
	}
	require.Equal(t, 4, runs)
	require.Len(t, f.parts, 2*parts-2)
	slices.Sort(f.parts)
	require.Len(t, slices.Compact(f.parts), 2*parts-2)
	require.NotContains(t, f.parts, "sign 600")
	require.NotContains(t, f.parts, "process 0")
	require.Equal(t, 1, f.called("ingest"))
	require.Equal(t, 1, f.called("resolve duplicates"))
	require.Equal(t, 1, f.called("commit"))
}

func ingestStatus(t testing.TB, env *testsuite.TestWorkflowEnvironment) (s workflows.IngestStatus) {
	t.Helper()
	v, err := env.QueryWorkflow(workflows.StatusQuery)
	require.NoError(t, err)
	require.NoError(t, v.Get(&s))
	return s
}

// TestIngestStatus: a query tells how much is done, and how fast.
func TestIngestStatus(t *testing.T) {
	f := &fakeWork{plan: &workflows.DatasetPlan{Plan: ref("plan").Digest, Parts: 4, Bytes: 400, Pending: [][2]int{{1, 4}}}}
	env := newEnv(t, f)
	var during []workflows.IngestStatus
	env.SetOnActivityCompletedListener(func(*activity.Info, converter.EncodedValue, error) {
		during = append(during, ingestStatus(t, env))
	})
	env.ExecuteWorkflow(workflows.IngestDatasetWorkflow, ingestInput())
	require.NoError(t, env.GetWorkflowError())
	require.Equal(t, workflows.IngestPlan, during[0].Stage)
	for i := 1; i < len(during); i++ {
		require.GreaterOrEqual(t, during[i].Done, during[i-1].Done)
	}
	last := ingestStatus(t, env)
	require.Equal(t, workflows.IngestDone, last.Stage)
	require.Equal(t, 4, last.Done)
	require.Equal(t, int64(400), last.BytesDone)
}

// TestIngestOnAServer: a real server's history of an ingestion by parts replays.
// With -update it is recorded.
func TestIngestOnAServer(t *testing.T) {
	f := &fakeWork{plan: &workflows.DatasetPlan{Plan: ref("plan").Digest, Parts: 4, Bytes: 400, Dedupes: true, Pending: [][2]int{{0, 4}}}, unprocessed: [][2]int{{1, 4}}}
	c := serve(t, devservertest.Start(t, devserver.Options{}), f)
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "parts", TaskQueue: workflows.Queue}, workflows.IngestDatasetWorkflow, ingestInput())
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	h := history(t, c, "parts")
	require.NoError(t, replayer().ReplayWorkflowHistory(quiet, h))
	if *update {
		b, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(h)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join("testdata", "parts.ingest.json"), append(b, '\n'), 0o644))
	}
}

// localWork does ingestions in this process, as the child processes of workers
// do, and is killed now and then.
type localWork struct {
	fakeWork
	dir   string
	mu    sync.Mutex
	rng   *rand.Rand
	kills atomic.Int64
	slots chan struct{} // as many as there are workers
}

func (w *localWork) job(ctx context.Context, in workflows.IngestStep) (*ingest.Job, error) {
	o := w.options()
	if in.Plan == "" {
		return ingest.NewJob(ctx, in.Spec, o)
	}
	j, err := ingest.OpenJob(ctx, in.Plan, o)
	if err == nil && in.Resolution != "" {
		err = j.Use(ctx, in.Resolution)
	}
	return j, err
}

func (w *localWork) options() ingest.Options {
	return ingest.Options{Tokenizer: byteTokenizer{}, Blobs: shard.DirBlobs{Dir: w.dir}, Memo: ingest.DirMemo{Dir: filepath.Join(w.dir, "memo")}, Workers: 2}
}

// work runs f in a slot, under a context that may be cut off at any moment, as
// if its worker had been killed.
func work[T any](ctx context.Context, w *localWork, f func(ctx context.Context) (T, error)) (T, error) {
	w.slots <- struct{}{}
	defer func() { <-w.slots }()
	w.mu.Lock()
	dies, after := w.rng.IntN(2) == 0, time.Duration(2*w.rng.IntN(3))*time.Millisecond
	w.mu.Unlock()
	if dies {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, after)
		defer cancel()
	}
	v, err := f(ctx)
	if err != nil && dies {
		w.kills.Add(1)
		err = errors.New("worker lost")
	}
	return v, err
}

func (w *localWork) PlanDataset(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPlan, error) {
	return work(ctx, w, func(ctx context.Context) (p workflows.DatasetPlan, err error) {
		j, err := w.job(ctx, in)
		if err != nil {
			return p, err
		}
		plan := j.Plan()
		return workflows.DatasetPlan{Plan: j.Digest(), Parts: len(plan.Parts), Bytes: plan.Bytes(), Dedupes: j.Dedupes(), Pending: [][2]int{{0, len(plan.Parts)}}}, nil
	})
}

func (w *localWork) SignPart(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPart, error) {
	return work(ctx, w, func(ctx context.Context) (p workflows.DatasetPart, err error) {
		j, err := w.job(ctx, in)
		if err != nil {
			return p, err
		}
		return p, j.Sign(ctx, in.Part)
	})
}

func (w *localWork) ResolveDuplicates(ctx context.Context, in workflows.IngestStep) (workflows.DatasetDuplicates, error) {
	return work(ctx, w, func(ctx context.Context) (d workflows.DatasetDuplicates, err error) {
		j, err := w.job(ctx, in)
		if err != nil {
			return d, err
		}
		d.Pending = [][2]int{{0, len(j.Plan().Parts)}}
		d.Resolution, err = j.Resolve(ctx)
		return d, err
	})
}

func (w *localWork) ProcessPart(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPart, error) {
	return work(ctx, w, func(ctx context.Context) (p workflows.DatasetPart, err error) {
		j, err := w.job(ctx, in)
		if err != nil {
			return p, err
		}
		_, err = j.Process(ctx, in.Part)
		return p, err
	})
}

func (w *localWork) CommitDataset(ctx context.Context, in workflows.IngestStep) (workflows.DatasetInfo, error) {
	return work(ctx, w, func(ctx context.Context) (d workflows.DatasetInfo, err error) {
		j, err := w.job(ctx, in)
		if err != nil {
			return d, err
		}
		a, err := j.Finish(ctx)
		return workflows.DatasetInfo{Ref: ref("data"), Digest: a.Manifest, Account: workflows.Account{Read: a.Read, Manifest: a.Manifest}}, err
	})
}

// TestIngestIsTheSameForAnyNumberOfWorkers: 1, 3 and 8 workers that are killed
// at random make the data set that one process makes alone.
func TestIngestIsTheSameForAnyNumberOfWorkers(t *testing.T) {
	var text strings.Builder
	for i := range 400 {
		fmt.Fprintf(&text, `{"question":"How many %d?","context":"CREATE TABLE t (a INTEGER)","answer":"SELECT %d"}`+"\n", i%300, i%300)
	}
	in := filepath.Join(t.TempDir(), "in.jsonl")
	require.NoError(t, os.WriteFile(in, []byte(text.String()), 0o644))
	spec := specstream.DataSpec{Format: "sql", Inputs: []string{in}, PartitionBytes: 3000, Clean: &specstream.CleanSpec{Dedupe: specstream.DedupeExact}}
	alone := localWork{dir: t.TempDir()}
	want, err := ingest.Run(t.Context(), spec, alone.options())
	require.NoError(t, err)
	require.Equal(t, int64(300), want.Kept)
	for _, workers := range []int{1, 3, 8} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			w := &localWork{dir: t.TempDir(), rng: rand.New(rand.NewPCG(5, uint64(workers))), slots: make(chan struct{}, workers)}
			env := newEnv(t, w)
			env.ExecuteWorkflow(workflows.IngestDatasetWorkflow, workflows.IngestInput{Spec: spec, Base: ref("base")})
			require.NoError(t, env.GetWorkflowError())
			var got workflows.DatasetInfo
			require.NoError(t, env.GetWorkflowResult(&got))
			require.Equal(t, want.Manifest, got.Digest)
			require.Positive(t, w.kills.Load())
		})
	}
}

// byteTokenizer has a token for each byte; 256 ends a sequence.
type byteTokenizer struct{}

func (byteTokenizer) Encode(dst []int32, text string) []int32 {
	for _, b := range []byte(text) {
		dst = append(dst, int32(b))
	}
	return dst
}

// EncodeMarked encodes each text by itself.
func (t byteTokenizer) EncodeMarked(dst []int32, texts []string, literal []bool) (ids []int32, marks []int) {
	n := len(dst)
	for i, s := range texts {
		switch {
		case s == "</s>" && !literal[i]:
			dst = append(dst, 256)
		default:
			dst = t.Encode(dst, s)
		}
		marks = append(marks, len(dst)-n)
	}
	return dst, marks
}

func (byteTokenizer) Token(id int32) string { return map[int32]string{256: "</s>"}[id] }

func (byteTokenizer) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		if id < 256 {
			b = append(b, byte(id))
		}
	}
	return string(b)
}
func (byteTokenizer) BOS() (int32, bool)        { return 0, false }
func (byteTokenizer) EOS() (int32, bool)        { return 256, true }
func (byteTokenizer) VocabSize() int            { return 257 }
func (byteTokenizer) Digest() specstream.Digest { return specstream.DigestBytes([]byte("bytes")) }
