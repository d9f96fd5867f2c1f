package workflows

import (
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/specstream/specstream"
)

// pipeline is the state of one run of [Pipeline]. Its status is all there is to
// know about it.
type pipeline struct {
	spec   specstream.JobSpec
	status Status
}

// Pipeline runs one [specstream.JobSpec] from data to a promoted checkpoint. Its
// input is the spec's JSON; see [Outcome] for the ways it ends.
func Pipeline(ctx workflow.Context, input converter.RawValue) (PipelineResult, error) {
	p := &pipeline{}
	if err := p.start(ctx, input); err != nil {
		return PipelineResult{}, err
	}
	outcome, err := p.run(ctx)
	if err != nil {
		return PipelineResult{}, err
	}
	p.status.Outcome = outcome
	p.enter(ctx, StageReport)
	p.buildReport(ctx, outcome)
	p.enter(ctx, StageDone)
	// An update that was accepted must be answered before the workflow ends.
	if err := workflow.Await(ctx, func() bool { return workflow.AllHandlersFinished(ctx) }); err != nil {
		return PipelineResult{}, err
	}
	return p.result(), nil
}

// start decodes and completes the spec and begins to answer queries and updates.
func (p *pipeline) start(ctx workflow.Context, input converter.RawValue) error {
	if err := decode(input, &p.spec); err != nil {
		return err
	}
	p.spec = p.spec.WithDefaults()
	if err := p.spec.Validate(); err != nil {
		return badInput(err)
	}
	job, err := p.spec.Digest()
	if err != nil {
		return badInput(err)
	}
	p.status = Status{Name: p.spec.Name, Job: job, Outcome: Pending}
	for _, m := range p.spec.Modes {
		p.status.Modes = append(p.status.Modes, ModeStatus{Stage: ModeQueued, ModeResult: ModeResult{Mode: m}})
	}
	if err := workflow.SetQueryHandler(ctx, StatusQuery, func() (Status, error) { return p.status, nil }); err != nil {
		return fmt.Errorf("register %s: %w", StatusQuery, err)
	}
	return p.handleApproval(ctx)
}

// run does the work up to and including the promotion.
func (p *pipeline) run(ctx workflow.Context) (Outcome, error) {
	p.enter(ctx, StageResolve)
	if err := p.resolveBase(ctx); err != nil {
		return Pending, explain("base model", err)
	}
	p.enter(ctx, StageIngest)
	if err := p.ingest(ctx); err != nil {
		return Pending, err
	}
	p.enter(ctx, StageTrain)
	var work []func(workflow.Context) error
	for i := range p.status.Modes {
		m := &p.status.Modes[i]
		work = append(work, func(ctx workflow.Context) error {
			return explain(string(m.Mode), p.trainAndEvaluate(ctx, m))
		})
	}
	// Modes are asked for together; the compute queue's slots decide how many
	// run at once.
	if err := parallel(ctx, work...); err != nil {
		return Pending, err
	}
	p.enter(ctx, StageGates)
	var promoted *ModeStatus
	for i := range p.status.Modes {
		m := &p.status.Modes[i]
		m.Gates = Gates(p.spec.Gates, m.Mode, *m.Evaluation)
		if m.Mode == p.spec.Promote {
			promoted = m
		}
	}
	if !gatesPassed(p.spec.Promote, p.status.Modes) {
		return GateFailed, nil
	}
	outcome, err := p.awaitApproval(ctx, promoted)
	if err != nil || outcome != Promoted {
		return outcome, err
	}
	p.enter(ctx, StagePromote)
	return Promoted, explain("promote", p.promote(ctx, promoted))
}

func (p *pipeline) resolveBase(ctx workflow.Context) error {
	ctx, err := longWork(ctx, Queue, resolveTimeout, p.spec.Runtime, "")
	if err != nil {
		return err
	}
	var base BaseInfo
	if err := workflow.ExecuteActivity(ctx, ResolveBaseActivity, ResolveBaseInput{Base: p.spec.Base}).Get(ctx, &base); err != nil {
		return err
	}
	p.status.Base = &base
	return nil
}

// ingest makes the training data and the hold-out. A job that names the same
// spec for both ingests it once.
func (p *pipeline) ingest(ctx workflow.Context) error {
	one := func(name string, spec specstream.DataSpec, out **DatasetInfo) (string, func(workflow.Context) error, error) {
		id, err := IngestID(spec, p.status.Base.Digest)
		return id, func(ctx workflow.Context) error {
			var info DatasetInfo
			in := IngestInput{Spec: spec, Base: p.status.Base.Ref, Runtime: p.spec.Runtime}
			if err := runChild(ctx, IngestDatasetWorkflow, id, name, in, &info); err != nil {
				return explain(name, err)
			}
			*out = &info
			return nil
		}, err
	}
	dataID, data, err := one("data", p.spec.Data, &p.status.Data)
	if err != nil {
		return badInput(err)
	}
	holdOutID, holdOut, err := one("hold_out", p.spec.HoldOut, &p.status.HoldOut)
	if err != nil {
		return badInput(err)
	}
	if dataID == holdOutID {
		if err := data(ctx); err != nil {
			return err
		}
		p.status.HoldOut = p.status.Data
		p.warn(ctx, "the hold-out is the training data: acceptance is overstated")
		return nil
	}
	if err := parallel(ctx, data, holdOut); err != nil {
		return err
	}
	if p.status.Data.Digest == p.status.HoldOut.Digest {
		p.warn(ctx, "the hold-out equals the training data: acceptance is overstated")
	}
	return nil
}

func (p *pipeline) trainAndEvaluate(ctx workflow.Context, m *ModeStatus) error {
	base, data, holdOut := p.status.Base, p.status.Data, p.status.HoldOut
	spec := p.spec.TrainFor(m.Mode)
	id, err := TrainID(spec, base.Digest, data.Digest)
	if err != nil {
		return badInput(err)
	}
	m.Stage, m.TrainWorkflow = ModeTraining, id
	var ckpt CheckpointInfo
	in := TrainInput{Spec: spec, Base: base.Ref, Dataset: data.Ref, Runtime: p.spec.Runtime}
	if err := runChild(ctx, TrainAdapterWorkflow, id, "train "+string(m.Mode), in, &ckpt); err != nil {
		return explain("train", err)
	}
	m.Checkpoint = &ckpt

	if id, err = EvaluateID(p.spec.Eval, base.Digest, ckpt.Digest, holdOut.Digest); err != nil {
		return badInput(err)
	}
	m.Stage, m.EvaluateWorkflow = ModeEvaluating, id
	var eval EvaluationInfo
	evalIn := EvalInput{Spec: p.spec.Eval, Checkpoint: ckpt.Ref, Base: base.Ref, HoldOut: holdOut.Ref, Runtime: p.spec.Runtime}
	if err := runChild(ctx, EvaluateCheckpointWorkflow, id, "evaluate "+string(m.Mode), evalIn, &eval); err != nil {
		return explain("evaluate", err)
	}
	m.Evaluation, m.Stage = &eval, ModeDone
	return nil
}

func (p *pipeline) promote(ctx workflow.Context, m *ModeStatus) error {
	// One decision is one request, and its moment tells it from another like it.
	// The run's own id would do too, but a history replayed from a file lacks it.
	request, err := workID("decision", p.status.Decision)
	if err != nil {
		return badInput(err)
	}
	in := PromoteInput{
		Alias: p.spec.Alias, Ref: m.Checkpoint.Ref, RequestID: request,
		Who: p.status.Decision.Who, Why: p.status.Decision.Why, Evidence: p.status.Decision.Evidence,
		EvidenceRefs: []specstream.Ref{m.Evaluation.Ref, p.status.Data.Ref},
	}
	id, err := PromoteID(in)
	if err != nil {
		return badInput(err)
	}
	var info PromotionInfo
	if err := runChild(ctx, PromoteCheckpointWorkflow, id, in.Alias, in, &info); err != nil {
		return err
	}
	p.status.Promotion = &info
	return nil
}

// buildReport writes the report. A failure becomes a warning: what has been
// decided stands without it.
func (p *pipeline) buildReport(ctx workflow.Context, outcome Outcome) {
	var report ReportInfo
	ctx = shortWork(ctx, reportTimeout, string(outcome))
	ctx = workflow.WithScheduleToCloseTimeout(ctx, reportGiveUp)
	err := workflow.ExecuteActivity(ctx, BuildReportActivity, ReportInput{
		Spec: p.spec, Job: p.status.Job, Base: *p.status.Base, Data: *p.status.Data, HoldOut: *p.status.HoldOut,
		Modes: p.modes(), Outcome: outcome, Decision: p.status.Decision, Promotion: p.status.Promotion,
		Started: workflow.GetInfo(ctx).WorkflowStartTime.UTC(),
	}).Get(ctx, &report)
	switch {
	case err == nil:
		p.status.Report = &report
	case !temporal.IsCanceledError(err): // a cancelled wait is told by the caller's next wait
		p.warn(ctx, fmt.Sprintf("the report was not written: %v", err))
	}
}

// enter moves the pipeline to a stage.
func (p *pipeline) enter(ctx workflow.Context, s Stage) {
	p.status.Stage, p.status.Since = s, workflow.Now(ctx).UTC()
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("**%s** job `%s`: %s", p.status.Name, p.status.Job.Short(), s))
	workflow.GetLogger(ctx).Info("stage", "stage", s, "job", p.status.Job.Short())
}

func (p *pipeline) warn(ctx workflow.Context, message string) {
	p.status.Warnings = append(p.status.Warnings, message)
	workflow.GetLogger(ctx).Warn(message)
}

func (p *pipeline) modes() []ModeResult {
	var modes []ModeResult
	for _, m := range p.status.Modes {
		modes = append(modes, m.ModeResult)
	}
	return modes
}

func (p *pipeline) result() PipelineResult {
	s := p.status
	return PipelineResult{
		Name: s.Name, Job: s.Job, Outcome: s.Outcome, Base: *s.Base, Data: *s.Data, HoldOut: *s.HoldOut,
		Modes: p.modes(), Decision: s.Decision, Promotion: s.Promotion, Report: s.Report, Warnings: s.Warnings,
	}
}
