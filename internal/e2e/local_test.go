package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// trained is what scripts read from `train --json`.
type trained struct {
	Digest specstream.Digest `json:"digest"`
	Mode   specstream.Mode   `json:"mode"`
	Steps  int               `json:"steps"`
}

func trainArgs(f fixture, mode specstream.Mode, steps int, out string) []string {
	return append([]string{"train", "--base", f.base, "--data", f.trainData, "--mode", string(mode), "--lora-rank", "4",
		"--steps", fmt.Sprint(steps), "--save-every", "20", "--out", out, "--progress", "jsonl", "--json"}, f.training...)
}

// TestStagesAlone runs training and evaluation between folders, without servers.
func TestStagesAlone(t *testing.T) {
	f := setup(t)
	for _, mode := range []specstream.Mode{specstream.Lossless, specstream.Shared} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			var a trained
			good(t, trainArgs(f, mode, 20, filepath.Join(out, "adapter"))...).decode(t, &a)
			require.Equal(t, mode, a.Mode)
			require.Equal(t, 20, a.Steps)
			require.NoError(t, a.Digest.Validate())
			require.FileExists(t, filepath.Join(out, "adapter", "adapter_config.json"))
			left, err := filepath.Glob(filepath.Join(out, "adapter", ".state-*"))
			require.NoError(t, err)
			require.Empty(t, left, "a finished training leaves no state")

			var e struct {
				Parity  float64 `json:"parity"`
				Prompts int     `json:"prompts"`
				Mean    float64 `json:"mean_accepted_tokens"`
				NGram   float64 `json:"ngram_mean_accepted_tokens"`
			}
			good(t, "eval", "--base", f.base, "--adapter", filepath.Join(out, "adapter"), "--data", filepath.Join(f.heldOut, "dataset.json"),
				"--out", filepath.Join(out, "eval"), "--prompts", "10", "--max-new-tokens", "16", "--json").decode(t, &e)
			require.Equal(t, 10, e.Prompts)
			require.Equal(t, 1.0, e.Parity, "speculative decoding gives autoregressive decoding's tokens")
			require.GreaterOrEqual(t, e.Mean, 1.0)
			require.GreaterOrEqual(t, e.NGram, 1.0)
			require.FileExists(t, filepath.Join(out, "eval", "evaluation.json"))
			require.FileExists(t, filepath.Join(out, "eval", "records.jsonl"))
		})
	}
}

// TestInterruptedTraining stops and kills a training at several moments: run
// again, it ends with the bytes of one that was left alone.
func TestInterruptedTraining(t *testing.T) {
	f := setup(t)
	const steps = 150
	var want trained
	undisturbed := filepath.Join(t.TempDir(), "adapter")
	good(t, trainArgs(f, specstream.Lossless, steps, undisturbed)...).decode(t, &want)
	for _, c := range []struct {
		signal syscall.Signal
		code   int
	}{
		{syscall.SIGTERM, 75}, // progress is saved
		{syscall.SIGKILL, -1},
		{syscall.SIGINT, 130},
	} {
		t.Run(c.signal.String(), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "adapter")
			for _, after := range []time.Duration{0, 300 * time.Millisecond, 150 * time.Millisecond} {
				if code, done := interrupt(t, c.signal, after, trainArgs(f, specstream.Lossless, steps, out)...); !done {
					require.Equal(t, c.code, code)
				}
			}
			var got trained
			good(t, trainArgs(f, specstream.Lossless, steps, out)...).decode(t, &got)
			require.Equal(t, want, got)
			for _, name := range []string{"specstream.safetensors", "history.jsonl"} {
				a, err := os.ReadFile(filepath.Join(undisturbed, name))
				require.NoError(t, err)
				b, err := os.ReadFile(filepath.Join(out, name))
				require.NoError(t, err)
				require.Equal(t, a, b, name)
			}
		})
	}
}

// interrupt starts a command, sends it a signal some time after its first
// progress, and returns its exit code, -1 for one that a signal ended. done says
// that it had finished before.
func interrupt(t testing.TB, s syscall.Signal, after time.Duration, args ...string) (code int, done bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := command(ctx, args...)
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewScanner(stderr)
	var said strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		var e struct {
			Type string `json:"type"`
			Step int    `json:"step"`
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Type == "progress" && e.Step > 0 {
			break
		}
	}
	time.Sleep(after)
	require.NoError(t, c.Process.Signal(s))
	rest, err := io.ReadAll(stderr)
	require.NoError(t, err)
	err = c.Wait()
	if _, ended := err.(*exec.ExitError); err != nil && !ended {
		t.Fatalf("%v\n%s%s", err, &said, rest)
	}
	t.Logf("%v after %v: %v, %s", s, after, c.ProcessState, strings.TrimSpace(string(rest)))
	return c.ProcessState.ExitCode(), c.ProcessState.Success()
}
