package model

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model/safetensors"
)

const (
	configFile  = "config.json"
	weightsFile = "model.safetensors"
	indexFile   = "model.safetensors.index.json"
	headTensor  = "lm_head.weight"
)

// ignoredTensors are buffers that older checkpoints carry and that follow from
// the configuration.
var ignoredTensors = regexp.MustCompile(`^model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$`)

// Load reads a base from a Hugging Face folder: config.json, and
// model.safetensors or the shards that model.safetensors.index.json names.
// F32, F16 and BF16 become float32; tensors are read straight into place, so
// that memory holds the weights once. A missing, surplus or mis-shaped tensor
// is an InputError that names file and tensor.
func Load(dir string) (*Weights, error) {
	l, err := openBase(dir)
	if err != nil {
		return nil, fmt.Errorf("load base: %w", err)
	}
	defer l.close()
	w, err := l.read()
	if err != nil {
		return nil, fmt.Errorf("load base: %w", err)
	}
	return w, nil
}

// Check checks a base's folder as Load does, from its configuration and the
// headers of its weight files alone: no weight is read, whatever their size.
func Check(dir string) error {
	l, err := openBase(dir)
	if err != nil {
		return fmt.Errorf("check base: %w", err)
	}
	l.close()
	return nil
}

// openBase opens a folder's weight files and checks every header.
func openBase(dir string) (*loader, error) {
	c, err := ReadConfig(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	shards, err := weightShards(dir)
	if err != nil {
		return nil, err
	}
	l := &loader{config: c, dir: dir, where: map[string]*safetensors.File{}}
	if err = l.open(shards); err == nil {
		err = l.check()
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// weightShards returns the weight files of a folder: each file's name with the
// tensors the index expects in it, nil where there is no index.
func weightShards(dir string) (map[string][]string, error) {
	single := filepath.Join(dir, weightsFile)
	_, err := os.Stat(single)
	if err == nil {
		return map[string][]string{weightsFile: nil}, nil
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	path := filepath.Join(dir, indexFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &specstream.InputError{File: single, Reason: "there is no such file, nor " + indexFile, Hint: "name a Hugging Face model folder with safetensors weights"}
	}
	if err != nil {
		return nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(b, &index); err != nil {
		return nil, &specstream.InputError{File: path, Reason: "invalid JSON", Err: err}
	}
	if len(index.WeightMap) == 0 {
		return nil, &specstream.InputError{File: path, Field: "weight_map", Reason: "it names no tensor"}
	}
	shards := map[string][]string{}
	for tensor, file := range index.WeightMap {
		if file != filepath.Base(file) || file == "." || file == ".." {
			return nil, &specstream.InputError{File: path, Field: tensor, Reason: fmt.Sprintf("%q is not the name of a file in the folder", file)}
		}
		shards[file] = append(shards[file], tensor)
	}
	return shards, nil
}

// loader reads a base's tensors from one or more files.
type loader struct {
	config Config
	dir    string
	files  []*safetensors.File
	where  map[string]*safetensors.File // tensor name → file
	// bare is true where names lack the leading "model.", as in files saved from
	// the decoder without its head; transformers reads them too.
	bare bool
}

// stored returns the name under which the files hold a tensor.
func (l *loader) stored(name string) string {
	if l.bare {
		return strings.TrimPrefix(name, "model.")
	}
	return name
}

// open opens every file and checks that each holds the tensors the index says,
// no more and no fewer.
func (l *loader) open(shards map[string][]string) error {
	names := slices.Sorted(maps.Keys(shards))
	for _, name := range names {
		path := filepath.Join(l.dir, name)
		f, err := safetensors.Open(path)
		if errors.Is(err, os.ErrNotExist) {
			return &specstream.InputError{File: path, Reason: "there is no such file, but " + indexFile + " names it"}
		}
		if err != nil {
			return err
		}
		l.files = append(l.files, f)
	}
	for i, name := range names {
		f := l.files[i]
		for _, t := range shards[name] {
			if _, ok := f.Lookup(t); !ok {
				return &specstream.InputError{File: f.Name, Field: t, Reason: "the tensor is missing, but " + indexFile + " places it here"}
			}
		}
		for _, t := range f.Tensors {
			if shards[name] != nil && !slices.Contains(shards[name], t.Name) {
				return &specstream.InputError{File: f.Name, Field: t.Name, Reason: "the tensor is not in " + indexFile}
			}
			l.where[t.Name] = f
		}
	}
	l.rename()
	return nil
}

// rename keys bare names by their full ones.
func (l *loader) rename() {
	embed := l.config.family().names.decoder + "embed_tokens.weight"
	if l.where[embed] != nil || l.where[strings.TrimPrefix(embed, "model.")] == nil {
		return
	}
	l.bare = true
	full := map[string]*safetensors.File{}
	for name, f := range l.where {
		if name != headTensor {
			name = "model." + name
		}
		full[name] = f
	}
	l.where = full
}

func (l *loader) close() {
	for _, f := range l.files {
		_ = f.Close() // read-only: nothing can be lost
	}
}

// check checks names, shapes and types. It allocates nothing for weights.
func (l *loader) check() error {
	skeleton := &Weights{Config: l.config, Layers: make([]Layer, l.config.NumLayers)}
	wanted := map[string]bool{}
	for _, s := range skeleton.slots() {
		wanted[s.name] = true
		if _, err := l.find(s.name, s.shape); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(l.where)) {
		tiedHead := name == headTensor && l.config.TieEmbeddings
		if !wanted[name] && !tiedHead && !ignoredTensors.MatchString(name) {
			return &specstream.InputError{File: l.where[name].Name, Field: l.stored(name), Reason: fmt.Sprintf("a %s of %d layers has no such tensor with this config.json", l.config.Architecture, l.config.NumLayers)}
		}
	}
	return nil
}

// read reads the weights, whose headers have been checked.
func (l *loader) read() (*Weights, error) {
	w := newWeights(l.config)
	for _, s := range w.slots() {
		t, err := l.find(s.name, s.shape)
		if err != nil {
			return nil, err
		}
		if err := l.where[s.name].Float32s(t, s.data); err != nil {
			return nil, err
		}
	}
	return w, l.checkTiedHead(w)
}

func (l *loader) find(name string, shape []int) (safetensors.Tensor, error) {
	f, ok := l.where[name]
	if !ok {
		return safetensors.Tensor{}, &specstream.InputError{File: l.files[0].Name, Field: l.stored(name), Reason: "the tensor is missing"}
	}
	return lookup(f, l.stored(name), shape)
}

// lookup finds a tensor that must have the given shape and a float type.
func lookup(f *safetensors.File, name string, shape []int) (safetensors.Tensor, error) {
	t, ok := f.Lookup(name)
	if !ok {
		return t, &specstream.InputError{File: f.Name, Field: name, Reason: "the tensor is missing"}
	}
	if !slices.Equal(t.Shape, shape) {
		return t, &specstream.InputError{File: f.Name, Field: name, Reason: fmt.Sprintf("shape %v, want %v", t.Shape, shape)}
	}
	switch t.DType {
	case safetensors.F32, safetensors.F16, safetensors.BF16:
		return t, nil
	}
	return t, &specstream.InputError{File: f.Name, Field: name, Reason: fmt.Sprintf("dtype %s is not F32, F16 or BF16", t.DType)}
}

// checkTiedHead refuses a file whose head differs from the embedding it is said
// to be tied to: one of the two would be dropped in silence.
func (l *loader) checkTiedHead(w *Weights) error {
	const name = headTensor
	f, ok := l.where[name]
	if !ok || !l.config.TieEmbeddings {
		return nil
	}
	t, err := lookup(f, name, []int{l.config.VocabSize, l.config.HiddenSize})
	if err != nil {
		return err
	}
	head := make([]float32, t.Len())
	if err := f.Float32s(t, head); err != nil {
		return err
	}
	if !slices.Equal(head, w.Embed) {
		return &specstream.InputError{File: f.Name, Field: name, Reason: "differs from the embedding although tie_word_embeddings is true"}
	}
	return nil
}

// DirDigest returns the digest of a base folder: of its config.json and weight
// files, by name and content. Other files do not count. Equal folders have
// equal digests wherever they lie.
func DirDigest(dir string) (specstream.Digest, error) {
	shards, err := weightShards(dir)
	if err != nil {
		return "", fmt.Errorf("digest base: %w", err)
	}
	names := append(slices.Collect(maps.Keys(shards)), configFile)
	if _, single := shards[weightsFile]; !single {
		names = append(names, indexFile)
	}
	slices.Sort(names)
	all := sha256.New()
	for _, name := range names {
		h := sha256.New()
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			return "", fmt.Errorf("digest base: %w", err)
		}
		_, err = io.Copy(h, f)
		if err := errors.Join(err, f.Close()); err != nil {
			return "", fmt.Errorf("digest base: %w", err)
		}
		fmt.Fprintf(all, "%s %x\n", name, h.Sum(nil))
	}
	return specstream.Digest("sha256:" + hex.EncodeToString(all.Sum(nil))), nil
}
