package trainer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/model/safetensors"
)

// StateFileName is the name of a state in its folder.
const StateFileName = "state.safetensors"

// StateDir keeps the latest state in one file of a folder.
type StateDir string

// Save writes the state beside the old one and renames it into place.
func (d StateDir) Save(_ context.Context, s State) error {
	if err := os.MkdirAll(string(d), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(string(d), StateFileName+".*")
	if err != nil {
		return err
	}
	err = errors.Join(WriteState(f, s), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(string(d), StateFileName))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// Load reads the state, if there is one.
func (d StateDir) Load(context.Context) (State, bool, error) {
	path := filepath.Join(string(d), StateFileName)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return State{}, false, nil
	}
	s, err := ReadState(path)
	return s, err == nil, err
}

// Keys of a state file's metadata.
const (
	metaStep    = "specstream.step"
	metaHistory = "specstream.history"
	metaOrder   = "specstream.order"
)

// WriteState writes a state as safetensors; equal states have equal bytes.
func WriteState(w *os.File, s State) error {
	history, err := json.Marshal(s.History)
	if err != nil {
		return fmt.Errorf("training state: %w", err)
	}
	var src []safetensors.Source
	for _, t := range s.Tensors {
		src = append(src, safetensors.Float32Source(t.Name, safetensors.F32, []int{len(t.Data)}, t.Data))
	}
	meta := map[string]string{metaStep: strconv.Itoa(s.Step), metaHistory: string(history)}
	if s.Order != nil {
		order, err := json.Marshal(s.Order)
		if err != nil {
			return fmt.Errorf("training state: %w", err)
		}
		meta[metaOrder] = string(order)
	}
	return safetensors.Write(w, meta, src)
}

// ReadState reads what WriteState wrote.
func ReadState(path string) (State, error) {
	f, err := safetensors.Open(path)
	if err != nil {
		return State{}, err
	}
	defer f.Close()
	var s State
	if s.Step, err = strconv.Atoi(f.Metadata[metaStep]); err != nil || s.Step < 0 {
		return State{}, fmt.Errorf("%s: %q is not a step", path, f.Metadata[metaStep])
	}
	if err := json.Unmarshal([]byte(f.Metadata[metaHistory]), &s.History); err != nil {
		return State{}, fmt.Errorf("%s: history: %w", path, err)
	}
	if len(s.History) != s.Step {
		return State{}, fmt.Errorf("%s: a history of %d steps at step %d", path, len(s.History), s.Step)
	}
	if order, ok := f.Metadata[metaOrder]; ok {
		s.Order = new(shard.OrderState)
		if err := json.Unmarshal([]byte(order), s.Order); err != nil {
			return State{}, fmt.Errorf("%s: place in the data: %w", path, err)
		}
	}
	for _, t := range f.Tensors {
		n := NamedTensor{Name: t.Name, Data: make([]float32, t.Len())}
		if err := f.Float32s(t, n.Data); err != nil {
			return State{}, err
		}
		s.Tensors = append(s.Tensors, n)
	}
	return s, nil
}
