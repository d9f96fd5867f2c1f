package workflows

// Task queues. Decisions and short activities share one queue; work that fills
// a machine has a queue of its own, where a worker has as many slots as it has
// room for such work, so that promoting a checkpoint never waits for another
// job's training.
const (
	// Queue holds workflows and short activities. It is what users name.
	Queue = "specstream"
	// ComputeQueue holds ingestion, training and evaluation.
	ComputeQueue = "specstream-compute"
)

// Workflow types, as `temporal workflow start --type` takes them.
const (
	PipelineWorkflow           = "Pipeline"
	IngestDatasetWorkflow      = "IngestDataset"
	TrainAdapterWorkflow       = "TrainAdapter"
	EvaluateCheckpointWorkflow = "EvaluateCheckpoint"
	PromoteCheckpointWorkflow  = "PromoteCheckpoint"
)

// Activity types.
const (
	ResolveBaseActivity        = "ResolveBase"
	PlanDatasetActivity        = "PlanDataset"
	SignPartActivity           = "SignPart"
	ResolveDuplicatesActivity  = "ResolveDuplicates"
	ProcessPartActivity        = "ProcessPart"
	CommitDatasetActivity      = "CommitDataset"
	TrainAdapterActivity       = "TrainAdapterActivity"
	EvaluateCheckpointActivity = "EvaluateCheckpointActivity"
	PromoteCheckpointActivity  = "PromoteCheckpointActivity"
	BuildReportActivity        = "BuildReport"
)

// Messages a running workflow answers.
const (
	// StatusQuery answers with a [Status]; of [IngestDataset], an [IngestStatus].
	StatusQuery = "status"
	// ApproveUpdate takes an [ApproveInput] and answers with a [Decision].
	ApproveUpdate = "approve"
	// RejectUpdate takes a [RejectInput] and answers with a [Decision].
	RejectUpdate = "reject"
)

// Kinds of failure, the Type of a Temporal ApplicationError.
const (
	// BadInput is input that the user must mend. It is never retried.
	BadInput = "BadInput"
	// Drained is a worker that was told to stop; its progress is committed and
	// the work is retried on another.
	Drained = "Drained"
	// Crashed is a child process that died of its own fault, several times at
	// the same step. It is never retried.
	Crashed = "Crashed"
	// StepFailed names the step of a pipeline that failed; its cause says why.
	StepFailed = "StepFailed"
)
