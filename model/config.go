package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"

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

// Config is a decoder's configuration: pre-norm, RMSNorm, rotary positions
// (rotate-half), grouped-query attention, SwiGLU, no biases.
type Config struct {
	Architecture     string  // "LlamaForCausalLM" or "MistralForCausalLM"
	HiddenSize       int     // h
	IntermediateSize int     // width of the MLP
	NumLayers        int     // N
	NumHeads         int     // query heads
	NumKVHeads       int     // key/value heads; divides NumHeads
	HeadDim          int     // width of a head; even
	VocabSize        int     // V
	MaxPositions     int     // positions the base was trained for
	RMSNormEps       float64 // added to the mean square
	RopeTheta        float64 // base of the rotary frequencies
	RopeScaling      *RopeScaling
	TieEmbeddings    bool    // the LM head is the embedding
	BOS              int32   // first token of a sequence; -1 for none
	EOS              []int32 // tokens that end a sequence; may be empty
}

// architectures maps each architecture to its model_type.
var architectures = map[string]string{"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral"}

// dimensionArchitectures are those whose seven projections have the names and
// shapes of Llama's, so that an adapter's parameters can be counted, although
// they differ elsewhere.
var dimensionArchitectures = map[string]string{
	"LlamaForCausalLM": "llama", "MistralForCausalLM": "mistral",
	"Qwen2ForCausalLM": "qwen2", "Qwen3ForCausalLM": "qwen3",
}

// hfConfig is the part of a Hugging Face config.json that matters here.
// Pointers tell absent or null from zero.
type hfConfig struct {
	Architectures       []string        `json:"architectures"`
	ModelType           string          `json:"model_type"`
	HiddenSize          *int            `json:"hidden_size"`
	IntermediateSize    *int            `json:"intermediate_size"`
	NumHiddenLayers     *int            `json:"num_hidden_layers"`
	NumAttentionHeads   *int            `json:"num_attention_heads"`
	NumKeyValueHeads    *int            `json:"num_key_value_heads"`
	HeadDim             *int            `json:"head_dim"`
	VocabSize           *int            `json:"vocab_size"`
	MaxPositions        *int            `json:"max_position_embeddings"`
	RMSNormEps          *float64        `json:"rms_norm_eps"`
	RopeTheta           *float64        `json:"rope_theta"`
	RopeScaling         json.RawMessage `json:"rope_scaling"`
	RopeParameters      json.RawMessage `json:"rope_parameters"`
	TieWordEmbeddings   *bool           `json:"tie_word_embeddings"`
	BOS                 json.RawMessage `json:"bos_token_id"`
	EOS                 json.RawMessage `json:"eos_token_id"`
	HiddenAct           *string         `json:"hidden_act"`
	AttentionBias       *bool           `json:"attention_bias"`
	MLPBias             *bool           `json:"mlp_bias"`
	PartialRotaryFactor *float64        `json:"partial_rotary_factor"`
	SlidingWindow       json.RawMessage `json:"sliding_window"`
	QuantizationConfig  json.RawMessage `json:"quantization_config"`
}

// ReadConfig reads a Hugging Face config.json as transformers would, its
// defaults included. Whatever the engine would compute differently (another
// architecture, activation, biases, sliding windows, other rotary scalings,
// quantised weights) is an InputError that names the field.
func ReadConfig(path string) (Config, error) {
	hf, err := readHF(path)
	if err != nil {
		return Config{}, err
	}
	c, err := hf.config(architectures)
	if err == nil {
		err = hf.rope(&c)
	}
	if err == nil {
		err = hf.refuseUnsupported(c)
	}
	if err == nil {
		err = c.Validate()
	}
	return c, inFile(path, err)
}

// ReadDimensions reads only what an adapter's shapes depend on. It accepts, besides
// what [ReadConfig] accepts, architectures the engine does not run but whose
// projections are Llama's (Qwen2, Qwen3), for [CountParams].
func ReadDimensions(path string) (Config, error) {
	hf, err := readHF(path)
	if err != nil {
		return Config{}, err
	}
	c, err := hf.config(dimensionArchitectures)
	if err == nil {
		err = c.validateDimensions()
	}
	return c, inFile(path, err)
}

func readHF(path string) (hfConfig, error) {
	var hf hfConfig
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return hf, &specstream.InputError{File: path, Reason: "there is no such file", Hint: "name a Hugging Face model folder's config.json"}
	}
	if err != nil {
		return hf, fmt.Errorf("read config: %w", err)
	}
	if err := json.Unmarshal(b, &hf); err != nil {
		in := &specstream.InputError{File: path, Reason: "invalid JSON", Err: err}
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			in.Field, in.Reason, in.Err = wrongType.Field, fmt.Sprintf("want %s, got JSON %s", specstream.JSONKind(wrongType.Type), wrongType.Value), nil
		}
		return hf, in
	}
	return hf, nil
}

// config maps the fields, with transformers' defaults.
func (hf hfConfig) config(known map[string]string) (Config, error) {
	c := Config{RMSNormEps: 1e-6, RopeTheta: 10000, MaxPositions: 2048, BOS: 1, EOS: []int32{2}}
	var err error
	if c.Architecture, err = hf.architecture(known); err != nil {
		return c, err
	}
	for _, f := range []struct {
		name string
		from *int
		to   *int
	}{
		{"hidden_size", hf.HiddenSize, &c.HiddenSize},
		{"intermediate_size", hf.IntermediateSize, &c.IntermediateSize},
		{"num_hidden_layers", hf.NumHiddenLayers, &c.NumLayers},
		{"num_attention_heads", hf.NumAttentionHeads, &c.NumHeads},
		{"vocab_size", hf.VocabSize, &c.VocabSize},
	} {
		if f.from == nil {
			return c, &specstream.InputError{Field: f.name, Reason: "the field is missing"}
		}
		*f.to = *f.from
	}
	c.NumKVHeads = c.NumHeads
	if hf.NumKeyValueHeads != nil {
		c.NumKVHeads = *hf.NumKeyValueHeads
	} else if c.Architecture != "LlamaForCausalLM" {
		// These architectures' defaults are not the number of heads; a guess would be wrong in silence.
		return c, &specstream.InputError{Field: "num_key_value_heads", Reason: "the field is missing"}
	}
	if hf.HeadDim != nil {
		c.HeadDim = *hf.HeadDim
	} else if c.NumHeads > 0 {
		if c.HiddenSize%c.NumHeads != 0 {
			return c, specstream.Invalid("num_attention_heads", "%d heads do not divide hidden_size %d, and head_dim is missing", c.NumHeads, c.HiddenSize)
		}
		c.HeadDim = c.HiddenSize / c.NumHeads
	}
	if hf.MaxPositions != nil {
		c.MaxPositions = *hf.MaxPositions
	}
	if hf.RMSNormEps != nil {
		c.RMSNormEps = *hf.RMSNormEps
	}
	if hf.TieWordEmbeddings != nil {
		c.TieEmbeddings = *hf.TieWordEmbeddings
	}
	if err := tokenIDs("bos_token_id", hf.BOS, func(ids []int32) error {
		switch len(ids) {
		case 0:
			c.BOS = -1
		case 1:
			c.BOS = ids[0]
		default:
			return specstream.Invalid("bos_token_id", "want one token, got %d", len(ids))
		}
		return nil
	}); err != nil {
		return c, err
	}
	if err := tokenIDs("eos_token_id", hf.EOS, func(ids []int32) error { c.EOS = ids; return nil }); err != nil {
		return c, err
	}
	return c, nil
}

// architecture returns the one architecture the file names, in either way.
func (hf hfConfig) architecture(known map[string]string) (string, error) {
	names := make([]string, 0, len(known))
	for a := range known {
		names = append(names, a)
	}
	slices.Sort(names)
	if len(hf.Architectures) > 1 {
		return "", specstream.Invalid("architectures", "want one, got %q", hf.Architectures)
	}
	if len(hf.Architectures) == 0 {
		for _, a := range names {
			if known[a] == hf.ModelType {
				return a, nil
			}
		}
		return "", specstream.Invalid("model_type", "%q is not supported; supported are %q", hf.ModelType, names)
	}
	a := hf.Architectures[0]
	kind, ok := known[a]
	if !ok {
		return "", specstream.Invalid("architectures", "%q is not supported; supported are %q", a, names)
	}
	if hf.ModelType != "" && hf.ModelType != kind {
		return "", specstream.Invalid("model_type", "%q does not go with architecture %q", hf.ModelType, a)
	}
	return a, nil
}

// rope reads the rotary settings from rope_theta and rope_scaling, or from the
// rope_parameters of newer transformers, which hold both.
func (hf hfConfig) rope(c *Config) error {
	if hf.RopeTheta != nil {
		c.RopeTheta = *hf.RopeTheta
	}
	field, raw := "rope_scaling", hf.RopeScaling
	if !absent(hf.RopeParameters) {
		if !absent(hf.RopeScaling) {
			return specstream.Invalid("rope_parameters", "the file has rope_scaling too; keep one of them")
		}
		field, raw = "rope_parameters", hf.RopeParameters
	}
	if absent(raw) {
		return nil
	}
	var p struct {
		Type     string   `json:"rope_type"`
		OldType  string   `json:"type"`
		Theta    *float64 `json:"rope_theta"`
		Factor   *float64 `json:"factor"`
		Low      *float64 `json:"low_freq_factor"`
		High     *float64 `json:"high_freq_factor"`
		Original *int     `json:"original_max_position_embeddings"`
		Partial  *float64 `json:"partial_rotary_factor"`
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return specstream.Invalid(field, "want an object with rope_type: %v", err)
	}
	if p.Theta != nil {
		if hf.RopeTheta != nil && *hf.RopeTheta != *p.Theta {
			return specstream.Invalid(field, "rope_theta %v contradicts the file's own rope_theta %v", *p.Theta, *hf.RopeTheta)
		}
		c.RopeTheta = *p.Theta
	}
	if p.Partial != nil && *p.Partial != 1 {
		return specstream.Invalid(field, "partial_rotary_factor %v is not supported; only 1 is", *p.Partial)
	}
	if p.Type == "" {
		p.Type = p.OldType
	}
	switch p.Type {
	case "default":
		return nil
	case "llama3":
		if p.Factor == nil || p.Low == nil || p.High == nil || p.Original == nil {
			return specstream.Invalid(field, "llama3 scaling needs factor, low_freq_factor, high_freq_factor and original_max_position_embeddings")
		}
		c.RopeScaling = &RopeScaling{Factor: *p.Factor, LowFreqFactor: *p.Low, HighFreqFactor: *p.High, OriginalMaxPositions: *p.Original}
		return nil
	}
	return specstream.Invalid(field, "rope_type %q is not supported; supported are \"default\" and \"llama3\"", p.Type)
}

// refuseUnsupported refuses what would change the arithmetic.
func (hf hfConfig) refuseUnsupported(c Config) error {
	if hf.HiddenAct != nil && *hf.HiddenAct != "silu" && *hf.HiddenAct != "swish" {
		return specstream.Invalid("hidden_act", "%q is not supported; only \"silu\" is", *hf.HiddenAct)
	}
	if hf.AttentionBias != nil && *hf.AttentionBias {
		return specstream.Invalid("attention_bias", "biases are not supported")
	}
	if hf.MLPBias != nil && *hf.MLPBias {
		return specstream.Invalid("mlp_bias", "biases are not supported")
	}
	if hf.PartialRotaryFactor != nil && *hf.PartialRotaryFactor != 1 {
		return specstream.Invalid("partial_rotary_factor", "%v is not supported; only 1 is", *hf.PartialRotaryFactor)
	}
	if !absent(hf.QuantizationConfig) {
		return &specstream.InputError{Field: "quantization_config", Reason: "quantised weights are not supported", Hint: "use the F32, F16 or BF16 checkpoint"}
	}
	if c.Architecture != "MistralForCausalLM" || absent(hf.SlidingWindow) && len(hf.SlidingWindow) > 0 {
		return nil
	}
	window := 4096 // transformers' default for Mistral where the field is absent
	if len(hf.SlidingWindow) > 0 {
		if err := json.Unmarshal(hf.SlidingWindow, &window); err != nil {
			return specstream.Invalid("sliding_window", "want an integer or null, got %s", hf.SlidingWindow)
		}
	}
	if window < c.MaxPositions {
		return specstream.Invalid("sliding_window", "a window of %d positions is not supported; it must be null or reach all %d positions", window, c.MaxPositions)
	}
	return nil
}

func absent(m json.RawMessage) bool { return len(m) == 0 || bytes.Equal(m, []byte("null")) }

// tokenIDs parses a token id, a list of them, or null (none). An absent field
// leaves the default.
func tokenIDs(field string, m json.RawMessage, set func([]int32) error) error {
	if len(m) == 0 {
		return nil
	}
	if absent(m) {
		return set(nil)
	}
	var ids []int32
	var one int32
	if json.Unmarshal(m, &one) == nil {
		ids = []int32{one}
	} else if err := json.Unmarshal(m, &ids); err != nil {
		return specstream.Invalid(field, "want a token id or a list of them, got %s", m)
	}
	return set(ids)
}

// inFile names the file in an InputError.
func inFile(path string, err error) error {
	if in, ok := err.(*specstream.InputError); ok {
		c := *in
		c.File = path
		return &c
	}
	return err
}

// most bounds every dimension, so that products of two fit an int64.
const most = 1 << 28

func (c Config) validateDimensions() error {
	for _, f := range []struct {
		name string
		v    int
	}{
		{"hidden_size", c.HiddenSize},
		{"intermediate_size", c.IntermediateSize},
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
	if _, ok := architectures[c.Architecture]; !ok {
		return specstream.Invalid("architectures", "%q is not supported", c.Architecture)
	}
	if err := c.validateDimensions(); err != nil {
		return err
	}
	if c.HeadDim%2 != 0 {
		return specstream.Invalid("head_dim", "%d is odd: rotary positions turn pairs", c.HeadDim)
	}
	if !positive(c.RMSNormEps) {
		return specstream.Invalid("rms_norm_eps", "%v is not a positive number", c.RMSNormEps)
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
	if c.BOS < -1 || int(c.BOS) >= c.VocabSize {
		return specstream.Invalid("bos_token_id", "%d is outside the vocabulary of %d", c.BOS, c.VocabSize)
	}
	for _, e := range c.EOS {
		if e < 0 || int(e) >= c.VocabSize {
			return specstream.Invalid("eos_token_id", "%d is outside the vocabulary of %d", e, c.VocabSize)
		}
	}
	return nil
}

func positive(v float64) bool { return v > 0 && !math.IsInf(v, 0) }

// ProjectionShape returns the shape [out, in] of a linear projection by its
// LoRA target name; 0, 0 for an unknown name.
func (c Config) ProjectionShape(target string) (out, in int) {
	h, q, kv, m := c.HiddenSize, c.NumHeads*c.HeadDim, c.NumKVHeads*c.HeadDim, c.IntermediateSize
	switch target {
	case "q_proj":
		return q, h
	case "k_proj", "v_proj":
		return kv, h
	case "o_proj":
		return h, q
	case "gate_proj", "up_proj":
		return m, h
	case "down_proj":
		return h, m
	}
	return 0, 0
}

// NumParams returns the number of weights of a base of this configuration.
func (c Config) NumParams() int64 {
	n := int64(c.HiddenSize) // final norm
	heads := int64(2)
	if c.TieEmbeddings {
		heads = 1
	}
	n += heads * int64(c.VocabSize) * int64(c.HiddenSize)
	layer := int64(2 * c.HiddenSize)
	for _, t := range specstream.LoRATargets {
		out, in := c.ProjectionShape(t)
		layer += int64(out) * int64(in)
	}
	return n + int64(c.NumLayers)*layer
}

// Equal reports whether two configurations are the same.
func (c Config) Equal(d Config) bool {
	a, b := c.RopeScaling, d.RopeScaling
	if (a == nil) != (b == nil) || a != nil && *a != *b || !slices.Equal(c.EOS, d.EOS) {
		return false
	}
	return c.Architecture == d.Architecture && c.HiddenSize == d.HiddenSize && c.IntermediateSize == d.IntermediateSize &&
		c.NumLayers == d.NumLayers && c.NumHeads == d.NumHeads && c.NumKVHeads == d.NumKVHeads && c.HeadDim == d.HeadDim &&
		c.VocabSize == d.VocabSize && c.MaxPositions == d.MaxPositions && c.RMSNormEps == d.RMSNormEps &&
		c.RopeTheta == d.RopeTheta && c.TieEmbeddings == d.TieEmbeddings && c.BOS == d.BOS
}

// WriteJSON writes the configuration as a Hugging Face config.json that
// transformers and [ReadConfig] read.
func (c Config) WriteJSON(w io.Writer) error {
	type scaling struct {
		Type string  `json:"rope_type"`
		F    float64 `json:"factor"`
		Low  float64 `json:"low_freq_factor"`
		High float64 `json:"high_freq_factor"`
		Orig int     `json:"original_max_position_embeddings"`
	}
	out := struct {
		Architectures []string `json:"architectures"`
		ModelType     string   `json:"model_type"`
		Hidden        int      `json:"hidden_size"`
		Intermediate  int      `json:"intermediate_size"`
		Layers        int      `json:"num_hidden_layers"`
		Heads         int      `json:"num_attention_heads"`
		KVHeads       int      `json:"num_key_value_heads"`
		HeadDim       int      `json:"head_dim"`
		Vocab         int      `json:"vocab_size"`
		MaxPositions  int      `json:"max_position_embeddings"`
		Eps           float64  `json:"rms_norm_eps"`
		Theta         float64  `json:"rope_theta"`
		Scaling       *scaling `json:"rope_scaling"`
		Tie           bool     `json:"tie_word_embeddings"`
		BOS           *int32   `json:"bos_token_id"`
		EOS           any      `json:"eos_token_id"`
		Act           string   `json:"hidden_act"`
		AttentionBias bool     `json:"attention_bias"`
		MLPBias       bool     `json:"mlp_bias"`
		SlidingWindow *int     `json:"sliding_window"`
	}{
		Architectures: []string{c.Architecture}, ModelType: architectures[c.Architecture],
		Hidden: c.HiddenSize, Intermediate: c.IntermediateSize, Layers: c.NumLayers,
		Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Vocab: c.VocabSize, MaxPositions: c.MaxPositions,
		Eps: c.RMSNormEps, Theta: c.RopeTheta, Tie: c.TieEmbeddings, Act: "silu",
	}
	if s := c.RopeScaling; s != nil {
		out.Scaling = &scaling{"llama3", s.Factor, s.LowFreqFactor, s.HighFreqFactor, s.OriginalMaxPositions}
	}
	if c.BOS >= 0 {
		out.BOS = &c.BOS
	}
	switch len(c.EOS) {
	case 0:
	case 1:
		out.EOS = c.EOS[0]
	default:
		out.EOS = c.EOS
	}
	b, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	if _, err := w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	return nil
}

// Save writes the configuration to path atomically.
func (c Config) Save(path string) error { return writeFile(path, c.WriteJSON) }
