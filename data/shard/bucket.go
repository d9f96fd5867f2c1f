package shard

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
)

// indexesKept is how many shards' lengths an order keeps: a window and the next.
const indexesKept = 2 * DefaultWindow

// bucket sorts the rows of a window's whole steps by length and shuffles the
// steps; see [Order]. blocks are the window's row groups.
func (o *Order) bucket(ctx context.Context, epoch, w int64, blocks []int32, rows []int64) error {
	g := o.o.GlobalBatch
	first := epoch*o.rows + o.epoch.starts[w]
	head := (g - first%g) % g
	n := (int64(len(rows)) - head) / g
	if n < 2 {
		return nil // one batch is all the lengths there are
	}
	mid := rows[head : head+n*g]
	lengths, err := o.lengths(ctx, blocks, mid)
	if err != nil {
		return err
	}
	// The length in the high half and the place in the low one, so that sorting
	// numbers sorts by length and keeps the order of equals.
	keys := make([]uint64, len(mid))
	for i, l := range lengths {
		keys[i] = uint64(l)<<32 | uint64(i)
	}
	slices.Sort(keys)
	batches := make([]int32, n)
	for i := range batches {
		batches[i] = int32(i)
	}
	shuffle(o.random("buckets", epoch, w), batches)
	sorted := make([]int64, 0, len(mid))
	for _, b := range batches {
		for _, k := range keys[int64(b)*g : (int64(b)+1)*g] {
			sorted = append(sorted, mid[uint32(k)])
		}
	}
	copy(mid, sorted)
	return nil
}

// lengths returns the lengths of rows, which lie in the given row groups, in
// tokens.
func (o *Order) lengths(ctx context.Context, blocks []int32, rows []int64) ([]int32, error) {
	sorted := slices.Sorted(slices.Values(blocks))
	of := make([][]int32, len(sorted)) // by row group
	eg, ctx := errgroup.WithContext(ctx)
	eg.SetLimit(parallelReads)
	for i, b := range sorted {
		eg.Go(func() (err error) {
			of[i], err = o.groupLengths(ctx, b)
			return err
		})
	}
	if err := eg.Wait(); err != nil {
		return nil, err
	}
	out := make([]int32, len(rows))
	for i, r := range rows {
		j, ok := slices.BinarySearchFunc(sorted, r, func(b int32, r int64) int {
			switch {
			case o.starts[b+1] <= r:
				return -1
			case o.starts[b] > r:
				return 1
			}
			return 0
		})
		if !ok {
			return nil, fmt.Errorf("row %d is not in the window", r)
		}
		out[i] = of[j][r-o.starts[sorted[j]]]
	}
	return out, nil
}

// groupLengths returns the lengths of a row group's rows.
func (o *Order) groupLengths(ctx context.Context, block int32) ([]int32, error) {
	g := o.groups[block]
	s := o.shards[g.shard]
	x, err := o.index.get(ctx, int(g.shard), func() (*shardIndex, error) { return readIndex(ctx, o.o.Blobs, s) })
	if err != nil {
		return nil, fmt.Errorf("shard %d (%s): %w", g.shard, s.Digest, err)
	}
	at := int64(0)
	for _, rows := range s.Groups[:g.index] {
		at += rows
	}
	return x.lengths[at : at+s.Groups[g.index]], nil
}
