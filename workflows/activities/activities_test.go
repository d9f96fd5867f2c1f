package activities

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/mem"
	"github.com/specstream/specstream/infra/devserver"
	"github.com/specstream/specstream/infra/devserver/devservertest"
	"github.com/specstream/specstream/workflows"
)

var quiet = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

func ref(name string) specstream.Ref {
	return specstream.Ref{Key: "manifests/" + name + ".json", Digest: specstream.DigestBytes([]byte(name))}
}

// newActivities returns activities whose children are helpers.
func newActivities(t *testing.T, mode string, edit func(*Config)) *Activities {
	t.Helper()
	c := Config{Store: "mem:", WorkDir: t.TempDir(), Executable: os.Args[0], Env: []string{helperEnv + "=" + mode}, Log: func(string) {}}
	if edit != nil {
		edit(&c)
	}
	a, err := New(c)
	require.NoError(t, err)
	return a
}

// execute runs one activity as a worker would.
func execute(t *testing.T, a *Activities, name string, in, out any) error {
	t.Helper()
	var s testsuite.WorkflowTestSuite
	s.SetLogger(quiet)
	env := s.NewTestActivityEnvironment()
	workflows.RegisterShort(env, a)
	workflows.RegisterCompute(env, a)
	v, err := env.ExecuteActivity(name, in)
	if err != nil {
		return err
	}
	require.NoError(t, v.Get(out))
	return nil
}

func requireKind(t *testing.T, err error, kind string, retried bool) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	if kind != "" {
		require.Equal(t, kind, app.Type())
	}
	require.Equal(t, retried, !app.NonRetryable())
}

func TestTrainAdapterActivity(t *testing.T) {
	in := workflows.TrainInput{Spec: specstream.TrainSpec{Steps: 3}, Base: ref("base"), Dataset: ref("data")}
	t.Run("result", func(t *testing.T) {
		var out workflows.CheckpointInfo
		require.NoError(t, execute(t, newActivities(t, "good", nil), workflows.TrainAdapterActivity, in, &out))
		require.Equal(t, 3, out.Steps)
		require.Equal(t, 1.25, out.FinalLoss)
		require.Equal(t, "manifests/r/1.json", out.Ref.Key)
	})
	t.Run("bad input is not retried", func(t *testing.T) {
		err := execute(t, newActivities(t, "bad", nil), workflows.TrainAdapterActivity, in, nil)
		requireKind(t, err, workflows.BadInput, false)
		require.ErrorContains(t, err, `record 3: field "answer"`)
	})
	t.Run("failure is retried", func(t *testing.T) {
		requireKind(t, execute(t, newActivities(t, "failed", nil), workflows.TrainAdapterActivity, in, nil), "", true)
	})
	t.Run("result without an artefact is refused", func(t *testing.T) {
		a := newActivities(t, "good", func(c *Config) { c.Executable = script(t, `echo '{"steps":3}'`) })
		err := execute(t, a, workflows.TrainAdapterActivity, in, nil)
		require.ErrorContains(t, err, "its result")
	})
	t.Run("crashes at one place are given up", func(t *testing.T) {
		a := newActivities(t, "panic", nil)
		for i := 1; i < maxCrashes; i++ {
			requireKind(t, execute(t, a, workflows.TrainAdapterActivity, in, nil), "", true)
		}
		err := execute(t, a, workflows.TrainAdapterActivity, in, nil)
		requireKind(t, err, workflows.Crashed, false)
		require.ErrorContains(t, err, "5 times at train 2")
		require.ErrorContains(t, err, "boom")
	})
	t.Run("success ends the count of crashes", func(t *testing.T) {
		a := newActivities(t, "panic", nil)
		requireKind(t, execute(t, a, workflows.TrainAdapterActivity, in, nil), "", true)
		a.c.Env = []string{helperEnv + "=good"}
		var out workflows.CheckpointInfo
		require.NoError(t, execute(t, a, workflows.TrainAdapterActivity, in, &out))
		left, err := filepath.Glob(filepath.Join(a.jobs, "*.crashes.json"))
		require.NoError(t, err)
		require.Empty(t, left)
	})
}

// script writes an executable that ignores its arguments.
func script(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "child")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return path
}

func TestChildArguments(t *testing.T) {
	c := Config{Store: "s3://b/p", WorkDir: "/w"}
	base, data, ckpt := ref("base"), ref("data"), ref("ckpt")
	spec := specstream.DataSpec{Format: "sql", Inputs: []string{"a b"}}
	plan, err := c.ingestArgs("plan", workflows.IngestStep{Spec: spec, Base: base})
	require.NoError(t, err)
	require.Equal(t, []string{"ingest", "--store", "s3://b/p", "--spec-json", `{"format":"sql","inputs":["a b"]}`, "--work-dir", "/w",
		"--base-ref", base.String(), "--stage", "plan", "--json", "--progress", "jsonl"}, plan)
	part, err := c.ingestArgs("process", workflows.IngestStep{Spec: spec, Base: base, Plan: "sha256:a", Resolution: "sha256:b", Part: 7})
	require.NoError(t, err)
	require.Equal(t, []string{"ingest", "--store", "s3://b/p", "--spec-json", `{"format":"sql","inputs":["a b"]}`, "--work-dir", "/w",
		"--base-ref", base.String(), "--stage", "process", "--plan", "sha256:a", "--part", "7", "--resolution", "sha256:b", "--json", "--progress", "jsonl"}, part)
	train, err := c.trainArgs(workflows.TrainInput{Spec: specstream.TrainSpec{AdapterSpec: specstream.AdapterSpec{Mode: specstream.Shared}, Steps: 2}, Base: base, Dataset: data})
	require.NoError(t, err)
	require.Equal(t, []string{"train", "--store", "s3://b/p", "--spec-json", `{"mode":"shared","steps":2}`, "--work-dir", "/w",
		"--base-ref", base.String(), "--data-ref", data.String(), "--json", "--progress", "jsonl"}, train)
	eval, err := c.evalArgs(workflows.EvalInput{Spec: specstream.EvalSpec{Prompts: 5}, Base: base, Checkpoint: ckpt, HoldOut: data})
	require.NoError(t, err)
	require.Equal(t, []string{"eval", "--store", "s3://b/p", "--spec-json", `{"prompts":5}`, "--work-dir", "/w",
		"--base-ref", base.String(), "--checkpoint-ref", ckpt.String(), "--data-ref", data.String(), "--json", "--progress", "jsonl"}, eval)
}

func TestPromoteCheckpointActivityIsRepeatable(t *testing.T) {
	repo := &checkpoints.Repo{Store: mem.New()}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "adapter_config.json"), []byte("{}"), 0o644))
	ckpt, err := repo.CommitDir(t.Context(), dir, checkpoints.Manifest{Kind: checkpoints.KindAdapter, Run: "r"})
	require.NoError(t, err)
	a := newActivities(t, "", func(c *Config) { c.Repo = repo })
	in := workflows.PromoteInput{Alias: "production", Ref: ckpt, RequestID: "decision-1", Who: "ada", Why: "good", EvidenceRefs: []specstream.Ref{ckpt}}
	for range 2 {
		var out workflows.PromotionInfo
		require.NoError(t, execute(t, a, workflows.PromoteCheckpointActivity, in, &out))
		require.Equal(t, workflows.PromotionInfo{Alias: "production", Generation: 1, Ref: ckpt}, out)
	}
	log, err := repo.History(t.Context(), "production")
	require.NoError(t, err)
	require.Len(t, log, 1)
	require.Equal(t, "ada", log[0].Who)
	require.Equal(t, in.EvidenceRefs, log[0].Evidence)

	absent := in
	absent.Ref, absent.RequestID = ref("absent"), "decision-2"
	requireKind(t, execute(t, a, workflows.PromoteCheckpointActivity, absent, nil), workflows.BadInput, false)
	bad := in
	bad.Alias = "../x"
	requireKind(t, execute(t, a, workflows.PromoteCheckpointActivity, bad, nil), workflows.BadInput, false)
}

func TestActivitiesInTheWorker(t *testing.T) {
	a := newActivities(t, "", func(c *Config) {
		c.Base = func(_ context.Context, base string) (workflows.BaseInfo, error) {
			if base == "gone" {
				return workflows.BaseInfo{}, &specstream.InputError{File: "gone/config.json", Reason: "no such file"}
			}
			return workflows.BaseInfo{Ref: ref(base)}, nil
		}
		c.Report = func(_ context.Context, in workflows.ReportInput) (workflows.ReportInfo, error) {
			if in.Outcome == "" {
				return workflows.ReportInfo{}, errors.New("disk full")
			}
			return workflows.ReportInfo{Path: "r.html"}, nil
		}
	})
	var base workflows.BaseInfo
	require.NoError(t, execute(t, a, workflows.ResolveBaseActivity, workflows.ResolveBaseInput{Base: "b"}, &base))
	require.Equal(t, ref("b"), base.Ref)
	requireKind(t, execute(t, a, workflows.ResolveBaseActivity, workflows.ResolveBaseInput{Base: "gone"}, nil), workflows.BadInput, false)
	var report workflows.ReportInfo
	require.NoError(t, execute(t, a, workflows.BuildReportActivity, workflows.ReportInput{Outcome: workflows.Promoted}, &report))
	require.Equal(t, "r.html", report.Path)
	requireKind(t, execute(t, a, workflows.BuildReportActivity, workflows.ReportInput{}, nil), "", true)
}

func TestFailureKinds(t *testing.T) {
	require.NoError(t, failure(nil))
	requireKind(t, failure(specstream.Invalid("f", "bad")), workflows.BadInput, false)
	requireKind(t, failure(errors.Join(errors.New("fetch"), checkpoints.ErrCorrupt)), workflows.BadInput, false)
	requireKind(t, failure(specstream.ErrDrained), workflows.Drained, true)
	other := errors.New("connection refused")
	require.Equal(t, other, failure(other))
}

// runWorker runs a worker until stop is called.
func runWorker(t *testing.T, c client.Client, a *Activities) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- Run(ctx, c, a, WorkerOptions{Slots: 1, Grace: 5 * time.Second, Identity: "test"}) }()
	return sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-ended)
	})
}

func TestWorkerOnAServer(t *testing.T) {
	s := devservertest.Start(t, devserver.Options{})
	c, err := client.Dial(client.Options{HostPort: s.Address, Namespace: s.Namespace, Logger: quiet})
	require.NoError(t, err)
	defer c.Close()
	start := func(id string) client.WorkflowRun {
		run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: workflows.Queue}, workflows.TrainAdapterWorkflow,
			workflows.TrainInput{Spec: specstream.TrainSpec{AdapterSpec: specstream.AdapterSpec{Mode: specstream.Lossless}}, Base: ref("base"), Dataset: ref("data"),
				Runtime: specstream.RuntimeSpec{HeartbeatTimeout: "2s"}})
		require.NoError(t, err)
		return run
	}
	// awaitHeartbeat waits until the server has the progress of the activity.
	awaitHeartbeat := func(id string) {
		require.Eventually(t, func() bool {
			d, err := c.DescribeWorkflowExecution(context.Background(), id, "")
			if err != nil || len(d.GetPendingActivities()) == 0 {
				return false
			}
			var h workflows.Heartbeat
			err = converter.GetDefaultDataConverter().FromPayloads(d.GetPendingActivities()[0].GetHeartbeatDetails(), &h)
			return err == nil && h.Stage == "train" && h.Step == 1 && h.Steps == 3 && h.PID > 0 && h.Host != ""
		}, 30*time.Second, 50*time.Millisecond)
	}

	t.Run("stopping hands the work on", func(t *testing.T) {
		var mu sync.Mutex
		var said []string
		first := newActivities(t, "drain", func(c *Config) {
			c.Log = func(l string) { mu.Lock(); said = append(said, l); mu.Unlock() }
		})
		stop := runWorker(t, c, first)
		defer stop()
		run := start("handed-on")
		awaitHeartbeat("handed-on")
		stop()
		mu.Lock()
		require.Equal(t, []string{"committed"}, said)
		mu.Unlock()
		second := runWorker(t, c, newActivities(t, "good", nil))
		defer second()
		var out workflows.CheckpointInfo
		require.NoError(t, run.Get(t.Context(), &out))
		require.Equal(t, 3, out.Steps)
	})
	t.Run("cancellation stops the child", func(t *testing.T) {
		var mu sync.Mutex
		var said []string
		a := newActivities(t, "drain", func(c *Config) {
			c.Log = func(l string) { mu.Lock(); said = append(said, l); mu.Unlock() }
		})
		stop := runWorker(t, c, a)
		defer stop()
		run := start("cancelled")
		awaitHeartbeat("cancelled")
		began := time.Now()
		require.NoError(t, c.CancelWorkflow(t.Context(), "cancelled", ""))
		err := run.Get(t.Context(), nil)
		require.True(t, temporal.IsCanceledError(err), "%v", err)
		require.Less(t, time.Since(began), 15*time.Second)
		d, err := c.DescribeWorkflowExecution(t.Context(), "cancelled", "")
		require.NoError(t, err)
		require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED, d.GetWorkflowExecutionInfo().GetStatus())
		mu.Lock()
		require.Equal(t, []string{"committed"}, said, "the child was stopped in order before the workflow ended")
		mu.Unlock()
	})
	t.Run("bad input fails the workflow", func(t *testing.T) {
		stop := runWorker(t, c, newActivities(t, "bad", nil))
		defer stop()
		err := start("bad").Get(t.Context(), nil)
		var app *temporal.ApplicationError
		require.ErrorAs(t, err, &app)
		require.Equal(t, workflows.BadInput, app.Type())
		require.Contains(t, app.Message(), "record 3")
	})
}

func TestNewNeedsAFolder(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := New(Config{WorkDir: file})
	require.ErrorContains(t, err, "work folder")
}
