package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/workflows"
)

// kinds are what is killed in a round, each once and in random order.
var kinds = []string{kindWork, kindWork, kindWorker, kindTemporal, kindS3, kindUp}

// numberFrom is the number in an environment variable.
func numberFrom(t testing.TB, name string, otherwise uint64) uint64 {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(v, 10, 64)
	require.NoError(t, err, name)
	return n
}

// TestKill kills the parts of a stack, kill -9, at random moments of a pipeline.
// The pipeline ends promoted, with the adapters of one that was left alone, and
// at no time is anything visible in the store that is not whole.
func TestKill(t *testing.T) {
	rounds := numberFrom(t, "SPECSTREAM_KILL_ROUNDS", 3)
	if testing.Short() || rounds == 0 {
		t.Skip("kills servers and workers for a minute: left out with -short and with SPECSTREAM_KILL_ROUNDS=0")
	}
	seed := numberFrom(t, "SPECSTREAM_KILL_SEED", uint64(time.Now().UnixNano()))
	t.Logf("SPECSTREAM_KILL_SEED=%d", seed)
	f := setup(t)
	j := job(f, func(j *specstream.JobSpec) {
		j.Modes = []specstream.Mode{specstream.Lossless, specstream.Shared}
		j.Train.Steps, j.Train.SaveEvery = 240, 20
		j.Eval.Prompts, j.Eval.MaxNewTokens = 60, 32
		j.Approval.Auto = true
	})
	began := time.Now()
	want := undisturbed(t, j)
	calm := time.Since(began)
	t.Logf("undisturbed: %v", calm)
	t.Run("stopped in order", func(t *testing.T) { stopped(t, j, want) })
	killed := map[string]int{}
	for round := range rounds {
		t.Run(strconv.FormatUint(round, 10), func(t *testing.T) {
			r := disturbed{t: t, stack: up(t, filepath.Join(t.TempDir(), "stack")), rand: rand.New(rand.NewPCG(seed, round)), killed: killed}
			got := r.run(j)
			require.Equal(t, workflows.Promoted, got.Outcome)
			require.Equal(t, contents(want), contents(got), "the adapters of a pipeline that was left alone")
			require.EqualValues(t, 1, got.Promotion.Generation, "promoted once")
			r.clean()
		})
	}
	t.Logf("killed: %v", killed)
	for _, k := range kinds {
		require.Positive(t, killed[k], "%s was never killed", k)
	}
}

// undisturbed runs a job to its end.
func undisturbed(t testing.TB, j specstream.JobSpec) (res workflows.PipelineResult) {
	s := up(t, filepath.Join(t.TempDir(), "stack"))
	s.good(t, &res, "pipeline", "start", "--wait", "--progress", "none", "--input-file", jobFile(t, j))
	require.Equal(t, workflows.Promoted, res.Outcome)
	s.sound(t)
	s.stop()
	return res
}

// stopped stops a stack in order in the middle of a training and starts it
// again, and then asks for the status while servers and workers are away.
func stopped(t *testing.T, j specstream.JobSpec, want workflows.PipelineResult) {
	s := up(t, filepath.Join(t.TempDir(), "stack"))
	id := s.submit(t, j)
	s.await(t, id, "training", func(st workflows.Status) bool { return st.Stage == workflows.StageTrain })
	repo := s.repo(t)
	require.Eventually(t, func() bool { // until it has something to go on from
		runs, err := repo.Runs(t.Context())
		return err == nil && slices.ContainsFunc(runs, func(r string) bool { return strings.HasPrefix(r, "train-") })
	}, 20*time.Second, 20*time.Millisecond)
	began := time.Now()
	s.stop()
	t.Logf("stopped in %v", time.Since(began))
	require.Less(t, time.Since(began), 20*time.Second)
	s.start()
	for _, kind := range []string{kindTemporal, kindWorker, kindS3} {
		require.NoError(t, syscall.Kill(s.find(kind).pid, syscall.SIGKILL))
		require.NotEmpty(t, s.status(t, id).Stage, "a status is had although %s was killed", kind)
	}
	var res workflows.PipelineResult
	s.good(t, &res, "pipeline", "start", "--wait", "--progress", "none", "--input-file", jobFile(t, j))
	require.Equal(t, workflows.Promoted, res.Outcome)
	require.Equal(t, contents(want), contents(res))
	s.sound(t)
}

// contents are the digests of what a pipeline made. Evaluations are left out:
// they hold measured times.
func contents(r workflows.PipelineResult) map[string]specstream.Digest {
	c := map[string]specstream.Digest{"base": r.Base.Digest, "data": r.Data.Digest, "hold-out": r.HoldOut.Digest}
	for _, m := range r.Modes {
		c[string(m.Mode)] = m.Checkpoint.Digest
	}
	return c
}

// disturbed is one round.
type disturbed struct {
	*stack
	t      *testing.T
	rand   *rand.Rand
	killed map[string]int
}

// run runs a job while parts of the stack are killed, and returns the result
// that a client saw which waited all along.
func (r disturbed) run(j specstream.JobSpec) (res workflows.PipelineResult) {
	t := r.t
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	waiting := command(ctx, "pipeline", "start", "--wait", "--json", "--progress", "plain", "--input-file", jobFile(t, j), "--data-dir", r.dir)
	var stdout, stderr bytes.Buffer
	waiting.Stdout, waiting.Stderr = &stdout, &stderr
	began := time.Now()
	require.NoError(t, waiting.Start())
	ended := make(chan error, 1)
	go func() { ended <- waiting.Wait() }()
	stopWatching := r.watch()
	defer stopWatching()

	for _, i := range r.rand.Perm(len(kinds)) {
		time.Sleep(time.Duration(r.rand.Int64N(int64(1500 * time.Millisecond))))
		p := r.awaitKind(kinds[i], ended)
		if p.pid == 0 {
			break // the pipeline has ended
		}
		r.killed[kinds[i]]++
		t.Logf("%6.2fs kill %s: %d %s", time.Since(began).Seconds(), kinds[i], p.pid, p.args[1])
		if kinds[i] == kindUp {
			r.kill()
			time.Sleep(time.Duration(r.rand.Int64N(int64(500 * time.Millisecond))))
			r.start()
			continue
		}
		if err := syscall.Kill(p.pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
			require.NoError(t, err)
		}
	}
	err := <-ended
	t.Logf("%6.2fs ended: %v", time.Since(began).Seconds(), err)
	if err != nil {
		t.Fatalf("%v\nstdout: %s\nstderr: %s\nlog: %s", err, &stdout, &stderr, r.logs())
	}
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &res), "%s", &stdout)
	return res
}

// awaitKind waits until there is a process of a kind and returns it, the zero
// process if the pipeline ends before.
func (r disturbed) awaitKind(kind string, ended chan error) process {
	for {
		select {
		case err := <-ended:
			ended <- err
			return process{}
		case <-time.After(10 * time.Millisecond):
		}
		if p := r.find(kind); p.pid != 0 {
			return p
		}
	}
}

// watch verifies every manifest as soon as it is visible, until the returned
// function is called.
func (r disturbed) watch() (stop func()) {
	t := r.t
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	known := map[string]bool{}
	repo := r.repo(t)
	look := func() {
		_, err := verifyAll(ctx, repo, known)
		// A server that is away can tell nothing; what it tells must be whole.
		if errors.Is(err, checkpoints.ErrCorrupt) || errors.Is(err, checkpoints.ErrNotFound) || specstream.BadInput(err) {
			t.Errorf("visible, but not whole: %v", err)
		}
	}
	tasks.Go(func() {
		for ctx.Err() == nil {
			look()
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		tasks.Wait()
		t.Logf("%d manifests were visible, all of them whole", len(known))
	})
}

// clean checks what a disturbed stack leaves behind: whole manifests, no scratch
// folders, no dead children that nobody has waited for.
func (r disturbed) clean() {
	r.sound(r.t)
	scratch, err := filepath.Glob(filepath.Join(r.dir, "work", "scratch-*"))
	require.NoError(r.t, err)
	require.Empty(r.t, scratch)
	for _, p := range r.members(r.find(kindUp).pid) {
		require.NotEqual(r.t, byte('Z'), p.state, "a zombie: %d %q", p.pid, p.args)
	}
}
