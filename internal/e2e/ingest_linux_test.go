package e2e

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/workflows"
)

// ingestByParts ingests many parts by a workflow while processes that do them are
// killed: the dataset is the one that a command makes alone.
func (s *stack) ingestByParts(t *testing.T, f fixture, base specstream.Ref) {
	spec := specstream.DataSpec{Format: "sql", Inputs: []string{f.train, f.held}, Tokenizer: filepath.Join(f.base, "tokenizer.json"),
		PartitionBytes: 8000, ShardTokens: 4000, Clean: &specstream.CleanSpec{Dedupe: specstream.DedupeExact}}
	b, err := json.Marshal(spec)
	require.NoError(t, err)
	dir := t.TempDir()
	var want account
	good(t, "ingest", "--spec", write(t, filepath.Join(dir, "spec.json"), string(b)), "--out", filepath.Join(dir, "out"), "--json").decode(t, &want)

	cl := s.temporal(t)
	run, err := cl.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "by-parts", TaskQueue: workflows.Queue}, workflows.IngestDatasetWorkflow,
		workflows.IngestInput{Spec: spec, Base: base, Runtime: specstream.RuntimeSpec{HeartbeatTimeout: "5s"}})
	require.NoError(t, err)
	status := func() (st workflows.IngestStatus) {
		v, err := cl.QueryWorkflow(t.Context(), "by-parts", "", workflows.StatusQuery)
		require.NoError(t, err)
		require.NoError(t, v.Get(&st))
		return st
	}
	killed := 0
	for began := time.Now(); killed < 3 && time.Since(began) < 30*time.Second && status().Stage != workflows.IngestDone; {
		if p := s.find(kindWork); p.pid != 0 {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); !errors.Is(err, syscall.ESRCH) {
				require.NoError(t, err)
				killed++
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
	var got workflows.DatasetInfo
	require.NoError(t, run.Get(t.Context(), &got))
	require.Equal(t, want.Manifest, got.Account.Manifest)
	require.Equal(t, *want.Read, got.Account.Read)
	require.Positive(t, killed)
	st := status()
	require.Equal(t, workflows.IngestDone, st.Stage)
	require.Greater(t, st.Parts, 5)
	require.Equal(t, st.Parts, st.Done)
}
