package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Paths of this run: the binary and a folder that all tests share.
var program, shared string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		var err error
		if shared, err = os.MkdirTemp("", "specstream-e2e-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(shared)
		if program = os.Getenv("SPECSTREAM_BIN"); program == "" {
			program = filepath.Join(shared, "specstream")
			build := exec.Command("go", "build", "-o", program, "github.com/specstream/specstream/cmd/specstream")
			if out, err := build.CombinedOutput(); err != nil {
				fmt.Fprintf(os.Stderr, "%v\n%s", err, out)
				return 1
			}
		}
		return m.Run()
	}())
}

// environment is the user's, without what would lead the command elsewhere.
func environment() []string {
	env := []string{"SPECSTREAM_CACHE=" + filepath.Join(shared, "cache")}
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, "SPECSTREAM_") && !strings.HasPrefix(name, "TEMPORAL_") && !strings.HasPrefix(name, "AWS_") || name == "SPECSTREAM_SRC" {
			env = append(env, e)
		}
	}
	return env
}

// result is what a command said and how it ended.
type result struct {
	args           []string
	stdout, stderr string
	code           int
}

// command is a specstream command that ends with the test.
func command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = environment()
	c.WaitDelay = 5 * time.Second
	return c
}

// run runs a command to its end, whatever that is.
func run(t testing.TB, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	c := command(ctx, args...)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	if c.ProcessState == nil || ctx.Err() != nil {
		t.Fatalf("specstream %s: %v\n%s", strings.Join(args, " "), err, &stderr)
	}
	return result{args, stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}

// good runs a command that must succeed.
func good(t testing.TB, args ...string) result {
	t.Helper()
	r := run(t, args...)
	if r.code != 0 {
		t.Fatalf("%s", r)
	}
	return r
}

func (r result) String() string {
	return fmt.Sprintf("specstream %s: exit code %d\nstdout: %s\nstderr: %s", strings.Join(r.args, " "), r.code, r.stdout, r.stderr)
}

// decode reads the one JSON value that standard output must be.
func (r result) decode(t testing.TB, v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(r.stdout), v); err != nil {
		t.Fatalf("%v: %s", err, r)
	}
}

// refused checks that a command ended with a code and one line on standard
// error, which holds all the given texts, and nothing on standard output.
func (r result) refused(t testing.TB, code int, texts ...string) {
	t.Helper()
	require.Equal(t, code, r.code, "%s", r)
	require.Empty(t, r.stdout, "%s", r)
	require.Equal(t, 1, strings.Count(r.stderr, "\n"), "one line: %s", r)
	require.True(t, strings.HasPrefix(r.stderr, "specstream: "), "%s", r)
	for _, text := range texts {
		require.Contains(t, r.stderr, text, "%s", r)
	}
}

// fixture is what the tests work on: a tiny base and generated questions with SQL.
type fixture struct {
	base                 string // Hugging Face folder
	train, held          string // records
	trainData, heldOut   string // ingested
	dimensions, training []string
}

var makeFixture = sync.OnceValues(func() (f fixture, err error) {
	dir := filepath.Join(shared, "fixture")
	in := func(name string) string { return filepath.Join(dir, name) }
	f = fixture{
		base: in("base"), train: in("train.json"), held: in("heldout.json"), trainData: in("data"), heldOut: in("heldout"),
		dimensions: []string{"--layers", "4", "--hidden", "48", "--ff", "96", "--heads", "4", "--kv-heads", "2"},
		training:   []string{"--gamma", "2", "--msa-layers", "2", "--batch-size", "2", "--learning-rate", "3e-3"},
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return f, err
	}
	for _, args := range [][]string{
		{"generate", "--format", "sql", "--records", "300", "--out", f.train},
		{"generate", "--format", "sql", "--records", "60", "--split", "heldout", "--out", f.held},
		append([]string{"base", "--format", "sql", "--out", f.base, "--vocab", "384", "--steps", "20", "--batch-size", "4", f.train}, f.dimensions...),
		{"ingest", "--format", "sql", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--out", f.trainData, f.train},
		{"ingest", "--format", "sql", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--out", f.heldOut, f.held},
	} {
		if out, err := command(context.Background(), args...).CombinedOutput(); err != nil {
			return f, fmt.Errorf("specstream %s: %w\n%s", strings.Join(args, " "), err, out)
		}
	}
	return f, nil
})

// setup returns the fixture, made once.
func setup(t testing.TB) fixture {
	t.Helper()
	f, err := makeFixture()
	require.NoError(t, err)
	return f
}

// write writes a file of a test and returns its path.
func write(t testing.TB, path, text string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// copyDir copies the files of a folder and returns the copy.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	require.NoError(t, os.CopyFS(to, os.DirFS(from)))
	return to
}
