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
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/engine/cpu"
	"github.com/specstream/specstream/model"
)

// Files of an evaluation.
const (
	ReportFile  = "evaluation.json"
	RecordsFile = "records.jsonl"
)

// EvaluateInput is all that an evaluation needs.
type EvaluateInput struct {
	Spec specstream.EvalSpec
	// Base and Adapter are folders.
	Base, Adapter string
	Blobs         shard.Blobs
	Data          shard.Manifest
	// Out is the folder for evaluation.json and records.jsonl.
	Out string
	// Progress may be nil.
	Progress func(done, total int, s engine.Summary)
}

// Evaluate decodes held-out prompts with an adapter on the CPU engine and writes
// what it measured.
func Evaluate(ctx context.Context, in EvaluateInput) (rep engine.Report, err error) {
	spec := in.Spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return rep, err
	}
	weights, err := model.Load(in.Base)
	if err != nil {
		return rep, err
	}
	if err := checkVocabulary(in.Data, weights.Config, in.Base); err != nil {
		return rep, err
	}
	adapter, err := model.LoadAdapter(in.Adapter, weights.Config)
	if err != nil {
		return rep, err
	}
	tok, err := loadTokenizer(filepath.Join(in.Base, "tokenizer.json"))
	if err != nil {
		return rep, err
	}
	prompts, err := readPrompts(ctx, in.Blobs, in.Data, spec.Prompts)
	if err != nil {
		return rep, err
	}
	decoder, err := cpu.New(weights, adapter)
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, decoder.Close()) }()
	if err := os.MkdirAll(in.Out, 0o755); err != nil {
		return rep, err
	}
	records, err := os.Create(filepath.Join(in.Out, RecordsFile))
	if err != nil {
		return rep, err
	}
	defer func() { err = errors.Join(err, records.Close()) }()
	rep, err = engine.Evaluate(ctx, engine.EvalInput{Mode: adapter.Spec.Mode, Gamma: adapter.Spec.Gamma, Decoder: decoder, Prompts: prompts,
		EOS: endTokens(weights.Config, tok), Detokenize: tok.Decode, Spec: spec, Records: records}, in.Progress)
	if err != nil {
		return rep, err
	}
	b, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return rep, err
	}
	return rep, os.WriteFile(filepath.Join(in.Out, ReportFile), append(b, '\n'), 0o644)
}

// endTokens are the base's end tokens, or its tokenizer's.
func endTokens(c model.Config, tok interface{ EOS() (int32, bool) }) []int32 {
	if id, ok := tok.EOS(); ok && len(c.EOS) == 0 {
		return []int32{id}
	}
	return c.EOS
}

// readPrompts reads the first n samples' prompts, all for 0.
func readPrompts(ctx context.Context, blobs shard.Blobs, m shard.Manifest, n int) ([]engine.Prompt, error) {
	ds, err := shard.OpenDataset(ctx, blobs, m, shard.DatasetOptions{})
	if err != nil {
		return nil, fmt.Errorf("open hold-out: %w", err)
	}
	defer ds.Close()
	var out []engine.Prompt
	for rec, err := range ds.All(ctx) {
		if err != nil {
			return nil, fmt.Errorf("read hold-out: %w", err)
		}
		samples, err := shard.Samples(rec)
		if err != nil {
			rec.Release()
			return nil, err
		}
		for _, s := range samples {
			if n > 0 && len(out) == n {
				break
			}
			out = append(out, engine.Prompt{ID: clone(s.ID), Tokens: append([]int32(nil), s.PromptTokens()...), Text: clone(s.Prompt), Reference: clone(s.Reference)})
		}
		rec.Release()
		if n > 0 && len(out) == n {
			break
		}
	}
	return out, nil
}

// clone copies a string out of a buffer that is about to be released.
func clone(s string) string { return string(append([]byte(nil), s...)) }

// EvaluationInfo describes a committed evaluation.
type EvaluationInfo struct {
	Ref    specstream.Ref    `json:"ref"`
	Digest specstream.Digest `json:"digest"`
	Mode   specstream.Mode   `json:"mode"`
	engine.Summary
	Seconds float64            `json:"seconds"`
	Metrics map[string]float64 `json:"metrics,omitempty"`
}

// Evaluate measures a stored checkpoint on a stored hold-out and commits the
// evaluation.
func (e *Env) Evaluate(ctx context.Context, spec specstream.EvalSpec, base, checkpoint, holdOut specstream.Ref, progress func(done, total int, s engine.Summary)) (info EvaluationInfo, err error) {
	began := time.Now()
	bm, baseDir, err := e.fetch(ctx, base, checkpoints.KindBase)
	if err != nil {
		return EvaluationInfo{}, err
	}
	_, adapterDir, err := e.fetch(ctx, checkpoint, checkpoints.KindAdapter)
	if err != nil {
		return EvaluationInfo{}, err
	}
	ds, err := e.openDataset(ctx, holdOut)
	if err != nil {
		return EvaluationInfo{}, err
	}
	scratch, remove, err := e.scratch()
	if err != nil {
		return EvaluationInfo{}, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	out := filepath.Join(scratch, "evaluation")
	rep, err := Evaluate(ctx, EvaluateInput{Spec: spec, Base: baseDir, Adapter: adapterDir, Blobs: repoBlobs{e.Repo}, Data: ds.manifest, Out: out, Progress: progress})
	if err != nil {
		return EvaluationInfo{}, err
	}
	info = EvaluationInfo{Mode: rep.Mode, Summary: rep.Summary, Seconds: time.Since(began).Seconds(), Metrics: map[string]float64{
		"latency_overhead": rep.Speed.LatencyOverhead, "speedup_with_prefill": rep.Speed.WithPrefill, "speedup_mean_of_ratios": rep.Speed.DecodeMean,
		"tokens_per_second": rep.Speed.SpeculativeTokensPerSecond, "autoregressive_tokens_per_second": rep.Speed.AutoregressiveTokensPerSecond,
		"rouge1": rep.Speculative.Rouge1, "rouge_lsum": rep.Speculative.RougeLSum, "exact_match_folded": rep.Speculative.ExactMatchFolded,
		"autoregressive_exact_match": rep.Autoregressive.ExactMatch}}
	m := checkpoints.Manifest{Kind: checkpoints.KindEvaluation, Parents: []specstream.Ref{checkpoint, holdOut, base}, Base: bm.Content, Dataset: ds.content,
		Spec: rawJSON(spec.WithDefaults()), Writer: holder(), Metrics: info.Metrics}
	if info.Ref, err = e.Repo.CommitDir(ctx, out, m); err != nil {
		return EvaluationInfo{}, err
	}
	committed, err := e.Repo.ReadManifest(ctx, info.Ref)
	info.Digest = committed.Content
	return info, err
}

// EvaluateLocal evaluates between folders and returns what it measured.
func EvaluateLocal(ctx context.Context, spec specstream.EvalSpec, base, adapter, dataDir, out string, progress func(done, total int, s engine.Summary)) (engine.Report, error) {
	if filepath.Base(dataDir) == shard.ManifestFile {
		dataDir = filepath.Dir(dataDir)
	}
	blobs := shard.DirBlobs{Dir: dataDir}
	m, err := blobs.Manifest()
	if err != nil {
		return engine.Report{}, err
	}
	return Evaluate(ctx, EvaluateInput{Spec: spec, Base: base, Adapter: adapter, Blobs: blobs, Data: m, Out: out, Progress: progress})
}
