package workflows_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	commonpb "go.temporal.io/api/common/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/log"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/workflows"
)

func newEnv(t *testing.T, f workflows.Activities) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	var s testsuite.WorkflowTestSuite
	s.SetLogger(log.NewStructuredLogger(slog.New(slog.DiscardHandler)))
	env := s.NewTestWorkflowEnvironment()
	env.SetTestTimeout(20 * time.Second)
	workflows.Register(env)
	workflows.RegisterShort(env, f)
	workflows.RegisterCompute(env, f)
	return env
}

// raw passes JSON text as a command line tool would.
func raw(text string) converter.RawValue {
	return converter.NewRawValue(&commonpb.Payload{
		Metadata: map[string][]byte{converter.MetadataEncoding: []byte(converter.MetadataEncodingJSON)},
		Data:     []byte(text),
	})
}

func status(t *testing.T, env *testsuite.TestWorkflowEnvironment) workflows.Status {
	t.Helper()
	v, err := env.QueryWorkflow(workflows.StatusQuery)
	require.NoError(t, err)
	var s workflows.Status
	require.NoError(t, v.Get(&s))
	return s
}

func result(t *testing.T, env *testsuite.TestWorkflowEnvironment) workflows.PipelineResult {
	t.Helper()
	require.True(t, env.IsWorkflowCompleted())
	require.NoError(t, env.GetWorkflowError())
	var r workflows.PipelineResult
	require.NoError(t, env.GetWorkflowResult(&r))
	return r
}

// answer records what became of an update.
type answer struct {
	accepted bool
	rejected error
	decision workflows.Decision
	failed   error
}

func (a *answer) callbacks() *testsuite.TestUpdateCallback {
	return &testsuite.TestUpdateCallback{
		OnAccept: func() { a.accepted = true },
		OnReject: func(err error) { a.rejected = err },
		OnComplete: func(v any, err error) {
			a.failed = err
			if d, ok := v.(workflows.Decision); ok {
				a.decision = d
			}
		},
	}
}

func TestPipelinePromotesWithAutoApproval(t *testing.T) {
	f := &fakeWork{}
	env := newEnv(t, f)
	env.ExecuteWorkflow(workflows.PipelineWorkflow, autoJob())
	r := result(t, env)

	require.Equal(t, workflows.Promoted, r.Outcome)
	require.Equal(t, "nightly", r.Name)
	require.Equal(t, &workflows.PromotionInfo{Alias: "production", Generation: 1, Ref: ref("ckpt-lossless")}, r.Promotion)
	require.Len(t, r.Modes, 2)
	require.Equal(t, specstream.Lossless, r.Modes[0].Mode)
	require.Equal(t, specstream.Shared, r.Modes[1].Mode)
	require.Equal(t, 2.4, r.Mode(specstream.Shared).Evaluation.MeanAcceptedTokens)
	require.Nil(t, r.Mode("other"))
	require.Equal(t, "report-promoted.html", r.Report.Path)
	require.Equal(t, "auto", r.Decision.Who)
	require.Empty(t, r.Warnings)
	require.Equal(t, map[string]int{"resolve": 1, "ingest": 2, "train": 2, "evaluate": 2, "promote": 1, "report": 1}, f.calls)

	wantJob, err := autoJob().WithDefaults().Digest()
	require.NoError(t, err)
	require.Equal(t, wantJob, r.Job)
	p := f.promoted[0]
	require.Equal(t, workflows.Evidence{Job: r.Job, Dataset: r.Data.Digest, Checkpoint: r.Modes[0].Checkpoint.Digest, Evaluation: r.Modes[0].Evaluation.Digest}, p.Evidence)
	require.NotEmpty(t, p.RequestID)
	s := status(t, env)
	require.Equal(t, workflows.StageDone, s.Stage)
	require.Nil(t, s.Waiting)
}

func TestPipelineTakesTheJobAsPlainJSON(t *testing.T) {
	f := &fakeWork{}
	env := newEnv(t, f)
	env.ExecuteWorkflow(workflows.PipelineWorkflow, raw(`{"base":"/b","data":{"format":"sql","inputs":["a"]},"hold_out":{"format":"sql","inputs":["b"]},
		"modes":["shared"],"train":{"steps":7},"eval":{},"approval":{"auto":true},"alias":"canary","runtime":{"heartbeat_timeout":"5s"}}`))
	r := result(t, env)
	require.Equal(t, workflows.Promoted, r.Outcome)
	require.Equal(t, "canary", r.Promotion.Alias)
	require.Equal(t, 7, r.Modes[0].Checkpoint.Steps)
}

func TestPipelineRefusesBadInput(t *testing.T) {
	valid, err := json.Marshal(autoJob())
	require.NoError(t, err)
	edit := func(from, to string) string {
		require.Contains(t, string(valid), from)
		return strings.Replace(string(valid), from, to, 1)
	}
	for _, c := range []struct{ name, input, want string }{
		{"unknown field", edit(`"base":`, `"bse":`), `field "bse": unknown field`},
		{"unknown nested field", edit(`"train":{`, `"train":{"stepz":3,`), `field "train.stepz": unknown field`},
		{"wrong type", edit(`"nightly"`, `3`), `field "name": want string, got JSON number`},
		{"truncated", string(valid[:len(valid)-1]), "ends too early"},
		{"trailing data", string(valid) + "{}", "data after the JSON value"},
		{"empty", "", "there is none"},
		{"null base", edit(`"/models/base"`, `""`), `field "base"`},
		{"bad mode", edit(`"train":{`, `"modes":["lossy"],"train":{`), `train.mode`},
		{"bad format", edit(`"sql"`, `"xml"`), `field "data.format"`},
		{"bad duration", edit(`"auto":true`, `"timeout":"soon"`), `field "approval.timeout"`},
		{"bad heartbeat", edit(`"base":`, `"runtime":{"heartbeat_timeout":"1ms"},"base":`), `field "runtime.heartbeat_timeout"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeWork{}
			env := newEnv(t, f)
			env.ExecuteWorkflow(workflows.PipelineWorkflow, raw(c.input))
			require.True(t, env.IsWorkflowCompleted())
			requireBadInput(t, env.GetWorkflowError(), c.want)
			require.Empty(t, f.calls)
		})
	}
	t.Run("no input at all", func(t *testing.T) {
		env := newEnv(t, &fakeWork{})
		env.ExecuteWorkflow(workflows.PipelineWorkflow)
		require.True(t, env.IsWorkflowCompleted())
		requireBadInput(t, env.GetWorkflowError(), "there is none")
	})
	t.Run("not JSON", func(t *testing.T) {
		env := newEnv(t, &fakeWork{})
		env.ExecuteWorkflow(workflows.PipelineWorkflow, []byte("base"))
		requireBadInput(t, env.GetWorkflowError(), "binary/plain")
	})
}

func requireBadInput(t *testing.T, err error, want string) {
	t.Helper()
	var app *temporal.ApplicationError
	require.ErrorAs(t, err, &app)
	require.Equal(t, workflows.BadInput, app.Type())
	require.True(t, app.NonRetryable())
	require.Contains(t, app.Message(), want)
}

func TestPipelineStopsAtBadInputOfAStage(t *testing.T) {
	for _, c := range []struct {
		name string
		f    *fakeWork
		want string
	}{
		{"base", &fakeWork{resolve: func() error { return badInput("config.json: field \"hidden_size\": missing") }}, "base model: config.json"},
		{"data", &fakeWork{ingest: func(_ context.Context, in workflows.IngestStep) error {
			return badInput("%s: record 3: field \"answer\": missing", in.Spec.Inputs[0])
		}}, "record 3"},
		{"train", &fakeWork{train: func(context.Context, workflows.TrainInput) error {
			return badInput("msa_layers: more than the base has")
		}}, "train: msa_layers"},
		{"crash", &fakeWork{train: func(_ context.Context, in workflows.TrainInput) error {
			if in.Spec.Mode == specstream.Shared {
				return temporal.NewNonRetryableApplicationError("signal: segmentation fault", workflows.Crashed, nil)
			}
			return nil
		}}, "shared: train: signal"},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := newEnv(t, c.f)
			env.ExecuteWorkflow(workflows.PipelineWorkflow, autoJob())
			require.True(t, env.IsWorkflowCompleted())
			var app *temporal.ApplicationError
			require.ErrorAs(t, env.GetWorkflowError(), &app)
			require.True(t, app.NonRetryable())
			require.Contains(t, app.Message(), c.want)
			require.Zero(t, c.f.called("promote"))
		})
	}
}

// The test environment gives up after ten attempts; a server never does.
func TestPipelineOutlastsInfrastructureFailures(t *testing.T) {
	fails := 0
	f := &fakeWork{}
	f.train = func(_ context.Context, in workflows.TrainInput) error {
		if in.Spec.Mode == specstream.Lossless && fails < 9 {
			fails++
			if fails%2 == 0 {
				return temporal.NewApplicationError("stopped", workflows.Drained)
			}
			return errors.New("store: connection refused")
		}
		return nil
	}
	env := newEnv(t, f)
	env.ExecuteWorkflow(workflows.PipelineWorkflow, autoJob())
	require.Equal(t, workflows.Promoted, result(t, env).Outcome)
	require.Equal(t, 11, f.called("train"))
}

func TestPipelineStopsAtGates(t *testing.T) {
	for _, c := range []struct {
		name     string
		evaluate func(e *workflows.EvaluationInfo)
		want     workflows.Outcome
	}{
		{"too few accepted tokens", func(e *workflows.EvaluationInfo) { e.MeanAcceptedTokens = 1.99 }, workflows.GateFailed},
		{"lossless parity broken once", func(e *workflows.EvaluationInfo) {
			if e.Mode == specstream.Lossless {
				e.Parity = 0.995
			}
		}, workflows.GateFailed},
		{"too few prompts", func(e *workflows.EvaluationInfo) { e.Prompts = 99 }, workflows.GateFailed},
		{"another mode is weak", func(e *workflows.EvaluationInfo) {
			if e.Mode == specstream.Shared {
				e.MeanAcceptedTokens, e.Parity = 1.2, 0.97
			}
		}, workflows.Promoted},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeWork{evaluate: c.evaluate}
			env := newEnv(t, f)
			env.ExecuteWorkflow(workflows.PipelineWorkflow, autoJob())
			r := result(t, env)
			require.Equal(t, c.want, r.Outcome)
			require.Equal(t, c.want == workflows.Promoted, f.called("promote") == 1)
			require.Equal(t, 1, f.called("report"))
			require.Equal(t, "report-"+string(c.want)+".html", r.Report.Path)
		})
	}
	t.Run("parity of a mode that is not promoted", func(t *testing.T) {
		f := &fakeWork{evaluate: func(e *workflows.EvaluationInfo) { e.Parity = 0.5 }}
		env := newEnv(t, f)
		j := autoJob()
		j.Promote = specstream.Shared
		env.ExecuteWorkflow(workflows.PipelineWorkflow, j)
		require.Equal(t, workflows.GateFailed, result(t, env).Outcome)
	})
}

func TestPipelineIngestsOnceWhenHoldOutIsTheData(t *testing.T) {
	f := &fakeWork{}
	env := newEnv(t, f)
	j := autoJob()
	j.HoldOut = j.Data
	env.ExecuteWorkflow(workflows.PipelineWorkflow, j)
	r := result(t, env)
	require.Equal(t, 1, f.called("ingest"))
	require.Len(t, r.Warnings, 1)
	require.Contains(t, r.Warnings[0], "hold-out")
}

func TestPipelinePromotesWithoutReport(t *testing.T) {
	f := &fakeWork{report: func() error { return errors.New("disk full") }}
	env := newEnv(t, f)
	env.ExecuteWorkflow(workflows.PipelineWorkflow, autoJob())
	r := result(t, env)
	require.Equal(t, workflows.Promoted, r.Outcome)
	require.Nil(t, r.Report)
	require.Len(t, r.Warnings, 1)
	require.Contains(t, r.Warnings[0], "disk full")
}

// approval drives a pipeline to its approval and calls at once it waits.
func approval(t *testing.T, f *fakeWork, at func(env *testsuite.TestWorkflowEnvironment, w workflows.ApprovalRequest)) *testsuite.TestWorkflowEnvironment {
	t.Helper()
	env := newEnv(t, f)
	env.RegisterDelayedCallback(func() {
		s := status(t, env)
		require.Equal(t, workflows.StageApprove, s.Stage)
		require.NotNil(t, s.Waiting)
		require.Equal(t, "report-pending.html", s.Report.Path)
		at(env, *s.Waiting)
	}, time.Hour)
	env.ExecuteWorkflow(workflows.PipelineWorkflow, job())
	return env
}

func TestApprovalPromotes(t *testing.T) {
	f := &fakeWork{}
	var a, again answer
	env := approval(t, f, func(env *testsuite.TestWorkflowEnvironment, w workflows.ApprovalRequest) {
		require.Equal(t, "production", w.Alias)
		require.Equal(t, specstream.Lossless, w.Mode)
		env.UpdateWorkflow(workflows.ApproveUpdate, "1", a.callbacks(), workflows.ApproveInput{Evidence: w.Evidence, Who: "ada", Why: "looks right"})
		env.UpdateWorkflow(workflows.ApproveUpdate, "2", again.callbacks(), workflows.ApproveInput{Evidence: w.Evidence, Who: "bob"})
	})
	r := result(t, env)
	require.Equal(t, workflows.Promoted, r.Outcome)
	require.True(t, a.accepted)
	require.NoError(t, a.failed)
	require.Equal(t, "ada", a.decision.Who)
	require.True(t, a.decision.Approved)
	require.ErrorContains(t, again.rejected, "nothing is waiting")
	require.Equal(t, "ada", f.promoted[0].Who)
	require.Equal(t, "looks right", f.promoted[0].Why)
	require.Equal(t, a.decision.Evidence, f.promoted[0].Evidence)
	require.Equal(t, 2, f.called("report"))
}

func TestApprovalRefusesOtherDigests(t *testing.T) {
	other := specstream.DigestBytes([]byte("other"))
	for _, c := range []struct {
		name   string
		update string
		input  func(e workflows.Evidence) any
		want   string
	}{
		{"job", workflows.ApproveUpdate, func(e workflows.Evidence) any { e.Job = other; return workflows.ApproveInput{Evidence: e, Who: "ada"} }, `field "job"`},
		{"dataset", workflows.ApproveUpdate, func(e workflows.Evidence) any {
			e.Dataset = other
			return workflows.ApproveInput{Evidence: e, Who: "ada"}
		}, `field "dataset"`},
		{"checkpoint", workflows.ApproveUpdate, func(e workflows.Evidence) any {
			e.Checkpoint = other
			return workflows.ApproveInput{Evidence: e, Who: "ada"}
		}, `field "checkpoint"`},
		{"evaluation", workflows.ApproveUpdate, func(e workflows.Evidence) any {
			e.Evaluation = other
			return workflows.ApproveInput{Evidence: e, Who: "ada"}
		}, `field "evaluation"`},
		{"missing digest", workflows.ApproveUpdate, func(e workflows.Evidence) any {
			e.Evaluation = ""
			return workflows.ApproveInput{Evidence: e, Who: "ada"}
		}, `field "evaluation"`},
		{"nobody", workflows.ApproveUpdate, func(e workflows.Evidence) any { return workflows.ApproveInput{Evidence: e} }, `field "who"`},
		{"unknown field", workflows.ApproveUpdate, func(workflows.Evidence) any { return raw(`{"who":"ada","force":true}`) }, `field "force"`},
		{"nothing", workflows.ApproveUpdate, func(workflows.Evidence) any { return raw(``) }, "there is none"},
		{"reject without reason", workflows.RejectUpdate, func(e workflows.Evidence) any { return workflows.RejectInput{Evidence: e, Who: "ada"} }, `field "why"`},
		{"reject another checkpoint", workflows.RejectUpdate, func(workflows.Evidence) any {
			return workflows.RejectInput{Evidence: workflows.Evidence{Checkpoint: other}, Who: "ada", Why: "slow"}
		}, `field "checkpoint"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeWork{}
			var a answer
			env := approval(t, f, func(env *testsuite.TestWorkflowEnvironment, w workflows.ApprovalRequest) {
				env.UpdateWorkflow(c.update, "1", a.callbacks(), c.input(w.Evidence))
			})
			require.False(t, a.accepted)
			require.ErrorContains(t, a.rejected, c.want)
			require.Equal(t, workflows.Expired, result(t, env).Outcome)
			require.Zero(t, f.called("promote"))
		})
	}
}

func TestApprovalIsRefusedBeforeItIsAskedFor(t *testing.T) {
	f := &fakeWork{}
	env := newEnv(t, f)
	var a answer
	env.RegisterDelayedCallback(func() {
		env.UpdateWorkflow(workflows.ApproveUpdate, "early", a.callbacks(), workflows.ApproveInput{Who: "ada"})
	}, 0)
	env.ExecuteWorkflow(workflows.PipelineWorkflow, job())
	require.ErrorContains(t, a.rejected, "nothing is waiting")
	require.Equal(t, workflows.Expired, result(t, env).Outcome)
}

func TestRejectionEndsThePipeline(t *testing.T) {
	f := &fakeWork{}
	var a answer
	env := approval(t, f, func(env *testsuite.TestWorkflowEnvironment, w workflows.ApprovalRequest) {
		env.UpdateWorkflow(workflows.RejectUpdate, "1", a.callbacks(), workflows.RejectInput{Who: "ada", Why: "samples read badly"})
	})
	r := result(t, env)
	require.True(t, a.accepted)
	require.Equal(t, workflows.Rejected, r.Outcome)
	require.Equal(t, "samples read badly", r.Decision.Why)
	require.False(t, r.Decision.Approved)
	require.Zero(t, f.called("promote"))
	require.Equal(t, workflows.Rejected, f.reports[1].Outcome)
}

func TestApprovalExpires(t *testing.T) {
	f := &fakeWork{}
	env := newEnv(t, f)
	start := env.Now()
	env.ExecuteWorkflow(workflows.PipelineWorkflow, job())
	r := result(t, env)
	require.Equal(t, workflows.Expired, r.Outcome)
	require.Nil(t, r.Decision)
	require.GreaterOrEqual(t, env.Now().Sub(start), 72*time.Hour)
	require.Zero(t, f.called("promote"))
}

// The test environment reports a cancelled activity at once; that a cancelled
// pipeline waits for its processes is shown against a real server.
func TestCancellationCancelsTheWork(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	f := &fakeWork{train: func(context.Context, workflows.TrainInput) error {
		<-release
		return nil
	}}
	env := newEnv(t, f)
	canceled := 0
	env.SetOnActivityCanceledListener(func(info *activity.Info) {
		require.Equal(t, workflows.TrainAdapterActivity, info.ActivityType.Name)
		canceled++
	})
	env.RegisterDelayedCallback(env.CancelWorkflow, time.Second)
	env.ExecuteWorkflow(workflows.PipelineWorkflow, autoJob())
	require.True(t, env.IsWorkflowCompleted())
	require.True(t, temporal.IsCanceledError(env.GetWorkflowError()), "%v", env.GetWorkflowError())
	require.Equal(t, 2, canceled)
	require.Zero(t, f.called("evaluate"))
	require.Zero(t, f.called("promote"))
}

func TestCancellationWhileAPersonIsAsked(t *testing.T) {
	f := &fakeWork{}
	env := approval(t, f, func(env *testsuite.TestWorkflowEnvironment, _ workflows.ApprovalRequest) { env.CancelWorkflow() })
	require.True(t, temporal.IsCanceledError(env.GetWorkflowError()), "%v", env.GetWorkflowError())
	require.Zero(t, f.called("promote"))
}

func TestStatusFollowsTheModes(t *testing.T) {
	f := &fakeWork{}
	env := newEnv(t, f)
	release := make(chan struct{})
	f.train = func(ctx context.Context, in workflows.TrainInput) error {
		if in.Spec.Mode == specstream.Shared {
			<-release
		}
		return nil
	}
	env.SetTestTimeout(time.Minute)
	env.RegisterDelayedCallback(func() {
		defer close(release)
		s := status(t, env)
		require.Equal(t, workflows.StageTrain, s.Stage)
		require.Equal(t, workflows.ModeTraining, s.Modes[1].Stage)
		require.True(t, strings.HasPrefix(s.Modes[1].TrainWorkflow, "train-"))
		require.NotEqual(t, s.Modes[0].TrainWorkflow, s.Modes[1].TrainWorkflow)
		require.NotNil(t, s.Data)
		require.Nil(t, s.Modes[1].Checkpoint)
	}, time.Second)
	env.ExecuteWorkflow(workflows.PipelineWorkflow, autoJob())
	require.Equal(t, workflows.Promoted, result(t, env).Outcome)
}
