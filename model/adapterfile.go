package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model/safetensors"
)

// Files of an adapter folder. The first two are PEFT's, and in shared mode PEFT
// loads them as an ordinary LoRA; the other two hold what PEFT knows nothing of.
const (
	peftConfigFile     = "adapter_config.json"
	peftWeightsFile    = "adapter_model.safetensors"
	specstreamConfig   = "specstream.json"
	specstreamWeights  = "specstream.safetensors"
	adapterFormat      = 1
	peftTypeLoRA       = "LORA"
	peftTypeSpecstream = "SPECSTREAM"
	taskCausalLM       = "CAUSAL_LM"
	loraTensorPrefix   = "base_model.model."
)

// adapterFile is specstream.json.
type adapterFile struct {
	Format int                    `json:"format"`
	Spec   specstream.AdapterSpec `json:"spec"`
	Base   adapterBase            `json:"base"`
}

// adapterBase is what of the base fixes the adapter's shapes and meaning.
type adapterBase struct {
	Architecture     string `json:"architecture"`
	HiddenSize       int    `json:"hidden_size"`
	IntermediateSize int    `json:"intermediate_size"`
	NumLayers        int    `json:"num_hidden_layers"`
	NumHeads         int    `json:"num_attention_heads"`
	NumKVHeads       int    `json:"num_key_value_heads"`
	HeadDim          int    `json:"head_dim"`
	VocabSize        int    `json:"vocab_size"`
}

func baseOf(c Config) adapterBase {
	return adapterBase{c.Architecture, c.HiddenSize, c.IntermediateSize, c.NumLayers, c.NumHeads, c.NumKVHeads, c.HeadDim, c.VocabSize}
}

// peftLoRA is adapter_config.json as PEFT's LoraConfig writes it.
type peftLoRA struct {
	AlphaPattern      map[string]int `json:"alpha_pattern"`
	AutoMapping       *string        `json:"auto_mapping"`
	BaseModel         *string        `json:"base_model_name_or_path"`
	Bias              string         `json:"bias"`
	FanInFanOut       bool           `json:"fan_in_fan_out"`
	InferenceMode     bool           `json:"inference_mode"`
	InitLoRAWeights   bool           `json:"init_lora_weights"`
	LayersPattern     *string        `json:"layers_pattern"`
	LayersToTransform []int          `json:"layers_to_transform"`
	LoRAAlpha         float64        `json:"lora_alpha"`
	LoRADropout       float64        `json:"lora_dropout"`
	ModulesToSave     []string       `json:"modules_to_save"`
	PEFTType          string         `json:"peft_type"`
	R                 int            `json:"r"`
	RankPattern       map[string]int `json:"rank_pattern"`
	Revision          *string        `json:"revision"`
	TargetModules     []string       `json:"target_modules"`
	TaskType          string         `json:"task_type"`
	UseDoRA           bool           `json:"use_dora"`
	UseRSLoRA         bool           `json:"use_rslora"`
}

// peftMarker is the adapter_config.json of a lossless adapter. It is no LoRA, and
// says so, so that PEFT refuses it instead of loading nothing.
type peftMarker struct {
	BaseModel *string `json:"base_model_name_or_path"`
	PEFTType  string  `json:"peft_type"`
	TaskType  string  `json:"task_type"`
}

func isLoRA(name string) bool { return strings.HasPrefix(name, loraTensorPrefix) }

// Save writes the adapter as a folder in PEFT's layout, in float32: in shared
// mode adapter_config.json and adapter_model.safetensors load as a LoRA in PEFT;
// specstream.json and specstream.safetensors hold the spec and the other
// parameters. In lossless mode there is no LoRA and so no adapter_model.safetensors.
// Bytes depend on the adapter alone. Each file appears whole or not at all,
// specstream.json last.
func (a *Adapter) Save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("save adapter: %w", err)
	}
	var lora, own []safetensors.Source
	for _, p := range a.Params {
		s := safetensors.Float32Source(p.Name, safetensors.F32, p.Shape, p.Data)
		if isLoRA(p.Name) {
			lora = append(lora, s)
		} else {
			own = append(own, s)
		}
	}
	var peft any = peftMarker{PEFTType: peftTypeSpecstream, TaskType: taskCausalLM}
	type file struct {
		name  string
		write func(io.Writer) error
	}
	var files []file
	if a.Spec.Mode == specstream.Shared {
		peft = peftLoRA{
			AlphaPattern: map[string]int{}, RankPattern: map[string]int{}, Bias: "none", InferenceMode: true, InitLoRAWeights: true,
			LoRAAlpha: a.Spec.LoRAAlpha, PEFTType: peftTypeLoRA, R: a.Spec.LoRARank, TargetModules: canonicalTargets(a.Spec.LoRATargets), TaskType: taskCausalLM,
		}
		files = append(files, file{peftWeightsFile, func(w io.Writer) error {
			return safetensors.Write(w, map[string]string{"format": "pt"}, lora)
		}})
	}
	files = append(files,
		file{specstreamWeights, func(w io.Writer) error {
			return safetensors.Write(w, map[string]string{"format": "specstream"}, own)
		}},
		file{peftConfigFile, jsonTo(peft)},
		file{specstreamConfig, jsonTo(adapterFile{Format: adapterFormat, Spec: a.Spec, Base: baseOf(a.Base)})})
	for _, f := range files {
		if err := writeFile(filepath.Join(dir, f.name), f.write); err != nil {
			return fmt.Errorf("save adapter: %w", err)
		}
	}
	return nil
}

// canonicalTargets returns targets in the order of specstream.LoRATargets.
func canonicalTargets(targets []string) []string {
	var out []string
	for _, t := range specstream.LoRATargets {
		if slices.Contains(targets, t) {
			out = append(out, t)
		}
	}
	return out
}

func jsonTo(v any) func(io.Writer) error {
	return func(w io.Writer) error {
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return err
		}
		_, err = w.Write(append(b, '\n'))
		return err
	}
}

// LoadAdapter reads an adapter folder that [Adapter.Save] wrote, for a base of
// configuration c. Whatever does not fit the base, contradicts itself, is missing
// or is surplus is an InputError that names the file and the field or tensor.
func LoadAdapter(dir string, c Config) (*Adapter, error) {
	a, err := loadAdapter(dir, c)
	if err != nil {
		return nil, fmt.Errorf("load adapter: %w", err)
	}
	return a, nil
}

func loadAdapter(dir string, c Config) (*Adapter, error) {
	path := filepath.Join(dir, specstreamConfig)
	b, err := readAdapterFile(path)
	if err != nil {
		return nil, err
	}
	var f adapterFile
	if err := specstream.DecodeStrict(path, bytes.NewReader(b), &f); err != nil {
		var in *specstream.InputError
		if errors.As(err, &in) {
			in.Hint = "" // the hint speaks of jobs
		}
		return nil, err
	}
	if f.Format != adapterFormat {
		return nil, &specstream.InputError{File: path, Field: "format", Reason: fmt.Sprintf("%d is not %d, the one this version reads", f.Format, adapterFormat)}
	}
	if err := checkFit(c, f.Spec); err != nil {
		return nil, inFile(path, err)
	}
	if got, want := f.Base, baseOf(c); got != want {
		return nil, &specstream.InputError{File: path, Field: "base", Reason: fmt.Sprintf("trained for a base of %+v, not of %+v", got, want), Hint: "name the folder of an adapter trained for this base"}
	}
	if err := checkPEFT(filepath.Join(dir, peftConfigFile), f.Spec); err != nil {
		return nil, err
	}
	a := newAdapter(c, f.Spec)
	if err := a.readParams(filepath.Join(dir, specstreamWeights), false); err != nil {
		return nil, err
	}
	if f.Spec.Mode == specstream.Shared {
		return a, a.readParams(filepath.Join(dir, peftWeightsFile), true)
	}
	if _, err := os.Stat(filepath.Join(dir, peftWeightsFile)); err == nil {
		return nil, &specstream.InputError{File: filepath.Join(dir, peftWeightsFile), Reason: "a lossless adapter has no LoRA weights", Hint: "remove the file, or train in shared mode"}
	}
	return a, nil
}

func readAdapterFile(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &specstream.InputError{File: path, Reason: "there is no such file", Hint: "name an adapter folder that training wrote"}
	}
	return b, err
}

// checkPEFT checks that adapter_config.json says what the spec says, and that it
// asks for nothing that would compute something else.
func checkPEFT(path string, spec specstream.AdapterSpec) error {
	b, err := readAdapterFile(path)
	if err != nil {
		return err
	}
	var p peftLoRA
	if err := json.Unmarshal(b, &p); err != nil {
		return &specstream.InputError{File: path, Reason: "invalid JSON", Err: err}
	}
	want := peftTypeSpecstream
	if spec.Mode == specstream.Shared {
		want = peftTypeLoRA
	}
	differs := func(field string, got, want any) error {
		return &specstream.InputError{File: path, Field: field, Reason: fmt.Sprintf("%v, but %s says %v", got, specstreamConfig, want)}
	}
	if p.PEFTType != want {
		return differs("peft_type", p.PEFTType, want)
	}
	if spec.Mode == specstream.Lossless {
		return nil
	}
	slices.Sort(p.TargetModules)
	targets := slices.Sorted(slices.Values(spec.LoRATargets))
	switch {
	case p.R != spec.LoRARank:
		return differs("r", p.R, spec.LoRARank)
	case p.LoRAAlpha != spec.LoRAAlpha:
		return differs("lora_alpha", p.LoRAAlpha, spec.LoRAAlpha)
	case !slices.Equal(p.TargetModules, targets):
		return differs("target_modules", p.TargetModules, targets)
	}
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"bias", p.Bias != "none"}, {"fan_in_fan_out", p.FanInFanOut}, {"use_dora", p.UseDoRA}, {"use_rslora", p.UseRSLoRA},
		{"modules_to_save", len(p.ModulesToSave) > 0}, {"rank_pattern", len(p.RankPattern) > 0}, {"alpha_pattern", len(p.AlphaPattern) > 0},
		{"layers_to_transform", len(p.LayersToTransform) > 0},
	} {
		if f.set {
			return &specstream.InputError{File: path, Field: f.name, Reason: "the setting is not supported"}
		}
	}
	return nil
}

// readParams reads one weight file: the LoRA parameters or all others.
func (a *Adapter) readParams(path string, lora bool) (err error) {
	f, err := safetensors.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return &specstream.InputError{File: path, Reason: "there is no such file", Hint: "the adapter folder is incomplete"}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, p := range a.Params {
		if isLoRA(p.Name) != lora {
			continue
		}
		t, err := lookup(f, p.Name, p.Shape)
		if err != nil {
			return err
		}
		if err := f.Float32s(t, p.Data); err != nil {
			return err
		}
	}
	for _, name := range f.Names() {
		if a.byName[name] == nil || isLoRA(name) != lora {
			return &specstream.InputError{File: path, Field: name, Reason: "the adapter's spec has no such tensor here"}
		}
	}
	return nil
}
