package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
)

// Item is a sample, or word of what became of a record.
type Item struct {
	// Sample is nil when there is only a note. It is valid until the next item.
	Sample *data.Sample
	// Note says that a record gave no sample, fewer than it could, or others
	// than it has, and why.
	Note string
}

// Dataset yields the samples of a data set in order.
func Dataset(ctx context.Context, blobs shard.Blobs, m shard.Manifest, yield func(Item) bool) error {
	d, err := shard.OpenDataset(ctx, blobs, m, shard.DatasetOptions{})
	if err != nil {
		return err
	}
	defer d.Close()
	for rec, err := range d.All(ctx) {
		if err != nil {
			return err
		}
		samples, err := shard.Samples(rec)
		if err != nil {
			return err
		}
		for i := range samples {
			if !yield(Item{Sample: &samples[i]}) {
				return nil
			}
		}
	}
	return nil
}

// Inputs yields the samples that the inputs of a specification give, as an
// ingest without cleaning would make them. Records that give none are notes.
func Inputs(ctx context.Context, spec specstream.DataSpec, open data.Opener, e *data.Encoder, yield func(Item) bool) error {
	f, err := data.FormatFor(spec)
	if err != nil {
		return err
	}
	inputs, err := data.Expand(ctx, spec.Inputs, nil)
	if err != nil {
		return err
	}
	for _, in := range inputs {
		more, err := input(ctx, f, in, open, e, yield)
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// input yields those of one input; it returns false when yield did.
func input(ctx context.Context, f data.Format, uri string, open data.Opener, e *data.Encoder, yield func(Item) bool) (more bool, err error) {
	r, err := data.OpenWith(ctx, f, uri, open)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		rec, err := r.Next()
		var encoded data.Encoded
		if err == nil {
			encoded, err = e.Samples(rec)
		}
		var bad *data.BadRecordError
		var skip *data.SkipError
		switch {
		case err == io.EOF:
			return true, nil
		case errors.As(err, &bad), errors.As(err, &skip):
			if !yield(Item{Note: err.Error()}) {
				return false, nil
			}
			continue
		case err != nil:
			return false, err
		}
		for i := range encoded.Samples {
			if !yield(Item{Sample: &encoded.Samples[i]}) {
				return false, nil
			}
		}
		if note := account(rec, encoded); note != "" && !yield(Item{Note: note}) {
			return false, nil
		}
	}
}

// account says what was done to a record beyond rendering it.
func account(rec data.Record, e data.Encoded) string {
	changed := append(append([]string(nil), rec.Changed...), e.Changed...)
	dropped := int64(0)
	for _, n := range e.Dropped {
		dropped += n
	}
	if len(changed) == 0 && dropped == 0 {
		return ""
	}
	note := fmt.Sprintf("%s: record %d:", rec.Source, rec.Number)
	if len(changed) > 0 {
		note += fmt.Sprintf(" changed: %v", changed)
	}
	if dropped > 0 {
		note += fmt.Sprintf(" samples left out: %v", e.Dropped)
	}
	return note
}
