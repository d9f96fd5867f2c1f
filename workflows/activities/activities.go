package activities

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/temporal"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/workflows"
)

// Config is what activities work with.
type Config struct {
	// Store is the store's URI, handed to child processes.
	Store string
	// WorkDir is a folder for caches and scratch. Losing it costs only time.
	WorkDir string
	// Executable is the child processes' program. Default: this one.
	Executable string
	// Env is appended to the environment of child processes.
	Env []string
	// Repo is the same store, for what runs inside the worker.
	Repo *checkpoints.Repo
	// Base makes the base model that a folder or reference names an artefact of
	// the store.
	Base func(ctx context.Context, base string) (workflows.BaseInfo, error)
	// Report writes a pipeline's report.
	Report func(ctx context.Context, in workflows.ReportInput) (workflows.ReportInfo, error)
	// Log takes what child processes say. Default: the activity's logger.
	Log func(line string)
	// Grace is how long a child may take to commit and end. Default 30 s.
	Grace time.Duration
	// StallAfter is how long work may not advance before heartbeats say so.
	// Default 10 minutes.
	StallAfter time.Duration
}

func (c Config) withDefaults() (Config, error) {
	if c.Executable == "" {
		exe, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("find this program: %w", err)
		}
		c.Executable = exe
	}
	if c.Grace == 0 {
		c.Grace = 30 * time.Second
	}
	if c.StallAfter == 0 {
		c.StallAfter = 10 * time.Minute
	}
	return c, nil
}

// Activities implements [workflows.Activities].
type Activities struct {
	c    Config
	jobs string // folder of locks and crash records
	host string
}

var _ workflows.Activities = (*Activities)(nil)

// New returns activities that work with c.
func New(c Config) (*Activities, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	a := &Activities{c: c, jobs: filepath.Join(c.WorkDir, "jobs")}
	if err := os.MkdirAll(a.jobs, 0o755); err != nil {
		return nil, fmt.Errorf("work folder: %w", err)
	}
	if a.host, err = os.Hostname(); err != nil {
		a.host = "unknown" // it is only shown
	}
	return a, nil
}

// ResolveBase implements [workflows.Activities].
func (a *Activities) ResolveBase(ctx context.Context, in workflows.ResolveBaseInput) (workflows.BaseInfo, error) {
	st := newState("resolve")
	defer a.heartbeat(ctx, st)()
	info, err := a.c.Base(ctx, in.Base)
	return info, failure(err)
}

// TrainAdapter implements [workflows.Activities].
func (a *Activities) TrainAdapter(ctx context.Context, in workflows.TrainInput) (workflows.CheckpointInfo, error) {
	args, err := a.c.trainArgs(in)
	if err != nil {
		return workflows.CheckpointInfo{}, err
	}
	return runChild(ctx, a, "", args, func(o workflows.CheckpointInfo) error { return checkArtefact(o.Ref, o.Digest) })
}

// EvaluateCheckpoint implements [workflows.Activities].
func (a *Activities) EvaluateCheckpoint(ctx context.Context, in workflows.EvalInput) (workflows.EvaluationInfo, error) {
	args, err := a.c.evalArgs(in)
	if err != nil {
		return workflows.EvaluationInfo{}, err
	}
	return runChild(ctx, a, "", args, func(o workflows.EvaluationInfo) error { return checkArtefact(o.Ref, o.Digest) })
}

// PromoteCheckpoint implements [workflows.Activities].
func (a *Activities) PromoteCheckpoint(ctx context.Context, in workflows.PromoteInput) (workflows.PromotionInfo, error) {
	defer a.heartbeat(ctx, newState("promote"))()
	p, err := a.c.Repo.Promote(ctx, in.Alias, checkpoints.PromoteRequest{
		ID: in.RequestID, Ref: in.Ref, Who: in.Who, Why: in.Why, Evidence: in.EvidenceRefs,
	})
	if err != nil {
		return workflows.PromotionInfo{}, failure(err)
	}
	return workflows.PromotionInfo{Alias: p.Alias, Generation: p.Generation, Ref: p.Ref}, nil
}

// BuildReport implements [workflows.Activities].
func (a *Activities) BuildReport(ctx context.Context, in workflows.ReportInput) (workflows.ReportInfo, error) {
	defer a.heartbeat(ctx, newState("report"))()
	info, err := a.c.Report(ctx, in)
	return info, failure(err)
}

// runChild runs a child process for the activity of ctx and decodes its result.
// piece tells the pieces of work of one workflow from each other.
func runChild[T any](ctx context.Context, a *Activities, piece string, args []string, check func(T) error) (T, error) {
	var out T
	st := newState("start")
	defer a.heartbeat(ctx, st)()
	// A workflow that was started by hand may have any id, of any length.
	job := specstream.DigestBytes([]byte(activity.GetInfo(ctx).WorkflowExecution.ID + piece)).Hex()[:32]
	b, err := a.exclusive(ctx, job, args, st)
	if err == nil {
		if err = json.Unmarshal(b, &out); err == nil {
			err = check(out)
		}
		if err != nil {
			err = fmt.Errorf("%s: its result: %w", args[0], err)
		}
	}
	if errors.Is(err, errCrashed) {
		n, noteErr := noteCrash(a.jobs, job, st.at())
		if noteErr != nil {
			return out, errors.Join(err, noteErr)
		}
		if n >= maxCrashes {
			return out, temporal.NewNonRetryableApplicationError(fmt.Sprintf("%d times at %s %d: %v", n, st.at().Stage, st.at().Step, err), workflows.Crashed, nil)
		}
	}
	if err != nil {
		return out, failure(err)
	}
	return out, forgetCrashes(a.jobs, job)
}

// exclusive runs the child under the job's lock. An attempt that was given up,
// because its worker was silent for too long, may still be running on this very
// machine; beside it this one would only waste time, since its commits are fenced.
func (a *Activities) exclusive(ctx context.Context, job string, args []string, st *state) ([]byte, error) {
	lock, err := lockJob(ctx, activity.GetWorkerStopChannel(ctx), filepath.Join(a.jobs, job+".lock"))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	log := a.c.Log
	if log == nil {
		logger := activity.GetLogger(ctx)
		log = func(line string) { logger.Info(line, "child", args[0]) }
	}
	c := &child{path: a.c.Executable, args: args, env: a.c.Env, lock: lock, state: st, log: log, grace: a.c.Grace}
	return c.run(ctx, activity.GetWorkerStopChannel(ctx))
}

func checkArtefact(r specstream.Ref, d specstream.Digest) error {
	if _, err := specstream.ParseRef(r.String()); err != nil {
		return err
	}
	return d.Validate()
}

// heartbeat reports st until the function it returns is called. Cancellation
// comes with the answers, so it goes on while a cancelled child is being stopped.
func (a *Activities) heartbeat(ctx context.Context, st *state) (stop func()) {
	logger := activity.GetLogger(ctx)
	beat := context.WithoutCancel(ctx)
	quit, ended := make(chan struct{}), make(chan struct{})
	every := heartbeatInterval(activity.GetInfo(ctx).HeartbeatTimeout)
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		stalled := false
		for {
			h := st.heartbeat(a.host, a.c.StallAfter)
			if h.Stalled != stalled {
				stalled = h.Stalled
				logger.Warn("progress", "stalled", stalled, "stage", h.Stage, "step", h.Step, "idle_seconds", h.IdleSeconds)
			}
			activity.RecordHeartbeat(beat, h)
			select {
			case <-quit:
				return
			case <-tick.C:
			}
		}
	}()
	return func() {
		close(quit)
		<-ended
	}
}

// heartbeatInterval leaves room for several lost heartbeats within the time-out.
func heartbeatInterval(timeout time.Duration) time.Duration {
	if timeout <= 0 {
		return 5 * time.Second
	}
	return min(max(timeout/5, 50*time.Millisecond), 5*time.Second)
}

// failure turns an error into what the retry policy knows.
func failure(err error) error {
	switch {
	case err == nil:
		return nil
	case specstream.BadInput(err),
		// Neither mends itself: the artefact is not there, is damaged at rest, or
		// the request is another's.
		errors.Is(err, checkpoints.ErrNotFound), errors.Is(err, checkpoints.ErrCorrupt), errors.Is(err, checkpoints.ErrConflict):
		return temporal.NewNonRetryableApplicationError(err.Error(), workflows.BadInput, nil)
	case errors.Is(err, specstream.ErrDrained):
		return temporal.NewApplicationError(err.Error(), workflows.Drained)
	}
	return err
}
