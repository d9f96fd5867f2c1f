package devserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
)

// Environment variables.
const (
	// AddressEnv names a Temporal server that already runs, "host:port".
	AddressEnv = "TEMPORAL_ADDRESS"
	// NamespaceEnv names its namespace.
	NamespaceEnv = "TEMPORAL_NAMESPACE"
	// SourceEnv names a checkout of this project, for building infra/devstack.
	SourceEnv = "SPECSTREAM_SRC"
)

// Options say which server is wanted.
type Options struct {
	// DataDir holds the database and the log. Empty: the database is in memory.
	DataDir string
	// IP is where the server listens. Default 127.0.0.1.
	IP string
	// Port is that of the gRPC service; 0 takes a free one. A server that is
	// started again after a failure needs the port it had.
	Port int
	// UIPort is that of the web UI; 0 takes a free one.
	UIPort int
	// Headless leaves the web UI out.
	Headless bool
	// Namespace is created if it is missing. Default: $TEMPORAL_NAMESPACE, else "default".
	Namespace string
	// SearchAttributes are registered if they are missing.
	SearchAttributes map[string]enumspb.IndexedValueType
	// Progress is told about building, for people. Default: nobody.
	Progress io.Writer
	// Log takes the server's output. Default: DataDir/temporal.log, or nothing
	// without a data folder.
	Log io.Writer
	// CacheDir holds what is built. Default: specstream in [os.UserCacheDir].
	CacheDir string
	// StartTimeout is how long the server may take to answer. Default 60 s.
	StartTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.IP == "" {
		o.IP = "127.0.0.1"
	}
	if o.Namespace == "" {
		o.Namespace = os.Getenv(NamespaceEnv)
	}
	if o.Namespace == "" {
		o.Namespace = "default"
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.StartTimeout == 0 {
		o.StartTimeout = time.Minute
	}
	return o
}

// Server is a Temporal server that answers.
type Server struct {
	// Address is that of the gRPC service, "host:port".
	Address string
	// UIAddress is that of the web UI, "host:port"; empty when there is none or
	// it is not known.
	UIAddress string
	// Namespace exists.
	Namespace string
	// Program is what runs; its kind is [External] when nothing was started.
	Program Program

	pid  int
	done chan struct{} // closed when the process has ended
	err  error         // why it ended; valid once done is closed
	log  *os.File      // nil when the caller gave the log
	last *tail         // the last output, when there is no log

	stopping sync.Once
	asked    chan struct{} // closed when Stop is called
}

// Start makes a Temporal server answer and returns it. The process it starts
// ends with this one, however this one ends.
func Start(ctx context.Context, o Options) (*Server, error) {
	o = o.withDefaults()
	p, err := Find(ctx, o)
	if err != nil {
		return nil, err
	}
	s := &Server{Namespace: o.Namespace, Program: p, done: make(chan struct{}), asked: make(chan struct{})}
	if p.Kind == External {
		s.Address = p.Path
		ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
		defer cancel()
		if err := s.prepare(ctx, o); err != nil {
			return nil, fmt.Errorf("the Temporal server that %s names: %w", AddressEnv, err)
		}
		return s, nil
	}
	if err := s.start(o); err != nil {
		return nil, fmt.Errorf("start the Temporal server (%s): %w", p.Path, err)
	}
	ready, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	if err := s.prepare(ready, o); err != nil {
		// Whatever the reason, the process must not be left behind.
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("start the Temporal server (%s): %w", p.Path, err), s.Stop(stop))
	}
	return s, nil
}

// Wait returns a channel that closes when the server's process has ended; Err
// then says why. For an external server it never closes.
func (s *Server) Wait() <-chan struct{} { return s.done }

// Err returns why the process ended, nil after an orderly stop. It is valid
// once Wait's channel is closed.
func (s *Server) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// PID returns the server's process id, 0 for an external server.
func (s *Server) PID() int { return s.pid }

// Stop ends the process in order, or kills it when ctx ends first. It does
// nothing to an external server, and may be called more than once.
func (s *Server) Stop(ctx context.Context) error {
	if s.pid == 0 {
		return nil
	}
	s.stopping.Do(func() { close(s.asked) })
	if err := syscall.Kill(-s.pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stop the Temporal server: %w", err)
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
	}
	if err := syscall.Kill(-s.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("kill the Temporal server: %w", err)
	}
	<-s.done
	return nil
}

func (s *Server) start(o Options) error {
	port, err := choosePort(o.IP, o.Port)
	if err != nil {
		return err
	}
	uiPort := 0
	if !o.Headless {
		if uiPort, err = choosePort(o.IP, o.UIPort); err != nil {
			return err
		}
		s.UIAddress = net.JoinHostPort(o.IP, strconv.Itoa(uiPort))
	}
	s.Address = net.JoinHostPort(o.IP, strconv.Itoa(port))
	if o.DataDir != "" {
		if err := os.MkdirAll(databaseDir(o.DataDir), 0o755); err != nil {
			return err
		}
	}
	lock, err := lockData(o.DataDir)
	if err != nil {
		return err
	}
	if lock != nil {
		defer lock.Close() // the process holds it from here on
	}
	out := o.Log
	if out == nil && o.DataDir != "" {
		s.log, err = os.OpenFile(filepath.Join(o.DataDir, "temporal.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
		if err != nil {
			return err
		}
		out = s.log
	}
	if out == nil {
		s.last = &tail{}
		out = s.last
	}
	cmd := exec.Command(s.Program.Path, s.Program.args(o, port, uiPort)...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = processAttributes()
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
	}
	started := make(chan error)
	go func() {
		// The kernel ties the death signal to the thread that started the
		// process, so that thread must last as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := cmd.Start(); err != nil {
			started <- err
			return
		}
		s.pid = cmd.Process.Pid
		started <- nil
		err := cmd.Wait()
		select {
		case <-s.asked:
		default:
			s.err = fmt.Errorf("the Temporal server ended: %w", orExited(err))
		}
		if s.log != nil {
			s.log.Close() // the process wrote it, through its own descriptor
		}
		close(s.done)
	}()
	if err := <-started; err != nil {
		if s.log != nil {
			s.log.Close()
		}
		return err
	}
	return nil
}

// lockWait is how long a start waits for another server on its data to end.
const lockWait = 10 * time.Second

// lockData locks a data folder for the process that inherits the file: not every
// server notices another on the same database. There is none for data in memory.
func lockData(dir string) (*os.File, error) {
	if dir == "" {
		return nil, nil
	}
	f, err := os.OpenFile(filepath.Join(dir, "temporal.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	// A server whose parent was killed takes a moment to end.
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	for began := time.Now(); errors.Is(err, syscall.EWOULDBLOCK) && time.Since(began) < lockWait; {
		time.Sleep(100 * time.Millisecond)
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("the data folder %s is locked: another Temporal server is using it", dir)
		}
		return nil, fmt.Errorf("lock the data folder %s: %w", dir, err)
	}
	return f, nil
}

// lastOutput returns the end of what the server wrote, for an error message.
func (s *Server) lastOutput() string {
	if s.last != nil {
		return s.last.String()
	}
	if s.log == nil {
		return ""
	}
	f, err := os.Open(s.log.Name())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > tailBytes {
		if _, err := f.Seek(-tailBytes, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	b, err := io.ReadAll(io.LimitReader(f, tailBytes))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// tailBytes is how much output an error message quotes.
const tailBytes = 2048

// tail keeps the last bytes written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if n := len(t.b) - tailBytes; n > 0 {
		t.b = append(t.b[:0], t.b[n:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.b)
}

func orExited(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

// choosePort returns port if it is free, or a free one for 0.
func choosePort(ip string, port int) (int, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(port)))
	if err != nil {
		return 0, fmt.Errorf("port %d is taken by another program: stop it, choose another port, or set %s to use the server that is there: %w", port, AddressEnv, err)
	}
	defer l.Close()
	if port != 0 {
		return port, nil
	}
	// A port that was merely listened on may be handed out again at once. One in
	// TIME_WAIT, after a connection that this side closed, is not.
	dialed, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return 0, fmt.Errorf("reserve a free port: %w", err)
	}
	defer dialed.Close()
	accepted, err := l.Accept()
	if err != nil {
		return 0, fmt.Errorf("reserve a free port: %w", err)
	}
	return l.Addr().(*net.TCPAddr).Port, accepted.Close()
}
