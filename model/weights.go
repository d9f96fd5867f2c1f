package model

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model/safetensors"
)

// Layer holds one decoder layer's weights, each matrix row-major [out, in].
type Layer struct {
	AttnNorm, MLPNorm []float32 // [h]
	Q                 []float32 // [heads·d, h]
	K, V              []float32 // [kvHeads·d, h]
	O                 []float32 // [h, heads·d]
	Gate, Up          []float32 // [intermediate, h]
	Down              []float32 // [h, intermediate]
}

// Projection returns a linear projection's weights and shape [out, in] by its
// LoRA target name; nil, 0, 0 for an unknown name.
func (l *Layer) Projection(target string) (w []float32, out, in int) {
	p := l.projection(target)
	if p == nil {
		return nil, 0, 0
	}
	h := len(l.AttnNorm)
	if h == 0 {
		return *p, 0, 0
	}
	if target == "o_proj" || target == "down_proj" {
		return *p, h, len(*p) / h
	}
	return *p, len(*p) / h, h
}

func (l *Layer) projection(target string) *[]float32 {
	switch target {
	case "q_proj":
		return &l.Q
	case "k_proj":
		return &l.K
	case "v_proj":
		return &l.V
	case "o_proj":
		return &l.O
	case "gate_proj":
		return &l.Gate
	case "up_proj":
		return &l.Up
	case "down_proj":
		return &l.Down
	}
	return nil
}

// Weights are a base model's weights in float32.
type Weights struct {
	Config Config
	Embed  []float32 // [V, h]
	Layers []Layer
	Norm   []float32 // [h]
	Head   []float32 // [V, h]; is Embed when the embeddings are tied
}

// modules are the parent modules of the projections in Hugging Face's names.
var modules = map[string]string{
	"q_proj": "self_attn", "k_proj": "self_attn", "v_proj": "self_attn", "o_proj": "self_attn",
	"gate_proj": "mlp", "up_proj": "mlp", "down_proj": "mlp",
}

// slot is one named tensor of a base and where its data lives.
type slot struct {
	name  string
	shape []int
	data  *[]float32
}

// slots lists the tensors in Hugging Face's order; the head is left out when
// tied.
func (w *Weights) slots() []slot {
	c := w.Config
	h := c.HiddenSize
	s := []slot{{"model.embed_tokens.weight", []int{c.VocabSize, h}, &w.Embed}}
	for i := range w.Layers {
		l := &w.Layers[i]
		prefix := fmt.Sprintf("model.layers.%d.", i)
		s = append(s, slot{prefix + "input_layernorm.weight", []int{h}, &l.AttnNorm})
		for _, t := range specstream.LoRATargets {
			if t == "gate_proj" {
				s = append(s, slot{prefix + "post_attention_layernorm.weight", []int{h}, &l.MLPNorm})
			}
			out, in := c.ProjectionShape(t)
			s = append(s, slot{prefix + modules[t] + "." + t + ".weight", []int{out, in}, l.projection(t)})
		}
	}
	s = append(s, slot{"model.norm.weight", []int{h}, &w.Norm})
	if !c.TieEmbeddings {
		s = append(s, slot{"lm_head.weight", []int{c.VocabSize, h}, &w.Head})
	}
	return s
}

// Named yields every tensor under its Hugging Face name, in a fixed order. A
// tied head is not repeated. Data is shared, not copied.
func (w *Weights) Named(yield func(name string, shape []int, data []float32)) {
	for _, s := range w.slots() {
		yield(s.name, s.shape, *s.data)
	}
}

// newWeights returns weights of c's shapes, all zero.
func newWeights(c Config) *Weights {
	w := &Weights{Config: c, Layers: make([]Layer, c.NumLayers)}
	for _, s := range w.slots() {
		*s.data = make([]float32, length(s.shape))
	}
	if c.TieEmbeddings {
		w.Head = w.Embed
	}
	return w
}

func length(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// NewWeights initialises a base from scratch: weights N(0, 0.02), the two that
// write to the residual stream (o_proj, down_proj) scaled by 1/√(2N) as in
// GPT-2, norms 1. Each tensor draws from its own generator of the seed and its
// name, so the result does not depend on order.
func NewWeights(c Config, seed uint64) *Weights {
	w := newWeights(c)
	residual := 1 / math.Sqrt(float64(2*c.NumLayers))
	for _, s := range w.slots() {
		if len(s.shape) == 1 {
			for i := range *s.data {
				(*s.data)[i] = 1
			}
			continue
		}
		std := 0.02
		if base := filepath.Ext(s.name[:len(s.name)-len(".weight")]); base == ".o_proj" || base == ".down_proj" {
			std *= residual
		}
		fillNormal(*s.data, s.name, seed, std)
	}
	return w
}

// generator returns the random generator of one named tensor.
func generator(name string, seed uint64) *rand.Rand {
	h := fnv.New64a()
	_, _ = io.WriteString(h, name) // a hash never fails
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

func fillNormal(dst []float32, name string, seed uint64, std float64) {
	r := generator(name, seed)
	for i := range dst {
		dst[i] = float32(r.NormFloat64() * std)
	}
}

func fillUniform(dst []float32, name string, seed uint64, bound float64) {
	r := generator(name, seed)
	for i := range dst {
		dst[i] = float32((2*r.Float64() - 1) * bound)
	}
}

// Save writes the base as a Hugging Face folder, config.json and
// model.safetensors, with weights as dtype: "F32", "BF16" or "F16". Each file
// appears whole or not at all, the weights first. The folder is made if need
// be; other files in it, such as tokenizer.json, are left alone.
func (w *Weights) Save(dir string, dtype string) error {
	switch safetensors.DType(dtype) {
	case safetensors.F32, safetensors.BF16, safetensors.F16:
	default:
		return specstream.Invalid("dtype", "%q is not F32, BF16 or F16", dtype)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save base: %w", err)
	}
	var sources []safetensors.Source
	w.Named(func(name string, shape []int, data []float32) {
		sources = append(sources, safetensors.Float32Source(name, safetensors.DType(dtype), shape, data))
	})
	if err := writeFile(filepath.Join(dir, weightsFile), func(out io.Writer) error {
		return safetensors.Write(out, map[string]string{"format": "pt"}, sources)
	}); err != nil {
		return fmt.Errorf("save base: %w", err)
	}
	if err := w.Config.Save(filepath.Join(dir, configFile)); err != nil {
		return fmt.Errorf("save base: %w", err)
	}
	return nil
}
