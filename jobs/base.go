package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/ingest"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/data/tokenizer"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/trainer"
	"github.com/specstream/specstream/trainer/gorgonia"
)

// Special tokens of the tokenizers that Base trains.
const (
	bosToken = "<|begin|>"
	eosToken = "<|end|>"
)

// BaseSpec says how a small base model is made from scratch, for demonstrations
// and tests.
type BaseSpec struct {
	// Data is the text: records of one format, rendered by their template.
	Data specstream.DataSpec `json:"data"`
	// Vocab is the size of the byte-level BPE vocabulary. Default 1024.
	Vocab int `json:"vocab,omitempty"`
	// Hidden, FF, Layers, Heads and KVHeads size the Llama-type decoder.
	// Defaults 192, 512, 6, 6 and 3.
	Hidden  int `json:"hidden,omitempty"`
	FF      int `json:"ff,omitempty"`
	Layers  int `json:"layers,omitempty"`
	Heads   int `json:"heads,omitempty"`
	KVHeads int `json:"kv_heads,omitempty"`
	// Steps, BatchSize, LearningRate and Seed are the pretraining's. Defaults
	// 600, 32 samples, 2e-3 and 1.
	Steps        int     `json:"steps,omitempty"`
	BatchSize    int     `json:"batch_size,omitempty"`
	LearningRate float64 `json:"learning_rate,omitempty"`
	Seed         uint64  `json:"seed,omitempty"`
	// DType of the saved weights: "F32", "BF16" (default) or "F16".
	DType string `json:"dtype,omitempty"`
}

// WithDefaults returns a copy with every unset field at its default.
func (s BaseSpec) WithDefaults() BaseSpec {
	for _, d := range []struct {
		p *int
		v int
	}{{&s.Vocab, 1024}, {&s.Hidden, 192}, {&s.FF, 512}, {&s.Layers, 6}, {&s.Heads, 6}, {&s.KVHeads, 3}, {&s.Steps, 600}, {&s.BatchSize, 32}} {
		if *d.p == 0 {
			*d.p = d.v
		}
	}
	if s.LearningRate == 0 {
		s.LearningRate = 2e-3
	}
	if s.Seed == 0 {
		s.Seed = 1
	}
	if s.DType == "" {
		s.DType = "BF16"
	}
	s.Data = s.Data.WithDefaults()
	return s
}

// Validate checks a completed spec and names the first bad field.
func (s BaseSpec) Validate() error {
	if err := s.Data.Validate(); err != nil {
		return err
	}
	if s.Heads < 1 || s.Hidden%s.Heads != 0 {
		return specstream.Invalid("heads", "%d heads do not divide a hidden size of %d", s.Heads, s.Hidden)
	}
	if s.Vocab < 300 {
		return specstream.Invalid("vocab", "%d is too small: the bytes and special tokens alone take 258", s.Vocab)
	}
	return s.config(s.Vocab, -1, 0).Validate()
}

// config is the decoder's configuration for a tokenizer.
func (s BaseSpec) config(vocab int, bos, eos int32) model.Config {
	return model.Config{Architecture: "LlamaForCausalLM", HiddenSize: s.Hidden, IntermediateSize: s.FF, NumLayers: s.Layers,
		NumHeads: s.Heads, NumKVHeads: s.KVHeads, HeadDim: s.Hidden / max(1, s.Heads), VocabSize: vocab, MaxPositions: s.Data.MaxLength,
		RMSNormEps: 1e-5, RopeTheta: 10000, TieEmbeddings: true, BOS: bos, EOS: []int32{eos}}
}

// train is the pretraining as the training loop sees it: no streams, the
// next-token loss alone.
func (s BaseSpec) train() specstream.TrainSpec {
	one := 1.0
	return specstream.TrainSpec{Steps: s.Steps, BatchSize: s.BatchSize, MicroBatch: s.BatchSize, LearningRate: s.LearningRate,
		WarmupSteps: max(1, s.Steps/20), WeightDecay: 0.01, ClipNorm: 1, Alpha0: &one, AlphaStream: new(float64), Seed: s.Seed, SaveEvery: 100}
}

// BaseResult describes a base that was made.
type BaseResult struct {
	Dir        string            `json:"dir"`
	Digest     specstream.Digest `json:"digest"`
	Parameters int64             `json:"parameters"`
	Tokens     int64             `json:"tokens"` // of the data set, per epoch
	Vocab      int               `json:"vocab"`
	Steps      int               `json:"steps"`
	FinalLoss  float64           `json:"final_loss"` // nats a token
}

// Base trains a tokenizer and pretrains a decoder, and writes them as a Hugging
// Face folder. work keeps the shards and the resumable state; an interrupted run
// goes on from there when called again with the same spec.
func Base(ctx context.Context, spec BaseSpec, out, work string, progress func(stage string, p trainer.Progress)) (BaseResult, error) {
	spec = spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return BaseResult{}, err
	}
	digest, err := specstream.DigestJSON(spec)
	if err != nil {
		return BaseResult{}, err
	}
	work = filepath.Join(work, "base-"+digest.Short())
	tok, err := baseTokenizer(ctx, spec, filepath.Join(work, "tokenizer"))
	if err != nil {
		return BaseResult{}, err
	}
	blobs := shard.DirBlobs{Dir: filepath.Join(work, "data")}
	w, err := shard.NewWriter(shard.Options{Blobs: blobs, ShardTokens: spec.Data.ShardTokens})
	if err != nil {
		return BaseResult{}, err
	}
	account, err := ingest.Run(ctx, ingest.Options{Spec: spec.Data, Tokenizer: tok, Writer: w})
	if err != nil {
		return BaseResult{}, err
	}
	batches, closeData, err := openBatches(ctx, blobs, account.Dataset, spec.Seed, "")
	if err != nil {
		return BaseResult{}, err
	}
	defer closeData()
	bos, _ := tok.BOS()
	eos, _ := tok.EOS()
	weights := model.NewWeights(spec.config(tok.VocabSize(), bos, eos), spec.Seed)
	ts := spec.train()
	backend := gorgonia.NewBase[float32](weights, ts.WeightDecay, ts.ClipNorm)
	history, err := trainer.Run(ctx, ts, backend, trainer.WholeText{Batches: batches}, trainer.StateDir(filepath.Join(work, "state")), func(p trainer.Progress) {
		if progress != nil {
			progress("pretrain", p)
		}
	})
	if err = errors.Join(err, backend.Close()); err != nil {
		return BaseResult{}, fmt.Errorf("pretrain: %w", err)
	}
	if err := backend.Weights().Save(out, spec.DType); err != nil {
		return BaseResult{}, err
	}
	if err := saveTokenizer(tok, out); err != nil {
		return BaseResult{}, err
	}
	res := BaseResult{Dir: out, Parameters: weights.Config.NumParams(), Tokens: account.Tokens, Vocab: tok.VocabSize(), Steps: len(history)}
	if n := len(history); n > 0 {
		res.FinalLoss = history[n-1].Loss
	}
	res.Digest, err = model.DirDigest(out)
	return res, err
}

// baseTokenizer trains the tokenizer, or reads the one an earlier run trained.
func baseTokenizer(ctx context.Context, spec BaseSpec, dir string) (*tokenizer.Tokenizer, error) {
	path := filepath.Join(dir, "tokenizer.json")
	if _, err := os.Stat(path); err == nil {
		return tokenizer.Load(path)
	}
	texts, failed := recordTexts(ctx, spec.Data)
	tok, err := tokenizer.Train(ctx, texts, tokenizer.TrainOptions{VocabSize: spec.Vocab, MinFrequency: 2,
		SpecialTokens: []string{bosToken, eosToken}, BOS: bosToken, EOS: eosToken})
	if err = errors.Join(*failed, err); err != nil {
		return nil, fmt.Errorf("train tokenizer: %w", err)
	}
	if err := saveTokenizer(tok, dir); err != nil {
		return nil, err
	}
	return tokenizer.Load(path)
}

func saveTokenizer(tok *tokenizer.Tokenizer, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return tok.SaveDir(dir)
}

// recordTexts yields the rendered pieces of every good record. The error, if any,
// is set when the iteration ends.
func recordTexts(ctx context.Context, spec specstream.DataSpec) (iter.Seq[string], *error) {
	failed := new(error)
	return func(yield func(string) bool) {
		inputs, err := data.Expand(spec.Inputs)
		if err != nil {
			*failed = err
			return
		}
		template, err := data.TemplateFor(spec.Format, spec.Template)
		if err != nil {
			*failed = err
			return
		}
		for _, in := range inputs {
			more, err := fileTexts(ctx, spec, template, in, yield)
			if err != nil {
				*failed = err
			}
			if err != nil || !more {
				return
			}
		}
	}, failed
}

// fileTexts yields one file's pieces; it returns false when yield did.
func fileTexts(ctx context.Context, spec specstream.DataSpec, template data.Template, path string, yield func(string) bool) (more bool, err error) {
	r, err := data.Open(ctx, spec.Format, path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for n := 0; spec.Limit == 0 || n < spec.Limit; n++ {
		rec, err := r.Next()
		var bad *data.BadRecordError
		var skip *data.SkipError
		switch {
		case errors.Is(err, io.EOF):
			return true, nil
		case errors.As(err, &bad), errors.As(err, &skip):
			continue // the ingest that follows counts and judges it
		case err != nil:
			return false, err
		}
		pieces, err := template.Render(rec)
		if errors.As(err, &bad) {
			continue
		}
		if err != nil {
			return false, err
		}
		for _, p := range pieces {
			if !yield(p.Text) {
				return false, nil
			}
		}
	}
	return true, nil
}

// openBatches opens a dataset for training in the order of a seed.
func openBatches(ctx context.Context, blobs shard.Blobs, m shard.Manifest, seed uint64, cacheDir string) (trainer.ShardBatches, func(), error) {
	ds, err := shard.OpenDataset(ctx, blobs, m, shard.DatasetOptions{CacheDir: cacheDir, WithoutText: true})
	if err != nil {
		return trainer.ShardBatches{}, nil, fmt.Errorf("open dataset: %w", err)
	}
	order, err := shard.NewOrder(m, seed, 0)
	if err != nil {
		ds.Close()
		return trainer.ShardBatches{}, nil, err
	}
	return trainer.ShardBatches{Dataset: ds, Order: order}, ds.Close, nil
}
