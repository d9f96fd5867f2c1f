package activities

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/specstream/specstream"
)

// Exit codes of a child, and one that the Go runtime uses.
const (
	exitBadInput = 1
	exitPanic    = 2 // also a command line it does not understand: our own fault as well
	exitDrained  = 75
)

// outputGrace is how long a child's output may stay open after the child has
// ended, held by a process that it left behind.
const outputGrace = 5 * time.Second

// errCrashed is a child that ended by its own fault: a panic or a fatal signal.
// Trying again is likely to end the same way.
var errCrashed = errors.New("crashed")

// child is one run of a command.
type child struct {
	path  string
	args  []string
	env   []string // appended to the worker's
	lock  *os.File // inherited; held until the last of the child's processes has ended
	state *state
	log   func(line string)

	grace time.Duration // between SIGTERM and SIGKILL
}

// run runs the command to its end and returns its standard output. When ctx
// ends it returns ctx's error, when stop closes [specstream.ErrDrained], in both
// cases only after the process has ended: in order, if it does so within the
// grace period.
func (c *child) run(ctx context.Context, stop <-chan struct{}) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := c.start()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", c.args[0], err)
	}
	c.state.started(p.pid)
	var (
		asked error // why it was asked to stop
		kill  <-chan time.Time
	)
	cancelled := ctx.Done()
	terminate := func(why error) {
		cancelled, stop = nil, nil
		asked = why
		p.signal(syscall.SIGTERM)
		kill = time.After(c.grace)
	}
	for {
		select {
		case <-cancelled:
			terminate(ctx.Err())
		case <-stop:
			terminate(specstream.ErrDrained)
		case <-kill:
			p.signal(syscall.SIGKILL)
		case <-p.done:
			out, err := p.outcome(c.args[0])
			if err == nil {
				return out, nil // it had finished when it was asked to stop
			}
			// A fault is worth reporting whatever it was asked.
			if asked != nil && !specstream.BadInput(err) {
				return nil, asked
			}
			return nil, err
		}
	}
}

// process is a child that runs.
type process struct {
	cmd    *exec.Cmd
	pid    int
	stdout result
	stderr narration
	done   chan struct{} // closed when it has ended and its output is read
	err    error         // of Wait
}

func (c *child) start() (*process, error) {
	p := &process{cmd: exec.Command(c.path, c.args...), done: make(chan struct{})}
	p.stderr.state, p.stderr.log = c.state, c.log
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.Env = append(os.Environ(), c.env...)
	p.cmd.SysProcAttr = childAttributes()
	p.cmd.WaitDelay = outputGrace
	if c.lock != nil {
		p.cmd.ExtraFiles = []*os.File{c.lock}
	}
	started := make(chan error)
	go func() {
		// The kernel ties the parent-death signal to the thread that starts the
		// child. Threads of the Go runtime may end; this one must not.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		if err == nil {
			p.pid = p.cmd.Process.Pid
		}
		started <- err
		if err != nil {
			return
		}
		p.err = p.cmd.Wait()
		p.signal(syscall.SIGKILL) // whatever it left behind in its group
		p.stderr.flush()
		close(p.done)
	}()
	return p, <-started
}

// signal sends to the child's process group. That it has ended already is no
// error.
func (p *process) signal(s syscall.Signal) { _ = syscall.Kill(-p.pid, s) }

// outcome turns how the child ended into its output or an error.
func (p *process) outcome(command string) ([]byte, error) {
	var exit *exec.ExitError
	switch {
	case p.err == nil, errors.Is(p.err, exec.ErrWaitDelay):
		if p.stdout.overflow {
			return nil, fmt.Errorf("%s: its result is more than %d bytes", command, maxResult)
		}
		return p.stdout.b, nil
	case !errors.As(p.err, &exit):
		return nil, fmt.Errorf("%s: %w", command, p.err)
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	switch {
	case ok && status.Signaled():
		err := fmt.Errorf("%s: killed by signal %s%s", command, status.Signal(), p.explanation())
		switch status.Signal() {
		case syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGABRT, syscall.SIGTRAP, syscall.SIGSYS:
			return nil, fmt.Errorf("%w: %w", errCrashed, err)
		}
		return nil, err // killed from outside, such as for want of memory
	case exit.ExitCode() == exitBadInput:
		reason := p.stderr.last()
		if reason == "" {
			reason = "it gave no reason"
		}
		return nil, &specstream.InputError{Reason: reason}
	case exit.ExitCode() == exitDrained:
		return nil, specstream.ErrDrained
	case exit.ExitCode() == exitPanic:
		return nil, fmt.Errorf("%w: %s: exit status %d%s", errCrashed, command, exitPanic, p.explanation())
	}
	return nil, fmt.Errorf("%s: exit status %d%s", command, exit.ExitCode(), p.explanation())
}

// explanation is the end of what the child said, to append to an error.
func (p *process) explanation() string {
	if len(p.stderr.tail) == 0 {
		return ""
	}
	return ": " + strings.Join(p.stderr.tail, "\n")
}
