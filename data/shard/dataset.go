package shard

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sort"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"golang.org/x/sync/errgroup"

	"github.com/specstream/specstream"
)

// ErrCorrupt means that stored bytes are not those the manifest names: cut off,
// flipped, or another file's. Errors that wrap it name the shard.
var ErrCorrupt = errors.New("the stored data are damaged")

// parallelReads is how many row groups a batch reads at the same time, to hide
// a remote store's latency.
const parallelReads = 4

// DefaultCacheBytes is the default of [DatasetOptions].CacheBytes.
const DefaultCacheBytes = 128 << 20

// DatasetOptions configures a [Dataset].
type DatasetOptions struct {
	// CacheDir is a local folder that whole shards are copied to, once, on
	// first use; several processes may share it. Empty: row groups are range
	// reads of the store, which suits a local one.
	CacheDir string
	// CacheBytes bounds the decoded row groups kept between batches, in bytes.
	// It should hold the window of the order: [Order] takes its rows from
	// [DefaultWindow] row groups at a time. Default 128 MiB.
	CacheBytes int64
	// WithoutText leaves out prompts, references and alternatives, which
	// training doesn't read.
	WithoutText bool
	// Allocator provides the batches' memory. Default: Go's own.
	Allocator memory.Allocator
}

// Dataset reads the rows of a manifest. It is safe for concurrent use.
type Dataset struct {
	blobs    Blobs
	manifest Manifest
	digest   specstream.Digest
	o        DatasetOptions
	cols     []column
	schema   *arrow.Schema
	shards   []*openShard
	groups   []groupRef
	cache    groupCache
}

// groupRef places a row group.
type groupRef struct {
	shard, index int
	off          int64 // of its bytes in the file
	start        int64 // its first row's number in the data set
}

// OpenDataset prepares to read a data set. It reads nothing yet: a damaged
// shard shows when it is first used; see [Dataset.Verify].
func OpenDataset(ctx context.Context, blobs Blobs, m Manifest, o DatasetOptions) (*Dataset, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("open data set: %w", err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	digest, err := m.Digest()
	if err != nil {
		return nil, err
	}
	if o.CacheBytes == 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.Allocator == nil {
		o.Allocator = memory.DefaultAllocator
	}
	d := &Dataset{blobs: blobs, manifest: m, digest: digest, o: o,
		cols: readColumns(!o.WithoutText), schema: Schema(!o.WithoutText), shards: make([]*openShard, len(m.Shards))}
	d.cache.init(o.CacheBytes)
	start := int64(0)
	for i, s := range m.Shards {
		d.shards[i] = &openShard{name: fmt.Sprintf("shard %d (%s)", i, s.Digest), meta: s, lock: make(chan struct{}, 1)}
		off := int64(len(parquetMagic))
		for j, g := range s.RowGroups {
			d.groups = append(d.groups, groupRef{i, j, off, start})
			off += g.Bytes
			start += g.Rows
		}
	}
	return d, nil
}

// Manifest returns what the data set was opened with.
func (d *Dataset) Manifest() Manifest { return d.manifest }

// Digest returns the manifest's digest.
func (d *Dataset) Digest() specstream.Digest { return d.digest }

// Rows returns the number of samples.
func (d *Dataset) Rows() int64 { return d.manifest.Counts.Samples }

// Schema returns the schema of the records.
func (d *Dataset) Schema() *arrow.Schema { return d.schema }

// Close frees the decoded row groups. Records handed out stay valid. No other
// call may be in progress, and none may follow.
func (d *Dataset) Close() { d.cache.clear() }

// Batch returns a record of the rows at the given positions, 0-based row
// numbers of the whole data set, in that order; a position may come twice. The
// caller releases the record. Positions that follow one another inside one row
// group share its memory, others are copied. The row groups a batch touches are
// all in memory while it is made.
func (d *Dataset) Batch(ctx context.Context, positions []int64) (arrow.Record, error) {
	picks := make([]pick, len(positions))
	slot := map[int]int{} // row group → index in groups
	var groups []int
	g := 0
	for i, p := range positions {
		if p < 0 || p >= d.Rows() {
			return nil, fmt.Errorf("read batch: position %d is outside the data set's %d rows", p, d.Rows())
		}
		if !d.inGroup(g, p) {
			g = sort.Search(len(d.groups), func(i int) bool { return d.groups[i].start > p }) - 1
		}
		s, ok := slot[g]
		if !ok {
			s = len(groups)
			slot[g] = s
			groups = append(groups, g)
		}
		picks[i] = pick{s, int(p - d.groups[g].start)}
	}
	recs := make([]arrow.Record, len(groups))
	defer func() {
		for _, r := range recs {
			if r != nil {
				r.Release()
			}
		}
	}()
	eg, ectx := errgroup.WithContext(ctx)
	eg.SetLimit(parallelReads)
	for i, g := range groups {
		eg.Go(func() (err error) {
			recs[i], err = d.cache.get(ectx, g, func() (arrow.Record, error) { return d.readGroup(ectx, g) })
			return err
		})
	}
	if err := eg.Wait(); err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	if len(recs) == 1 && consecutive(picks) {
		return recs[0].NewSlice(int64(picks[0].row), int64(picks[0].row+len(picks))), nil
	}
	rec, err := gather(d.cols, d.schema, recs, picks, d.o.Allocator)
	if err != nil {
		return nil, fmt.Errorf("read batch: %w", err)
	}
	return rec, nil
}

// inGroup reports whether row p is in row group g.
func (d *Dataset) inGroup(g int, p int64) bool {
	return d.groups[g].start <= p && (g+1 == len(d.groups) || p < d.groups[g+1].start)
}

func consecutive(picks []pick) bool {
	for i := range picks {
		if picks[i].row != picks[0].row+i {
			return false
		}
	}
	return true
}

// All yields the whole data set in order, a record for each row group, reading
// one ahead. A record is valid until the next one is asked for; Retain keeps it.
// An error is the last thing yielded.
func (d *Dataset) All(ctx context.Context) iter.Seq2[arrow.Record, error] {
	return func(yield func(arrow.Record, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		type result struct {
			rec arrow.Record
			err error
		}
		results := make(chan result) // unbuffered: one record in the consumer's hands, one ready
		go func() {
			defer close(results)
			for g := range d.groups {
				rec, err := d.readGroup(ctx, g)
				select {
				case results <- result{rec, err}:
				case <-ctx.Done():
					if err == nil {
						rec.Release()
					}
					return
				}
				if err != nil {
					return
				}
			}
		}()
		defer func() {
			cancel()
			for r := range results { // until the reader is gone
				if r.err == nil {
					r.rec.Release()
				}
			}
		}()
		for range d.groups {
			r, ok := <-results
			if !ok {
				r.err = ctx.Err()
			}
			if r.err != nil {
				yield(nil, fmt.Errorf("read data set: %w", r.err))
				return
			}
			more := yield(r.rec, nil)
			r.rec.Release()
			if !more {
				return
			}
		}
	}
}

// Verify reads every byte of every shard and decodes it, and returns the first
// damage met.
func (d *Dataset) Verify(ctx context.Context) error {
	for i, s := range d.shards {
		if err := d.verifyShard(ctx, s); err != nil {
			return fmt.Errorf("verify %s: %w", d.shards[i].name, err)
		}
	}
	for _, err := range d.All(ctx) {
		if err != nil {
			return err
		}
	}
	return nil
}

// readGroup reads, verifies and decodes a row group. The caller releases it.
func (d *Dataset) readGroup(ctx context.Context, g int) (arrow.Record, error) {
	ref := d.groups[g]
	s := d.shards[ref.shard]
	f, err := d.footer(ctx, s)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.name, err)
	}
	want := s.meta.RowGroups[ref.index]
	b, err := d.readRange(ctx, s, ref.off, want.Bytes, want.Digest)
	if err != nil {
		return nil, fmt.Errorf("%s: row group %d: %w", s.name, ref.index, err)
	}
	rec, err := decodeGroup(f, ref.index, want, b, ref.off, d.cols, d.schema, d.o.Allocator)
	if err != nil {
		return nil, fmt.Errorf("%s: row group %d: %w: %w", s.name, ref.index, ErrCorrupt, err)
	}
	return rec, nil
}
