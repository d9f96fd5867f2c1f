package model

import (
	"maps"
	"slices"
)

// family is what the bases of one architecture have in common: how their
// config.json is read and what their tensors are called. The arithmetic follows
// from [Config] alone.
type family struct {
	modelType string // of config.json
	// dimensionsOnly marks an architecture whose adapters' parameters can be
	// counted, because its projections are Llama's, but that does not run.
	dimensionsOnly bool

	// Defaults of transformers for fields that a file leaves out.
	maxPositions int
	eps          float64
	bos          int32
	eos          []int32
	tied         bool
	headsAreKV   bool // num_key_value_heads defaults to the number of heads

	traits       traits
	biases       []biases // the combinations there are; nil: none has any
	window       bool     // sliding_window is one of its fields
	windowLayers bool     // max_window_layers too

	names naming
}

// traits are what every base of a family shares.
type traits struct {
	LayerNorm, ReLU, LearnedPositions bool
	PositionOffset                    int
}

// biases are the projections that have one.
type biases struct{ QKV, Out, MLP bool }

// naming is how a family calls its tensors. Projections that share a module are
// stored as one tensor, stacked in canonical order.
type naming struct {
	decoder                 string // module of embeddings, layers and final norm, with its dot
	attnNorm, mlpNorm, norm string
	modules                 map[string]string // of projections, within a layer, by LoRA target
}

var llamaNames = naming{
	decoder: "model.", attnNorm: "input_layernorm", mlpNorm: "post_attention_layernorm", norm: "norm",
	modules: map[string]string{
		"q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj", "v_proj": "self_attn.v_proj", "o_proj": "self_attn.o_proj",
		"gate_proj": "mlp.gate_proj", "up_proj": "mlp.up_proj", "down_proj": "mlp.down_proj",
	},
}

var phi3Names = naming{
	decoder: "model.", attnNorm: "input_layernorm", mlpNorm: "post_attention_layernorm", norm: "norm",
	modules: map[string]string{
		"q_proj": "self_attn.qkv_proj", "k_proj": "self_attn.qkv_proj", "v_proj": "self_attn.qkv_proj", "o_proj": "self_attn.o_proj",
		"gate_proj": "mlp.gate_up_proj", "up_proj": "mlp.gate_up_proj", "down_proj": "mlp.down_proj",
	},
}

var optNames = naming{
	decoder: "model.decoder.", attnNorm: "self_attn_layer_norm", mlpNorm: "final_layer_norm", norm: "final_layer_norm",
	modules: map[string]string{
		"q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj", "v_proj": "self_attn.v_proj", "o_proj": "self_attn.out_proj",
		"up_proj": "fc1", "down_proj": "fc2",
	},
}

// families by architecture. Vicuna is a Llama.
var families = map[string]*family{
	"LlamaForCausalLM": {
		modelType: "llama", maxPositions: 2048, eps: 1e-6, bos: 1, eos: []int32{2}, headsAreKV: true,
		biases: []biases{{}, {MLP: true}, {QKV: true, Out: true}, {QKV: true, Out: true, MLP: true}}, names: llamaNames,
	},
	"MistralForCausalLM": {
		modelType: "mistral", maxPositions: 131072, eps: 1e-6, bos: 1, eos: []int32{2}, window: true, names: llamaNames,
	},
	"Qwen2ForCausalLM": {
		modelType: "qwen2", maxPositions: 32768, eps: 1e-6, bos: -1, biases: []biases{{QKV: true}}, window: true, windowLayers: true, names: llamaNames,
	},
	"Qwen3ForCausalLM": { // its queries and keys pass through norms
		modelType: "qwen3", dimensionsOnly: true, maxPositions: 32768, eps: 1e-6, bos: -1, window: true, windowLayers: true, names: llamaNames,
	},
	"Phi3ForCausalLM": {
		modelType: "phi3", maxPositions: 4096, eps: 1e-5, bos: 1, eos: []int32{32000}, headsAreKV: true, window: true, names: phi3Names,
	},
	"OPTForCausalLM": {
		modelType: "opt", maxPositions: 2048, eps: 1e-5, bos: 2, eos: []int32{2}, tied: true, headsAreKV: true,
		traits: traits{LayerNorm: true, ReLU: true, LearnedPositions: true, PositionOffset: 2},
		biases: []biases{{}, {true, true, true}}, names: optNames,
	},
}

// Architectures lists the architectures that run, sorted.
func Architectures() []string {
	var out []string
	for _, a := range slices.Sorted(maps.Keys(families)) {
		if !families[a].dimensionsOnly {
			out = append(out, a)
		}
	}
	return out
}

// family returns the configuration's family, nil where the architecture is not
// known.
func (c Config) family() *family { return families[c.Architecture] }

func (c Config) traits() traits {
	return traits{c.LayerNorm, c.ReLU, c.LearnedPositions, c.PositionOffset}
}

func (f *family) allows(b biases) bool {
	return b == biases{} && f.biases == nil || slices.Contains(f.biases, b)
}

// intermediateSize is the field of config.json that holds the MLP's width.
func (f *family) intermediateSize() string {
	if f != nil && f.traits.LearnedPositions {
		return "ffn_dim"
	}
	return "intermediate_size"
}

// stacks are the projections of a layer by common input, in canonical order; the
// weights of one stack lie one behind the other.
var stacks = [][]string{{"q_proj", "k_proj", "v_proj"}, {"o_proj"}, {"gate_proj", "up_proj"}, {"down_proj"}}

// module is one tensor of a family that holds projections.
type module struct {
	name    string   // within a layer
	targets []string // stacked in it, in canonical order
}

// modulesOf returns the modules that hold a stack's projections.
func (c Config) modulesOf(stack []string) (out []module) {
	names := c.family().names
	for _, t := range stack {
		if rows, _ := c.ProjectionShape(t); rows == 0 {
			continue
		}
		name := names.modules[t]
		if n := len(out); n > 0 && out[n-1].name == name {
			out[n-1].targets = append(out[n-1].targets, t)
			continue
		}
		out = append(out, module{name, []string{t}})
	}
	return out
}

// rows returns the number of outputs of a module and its input width.
func (c Config) moduleShape(m module) (out, in int) {
	for _, t := range m.targets {
		n, k := c.ProjectionShape(t)
		out, in = out+n, k
	}
	return out, in
}
