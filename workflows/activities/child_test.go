package activities

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/workflows"
)

// helperEnv makes the test binary act as a child process.
const helperEnv = "ACTIVITIES_TEST_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		helper(mode)
		return
	}
	goleak.VerifyTestMain(m,
		// The SDK's worker cache and gRPC keep these for the life of the process.
		goleak.IgnoreTopFunction("go.temporal.io/sdk/internal.(*workerCache).close"),
		goleak.IgnoreTopFunction("google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"),
	)
}

const goodResult = `{"ref":{"key":"manifests/r/1.json","digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},` +
	`"digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","steps":3,"final_loss":1.25,"extra":"ignored"}`

func progressLine(step int) string {
	return fmt.Sprintf(`{"type":"progress","stage":"train","step":%d,"steps":3,"loss":2.5,"tokens_per_second":100,"eta_seconds":7,"note":"x"}`, step)
}

func helper(mode string) {
	term := make(chan os.Signal, 1)
	switch mode {
	case "good":
		for i := 1; i <= 3; i++ {
			fmt.Fprintln(os.Stderr, progressLine(i))
		}
		fmt.Fprintln(os.Stderr, "a word for the log")
		fmt.Println(goodResult)
	case "bad":
		fmt.Fprintln(os.Stderr, "something before")
		fmt.Fprint(os.Stderr, `specstream: train.json: record 3: field "answer": missing`) // no newline
		os.Exit(1)
	case "silent":
		os.Exit(1)
	case "failed":
		fmt.Fprintln(os.Stderr, "store: connection refused")
		os.Exit(3)
	case "panic":
		fmt.Fprintln(os.Stderr, progressLine(2))
		panic("boom")
	case "drain":
		signal.Notify(term, syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, progressLine(1))
		<-term
		fmt.Fprintln(os.Stderr, "committed")
		os.Exit(75)
	case "finish": // is done just as it is told to stop
		signal.Notify(term, syscall.SIGTERM)
		fmt.Fprintln(os.Stderr, progressLine(1))
		<-term
		fmt.Println(goodResult)
	case "stubborn": // ignores SIGTERM, and so does what it started
		signal.Ignore(syscall.SIGTERM)
		c := exec.Command("sleep", "60")
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stderr, "pids %d %d\n", os.Getpid(), c.Process.Pid)
		fmt.Fprintln(os.Stderr, progressLine(1))
		time.Sleep(time.Minute)
	case "orphan": // ends and leaves a process that holds its output open
		c := exec.Command("sleep", "60")
		c.Stdout, c.Stderr = os.Stdout, os.Stderr
		if err := c.Start(); err != nil {
			panic(err)
		}
		fmt.Fprintf(os.Stderr, "pids %d %d\n", os.Getpid(), c.Process.Pid)
		fmt.Println(goodResult)
	case "flood":
		line := strings.Repeat("y", 4<<20)
		fmt.Fprintln(os.Stderr, line)
		fmt.Fprintln(os.Stderr, progressLine(2))
		for range 1000 {
			fmt.Fprintln(os.Stderr, strings.Repeat("z", 100))
		}
		fmt.Println(line)
	case "lock": // reports whether it holds the lock it inherited
		fmt.Fprintln(os.Stderr, progressLine(1))
		time.Sleep(time.Minute)
	case "worker": // runs a child of its own and waits to be killed
		st := newState("start")
		c := &child{path: os.Args[0], args: []string{"train"}, env: []string{helperEnv + "=stubborn"}, state: st, grace: time.Minute,
			log: func(line string) { fmt.Println(line) }}
		_, err := c.run(context.Background(), nil)
		panic(err)
	default:
		panic("unknown helper " + mode)
	}
}

// newChild prepares a helper process and collects what it says.
func newChild(t *testing.T, mode string) (*child, func() []string) {
	t.Helper()
	lines := make(chan string, 2000)
	c := &child{
		path: os.Args[0], args: []string{"train"}, env: []string{helperEnv + "=" + mode},
		state: newState("start"), grace: 10 * time.Second, log: func(line string) { lines <- line },
	}
	return c, func() []string {
		var all []string
		for {
			select {
			case l := <-lines:
				all = append(all, l)
			default:
				return all
			}
		}
	}
}

// awaitProgress waits until the child has reported something.
func awaitProgress(t *testing.T, c *child) {
	t.Helper()
	require.Eventually(t, func() bool { return c.state.at().Stage == "train" }, 20*time.Second, 5*time.Millisecond)
}

func TestChildResultAndProgress(t *testing.T) {
	c, lines := newChild(t, "good")
	out, err := c.run(t.Context(), nil)
	require.NoError(t, err)
	require.JSONEq(t, goodResult, string(out))
	require.Equal(t, workflows.Progress{Stage: "train", Step: 3, Steps: 3, Loss: 2.5, TokensPerSecond: 100, ETASeconds: 7}, c.state.at())
	require.Equal(t, []string{"a word for the log"}, lines())
	require.NotZero(t, c.state.heartbeat("h", time.Hour).PID)
}

func TestChildEnds(t *testing.T) {
	for _, c := range []struct {
		mode    string
		want    string
		is      error
		isInput bool
	}{
		{mode: "bad", want: `train.json: record 3: field "answer": missing`, isInput: true},
		{mode: "silent", want: "it gave no reason", isInput: true},
		{mode: "failed", want: "train: exit status 3: store: connection refused"},
		{mode: "panic", want: "boom", is: errCrashed},
	} {
		t.Run(c.mode, func(t *testing.T) {
			ch, _ := newChild(t, c.mode)
			_, err := ch.run(t.Context(), nil)
			require.ErrorContains(t, err, c.want)
			require.Equal(t, c.isInput, specstream.BadInput(err))
			require.Equal(t, c.is != nil, errors.Is(err, errCrashed))
			if c.mode == "bad" {
				require.Equal(t, c.want, err.Error())
			}
		})
	}
	for _, c := range []struct {
		signal string
		crash  bool
	}{{"SEGV", true}, {"ABRT", true}, {"KILL", false}, {"TERM", false}} {
		t.Run("signal "+c.signal, func(t *testing.T) {
			ch, _ := newChild(t, "")
			ch.path, ch.args = "/bin/sh", []string{"-c", "ulimit -c 0; kill -" + c.signal + " $$"}
			_, err := ch.run(t.Context(), nil)
			require.ErrorContains(t, err, "killed by signal")
			require.Equal(t, c.crash, errors.Is(err, errCrashed))
		})
	}
	t.Run("no such program", func(t *testing.T) {
		ch, _ := newChild(t, "")
		ch.path = filepath.Join(t.TempDir(), "absent")
		_, err := ch.run(t.Context(), nil)
		require.ErrorContains(t, err, "start train")
	})
}

func TestChildIsStoppedInOrder(t *testing.T) {
	t.Run("cancelled", func(t *testing.T) {
		c, lines := newChild(t, "drain")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { awaitProgress(t, c); cancel() }()
		_, err := c.run(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, []string{"committed"}, lines(), "it was given the time to commit")
	})
	t.Run("worker stops", func(t *testing.T) {
		c, lines := newChild(t, "drain")
		stop := make(chan struct{})
		go func() { awaitProgress(t, c); close(stop) }()
		_, err := c.run(t.Context(), stop)
		require.ErrorIs(t, err, specstream.ErrDrained)
		require.Equal(t, []string{"committed"}, lines())
	})
	t.Run("finished meanwhile", func(t *testing.T) {
		c, _ := newChild(t, "finish")
		ctx, cancel := context.WithCancel(t.Context())
		go func() { awaitProgress(t, c); cancel() }()
		out, err := c.run(ctx, nil)
		require.NoError(t, err, "a result is not thrown away")
		require.JSONEq(t, goodResult, string(out))
	})
	t.Run("drained by somebody else", func(t *testing.T) {
		c, _ := newChild(t, "drain")
		go func() {
			awaitProgress(t, c)
			_ = syscall.Kill(c.state.heartbeat("", 0).PID, syscall.SIGTERM) // checked by what run returns
		}()
		_, err := c.run(t.Context(), nil)
		require.ErrorIs(t, err, specstream.ErrDrained)
	})
	t.Run("cancelled before it started", func(t *testing.T) {
		c, _ := newChild(t, "good")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := c.run(ctx, nil)
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, c.state.heartbeat("", 0).PID)
	})
}

// pids returns the process ids a helper has told.
func pids(t *testing.T, lines []string) []int {
	t.Helper()
	for _, l := range lines {
		if f := strings.Fields(l); len(f) == 3 && f[0] == "pids" {
			var all []int
			for _, s := range f[1:] {
				pid, err := strconv.Atoi(s)
				require.NoError(t, err)
				all = append(all, pid)
			}
			return all
		}
	}
	t.Fatalf("no process ids among %q", lines)
	return nil
}

// requireGone waits until none of the processes runs; one that is dead but not
// yet reaped by init is gone.
func requireGone(t *testing.T, pids ...int) {
	t.Helper()
	require.Eventually(t, func() bool {
		for _, pid := range pids {
			if syscall.Kill(pid, 0) == nil && !isZombie(pid) {
				return false
			}
		}
		return true
	}, 20*time.Second, 10*time.Millisecond, "%v still run", pids)
}

func isZombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(after, "Z")
}

func TestStubbornChildIsKilledWithAllItStarted(t *testing.T) {
	c, lines := newChild(t, "stubborn")
	c.grace = 200 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	go func() { awaitProgress(t, c); cancel() }()
	_, err := c.run(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	requireGone(t, pids(t, lines())...)
}

func TestProcessesLeftBehindAreKilled(t *testing.T) {
	c, lines := newChild(t, "orphan")
	began := time.Now()
	out, err := c.run(t.Context(), nil)
	require.NoError(t, err)
	require.JSONEq(t, goodResult, string(out))
	require.Less(t, time.Since(began), outputGrace+10*time.Second)
	requireGone(t, pids(t, lines())...)
}

func TestFloodIsBounded(t *testing.T) {
	c, lines := newChild(t, "flood")
	_, err := c.run(t.Context(), nil)
	require.ErrorContains(t, err, "more than 1048576 bytes")
	all := lines()
	require.Len(t, all, 1001)
	require.LessOrEqual(t, len(all[0]), maxLine+10)
	require.True(t, strings.HasSuffix(all[0], "[…]"))
	require.EqualValues(t, 2, c.state.at().Step, "progress after an overlong line is seen")
}

// TestKilledWorkerTakesItsChildAlong kills a worker with SIGKILL, so that it can
// do nothing about its child.
func TestKilledWorkerTakesItsChildAlong(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has a parent-death signal; elsewhere fencing makes survivors harmless")
	}
	w := exec.Command(os.Args[0])
	w.Env = append(os.Environ(), helperEnv+"=worker")
	out, err := w.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, w.Process.Kill())
	require.Error(t, w.Wait())
	both := pids(t, []string{line})
	requireGone(t, both[0])
	// The helper's own child is a plain `sleep` that asked for no such signal.
	require.NoError(t, syscall.Kill(both[1], syscall.SIGKILL))
}

func TestChildHoldsTheJobsLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "job.lock")
	lock, err := lockJob(t.Context(), nil, path)
	require.NoError(t, err)
	c, _ := newChild(t, "lock")
	c.lock = lock
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = c.run(ctx, nil) }() // how it ends is not the question here
	awaitProgress(t, c)
	require.NoError(t, lock.Close()) // as when the worker dies

	short, stop := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer stop()
	_, err = lockJob(short, nil, path)
	require.ErrorIs(t, err, context.DeadlineExceeded, "the child still runs")
	drained := make(chan struct{})
	close(drained)
	_, err = lockJob(t.Context(), drained, path)
	require.ErrorIs(t, err, specstream.ErrDrained)

	cancel()
	<-ended
	again, err := lockJob(t.Context(), nil, path)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

func TestNarration(t *testing.T) {
	for _, c := range []struct {
		name   string
		chunks []string
		want   []string
		step   int64
	}{
		{"progress split over writes", []string{`{"type":"prog`, `ress","stage":"s","step":4}` + "\n"}, nil, 4},
		{"two in one write", []string{progressLine(1) + "\n" + progressLine(2) + "\n"}, nil, 2},
		{"carriage return", []string{progressLine(3) + "\r\n"}, nil, 3},
		{"other JSON is talk", []string{`{"level":"warn","msg":"slow"}` + "\n"}, []string{`{"level":"warn","msg":"slow"}`}, 0},
		{"broken JSON is talk", []string{`{"type":"progress","step":"two"}` + "\n"}, []string{`{"type":"progress","step":"two"}`}, 0},
		{"blank lines", []string{"\n\n  \nx\n"}, []string{"x"}, 0},
		{"not UTF-8", []string{"a\xff\n"}, []string{"a\uFFFD"}, 0},
		{"no newline at the end", []string{"last words"}, []string{"last words"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			n := narration{state: newState("start"), log: func(l string) { got = append(got, l) }}
			for _, chunk := range c.chunks {
				written, err := n.Write([]byte(chunk))
				require.NoError(t, err)
				require.Equal(t, len(chunk), written)
			}
			n.flush()
			require.Equal(t, c.want, got)
			require.Equal(t, c.step, n.state.at().Step)
		})
	}
}

func FuzzNarration(f *testing.F) {
	f.Add([]byte(progressLine(1)+"\nwords\n"), 7)
	f.Add([]byte("{\"type\":\"progress\",\"step\":1e99}\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, chunk int) {
		if chunk < 1 {
			chunk = 1
		}
		logged := 0
		n := narration{state: newState("start"), log: func(l string) {
			logged++
			if len(l) > 3*maxLine+10 { // each bad byte may become three
				t.Fatalf("a line of %d bytes", len(l))
			}
		}}
		for rest := b; len(rest) > 0; {
			k := min(chunk, len(rest))
			if w, err := n.Write(rest[:k]); w != k || err != nil {
				t.Fatalf("wrote %d, %v", w, err)
			}
			rest = rest[k:]
		}
		n.flush()
		if lines := strings.Count(string(b), "\n") + 1; logged > lines {
			t.Fatalf("%d lines logged of %d", logged, lines)
		}
		if n.size > 2*maxTail {
			t.Fatalf("%d bytes kept", n.size)
		}
	})
}

func TestStallIsToldApartFromLife(t *testing.T) {
	s := newState("train")
	s.advance(workflows.Progress{Stage: "train", Step: 1})
	require.False(t, s.heartbeat("h", time.Minute).Stalled)
	s.moved = s.moved.Add(-2 * time.Minute)
	s.advance(workflows.Progress{Stage: "train", Step: 1, Loss: 2}) // the same step again is no progress
	h := s.heartbeat("h", time.Minute)
	require.True(t, h.Stalled)
	require.Greater(t, h.IdleSeconds, 100.0)
	s.advance(workflows.Progress{Stage: "train", Step: 2})
	require.False(t, s.heartbeat("h", time.Minute).Stalled)
}

func TestCrashesAreCountedByPlace(t *testing.T) {
	dir := t.TempDir()
	note := func(step int64) int {
		n, err := noteCrash(dir, "job", workflows.Progress{Stage: "train", Step: step})
		require.NoError(t, err)
		return n
	}
	require.Equal(t, 1, note(5))
	require.Equal(t, 2, note(5))
	require.Equal(t, 1, note(6), "it has got further")
	require.NoError(t, forgetCrashes(dir, "job"))
	require.NoError(t, forgetCrashes(dir, "job"))
	require.Equal(t, 1, note(6))
}
