// Command specstream turns instruction data into Speculative Streaming adapters:
// it ingests, trains, evaluates, asks for approval and promotes, by Temporal
// workflows or one stage at a time.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/infra/s3server"
)

// Exit codes. They are documented in the root command's help.
const (
	exitOK          = 0
	exitBadInput    = 1
	exitUsage       = 2
	exitFailed      = 3
	exitNotPromoted = 4
	exitDrained     = 75 // EX_TEMPFAIL: progress is committed, run it again
	exitInterrupted = 130
)

// usageError marks an error in the command line itself.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// notPromotedError ends a pipeline command whose pipeline ended otherwise than
// promoted.
type notPromotedError struct{ outcome string }

func (e notPromotedError) Error() string { return "the pipeline ended " + e.outcome }

func main() {
	s3server.RunIfChild()
	ctx, stop := signalContext()
	code := exitCode(ctx, execute(ctx, os.Args[1:]))
	stop()
	os.Exit(code)
}

// signalContext ends on the first interrupt or SIGTERM; its cause then tells a
// draining worker to save its progress. A second signal kills the process.
func signalContext() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	sig := make(chan os.Signal, 2)
	signal.Notify(sig, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		select {
		case s := <-sig:
			if s == syscall.SIGTERM {
				cancel(specstream.ErrDrained)
			} else {
				cancel(context.Canceled)
			}
			signal.Stop(sig)
		case <-done:
		}
	}()
	return ctx, func() { close(done); signal.Stop(sig); cancel(nil) }
}

func execute(ctx context.Context, args []string) error {
	root := newRoot()
	root.SetArgs(args)
	return root.ExecuteContext(ctx)
}

// exitCode reports err on standard error, one line, and chooses the exit code.
func exitCode(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	var (
		usage usageError
		not   notPromotedError
	)
	fmt.Fprintln(os.Stderr, "specstream:", err)
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &not):
		return exitNotPromoted
	case specstream.BadInput(err):
		return exitBadInput
	case errors.Is(err, specstream.ErrDrained):
		return exitDrained
	case ctx.Err() != nil:
		return exitInterrupted
	}
	return exitFailed
}

func newRoot() *cobra.Command {
	o := &options{}
	root := &cobra.Command{
		Use:   "specstream",
		Short: "Train, evaluate and promote Speculative Streaming adapters",
		Long: `specstream turns a team's instruction data into Speculative Streaming adapters:
a few thousand trained parameters that let a frozen base model draft and verify
several tokens in one forward pass.

Start with "specstream demo", which runs the whole pipeline on generated data.

Exit codes:
  0    success; for demo and "pipeline start --wait": the checkpoint was promoted
  1    bad input: the message names the file, record or field to mend
  2    wrong usage of the command line
  3    any other failure; running the command again may succeed
  4    the pipeline ended without promotion: gates, rejection, expiry, cancellation
  75   stopped on SIGTERM with its progress saved; run it again to go on
  130  interrupted`,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.NoArgs,
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())}
	})
	o.register(root)
	root.AddCommand(newParams(o), newBase(o), newIngest(o), newData(o), newTrain(o), newEval(o), newGenerate(), newUp(o), newPipeline(o), newCheckpoints(o), newDemo(o), newDoctor(o), newWorker(o), newBench(o))
	reportUsage(root)
	return root
}

// reportUsage makes wrong arguments of a command and its subcommands usage
// errors, an unknown subcommand among them.
func reportUsage(c *cobra.Command) {
	if !c.Runnable() { // a group of commands: without one of them, its help is all there is
		c.Args = cobra.ArbitraryArgs
		c.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see `%s --help`", args[0], c.CommandPath())}
			}
			return c.Help()
		}
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err == nil || errors.As(err, new(usageError)) {
				return err
			}
			return usageError{fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())}
		}
	}
	for _, sub := range c.Commands() {
		reportUsage(sub)
	}
}
