package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/trainer"
	"github.com/specstream/specstream/trainer/gorgonia"
)

// HistoryFile is the name of a trained adapter's history: one JSON object a step.
const HistoryFile = "history.jsonl"

// TrainInput is all that a training needs.
type TrainInput struct {
	Spec specstream.TrainSpec
	// Base is a Hugging Face folder.
	Base string
	// Blobs and Data are the dataset; CacheDir, if set, keeps its decoded row
	// groups, for any number of processes.
	Blobs    shard.Blobs
	Data     shard.Manifest
	CacheDir string
	// States keeps resumable states.
	States trainer.States
	// Out is the folder the adapter is written to.
	Out string
	// Progress, which may be nil, is called after every step.
	Progress func(trainer.Progress)
}

// TrainResult describes a trained adapter.
type TrainResult struct {
	Out string `json:"out"`
	// Digest names the adapter's parameters.
	Digest          specstream.Digest `json:"digest"`
	Mode            specstream.Mode   `json:"mode"`
	Steps           int               `json:"steps"`
	Loss            float64           `json:"loss"`
	Accuracy        []float64         `json:"accuracy"`
	Parameters      int64             `json:"parameters"`
	Seconds         float64           `json:"seconds"` // of this process
	PeakStreamRows  int               `json:"peak_stream_rows"`
	TokensPerSecond float64           `json:"tokens_per_second"`
}

// Train trains an adapter from its last saved state and writes it to in.Out.
func Train(ctx context.Context, in TrainInput) (TrainResult, error) {
	spec := in.Spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return TrainResult{}, err
	}
	began := time.Now()
	weights, err := model.Load(in.Base)
	if err != nil {
		return TrainResult{}, err
	}
	if err := checkVocabulary(in.Data, weights.Config, in.Base); err != nil {
		return TrainResult{}, err
	}
	adapter, err := model.NewAdapter(weights.Config, spec.AdapterSpec, spec.Seed)
	if err != nil {
		return TrainResult{}, err
	}
	batches, closeData, err := openBatches(ctx, in.Blobs, in.Data, spec, in.CacheDir)
	if err != nil {
		return TrainResult{}, err
	}
	defer closeData()
	backend, err := gorgonia.NewAdapter[float32](weights, adapter, spec)
	if err != nil {
		return TrainResult{}, err
	}
	var last trainer.Progress
	history, err := trainer.Run(ctx, spec, backend, batches, in.States, func(p trainer.Progress) {
		last = p
		if in.Progress != nil {
			in.Progress(p)
		}
	})
	if err = errors.Join(err, backend.Close()); err != nil {
		return TrainResult{}, fmt.Errorf("train %s adapter: %w", spec.Mode, err)
	}
	trained := backend.Adapter()
	if err := trained.Save(in.Out); err != nil {
		return TrainResult{}, err
	}
	if err := writeHistory(filepath.Join(in.Out, HistoryFile), history); err != nil {
		return TrainResult{}, err
	}
	counts, err := model.CountParams(weights.Config, spec.AdapterSpec)
	if err != nil {
		return TrainResult{}, err
	}
	end := history[len(history)-1]
	res := TrainResult{Out: in.Out, Mode: spec.Mode, Steps: len(history), Loss: end.Loss, Accuracy: end.Accuracy, Parameters: counts.Total,
		Seconds: time.Since(began).Seconds(), PeakStreamRows: backend.PeakStreamRows, TokensPerSecond: last.TokensPerSecond}
	res.Digest, err = trained.Digest()
	return res, err
}

// checkVocabulary refuses a dataset whose tokens the base does not know.
func checkVocabulary(m shard.Manifest, c model.Config, base string) error {
	if m.Lineage.VocabSize > c.VocabSize {
		return &specstream.InputError{File: base, Field: "vocab_size",
			Reason: fmt.Sprintf("the dataset was made with a tokenizer of %d tokens, the base knows %d", m.Lineage.VocabSize, c.VocabSize),
			Hint:   "ingest the data again with the base's own tokenizer.json"}
	}
	return nil
}

// writeHistory writes a training's history as JSON lines.
func writeHistory(path string, history []trainer.Metrics) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	enc := json.NewEncoder(f)
	for _, m := range history {
		if err := enc.Encode(m); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}

// ReadHistory reads what a training wrote.
func ReadHistory(path string) ([]trainer.Metrics, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var out []trainer.Metrics
	for d := json.NewDecoder(f); d.More(); {
		var m trainer.Metrics
		if err := d.Decode(&m); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, m)
	}
	return out, nil
}

// TrainLocal trains between folders: base and dataset are read, the state is kept
// in the adapter's folder until it is written.
func TrainLocal(ctx context.Context, spec specstream.TrainSpec, base, dataDir, out string, progress func(trainer.Progress)) (TrainResult, error) {
	if filepath.Base(dataDir) == shard.ManifestFile {
		dataDir = filepath.Dir(dataDir)
	}
	blobs := shard.DirBlobs{Dir: dataDir}
	m, err := blobs.Manifest()
	if err != nil {
		return TrainResult{}, err
	}
	id, err := localRun(spec, base, m)
	if err != nil {
		return TrainResult{}, err
	}
	states := trainer.StateDir(filepath.Join(out, ".state-"+id.Short()))
	res, err := Train(ctx, TrainInput{Spec: spec, Base: base, Blobs: blobs, Data: m, States: states, Out: out, Progress: progress})
	if err != nil {
		return res, err
	}
	return res, os.RemoveAll(string(states))
}

// localRun names a local training by its inputs, so that the state of another
// specification, base or dataset in the same folder is not taken for its own.
func localRun(spec specstream.TrainSpec, base string, m shard.Manifest) (specstream.Digest, error) {
	weights, err := model.DirDigest(base)
	if err != nil {
		return "", err
	}
	d, err := m.Digest()
	if err != nil {
		return "", err
	}
	return trainRun(spec, weights, d)
}

// trainRun names a training by all that its result depends on.
func trainRun(spec specstream.TrainSpec, base, dataset specstream.Digest) (specstream.Digest, error) {
	return specstream.DigestJSON(struct {
		Spec          specstream.TrainSpec
		Base, Dataset specstream.Digest
	}{spec.WithDefaults(), base, dataset})
}
