package gorgonia

import (
	"fmt"

	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/trainer"
)

// parts visits the vectors of the optimiser's state in a fixed order.
func parts[T kernels.Float](params []*param[T], yield func(name string, data []T)) {
	for _, p := range params {
		yield(p.name, p.data)
		yield("m."+p.name, p.m)
		yield("v."+p.name, p.v)
	}
}

func saveState[T kernels.Float](params []*param[T], opt *adamW[T]) trainer.State {
	s := trainer.State{Step: opt.step}
	parts(params, func(name string, data []T) {
		c := make([]float32, len(data))
		for i, v := range data {
			c[i] = float32(v)
		}
		s.Tensors = append(s.Tensors, trainer.NamedTensor{Name: name, Data: c})
	})
	return s
}

func restoreState[T kernels.Float](params []*param[T], opt *adamW[T], s trainer.State) error {
	byName := map[string][]float32{}
	for _, t := range s.Tensors {
		byName[t.Name] = t.Data
	}
	var err error
	parts(params, func(name string, data []T) {
		src, ok := byName[name]
		if err == nil && (!ok || len(src) != len(data)) {
			err = fmt.Errorf("training state: tensor %q has %d values, want %d", name, len(src), len(data))
		}
	})
	if err != nil {
		return err
	}
	parts(params, func(name string, data []T) {
		for i, v := range byName[name] {
			data[i] = T(v)
		}
	})
	for _, p := range params {
		clear(p.grad)
	}
	opt.step = s.Step
	return nil
}
