package gorgonia

import (
	"fmt"
	"math"

	G "gorgonia.org/gorgonia"

	"github.com/specstream/specstream/kernels"
)

// param is one trained tensor: its value, the gradient summed over the
// micro-batches of a step, and AdamW's moments. It is a gorgonia.ValueGrad.
type param[T kernels.Float] struct {
	name       string
	rows, cols int
	data, grad []T
	m, v       []T
	decay      bool // weight decay applies
}

func newParam[T kernels.Float](name string, shape []int, data []T) *param[T] {
	rows, cols := 1, shape[len(shape)-1]
	for _, d := range shape[:len(shape)-1] {
		rows *= d
	}
	n := len(data)
	return &param[T]{name: name, rows: rows, cols: cols, data: data,
		grad: make([]T, n), m: make([]T, n), v: make([]T, n), decay: len(shape) > 1}
}

// Value returns the parameter's tensor.
func (p *param[T]) Value() G.Value { return dense(p.data, p.rows, p.cols) }

// Grad returns the gradient's tensor.
func (p *param[T]) Grad() (G.Value, error) { return dense(p.grad, p.rows, p.cols), nil }

// adamW is AdamW (Loshchilov and Hutter, 2019) with clipping by the global
// gradient norm. It is a gorgonia.Solver whose state lives in the parameters, so
// that it can be saved and restored.
type adamW[T kernels.Float] struct {
	beta1, beta2, eps float64
	weightDecay, clip float64
	rate              float64 // of the next step
	step              int     // steps done
	norm              float64 // gradient norm of the last step, before clipping
}

func newAdamW[T kernels.Float](weightDecay, clip float64) *adamW[T] {
	return &adamW[T]{beta1: 0.9, beta2: 0.999, eps: 1e-8, weightDecay: weightDecay, clip: clip}
}

// update does one step at the given rate and returns the gradient norm before
// clipping.
func (s *adamW[T]) update(params []*param[T], rate float64) (float64, error) {
	vs := make([]G.ValueGrad, len(params))
	for i, p := range params {
		vs[i] = p
	}
	s.rate = rate
	err := s.Step(vs)
	return s.norm, err
}

// Step updates the parameters from their gradients and zeroes the gradients. A
// gradient that is not finite is an error and changes nothing.
func (s *adamW[T]) Step(model []G.ValueGrad) error {
	var sum float64
	for _, vg := range model {
		sum += kernels.SumSquares(vg.(*param[T]).grad)
	}
	s.norm = math.Sqrt(sum)
	if math.IsNaN(s.norm) || math.IsInf(s.norm, 0) {
		return fmt.Errorf("the gradient norm is %v", s.norm)
	}
	factor := 1.0
	if s.norm > s.clip {
		factor = s.clip / s.norm
	}
	s.step++
	c1 := 1 - math.Pow(s.beta1, float64(s.step))
	c2 := 1 - math.Pow(s.beta2, float64(s.step))
	scalars := kernels.AdamW{Factor: factor, Beta1: s.beta1, Beta2: s.beta2, Keep: 1, Rate: s.rate / c1, Root: 1 / math.Sqrt(c2), Eps: s.eps}
	// In pieces of equal size: most of a model is a few large tensors.
	const piece = 1 << 14
	type span struct {
		p      *param[T]
		lo, hi int
	}
	var spans []span
	for _, vg := range model {
		p := vg.(*param[T])
		for lo := 0; lo < len(p.data); lo += piece {
			spans = append(spans, span{p, lo, min(lo+piece, len(p.data))})
		}
	}
	kernels.Parallel(len(spans), func(i int) {
		p, lo, hi := spans[i].p, spans[i].lo, spans[i].hi
		scalars := scalars
		if p.decay {
			scalars.Keep = 1 - s.rate*s.weightDecay
		}
		grad := p.grad[lo:hi]
		kernels.Step(scalars, p.data[lo:hi], grad, p.m[lo:hi], p.v[lo:hi])
		clear(grad)
	})
	return nil
}
