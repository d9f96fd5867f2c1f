package workflows

import (
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/specstream/specstream"
)

// workID names a piece of work by its kind and the digest of all that
// determines its result.
func workID(kind string, determinants ...any) (string, error) {
	d, err := specstream.DigestJSON(determinants)
	if err != nil {
		return "", err
	}
	return kind + "-" + d.Hex()[:32], nil
}

// IngestID names the ingestion of a spec with a base's tokenizer.
func IngestID(spec specstream.DataSpec, base specstream.Digest) (string, error) {
	return workID("ingest", spec.Named(), base)
}

// TrainID names the training of an adapter from the contents of its base and dataset.
func TrainID(spec specstream.TrainSpec, base, dataset specstream.Digest) (string, error) {
	return workID("train", spec.WithDefaults(), base, dataset)
}

// EvaluateID names the evaluation of an adapter on held-out data.
func EvaluateID(spec specstream.EvalSpec, base, checkpoint, holdOut specstream.Digest) (string, error) {
	return workID("evaluate", spec.WithDefaults(), base, checkpoint, holdOut)
}

// PromoteID names one request for promotion.
func PromoteID(in PromoteInput) (string, error) {
	return workID("promote", in.Alias, in.Ref, in.RequestID)
}

// runChild runs a child workflow under an id that names its work. When another
// pipeline is already doing that work, it waits until the id is free and then
// runs the child itself, which finds the other's result committed, or takes the
// work over if the other was cancelled.
func runChild(ctx workflow.Context, workflowType, id, summary string, in, out any) error {
	ctx = childOptions(ctx, id, summary)
	for wait := joinFirst; ; wait = min(2*wait, joinMax) {
		err := workflow.ExecuteChildWorkflow(ctx, workflowType, in).Get(ctx, out)
		if err == nil || !temporal.IsWorkflowExecutionAlreadyStartedError(err) {
			return err
		}
		workflow.GetLogger(ctx).Info("another pipeline is doing this work", "workflow", id, "wait", wait)
		if err := workflow.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// parallel runs functions as coroutines and waits for all of them. The first
// that fails cancels the others, and its error is returned.
func parallel(ctx workflow.Context, fns ...func(ctx workflow.Context) error) error {
	ctx, cancel := workflow.WithCancel(ctx)
	defer cancel()
	wg := workflow.NewWaitGroup(ctx)
	var first error
	for _, fn := range fns {
		wg.Add(1)
		workflow.Go(ctx, func(ctx workflow.Context) {
			defer wg.Done()
			if err := fn(ctx); err != nil && first == nil {
				first = err
				cancel()
			}
		})
	}
	wg.Wait(ctx)
	return first
}
