package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/trainer"
)

// CheckpointInfo describes a committed adapter.
type CheckpointInfo struct {
	Ref specstream.Ref `json:"ref"`
	// Digest names the adapter's files.
	Digest    specstream.Digest  `json:"digest"`
	Mode      specstream.Mode    `json:"mode"`
	Steps     int                `json:"steps"`
	FinalLoss float64            `json:"final_loss"`
	Seconds   float64            `json:"seconds"`
	Metrics   map[string]float64 `json:"metrics,omitempty"`
}

// Train trains an adapter in the store and commits it. Every attempt takes the
// run's next lease, which fences earlier attempts off, and goes on from the last
// committed state; a run whose adapter is committed already is not trained again.
func (e *Env) Train(ctx context.Context, spec specstream.TrainSpec, base, data specstream.Ref, progress func(trainer.Progress)) (info CheckpointInfo, err error) {
	spec = spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return CheckpointInfo{}, err
	}
	bm, baseDir, err := e.fetch(ctx, base, checkpoints.KindBase)
	if err != nil {
		return CheckpointInfo{}, err
	}
	ds, err := e.openDataset(ctx, data)
	if err != nil {
		return CheckpointInfo{}, err
	}
	id, err := trainRun(spec, bm.Content, ds.content)
	if err != nil {
		return CheckpointInfo{}, err
	}
	run := runName("train-"+string(spec.Mode), id)
	if ref, m, ok, err := e.Repo.Latest(ctx, run); err != nil {
		return CheckpointInfo{}, err
	} else if ok && m.Kind == checkpoints.KindAdapter {
		return checkpointInfo(ref, m)
	}
	lease, resume, err := e.Repo.Acquire(ctx, run, holder())
	if err != nil {
		return CheckpointInfo{}, err
	}
	if resume != nil && resume.Manifest.Kind == checkpoints.KindAdapter {
		return checkpointInfo(resume.Ref, resume.Manifest)
	}
	scratch, remove, err := e.scratch()
	if err != nil {
		return CheckpointInfo{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	meta := checkpoints.Manifest{Run: run, Generation: lease.Generation, Parents: []specstream.Ref{base, data},
		Base: bm.Content, Dataset: ds.content, Spec: rawJSON(spec), Seed: spec.Seed, Writer: holder()}
	states := &storedStates{env: e, meta: meta, dir: scratch, resume: resume}
	res, err := Train(ctx, TrainInput{Spec: spec, Base: baseDir, Blobs: repoBlobs{e.Repo}, Data: ds.manifest, CacheDir: filepath.Join(e.Work, "shards"),
		States: states, Out: filepath.Join(scratch, "adapter"), Progress: progress})
	if err != nil {
		return CheckpointInfo{}, err
	}
	meta.Kind, meta.Step = checkpoints.KindAdapter, int64(res.Steps)
	meta.Metrics = map[string]float64{"loss": res.Loss, "parameters": float64(res.Parameters), "peak_stream_rows": float64(res.PeakStreamRows),
		"seconds": res.Seconds, "tokens_per_second": res.TokensPerSecond}
	for j, a := range res.Accuracy {
		meta.Metrics[fmt.Sprintf("accuracy_%d", j)] = a
	}
	ref, err := e.Repo.CommitDir(ctx, res.Out, meta)
	if err != nil {
		return CheckpointInfo{}, err
	}
	m, err := e.Repo.ReadManifest(ctx, ref)
	if err != nil {
		return CheckpointInfo{}, err
	}
	return checkpointInfo(ref, m)
}

func checkpointInfo(ref specstream.Ref, m checkpoints.Manifest) (CheckpointInfo, error) {
	var spec specstream.TrainSpec
	if err := json.Unmarshal(m.Spec, &spec); err != nil {
		return CheckpointInfo{}, fmt.Errorf("%s: specification: %w", ref.Key, err)
	}
	return CheckpointInfo{Ref: ref, Digest: m.Content, Mode: spec.Mode, Steps: int(m.Step), FinalLoss: m.Metrics["loss"], Seconds: m.Metrics["seconds"], Metrics: m.Metrics}, nil
}

// holder names this process for people.
func holder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	return fmt.Sprintf("%s/%d", host, os.Getpid())
}

// storedStates commits training states under a lease.
type storedStates struct {
	env    *Env
	meta   checkpoints.Manifest
	dir    string
	resume *checkpoints.Resume
}

// Save commits a state. A newer attempt's lease makes it fail with
// checkpoints.ErrFenced, which ends this attempt.
func (s *storedStates) Save(ctx context.Context, state trainer.State) error {
	dir := filepath.Join(s.dir, "state")
	if err := trainer.StateDir(dir).Save(ctx, state); err != nil {
		return err
	}
	m := s.meta
	m.Kind, m.Step = checkpoints.KindState, int64(state.Step)
	_, err := s.env.Repo.CommitDir(ctx, dir, m)
	return errors.Join(err, os.RemoveAll(dir))
}

// Load reads the state that the lease handed over.
func (s *storedStates) Load(ctx context.Context) (trainer.State, bool, error) {
	if s.resume == nil {
		return trainer.State{}, false, nil
	}
	dir := filepath.Join(s.dir, "resume")
	if _, err := s.env.Repo.Fetch(ctx, s.resume.Ref, dir); err != nil {
		return trainer.State{}, false, err
	}
	state, found, err := trainer.StateDir(dir).Load(ctx)
	return state, found, errors.Join(err, os.RemoveAll(dir))
}
