package trainer

import (
	"context"
	"fmt"

	"github.com/apache/arrow/go/v17/arrow"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/segattn"
)

// ShardBatches reads global batches from a dataset's shards in an order. It is
// for one goroutine.
type ShardBatches struct {
	Dataset *shard.Dataset
	Order   *shard.Order

	held arrow.Record // whose memory the last batch's tokens are
}

// Batch returns the samples of a step of the order, whose global batch is size.
// Their tokens are the record's own memory, so they are valid until the next
// call or Close.
func (b *ShardBatches) Batch(ctx context.Context, step, size int) ([]Sequence, error) {
	if g := b.Order.GlobalBatch(); int64(size) != g {
		return nil, fmt.Errorf("read batch: %d samples of an order in steps of %d", size, g)
	}
	b.release()
	rows, err := b.Order.Step(ctx, int64(step))
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	rec, err := b.Dataset.Batch(ctx, rows)
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	b.held = rec
	samples, err := shard.Samples(rec)
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	out := make([]Sequence, len(samples))
	for i, s := range samples {
		out[i] = newSequence(s)
		if err := out[i].Layout().Validate(); err != nil {
			return nil, &specstream.InputError{File: "dataset " + string(b.Dataset.Digest()), Field: s.ID, Reason: err.Error(), Hint: "ingest it again"}
		}
	}
	return out, nil
}

// State returns the place in the data of a run whose next step is step.
func (b *ShardBatches) State(step int) shard.OrderState { return b.Order.State(int64(step)) }

// Resume refuses the state of another order, or of another step.
func (b *ShardBatches) Resume(s shard.OrderState, step int) error {
	at, err := b.Order.Resume(s)
	if err != nil {
		return err
	}
	if at != int64(step) {
		return specstream.Invalid("next", "position %d is step %d, the training's is %d", s.Next, at, step)
	}
	return nil
}

// Close frees what the last batch and the dataset hold.
func (b *ShardBatches) Close() {
	b.release()
	b.Dataset.Close()
}

func (b *ShardBatches) release() {
	if b.held != nil {
		b.held.Release()
		b.held = nil
	}
}

// newSequence views a sample as a sequence.
func newSequence(s data.Sample) Sequence {
	q := Sequence{Tokens: s.Tokens}
	for _, p := range s.Spans {
		q.Spans = append(q.Spans, segattn.Span{Start: p.Start, End: p.End})
	}
	return q
}

// Ordered are batches whose place in the data is saved with a training's state.
// A wrapper of other batches that has a method Unwrap need not be.
type Ordered interface {
	Batches
	// State returns the place of a run whose next step is step.
	State(step int) shard.OrderState
	// Resume refuses a state that is not the place of that step.
	Resume(s shard.OrderState, step int) error
}

// ordered returns the batches in b that have a place in the data, if any.
func ordered(b Batches) (Ordered, bool) {
	for {
		if o, ok := b.(Ordered); ok {
			return o, true
		}
		w, ok := b.(interface{ Unwrap() Batches })
		if !ok {
			return nil, false
		}
		b = w.Unwrap()
	}
}

// WholeText turns batches into plain language modelling: every token after the
// first is a target. Base models are pretrained on it.
type WholeText struct{ Batches }

// Batch returns the batch with one completion from the second token on.
func (w WholeText) Batch(ctx context.Context, step, size int) ([]Sequence, error) {
	batch, err := w.Batches.Batch(ctx, step, size)
	for i := range batch {
		batch[i].Spans = []segattn.Span{{Start: 1, End: len(batch[i].Tokens)}}
	}
	return batch, err
}

// Unwrap returns the batches it was made of.
func (w WholeText) Unwrap() Batches { return w.Batches }
