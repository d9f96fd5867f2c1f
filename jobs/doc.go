// Package jobs does the work of each stage of the pipeline without Temporal:
// ingest, pretrain a base, train, evaluate. The command line runs these functions
// on local folders; workers run them in child processes against a store. Both
// give the same bytes.
package jobs
