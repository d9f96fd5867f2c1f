package activities

import (
	"context"
	"fmt"
	"strconv"

	"github.com/specstream/specstream/workflows"
)

// ingest runs one step of an ingestion in a child process. Steps of one
// ingestion may run side by side on one machine.
func ingest[T any](ctx context.Context, a *Activities, stage string, in workflows.IngestStep, check func(T) error) (T, error) {
	args, err := a.c.ingestArgs(stage, in)
	if err != nil {
		var none T
		return none, err
	}
	return runChild(ctx, a, "/"+stage+"/"+strconv.Itoa(in.Part), args, check)
}

// PlanDataset implements [workflows.Activities].
func (a *Activities) PlanDataset(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPlan, error) {
	return ingest(ctx, a, "plan", in, func(p workflows.DatasetPlan) error {
		if p.Dataset != nil {
			return checkArtefact(p.Dataset.Ref, p.Dataset.Digest)
		}
		return p.Plan.Validate()
	})
}

// SignPart implements [workflows.Activities].
func (a *Activities) SignPart(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPart, error) {
	return ingest(ctx, a, "sign", in, checkPart)
}

// ResolveDuplicates implements [workflows.Activities].
func (a *Activities) ResolveDuplicates(ctx context.Context, in workflows.IngestStep) (workflows.DatasetDuplicates, error) {
	return ingest(ctx, a, "resolve", in, func(d workflows.DatasetDuplicates) error { return d.Resolution.Validate() })
}

// ProcessPart implements [workflows.Activities].
func (a *Activities) ProcessPart(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPart, error) {
	return ingest(ctx, a, "process", in, checkPart)
}

// CommitDataset implements [workflows.Activities].
func (a *Activities) CommitDataset(ctx context.Context, in workflows.IngestStep) (workflows.DatasetInfo, error) {
	return ingest(ctx, a, "commit", in, func(d workflows.DatasetInfo) error { return checkArtefact(d.Ref, d.Digest) })
}

func checkPart(p workflows.DatasetPart) error {
	if p.Records < 0 || p.Bytes < 0 {
		return fmt.Errorf("%d records of %d bytes", p.Records, p.Bytes)
	}
	return nil
}
