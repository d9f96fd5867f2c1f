package workflows

import (
	"fmt"
	"time"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/workflow"

	"github.com/specstream/specstream"
)

// handleApproval registers the approve and reject updates. Their validators run
// before anything is recorded: a request that names other digests than those
// waiting is refused and leaves no trace.
func (p *pipeline) handleApproval(ctx workflow.Context) error {
	approve := func(ctx workflow.Context, raw converter.RawValue) (Decision, error) {
		in, err := p.checkApprove(raw)
		if err != nil {
			return Decision{}, err
		}
		return p.decide(ctx, true, in.Who, in.Why), nil
	}
	reject := func(ctx workflow.Context, raw converter.RawValue) (Decision, error) {
		in, err := p.checkReject(raw)
		if err != nil {
			return Decision{}, err
		}
		return p.decide(ctx, false, in.Who, in.Why), nil
	}
	err := workflow.SetUpdateHandlerWithOptions(ctx, ApproveUpdate, approve, workflow.UpdateHandlerOptions{
		Description: "approve the checkpoint that is waiting; names the digests of job, dataset, checkpoint and evaluation",
		Validator: func(raw converter.RawValue) error {
			_, err := p.checkApprove(raw)
			return err
		},
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", ApproveUpdate, err)
	}
	err = workflow.SetUpdateHandlerWithOptions(ctx, RejectUpdate, reject, workflow.UpdateHandlerOptions{
		Description: "reject the checkpoint that is waiting, with a reason",
		Validator: func(raw converter.RawValue) error {
			_, err := p.checkReject(raw)
			return err
		},
	})
	if err != nil {
		return fmt.Errorf("register %s: %w", RejectUpdate, err)
	}
	return nil
}

// checkApprove decodes an approval and compares every digest with those waiting.
func (p *pipeline) checkApprove(raw converter.RawValue) (ApproveInput, error) {
	var in ApproveInput
	if err := decode(raw, &in); err != nil {
		return in, err
	}
	if in.Who == "" {
		return in, badInput(specstream.Invalid("who", "say who approves"))
	}
	return in, p.checkEvidence(in.Evidence, true)
}

// checkReject decodes a rejection; digests it leaves out are not compared.
func (p *pipeline) checkReject(raw converter.RawValue) (RejectInput, error) {
	var in RejectInput
	if err := decode(raw, &in); err != nil {
		return in, err
	}
	if in.Who == "" {
		return in, badInput(specstream.Invalid("who", "say who rejects"))
	}
	if in.Why == "" {
		return in, badInput(specstream.Invalid("why", "give the reason"))
	}
	return in, p.checkEvidence(in.Evidence, false)
}

func (p *pipeline) checkEvidence(got Evidence, all bool) error {
	if p.status.Waiting == nil || p.status.Decision != nil {
		return badInput(fmt.Errorf("nothing is waiting for approval: the pipeline is at stage %q", p.status.Stage))
	}
	want := p.status.Waiting.Evidence
	for _, d := range []struct {
		field     string
		got, want specstream.Digest
	}{
		{"job", got.Job, want.Job},
		{"dataset", got.Dataset, want.Dataset},
		{"checkpoint", got.Checkpoint, want.Checkpoint},
		{"evaluation", got.Evaluation, want.Evaluation},
	} {
		if d.got == "" && !all {
			continue
		}
		if d.got != d.want {
			return badInput(specstream.Invalid(d.field, "%q is not what is waiting, which is %q; look at it before deciding", d.got, d.want))
		}
	}
	return nil
}

func (p *pipeline) decide(ctx workflow.Context, approved bool, who, why string) Decision {
	d := Decision{Approved: approved, Who: who, Why: why, At: workflow.Now(ctx).UTC(), Evidence: p.status.Waiting.Evidence}
	p.status.Decision = &d
	return d
}

// awaitApproval asks for a decision about the promoted mode's checkpoint and
// waits for it, at most for the time the job allows. It returns what became of
// the request.
func (p *pipeline) awaitApproval(ctx workflow.Context, m *ModeStatus) (Outcome, error) {
	wait, err := p.spec.Approval.Wait()
	if err != nil {
		return Pending, badInput(err)
	}
	p.status.Waiting = &ApprovalRequest{
		Evidence: Evidence{
			Job:        p.status.Job,
			Dataset:    p.status.Data.Digest,
			Checkpoint: m.Checkpoint.Digest,
			Evaluation: m.Evaluation.Digest,
		},
		Mode: m.Mode, Alias: p.spec.Alias,
		Deadline: workflow.Now(ctx).Add(wait).UTC().Truncate(time.Second),
	}
	defer func() { p.status.Waiting = nil }()
	if p.spec.Approval.Auto {
		p.decide(ctx, true, "auto", "the job's approval.auto is set")
	} else {
		p.enter(ctx, StageApprove)
		// Someone who is asked for a decision is given the report to decide from.
		p.buildReport(ctx, Pending)
		_, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{Timeout: wait, TimerOptions: workflow.TimerOptions{Summary: "approval expires"}},
			func() bool { return p.status.Decision != nil })
		if err != nil {
			return Pending, err
		}
	}
	// A decision that came in with the timer's last event still counts.
	switch d := p.status.Decision; {
	case d == nil:
		return Expired, nil
	case !d.Approved:
		return Rejected, nil
	default:
		return Promoted, nil
	}
}
