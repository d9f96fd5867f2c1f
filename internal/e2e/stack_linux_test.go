package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/s3"
	"github.com/specstream/specstream/infra/devserver"
	"github.com/specstream/specstream/workflows"
)

// stack is a running `specstream up`.
type stack struct {
	t   testing.TB
	dir string

	mu  sync.Mutex
	cmd *exec.Cmd
}

// up starts a stack in a folder, and stops it when the test ends.
func up(t testing.TB, dir string) *stack {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers: left out with -short")
	}
	prepareServer(t)
	s := &stack{t: t, dir: dir}
	s.start()
	t.Cleanup(s.stop)
	return s
}

var buildServer = sync.OnceValue(func() error {
	_, err := devserver.Find(context.Background(), devserver.Options{Progress: os.Stderr})
	return err
})

// prepareServer builds the Temporal development server if it is not there yet,
// which takes minutes.
func prepareServer(t testing.TB) {
	t.Helper()
	require.NoError(t, buildServer())
}

// start returns once the stack has said that it is ready.
func (s *stack) start() {
	s.t.Helper()
	c := command(context.Background(), "up", "--data-dir", s.dir, "--json")
	stdout, err := c.StdoutPipe()
	require.NoError(s.t, err)
	var stderr strings.Builder
	c.Stderr = &stderr
	require.NoError(s.t, c.Start())
	var ready struct {
		Temporal string `json:"temporal"`
		Store    string `json:"store"`
	}
	if err := json.NewDecoder(stdout).Decode(&ready); err != nil {
		_ = c.Wait() // its output says more
		s.t.Fatalf("specstream up: %v\n%s\n%s", err, &stderr, s.logs())
	}
	require.NotEmpty(s.t, ready.Temporal)
	require.Equal(s.t, "s3://specstream", ready.Store)
	s.mu.Lock()
	s.cmd = c
	s.mu.Unlock()
}

// stop ends the stack in order and checks that nothing of it is left.
func (s *stack) stop() {
	s.mu.Lock()
	c := s.cmd
	s.cmd = nil
	s.mu.Unlock()
	if c == nil {
		return
	}
	members := s.members(c.Process.Pid)
	require.NoError(s.t, c.Process.Signal(syscall.SIGTERM))
	kill := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer kill.Stop()
	if err := c.Wait(); err != nil {
		s.t.Errorf("specstream up: %v\n%s", err, s.logs())
	}
	for _, p := range members {
		if alive(s.t, p.pid) {
			s.t.Errorf("left behind: %d %q", p.pid, p.args)
		}
	}
	if s.t.Failed() {
		s.t.Logf("log of %s:\n%s", s.dir, s.logs())
	}
}

// kill kills the whole stack at once: `up` itself, whose children must follow.
func (s *stack) kill() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NoError(s.t, s.cmd.Process.Kill())
	var ended *exec.ExitError
	if err := s.cmd.Wait(); !errors.As(err, &ended) {
		s.t.Fatalf("specstream up: %v", err)
	}
	s.cmd = nil
}

// members are the processes of a stack: up's children and theirs.
func (s *stack) members(up int) (list []process) {
	all := processes(s.t)
	for parents := []int{up}; len(parents) > 0; {
		var next []int
		for _, p := range all {
			for _, parent := range parents {
				if p.parent == parent {
					list, next = append(list, p), append(next, p.pid)
				}
			}
		}
		parents = next
	}
	return list
}

// Kinds of a stack's processes.
const (
	kindWork     = "child" // of the worker: ingestion, training, evaluation
	kindWorker   = "worker"
	kindTemporal = "temporal"
	kindS3       = "s3"
	kindUp       = "up"
)

// find returns a process of a kind, the zero process if there is none now.
func (s *stack) find(kind string) process {
	s.mu.Lock()
	cmd := s.cmd
	s.mu.Unlock()
	if cmd == nil {
		return process{}
	}
	if kind == kindUp {
		return process{pid: cmd.Process.Pid, args: cmd.Args}
	}
	for _, p := range s.members(cmd.Process.Pid) {
		switch {
		case p.state == 'Z':
		case kind == kindWork && p.is("ingest", "train", "eval"),
			kind == kindWorker && p.is("worker"),
			kind == kindS3 && p.is("internal-s3"),
			kind == kindTemporal && p.is("server"):
			return p
		}
	}
	return process{}
}

func (s *stack) logs() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "specstream.log"))
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// run runs a command against the stack.
func (s *stack) run(t testing.TB, args ...string) result {
	t.Helper()
	return run(t, append(args, "--data-dir", s.dir, "--json")...)
}

func (s *stack) good(t testing.TB, v any, args ...string) {
	t.Helper()
	r := s.run(t, args...)
	if r.code != 0 {
		t.Fatalf("%s", r)
	}
	if v != nil {
		r.decode(t, v)
	}
}

// config is the stack's stack.json.
func (s *stack) config(t testing.TB) (c struct {
	TemporalAddress string `json:"temporal_address"`
	Namespace       string `json:"namespace"`
	S3Port          int    `json:"s3_port"`
	AccessKey       string `json:"access_key"`
	SecretKey       string `json:"secret_key"`
}) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.dir, "stack.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &c))
	return c
}

// repo opens the stack's store.
func (s *stack) repo(t testing.TB) *checkpoints.Repo {
	t.Helper()
	c := s.config(t)
	store, err := s3.Open(s3.Config{Endpoint: fmt.Sprintf("http://127.0.0.1:%d", c.S3Port), Bucket: "specstream",
		AccessKey: c.AccessKey, SecretKey: c.SecretKey, RetryFor: 2 * time.Second, WrapTransport: withoutKeepAlive})
	require.NoError(t, err)
	return &checkpoints.Repo{Store: store}
}

// withoutKeepAlive makes a client leave no idle connections, for which a server
// that stops would wait.
func withoutKeepAlive(rt http.RoundTripper) http.RoundTripper {
	if tr, ok := rt.(*http.Transport); ok {
		tr.DisableKeepAlives = true
	}
	return rt
}

// status asks once for a pipeline's status.
func (s *stack) status(t testing.TB, id string) (st workflows.Status) {
	t.Helper()
	s.good(t, &st, "pipeline", "status", id)
	return st
}

// await waits until a pipeline's status is as wanted.
func (s *stack) await(t testing.TB, id, what string, is func(workflows.Status) bool) workflows.Status {
	t.Helper()
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		st := s.status(t, id)
		if is(st) {
			return st
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("pipeline %s is not %s: %+v\n%s", id, what, st, s.logs())
		}
	}
}

// job is a small pipeline on the fixture.
func job(f fixture, change func(*specstream.JobSpec)) specstream.JobSpec {
	j := specstream.JobSpec{
		Name: "e2e", Base: f.base,
		Data:    specstream.DataSpec{Format: "sql", Inputs: []string{f.train}},
		HoldOut: specstream.DataSpec{Format: "sql", Inputs: []string{f.held}},
		Modes:   []specstream.Mode{specstream.Lossless},
		Train: specstream.TrainSpec{AdapterSpec: specstream.AdapterSpec{Gamma: 2, MSALayers: 2, LoRARank: 4},
			Steps: 20, BatchSize: 2, LearningRate: 3e-3, SaveEvery: 10},
		Eval:    specstream.EvalSpec{DecodeSpec: specstream.DecodeSpec{MaxNewTokens: 16}, Prompts: 10},
		Runtime: specstream.RuntimeSpec{HeartbeatTimeout: "2s"},
	}
	if change != nil {
		change(&j)
	}
	return j
}

// submit writes a job's file and starts its pipeline; it returns the pipeline's id.
func (s *stack) submit(t testing.TB, j specstream.JobSpec) string {
	t.Helper()
	var started struct{ ID, Run string }
	s.good(t, &started, "pipeline", "start", "--input-file", jobFile(t, j))
	require.NotEmpty(t, started.ID)
	require.NotEmpty(t, started.Run)
	return started.ID
}

func jobFile(t testing.TB, j specstream.JobSpec) string {
	t.Helper()
	b, err := json.Marshal(j)
	require.NoError(t, err)
	return write(t, filepath.Join(t.TempDir(), "job.json"), string(b))
}

// discard is a logger that says nothing.
var discard = slog.New(slog.DiscardHandler)
