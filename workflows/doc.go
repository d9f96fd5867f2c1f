// Package workflows makes the pipeline's decisions: what runs after what, what
// is retried, when a person is asked and what is promoted. It does no work
// itself. Work is done by activities, which it names by constants and describes
// by the interface [Activities].
//
// There are five workflows. [Pipeline] takes a [specstream.JobSpec] and runs the
// other four as children: [IngestDataset], [TrainAdapter], [EvaluateCheckpoint]
// and [PromoteCheckpoint], each of which can be started by itself as well.
//
//	Pipeline ── ResolveBase
//	   ├── IngestDataset (data)     ┐ in parallel
//	   ├── IngestDataset (hold-out) ┘
//	   ├── TrainAdapter ─ EvaluateCheckpoint   for each mode, in parallel
//	   ├── gates, approval
//	   ├── PromoteCheckpoint
//	   └── BuildReport
//
// # Rules
//
// Everything here is deterministic: no clock, no randomness, no I/O, no map
// iteration whose order matters. Recorded histories are replayed in the tests,
// and
//
//	go run go.temporal.io/sdk/contrib/tools/workflowcheck@v0.6.0 -config workflows/workflowcheck.yaml ./workflows/
//
// must report nothing. A change that alters the commands of a running workflow
// goes behind [workflow.GetVersion].
//
// Payloads carry references, digests and small metrics, never data. Inputs are
// decoded strictly, so that a misspelt field is a "BadInput" failure that names
// the field, and not a default that nobody asked for.
//
// # Identity
//
// A child's workflow id is derived from a digest of all that determines its
// result ("train-<digest>"). At most one run of an id is open at a time, so two
// pipelines that need the same work do it once: the second waits, then finds
// the result committed (see [runChild]).
package workflows
