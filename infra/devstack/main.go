// Command devstack is a Temporal development server and its web UI on one
// SQLite file, in one process. It takes the flags of `temporal server
// start-dev`, with or without those words, and so stands in for the Temporal
// command-line tool where that is not installed.
//
// It is for development and single-machine use: one node, no authentication.
// The database is written in WAL mode with synchronous=FULL, so a transaction
// that was acknowledged survives kill -9 and power loss.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"go.temporal.io/server/common/headers"
)

// Exit codes.
const (
	exitFailed = 1
	exitUsage  = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

func run(args []string, stdout, stderr io.Writer) int {
	o, err := parseFlags(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return exitUsage // parseFlags has said why
	}
	if o.version {
		fmt.Fprintf(stdout, "specstream devstack (Server %s)\n", headers.ServerVersion)
		return 0
	}

	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(stop)

	s, err := startServer(o)
	if err != nil {
		fmt.Fprintf(stderr, "devstack: %v\n", err)
		return exitFailed
	}
	fmt.Fprintf(stdout, "%-17s %s\n", "Temporal Server:", s.address)
	if s.uiAddress != "" {
		fmt.Fprintf(stdout, "%-17s http://%s\n", "Temporal UI:", s.uiAddress)
	}
	if o.metricsPort > 0 {
		fmt.Fprintf(stdout, "%-17s http://%s/metrics\n", "Temporal Metrics:", hostPort(o.ip, o.metricsPort))
	}

	select {
	case <-stop:
	case <-parentGone(o.parentPID, 500*time.Millisecond):
		fmt.Fprintf(stderr, "devstack: parent process %d is gone, stopping\n", o.parentPID)
	}
	// A second signal, or a server that hangs while stopping, must not keep the
	// process: the database is safe at any instant.
	done := make(chan error, 1)
	go func() { done <- s.stop() }()
	select {
	case err = <-done:
	case <-stop:
	case <-time.After(10 * time.Second):
		err = errors.New("the server did not stop in 10 s; leaving it")
	}
	if err != nil {
		fmt.Fprintf(stderr, "devstack: %v\n", err)
		return exitFailed
	}
	return 0
}

// parentGone returns a channel that closes when the process pid is no longer
// this process's parent. With pid 0 it never closes.
//
// Polling is used, not Linux's parent-death signal, because that fires when the
// parent's starting *thread* ends, and because it works everywhere.
func parentGone(pid int, every time.Duration) <-chan struct{} {
	gone := make(chan struct{})
	if pid == 0 {
		return gone
	}
	go func() {
		for os.Getppid() == pid {
			time.Sleep(every)
		}
		close(gone)
	}()
	return gone
}
