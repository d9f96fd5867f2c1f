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

// openShards is how many shards' indexes and footers are kept parsed.
const openShards = 32

// Defaults of [DatasetOptions].
const (
	DefaultCacheBytes = 128 << 20
	DefaultCacheLimit = 8 << 30
)

// DatasetOptions configures a [Dataset].
type DatasetOptions struct {
	// CacheDir is a local folder that keeps decoded row groups as Arrow IPC
	// files; see "Local cache" in the package's documentation. Any number of
	// processes and data sets may share it. Empty: row groups are range reads of
	// the store, decoded by each process.
	CacheDir string
	// CacheLimit bounds the files in CacheDir, in bytes; the least recently used
	// go first. It should hold the windows of the orders in use several times
	// over; it need not hold the data set. Default 8 GiB.
	CacheLimit int64
	// CacheBytes bounds the decoded or mapped row groups that this data set
	// keeps between batches, in bytes. It should hold the window of the order:
	// [Order] takes its rows from [DefaultWindow] row groups at a time. Default
	// 128 MiB.
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
	local    *localCache // nil without a CacheDir
	groups   []groupRef
	open     *lru[*openShard]
	cache    *lru[arrow.Record]
}

// groupRef places a row group.
type groupRef struct {
	shard, index int32
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
	if o.CacheLimit == 0 {
		o.CacheLimit = DefaultCacheLimit
	}
	if o.Allocator == nil {
		o.Allocator = memory.DefaultAllocator
	}
	d := &Dataset{blobs: blobs, manifest: m, digest: digest, o: o, cols: readColumns(!o.WithoutText), schema: Schema(!o.WithoutText),
		open: newCountCache[*openShard](openShards), cache: newGroupCache(o.CacheBytes)}
	if o.CacheDir != "" {
		if d.local, err = newLocalCache(o.CacheDir, o.CacheLimit, !o.WithoutText); err != nil {
			return nil, err
		}
	}
	start := int64(0)
	for i, s := range m.Shards {
		for j, rows := range s.Groups {
			d.groups = append(d.groups, groupRef{int32(i), int32(j), start})
			start += rows
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
// group share its memory, which is the mapped file's where there is a CacheDir;
// others are copied, once, into memory of the allocator. The row groups a batch
// touches are all in memory while it is made.
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

// shardName names a shard in errors.
func (d *Dataset) shardName(i int) string {
	return fmt.Sprintf("shard %d (%s)", i, d.manifest.Shards[i].Digest)
}

// readGroup returns a row group from the local cache or the store. The caller
// releases it.
func (d *Dataset) readGroup(ctx context.Context, g int) (arrow.Record, error) {
	ref := d.groups[g]
	s := d.manifest.Shards[ref.shard]
	load := func() (arrow.Record, error) { return d.loadGroup(ctx, int(ref.shard), int(ref.index)) }
	if d.local == nil {
		return load()
	}
	rec, err := d.local.get(ctx, cacheKey{s.Digest, int(ref.index), s.Groups[ref.index]}, load)
	if err != nil {
		return nil, fmt.Errorf("local cache: %w", err)
	}
	return rec, nil
}

// loadGroup reads a row group from the store, verifies and decodes it.
func (d *Dataset) loadGroup(ctx context.Context, shard, index int) (arrow.Record, error) {
	s := d.manifest.Shards[shard]
	o, err := d.openShard(ctx, shard)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.shardName(shard), err)
	}
	want := o.index.groups[index]
	b, err := readRange(ctx, d.blobs, s, want.off, want.bytes, want.digest)
	if err != nil {
		return nil, fmt.Errorf("%s: row group %d: %w", d.shardName(shard), index, err)
	}
	rec, err := decodeGroup(o.file, index, want, b, d.cols, d.schema, d.o.Allocator)
	if err != nil {
		return nil, fmt.Errorf("%s: row group %d: %w: %w", d.shardName(shard), index, ErrCorrupt, err)
	}
	return rec, nil
}
