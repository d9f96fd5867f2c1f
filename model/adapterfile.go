package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
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
		if !isLoRA(p.Name) {
			own = append(own, safetensors.Float32Source(p.Name, safetensors.F32, p.Shape, p.Data))
		}
	}
	var peft any = peftMarker{PEFTType: peftTypeSpecstream, TaskType: taskCausalLM}
	type file struct {
		name  string
		write func(io.Writer) error
	}
	var files []file
	if a.Spec.Mode == specstream.Shared {
		peft, lora = peftConfig(a.Base, a.Spec), a.peftSources()
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
	if err := checkPEFT(filepath.Join(dir, peftConfigFile), c, f.Spec); err != nil {
		return nil, err
	}
	a := newAdapter(c, f.Spec)
	if err := a.readTensors(filepath.Join(dir, specstreamWeights), a.readOwn); err != nil {
		return nil, err
	}
	if f.Spec.Mode == specstream.Shared {
		return a, a.readTensors(filepath.Join(dir, peftWeightsFile), a.readPEFT)
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

// readTensors reads one weight file with read, which returns the names it found
// there; any other tensor in the file is refused.
func (a *Adapter) readTensors(path string, read func(*safetensors.File) (known map[string]bool, err error)) (err error) {
	f, err := safetensors.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return &specstream.InputError{File: path, Reason: "there is no such file", Hint: "the adapter folder is incomplete"}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	known, err := read(f)
	if err != nil {
		return err
	}
	for _, name := range f.Names() {
		if !known[name] {
			return &specstream.InputError{File: path, Field: name, Reason: "the adapter's spec has no such tensor here"}
		}
	}
	return nil
}

// readOwn reads the parameters that are not LoRA's.
func (a *Adapter) readOwn(f *safetensors.File) (map[string]bool, error) {
	known := map[string]bool{}
	for _, p := range a.Params {
		if isLoRA(p.Name) {
			continue
		}
		known[p.Name] = true
		t, err := lookup(f, p.Name, p.Shape)
		if err == nil {
			err = f.Float32s(t, p.Data)
		}
		if err != nil {
			return nil, err
		}
	}
	return known, nil
}
