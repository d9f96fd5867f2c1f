package trainer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/specstream/specstream"
)

// Batches yields the samples of global batch k, the same for every caller and
// every call. A batch is valid until the next call.
type Batches interface {
	Batch(ctx context.Context, step, size int) ([]Sequence, error)
}

// States keeps resumable states. Save replaces the state before it whole or not
// at all; Load returns false when there is none.
type States interface {
	Save(ctx context.Context, s State) error
	Load(ctx context.Context) (State, bool, error)
}

// Metrics is what one step's arithmetic said. It is part of the result: the same
// on every run of the same specification.
type Metrics struct {
	// Step is the number of optimiser steps done, this one included.
	Step int `json:"step"`
	// Loss is the total loss of Eq. 6 and the pruning adapter's.
	Loss float64 `json:"loss"`
	// StreamLoss is the mean loss by stream, main stream first; Prune that of the
	// early exit.
	StreamLoss []float64 `json:"stream_loss"`
	Prune      float64   `json:"prune_loss"`
	// Accuracy is the share of targets that were most probable, by stream.
	Accuracy []float64 `json:"accuracy"`
	// GradientNorm is the norm before clipping.
	GradientNorm float64 `json:"gradient_norm"`
	LearningRate float64 `json:"learning_rate"`
}

// Progress reports a step and the speed of this process.
type Progress struct {
	Metrics
	// Steps is the number of steps in all.
	Steps int `json:"steps"`
	// TokensPerSecond counts the tokens of samples trained, since this process began.
	TokensPerSecond float64 `json:"tokens_per_second"`
	// ETASeconds estimates what is left.
	ETASeconds float64 `json:"eta_seconds"`
}

// Run trains to spec.Steps from the last saved state and returns the history of
// all steps, those before the process began included. When ctx ends because the
// worker drains (its cause is specstream.ErrDrained), Run saves the state it has
// reached and returns that error; otherwise the last saved state stands. The
// state of another order of the data is refused. progress, which may be nil, is
// called after every step.
func Run(ctx context.Context, spec specstream.TrainSpec, b Backend, data Batches, states States, progress func(Progress)) ([]Metrics, error) {
	state, found, err := states.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("load training state: %w", err)
	}
	order, inOrder := ordered(data)
	if found && inOrder {
		if err := checkPlace(order, state); err != nil {
			return nil, fmt.Errorf("resume at step %d: %w", state.Step, err)
		}
	}
	if found {
		if err := b.Restore(state); err != nil {
			return nil, fmt.Errorf("resume at step %d: %w", state.Step, err)
		}
	}
	start, history := state.Step, state.History
	save := func(ctx context.Context) error {
		s, err := b.State()
		if err == nil {
			s.History = history
			if inOrder {
				o := order.State(s.Step)
				s.Order = &o
			}
			err = states.Save(ctx, s)
		}
		if err != nil {
			return fmt.Errorf("save training state: %w", err)
		}
		return nil
	}
	began, tokens := time.Now(), 0
	for k := start; k < spec.Steps; k++ {
		batch, err := data.Batch(ctx, k, spec.BatchSize)
		var m Metrics
		if err == nil {
			m, err = step(ctx, spec, b, batch, k)
		}
		if err != nil {
			if ctx.Err() != nil && errors.Is(context.Cause(ctx), specstream.ErrDrained) {
				return history, drain(ctx, k, save)
			}
			return history, fmt.Errorf("step %d: %w", k, err)
		}
		history = append(history, m)
		for _, s := range batch {
			tokens += len(s.Tokens)
		}
		if progress != nil {
			elapsed := time.Since(began).Seconds()
			progress(Progress{Metrics: m, Steps: spec.Steps, TokensPerSecond: float64(tokens) / elapsed,
				ETASeconds: elapsed / float64(k+1-start) * float64(spec.Steps-k-1)})
		}
		if (k+1)%spec.SaveEvery == 0 && k+1 < spec.Steps {
			if err := save(ctx); err != nil {
				return history, err
			}
		}
	}
	return history, nil
}

// checkPlace refuses a state that was saved at another place in the data, or in
// other data.
func checkPlace(o Ordered, s State) error {
	if s.Order == nil {
		return &specstream.InputError{Field: "order", Reason: "the saved state does not say which data it has seen", Hint: "start anew"}
	}
	return o.Resume(*s.Order, s.Step)
}

// step does one optimiser step. If it fails, no parameter has changed.
func step(ctx context.Context, spec specstream.TrainSpec, b Backend, batch []Sequence, k int) (Metrics, error) {
	counts := CountTargets(batch, spec.Gamma)
	losses := NewLosses(spec.Gamma)
	for lo := 0; lo < len(batch); lo += spec.MicroBatch {
		l, err := b.Accumulate(ctx, batch[lo:min(lo+spec.MicroBatch, len(batch))], counts)
		if err != nil {
			return Metrics{}, err
		}
		losses.Add(l)
	}
	if !losses.Finite() {
		return Metrics{}, &specstream.InputError{Field: "learning_rate", Reason: fmt.Sprintf("the loss of batch %d is not a number", k), Hint: "lower it, or look at the batch's samples"}
	}
	rate := LearningRate(spec, k)
	norm, err := b.Step(rate)
	if err != nil {
		return Metrics{}, err
	}
	m := Metrics{Step: k + 1, Loss: losses.Total(counts, *spec.Alpha0, *spec.AlphaStream),
		Prune: losses.Prune / float64(counts[0]), GradientNorm: norm, LearningRate: rate}
	for j, c := range counts {
		m.StreamLoss = append(m.StreamLoss, losses.Streams[j]/float64(c))
		m.Accuracy = append(m.Accuracy, float64(losses.Hits[j])/float64(c))
	}
	return m, nil
}

// drainGrace is how long a draining worker may take to save its state.
const drainGrace = 20 * time.Second

// drain saves the state reached after k steps although ctx has ended. The step
// that was under way has changed no parameter.
func drain(ctx context.Context, k int, save func(context.Context) error) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainGrace)
	defer cancel()
	if err := save(grace); err != nil {
		return errors.Join(specstream.ErrDrained, err)
	}
	return fmt.Errorf("stopped after step %d: %w", k, specstream.ErrDrained)
}
