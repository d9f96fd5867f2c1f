package trainer

import (
	"context"
	"fmt"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/segattn"
)

// ShardBatches reads global batches from a dataset's shards in its deterministic
// order.
type ShardBatches struct {
	Dataset *shard.Dataset
	Order   *shard.Order
}

// Batch returns the samples at positions step·size … (step+1)·size-1 of the order.
func (b ShardBatches) Batch(ctx context.Context, step, size int) ([]Sequence, error) {
	rec, err := b.Dataset.Batch(ctx, b.Order.Step(int64(step), int64(size)))
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	defer rec.Release()
	samples, err := shard.Samples(rec)
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	out := make([]Sequence, len(samples))
	for i, s := range samples {
		out[i] = NewSequence(s)
		if err := out[i].Layout().Validate(); err != nil {
			return nil, &specstream.InputError{File: "dataset " + string(b.Dataset.Digest()), Field: s.ID, Reason: err.Error(), Hint: "ingest it again"}
		}
	}
	return out, nil
}

// NewSequence copies a sample's tokens and completions.
func NewSequence(s data.Sample) Sequence {
	q := Sequence{Tokens: append([]int32(nil), s.Tokens...)}
	for _, p := range s.Spans {
		q.Spans = append(q.Spans, segattn.Span{Start: p.Start, End: p.End})
	}
	return q
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
