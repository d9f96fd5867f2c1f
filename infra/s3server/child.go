package s3server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// ChildArg is the argument that makes our binary be the server.
const ChildArg = "internal-s3"

// ready is what the child prints, on one line of its standard output, once it
// accepts requests.
type ready struct {
	Addr string `json:"addr"`
}

// RunIfChild runs the server and exits if this process was spawned by [Start].
// Otherwise it returns at once. It belongs at the very start of main and of
// TestMain.
func RunIfChild() {
	if len(os.Args) != 2 || os.Args[1] != ChildArg {
		return
	}
	if err := childMain(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// childMain reads its configuration from the first line of in and serves until
// in ends. The parent keeps the other end open and writes nothing more, so the
// kernel ends the child's input when the parent dies, however it dies and on
// every platform. (Linux's parent-death signal is sent when the thread that
// started the child ends, which in Go may be long before the process does.)
func childMain(in io.Reader, out *os.File) error {
	// A terminal sends Ctrl-C to the whole group: the parent decides when we stop.
	signal.Ignore(os.Interrupt)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	r := bufio.NewReader(in)
	line, err := r.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("S3 server: read the configuration: %w", err)
	}
	var cfg Config
	if err := json.Unmarshal(line, &cfg); err != nil {
		return fmt.Errorf("S3 server: read the configuration: %w", err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, r) // returns when the parent closes the pipe or is gone: either means stop
		stop()
		time.Sleep(shutdownGrace)
		os.Exit(1) // requests that will not end must not keep the folder locked
	}()
	os.Stdout = os.Stderr // the gateway prints there
	cfg.Ready = func(addr string) {
		if err := json.NewEncoder(out).Encode(ready{addr}); err != nil {
			fmt.Fprintln(os.Stderr, "S3 server: tell the parent:", err)
			stop()
		}
	}
	return Run(ctx, cfg)
}

// Child is a server in a child process.
type Child struct {
	addr   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	exited chan struct{}
	err    error // why it ended; read after exited
}

// ChildConfig says how to spawn a server.
type ChildConfig struct {
	Config
	// Command is the program and its arguments. Default: this program with ChildArg.
	Command []string
	// Log takes what the child prints. Default: this process's standard error.
	Log io.Writer
	// StartTimeout bounds the wait for the server. Default 30 s.
	StartTimeout time.Duration
}

// Start spawns a server and returns once it accepts requests. The child ends
// with [Child.Stop], or when this process ends.
func Start(ctx context.Context, cfg ChildConfig) (*Child, error) {
	line, err := json.Marshal(cfg.Config)
	if err != nil {
		return nil, fmt.Errorf("start S3 server: %w", err)
	}
	if len(cfg.Command) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("start S3 server: %w", err)
		}
		cfg.Command = []string{self, ChildArg}
	}
	if cfg.Log == nil {
		cfg.Log = os.Stderr
	}
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 30 * time.Second
	}
	// The last words of a server that does not start say why.
	tail := &tailWriter{next: cfg.Log}
	cmd := exec.Command(cfg.Command[0], cfg.Command[1:]...)
	cmd.Stderr = tail
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start S3 server: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start S3 server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start S3 server: %w", err)
	}
	c := &Child{cmd: cmd, stdin: stdin, exited: make(chan struct{})}
	answer := make(chan ready, 1)
	go func() {
		defer close(c.exited)
		out := bufio.NewReader(stdout)
		if line, err := out.ReadBytes('\n'); err == nil {
			var r ready
			if json.Unmarshal(line, &r) == nil {
				answer <- r
			}
		}
		_, _ = io.Copy(io.Discard, out) // until the child closes it; Wait tells the rest
		if err := cmd.Wait(); err != nil {
			c.err = fmt.Errorf("S3 server ended: %w: %s", err, tail.last())
		}
	}()
	if _, err := stdin.Write(append(line, '\n')); err != nil {
		c.Kill()
		return nil, fmt.Errorf("start S3 server: %w: %s", err, tail.last())
	}
	timeout := time.NewTimer(cfg.StartTimeout)
	defer timeout.Stop()
	select {
	case r := <-answer:
		c.addr = r.Addr
		return c, nil
	case <-c.exited:
		return nil, fmt.Errorf("start S3 server: %w", errors.Join(c.err, ctx.Err()))
	case <-timeout.C:
		err = fmt.Errorf("it does not accept requests after %s", cfg.StartTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	c.Kill()
	return nil, fmt.Errorf("start S3 server: %w", err)
}

// Addr is the address the server listens on.
func (c *Child) Addr() string { return c.addr }

// Endpoint is the server's URL.
func (c *Child) Endpoint() string { return "http://" + c.addr }

// PID is the child's process.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Exited is closed when the child has ended.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Err says why the child ended; nil before that, and after an orderly end.
func (c *Child) Err() error {
	select {
	case <-c.exited:
		return c.err
	default:
		return nil
	}
}

// Stop lets the server finish the requests it has and waits for its end. When
// ctx is done it is killed.
func (c *Child) Stop(ctx context.Context) error {
	_ = c.stdin.Close() // the sign to stop; fails only if the child is gone
	select {
	case <-c.exited:
	case <-ctx.Done():
		c.Kill()
	}
	return c.err
}

// Kill ends the server at once (SIGKILL) and waits until it is gone.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // fails only if it is gone already
	<-c.exited
	_ = c.stdin.Close()
}

// tailWriter passes on what it gets and keeps the last of it.
type tailWriter struct {
	next io.Writer
	mu   sync.Mutex
	tail []byte
}

const tailBytes = 2048

func (w *tailWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tail = append(w.tail, p...)
	if n := len(w.tail) - tailBytes; n > 0 {
		w.tail = append(w.tail[:0], w.tail[n:]...)
	}
	return w.next.Write(p)
}

func (w *tailWriter) last() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.tail)
}
