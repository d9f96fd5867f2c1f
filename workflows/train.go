package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// TrainAdapter trains the adapter of a [TrainInput] and commits its checkpoint.
// A lost attempt costs what was done since the last resumable state.
func TrainAdapter(ctx workflow.Context, input converter.RawValue) (CheckpointInfo, error) {
	var in TrainInput
	var out CheckpointInfo
	if err := decode(input, &in); err != nil {
		return out, err
	}
	in.Spec, in.Runtime = in.Spec.WithDefaults(), defaultRuntime(in.Runtime)
	if err := in.Spec.Validate(); err != nil {
		return out, badInput(err)
	}
	if err := needRefs([]string{"base", "dataset"}, in.Base, in.Dataset); err != nil {
		return out, err
	}
	ctx, err := longWork(ctx, ComputeQueue, trainTimeout, in.Runtime, string(in.Spec.Mode))
	if err != nil {
		return out, err
	}
	return out, workflow.ExecuteActivity(ctx, TrainAdapterActivity, in).Get(ctx, &out)
}
