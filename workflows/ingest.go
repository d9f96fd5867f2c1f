package workflows

import (
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"
)

// Bounds of an ingestion's fan-out. How many parts are worked on at once is for
// the compute queue's slots to decide.
const (
	// partsAhead is how many parts are handed out before the first of them is done.
	partsAhead = 200
	// partsPerRun is how many parts one run of the workflow does before it goes
	// on as a new one, which keeps a history under about 4,000 events.
	partsPerRun = 500
)

// ingestion is the state of one run of [IngestDataset].
type ingestion struct {
	in     IngestInput
	at     IngestState
	status IngestStatus
	began  time.Time // of the stage, in this run
	bytes  int64     // done of the stage, in this run
	count  int64     // records, likewise
}

// IngestDataset turns the records of an [IngestInput] into a committed dataset.
// Inputs are cut into parts, which any number of workers share; what is done
// already is not done again. Inputs of a single part are one activity.
func IngestDataset(ctx workflow.Context, input converter.RawValue) (DatasetInfo, error) {
	g := &ingestion{}
	if err := decode(input, &g.in); err != nil {
		return DatasetInfo{}, err
	}
	g.in.Spec, g.in.Runtime = g.in.Spec.WithDefaults(), defaultRuntime(g.in.Runtime)
	if err := g.in.Spec.Validate(); err != nil {
		return DatasetInfo{}, badInput(err)
	}
	if err := needRefs([]string{"base"}, g.in.Base); err != nil {
		return DatasetInfo{}, err
	}
	if err := workflow.SetQueryHandler(ctx, StatusQuery, func() (IngestStatus, error) { return g.status, nil }); err != nil {
		return DatasetInfo{}, err
	}
	if g.in.State != nil {
		g.at = *g.in.State
	}
	return g.run(ctx)
}

func (g *ingestion) run(ctx workflow.Context) (out DatasetInfo, err error) {
	if g.at.Plan == "" {
		var p DatasetPlan
		if err := g.step(ctx, PlanDatasetActivity, IngestPlan, 0, &p); err != nil {
			return out, err
		}
		if p.Dataset != nil {
			g.enter(ctx, IngestDone)
			return *p.Dataset, nil
		}
		g.at = IngestState{Plan: p.Plan, Parts: p.Parts, Bytes: p.Bytes, Stage: IngestProcess, Pending: p.Pending}
		if p.Dedupes {
			g.at.Stage = IngestSign
		}
	}
	if g.at.Stage == IngestSign {
		if err := g.parts(ctx, SignPartActivity); err != nil {
			return out, err
		}
		var d DatasetDuplicates
		if err := g.step(ctx, ResolveDuplicatesActivity, IngestResolve, 0, &d); err != nil {
			return out, err
		}
		g.at.Resolution, g.at.Stage, g.at.Pending = d.Resolution, IngestProcess, d.Pending
	}
	if err := g.parts(ctx, ProcessPartActivity); err != nil {
		return out, err
	}
	if err := g.step(ctx, CommitDatasetActivity, IngestCommit, 0, &out); err != nil {
		return out, err
	}
	g.enter(ctx, IngestDone)
	return out, nil
}

// parts does the pending parts of the stage. The failure of the least part is
// the one that is returned, so that it does not depend on timing.
func (g *ingestion) parts(ctx workflow.Context, activity string) error {
	g.enter(ctx, g.at.Stage)
	pending := flatten(g.at.Pending)
	g.status.Done, g.status.BytesDone = g.at.Parts-len(pending), g.at.BytesDone
	run, cancel := workflow.WithCancel(ctx)
	defer cancel()
	var results []workflow.Future // of the parts handed out and not seen done, in order
	ahead := 0
	for done := range pending {
		if done == partsPerRun {
			g.at.Pending, g.at.BytesDone = ranges(pending[done:]), g.status.BytesDone
			return g.renew(ctx)
		}
		for ; ahead < min(len(pending), partsPerRun) && ahead < done+partsAhead; ahead++ {
			f, err := g.start(run, activity, pending[ahead])
			if err != nil {
				return err
			}
			results = append(results, f)
		}
		var p DatasetPart
		if err := results[0].Get(ctx, &p); err != nil {
			cancel()
			for _, f := range results[1:] { // nothing runs on behind a failed job
				_ = f.Get(ctx, nil)
			}
			return err
		}
		results = results[1:]
		g.advance(ctx, p)
	}
	g.at.Pending, g.at.BytesDone = nil, 0
	return nil
}

// renew goes on in a new run of the workflow.
func (g *ingestion) renew(ctx workflow.Context) error {
	next := g.in
	next.State = &g.at
	return workflow.NewContinueAsNewError(ctx, IngestDatasetWorkflow, next)
}

// start begins an activity of the stage.
func (g *ingestion) start(ctx workflow.Context, activity string, part int) (workflow.Future, error) {
	ctx, err := longWork(ctx, ComputeQueue, ingestTimeout, g.in.Runtime, g.in.Spec.Format)
	if err != nil {
		return nil, err
	}
	in := IngestStep{Spec: g.in.Spec, Base: g.in.Base, Plan: g.at.Plan, Resolution: g.at.Resolution, Part: part}
	return workflow.ExecuteActivity(ctx, activity, in), nil
}

// step does a stage that is one activity.
func (g *ingestion) step(ctx workflow.Context, activity string, stage IngestStage, part int, out any) error {
	g.enter(ctx, stage)
	f, err := g.start(ctx, activity, part)
	if err != nil {
		return err
	}
	return f.Get(ctx, out)
}

func (g *ingestion) enter(ctx workflow.Context, s IngestStage) {
	now := workflow.Now(ctx)
	g.status = IngestStatus{Stage: s, Since: now.UTC(), Parts: g.at.Parts, Bytes: g.at.Bytes}
	if s == IngestDone || s == IngestCommit {
		g.status.Done, g.status.BytesDone = g.at.Parts, g.at.Bytes
	}
	g.began, g.bytes, g.count = now, 0, 0
	workflow.GetLogger(ctx).Info("stage", "stage", s, "parts", g.at.Parts)
}

// advance counts a part that is done.
func (g *ingestion) advance(ctx workflow.Context, p DatasetPart) {
	s := &g.status
	g.bytes += p.Bytes
	g.count += p.Records
	s.Done++
	s.BytesDone += p.Bytes
	seconds := workflow.Now(ctx).Sub(g.began).Seconds()
	if seconds <= 0 || g.bytes == 0 {
		return
	}
	s.RecordsPerSecond = float64(g.count) / seconds
	s.MBPerSecond = float64(g.bytes) / 1e6 / seconds
	s.ETASeconds = float64(s.Bytes-s.BytesDone) / float64(g.bytes) * seconds
}
