package model

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model/safetensors"
)

// peftLoRA is adapter_config.json as PEFT's LoraConfig writes it.
type peftLoRA struct {
	AlphaPattern      map[string]float64 `json:"alpha_pattern"`
	AutoMapping       *string            `json:"auto_mapping"`
	BaseModel         *string            `json:"base_model_name_or_path"`
	Bias              string             `json:"bias"`
	FanInFanOut       bool               `json:"fan_in_fan_out"`
	InferenceMode     bool               `json:"inference_mode"`
	InitLoRAWeights   bool               `json:"init_lora_weights"`
	LayersPattern     *string            `json:"layers_pattern"`
	LayersToTransform []int              `json:"layers_to_transform"`
	LoRAAlpha         float64            `json:"lora_alpha"`
	LoRADropout       float64            `json:"lora_dropout"`
	ModulesToSave     []string           `json:"modules_to_save"`
	PEFTType          string             `json:"peft_type"`
	R                 int                `json:"r"`
	RankPattern       map[string]int     `json:"rank_pattern"`
	Revision          *string            `json:"revision"`
	TargetModules     []string           `json:"target_modules"`
	TaskType          string             `json:"task_type"`
	UseDoRA           bool               `json:"use_dora"`
	UseRSLoRA         bool               `json:"use_rslora"`
}

// loraModule is a module that PEFT sees LoRA on. Where the family stores several
// projections as one tensor, their pairs become one pair of the summed rank: the
// As one below the other, the Bs along a diagonal of blocks.
type loraModule struct {
	module
	adapted []string // its targets that have LoRA, in canonical order
}

func (m loraModule) leaf() string { return path.Ext("." + m.name)[1:] }

// loraModules lists a layer's modules with LoRA.
func loraModules(c Config, spec specstream.AdapterSpec) (out []loraModule) {
	for _, stack := range stacks {
		for _, m := range c.modulesOf(stack) {
			l := loraModule{module: m}
			for _, t := range m.targets {
				if slices.Contains(spec.LoRATargets, t) {
					l.adapted = append(l.adapted, t)
				}
			}
			if l.adapted != nil {
				out = append(out, l)
			}
		}
	}
	return out
}

// peftConfig is the adapter_config.json of a shared adapter.
func peftConfig(c Config, spec specstream.AdapterSpec) peftLoRA {
	p := peftLoRA{
		AlphaPattern: map[string]float64{}, RankPattern: map[string]int{}, Bias: "none", InferenceMode: true, InitLoRAWeights: true,
		LoRAAlpha: spec.LoRAAlpha, PEFTType: peftTypeLoRA, R: spec.LoRARank, TaskType: taskCausalLM,
	}
	for _, m := range loraModules(c, spec) {
		p.TargetModules = append(p.TargetModules, m.leaf())
		if n := len(m.adapted); n > 1 { // the scale alpha/r stays what it is
			p.RankPattern[m.leaf()] = n * spec.LoRARank
			p.AlphaPattern[m.leaf()] = float64(n) * spec.LoRAAlpha
		}
	}
	return p
}

// peftTensor is one LoRA tensor as PEFT has it and the blocks it is made of.
type peftTensor struct {
	name   string
	shape  []int
	blocks []block
}

// block is a parameter's place in a PEFT tensor, its first row and column there.
type block struct {
	p        *Param
	row, col int
}

// peftTensors lists the LoRA tensors of the adapter's folder.
func (a *Adapter) peftTensors() (out []peftTensor) {
	if a.Spec.Mode != specstream.Shared {
		return nil
	}
	r := a.Spec.LoRARank
	modules := loraModules(a.Base, a.Spec)
	for i := range a.Base.NumLayers {
		for _, m := range modules {
			rows, in := a.Base.moduleShape(m.module)
			name := fmt.Sprintf("%s%slayers.%d.%s", loraTensorPrefix, a.Base.family().names.decoder, i, m.name)
			A := peftTensor{name: name + suffixA, shape: []int{len(m.adapted) * r, in}}
			B := peftTensor{name: name + suffixB, shape: []int{rows, len(m.adapted) * r}}
			row, rank := 0, 0
			for _, t := range m.targets {
				if slices.Contains(m.adapted, t) {
					A.blocks = append(A.blocks, block{a.byName[loraName(i, t)+suffixA], rank, 0})
					B.blocks = append(B.blocks, block{a.byName[loraName(i, t)+suffixB], row, rank})
					rank += r
				}
				n, _ := a.Base.ProjectionShape(t)
				row += n
			}
			out = append(out, A, B)
		}
	}
	return out
}

// whole reports whether the tensor is its one block.
func (t peftTensor) whole() bool {
	return len(t.blocks) == 1 && slices.Equal(t.blocks[0].p.Shape, t.shape)
}

// data returns the tensor's values, zero outside the blocks.
func (t peftTensor) data() []float32 {
	if t.whole() {
		return t.blocks[0].p.Data
	}
	out := make([]float32, length(t.shape))
	for _, b := range t.blocks {
		rows, cols := b.p.Shape[0], b.p.Shape[1]
		for i := range rows {
			copy(out[(b.row+i)*t.shape[1]+b.col:], b.p.Data[i*cols:(i+1)*cols])
		}
	}
	return out
}

// set reads the blocks from the tensor's values and reports whether all others
// are zero.
func (t peftTensor) set(data []float32) bool {
	for _, b := range t.blocks {
		rows, cols := b.p.Shape[0], b.p.Shape[1]
		for i := range rows {
			from := data[(b.row+i)*t.shape[1]+b.col:][:cols]
			copy(b.p.Data[i*cols:], from)
			clear(from)
		}
	}
	return !slices.ContainsFunc(data, func(v float32) bool { return v != 0 })
}

// peftSources are the tensors of adapter_model.safetensors.
func (a *Adapter) peftSources() (out []safetensors.Source) {
	for _, t := range a.peftTensors() {
		out = append(out, safetensors.Float32Source(t.name, safetensors.F32, t.shape, t.data()))
	}
	return out
}

// readPEFT reads adapter_model.safetensors.
func (a *Adapter) readPEFT(f *safetensors.File) (map[string]bool, error) {
	known := map[string]bool{}
	for _, p := range a.peftTensors() {
		known[p.name] = true
		t, err := lookup(f, p.name, p.shape)
		if err != nil {
			return nil, err
		}
		if p.whole() {
			if err := f.Float32s(t, p.blocks[0].p.Data); err != nil {
				return nil, err
			}
			continue
		}
		data := make([]float32, t.Len())
		if err := f.Float32s(t, data); err != nil {
			return nil, err
		}
		if !p.set(data) {
			return nil, &specstream.InputError{File: f.Name, Field: p.name, Reason: "it mixes the projections stored as one tensor, which have a LoRA pair each", Hint: "name the folder of an adapter that training wrote"}
		}
	}
	return known, nil
}

// checkPEFT checks that adapter_config.json says what the spec says, and that it
// asks for nothing that would compute something else.
func checkPEFT(path string, c Config, spec specstream.AdapterSpec) error {
	b, err := readAdapterFile(path)
	if err != nil {
		return err
	}
	var p peftLoRA
	if err := json.Unmarshal(b, &p); err != nil {
		return &specstream.InputError{File: path, Reason: "invalid JSON", Err: err}
	}
	differs := func(field string, got, want any) error {
		return &specstream.InputError{File: path, Field: field, Reason: fmt.Sprintf("%v, but %s says %v", got, specstreamConfig, want)}
	}
	if spec.Mode == specstream.Lossless {
		if p.PEFTType != peftTypeSpecstream {
			return differs("peft_type", p.PEFTType, peftTypeSpecstream)
		}
		return nil
	}
	want := peftConfig(c, spec)
	slices.Sort(p.TargetModules)
	slices.Sort(want.TargetModules)
	switch {
	case p.PEFTType != want.PEFTType:
		return differs("peft_type", p.PEFTType, want.PEFTType)
	case p.R != want.R:
		return differs("r", p.R, want.R)
	case p.LoRAAlpha != want.LoRAAlpha:
		return differs("lora_alpha", p.LoRAAlpha, want.LoRAAlpha)
	case !slices.Equal(p.TargetModules, want.TargetModules):
		return differs("target_modules", p.TargetModules, want.TargetModules)
	case !maps.Equal(p.RankPattern, want.RankPattern):
		return differs("rank_pattern", p.RankPattern, want.RankPattern)
	case !maps.Equal(p.AlphaPattern, want.AlphaPattern):
		return differs("alpha_pattern", p.AlphaPattern, want.AlphaPattern)
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"bias", p.Bias != "none"}, {"fan_in_fan_out", p.FanInFanOut}, {"use_dora", p.UseDoRA}, {"use_rslora", p.UseRSLoRA},
		{"modules_to_save", len(p.ModulesToSave) > 0}, {"layers_to_transform", len(p.LayersToTransform) > 0},
	} {
		if f.set {
			return &specstream.InputError{File: path, Field: f.name, Reason: "the setting is not supported"}
		}
	}
	return nil
}
