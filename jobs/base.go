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
	"github.com/specstream/specstream/data/clean"
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
	in := newInputs()
	account, err := ingest.Run(ctx, spec.Data, ingest.Options{Tokenizer: tok, TokenizerDir: filepath.Join(work, "tokenizer"), Open: in.open, List: in.list,
		Blobs: blobs, Memo: ingest.DirMemo{Dir: filepath.Join(work, "data", "memo")}})
	if err != nil {
		return BaseResult{}, err
	}
	ts := spec.train()
	batches, closeData, err := openBatches(ctx, blobs, account.Dataset, ts, "")
	if err != nil {
		return BaseResult{}, err
	}
	defer closeData()
	bos, _ := tok.BOS()
	eos, _ := tok.EOS()
	weights := model.NewWeights(spec.config(tok.VocabSize(), bos, eos), spec.Seed)
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
		t, err := newTexts(spec)
		if err != nil {
			*failed = err
			return
		}
		uris, err := data.Expand(ctx, spec.Inputs, t.in.list)
		if err != nil {
			*failed = err
			return
		}
		for _, uri := range uris {
			more, err := t.file(ctx, uri, yield)
			if err != nil {
				*failed = err
			}
			if err != nil || !more {
				return
			}
		}
	}, failed
}

// texts renders records.
type texts struct {
	in       inputs
	format   data.Format
	cleaner  *clean.Cleaner
	template data.Template
	left     int // records that the spec's limit leaves; negative: no limit
}

func newTexts(spec specstream.DataSpec) (t *texts, err error) {
	t = &texts{in: newInputs(), left: -1}
	if spec.Limit > 0 {
		t.left = spec.Limit
	}
	if t.format, err = data.FormatFor(spec); err != nil {
		return nil, err
	}
	if t.cleaner, err = clean.New(*spec.Clean); err != nil {
		return nil, err
	}
	t.template, err = data.TemplateFor(spec, t.format, "")
	return t, err
}

// file yields one file's pieces; it returns false when no more are wanted.
func (t *texts) file(ctx context.Context, uri string, yield func(string) bool) (more bool, err error) {
	r, err := data.OpenWith(ctx, t.format, uri, t.in.open)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for t.left != 0 {
		t.left--
		pieces, err := t.record(r)
		var bad *data.BadRecordError
		var skip *data.SkipError
		switch {
		case errors.Is(err, io.EOF):
			t.left++
			return true, nil
		case errors.As(err, &bad), errors.As(err, &skip):
			continue // the ingest that follows counts and judges it
		case err != nil:
			return false, err
		}
		for _, p := range pieces {
			if p.Text != "" && !yield(p.Text) {
				return false, nil
			}
		}
	}
	return false, nil
}

// record renders the next record.
func (t *texts) record(r *data.Reader) ([]data.Piece, error) {
	rec, err := r.Next()
	if err == nil {
		err = t.cleaner.Clean(&rec)
	}
	if err != nil {
		return nil, err
	}
	return t.template.Render(rec, false)
}

// openBatches opens a dataset for training in the order that a specification
// asks for.
func openBatches(ctx context.Context, blobs shard.Blobs, m shard.Manifest, spec specstream.TrainSpec, cacheDir string) (trainer.Batches, func(), error) {
	order, err := shard.NewOrder(m, shard.OrderOptions{Seed: spec.Seed, GlobalBatch: int64(spec.BatchSize), Bucketing: spec.Bucketing, Blobs: blobs})
	if err != nil {
		return nil, nil, err
	}
	ds, err := shard.OpenDataset(ctx, blobs, m, shard.DatasetOptions{CacheDir: cacheDir, WithoutText: true})
	if err != nil {
		return nil, nil, fmt.Errorf("open dataset: %w", err)
	}
	batches := &trainer.ShardBatches{Dataset: ds, Order: order}
	if spec.PackTokens > 0 {
		return trainer.Packed{Batches: batches, Tokens: spec.PackTokens}, batches.Close, nil
	}
	return batches, batches.Close, nil
}
