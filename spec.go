package specstream

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Mode says what an adapter may change.
type Mode string

const (
	// Lossless adapters leave the base's output untouched: streams draft, the
	// base's own main stream verifies.
	Lossless Mode = "lossless"
	// Shared adapters fine-tune the base with LoRA and draft with the same weights.
	Shared Mode = "shared"
)

// Stream MLP choices: what streams pass through in place of the frozen MLP
// (lossless mode).
const (
	StreamMLPAdapter     = "adapter"      // h → R_s → h in place of the MLP
	StreamMLPBaseAdapter = "base+adapter" // the same, added to the frozen MLP's output
)

// Stream initialisation f_η (Eq. 4).
const (
	StreamInitIdentity = "identity"
	StreamInitLowRank  = "lowrank" // x + B A x
)

// LoRATargets are the linear projections of a decoder layer that LoRA can
// adapt, in canonical order.
var LoRATargets = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// AdapterSpec fixes an adapter's shape. With a base model's configuration it
// fixes every parameter's name and shape.
type AdapterSpec struct {
	// Mode is "lossless" or "shared".
	Mode Mode `json:"mode"`
	// Gamma is the number of speculative streams a token (γ). Default 4.
	Gamma int `json:"gamma,omitempty"`
	// MSALayers is how many of the top layers are multi-stream (N_s). Default 4,
	// or all layers of a base with fewer.
	MSALayers int `json:"msa_layers,omitempty"`
	// StreamRank is the rank of the stream adapters, lossless mode (R_s). Default 8.
	StreamRank int `json:"stream_rank,omitempty"`
	// StreamMLP is "adapter" (default) or "base+adapter", lossless mode.
	StreamMLP string `json:"stream_mlp,omitempty"`
	// StreamInit is "identity" (default) or "lowrank" (f_η of Eq. 4).
	StreamInit string `json:"stream_init,omitempty"`
	// StreamInitRank is the rank η of a low-rank f_η. Default 8 with "lowrank".
	StreamInitRank int `json:"stream_init_rank,omitempty"`
	// LoRARank is the rank of the LoRA adapters, shared mode (r). Default 32.
	LoRARank int `json:"lora_rank,omitempty"`
	// LoRAAlpha scales LoRA's output by alpha/rank. Default: the rank.
	LoRAAlpha float64 `json:"lora_alpha,omitempty"`
	// LoRATargets lists the projections LoRA adapts. Default: all seven.
	LoRATargets []string `json:"lora_targets,omitempty"`
	// PruneRank is the rank of the pruning adapter o_θ. Default 8.
	PruneRank int `json:"prune_rank,omitempty"`
}

// WithDefaults returns a copy with every unset field at its default.
func (s AdapterSpec) WithDefaults() AdapterSpec {
	setInt(&s.Gamma, 4)
	setInt(&s.MSALayers, 4)
	setInt(&s.PruneRank, 8)
	if s.StreamInit == "" {
		s.StreamInit = StreamInitIdentity
	}
	if s.StreamInit == StreamInitLowRank {
		setInt(&s.StreamInitRank, 8)
	}
	switch s.Mode {
	case Lossless:
		setInt(&s.StreamRank, 8)
		if s.StreamMLP == "" {
			s.StreamMLP = StreamMLPAdapter
		}
		s.LoRARank, s.LoRAAlpha, s.LoRATargets = 0, 0, nil
	case Shared:
		setInt(&s.LoRARank, 32)
		if s.LoRAAlpha == 0 {
			s.LoRAAlpha = float64(s.LoRARank)
		}
		if len(s.LoRATargets) == 0 {
			s.LoRATargets = slices.Clone(LoRATargets)
		}
		s.StreamRank, s.StreamMLP = 0, ""
	}
	return s
}

// Validate checks a completed spec and names the first bad field.
func (s AdapterSpec) Validate() error {
	if s.Mode != Lossless && s.Mode != Shared {
		return Invalid("mode", "%q is neither \"lossless\" nor \"shared\"", s.Mode)
	}
	for _, f := range []struct {
		name     string
		v, least int
		most     int
	}{
		{"gamma", s.Gamma, 1, 16},
		{"msa_layers", s.MSALayers, 1, 1024},
		{"prune_rank", s.PruneRank, 1, 4096},
	} {
		if f.v < f.least || f.v > f.most {
			return Invalid(f.name, "%d is outside %d..%d", f.v, f.least, f.most)
		}
	}
	if s.StreamInit != StreamInitIdentity && s.StreamInit != StreamInitLowRank {
		return Invalid("stream_init", "%q is neither \"identity\" nor \"lowrank\"", s.StreamInit)
	}
	if s.StreamInit == StreamInitLowRank && s.StreamInitRank < 1 {
		return Invalid("stream_init_rank", "%d is not positive", s.StreamInitRank)
	}
	if s.Mode == Lossless {
		if s.StreamRank < 1 {
			return Invalid("stream_rank", "%d is not positive", s.StreamRank)
		}
		if s.StreamMLP != StreamMLPAdapter && s.StreamMLP != StreamMLPBaseAdapter {
			return Invalid("stream_mlp", "%q is neither \"adapter\" nor \"base+adapter\"", s.StreamMLP)
		}
		return nil
	}
	if s.LoRARank < 1 {
		return Invalid("lora_rank", "%d is not positive", s.LoRARank)
	}
	if !(s.LoRAAlpha > 0) || math.IsInf(s.LoRAAlpha, 0) {
		return Invalid("lora_alpha", "%v is not a positive number", s.LoRAAlpha)
	}
	seen := map[string]bool{}
	for _, t := range s.LoRATargets {
		if !slices.Contains(LoRATargets, t) {
			return Invalid("lora_targets", "%q is not one of %s", t, strings.Join(LoRATargets, ", "))
		}
		if seen[t] {
			return Invalid("lora_targets", "%q is named twice", t)
		}
		seen[t] = true
	}
	return nil
}

// LoRAScale is the factor alpha/rank on LoRA's output.
func (s AdapterSpec) LoRAScale() float64 { return s.LoRAAlpha / float64(s.LoRARank) }

// TrainSpec says how adapters are trained.
type TrainSpec struct {
	AdapterSpec
	// Steps is the number of optimiser steps. Default 200.
	Steps int `json:"steps,omitempty"`
	// BatchSize is the number of samples in a global batch. Default 16.
	BatchSize int `json:"batch_size,omitempty"`
	// MicroBatch is how many samples go through the graph at once; gradients of
	// a batch's micro-batches are summed. Default: the batch size.
	MicroBatch int `json:"micro_batch,omitempty"`
	// Segments is the number of completion segments a sample is split into
	// (Appendix I); 0 lets the planner choose.
	Segments int `json:"segments,omitempty"`
	// MemoryBudget is the byte budget of the activations that segments cap;
	// 0 is unlimited. With Segments 0 the planner picks the least number of
	// segments that fits.
	MemoryBudget int64 `json:"memory_budget,omitempty"`
	// LearningRate is AdamW's peak rate. Default 5e-4.
	LearningRate float64 `json:"learning_rate,omitempty"`
	// WarmupSteps is the length of the linear warm-up. Default: a twentieth of Steps.
	WarmupSteps int `json:"warmup_steps,omitempty"`
	// WeightDecay is AdamW's decoupled decay. Default 0.
	WeightDecay float64 `json:"weight_decay,omitempty"`
	// ClipNorm caps the global gradient norm; default 1.
	ClipNorm float64 `json:"clip_norm,omitempty"`
	// Alpha0 weighs the next-token loss. Default: shared 1, lossless 0.
	Alpha0 *float64 `json:"alpha_0,omitempty"`
	// AlphaStream weighs each stream's loss. Default: shared 0.1, lossless 1.
	AlphaStream *float64 `json:"alpha_stream,omitempty"`
	// Seed fixes initialisation and sample order. Default 1.
	Seed uint64 `json:"seed,omitempty"`
	// SaveEvery is the number of steps between resumable states. Default 50.
	SaveEvery int `json:"save_every,omitempty"`
	// Bucketing gives each batch samples of similar lengths.
	Bucketing bool `json:"bucketing,omitempty"`
	// PackTokens orders the samples of a batch so that runs of them fill packs of
	// that many tokens; 0 leaves them in the order they were drawn.
	PackTokens int `json:"pack_tokens,omitempty"`
}

// WithDefaults returns a copy with every unset field at its default.
func (s TrainSpec) WithDefaults() TrainSpec {
	s.AdapterSpec = s.AdapterSpec.WithDefaults()
	setInt(&s.Steps, 200)
	setInt(&s.BatchSize, 16)
	setInt(&s.MicroBatch, s.BatchSize)
	setInt(&s.SaveEvery, 50)
	setInt(&s.WarmupSteps, max(1, s.Steps/20))
	setFloat(&s.LearningRate, 5e-4)
	setFloat(&s.ClipNorm, 1)
	if s.Seed == 0 {
		s.Seed = 1
	}
	a0, as := 0.0, 1.0
	if s.Mode == Shared {
		a0, as = 1, 0.1
	}
	if s.Alpha0 == nil {
		s.Alpha0 = &a0
	}
	if s.AlphaStream == nil {
		s.AlphaStream = &as
	}
	return s
}

// Validate checks a completed spec and names the first bad field.
func (s TrainSpec) Validate() error {
	if err := s.AdapterSpec.Validate(); err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		v    int
	}{{"steps", s.Steps}, {"batch_size", s.BatchSize}, {"micro_batch", s.MicroBatch}, {"save_every", s.SaveEvery}} {
		if f.v < 1 {
			return Invalid(f.name, "%d is not positive", f.v)
		}
	}
	if s.MicroBatch > s.BatchSize {
		return Invalid("micro_batch", "%d is more than the batch of %d samples", s.MicroBatch, s.BatchSize)
	}
	if s.PackTokens < 0 {
		return Invalid("pack_tokens", "%d is negative", s.PackTokens)
	}
	if s.Segments < 0 {
		return Invalid("segments", "%d is negative", s.Segments)
	}
	if s.MemoryBudget < 0 {
		return Invalid("memory_budget", "%d bytes is negative", s.MemoryBudget)
	}
	if s.WarmupSteps < 0 || s.WarmupSteps > s.Steps {
		return Invalid("warmup_steps", "%d is outside 0..steps (%d)", s.WarmupSteps, s.Steps)
	}
	for _, f := range []struct {
		name string
		v    float64
	}{{"learning_rate", s.LearningRate}, {"clip_norm", s.ClipNorm}} {
		if !(f.v > 0) || math.IsInf(f.v, 0) {
			return Invalid(f.name, "%v is not a positive number", f.v)
		}
	}
	for _, f := range []struct {
		name string
		v    float64
	}{{"weight_decay", s.WeightDecay}, {"alpha_0", *s.Alpha0}, {"alpha_stream", *s.AlphaStream}} {
		if !(f.v >= 0) || math.IsInf(f.v, 0) {
			return Invalid(f.name, "%v is not a number of at least 0", f.v)
		}
	}
	return nil
}

// DecodeSpec says how prompts are decoded.
type DecodeSpec struct {
	// MaxNewTokens ends a decode. Default 128.
	MaxNewTokens int `json:"max_new_tokens,omitempty"`
	// TreeFactor is the number of tokens sampled a stream (k). Default 3.
	TreeFactor int `json:"tree_factor,omitempty"`
	// TreeNodes is the most nodes kept after pruning, the root included. Default 32.
	TreeNodes int `json:"tree_nodes,omitempty"`
	// PruneThreshold drops subtrees of a lower transition score. Default 0: off.
	PruneThreshold float64 `json:"prune_threshold,omitempty"`
}

// WithDefaults returns a copy with every unset field at its default.
func (s DecodeSpec) WithDefaults() DecodeSpec {
	setInt(&s.MaxNewTokens, 128)
	setInt(&s.TreeFactor, 3)
	setInt(&s.TreeNodes, 32)
	return s
}

// Validate checks a completed spec and names the first bad field.
func (s DecodeSpec) Validate() error {
	if s.MaxNewTokens < 1 {
		return Invalid("max_new_tokens", "%d is not positive", s.MaxNewTokens)
	}
	if s.TreeFactor < 1 || s.TreeFactor > 16 {
		return Invalid("tree_factor", "%d is outside 1..16", s.TreeFactor)
	}
	if s.TreeNodes < 1 {
		return Invalid("tree_nodes", "%d is not positive", s.TreeNodes)
	}
	if !(s.PruneThreshold >= 0 && s.PruneThreshold <= 1) {
		return Invalid("prune_threshold", "%v is outside 0..1", s.PruneThreshold)
	}
	return nil
}

// EvalSpec says how a checkpoint is measured.
type EvalSpec struct {
	DecodeSpec
	// Prompts is how many held-out prompts are decoded; 0 decodes all.
	Prompts int `json:"prompts,omitempty"`
	// Samples is how many decodes the report shows. Default 8.
	Samples int `json:"samples,omitempty"`
}

// WithDefaults returns a copy with every unset field at its default.
func (s EvalSpec) WithDefaults() EvalSpec {
	s.DecodeSpec = s.DecodeSpec.WithDefaults()
	setInt(&s.Samples, 8)
	return s
}

// Validate checks a completed spec and names the first bad field.
func (s EvalSpec) Validate() error {
	if s.Prompts < 0 {
		return Invalid("prompts", "%d is negative", s.Prompts)
	}
	return s.DecodeSpec.Validate()
}

// GateSpec holds the least a checkpoint must reach before anyone is asked to
// approve it. Lossless parity of 1 is always demanded.
type GateSpec struct {
	// MeanAcceptedTokens is the least pooled mean accepted tokens a forward.
	MeanAcceptedTokens float64 `json:"mean_accepted_tokens,omitempty"`
	// Prompts is the least number of prompts measured.
	Prompts int `json:"prompts,omitempty"`
}

// ApprovalSpec says how a person's consent is asked for.
type ApprovalSpec struct {
	// Auto approves without asking: for demonstrations and tests.
	Auto bool `json:"auto,omitempty"`
	// Timeout ends the wait, as a Go duration. Default "72h".
	Timeout string `json:"timeout,omitempty"`
}

func setInt(p *int, v int) {
	if *p == 0 {
		*p = v
	}
}

func setFloat(p *float64, v float64) {
	if *p == 0 {
		*p = v
	}
}

// inField prefixes a nested spec's error with the name of the field it is in.
func inField(field string, err error) error {
	if err == nil {
		return nil
	}
	if in, ok := err.(*InputError); ok {
		c := *in
		if c.Field == "" {
			c.Field = field
		} else {
			c.Field = field + "." + c.Field
		}
		return &c
	}
	return fmt.Errorf("%s: %w", field, err)
}
