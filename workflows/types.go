package workflows

import (
	"context"
	"time"

	"github.com/specstream/specstream"
)

// Activities is the work that workflows ask for. Every method may be called
// again after it has succeeded or half succeeded, on another machine, while a
// lost earlier call is still running: it finds what is committed and commits
// the rest under fences.
//
// Input that a user must mend is a non-retryable ApplicationError of type
// [BadInput]; every other error is retried.
type Activities interface {
	// ResolveBase makes the base model named by a folder or a reference an
	// artefact of the store.
	ResolveBase(ctx context.Context, in ResolveBaseInput) (BaseInfo, error)
	// PlanDataset cuts the inputs a spec names into parts. When there is but one,
	// it does all the rest too.
	PlanDataset(ctx context.Context, in IngestStep) (DatasetPlan, error)
	// SignPart makes what duplicates of a part's records are found by.
	SignPart(ctx context.Context, in IngestStep) (DatasetPart, error)
	// ResolveDuplicates finds the duplicates among all parts.
	ResolveDuplicates(ctx context.Context, in IngestStep) (DatasetDuplicates, error)
	// ProcessPart turns a part's records into shards.
	ProcessPart(ctx context.Context, in IngestStep) (DatasetPart, error)
	// CommitDataset joins the parts and commits the dataset.
	CommitDataset(ctx context.Context, in IngestStep) (DatasetInfo, error)
	// TrainAdapter trains an adapter and commits its checkpoint.
	TrainAdapter(ctx context.Context, in TrainInput) (CheckpointInfo, error)
	// EvaluateCheckpoint decodes held-out prompts and commits the measurements.
	EvaluateCheckpoint(ctx context.Context, in EvalInput) (EvaluationInfo, error)
	// PromoteCheckpoint points an alias at a checkpoint. Calls with the same
	// RequestID promote once.
	PromoteCheckpoint(ctx context.Context, in PromoteInput) (PromotionInfo, error)
	// BuildReport writes the HTML report of a pipeline.
	BuildReport(ctx context.Context, in ReportInput) (ReportInfo, error)
}

// ResolveBaseInput names a base model.
type ResolveBaseInput struct {
	// Base is a Hugging Face folder on the worker's disk, or KEY@DIGEST.
	Base string `json:"base"`
}

// BaseInfo describes a base model in the store.
type BaseInfo struct {
	Ref specstream.Ref `json:"ref"`
	// Digest names the base's content: configuration, weights and tokenizer.
	Digest specstream.Digest `json:"digest"`
	// Tokenizer is the digest of tokenizer.json.
	Tokenizer specstream.Digest `json:"tokenizer"`
	Config    BaseConfig        `json:"config"`
}

// BaseConfig is the part of a base's configuration worth showing.
type BaseConfig struct {
	ModelType string `json:"model_type"`
	Layers    int    `json:"layers"`
	Hidden    int    `json:"hidden"`
	Heads     int    `json:"heads"`
	KVHeads   int    `json:"kv_heads"`
	Vocab     int    `json:"vocab"`
}

// TrainInput asks for an adapter.
type TrainInput struct {
	Spec    specstream.TrainSpec   `json:"spec"`
	Base    specstream.Ref         `json:"base"`
	Dataset specstream.Ref         `json:"dataset"`
	Runtime specstream.RuntimeSpec `json:"runtime,omitzero"`
}

// CheckpointInfo describes a committed checkpoint.
type CheckpointInfo struct {
	Ref specstream.Ref `json:"ref"`
	// Digest names the adapter's content: equal weights give equal digests.
	Digest    specstream.Digest  `json:"digest"`
	Mode      specstream.Mode    `json:"mode"`
	Steps     int                `json:"steps"`
	FinalLoss float64            `json:"final_loss"`
	Seconds   float64            `json:"seconds"` // spent training, over all attempts that committed
	Metrics   map[string]float64 `json:"metrics,omitempty"`
}

// EvalInput asks for measurements of a checkpoint.
type EvalInput struct {
	Spec       specstream.EvalSpec    `json:"spec"`
	Checkpoint specstream.Ref         `json:"checkpoint"`
	Base       specstream.Ref         `json:"base"`
	HoldOut    specstream.Ref         `json:"hold_out"`
	Runtime    specstream.RuntimeSpec `json:"runtime,omitzero"`
}

// EvaluationInfo describes committed measurements.
type EvaluationInfo struct {
	Ref specstream.Ref `json:"ref"`
	// Digest names the evaluation's content.
	Digest specstream.Digest `json:"digest"`
	Mode   specstream.Mode   `json:"mode"`
	// MeanAcceptedTokens is pooled over prompts: new tokens ÷ target forwards,
	// the bonus token counted.
	MeanAcceptedTokens float64 `json:"mean_accepted_tokens"`
	// NGramMeanAcceptedTokens is the same of a drafter that looks up n-grams in
	// the prompt.
	NGramMeanAcceptedTokens float64 `json:"ngram_mean_accepted_tokens"`
	// Parity is the share of prompts whose output equals autoregressive
	// decoding's, token for token.
	Parity  float64 `json:"parity"`
	Prompts int     `json:"prompts"`
	// ExactMatch is the share of outputs equal to the reference completion.
	ExactMatch float64 `json:"exact_match"`
	// Speedup is tokens/s over autoregressive tokens/s on the same machine.
	Speedup float64            `json:"speedup"`
	Seconds float64            `json:"seconds,omitempty"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// PromoteInput asks for an alias to point at a checkpoint.
type PromoteInput struct {
	Alias string         `json:"alias"`
	Ref   specstream.Ref `json:"ref"`
	// RequestID makes the request repeatable. Default: the identity of the
	// workflow that promotes.
	RequestID string   `json:"request_id,omitempty"`
	Who       string   `json:"who"`
	Why       string   `json:"why,omitempty"`
	Evidence  Evidence `json:"evidence"`
	// EvidenceRefs are the artefacts behind the evidence: the evaluation and the dataset.
	EvidenceRefs []specstream.Ref `json:"evidence_refs,omitempty"`
}

// Evidence is what a decision rests on. An approval names all four, so that
// nobody approves something other than what they looked at.
type Evidence struct {
	Job        specstream.Digest `json:"job"`
	Dataset    specstream.Digest `json:"dataset"`
	Checkpoint specstream.Digest `json:"checkpoint"`
	Evaluation specstream.Digest `json:"evaluation"`
}

// PromotionInfo says what an alias now points at.
type PromotionInfo struct {
	Alias      string         `json:"alias"`
	Generation int64          `json:"generation"`
	Ref        specstream.Ref `json:"ref"`
}

// ReportInput is all that a report tells, by reference where it is large.
type ReportInput struct {
	Spec      specstream.JobSpec `json:"spec"`
	Job       specstream.Digest  `json:"job"`
	Base      BaseInfo           `json:"base"`
	Data      DatasetInfo        `json:"data"`
	HoldOut   DatasetInfo        `json:"hold_out"`
	Modes     []ModeResult       `json:"modes"`
	Outcome   Outcome            `json:"outcome"`
	Decision  *Decision          `json:"decision,omitempty"`
	Promotion *PromotionInfo     `json:"promotion,omitempty"`
	Started   time.Time          `json:"started"`
}

// ReportInfo says where a report is.
type ReportInfo struct {
	Ref specstream.Ref `json:"ref,omitzero"`
	// Path is a file on the worker's disk or a URI.
	Path string `json:"path,omitempty"`
}

// Progress is one line of a child process's progress, and what [Heartbeat]
// carries.
type Progress struct {
	// Stage names what is being done: "load", "train", "commit", "eval", …
	Stage string `json:"stage"`
	Step  int64  `json:"step"`
	// Steps is the total; 0 when it is not known.
	Steps           int64   `json:"steps,omitempty"`
	Loss            float64 `json:"loss,omitempty"`
	TokensPerSecond float64 `json:"tokens_per_second,omitempty"`
	ETASeconds      float64 `json:"eta_seconds,omitempty"`
	// Bytes of TotalBytes are read, at so many a second: of an ingestion.
	Bytes            int64   `json:"bytes,omitempty"`
	TotalBytes       int64   `json:"total_bytes,omitempty"`
	RecordsPerSecond float64 `json:"records_per_second,omitempty"`
	BytesPerSecond   float64 `json:"bytes_per_second,omitempty"`
}

// Heartbeat is the detail of an activity's heartbeats. It is a hint, up to most
// of a heartbeat time-out old; committed manifests are the truth.
type Heartbeat struct {
	Progress
	Host string `json:"host,omitempty"`
	PID  int    `json:"pid,omitempty"`
	// IdleSeconds is how long ago the child last reported progress.
	IdleSeconds float64 `json:"idle_seconds"`
	// Stalled says that this is longer than it should be. The heartbeat itself
	// goes on: it says that the worker lives, not that the work advances.
	Stalled bool `json:"stalled,omitempty"`
}
