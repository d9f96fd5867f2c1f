package trainer

import (
	"context"
	"math"

	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/segattn"
)

// Sequence is one training sample: L tokens and the completions among them.
type Sequence struct {
	Tokens []int32
	Spans  []segattn.Span
}

// Layout is the sequence as segment attention sees it.
func (s Sequence) Layout() segattn.Sequence {
	return segattn.Sequence{Length: len(s.Tokens), Spans: s.Spans}
}

// Counts are numbers of loss targets: element 0 of the main stream, element j of
// stream j.
type Counts []int

// CountTargets counts the targets of a global batch. Each stream's loss is
// divided by its own count (method, "Loss"). A count of zero is reported as one,
// so that it divides an empty sum.
func CountTargets(batch []Sequence, gamma int) Counts {
	c := make(Counts, gamma+1)
	for _, s := range batch {
		for _, p := range s.Spans {
			for j := range c {
				c[j] += max(0, p.End-p.Start-j)
			}
		}
	}
	for j := range c {
		c[j] = max(1, c[j])
	}
	return c
}

// Losses are sums over targets, not yet divided by their counts.
type Losses struct {
	// Streams[0] is the main stream's sum of -log p (zero in lossless mode, whose
	// main stream is frozen), Streams[j] that of stream j.
	Streams []float64
	// Hits counts the targets that were most probable.
	Hits []int
	// Prune is the sum of the early exit's next-token loss.
	Prune float64
}

// NewLosses returns zero sums for γ streams.
func NewLosses(gamma int) Losses {
	return Losses{Streams: make([]float64, gamma+1), Hits: make([]int, gamma+1)}
}

// AddStreams adds the sums of one pass.
func (l *Losses) AddStreams(loss []float64, hits []int) {
	for j := range loss {
		l.Streams[j] += loss[j]
		l.Hits[j] += hits[j]
	}
}

// Add adds another micro-batch's sums.
func (l *Losses) Add(o Losses) {
	l.AddStreams(o.Streams, o.Hits)
	l.Prune += o.Prune
}

// Total is the loss of Eq. 6 and the pruning adapter's beside it.
func (l Losses) Total(c Counts, alpha0, alpha float64) float64 {
	t := alpha0*l.Streams[0]/float64(c[0]) + l.Prune/float64(c[0])
	for j := 1; j < len(l.Streams); j++ {
		t += alpha * l.Streams[j] / float64(c[j])
	}
	return t
}

// Finite reports whether every sum is a number.
func (l Losses) Finite() bool {
	s := l.Prune
	for _, v := range l.Streams {
		s += v
	}
	return !math.IsNaN(s) && !math.IsInf(s, 0)
}

// Backend does a training step's arithmetic. One goroutine uses it at a time.
// CPU and CUDA implement it and share one conformance suite.
type Backend interface {
	// Accumulate runs forward and backward over a micro-batch of a global batch
	// with the given counts, adds to the gradients, and returns the loss sums. It
	// stops at the next graph when ctx ends; the gradients are then void.
	Accumulate(ctx context.Context, batch []Sequence, counts Counts) (Losses, error)
	// Step clips, updates the parameters at the learning rate, zeroes the
	// gradients, and returns the gradient norm before clipping.
	Step(rate float64) (norm float64, err error)
	// State copies out everything a resumed run needs besides the step's number.
	State() (State, error)
	// Restore sets the state of an earlier run of the same specification.
	Restore(State) error
	// Close releases what the backend holds.
	Close() error
}

// State is what a resumed run goes on from.
type State struct {
	// Step is the number of optimiser steps done.
	Step int
	// Tensors are the backend's parameters and optimiser moments by name.
	Tensors []NamedTensor
	// History is one entry a step done.
	History []Metrics
	// Order is the place in the data; nil for batches that are not Ordered.
	Order *shard.OrderState
}

// NamedTensor is one vector of a state.
type NamedTensor struct {
	Name string
	Data []float32
}
