package model

import (
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model/safetensors"
)

// Layer holds one decoder layer's weights, each matrix row-major [out, in].
// Projections of one input are stacked: the rows of the second follow those of the
// first. Biases are nil where the base has none.
type Layer struct {
	AttnNorm, MLPNorm         []float32 // [h]
	AttnNormBias, MLPNormBias []float32 // [h], of LayerNorms
	QKV                       []float32 // [(heads+2·kvHeads)·d, h]: q_proj, k_proj, v_proj
	O                         []float32 // [h, heads·d]
	GateUp                    []float32 // [2·intermediate, h]: gate_proj, up_proj; without a gate up_proj alone
	Down                      []float32 // [h, intermediate]
	QKVBias, OBias            []float32 // [rows of QKV], [h]
	GateUpBias, DownBias      []float32 // [rows of GateUp], [h]
}

// stack returns a stack's weights and biases; i indexes stacks.
func (l *Layer) stack(i int) (w, b *[]float32) {
	switch i {
	case 0:
		return &l.QKV, &l.QKVBias
	case 1:
		return &l.O, &l.OBias
	case 2:
		return &l.GateUp, &l.GateUpBias
	}
	return &l.Down, &l.DownBias
}

// Weights are a base model's weights in float32.
type Weights struct {
	Config    Config
	Embed     []float32 // [V, h]
	Positions []float32 // [MaxPositions+PositionOffset, h] where positions are learned, else nil
	Layers    []Layer
	Norm      []float32 // [h]
	NormBias  []float32 // [h], of a LayerNorm
	Head      []float32 // [V, h]; is Embed when the embeddings are tied
}

// Projection returns a layer's linear projection by its LoRA target name: the
// weights [out, in] and the bias [out], nil where there is none. Both are nil for
// a projection the base does not have. The data is shared, not copied.
func (w *Weights) Projection(layer int, target string) (weights, bias []float32) {
	for i, stack := range stacks {
		at := 0
		for _, t := range stack {
			out, in := w.Config.ProjectionShape(t)
			if t == target && out > 0 {
				data, b := w.Layers[layer].stack(i)
				return part(*data, at*in, out*in), part(*b, at, out)
			}
			at += out
		}
	}
	return nil, nil
}

// part is x[at:at+n], or nil where x is.
func part(x []float32, at, n int) []float32 {
	if x == nil {
		return nil
	}
	return x[at : at+n : at+n]
}

// slot is one named tensor of a base and its data.
type slot struct {
	name  string
	shape []int
	data  []float32 // nil before allocation
	// residual marks the projections that write to the residual stream.
	residual bool
}

// slots lists the tensors as the family stores them, in a fixed order; the head
// is left out when tied.
func (w *Weights) slots() (out []slot) {
	c, names := w.Config, w.Config.family().names
	h := c.HiddenSize
	add := func(name string, data []float32, shape ...int) {
		out = append(out, slot{name: name, shape: shape, data: data})
	}
	norm := func(name string, weight, bias []float32) {
		add(name+".weight", weight, h)
		if c.LayerNorm {
			add(name+".bias", bias, h)
		}
	}
	add(names.decoder+"embed_tokens.weight", w.Embed, c.VocabSize, h)
	if c.LearnedPositions {
		add(names.decoder+"embed_positions.weight", w.Positions, c.positionRows(), h)
	}
	for i := range w.Layers {
		l := &w.Layers[i]
		prefix := fmt.Sprintf("%slayers.%d.", names.decoder, i)
		norm(prefix+names.attnNorm, l.AttnNorm, l.AttnNormBias)
		for k, stack := range stacks {
			if stack[0] == "gate_proj" {
				norm(prefix+names.mlpNorm, l.MLPNorm, l.MLPNormBias)
			}
			data, bias := l.stack(k)
			at := 0
			for _, m := range c.modulesOf(stack) {
				rows, in := c.moduleShape(m)
				add(prefix+m.name+".weight", part(*data, at*in, rows*in), rows, in)
				out[len(out)-1].residual = len(stack) == 1
				if c.projectionBias(m.targets[0]) {
					add(prefix+m.name+".bias", part(*bias, at, rows), rows)
				}
				at += rows
			}
		}
	}
	norm(names.decoder+names.norm, w.Norm, w.NormBias)
	if !c.TieEmbeddings {
		add(headTensor, w.Head, c.VocabSize, h)
	}
	return out
}

// Named yields every tensor under its Hugging Face name, in a fixed order. A
// tied head is not repeated. Data is shared, not copied.
func (w *Weights) Named(yield func(name string, shape []int, data []float32)) {
	for _, s := range w.slots() {
		yield(s.name, s.shape, s.data)
	}
}

// newWeights returns weights of c's shapes, all zero.
func newWeights(c Config) *Weights {
	h := c.HiddenSize
	normBias := func() []float32 {
		if !c.LayerNorm {
			return nil
		}
		return make([]float32, h)
	}
	w := &Weights{Config: c, Layers: make([]Layer, c.NumLayers), Embed: make([]float32, c.VocabSize*h),
		Norm: make([]float32, h), NormBias: normBias()}
	if c.LearnedPositions {
		w.Positions = make([]float32, c.positionRows()*h)
	}
	w.Head = w.Embed
	if !c.TieEmbeddings {
		w.Head = make([]float32, c.VocabSize*h)
	}
	for i := range w.Layers {
		l := &w.Layers[i]
		l.AttnNorm, l.AttnNormBias = make([]float32, h), normBias()
		l.MLPNorm, l.MLPNormBias = make([]float32, h), normBias()
		for k, stack := range stacks {
			data, bias := l.stack(k)
			rows, in := c.moduleShape(module{targets: stack})
			*data = make([]float32, rows*in)
			if c.projectionBias(stack[0]) {
				*bias = make([]float32, rows)
			}
		}
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
// GPT-2, norms 1, biases 0. Each tensor draws from its own generator of the seed
// and its name, so the result does not depend on order.
func NewWeights(c Config, seed uint64) *Weights {
	w := newWeights(c)
	residual := 1 / math.Sqrt(float64(2*c.NumLayers))
	for _, s := range w.slots() {
		if len(s.shape) == 1 {
			if strings.HasSuffix(s.name, ".weight") { // a norm's
				for i := range s.data {
					s.data[i] = 1
				}
			}
			continue
		}
		std := 0.02
		if s.residual {
			std *= residual
		}
		fillNormal(s.data, s.name, seed, std)
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
