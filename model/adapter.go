package model

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// Param is one trainable tensor.
type Param struct {
	Name  string
	Shape []int
	Data  []float32 // row-major; nil in what [ParamShapes] returns
}

// Names of the parameters that are not LoRA's; each pair's low-rank maps are
// called as PEFT calls LoRA's: x ↦ B·(A·x).
const (
	nameStreamEmbeddings = "stream_embeddings.weight"
	namePruner           = "pruning_adapter"
	nameStreamInit       = "stream_init"
)

const (
	suffixA = ".lora_A.weight"
	suffixB = ".lora_B.weight"
)

// loraName is the name of a LoRA pair in memory, in every family what PEFT calls
// it on a Llama; on disk it has its family's (see loraModule).
func loraName(layer int, target string) string {
	return fmt.Sprintf("base_model.model.model.layers.%d.%s", layer, llamaNames.modules[target])
}

func streamAdapterName(layer int) string { return fmt.Sprintf("stream_adapters.layers.%d", layer) }

// Adapter holds an adapter's parameters, everything Speculative Streaming
// trains: stream embeddings P_j, the pruning adapter o_θ, f_η where it is low-rank,
// and by mode either LoRA (shared) or the stream adapters (lossless).
type Adapter struct {
	Spec specstream.AdapterSpec // completed
	Base Config                 // of the base it adapts
	// Params are in canonical order; their Data is what the accessors return.
	Params []*Param

	byName map[string]*Param
}

// ParamShapes lists an adapter's parameters in canonical order, without data:
// LoRA by layer and projection, stream embeddings, pruning adapter, stream
// adapters by layer, f_η. LoRA targets that the base has no projection for (the
// gate of an OPT) have none.
func ParamShapes(c Config, spec specstream.AdapterSpec) []Param {
	h := c.HiddenSize
	var ps []Param
	pair := func(name string, rank, out, in int) {
		ps = append(ps, Param{Name: name + suffixA, Shape: []int{rank, in}}, Param{Name: name + suffixB, Shape: []int{out, rank}})
	}
	if spec.Mode == specstream.Shared {
		for i := range c.NumLayers {
			for _, t := range c.Projections() {
				if slices.Contains(spec.LoRATargets, t) {
					out, in := c.ProjectionShape(t)
					pair(loraName(i, t), spec.LoRARank, out, in)
				}
			}
		}
	}
	ps = append(ps, Param{Name: nameStreamEmbeddings, Shape: []int{spec.Gamma, h}})
	pair(namePruner, spec.PruneRank, h, h)
	if spec.Mode == specstream.Lossless {
		for i := c.NumLayers - spec.MSALayers; i < c.NumLayers; i++ {
			pair(streamAdapterName(i), spec.StreamRank, h, h)
		}
	}
	if spec.StreamInit == specstream.StreamInitLowRank {
		pair(nameStreamInit, spec.StreamInitRank, h, h)
	}
	return ps
}

// checkFit checks what neither the spec nor the configuration can alone.
func checkFit(c Config, spec specstream.AdapterSpec) error {
	if err := spec.Validate(); err != nil {
		return err
	}
	if spec.MSALayers > c.NumLayers {
		return specstream.Invalid("msa_layers", "%d is more than the base's %d layers", spec.MSALayers, c.NumLayers)
	}
	if c.SlidingWindow > 0 && c.SlidingWindow <= spec.Gamma {
		return specstream.Invalid("gamma", "%d streams do not fit the base's sliding window of %d positions", spec.Gamma, c.SlidingWindow)
	}
	if spec.Mode != specstream.Shared || len(spec.LoRATargets) == len(specstream.LoRATargets) {
		return nil // all there are, by default
	}
	for _, t := range spec.LoRATargets {
		if !slices.Contains(c.Projections(), t) {
			return specstream.Invalid("lora_targets", "a %s has no %s", c.Architecture, t)
		}
	}
	return nil
}

// newAdapter returns an adapter with all parameters zero.
func newAdapter(c Config, spec specstream.AdapterSpec) *Adapter {
	a := &Adapter{Spec: spec, Base: c, byName: map[string]*Param{}}
	for _, p := range ParamShapes(c, spec) {
		p.Data = make([]float32, length(p.Shape))
		a.Params = append(a.Params, &p)
		a.byName[p.Name] = &p
	}
	return a
}

// NewAdapter initialises an adapter for a base of configuration c. The spec is
// complete (WithDefaults). Every A is U(−1/√in, 1/√in), PEFT's Kaiming-uniform with
// a = √5; every B is 0, so that LoRA, the stream adapters, o_θ and f_η begin as no
// change; P_j is N(0, 0.02). The result depends on the seed and the names alone.
func NewAdapter(c Config, spec specstream.AdapterSpec, seed uint64) (*Adapter, error) {
	if err := checkFit(c, spec); err != nil {
		return nil, err
	}
	a := newAdapter(c, spec)
	for _, p := range a.Params {
		switch {
		case p.Name == nameStreamEmbeddings:
			fillNormal(p.Data, p.Name, seed, 0.02)
		case strings.HasSuffix(p.Name, suffixA):
			fillUniform(p.Data, p.Name, seed, 1/math.Sqrt(float64(p.Shape[1])))
		}
	}
	return a, nil
}

// Param returns the parameter of that name, or nil.
func (a *Adapter) Param(name string) *Param { return a.byName[name] }

func (a *Adapter) pair(name string) (A, B []float32) {
	pa, pb := a.byName[name+suffixA], a.byName[name+suffixB]
	if pa == nil || pb == nil {
		return nil, nil
	}
	return pa.Data, pb.Data
}

// StreamEmbeddings returns the P_j, [γ, h]; row j−1 belongs to stream j.
func (a *Adapter) StreamEmbeddings() []float32 { return a.byName[nameStreamEmbeddings].Data }

// LoRA returns the LoRA matrices of a projection: A [r, in], B [out, r]; nil
// where it has none. The projection adds LoRAScale · B·(A·x).
func (a *Adapter) LoRA(layer int, target string) (A, B []float32) {
	return a.pair(loraName(layer, target))
}

// StreamAdapter returns the stream adapter of a layer, numbered from the bottom
// of the base (N−N_s .. N−1): A [R_s, h], B [h, R_s]; nil elsewhere and in shared
// mode.
func (a *Adapter) StreamAdapter(layer int) (A, B []float32) { return a.pair(streamAdapterName(layer)) }

// Pruner returns the pruning adapter o_θ: A [rank, h], B [h, rank].
func (a *Adapter) Pruner() (A, B []float32) { return a.pair(namePruner) }

// StreamInit returns f_η's low-rank part: A [η, h], B [h, η]; nil when f_η is
// the identity.
func (a *Adapter) StreamInit() (A, B []float32) { return a.pair(nameStreamInit) }

// Digest names the adapter by its contents: the spec, and every parameter's
// name, shape and float32 bytes. It does not depend on how files lay them out.
func (a *Adapter) Digest() (specstream.Digest, error) {
	spec, err := specstream.DigestJSON(a.Spec)
	if err != nil {
		return "", err
	}
	h := sha256.New()
	fmt.Fprintf(h, "specstream adapter 1\n%s\n", spec)
	buf := make([]byte, 0, 1<<16)
	for _, p := range a.Params {
		fmt.Fprintf(h, "%q %v\n", p.Name, p.Shape)
		for i, v := range p.Data {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
			if len(buf) == cap(buf) || i == len(p.Data)-1 {
				h.Write(buf)
				buf = buf[:0]
			}
		}
	}
	return specstream.Digest("sha256:" + hex.EncodeToString(h.Sum(nil))), nil
}

// Counts are numbers of trainable parameters by group.
type Counts struct {
	LoRA             int64 `json:"lora"`
	StreamEmbeddings int64 `json:"stream_embeddings"`
	PruningAdapter   int64 `json:"pruning_adapter"`
	StreamAdapters   int64 `json:"stream_adapters"`
	StreamInit       int64 `json:"stream_init,omitempty"`
	// BeyondLoRA is what the adapter adds to an ordinary LoRA fine-tune.
	BeyondLoRA int64 `json:"beyond_lora"`
	Total      int64 `json:"total"`
}

// CountParams counts an adapter's parameters from the base's configuration
// alone. With the defaults, shared mode adds 20·h beyond LoRA and lossless mode
// has 84·h in all.
func CountParams(c Config, spec specstream.AdapterSpec) (Counts, error) {
	var n Counts
	if err := checkFit(c, spec); err != nil {
		return n, err
	}
	for _, p := range ParamShapes(c, spec) {
		k := int64(length(p.Shape))
		n.Total += k
		switch {
		case p.Name == nameStreamEmbeddings:
			n.StreamEmbeddings += k
		case strings.HasPrefix(p.Name, namePruner):
			n.PruningAdapter += k
		case strings.HasPrefix(p.Name, "stream_adapters."):
			n.StreamAdapters += k
		case strings.HasPrefix(p.Name, nameStreamInit):
			n.StreamInit += k
		default:
			n.LoRA += k
		}
	}
	n.BeyondLoRA = n.Total - n.LoRA
	return n, nil
}
