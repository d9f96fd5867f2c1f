package workflows

import (
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/specstream/specstream"
)

// Time-outs and retries.
//
// Infrastructure fails for as long as it fails: an activity is tried again for
// ever, at most retryMax apart, so that killing a worker, its training process,
// the object store or the Temporal server only delays a pipeline. What repeats
// itself is stopped by its kind: [BadInput] and [Crashed] are never retried.
//
// A start-to-close time-out ends one attempt. Heartbeats, not it, notice a lost
// worker, so it is generous. There is no schedule-to-start time-out: work waits
// for a slot as long as it must.
const (
	retryFirst = time.Second
	retryMax   = time.Minute

	// resolveTimeout covers hashing and uploading a base's weights.
	resolveTimeout = 6 * time.Hour
	ingestTimeout  = 2 * 24 * time.Hour
	trainTimeout   = 14 * 24 * time.Hour
	evalTimeout    = 2 * 24 * time.Hour
	promoteTimeout = 5 * time.Minute
	reportTimeout  = 10 * time.Minute
	// reportGiveUp ends all attempts at a report: a pipeline's outcome does not
	// hang on its report.
	reportGiveUp = time.Hour

	// A pipeline that finds its child's id taken by another pipeline waits and
	// asks again, first after joinFirst, then twice as long each time up to
	// joinMax, which keeps three days of waiting under 10,000 history events.
	joinFirst = 2 * time.Second
	joinMax   = 5 * time.Minute
)

func retryPolicy() *temporal.RetryPolicy {
	return &temporal.RetryPolicy{
		InitialInterval:        retryFirst,
		BackoffCoefficient:     2,
		MaximumInterval:        retryMax,
		NonRetryableErrorTypes: []string{BadInput, Crashed},
	}
}

// shortHeartbeat is how long a worker may be silent in short work. It can be short
// as well: nothing is lost when an attempt is given up too early.
const shortHeartbeat = 15 * time.Second

// shortWork returns the options of an activity that runs inside the worker.
func shortWork(ctx workflow.Context, timeout time.Duration, summary string) workflow.Context {
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           Queue,
		StartToCloseTimeout: timeout,
		HeartbeatTimeout:    shortHeartbeat,
		RetryPolicy:         retryPolicy(),
		WaitForCancellation: true,
		Summary:             summary,
	})
}

// longWork returns the options of an activity that heartbeats. WaitForCancellation
// makes a cancelled workflow wait until the child process has ended, so that
// nothing runs on behind a job that is reported as cancelled.
func longWork(ctx workflow.Context, queue string, timeout time.Duration, rt specstream.RuntimeSpec, summary string) (workflow.Context, error) {
	heartbeat, err := rt.Heartbeat()
	if err != nil {
		return nil, badInput(err)
	}
	return workflow.WithActivityOptions(ctx, workflow.ActivityOptions{
		TaskQueue:           queue,
		StartToCloseTimeout: timeout,
		HeartbeatTimeout:    heartbeat,
		RetryPolicy:         retryPolicy(),
		WaitForCancellation: true,
		Summary:             summary,
	}), nil
}

// childOptions returns the options of a child workflow.
//
// The reuse policy is ALLOW_DUPLICATE: a finished id may run again. It must,
// since the content behind a local path can have changed and a store can have
// been cleaned; and it may, since activities find committed results instead of
// making them again. What is excluded is two open runs of one id.
//
// A parent that is terminated asks its children to cancel, rather than
// terminating them, so that their processes are stopped in order.
func childOptions(ctx workflow.Context, id, summary string) workflow.Context {
	return workflow.WithChildOptions(ctx, workflow.ChildWorkflowOptions{
		WorkflowID:            id,
		TaskQueue:             Queue,
		WaitForCancellation:   true,
		WorkflowIDReusePolicy: enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		ParentClosePolicy:     enumspb.PARENT_CLOSE_POLICY_REQUEST_CANCEL,
		StaticSummary:         summary,
	})
}

// defaultRuntime completes the runtime of a workflow that was started by hand.
func defaultRuntime(rt specstream.RuntimeSpec) specstream.RuntimeSpec {
	if rt.HeartbeatTimeout == "" {
		rt.HeartbeatTimeout = "2m"
	}
	return rt
}
