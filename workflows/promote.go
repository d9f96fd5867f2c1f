package workflows

import (
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/specstream/specstream"
)

// PromoteCheckpoint points the alias of a [PromoteInput] at its checkpoint.
func PromoteCheckpoint(ctx workflow.Context, input converter.RawValue) (PromotionInfo, error) {
	var in PromoteInput
	var out PromotionInfo
	if err := decode(input, &in); err != nil {
		return out, err
	}
	switch {
	case in.Alias == "":
		return out, badInput(specstream.Invalid("alias", "no alias is named"))
	case in.Who == "":
		return out, badInput(specstream.Invalid("who", "say who promotes"))
	}
	if err := needRefs([]string{"ref"}, in.Ref); err != nil {
		return out, err
	}
	if in.RequestID == "" {
		in.RequestID = requestID(ctx)
	}
	ctx = shortWork(ctx, promoteTimeout, in.Alias)
	return out, workflow.ExecuteActivity(ctx, PromoteCheckpointActivity, in).Get(ctx, &out)
}

// requestID identifies this workflow run, the same after a reset as before.
func requestID(ctx workflow.Context) string {
	info := workflow.GetInfo(ctx)
	return info.WorkflowExecution.ID + "/" + info.OriginalRunID
}
