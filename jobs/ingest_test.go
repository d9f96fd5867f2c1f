package jobs

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/mem"
	"github.com/specstream/specstream/data/ingest"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/data/synth"
)

const demoTokenizer = "../cmd/specstream/demobase/tokenizer.json"

// sqlSpec is a specification of generated questions, some of them twice, in
// several parts.
func sqlSpec(t testing.TB) specstream.DataSpec {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, synth.SQL(&b, 1, 300, synth.Train))
	var records []json.RawMessage
	require.NoError(t, json.Unmarshal(b.Bytes(), &records))
	records = append(records, records[10:40]...)
	b.Reset()
	for _, r := range records {
		require.NoError(t, json.Compact(&b, r))
		b.WriteByte('\n')
	}
	in := filepath.Join(t.TempDir(), "in.jsonl")
	require.NoError(t, os.WriteFile(in, b.Bytes(), 0o644))
	return specstream.DataSpec{Format: "sql", Inputs: []string{in}, Tokenizer: demoTokenizer, PartitionBytes: 8000, ShardTokens: 3000,
		Clean: &specstream.CleanSpec{Dedupe: specstream.DedupeExact}}
}

func files(t testing.TB, dir string) (n int) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(_ string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			n++
		}
		return err
	}))
	return n
}

// TestStagesInAStore: the stages as workers do them, each in a process of its
// own, make the dataset that a folder gets.
func TestStagesInAStore(t *testing.T) {
	ctx, spec := t.Context(), sqlSpec(t)
	local, err := IngestTo(ctx, spec, IngestOptions{Out: t.TempDir()})
	require.NoError(t, err)
	require.Equal(t, int64(300), local.Kept)

	store := mem.New()
	e := func() *Env {
		return &Env{Repo: &checkpoints.Repo{Store: store}, Work: t.TempDir()}
	}
	none := specstream.Ref{}
	p, err := e().PlanDataset(ctx, spec, none, nil)
	require.NoError(t, err)
	require.Nil(t, p.Dataset)
	require.Greater(t, p.Parts, 3)
	require.Equal(t, int64(330), p.Records)
	require.True(t, p.Dedupes)
	require.Equal(t, [][2]int{{0, p.Parts}}, p.Pending)

	at := DatasetStage{Plan: p.Plan, Part: 1}
	part, err := e().SignPart(ctx, spec, none, at, nil)
	require.NoError(t, err)
	require.Positive(t, part.Bytes)
	again, err := e().PlanDataset(ctx, spec, none, nil)
	require.NoError(t, err)
	require.Equal(t, p.Plan, again.Plan)
	require.Equal(t, [][2]int{{0, 1}, {2, p.Parts}}, again.Pending)

	d, err := e().ResolveDuplicates(ctx, spec, none, DatasetStage{Plan: p.Plan}, nil)
	require.NoError(t, err)
	require.Equal(t, [][2]int{{0, p.Parts}}, d.Pending)
	at.Resolution = d.Resolution
	for at.Part = range p.Parts - 1 {
		_, err := e().ProcessPart(ctx, spec, none, at, nil)
		require.NoError(t, err)
	}
	at.Part = p.Parts
	_, err = e().ProcessPart(ctx, spec, none, at, nil)
	require.ErrorContains(t, err, `field "part"`)
	info, err := e().CommitDataset(ctx, spec, none, at, nil) // with a part that no one did
	require.NoError(t, err)
	require.Equal(t, local.Manifest, info.Account.Manifest)
	require.NoError(t, info.Digest.Validate())

	// The commit names all that the dataset needs, and nothing else need be kept.
	env := e()
	ds, err := env.openDataset(ctx, info.Ref)
	require.NoError(t, err)
	d2, err := ds.manifest.Digest()
	require.NoError(t, err)
	require.Equal(t, local.Manifest, d2)
	m, err := env.Repo.ReadManifest(ctx, info.Ref)
	require.NoError(t, err)
	require.Len(t, m.Files, 1+len(ds.manifest.Blobs()))
	_, err = env.Repo.Verify(ctx, info.Ref)
	require.NoError(t, err)
}

// TestOnePartIsDoneAtOnce: planning what is small does all of it.
func TestOnePartIsDoneAtOnce(t *testing.T) {
	ctx, spec := t.Context(), sqlSpec(t)
	spec.PartitionBytes = 0
	local, err := IngestTo(ctx, spec, IngestOptions{Out: t.TempDir()})
	require.NoError(t, err)
	e := &Env{Repo: &checkpoints.Repo{Store: mem.New()}, Work: t.TempDir()}
	p, err := e.PlanDataset(ctx, spec, specstream.Ref{}, nil)
	require.NoError(t, err)
	require.NotNil(t, p.Dataset)
	require.Equal(t, local.Manifest, p.Dataset.Account.Manifest)
	again, err := e.PlanDataset(ctx, spec, specstream.Ref{}, nil)
	require.NoError(t, err)
	require.Equal(t, p, again, "equal records are one commit")
	left, err := filepath.Glob(filepath.Join(e.Work, scratchPrefix+"*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDryRunWritesNothing(t *testing.T) {
	spec, dir := sqlSpec(t), t.TempDir()
	t.Setenv("TMPDIR", dir)
	var quarantine bytes.Buffer
	want, err := IngestTo(t.Context(), spec, IngestOptions{Out: filepath.Join(t.TempDir(), "out")})
	require.NoError(t, err)
	before := files(t, dir)
	got, err := IngestTo(t.Context(), spec, IngestOptions{DryRun: true, Show: 2, Quarantine: &quarantine})
	require.NoError(t, err)
	require.Equal(t, before, files(t, dir))
	require.Len(t, got.Shown, 2)
	require.NotEmpty(t, got.Shown[0].Prompt)
	require.Positive(t, got.Shown[0].CompletionTokens)
	require.Equal(t, want.Manifest, got.Manifest, "it tells the very dataset that would be made")
	require.Equal(t, want.Counts, got.Counts)

	lines := strings.Split(strings.TrimSpace(quarantine.String()), "\n")
	require.Len(t, lines, 30)
	var q ingest.Quarantined
	require.NoError(t, json.Unmarshal([]byte(lines[0]), &q))
	require.Equal(t, ingest.Quarantined{File: spec.Inputs[0], Record: 301, Code: "duplicate", Action: ingest.ActionDropped, OfFile: spec.Inputs[0], OfRecord: 11, Similarity: 1}, q)
}

// TestIngestFolderAgain: a folder's second ingestion finds all done.
func TestIngestFolderAgain(t *testing.T) {
	spec, out := sqlSpec(t), t.TempDir()
	want, err := IngestTo(t.Context(), spec, IngestOptions{Out: out})
	require.NoError(t, err)
	n := files(t, out)
	got, err := IngestTo(t.Context(), spec, IngestOptions{Out: out, Workers: 1})
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, n, files(t, out))
	m, err := shard.DirBlobs{Dir: out}.Manifest()
	require.NoError(t, err)
	d, err := m.Digest()
	require.NoError(t, err)
	require.Equal(t, want.Manifest, d)
}

func TestStagesRefuseAnotherTokenizer(t *testing.T) {
	ctx, spec := t.Context(), sqlSpec(t)
	e := &Env{Repo: &checkpoints.Repo{Store: mem.New()}, Work: t.TempDir()}
	p, err := e.PlanDataset(ctx, spec, specstream.Ref{}, nil)
	require.NoError(t, err)
	b, err := os.ReadFile(demoTokenizer)
	require.NoError(t, err)
	other := filepath.Join(t.TempDir(), "tokenizer.json")
	var def map[string]any
	require.NoError(t, json.Unmarshal(b, &def))
	def["added_tokens"].([]any)[0].(map[string]any)["lstrip"] = true
	b, err = json.Marshal(def)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(other, b, 0o644))
	config, err := os.ReadFile(filepath.Join(filepath.Dir(demoTokenizer), "tokenizer_config.json"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(other), "tokenizer_config.json"), config, 0o644))
	spec.Tokenizer = other
	_, err = e.SignPart(ctx, spec, specstream.Ref{}, DatasetStage{Plan: p.Plan}, nil)
	require.ErrorContains(t, err, `field "tokenizer"`)
	require.True(t, specstream.BadInput(err))
}
