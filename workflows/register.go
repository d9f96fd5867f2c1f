package workflows

import (
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/activity"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"
	"go.temporal.io/sdk/workflow"

	"github.com/specstream/specstream"
)

// Register registers the workflows under the names users start them by.
func Register(r worker.WorkflowRegistry) {
	for _, w := range []struct {
		name string
		fn   any
	}{
		{PipelineWorkflow, Pipeline},
		{IngestDatasetWorkflow, IngestDataset},
		{TrainAdapterWorkflow, TrainAdapter},
		{EvaluateCheckpointWorkflow, EvaluateCheckpoint},
		{PromoteCheckpointWorkflow, PromoteCheckpoint},
	} {
		r.RegisterWorkflowWithOptions(w.fn, workflow.RegisterOptions{Name: w.name})
	}
}

// RegisterShort registers the activities of [Queue].
func RegisterShort(r worker.ActivityRegistry, a Activities) {
	r.RegisterActivityWithOptions(a.ResolveBase, activity.RegisterOptions{Name: ResolveBaseActivity})
	r.RegisterActivityWithOptions(a.PromoteCheckpoint, activity.RegisterOptions{Name: PromoteCheckpointActivity})
	r.RegisterActivityWithOptions(a.BuildReport, activity.RegisterOptions{Name: BuildReportActivity})
}

// RegisterCompute registers the activities of [ComputeQueue].
func RegisterCompute(r worker.ActivityRegistry, a Activities) {
	r.RegisterActivityWithOptions(a.PlanDataset, activity.RegisterOptions{Name: PlanDatasetActivity})
	r.RegisterActivityWithOptions(a.SignPart, activity.RegisterOptions{Name: SignPartActivity})
	r.RegisterActivityWithOptions(a.ResolveDuplicates, activity.RegisterOptions{Name: ResolveDuplicatesActivity})
	r.RegisterActivityWithOptions(a.ProcessPart, activity.RegisterOptions{Name: ProcessPartActivity})
	r.RegisterActivityWithOptions(a.CommitDataset, activity.RegisterOptions{Name: CommitDatasetActivity})
	r.RegisterActivityWithOptions(a.TrainAdapter, activity.RegisterOptions{Name: TrainAdapterActivity})
	r.RegisterActivityWithOptions(a.EvaluateCheckpoint, activity.RegisterOptions{Name: EvaluateCheckpointActivity})
}

// StartOptions returns how a pipeline is started so that the same order given
// twice is one job: its id is derived from the completed spec's digest, and a
// second start while it runs joins it. A spec that is not valid is an
// [specstream.InputError].
//
// Pipelines started by other means may have any id.
func StartOptions(spec specstream.JobSpec) (client.StartWorkflowOptions, error) {
	spec = spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return client.StartWorkflowOptions{}, err
	}
	id, err := PipelineID(spec)
	if err != nil {
		return client.StartWorkflowOptions{}, err
	}
	return client.StartWorkflowOptions{
		ID:                       id,
		TaskQueue:                Queue,
		WorkflowIDConflictPolicy: enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING,
		WorkflowIDReusePolicy:    enumspb.WORKFLOW_ID_REUSE_POLICY_ALLOW_DUPLICATE,
		StaticSummary:            spec.Name,
		Memo:                     map[string]any{"name": spec.Name},
	}, nil
}

// PipelineID returns the workflow id of a completed spec.
func PipelineID(spec specstream.JobSpec) (string, error) {
	d, err := spec.Digest()
	if err != nil {
		return "", err
	}
	return "pipeline-" + d.Hex()[:32], nil
}
