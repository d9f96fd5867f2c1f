package model

import (
	"encoding/json"
	"fmt"
	"io"
)

// hfCommon begins every config.json that WriteJSON writes.
type hfCommon struct {
	Architectures []string `json:"architectures"`
	ModelType     string   `json:"model_type"`
	Hidden        int      `json:"hidden_size"`
}

// hfTokens are the special tokens of a config.json.
type hfTokens struct {
	BOS *int32 `json:"bos_token_id"`
	EOS any    `json:"eos_token_id"`
}

// hfRope is Llama 3's rope_scaling.
type hfRope struct {
	Type string  `json:"rope_type"`
	F    float64 `json:"factor"`
	Low  float64 `json:"low_freq_factor"`
	High float64 `json:"high_freq_factor"`
	Orig int     `json:"original_max_position_embeddings"`
}

// hfLlama is the config.json of a family of Llama's kind.
type hfLlama struct {
	hfCommon
	Intermediate int     `json:"intermediate_size"`
	Layers       int     `json:"num_hidden_layers"`
	Heads        int     `json:"num_attention_heads"`
	KVHeads      int     `json:"num_key_value_heads"`
	HeadDim      int     `json:"head_dim"`
	Vocab        int     `json:"vocab_size"`
	MaxPositions int     `json:"max_position_embeddings"`
	Eps          float64 `json:"rms_norm_eps"`
	Theta        float64 `json:"rope_theta"`
	Scaling      *hfRope `json:"rope_scaling"`
	Tie          bool    `json:"tie_word_embeddings"`
	hfTokens
	Act              string `json:"hidden_act"`
	AttentionBias    bool   `json:"attention_bias"`
	MLPBias          bool   `json:"mlp_bias"`
	SlidingWindow    *int   `json:"sliding_window"`
	UseSlidingWindow *bool  `json:"use_sliding_window,omitempty"`
	MaxWindowLayers  *int   `json:"max_window_layers,omitempty"`
	// Pad is null for Phi-3, whose default of 32,000 is beyond a small vocabulary.
	Pad json.RawMessage `json:"pad_token_id,omitempty"`
}

// hfOPT is the config.json of an OPT.
type hfOPT struct {
	hfCommon
	FFN          int  `json:"ffn_dim"`
	Layers       int  `json:"num_hidden_layers"`
	Heads        int  `json:"num_attention_heads"`
	Vocab        int  `json:"vocab_size"`
	MaxPositions int  `json:"max_position_embeddings"`
	Tie          bool `json:"tie_word_embeddings"`
	hfTokens
	Activation string `json:"activation_function"`
	NormBefore bool   `json:"do_layer_norm_before"`
	Bias       bool   `json:"enable_bias"`
	EmbedDim   int    `json:"word_embed_proj_dim"`
}

// WriteJSON writes the configuration as a Hugging Face config.json that
// transformers and [ReadConfig] read.
func (c Config) WriteJSON(w io.Writer) error {
	if err := c.Validate(); err != nil {
		return fmt.Errorf("write config: %w", err)
	}
	f := c.family()
	common := hfCommon{Architectures: []string{c.Architecture}, ModelType: f.modelType, Hidden: c.HiddenSize}
	tokens := hfTokens{}
	if c.BOS >= 0 {
		tokens.BOS = &c.BOS
	}
	switch len(c.EOS) {
	case 0:
	case 1:
		tokens.EOS = c.EOS[0]
	default:
		tokens.EOS = c.EOS
	}
	var out any
	if c.LearnedPositions {
		out = hfOPT{hfCommon: common, FFN: c.IntermediateSize, Layers: c.NumLayers, Heads: c.NumHeads, Vocab: c.VocabSize, MaxPositions: c.MaxPositions,
			Tie: c.TieEmbeddings, hfTokens: tokens, Activation: "relu", NormBefore: true, Bias: c.QKVBias, EmbedDim: c.HiddenSize}
	} else {
		l := hfLlama{hfCommon: common, Intermediate: c.IntermediateSize, Layers: c.NumLayers,
			Heads: c.NumHeads, KVHeads: c.NumKVHeads, HeadDim: c.HeadDim, Vocab: c.VocabSize, MaxPositions: c.MaxPositions,
			Eps: c.RMSNormEps, Theta: c.RopeTheta, Tie: c.TieEmbeddings, hfTokens: tokens, Act: "silu", AttentionBias: c.OutBias, MLPBias: c.MLPBias}
		if s := c.RopeScaling; s != nil {
			l.Scaling = &hfRope{"llama3", s.Factor, s.LowFreqFactor, s.HighFreqFactor, s.OriginalMaxPositions}
		}
		if c.SlidingWindow > 0 {
			l.SlidingWindow = &c.SlidingWindow
		}
		if f.windowLayers {
			uses := c.SlidingWindow > 0
			l.UseSlidingWindow, l.MaxWindowLayers = &uses, &c.WindowFirstLayer
		}
		if f.modelType == "phi3" {
			l.Pad = json.RawMessage("null")
		}
		out = l
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
