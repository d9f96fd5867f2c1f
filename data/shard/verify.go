package shard

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
)

// Verify reads every byte of every shard in the store, past any cache, decodes
// it, and compares it with its index and with the counts of the manifest. It
// returns the first damage met.
func (d *Dataset) Verify(ctx context.Context) error {
	counts := Counts{}
	var lengths Histogram
	seen := tokenCounter{}
	for i := range d.manifest.Shards {
		if err := d.verifyShard(ctx, i); err != nil {
			return fmt.Errorf("verify %s: %w", d.shardName(i), err)
		}
		x, err := readIndex(ctx, d.blobs, d.manifest.Shards[i])
		if err != nil {
			return fmt.Errorf("verify %s: %w", d.shardName(i), err)
		}
		left := x.lengths
		for g := range x.groups {
			rec, err := d.loadGroup(ctx, i, g)
			if err != nil {
				return fmt.Errorf("verify: %w", err)
			}
			n := int(rec.NumRows())
			err = verifyRows(rec, left[:n], &counts, &lengths, &seen)
			rec.Release()
			if err != nil {
				return fmt.Errorf("verify %s: row group %d: %w: %w", d.shardName(i), g, ErrCorrupt, err)
			}
			left = left[n:]
		}
	}
	if counts != d.manifest.Counts || fmt.Sprint(lengths) != fmt.Sprint(d.manifest.Lengths) {
		return fmt.Errorf("verify: %w: the shards have %+v and the lengths %v, the manifest says %+v and %v",
			ErrCorrupt, counts, lengths, d.manifest.Counts, d.manifest.Lengths)
	}
	want, err := TokenCounts(ctx, d.blobs, d.manifest)
	if err != nil {
		return fmt.Errorf("verify: %w", err)
	}
	if got := seen.counts(); !maps.Equal(got, want) {
		return fmt.Errorf("verify: %w: the token counts are not those of the shards", ErrCorrupt)
	}
	return nil
}

// verifyRows compares rows with the lengths in the index and counts them.
func verifyRows(rec arrow.Record, index []int32, counts *Counts, lengths *Histogram, seen *tokenCounter) error {
	samples, err := Samples(rec)
	if err != nil {
		return err
	}
	for i, s := range samples {
		if len(s.Tokens) != int(index[i]) {
			return fmt.Errorf("row %d has %d tokens, the index says %d", i, len(s.Tokens), index[i])
		}
		counts.add(Counts{1, int64(len(s.Tokens)), int64(s.CompletionTokens()), int64(len(s.Tokens))})
		lengths.observe(len(s.Tokens))
	}
	tokens := rec.Column(1).(*array.List).ListValues().(*array.Int32).Int32Values()
	for _, t := range tokens {
		if t < 0 {
			return errors.New("a token is negative")
		}
	}
	seen.add(tokens)
	return nil
}
