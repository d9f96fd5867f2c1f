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
	"sync"
	"syscall"
	"time"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/infra/devserver"
	"github.com/specstream/specstream/infra/s3server"
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

const stackFile = "stack.json"

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
	log    io.Writer
	s3     *s3server.Supervisor
	lock   *os.File

	cancel context.CancelFunc
	tasks  sync.WaitGroup

	mu       sync.Mutex
	temporal *devserver.Server
	worker   *exec.Cmd
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
	logFile, err := os.OpenFile(filepath.Join(dir, "specstream.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	s.log = logFile
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
		if err := s.config.choose(); err != nil {
			return nil, err
		}
	}
	if s.s3, err = s3server.Supervise(ctx, s3server.ChildConfig{Config: s3server.Config{Dir: filepath.Join(dir, "s3"), Addr: fmt.Sprintf("127.0.0.1:%d", s.config.S3Port),
		AccessKey: s.config.AccessKey, SecretKey: s.config.SecretKey, Buckets: []string{s.config.Bucket}}, Log: s.log},
		func(err error) { fmt.Fprintln(s.log, "s3:", err) }); err != nil {
		return nil, fmt.Errorf("start the S3 server: %w", err)
	}
	opts := devserver.Options{DataDir: filepath.Join(dir, "temporal"), Port: s.config.TemporalPort, UIPort: s.config.UIPort, Progress: notes}
	if s.temporal, err = devserver.Start(ctx, opts); err != nil {
		return nil, err
	}
	s.config.TemporalAddress, s.config.UIAddress, s.config.Namespace = s.temporal.Address, s.temporal.UIAddress, s.temporal.Namespace
	if err := s.config.write(dir); err != nil {
		return nil, err
	}
	s.tasks.Go(func() { s.keepTemporal(life, opts) })
	if slots > 0 {
		if err := s.startWorker(slots); err != nil {
			return nil, err
		}
		s.tasks.Go(func() { s.keepWorker(life, slots) })
	}
	return s, nil
}

// choose picks free ports and credentials for a new folder.
func (c *stackConfig) choose() error {
	for _, p := range []*int{&c.TemporalPort, &c.UIPort, &c.S3Port} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return fmt.Errorf("find a free port: %w", err)
		}
		*p = l.Addr().(*net.TCPAddr).Port
		defer l.Close() // all three are held until all are chosen
	}
	c.AccessKey, c.SecretKey, c.Bucket = "specstream", rand.Text(), "specstream"
	return nil
}

// lockFolder makes sure that one stack at a time uses a folder.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("another specstream uses %s: stop it, or give another --data-dir", dir)
	}
	return f, nil
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
		for wait := 200 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
			t, err := devserver.Start(ctx, o)
			if err == nil {
				s.mu.Lock()
				s.temporal = t
				s.mu.Unlock()
				break
			}
			fmt.Fprintln(s.log, "temporal:", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	}
}

// startWorker starts a worker process that dies with this one.
func (s *stack) startWorker(slots int) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(exe, "worker", "--slots", fmt.Sprint(slots), "--work-dir", filepath.Join(s.dir, "work"))
	c.Env = os.Environ()
	for k, v := range s.config.environment() {
		c.Env = append(c.Env, k+"="+v)
	}
	c.Stdout, c.Stderr = s.log, s.log
	c.SysProcAttr = dieWithParent()
	if err := c.Start(); err != nil {
		return fmt.Errorf("start the worker: %w", err)
	}
	s.mu.Lock()
	s.worker = c
	s.mu.Unlock()
	return nil
}

// keepWorker starts the worker again when it dies.
func (s *stack) keepWorker(ctx context.Context, slots int) {
	for {
		err := s.worker.Wait()
		if ctx.Err() != nil {
			return
		}
		fmt.Fprintln(s.log, "worker: ended:", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(500 * time.Millisecond):
		}
		if err := s.startWorker(slots); err != nil {
			fmt.Fprintln(s.log, err)
		}
	}
}

// stop ends everything in order: the worker first, so that it commits what it has.
func (s *stack) stop() error {
	s.cancel()
	var errs []error
	s.mu.Lock()
	worker, temporal := s.worker, s.temporal
	s.mu.Unlock()
	grace, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if worker != nil {
		if err := worker.Process.Signal(syscall.SIGTERM); err == nil {
			kill := time.AfterFunc(25*time.Second, func() { _ = worker.Process.Kill() })
			s.tasks.Wait()
			kill.Stop()
		}
	}
	s.tasks.Wait()
	if temporal != nil {
		errs = append(errs, temporal.Stop(grace))
	}
	if s.s3 != nil {
		errs = append(errs, s.s3.Stop(grace))
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}
