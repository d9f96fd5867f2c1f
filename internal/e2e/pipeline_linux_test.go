package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	enumspb "go.temporal.io/api/enums/v1"
	taskqueuepb "go.temporal.io/api/taskqueue/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/workflows"
)

// awaiting is a pipeline that asks for approval.
func awaiting(s workflows.Status) bool { return s.Waiting != nil }

// TestPipeline uses one stack as a user does over some days.
func TestPipeline(t *testing.T) {
	f := setup(t)
	s := up(t, filepath.Join(t.TempDir(), "stack"))

	t.Run("a second stack in the folder is refused", func(t *testing.T) {
		run(t, "up", "--data-dir", s.dir).refused(t, 3, s.dir, "another specstream")
	})
	t.Run("nothing is there yet", func(t *testing.T) {
		require.Empty(t, s.list(t))
		s.run(t, "pipeline", "status", "nothing").refused(t, 1, `"nothing"`)
		s.run(t, "pipeline", "approve", "nothing", "--yes").refused(t, 1, `"nothing"`)
		s.run(t, "pipeline", "cancel", "nothing").refused(t, 1, `"nothing"`)
	})
	var first specstream.Ref
	t.Run("approval", func(t *testing.T) {
		j := job(f, func(j *specstream.JobSpec) { j.Modes = []specstream.Mode{specstream.Lossless, specstream.Shared} })
		id := s.submit(t, j)
		st := s.await(t, id, "waiting", awaiting)
		require.Equal(t, id, s.submit(t, j), "the same job again is the same pipeline")
		for _, m := range st.Modes {
			require.Equal(t, 1.0, m.Evaluation.Parity)
			for _, g := range m.Gates {
				require.True(t, g.Passed, g.Detail)
			}
		}
		require.Len(t, s.list(t), 2)
		other := specstream.DigestBytes([]byte("other"))
		s.run(t, "pipeline", "approve", id, "--checkpoint", string(other)).refused(t, 1, `"checkpoint"`, string(st.Waiting.Checkpoint))
		s.run(t, "pipeline", "reject", id).refused(t, 2, "--why")
		require.Nil(t, s.status(t, id).Decision, "what was refused left no trace")

		var d workflows.Decision
		s.good(t, &d, "pipeline", "approve", id, "--checkpoint", string(st.Waiting.Checkpoint), "--who", "ada", "--why", "it is good")
		require.True(t, d.Approved)
		require.Equal(t, st.Waiting.Evidence, d.Evidence)
		st = s.await(t, id, "promoted", func(s workflows.Status) bool { return s.Stage == workflows.StageDone })
		require.Equal(t, workflows.Promoted, st.Outcome)
		require.EqualValues(t, 1, st.Promotion.Generation)
		require.FileExists(t, st.Report.Path)
		first = st.Promotion.Ref
		s.run(t, "pipeline", "approve", id, "--yes").refused(t, 1, "waits for nobody")
		for _, l := range s.list(t) {
			if l.Ref == first.String() {
				require.Equal(t, []string{"production"}, l.Aliases)
			} else {
				require.Empty(t, l.Aliases)
			}
		}
	})
	t.Run("an approval of other digests is refused by the pipeline itself", func(t *testing.T) {
		id := s.submit(t, job(f, func(j *specstream.JobSpec) { j.Name, j.Alias = "other digests", "canary" }))
		st := s.await(t, id, "waiting", awaiting)
		cl := s.temporal(t)
		wrong := st.Waiting.Evidence
		wrong.Evaluation = specstream.DigestBytes([]byte("other"))
		h, err := cl.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{WorkflowID: id, UpdateName: workflows.ApproveUpdate,
			Args: []any{workflows.ApproveInput{Evidence: wrong, Who: "eve"}}, WaitForStage: client.WorkflowUpdateStageCompleted})
		if err == nil {
			err = h.Get(t.Context(), nil)
		}
		require.ErrorContains(t, err, `"evaluation"`)
		require.Nil(t, s.status(t, id).Decision)

		var d workflows.Decision
		s.good(t, &d, "pipeline", "reject", id, "--who", "ada", "--why", "too slow")
		require.False(t, d.Approved)
		st = s.await(t, id, "rejected", func(s workflows.Status) bool { return s.Stage == workflows.StageDone })
		require.Equal(t, workflows.Rejected, st.Outcome)
		require.Nil(t, st.Promotion)
		s.run(t, "checkpoints", "show", "canary").refused(t, 1, "canary")
	})
	t.Run("gates", func(t *testing.T) {
		r := s.run(t, "pipeline", "start", "--wait", "--progress", "none", "--input-file", jobFile(t, job(f, func(j *specstream.JobSpec) {
			j.Gates.MeanAcceptedTokens = 50
			j.Approval.Auto = true
		})))
		require.Equal(t, 4, r.code, "%s", r)
		require.Contains(t, r.stderr, "gate_failed")
		var res workflows.PipelineResult
		r.decode(t, &res)
		require.Equal(t, workflows.GateFailed, res.Outcome)
	})
	t.Run("plain Temporal", func(t *testing.T) { s.plainTemporal(t, f, first) })
	t.Run("equal work at once", func(t *testing.T) {
		var ids []string
		for _, alias := range []string{"left", "right"} {
			ids = append(ids, s.submit(t, job(f, func(j *specstream.JobSpec) { j.Train.Seed, j.Alias, j.Approval.Auto = 3, alias, true })))
		}
		require.NotEqual(t, ids[0], ids[1])
		var refs []specstream.Ref
		for _, id := range ids {
			st := s.await(t, id, "done", func(s workflows.Status) bool { return s.Stage == workflows.StageDone })
			require.Equal(t, workflows.Promoted, st.Outcome)
			refs = append(refs, st.Promotion.Ref)
		}
		require.Equal(t, refs[0], refs[1], "two pipelines train one checkpoint")
	})
	t.Run("ingest into the store", func(t *testing.T) {
		cfg := s.config(t)
		c := command(t.Context(), "ingest", "--format", "sql", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--limit", "20",
			"--out", "s3://specstream/by-hand", "--progress", "none", "--json", f.train)
		c.Env = append(c.Env, fmt.Sprintf("SPECSTREAM_S3_ENDPOINT=http://127.0.0.1:%d", cfg.S3Port), "AWS_ACCESS_KEY_ID="+cfg.AccessKey, "AWS_SECRET_ACCESS_KEY="+cfg.SecretKey)
		out, err := c.Output()
		require.NoError(t, err)
		var a struct {
			account
			Ref string `json:"ref"`
		}
		require.NoError(t, json.Unmarshal(out, &a))
		require.EqualValues(t, 20, *a.Kept)
		_, err = specstream.ParseRef(a.Ref)
		require.NoError(t, err)
	})
	t.Run("ingest by parts", func(t *testing.T) { s.ingestByParts(t, f, first) })
	t.Run("aliases", func(t *testing.T) { s.aliases(t, first) })
	t.Run("cancel", func(t *testing.T) { s.cancel(t, f) })
	t.Run("bad input", func(t *testing.T) { s.badInput(t, f) })
	t.Run("list", func(t *testing.T) {
		require.Eventually(t, func() bool { // the server indexes with some delay
			var l []struct{ ID, Status string }
			s.good(t, &l, "pipeline", "status")
			states := map[string]bool{}
			for _, p := range l {
				states[p.Status] = true
			}
			return len(l) >= 6 && states["completed"] && states["canceled"] && states["failed"]
		}, 20*time.Second, 200*time.Millisecond)
	})
	s.sound(t)
	for _, line := range strings.Split(s.logs(), "\n") {
		require.NotContains(t, line, "panic", "log of the stack")
	}
}

func (s *stack) temporal(t testing.TB) client.Client {
	t.Helper()
	c := s.config(t)
	cl, err := client.Dial(client.Options{HostPort: c.TemporalAddress, Namespace: c.Namespace, Logger: temporallog.NewStructuredLogger(discard)})
	require.NoError(t, err)
	t.Cleanup(cl.Close)
	return cl
}

// plainStart starts a pipeline as `temporal workflow start --type Pipeline
// --task-queue specstream --input-file job.json` does: a file's bytes as one
// json/plain payload.
func (s *stack) plainStart(t testing.TB, id, job string) {
	t.Helper()
	_, err := s.temporal(t).WorkflowService().StartWorkflowExecution(t.Context(), &workflowservice.StartWorkflowExecutionRequest{
		Namespace: s.config(t).Namespace, WorkflowId: id, RequestId: id, Identity: "cli",
		WorkflowType: &commonpb.WorkflowType{Name: "Pipeline"}, TaskQueue: &taskqueuepb.TaskQueue{Name: "specstream"},
		Input: &commonpb.Payloads{Payloads: []*commonpb.Payload{{Metadata: map[string][]byte{"encoding": []byte("json/plain")}, Data: []byte(job)}}},
	})
	require.NoError(t, err)
}

// plainTemporal starts pipelines without our command; first is what an equal job
// has promoted.
func (s *stack) plainTemporal(t *testing.T, f fixture, first specstream.Ref) {
	j := job(f, func(j *specstream.JobSpec) { j.Approval.Auto, j.Alias = true, "nightly" })
	b, err := json.MarshalIndent(j, "", "  ")
	require.NoError(t, err)
	s.plainStart(t, "by-hand", string(b)+"\n")
	st := s.await(t, "by-hand", "done", func(s workflows.Status) bool { return s.Stage == workflows.StageDone })
	require.Equal(t, workflows.Promoted, st.Outcome)
	require.Equal(t, first, st.Promotion.Ref, "equal work is done once")
	require.Equal(t, "auto", st.Decision.Who)

	s.plainStart(t, "misspelt", `{"base":"b","dta":{}}`)
	require.Eventually(t, func() bool {
		d, err := s.temporal(t).DescribeWorkflowExecution(t.Context(), "misspelt", "")
		return err == nil && d.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_FAILED
	}, 20*time.Second, 100*time.Millisecond)
	s.run(t, "pipeline", "status", "misspelt").refused(t, 1, `"dta"`, "unknown field")
}

// aliases promotes and rolls back by hand; first is what production names.
func (s *stack) aliases(t *testing.T, first specstream.Ref) {
	var second string
	for _, l := range s.list(t) {
		if l.Ref != first.String() {
			second = l.Ref
		}
	}
	require.NotEmpty(t, second)
	var p struct {
		Generation int64          `json:"generation"`
		Ref        specstream.Ref `json:"ref"`
		RollbackTo int64          `json:"rollback_to"`
	}
	s.good(t, &p, "checkpoints", "promote", second, "--who", "ada", "--why", "to compare")
	require.EqualValues(t, 2, p.Generation)
	require.Equal(t, second, p.Ref.String())
	s.good(t, &p, "checkpoints", "rollback", "--who", "ada", "--why", "worse")
	require.EqualValues(t, 3, p.Generation)
	require.EqualValues(t, 1, p.RollbackTo)
	require.Equal(t, first, p.Ref)
	var log []struct {
		Generation int64  `json:"generation"`
		Who        string `json:"who"`
		Why        string `json:"why"`
	}
	s.good(t, &log, "checkpoints", "show", "production")
	require.Len(t, log, 3)
	require.Equal(t, "it is good", log[0].Why)
	require.Equal(t, "ada", log[2].Who)
	var m struct {
		Kind    string            `json:"kind"`
		Content specstream.Digest `json:"content"`
	}
	s.good(t, &m, "checkpoints", "show", first.String())
	require.Equal(t, "adapter", m.Kind)
	require.NoError(t, m.Content.Validate())
	s.run(t, "checkpoints", "promote", "manifests/absent/1-1.json@"+string(first.Digest)).refused(t, 1, "absent")
	s.run(t, "checkpoints", "rollback", "9").refused(t, 1, "generation 3")
}

// cancel cancels a pipeline while it trains.
func (s *stack) cancel(t *testing.T, f fixture) {
	before := s.list(t)
	id := s.submit(t, job(f, func(j *specstream.JobSpec) { j.Train.Steps, j.Train.Seed = 100_000, 7 }))
	s.await(t, id, "training", func(st workflows.Status) bool { return st.Stage == workflows.StageTrain })
	var child int
	require.Eventually(t, func() bool { child = s.find(kindWork).pid; return child != 0 }, 20*time.Second, 50*time.Millisecond)
	time.Sleep(500 * time.Millisecond) // let it train and save
	began := time.Now()
	s.good(t, nil, "pipeline", "cancel", id)
	var err error
	require.Eventually(t, func() bool {
		d, e := s.temporal(t).DescribeWorkflowExecution(t.Context(), id, "")
		err = e
		return e == nil && d.GetWorkflowExecutionInfo().GetStatus() == enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED
	}, 30*time.Second, 100*time.Millisecond, "%v", err)
	t.Logf("cancelled after %v", time.Since(began))
	require.False(t, alive(t, child), "the child process is gone when the pipeline is reported as cancelled")
	require.Zero(t, s.find(kindWork).pid)
	require.Equal(t, before, s.list(t), "no checkpoint is visible")
	s.sound(t)
	scratch, err := filepath.Glob(filepath.Join(s.dir, "work", "scratch-*"))
	require.NoError(t, err)
	require.Empty(t, scratch)
}

// badInput runs pipelines whose input their user must mend.
func (s *stack) badInput(t *testing.T, f fixture) {
	tokenizer, _ := otherTokenizer(t, f)
	dir := t.TempDir()
	cut := write(t, filepath.Join(dir, "cut.json"), `[{"question":"q","context":"c","answer":"a"},{"question":`)
	typed := write(t, filepath.Join(dir, "type.json"), `[{"question":"q","context":5,"answer":"a"}]`)
	start := func(t *testing.T, change func(*specstream.JobSpec)) result {
		return s.run(t, "pipeline", "start", "--wait", "--progress", "none", "--input-file", jobFile(t, job(f, func(j *specstream.JobSpec) {
			j.Approval.Auto = true
			change(j)
		})))
	}
	for _, c := range []struct {
		name   string
		change func(*specstream.JobSpec)
		want   []string
	}{
		{"truncated records", func(j *specstream.JobSpec) { j.Data.Inputs = []string{cut} }, []string{"cut.json", "record 2"}},
		{"wrong field type", func(j *specstream.JobSpec) { j.HoldOut.Inputs = []string{typed} }, []string{"hold_out", "type.json", "record 1", `"context"`}},
		{"missing input", func(j *specstream.JobSpec) { j.Data.Inputs = []string{filepath.Join(dir, "absent.json")} }, []string{"absent.json"}},
		{"missing base", func(j *specstream.JobSpec) { j.Base = filepath.Join(dir, "absent") }, []string{"base", "absent"}},
		{"wrong tokenizer", func(j *specstream.JobSpec) { j.Data.Tokenizer = tokenizer }, []string{`"vocab_size"`, "420", "384"}},
	} {
		t.Run(c.name, func(t *testing.T) { start(t, c.change).refused(t, 1, c.want...) })
	}
	for _, c := range badBases {
		t.Run(c.name, func(t *testing.T) {
			base := copyDir(t, f.base)
			c.damage(t, base)
			start(t, func(j *specstream.JobSpec) { j.Base = base }).refused(t, 1, append(c.want, base)...)
		})
	}
}
