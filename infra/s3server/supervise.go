package s3server

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
)

// Supervisor keeps a server running.
type Supervisor struct {
	addr   string
	cancel context.CancelFunc
	done   chan struct{}

	mu       sync.Mutex
	child    *Child
	restarts int
}

// Restart delays: a server that dies at once is not started again at once.
const (
	firstRestart = 100 * time.Millisecond
	lastRestart  = 2 * time.Second
	steadyAfter  = 5 * time.Second // a run this long forgets earlier failures
)

// Supervise starts a server and starts it again, on the same address, whenever
// it ends before [Supervisor.Stop]. It returns once the first one accepts
// requests; report, if not nil, is told of each end and each failed start.
func Supervise(ctx context.Context, cfg ChildConfig, report func(error)) (*Supervisor, error) {
	var child *Child
	var err error
	for range 3 { // a free port may be taken between choosing and listening
		if child, err = Start(ctx, cfg); err == nil {
			break
		}
		if _, port, e := net.SplitHostPort(cfg.Addr); cfg.Addr != "" && (e != nil || port != "0") || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if report == nil {
		report = func(error) {}
	}
	cfg.Addr = child.Addr()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Supervisor{addr: child.Addr(), cancel: cancel, done: make(chan struct{}), child: child}
	go s.watch(ctx, cfg, report)
	return s, nil
}

func (s *Supervisor) watch(ctx context.Context, cfg ChildConfig, report func(error)) {
	defer close(s.done)
	delay := firstRestart
	started := time.Now()
	for {
		child := s.current()
		select {
		case <-ctx.Done():
			return
		case <-child.Exited():
		}
		if err := child.Err(); err != nil {
			report(err)
		} else {
			report(fmt.Errorf("S3 server on %s ended unasked", s.addr))
		}
		if time.Since(started) > steadyAfter {
			delay = firstRestart
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(delay):
			}
			delay = min(2*delay, lastRestart)
			started = time.Now()
			next, err := Start(ctx, cfg)
			if err == nil {
				s.mu.Lock()
				s.child = next
				s.restarts++
				s.mu.Unlock()
				break
			}
			if ctx.Err() != nil {
				return
			}
			report(err)
		}
	}
}

func (s *Supervisor) current() *Child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

// Addr is the address the server listens on, whichever process serves it.
func (s *Supervisor) Addr() string { return s.addr }

// Endpoint is the server's URL.
func (s *Supervisor) Endpoint() string { return "http://" + s.addr }

// PID is the process of the server now.
func (s *Supervisor) PID() int { return s.current().PID() }

// Kill ends the server's process at once (SIGKILL), to be started again: for
// tests of what that does.
func (s *Supervisor) Kill() { s.current().Kill() }

// Restarts counts how often the server was started again.
func (s *Supervisor) Restarts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.restarts
}

// Stop ends the server in an orderly way, by force when ctx is done, and returns
// when it is gone.
func (s *Supervisor) Stop(ctx context.Context) error {
	s.cancel()
	<-s.done
	child := s.current()
	select {
	case <-child.Exited():
		return nil // it had crashed; that was reported
	default:
	}
	return child.Stop(ctx)
}
