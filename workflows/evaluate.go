package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// EvaluateCheckpoint measures the checkpoint of an [EvalInput] on held-out
// prompts.
func EvaluateCheckpoint(ctx workflow.Context, input converter.RawValue) (EvaluationInfo, error) {
	var in EvalInput
	var out EvaluationInfo
	if err := decode(input, &in); err != nil {
		return out, err
	}
	in.Spec, in.Runtime = in.Spec.WithDefaults(), defaultRuntime(in.Runtime)
	if err := in.Spec.Validate(); err != nil {
		return out, badInput(err)
	}
	if err := needRefs([]string{"checkpoint", "base", "hold_out"}, in.Checkpoint, in.Base, in.HoldOut); err != nil {
		return out, err
	}
	ctx, err := longWork(ctx, ComputeQueue, evalTimeout, in.Runtime, in.Checkpoint.Digest.Short())
	if err != nil {
		return out, err
	}
	return out, workflow.ExecuteActivity(ctx, EvaluateCheckpointActivity, in).Get(ctx, &out)
}
