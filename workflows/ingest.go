package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// IngestDataset turns the records of an [IngestInput] into a committed dataset.
func IngestDataset(ctx workflow.Context, input converter.RawValue) (DatasetInfo, error) {
	var in IngestInput
	var out DatasetInfo
	if err := decode(input, &in); err != nil {
		return out, err
	}
	in.Spec, in.Runtime = in.Spec.WithDefaults(), defaultRuntime(in.Runtime)
	if err := in.Spec.Validate(); err != nil {
		return out, badInput(err)
	}
	if err := needRefs([]string{"base"}, in.Base); err != nil {
		return out, err
	}
	ctx, err := longWork(ctx, ComputeQueue, ingestTimeout, in.Runtime, in.Spec.Format)
	if err != nil {
		return out, err
	}
	return out, workflow.ExecuteActivity(ctx, IngestDatasetActivity, in).Get(ctx, &out)
}
