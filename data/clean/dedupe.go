package clean

import (
	"context"
	"math"
	"os"
	"runtime"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/specstream/specstream"
)

// Duplicate is a record that another one before it makes superfluous. Parts are
// numbered from 0, records from 1 within their input.
type Duplicate struct {
	Part   int   `json:"part"`
	Number int64 `json:"number"`
	// OfPart and OfNumber name the first record kept that it is a duplicate of.
	OfPart   int   `json:"of_part"`
	OfNumber int64 `json:"of_number"`
	// Reason is ReasonExact or ReasonNear.
	Reason string `json:"reason"`
	// Similarity is the estimated Jaccard similarity of the two, 1 for equal ones.
	Similarity float64 `json:"similarity"`
}

// limits are what tests set lower than is of use.
type limits struct {
	bucket   int // most kept records of a bucket that another one is compared with
	chunkMin int // rows taken at a time: a sixteenth of all, within bounds
	chunkMax int
}

var defaultLimits = limits{bucket: 256, chunkMin: 1 << 16, chunkMax: 1 << 20}

const (
	// maxBands bounds the work for low thresholds.
	maxBands = 42
	none     = math.MaxUint32
)

// Dedupe finds the duplicates among the records of parts' signature files, in
// the order of the parts, and yields them in order. A record is one if it equals
// an earlier one that was kept or, for near duplicates, is at least as similar to
// it as the threshold. So what comes behind a record never changes what becomes
// of it: a data set that grows by parts keeps its older ones as they are.
//
// Which records are compared is found by locality-sensitive hashing: each
// MinHash is cut into so many bands that two of enough similarity are equal in
// one of them for certain. Only for thresholds below 0.68 that would be too many:
// there, 42 bands of 3 values find a pair of the threshold's similarity with a
// probability of 1−(1−t³)⁴², 99.6 % for 0.5. A record is compared with the first
// 256 kept records of a band's bucket, which bounds the work for a million
// variants of one text that are too different to be duplicates.
//
// Memory is about 30 bytes a record from one million to 16 million, and no more
// than that for any number. Scratch files in dir ("" is the system's folder for
// them) take 281 bytes a record, and 8 more for each band (21 at the default
// threshold) if it is kept; they are removed.
func (c *Cleaner) Dedupe(ctx context.Context, files []SignatureSource, dir string, yield func(Duplicate) error) (err error) {
	if !c.Dedupes() {
		return nil
	}
	if dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	dir, err = os.MkdirTemp(dir, "dedupe-")
	if err != nil {
		return err
	}
	defer func() {
		if rerr := os.RemoveAll(dir); err == nil {
			err = rerr
		}
	}()
	near := c.spec.Dedupe == specstream.DedupeNear
	rows, err := collect(ctx, files, dir, near)
	if err != nil {
		return err
	}
	defer rows.f.Close()
	need, bands := 0, 1
	if near {
		need = leastMatches(c.spec.NearThreshold)
		bands += nearBands(need)
	}
	d, err := newDeduper(rows, need, bands, c.limits.bucket, dir)
	if err != nil {
		return err
	}
	defer d.close()
	step := min(max(rows.n/16, c.limits.chunkMin), c.limits.chunkMax)
	for lo := 0; lo < rows.n; lo += step {
		if err := d.chunk(ctx, lo, min(lo+step, rows.n), yield); err != nil {
			return err
		}
	}
	return nil
}

// leastMatches is how many of the 128 values two MinHashes share at the least
// when their estimated similarity is threshold or more.
func leastMatches(threshold float64) int {
	return int(math.Ceil(threshold*permutations - 1e-9))
}

// nearBands is how many bands MinHashes are cut into. Two with need equal values
// differ in 128−need: one band more than that, and one is equal.
func nearBands(need int) int { return min(permutations-need+1, maxBands) }

// deduper goes through the rows in chunks. Of the chunks before, every band has
// the sorted keys of the rows kept in a file, one run a chunk.
type deduper struct {
	rows   *rowFile
	need   int // equal values of near duplicates
	bucket int
	bands  []*band
	reader *rowReader
	first  []uint32 // by row of the chunk: the first kept row it is a duplicate of
	tried  []uint32 // by row of the chunk: 1 + the row it was last compared with
	lo     int      // the chunk's first row
	mine   []byte   // the row that is being decided
}

func newDeduper(rows *rowFile, need, bands, bucket int, dir string) (*deduper, error) {
	d := &deduper{rows: rows, need: need, bucket: bucket, reader: newRowReader(rows)}
	for i := range bands {
		b, err := newBand(i, bands-1, rows, dir)
		if err != nil {
			d.close()
			return nil, err
		}
		d.bands = append(d.bands, b)
	}
	return d, nil
}

func (d *deduper) close() {
	for _, b := range d.bands {
		b.file.Close()
	}
}

// alike compares two rows: 1 for equal ones, the estimated similarity for near
// duplicates, else 0.
func (d *deduper) alike(a, b []byte) float64 {
	if string(rowExact(a)) == string(rowExact(b)) {
		return 1
	}
	if rowKind(a) != full || rowKind(b) != full || d.need == 0 {
		return 0
	}
	if n := matches(a[rowHead:], b[rowHead:], d.need); n >= d.need {
		return float64(n) / permutations
	}
	return 0
}

// chunk decides the rows [lo, hi).
func (d *deduper) chunk(ctx context.Context, lo, hi int, yield func(Duplicate) error) error {
	d.lo = lo
	d.first = resized(d.first, hi-lo, none)
	d.tried = resized(d.tried, hi-lo, 0)
	for _, b := range d.bands {
		b.keys = slices.Grow(b.keys[:0], hi-lo)
	}
	err := d.rows.each(lo, hi, func(i int, row []byte) {
		for _, b := range d.bands {
			b.add(uint32(i-lo), row)
		}
	})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, b := range d.bands {
		g.Go(func() error { return b.prepare(gctx, d) })
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i := range hi - lo {
		if i%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := d.decide(uint32(i)); err != nil {
			return err
		}
	}
	if hi < d.rows.n {
		for _, b := range d.bands {
			if err := b.store(d); err != nil {
				return err
			}
		}
	}
	for i, of := range d.first {
		if of != none {
			dup, err := d.describe(lo+i, int(of))
			if err != nil {
				return err
			}
			if err := yield(dup); err != nil {
				return err
			}
		}
	}
	return nil
}

// found notes that row i of the chunk is a duplicate of a row, if of none before
// that.
func (d *deduper) found(i, of uint32) {
	for {
		have := atomic.LoadUint32(&d.first[i])
		if have <= of || atomic.CompareAndSwapUint32(&d.first[i], have, of) {
			return
		}
	}
}

// decide compares a row of the chunk with the kept ones before it in the chunk,
// unless it is a duplicate of a row of an earlier chunk.
func (d *deduper) decide(i uint32) error {
	if d.first[i] != none {
		return nil
	}
	d.mine = d.mine[:0]
	for _, b := range d.bands {
		for _, j := range b.keptWith(i) {
			if d.first[i] <= uint32(d.lo)+j {
				break // the first one is known, and the others are behind it
			}
			if d.tried[j] == i+1 {
				continue
			}
			d.tried[j] = i + 1
			if len(d.mine) == 0 {
				row, err := d.reader.row(d.lo + int(i))
				if err != nil {
					return err
				}
				d.mine = append(d.mine, row...)
			}
			row, err := d.reader.row(d.lo + int(j))
			if err != nil {
				return err
			}
			if d.alike(d.mine, row) > 0 {
				d.first[i] = uint32(d.lo) + j
				break
			}
		}
	}
	if d.first[i] == none {
		for _, b := range d.bands {
			b.keep(i, d.bucket)
		}
	}
	return nil
}

func (d *deduper) describe(i, of int) (Duplicate, error) {
	row, err := d.reader.row(of)
	if err != nil {
		return Duplicate{}, err
	}
	out := Duplicate{Part: d.rows.part(i), OfPart: d.rows.part(of), OfNumber: rowNumber(row), Reason: ReasonNear}
	kept := append(d.mine[:0], row...)
	d.mine = kept
	if row, err = d.reader.row(i); err != nil {
		return Duplicate{}, err
	}
	out.Number = rowNumber(row)
	out.Similarity = d.alike(kept, row)
	if string(rowExact(kept)) == string(rowExact(row)) {
		out.Reason = ReasonExact
	}
	return out, nil
}

// resized returns a slice of n values v, in s's memory if there is enough.
func resized(s []uint32, n int, v uint32) []uint32 {
	if cap(s) < n {
		s = make([]uint32, n)
	}
	s = s[:n]
	for i := range s {
		s[i] = v
	}
	return s
}
