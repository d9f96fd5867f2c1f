package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/specstream/specstream"
)

// hfConfig is the part of a Hugging Face config.json that matters here.
// Pointers tell absent or null from zero.
type hfConfig struct {
	Architectures      []string        `json:"architectures"`
	ModelType          string          `json:"model_type"`
	HiddenSize         *int            `json:"hidden_size"`
	NumHiddenLayers    *int            `json:"num_hidden_layers"`
	NumAttentionHeads  *int            `json:"num_attention_heads"`
	VocabSize          *int            `json:"vocab_size"`
	MaxPositions       *int            `json:"max_position_embeddings"`
	TieWordEmbeddings  *bool           `json:"tie_word_embeddings"`
	BOS                json.RawMessage `json:"bos_token_id"`
	EOS                json.RawMessage `json:"eos_token_id"`
	QuantizationConfig json.RawMessage `json:"quantization_config"`

	// Families of Llama's kind.
	IntermediateSize    *int            `json:"intermediate_size"`
	NumKeyValueHeads    *int            `json:"num_key_value_heads"`
	HeadDim             *int            `json:"head_dim"`
	RMSNormEps          *float64        `json:"rms_norm_eps"`
	RopeTheta           *float64        `json:"rope_theta"`
	RopeScaling         json.RawMessage `json:"rope_scaling"`
	RopeParameters      json.RawMessage `json:"rope_parameters"`
	HiddenAct           *string         `json:"hidden_act"`
	AttentionBias       *bool           `json:"attention_bias"`
	MLPBias             *bool           `json:"mlp_bias"`
	PartialRotaryFactor *float64        `json:"partial_rotary_factor"`
	SlidingWindow       json.RawMessage `json:"sliding_window"`
	LayerTypes          []string        `json:"layer_types"`
	UseSlidingWindow    *bool           `json:"use_sliding_window"` // Qwen2
	MaxWindowLayers     *int            `json:"max_window_layers"`  // Qwen2

	// OPT.
	FFNDim             *int    `json:"ffn_dim"`
	ActivationFunction *string `json:"activation_function"`
	NormBefore         *bool   `json:"do_layer_norm_before"`
	EnableBias         *bool   `json:"enable_bias"`
	NormAffine         *bool   `json:"layer_norm_elementwise_affine"`
	RemoveFinalNorm    *bool   `json:"_remove_final_layer_norm"`
	WordEmbedProjDim   *int    `json:"word_embed_proj_dim"`
}

// ReadConfig reads a Hugging Face config.json as transformers would, its
// defaults included. Whatever the engine would compute differently (another
// architecture or activation, other rotary scalings, quantised weights, a field
// it does not know) is an InputError that names the field.
func ReadConfig(path string) (Config, error) {
	hf, fields, err := readHF(path)
	if err != nil {
		return Config{}, err
	}
	c, err := hf.config(fields)
	return c, inFile(path, err)
}

// config maps the fields and refuses what would change the arithmetic.
func (hf *hfConfig) config(fields map[string]json.RawMessage) (Config, error) {
	c, err := hf.dimensions(false)
	if err != nil {
		return c, err
	}
	if !absent(hf.QuantizationConfig) {
		return c, &specstream.InputError{Field: "quantization_config", Reason: "quantised weights are not supported", Hint: "use the F32, F16 or BF16 checkpoint"}
	}
	if c.family().traits.LearnedPositions {
		err = hf.opt(&c)
	} else if err = hf.rope(&c); err == nil {
		if err = hf.llama(&c); err == nil {
			err = hf.slidingWindow(&c)
		}
	}
	if err == nil {
		err = checkFields(fields, c.Architecture)
	}
	if err != nil {
		return c, err
	}
	return c, c.Validate()
}

// ReadDimensions reads only what an adapter's shapes depend on. It accepts, besides
// what [ReadConfig] accepts, bases the engine does not run but whose projections
// have known shapes (Qwen3, other rotary scalings), for [CountParams].
func ReadDimensions(path string) (Config, error) {
	hf, _, err := readHF(path)
	if err != nil {
		return Config{}, err
	}
	c, err := hf.dimensions(true)
	if err == nil {
		err = c.validateDimensions()
	}
	return c, inFile(path, err)
}

// readHF returns the fields that matter and all there are.
func readHF(path string) (hf *hfConfig, fields map[string]json.RawMessage, err error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, &specstream.InputError{File: path, Reason: "there is no such file", Hint: "name a Hugging Face model folder's config.json"}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read config: %w", err)
	}
	hf = &hfConfig{}
	err = json.Unmarshal(b, hf)
	if err == nil {
		err = json.Unmarshal(b, &fields)
	}
	if err != nil {
		in := &specstream.InputError{File: path, Reason: "invalid JSON", Err: err}
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			in.Field, in.Reason, in.Err = wrongType.Field, fmt.Sprintf("want %s, got JSON %s", specstream.JSONKind(wrongType.Type), wrongType.Value), nil
		}
		return nil, nil, in
	}
	return hf, fields, nil
}

// dimensions maps what every family has, with transformers' defaults.
func (hf *hfConfig) dimensions(dimensionsOnly bool) (Config, error) {
	var c Config
	var err error
	if c.Architecture, err = hf.architecture(dimensionsOnly); err != nil {
		return c, err
	}
	f := c.family()
	c.MaxPositions, c.RMSNormEps, c.BOS, c.EOS, c.TieEmbeddings = f.maxPositions, f.eps, f.bos, f.eos, f.tied
	c.LayerNorm, c.ReLU = f.traits.LayerNorm, f.traits.ReLU
	c.LearnedPositions, c.PositionOffset = f.traits.LearnedPositions, f.traits.PositionOffset
	width := hf.IntermediateSize
	if f.intermediateSize() == "ffn_dim" {
		width = hf.FFNDim
	}
	for _, f := range []struct {
		name string
		from *int
		to   *int
	}{
		{"hidden_size", hf.HiddenSize, &c.HiddenSize},
		{f.intermediateSize(), width, &c.IntermediateSize},
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
	} else if !f.headsAreKV {
		// This family's default is not the number of heads; a guess would be wrong in silence.
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
	return c, tokenIDs("eos_token_id", hf.EOS, func(ids []int32) error { c.EOS = ids; return nil })
}

// architecture returns the one architecture the file names, in either way.
func (hf *hfConfig) architecture(dimensionsOnly bool) (string, error) {
	names := Architectures()
	if dimensionsOnly {
		names = slices.Sorted(maps.Keys(families))
	}
	if len(hf.Architectures) > 1 {
		return "", specstream.Invalid("architectures", "want one, got %q", hf.Architectures)
	}
	if len(hf.Architectures) == 0 {
		for _, a := range names {
			if families[a].modelType == hf.ModelType {
				return a, nil
			}
		}
		return "", specstream.Invalid("model_type", "%q is not supported; supported are %q", hf.ModelType, names)
	}
	a := hf.Architectures[0]
	if !slices.Contains(names, a) {
		return "", specstream.Invalid("architectures", "%q is not supported; supported are %q", a, names)
	}
	if hf.ModelType != "" && hf.ModelType != families[a].modelType {
		return "", specstream.Invalid("model_type", "%q does not go with architecture %q", hf.ModelType, a)
	}
	return a, nil
}

// llama maps what the families of Llama's kind differ in.
func (hf *hfConfig) llama(c *Config) error {
	if hf.RMSNormEps != nil {
		c.RMSNormEps = *hf.RMSNormEps
	}
	if hf.HiddenAct != nil && *hf.HiddenAct != "silu" && *hf.HiddenAct != "swish" {
		return specstream.Invalid("hidden_act", "%q is not supported; only \"silu\" is", *hf.HiddenAct)
	}
	if hf.PartialRotaryFactor != nil && *hf.PartialRotaryFactor != 1 {
		return specstream.Invalid("partial_rotary_factor", "%v is not supported; only 1 is", *hf.PartialRotaryFactor)
	}
	for _, b := range []struct {
		name string
		set  *bool
		to   []*bool
	}{{"attention_bias", hf.AttentionBias, []*bool{&c.QKVBias, &c.OutBias}}, {"mlp_bias", hf.MLPBias, []*bool{&c.MLPBias}}} {
		if b.set == nil || !*b.set {
			continue
		}
		if c.Architecture != "LlamaForCausalLM" {
			return specstream.Invalid(b.name, "a %s has no such setting", c.Architecture)
		}
		for _, p := range b.to {
			*p = true
		}
	}
	if c.Architecture == "Qwen2ForCausalLM" {
		c.QKVBias = true
	}
	return nil
}

// slidingWindow maps the window and the layers that have it.
func (hf *hfConfig) slidingWindow(c *Config) error {
	f := c.family()
	given := len(hf.SlidingWindow) > 0
	if given && !absent(hf.SlidingWindow) {
		if err := json.Unmarshal(hf.SlidingWindow, &c.SlidingWindow); err != nil {
			return specstream.Invalid("sliding_window", "want an integer or null, got %s", hf.SlidingWindow)
		}
		if c.SlidingWindow < 1 {
			return specstream.Invalid("sliding_window", "%d is not a number of positions", c.SlidingWindow)
		}
	}
	switch {
	case f.windowLayers: // Qwen2
		if hf.UseSlidingWindow == nil || !*hf.UseSlidingWindow {
			c.SlidingWindow = 0
			break
		}
		if !given {
			c.SlidingWindow = 4096 // transformers' default
		}
		c.WindowFirstLayer = 28 // transformers' default
		if hf.MaxWindowLayers != nil {
			c.WindowFirstLayer = *hf.MaxWindowLayers
		}
		if c.WindowFirstLayer >= c.NumLayers || c.SlidingWindow == 0 { // no layer has it
			c.SlidingWindow, c.WindowFirstLayer = 0, 0
		}
	case c.Architecture == "MistralForCausalLM" && !given:
		c.SlidingWindow = 4096 // transformers' default
	}
	if hf.LayerTypes == nil {
		return nil
	}
	if len(hf.LayerTypes) != c.NumLayers {
		return specstream.Invalid("layer_types", "%d entries for %d layers", len(hf.LayerTypes), c.NumLayers)
	}
	for i, kind := range hf.LayerTypes {
		want := "full_attention"
		if c.Window(i) > 0 {
			want = "sliding_attention"
		}
		if kind != want {
			return specstream.Invalid("layer_types", "layer %d is %q, but sliding_window and max_window_layers make it %q; other patterns are not supported", i, kind, want)
		}
	}
	return nil
}

// opt maps OPT's own fields.
func (hf *hfConfig) opt(c *Config) error {
	for _, b := range []struct {
		name string
		set  *bool
		want bool
		what string
	}{
		{"do_layer_norm_before", hf.NormBefore, true, "norms after the residual branches"},
		{"layer_norm_elementwise_affine", hf.NormAffine, true, "norms without weights"},
		{"_remove_final_layer_norm", hf.RemoveFinalNorm, false, "a base without a final norm"},
	} {
		if b.set != nil && *b.set != b.want {
			return specstream.Invalid(b.name, "%v: %s are not supported", *b.set, b.what)
		}
	}
	if hf.ActivationFunction != nil && *hf.ActivationFunction != "relu" {
		return specstream.Invalid("activation_function", "%q is not supported; only \"relu\" is", *hf.ActivationFunction)
	}
	if hf.WordEmbedProjDim != nil && *hf.WordEmbedProjDim != c.HiddenSize {
		return specstream.Invalid("word_embed_proj_dim", "%d is not hidden_size %d: projected embeddings are not supported", *hf.WordEmbedProjDim, c.HiddenSize)
	}
	biased := hf.EnableBias == nil || *hf.EnableBias
	c.QKVBias, c.OutBias, c.MLPBias = biased, biased, biased
	return nil
}

// rope reads the rotary settings from rope_theta and rope_scaling, or from the
// rope_parameters of newer transformers, which hold both.
func (hf *hfConfig) rope(c *Config) error {
	c.RopeTheta = 10000 // transformers' default in every family
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
	case "longrope", "su":
		return &specstream.InputError{Field: field, Reason: fmt.Sprintf("rope_type %q is not supported: its frequencies depend on how long the whole sequence is", p.Type),
			Hint: "use the variant of the base with the short context (such as Phi-3 4k), whose rope_scaling is null"}
	}
	return specstream.Invalid(field, "rope_type %q is not supported; supported are \"default\" and \"llama3\"", p.Type)
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
