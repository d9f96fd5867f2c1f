package model

import (
	"math"
	"reflect"

	"github.com/specstream/specstream"
)

// RopeScaling is Llama 3's stretch of rotary wavelengths ("rope_type":
// "llama3").
type RopeScaling struct {
	Factor               float64 // by which low frequencies are divided
	LowFreqFactor        float64 // wavelengths over OriginalMaxPositions/LowFreqFactor are stretched in full
	HighFreqFactor       float64 // wavelengths under OriginalMaxPositions/HighFreqFactor are left alone
	OriginalMaxPositions int     // positions of the pretraining context
}

// Config is a decoder's configuration: a pre-norm transformer with grouped-query
// attention. The zero values of what families differ in are Llama's: RMSNorm,
// rotary positions (rotate-half), SwiGLU, no biases, no sliding window.
type Config struct {
	Architecture     string  // as in config.json, such as "LlamaForCausalLM"; see [Architectures]
	HiddenSize       int     // h
	IntermediateSize int     // width of the MLP
	NumLayers        int     // N
	NumHeads         int     // query heads
	NumKVHeads       int     // key/value heads; divides NumHeads
	HeadDim          int     // width of a head; even where positions are rotary
	VocabSize        int     // V
	MaxPositions     int     // positions the base was trained for
	RMSNormEps       float64 // added to the mean square, or to a LayerNorm's variance
	RopeTheta        float64 // base of the rotary frequencies; 0 where positions are learned
	RopeScaling      *RopeScaling
	TieEmbeddings    bool    // the LM head is the embedding
	BOS              int32   // first token of a sequence; -1 for none
	EOS              []int32 // tokens that end a sequence; may be empty

	LayerNorm bool // LayerNorm with weight and bias in place of RMSNorm
	ReLU      bool // the MLP is down(relu(up(x))), without gate_proj
	QKVBias   bool // q_proj, k_proj and v_proj have biases
	OutBias   bool // o_proj has a bias
	MLPBias   bool // the MLP's projections have biases

	// LearnedPositions adds row PositionOffset+t of a learned table to the
	// embedding of position t, in place of rotary positions. The table has
	// MaxPositions+PositionOffset rows.
	LearnedPositions bool
	PositionOffset   int

	// SlidingWindow is how many positions a row sees at most, its own and those
	// before it, in layers WindowFirstLayer and above; 0: all of them.
	SlidingWindow    int
	WindowFirstLayer int
}

// Window returns the sliding window of a layer in positions; 0 for none.
func (c Config) Window(layer int) int {
	if layer < c.WindowFirstLayer {
		return 0
	}
	return c.SlidingWindow
}

// most bounds every dimension, so that products of two fit an int64.
const most = 1 << 28

func (c Config) validateDimensions() error {
	for _, f := range []struct {
		name string
		v    int
	}{
		{"hidden_size", c.HiddenSize},
		{c.family().intermediateSize(), c.IntermediateSize},
		{"num_hidden_layers", c.NumLayers},
		{"num_attention_heads", c.NumHeads},
		{"num_key_value_heads", c.NumKVHeads},
		{"head_dim", c.HeadDim},
		{"vocab_size", c.VocabSize},
		{"max_position_embeddings", c.MaxPositions},
	} {
		if f.v < 1 || f.v > most {
			return specstream.Invalid(f.name, "%d is outside 1..%d", f.v, most)
		}
	}
	if c.NumHeads > most/c.HeadDim {
		return specstream.Invalid("num_attention_heads", "%d heads of %d are too wide", c.NumHeads, c.HeadDim)
	}
	if c.NumHeads%c.NumKVHeads != 0 {
		return specstream.Invalid("num_key_value_heads", "%d does not divide the %d query heads", c.NumKVHeads, c.NumHeads)
	}
	return nil
}

// Validate checks the configuration and names the first bad field by its Hugging
// Face name.
func (c Config) Validate() error {
	f := c.family()
	if f == nil || f.dimensionsOnly {
		return specstream.Invalid("architectures", "%q is not supported; supported are %q", c.Architecture, Architectures())
	}
	if err := c.validateDimensions(); err != nil {
		return err
	}
	if c.traits() != f.traits {
		return specstream.Invalid("architectures", "a %s has %+v, not %+v", c.Architecture, f.traits, c.traits())
	}
	if b := (biases{c.QKVBias, c.OutBias, c.MLPBias}); !f.allows(b) {
		return specstream.Invalid("architectures", "a %s has no biases as in %+v", c.Architecture, b)
	}
	if !positive(c.RMSNormEps) {
		return specstream.Invalid("rms_norm_eps", "%v is not a positive number", c.RMSNormEps)
	}
	if c.BOS < -1 || int(c.BOS) >= c.VocabSize {
		return specstream.Invalid("bos_token_id", "%d is outside the vocabulary of %d", c.BOS, c.VocabSize)
	}
	for _, e := range c.EOS {
		if e < 0 || int(e) >= c.VocabSize {
			return specstream.Invalid("eos_token_id", "%d is outside the vocabulary of %d", e, c.VocabSize)
		}
	}
	if err := c.validateWindow(f); err != nil {
		return err
	}
	return c.validateRope()
}

func (c Config) validateWindow(f *family) error {
	switch {
	case c.SlidingWindow < 0:
		return specstream.Invalid("sliding_window", "%d is negative", c.SlidingWindow)
	case c.SlidingWindow > 0 && !f.window:
		return specstream.Invalid("sliding_window", "a %s has none", c.Architecture)
	case c.WindowFirstLayer != 0 && (!f.windowLayers || c.SlidingWindow == 0 || c.WindowFirstLayer < 0 || c.WindowFirstLayer > c.NumLayers):
		return specstream.Invalid("max_window_layers", "%d does not fit a %s of %d layers with a window of %d", c.WindowFirstLayer, c.Architecture, c.NumLayers, c.SlidingWindow)
	}
	return nil
}

func (c Config) validateRope() error {
	if c.LearnedPositions {
		if c.RopeTheta != 0 || c.RopeScaling != nil {
			return specstream.Invalid("rope_theta", "positions are learned, not rotary")
		}
		return nil
	}
	if c.HeadDim%2 != 0 {
		return specstream.Invalid("head_dim", "%d is odd: rotary positions turn pairs", c.HeadDim)
	}
	if !positive(c.RopeTheta) {
		return specstream.Invalid("rope_theta", "%v is not a positive number", c.RopeTheta)
	}
	if s := c.RopeScaling; s != nil {
		if !positive(s.Factor) || !positive(s.LowFreqFactor) || !positive(s.HighFreqFactor) || s.OriginalMaxPositions < 1 {
			return specstream.Invalid("rope_scaling", "%+v holds a number that is not positive", *s)
		}
		if s.HighFreqFactor <= s.LowFreqFactor {
			return specstream.Invalid("rope_scaling", "high_freq_factor %v is not over low_freq_factor %v", s.HighFreqFactor, s.LowFreqFactor)
		}
	}
	return nil
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

// Projections returns the LoRA target names of the linear projections a layer
// has, in canonical order: all seven, or six without a gate.
func (c Config) Projections() []string {
	var out []string
	for _, t := range specstream.LoRATargets {
		if n, _ := c.ProjectionShape(t); n > 0 {
			out = append(out, t)
		}
	}
	return out
}

// ProjectionShape returns the shape [out, in] of a linear projection by its
// LoRA target name; 0, 0 for a name no projection of the base has.
func (c Config) ProjectionShape(target string) (out, in int) {
	h, q, kv, m := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim, c.IntermediateSize
	switch target {
	case "q_proj":
		return q, h
	case "k_proj", "v_proj":
		return kv, h
	case "o_proj":
		return h, q
	case "gate_proj":
		if c.ReLU {
			return 0, 0
		}
		return m, h
	case "up_proj":
		return m, h
	case "down_proj":
		return h, m
	}
	return 0, 0
}

// projectionBias says whether a projection has a bias.
func (c Config) projectionBias(target string) bool {
	switch target {
	case "q_proj", "k_proj", "v_proj":
		return c.QKVBias
	case "o_proj":
		return c.OutBias
	}
	return c.MLPBias
}

// positionRows is the number of rows of the learned position table; 0 without.
func (c Config) positionRows() int {
	if !c.LearnedPositions {
		return 0
	}
	return c.MaxPositions + c.PositionOffset
}

// NumParams returns the number of weights of a base of this configuration.
func (c Config) NumParams() int64 {
	h := int64(c.HiddenSize)
	norm := h
	if c.LayerNorm {
		norm *= 2
	}
	tables := int64(c.VocabSize)
	if !c.TieEmbeddings {
		tables *= 2
	}
	layer := 2 * norm
	for _, t := range c.Projections() {
		out, in := c.ProjectionShape(t)
		layer += int64(out) * int64(in)
		if c.projectionBias(t) {
			layer += int64(out)
		}
	}
	return (tables+int64(c.positionRows()))*h + int64(c.NumLayers)*layer + norm
}

// Equal reports whether two configurations are the same.
func (c Config) Equal(d Config) bool {
	if len(c.EOS) == 0 && len(d.EOS) == 0 {
		c.EOS, d.EOS = nil, nil
	}
	return reflect.DeepEqual(c, d)
}
