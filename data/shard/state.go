package shard

import (
	"fmt"
	"math"

	"github.com/specstream/specstream"
)

// OrderState is the place that a run has reached in an [Order], and all that
// the order depends on. It is stored as JSON.
type OrderState struct {
	// Algorithm names the order's algorithm and its version.
	Algorithm string `json:"algorithm"`
	// Manifest is the digest of the data set's manifest.
	Manifest specstream.Digest `json:"manifest"`
	// Seed, GlobalBatch, Window and Bucketing are those of [OrderOptions].
	Seed        uint64 `json:"seed"`
	GlobalBatch int64  `json:"global_batch"`
	Window      int    `json:"window"`
	Bucketing   bool   `json:"bucketing"`
	// Epoch is the epoch of the next position, from 0.
	Epoch int64 `json:"epoch"`
	// Next is the first position that has not been taken: how many samples
	// have been, over all epochs.
	Next int64 `json:"next"`
}

// State returns the state of a run whose next step is k. It panics as Step does.
func (o *Order) State(k int64) OrderState {
	next := position(k, o.o.GlobalBatch)
	return OrderState{Algorithm: orderVersion, Manifest: o.manifest, Seed: o.o.Seed, GlobalBatch: o.o.GlobalBatch,
		Window: o.o.Window, Bucketing: o.o.Bucketing, Epoch: next / o.rows, Next: next}
}

// Resume returns the step that a run goes on with. A state of another order is
// a [specstream.InputError] that names the first field that differs.
func (o *Order) Resume(s OrderState) (step int64, err error) {
	want := o.State(0)
	for _, f := range []struct {
		name      string
		got, want any
	}{
		{"algorithm", s.Algorithm, want.Algorithm},
		{"manifest", s.Manifest, want.Manifest},
		{"seed", s.Seed, want.Seed},
		{"global_batch", s.GlobalBatch, want.GlobalBatch},
		{"window", s.Window, want.Window},
		{"bucketing", s.Bucketing, want.Bucketing},
	} {
		if f.got != f.want {
			return 0, &specstream.InputError{Field: f.name, Reason: fmt.Sprintf("the saved place in the data has %v, this run %v", f.got, f.want),
				Hint: "go on with the data and options that the run began with, or start anew"}
		}
	}
	step = s.Next / o.o.GlobalBatch
	switch {
	case s.Next < 0 || s.Next%o.o.GlobalBatch != 0 || step >= math.MaxInt64/o.o.GlobalBatch:
		return 0, specstream.Invalid("next", "%d is not the beginning of a step of %d samples", s.Next, o.o.GlobalBatch)
	case s.Epoch != s.Next/o.rows:
		return 0, specstream.Invalid("epoch", "position %d is in epoch %d of %d rows, not %d", s.Next, s.Next/o.rows, o.rows, s.Epoch)
	}
	return step, nil
}

// Resume returns the order that a state belongs to and the step to go on with.
// blobs, where the data set lies, may be nil without bucketing. A state of
// another data set or algorithm is a [specstream.InputError] that names the
// field.
func Resume(s OrderState, m Manifest, blobs Blobs) (o *Order, step int64, err error) {
	if s.Window < 1 { // 0 would be the default
		return nil, 0, specstream.Invalid("window", "%d row groups", s.Window)
	}
	o, err = NewOrder(m, OrderOptions{Seed: s.Seed, GlobalBatch: s.GlobalBatch, Window: s.Window, Bucketing: s.Bucketing, Blobs: blobs})
	if err != nil {
		return nil, 0, err
	}
	if step, err = o.Resume(s); err != nil {
		return nil, 0, err
	}
	return o, step, nil
}
