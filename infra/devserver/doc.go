// Package devserver finds, builds and starts the Temporal development server
// that `specstream up`, the demonstration and the integration tests run on.
//
// In this order it uses the server that TEMPORAL_ADDRESS names, starting
// nothing; a `temporal` command on the PATH; or the nested module infra/devstack,
// built with the Go tool chain on first use and kept in the user's cache. A data
// folder stays with the program that made its database, since neither reads the
// other's safely.
//
// It runs on Linux and other Unix systems.
package devserver
