// Package activities does what package workflows decides, by thin adapters over
// the domain packages.
//
// Ingestion, training and evaluation run in a child process, the worker's own
// executable with another command, so that a fault in native code, a leak or
// memory exhaustion ends one attempt and not the worker, and so that stopping is
// a signal. The contract with the child:
//
//   - Its standard output is one JSON object, the result ([workflows.CheckpointInfo]
//     and the like).
//   - Its standard error is lines. A JSON object of "type" "progress" is progress
//     ([workflows.Progress]); everything else is passed on to the worker's log,
//     and the last lines explain a failure.
//   - SIGTERM asks it to commit its progress and exit with 75.
//   - Exit code 1 is bad input, which the last line of standard error explains.
//
// The activity heartbeats from a ticker, with the latest progress as detail: a
// heartbeat says that the worker lives. That the work has stopped advancing is
// said apart, by [workflows.Heartbeat.Stalled]. However the worker ends, its
// children end with it: the kernel kills them on Linux, elsewhere the fencing of
// commits makes a survivor harmless.
package activities
