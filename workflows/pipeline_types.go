package workflows

import (
	"time"

	"github.com/specstream/specstream"
)

// Stage is where a pipeline is.
type Stage string

// The stages of a pipeline, in order. A pipeline may end after any of them.
const (
	StageResolve Stage = "resolving_base"
	StageIngest  Stage = "ingesting"
	StageTrain   Stage = "training" // and evaluating, mode by mode
	StageGates   Stage = "gates"
	StageApprove Stage = "awaiting_approval"
	StagePromote Stage = "promoting"
	StageReport  Stage = "reporting"
	StageDone    Stage = "done"
)

// Stages of one mode within [StageTrain].
const (
	ModeQueued     = "queued"
	ModeTraining   = "training"
	ModeEvaluating = "evaluating"
	ModeDone       = "done"
)

// Outcome says how a pipeline ended. All four are decisions, not failures: the
// workflow completes, and its result says which.
type Outcome string

// The ends a pipeline can come to, and Pending before it has.
const (
	Pending    Outcome = "pending"
	Promoted   Outcome = "promoted"
	GateFailed Outcome = "gate_failed"
	Rejected   Outcome = "rejected"
	Expired    Outcome = "expired"
)

// Status answers [StatusQuery].
type Status struct {
	Name    string            `json:"name"`
	Job     specstream.Digest `json:"job"`
	Stage   Stage             `json:"stage"`
	Since   time.Time         `json:"since"` // when the stage began
	Outcome Outcome           `json:"outcome"`
	Base    *BaseInfo         `json:"base,omitempty"`
	Data    *DatasetInfo      `json:"data,omitempty"`
	HoldOut *DatasetInfo      `json:"hold_out,omitempty"`
	Modes   []ModeStatus      `json:"modes"`
	// Waiting is set while a person is asked.
	Waiting   *ApprovalRequest `json:"waiting,omitempty"`
	Decision  *Decision        `json:"decision,omitempty"`
	Promotion *PromotionInfo   `json:"promotion,omitempty"`
	Report    *ReportInfo      `json:"report,omitempty"`
	Warnings  []string         `json:"warnings,omitempty"`
}

// ModeStatus is how far one mode is. The workflow ids are where heartbeats with
// the current step are found.
type ModeStatus struct {
	Stage            string `json:"stage"`
	TrainWorkflow    string `json:"train_workflow,omitempty"`
	EvaluateWorkflow string `json:"evaluate_workflow,omitempty"`
	ModeResult
}

// ModeResult is what one mode came to.
type ModeResult struct {
	Mode       specstream.Mode `json:"mode"`
	Checkpoint *CheckpointInfo `json:"checkpoint,omitempty"`
	Evaluation *EvaluationInfo `json:"evaluation,omitempty"`
	Gates      []GateResult    `json:"gates,omitempty"`
}

// ApprovalRequest is what a person is asked to approve.
type ApprovalRequest struct {
	Evidence
	Mode     specstream.Mode `json:"mode"`
	Alias    string          `json:"alias"`
	Deadline time.Time       `json:"deadline"`
}

// ApproveInput approves exactly the evidence it names.
type ApproveInput struct {
	Evidence
	// Who approves; required.
	Who string `json:"who"`
	Why string `json:"why,omitempty"`
}

// RejectInput turns a checkpoint down. Digests that are given must be those
// waiting.
type RejectInput struct {
	Evidence
	// Who rejects, and Why; both required.
	Who string `json:"who"`
	Why string `json:"why"`
}

// Decision is a person's answer, or that of spec.approval.auto.
type Decision struct {
	Approved bool      `json:"approved"`
	Who      string    `json:"who"`
	Why      string    `json:"why,omitempty"`
	At       time.Time `json:"at"`
	Evidence Evidence  `json:"evidence"`
}

// PipelineResult is the result of [Pipeline].
type PipelineResult struct {
	Name     string            `json:"name"`
	Job      specstream.Digest `json:"job"`
	Outcome  Outcome           `json:"outcome"`
	Base     BaseInfo          `json:"base"`
	Data     DatasetInfo       `json:"data"`
	HoldOut  DatasetInfo       `json:"hold_out"`
	Modes    []ModeResult      `json:"modes"`
	Decision *Decision         `json:"decision,omitempty"`
	// Promotion is set when Outcome is [Promoted].
	Promotion *PromotionInfo `json:"promotion,omitempty"`
	Report    *ReportInfo    `json:"report,omitempty"`
	// Warnings tell what went wrong without changing the outcome.
	Warnings []string `json:"warnings,omitempty"`
}

// Mode returns the result of one mode, nil if the job had none of it.
func (r PipelineResult) Mode(m specstream.Mode) *ModeResult {
	for i := range r.Modes {
		if r.Modes[i].Mode == m {
			return &r.Modes[i]
		}
	}
	return nil
}
