package workflows_test

import (
	"context"
	"flag"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/api/temporalproto"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/worker"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/infra/devserver"
	"github.com/specstream/specstream/infra/devserver/devservertest"
	"github.com/specstream/specstream/workflows"
)

var update = flag.Bool("update", false, "record testdata/*.json again, from a real server")

var quiet = log.NewStructuredLogger(slog.New(slog.DiscardHandler))

// serve starts workers that run f on a real server.
func serve(t *testing.T, s *devserver.Server, f *fakeWork) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: s.Address, Namespace: s.Namespace, Logger: quiet, Identity: "test"})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	o := worker.Options{Identity: "test", MaxHeartbeatThrottleInterval: 100 * time.Millisecond}
	short, compute := worker.New(c, workflows.Queue, o), worker.New(c, workflows.ComputeQueue, o)
	workflows.Register(short)
	workflows.RegisterShort(short, f)
	workflows.RegisterCompute(compute, f)
	for _, w := range []worker.Worker{short, compute} {
		require.NoError(t, w.Start())
		t.Cleanup(w.Stop)
	}
	return c
}

func start(t *testing.T, c client.Client, id string, input any) client.WorkflowRun {
	t.Helper()
	run, err := c.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: workflows.Queue}, workflows.PipelineWorkflow, input)
	require.NoError(t, err)
	return run
}

func queryStatus(t *testing.T, c client.Client, id string) workflows.Status {
	t.Helper()
	v, err := c.QueryWorkflow(t.Context(), id, "", workflows.StatusQuery)
	require.NoError(t, err)
	var s workflows.Status
	require.NoError(t, v.Get(&s))
	return s
}

func history(t *testing.T, c client.Client, id string) *historypb.History {
	t.Helper()
	var h historypb.History
	events := c.GetWorkflowHistory(t.Context(), id, "", false, enumspb.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT)
	for events.HasNext() {
		e, err := events.Next()
		require.NoError(t, err)
		h.Events = append(h.Events, e)
	}
	return &h
}

func replayer() worker.WorkflowReplayer {
	r := worker.NewWorkflowReplayer()
	workflows.Register(r)
	return r
}

// scenarios are the histories worth keeping: every way a pipeline ends.
var scenarios = []struct {
	name  string
	work  func() *fakeWork
	spec  func() specstream.JobSpec
	drive func(t *testing.T, c client.Client, id string)
	ends  enumspb.WorkflowExecutionStatus
	// outcome of a pipeline that completed
	outcome workflows.Outcome
}{
	{name: "promoted", spec: job, drive: approve, ends: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, outcome: workflows.Promoted},
	{name: "auto", spec: autoJob, ends: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, outcome: workflows.Promoted},
	{name: "rejected", spec: job, drive: reject, ends: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, outcome: workflows.Rejected},
	{name: "expired", spec: func() specstream.JobSpec { j := job(); j.Approval.Timeout = "1s"; return j },
		ends: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, outcome: workflows.Expired},
	{name: "gate_failed", spec: func() specstream.JobSpec { j := autoJob(); j.Gates.MeanAcceptedTokens = 9; return j },
		ends: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, outcome: workflows.GateFailed},
	{name: "bad_input", work: func() *fakeWork {
		return &fakeWork{ingest: func(_ context.Context, in workflows.IngestStep) error {
			if in.Spec.Inputs[0] == "dev.json" {
				return badInput("dev.json: record 3: field \"answer\": missing")
			}
			return nil
		}}
	}, spec: autoJob, ends: enumspb.WORKFLOW_EXECUTION_STATUS_FAILED},
	{name: "canceled", spec: job, drive: func(t *testing.T, c client.Client, id string) {
		awaitStage(t, c, id, workflows.StageApprove)
		require.NoError(t, c.CancelWorkflow(t.Context(), id, ""))
	}, ends: enumspb.WORKFLOW_EXECUTION_STATUS_CANCELED},
	{name: "retried", work: func() *fakeWork {
		var failed atomic.Bool
		return &fakeWork{train: func(context.Context, workflows.TrainInput) error {
			if failed.CompareAndSwap(false, true) {
				return temporal.NewApplicationError("told to stop", workflows.Drained)
			}
			return nil
		}}
	}, spec: func() specstream.JobSpec { j := autoJob(); j.Runtime.HeartbeatTimeout = "7s"; return j },
		ends: enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED, outcome: workflows.Promoted},
}

// awaitStage asks until the pipeline is at a stage.
func awaitStage(t *testing.T, c client.Client, id string, want workflows.Stage) workflows.Status {
	t.Helper()
	var s workflows.Status
	var err error
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		var v converter.EncodedValue
		if v, err = c.QueryWorkflow(ctx, id, "", workflows.StatusQuery); err == nil {
			err = v.Get(&s)
		}
		cancel()
		if err == nil && s.Stage == want {
			return s
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatalf("the pipeline is at stage %q, not %q (%v); its history:\n%s", s.Stage, want, err, history(t, c, id))
	return s
}

func approve(t *testing.T, c client.Client, id string) {
	s := awaitStage(t, c, id, workflows.StageApprove)
	wrong := s.Waiting.Evidence
	wrong.Dataset = wrong.Job
	send := func(e workflows.Evidence) error {
		h, err := c.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
			WorkflowID: id, UpdateName: workflows.ApproveUpdate, WaitForStage: client.WorkflowUpdateStageCompleted,
			Args: []any{workflows.ApproveInput{Evidence: e, Who: "ada", Why: "good"}},
		})
		if err != nil {
			return err
		}
		var d workflows.Decision
		if err := h.Get(t.Context(), &d); err != nil {
			return err
		}
		require.True(t, d.Approved)
		return nil
	}
	require.ErrorContains(t, send(wrong), `field "dataset"`)
	require.NoError(t, send(s.Waiting.Evidence))
}

func reject(t *testing.T, c client.Client, id string) {
	awaitStage(t, c, id, workflows.StageApprove)
	h, err := c.UpdateWorkflow(t.Context(), client.UpdateWorkflowOptions{
		WorkflowID: id, UpdateName: workflows.RejectUpdate, WaitForStage: client.WorkflowUpdateStageCompleted,
		Args: []any{workflows.RejectInput{Who: "ada", Why: "samples read badly"}},
	})
	require.NoError(t, err)
	require.NoError(t, h.Get(t.Context(), nil))
}

// TestScenariosOnAServer runs every scenario on a real server and replays the
// history it leaves. With -update the histories are kept for
// [TestRecordedHistoriesReplay].
func TestScenariosOnAServer(t *testing.T) {
	server := devservertest.Start(t, devserver.Options{})
	for _, sc := range scenarios {
		t.Run(sc.name, func(t *testing.T) {
			f := &fakeWork{}
			if sc.work != nil {
				f = sc.work()
			}
			c := serve(t, server, f)
			run := start(t, c, sc.name, sc.spec())
			if sc.drive != nil {
				sc.drive(t, c, sc.name)
			}
			var r workflows.PipelineResult
			err := run.Get(t.Context(), &r)
			if sc.ends == enumspb.WORKFLOW_EXECUTION_STATUS_COMPLETED {
				require.NoError(t, err)
				require.Equal(t, sc.outcome, r.Outcome)
			} else {
				require.Error(t, err)
			}
			d, err := c.DescribeWorkflowExecution(t.Context(), sc.name, "")
			require.NoError(t, err)
			require.Equal(t, sc.ends, d.GetWorkflowExecutionInfo().GetStatus())

			s := queryStatus(t, c, sc.name) // a closed workflow still answers
			ids := map[string]string{"pipeline": sc.name}
			if m := s.Modes[0]; sc.name == "retried" { // the other scenarios' children differ in nothing
				ids["train"], ids["evaluate"] = m.TrainWorkflow, m.EvaluateWorkflow
			}
			for kind, id := range ids {
				h := history(t, c, id)
				require.NoError(t, replayer().ReplayWorkflowHistory(quiet, h))
				if kind == "train" {
					want, err := sc.spec().WithDefaults().Runtime.Heartbeat()
					require.NoError(t, err)
					require.Equal(t, durationpb.New(want).AsDuration(), heartbeatOf(h))
				}
				if *update {
					b, err := temporalproto.CustomJSONMarshalOptions{Indent: " "}.Marshal(h)
					require.NoError(t, err)
					require.NoError(t, os.WriteFile(filepath.Join("testdata", sc.name+"."+kind+".json"), append(b, '\n'), 0o644))
				}
			}
		})
	}
}

func heartbeatOf(h *historypb.History) time.Duration {
	for _, e := range h.GetEvents() {
		if a := e.GetActivityTaskScheduledEventAttributes(); a != nil {
			return a.GetHeartbeatTimeout().AsDuration()
		}
	}
	return 0
}

// TestRecordedHistoriesReplay fails when the code no longer makes the decisions
// of workflows that may still be running. A change that must differ goes behind
// workflow.GetVersion; only then may new histories be recorded beside the old.
func TestRecordedHistoriesReplay(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files, "record them with -run TestScenariosOnAServer -update")
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			require.NoError(t, replayer().ReplayWorkflowHistoryFromJSONFile(quiet, f))
		})
	}
}

func TestCancellationWaitsForTheWorkToEnd(t *testing.T) {
	var running, ended atomic.Int32
	f := &fakeWork{train: func(ctx context.Context, _ workflows.TrainInput) error {
		running.Add(1)
		for {
			select {
			case <-ctx.Done():
				time.Sleep(300 * time.Millisecond) // the process is being stopped
				ended.Add(1)
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
				activity.RecordHeartbeat(ctx)
			}
		}
	}}
	c := serve(t, devservertest.Start(t, devserver.Options{}), f)
	run := start(t, c, "canceled", autoJob())
	require.Eventually(t, func() bool { return running.Load() == 2 }, 20*time.Second, 20*time.Millisecond)
	require.NoError(t, c.CancelWorkflow(t.Context(), "canceled", ""))
	err := run.Get(t.Context(), nil)
	require.True(t, temporal.IsCanceledError(err), "%v", err)
	require.EqualValues(t, 2, ended.Load(), "the pipeline ended before its work had")
	require.Zero(t, f.called("promote"))
}

// TestEqualWorkIsNotDoneTwiceAtOnce starts two pipelines that need the same
// training: one waits for the other.
func TestEqualWorkIsNotDoneTwiceAtOnce(t *testing.T) {
	var mu sync.Mutex
	running, most := 0, 0
	f := &fakeWork{train: func(_ context.Context, in workflows.TrainInput) error {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		time.Sleep(500 * time.Millisecond)
		mu.Lock()
		running--
		mu.Unlock()
		return nil
	}}
	c := serve(t, devservertest.Start(t, devserver.Options{}), f)
	j := autoJob()
	j.Modes = []specstream.Mode{specstream.Shared}
	a, b := start(t, c, "a", j), start(t, c, "b", j)
	for _, run := range []client.WorkflowRun{a, b} {
		var r workflows.PipelineResult
		require.NoError(t, run.Get(t.Context(), &r))
		require.Equal(t, workflows.Promoted, r.Outcome)
	}
	require.Equal(t, 1, most)
	for _, id := range []string{"a", "b"} {
		require.NoError(t, replayer().ReplayWorkflowHistory(quiet, history(t, c, id)))
	}
}

// TestSameOrderTwiceIsOneJob starts a pipeline twice as our command does.
func TestSameOrderTwiceIsOneJob(t *testing.T) {
	f := &fakeWork{}
	c := serve(t, devservertest.Start(t, devserver.Options{}), f)
	o, err := workflows.StartOptions(job())
	require.NoError(t, err)
	first, err := c.ExecuteWorkflow(t.Context(), o, workflows.PipelineWorkflow, job())
	require.NoError(t, err)
	again, err := c.ExecuteWorkflow(t.Context(), o, workflows.PipelineWorkflow, job())
	require.NoError(t, err)
	require.Equal(t, first.GetRunID(), again.GetRunID())
	reject(t, c, o.ID)
	require.NoError(t, again.Get(t.Context(), nil))
}

// TestKilledServerOnlyDelays kills the server in the middle of a training and
// starts it again on the same data and port.
func TestKilledServerOnlyDelays(t *testing.T) {
	if os.Getenv(devserver.AddressEnv) != "" {
		t.Skip("the server that " + devserver.AddressEnv + " names is not ours to kill")
	}
	o := devserver.Options{DataDir: t.TempDir()}
	s := devservertest.Start(t, o)
	var training atomic.Int32
	f := &fakeWork{train: func(ctx context.Context, _ workflows.TrainInput) error {
		training.Add(1)
		for range 30 {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(100 * time.Millisecond):
				activity.RecordHeartbeat(ctx)
			}
		}
		return nil
	}}
	c := serve(t, s, f)
	run := start(t, c, "killed", autoJob())
	require.Eventually(t, func() bool { return training.Load() == 2 }, 20*time.Second, 20*time.Millisecond)
	require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
	<-s.Wait()
	_, port, err := net.SplitHostPort(s.Address)
	require.NoError(t, err)
	o.Port, err = strconv.Atoi(port)
	require.NoError(t, err)
	devservertest.Start(t, o)
	var r workflows.PipelineResult
	require.NoError(t, run.Get(t.Context(), &r))
	require.Equal(t, workflows.Promoted, r.Outcome)
	require.EqualValues(t, 2, training.Load(), "an outage shorter than the heartbeat time-out repeats nothing")
}
