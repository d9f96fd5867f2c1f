package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/sdk/client"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/infra/devserver"
	"github.com/specstream/specstream/infra/s3server"
	"github.com/specstream/specstream/workflows"
)

// stackConfig is what an embedded stack keeps in its folder's stack.json, so that
// it comes back under the same addresses and other commands find it.
type stackConfig struct {
	TemporalPort int    `json:"temporal_port"`
	UIPort       int    `json:"ui_port"`
	S3Port       int    `json:"s3_port"`
	AccessKey    string `json:"access_key"`
	SecretKey    string `json:"secret_key"`
	Bucket       string `json:"bucket"`
	// TemporalAddress, Namespace and UIAddress are where Temporal was last found.
	TemporalAddress string `json:"temporal_address,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	UIAddress       string `json:"ui_address,omitempty"`
}

// Files of a stack's folder.
const (
	stackFile = "stack.json"
	logFile   = "specstream.log"
	lockFile  = "lock"
)

func (c stackConfig) store() string      { return "s3://" + c.Bucket }
func (c stackConfig) s3Endpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", c.S3Port) }

// environment is what a process needs to reach the stack.
func (c stackConfig) environment() map[string]string {
	return map[string]string{
		"SPECSTREAM_S3_ENDPOINT": c.s3Endpoint(), "AWS_ACCESS_KEY_ID": c.AccessKey, "AWS_SECRET_ACCESS_KEY": c.SecretKey, "AWS_REGION": "us-east-1",
		devserver.AddressEnv: c.TemporalAddress, devserver.NamespaceEnv: c.Namespace, storeEnv: c.store(),
	}
}

func readStack(dir string) (c stackConfig, found bool, err error) {
	b, err := os.ReadFile(filepath.Join(dir, stackFile))
	if errors.Is(err, fs.ErrNotExist) {
		return c, false, nil
	}
	if err == nil {
		err = json.Unmarshal(b, &c)
	}
	if err != nil {
		return c, false, &specstream.InputError{File: filepath.Join(dir, stackFile), Reason: "cannot be read", Err: err, Hint: "remove it to choose new ports"}
	}
	return c, true, nil
}

func (c stackConfig) write(dir string) error {
	b, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, "."+stackFile)
	if err := os.WriteFile(tmp, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, stackFile))
}

// stack is a running Temporal server, S3 server and worker.
type stack struct {
	dir    string
	config stackConfig
	log    *os.File // shared by all processes of the stack
	s3     *s3server.Supervisor
	lock   *os.File

	cancel context.CancelFunc
	tasks  sync.WaitGroup // keepTemporal and keepWorker

	temporal  *devserver.Server // keepTemporal's until tasks are done
	workerPID atomic.Int64
}

// startStack starts everything under dir and keeps it running until stop. notes
// tells a person what is happening.
func startStack(ctx context.Context, dir string, slots int, notes io.Writer) (_ *stack, err error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	s := &stack{dir: dir}
	if s.lock, err = lockFolder(dir); err != nil {
		return nil, err
	}
	if s.log, err = os.OpenFile(filepath.Join(dir, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	var found bool
	if s.config, found, err = readStack(dir); err != nil {
		return nil, err
	}
	if !found {
		s.config.AccessKey, s.config.SecretKey, s.config.Bucket = "specstream", rand.Text(), "specstream"
	}
	// In a new folder the ports are 0 here, and the servers take free ones.
	for _, port := range []int{s.config.S3Port, s.config.TemporalPort, s.config.UIPort} {
		if err := awaitPort(ctx, port); err != nil {
			return nil, fmt.Errorf("%w; or remove %s to choose new ports", err, filepath.Join(dir, stackFile))
		}
	}
	s3 := s3server.ChildConfig{Config: s3server.Config{Dir: filepath.Join(dir, "s3"), Addr: fmt.Sprintf("127.0.0.1:%d", s.config.S3Port),
		AccessKey: s.config.AccessKey, SecretKey: s.config.SecretKey, Buckets: []string{s.config.Bucket}}, Log: s.log}
	if s.s3, err = patiently(ctx, found, func() (*s3server.Supervisor, error) {
		return s3server.Supervise(ctx, s3, func(err error) { fmt.Fprintln(s.log, "s3:", err) })
	}); err != nil {
		return nil, fmt.Errorf("start the S3 server: %w", err)
	}
	opts := devserver.Options{DataDir: filepath.Join(dir, "temporal"), Port: s.config.TemporalPort, UIPort: s.config.UIPort, Progress: notes}
	if _, err := devserver.Find(ctx, opts); err != nil {
		return nil, err // no waiting helps
	}
	if s.temporal, err = patiently(ctx, found, func() (*devserver.Server, error) { return devserver.Start(ctx, opts) }); err != nil {
		return nil, err
	}
	s.config.TemporalAddress, s.config.UIAddress, s.config.Namespace = s.temporal.Address, s.temporal.UIAddress, s.temporal.Namespace
	s.config.S3Port = portOf(s.s3.Addr())
	if s.temporal.Program.Kind != devserver.External {
		s.config.TemporalPort, s.config.UIPort = portOf(s.temporal.Address), portOf(s.temporal.UIAddress)
	}
	if err := s.config.write(dir); err != nil {
		return nil, err
	}
	opts.Port, opts.UIPort = s.config.TemporalPort, s.config.UIPort
	s.tasks.Go(func() { s.keepTemporal(life, opts) })
	if slots > 0 {
		started := make(chan error, 1)
		s.tasks.Go(func() { s.keepWorker(life, slots, started) })
		if err := <-started; err != nil {
			return nil, err
		}
		if err := s.awaitWorker(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// portOf is the port of "host:port", 0 for an empty address.
func portOf(address string) int {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return 0
	}
	return n
}

// patiently starts a server. In a folder that had one before, it tries again for a
// while: when `up` was killed, its servers may still be using their files.
func patiently[S any](ctx context.Context, before bool, start func() (S, error)) (S, error) {
	for began := time.Now(); ; {
		s, err := start()
		if err == nil || !before || time.Since(began) > predecessorWait {
			return s, err
		}
		if sleep(ctx, 500*time.Millisecond) != nil {
			return s, err
		}
	}
}

// predecessorWait is how long the servers of a stack that was killed may take to
// end and free their ports and files.
const predecessorWait = 15 * time.Second

// awaitPort waits until a port is free to listen on; 0 always is.
func awaitPort(ctx context.Context, port int) error {
	for began := time.Now(); port != 0; {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return l.Close()
		}
		if time.Since(began) > predecessorWait {
			return fmt.Errorf("port %d, which this stack had before, is taken by another program: stop it", port)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// sleep waits for d, or less with an error when ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// lockFolder makes sure that one stack at a time uses a folder.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	// Not at once: others look for an instant whether the folder is locked.
	for range 10 {
		if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			return f, nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("another specstream uses %s: stop it, or give another --data-dir", dir), f.Close())
}

// folderLocked reports whether a stack uses a folder now.
func folderLocked(dir string) bool {
	f, err := os.Open(filepath.Join(dir, lockFile))
	if err != nil {
		return false
	}
	defer f.Close() // gives the lock up
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}

// keepTemporal starts the Temporal server again when it dies.
func (s *stack) keepTemporal(ctx context.Context, o devserver.Options) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.temporal.Wait():
		}
		fmt.Fprintln(s.log, "temporal: ended:", s.temporal.Err())
		for wait := 200 * time.Millisecond; ; wait = min(2*wait, 5*time.Second) {
			t, err := devserver.Start(ctx, o)
			if err == nil {
				s.temporal = t
				break
			}
			if ctx.Err() != nil {
				return
			}
			fmt.Fprintln(s.log, "temporal:", err)
			if sleep(ctx, wait) != nil {
				return
			}
		}
	}
}

// workerCommand is a worker process that dies with this one.
func (s *stack) workerCommand(slots int) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(exe, "worker", "--slots", fmt.Sprint(slots), "--work-dir", filepath.Join(s.dir, "work"))
	c.Env = os.Environ()
	for k, v := range s.config.environment() {
		c.Env = append(c.Env, k+"="+v)
	}
	c.Stdout, c.Stderr = s.log, s.log
	c.SysProcAttr = dieWithParent()
	return c, nil
}

// keepWorker runs a worker, and another whenever one ends, until ctx ends and
// the last one has stopped. started is told how the first start went.
func (s *stack) keepWorker(ctx context.Context, slots int, started chan<- error) {
	// The kernel ties a child's death to the thread that started it, so that
	// thread must last as long as the child.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for first := true; ctx.Err() == nil; first = false {
		c, err := s.workerCommand(slots)
		if err == nil {
			err = c.Start()
		}
		if err != nil {
			err = fmt.Errorf("start the worker: %w", err)
		}
		if err == nil {
			s.workerPID.Store(int64(c.Process.Pid))
		}
		if first {
			started <- err
		}
		if err == nil {
			ended := make(chan struct{})
			go s.stopWorker(ctx, c.Process, ended)
			err = c.Wait()
			close(ended)
		}
		if ctx.Err() == nil {
			fmt.Fprintln(s.log, "worker: ended:", err)
			_ = sleep(ctx, 500*time.Millisecond) // the loop's condition sees the reason
		}
	}
}

// workerGrace is how long a worker may take to commit what it has and end.
const workerGrace = 45 * time.Second

// stopWorker asks a worker to stop when ctx ends, and kills one that does not.
func (s *stack) stopWorker(ctx context.Context, p *os.Process, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		fmt.Fprintln(s.log, "worker: stop:", err)
	}
	select {
	case <-ended:
	case <-time.After(workerGrace):
		fmt.Fprintf(s.log, "worker: did not stop within %s\n", workerGrace)
		_ = p.Kill() // fails only if it has ended
	}
}

// readyWait is how long a new stack's worker may take to ask for work.
const readyWait = time.Minute

// awaitWorker waits until the worker asks both queues for work.
func (s *stack) awaitWorker(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWait, fmt.Errorf("the worker does not ask for work; %s says why", filepath.Join(s.dir, logFile)))
	defer cancel()
	conn := connection{address: s.config.TemporalAddress, namespace: s.config.Namespace, store: s.config.store()}
	cl, err := conn.temporal(ctx, s.log)
	if err != nil {
		return err
	}
	defer cl.Close()
	for {
		// By default a worker's identity begins with its process id.
		id := fmt.Sprintf("%d@", s.workerPID.Load())
		if polls(ctx, cl, workflows.Queue, enumspb.TASK_QUEUE_TYPE_WORKFLOW, id) && polls(ctx, cl, workflows.ComputeQueue, enumspb.TASK_QUEUE_TYPE_ACTIVITY, id) {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return context.Cause(ctx)
		}
	}
}

// polls reports whether a worker of the given identity asks a queue for work. A
// server that cannot tell is asked again by the caller.
func polls(ctx context.Context, cl client.Client, queue string, kind enumspb.TaskQueueType, identity string) bool {
	d, err := cl.DescribeTaskQueue(ctx, queue, kind)
	if err != nil {
		return false
	}
	for _, p := range d.GetPollers() {
		if strings.HasPrefix(p.GetIdentity(), identity) {
			return true
		}
	}
	return false
}

// stop ends everything in order: the worker first, so that it commits what it
// has, then the servers it needs for that.
func (s *stack) stop() error {
	s.cancel()
	s.tasks.Wait()
	grace, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	if s.temporal != nil {
		errs = append(errs, s.temporal.Stop(grace))
	}
	if s.s3 != nil {
		// Whoever else keeps a connection open must not hold us up: what was
		// answered is on the disk.
		grace, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		if err := s.s3.Stop(grace); err != nil {
			fmt.Fprintln(s.log, "s3: stop:", err)
		}
	}
	return errors.Join(append(errs, s.log.Close(), s.lock.Close())...)
}
