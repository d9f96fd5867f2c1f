package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/inspect"
)

func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// TestDataInspect prints samples of inputs, and the same ones of the data set
// made of them.
func TestDataInspect(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.json"), filepath.Join(dir, "out")
	require.NoError(t, os.WriteFile(in, []byte(`[
		{"question": "How many?", "context": "CREATE TABLE t (a)", "answer": "SELECT COUNT(a) FROM t"},
		{"question": "Which?\u001b[2J", "context": "CREATE TABLE t (a)", "answer": "SELECT a FROM t"}]`), 0o600))
	const tok = "demobase/tokenizer.json"
	fromInputs, err := command(t, "data", "inspect", "--format", "sql", "--tokenizer", tok, "--gamma", "2", in)
	require.NoError(t, err)
	require.Contains(t, fromInputs, "in.json#1/1  ")
	require.Contains(t, fromInputs, "⟦SELECT")
	require.Contains(t, fromInputs, "<|end|>⟧")
	require.Contains(t, fromInputs, "  main      \"SELECT\"  token ")
	require.Contains(t, fromInputs, "  stream 2  ")
	require.NotContains(t, fromInputs, "\x1b")

	_, err = command(t, "ingest", "--format", "sql", "--tokenizer", tok, "--out", out, "--progress", "none", in)
	require.NoError(t, err)
	for _, path := range []string{out, filepath.Join(out, "dataset.json")} {
		fromDataset, err := command(t, "data", "inspect", "--tokenizer", tok, "--gamma", "2", path)
		require.NoError(t, err)
		// A data set names records after the content of their part.
		require.Equal(t, strings.ReplaceAll(fromInputs, "in.json#", "ee890f137331#"), fromDataset)
	}

	text, err := command(t, "data", "inspect", "--json", "--tokenizer", tok, "--id", "ee890f137331#2", "--position", "3", out)
	require.NoError(t, err)
	var got struct {
		Samples []inspect.Sample
		Notes   []string
	}
	require.NoError(t, json.Unmarshal([]byte(text), &got), text)
	require.Len(t, got.Samples, 1)
	require.Equal(t, "ee890f137331#2/1", got.Samples[0].ID)
	require.Equal(t, 3, got.Samples[0].Targets.Position)
	require.Len(t, got.Samples[0].Targets.Streams, 5)
	require.True(t, got.Samples[0].Targets.Streams[0].Masked)

	text, err = command(t, "data", "inspect", "--json", "--format", "sql", "--tokenizer", tok, "--max-length", "2", in)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(text), &got), text)
	require.Len(t, got.Notes, 2)
	require.Contains(t, got.Notes[0], "too_long:1")
}

func TestDataInspectErrors(t *testing.T) {
	const tok = "demobase/tokenizer.json"
	in := filepath.Join(t.TempDir(), "in.json")
	require.NoError(t, os.WriteFile(in, []byte(`[{"question": "a", "context": "b", "answer": "c"}]`), 0o600))
	for _, c := range []struct {
		name  string
		args  []string
		want  string
		usage bool
	}{
		{"no tokenizer", []string{in}, "--tokenizer is required", true},
		{"nothing", []string{"--tokenizer", tok}, "name a data set", true},
		{"two data sets", []string{"--tokenizer", tok, "a", "b"}, "name one data set", true},
		{"negative", []string{"--tokenizer", tok, "--limit", "-1", "a"}, "negative", true},
		{"no data set", []string{"--tokenizer", tok, t.TempDir()}, "dataset.json", false},
		{"template", []string{"--tokenizer", tok, "--format", "sql", "--template", "llama3", in}, "llama3/1 uses", false},
		{"no chat template", []string{"--tokenizer", tok, "--format", "sql", "--template", "model", in}, "chat_template", false},
		{"unknown id", []string{"--tokenizer", tok, "--format", "sql", "--id", "x", in}, `has no sample "x"`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := command(t, append([]string{"data", "inspect"}, c.args...)...)
			require.ErrorContains(t, err, c.want)
			var usage usageError
			require.Equal(t, c.usage, errors.As(err, &usage))
			if !c.usage {
				require.True(t, specstream.BadInput(err))
			}
		})
	}
}
