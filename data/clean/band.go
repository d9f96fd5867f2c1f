package clean

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/zeebo/xxh3"
)

// band sorts rows into buckets by a hash of a slice of their signatures: the
// first band by the hash of the whole record, the others by a cut of the MinHash.
// An entry is key<<32 | row, the row counted from the chunk's first in memory and
// from the first of all in the file.
type band struct {
	from, to int // the bytes of a row that the key is of
	near     bool
	file     *os.File
	runs     []run
	size     int64 // of the file
	reader   *rowReader
	kept     []byte // a row of an earlier chunk
	block    []byte // of a run

	keys    []uint64 // of the chunk
	earlier []uint16 // by the place of a bucket's first entry in keys: its rows kept in earlier chunks, as far as they count
	// at is where in slots a row's bucket begins; none if it is alone in it. A
	// bucket is the number of its rows kept in earlier chunks << 16 | that of
	// those kept in this one, and a place for each of these.
	at    []uint32
	slots []uint32
}

// run is the entries of the rows kept of one chunk, sorted.
type run struct {
	off int64
	n   int
}

func newBand(i, nearBands int, rows *rowFile, dir string) (*band, error) {
	b := &band{from: 9, to: rowHead, reader: newRowReader(rows)}
	if i > 0 {
		b.near = true
		b.from = rowHead + 2*((i-1)*permutations/nearBands)
		b.to = rowHead + 2*(i*permutations/nearBands)
	}
	var err error
	b.file, err = os.Create(filepath.Join(dir, fmt.Sprintf("band-%d", i)))
	return b, err
}

// add takes a row of the chunk in.
func (b *band) add(i uint32, row []byte) {
	if !b.near || rowKind(row) == full {
		b.keys = append(b.keys, xxh3.Hash(row[b.from:b.to])>>32<<32|uint64(i))
	}
}

// prepare sorts the chunk's rows into buckets, and compares them with the kept
// rows of earlier chunks in their buckets. Bands do so at the same time.
func (b *band) prepare(ctx context.Context, d *deduper) error {
	slices.Sort(b.keys)
	if cap(b.earlier) < len(b.keys) {
		b.earlier = make([]uint16, len(b.keys))
	}
	b.earlier = b.earlier[:len(b.keys)]
	clear(b.earlier)
	for _, r := range b.runs {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := b.join(ctx, d, r); err != nil {
			return err
		}
	}
	b.at = resized(b.at, len(d.first), none)
	b.slots = b.slots[:0]
	for i := 0; i < len(b.keys); {
		j := b.bucketEnd(i)
		if j-i > 1 {
			off := uint32(len(b.slots))
			b.slots = append(b.slots, uint32(b.earlier[i])<<16)
			for _, e := range b.keys[i:j] {
				b.at[uint32(e)] = off
				b.slots = append(b.slots, 0)
			}
		}
		i = j
	}
	return nil
}

// bucketEnd is the end of the bucket that begins at i.
func (b *band) bucketEnd(i int) int {
	j := i + 1
	for j < len(b.keys) && b.keys[j]>>32 == b.keys[i]>>32 {
		j++
	}
	return j
}

// join goes through the chunk's entries and those of a run side by side.
func (b *band) join(ctx context.Context, d *deduper, r run) error {
	if b.block == nil {
		b.block = make([]byte, 64<<10)
	}
	i := 0
	for done := 0; done < r.n && i < len(b.keys); {
		if err := ctx.Err(); err != nil {
			return err
		}
		block := b.block[:min(len(b.block), 8*(r.n-done))]
		if _, err := b.file.ReadAt(block, r.off+int64(8*done)); err != nil {
			return fmt.Errorf("reading %s: %w", b.file.Name(), err)
		}
		done += len(block) / 8
		for ; len(block) > 0 && i < len(b.keys); block = block[8:] {
			e := binary.LittleEndian.Uint64(block)
			for i < len(b.keys) && b.keys[i]>>32 < e>>32 {
				i++
			}
			if i == len(b.keys) || b.keys[i]>>32 != e>>32 || int(b.earlier[i]) == d.bucket {
				continue
			}
			b.earlier[i]++
			if err := b.compare(d, uint32(e), b.keys[i:b.bucketEnd(i)]); err != nil {
				return err
			}
		}
	}
	return nil
}

// compare compares a kept row of an earlier chunk with the chunk's rows of the
// same bucket.
func (b *band) compare(d *deduper, kept uint32, bucket []uint64) error {
	b.kept = b.kept[:0]
	for _, e := range bucket {
		i := uint32(e)
		if atomic.LoadUint32(&d.first[i]) <= kept {
			continue // of that one, or of one before it
		}
		if len(b.kept) == 0 {
			row, err := b.reader.row(int(kept))
			if err != nil {
				return err
			}
			b.kept = append(b.kept, row...)
		}
		row, err := b.reader.row(d.lo + int(i))
		if err != nil {
			return err
		}
		if d.alike(b.kept, row) > 0 {
			d.found(i, kept)
		}
	}
	return nil
}

// keptWith returns the rows of the chunk kept so far in a row's bucket, in order.
func (b *band) keptWith(i uint32) []uint32 {
	at := b.at[i]
	if at == none {
		return nil
	}
	return b.slots[at+1 : at+1+b.slots[at]&0xFFFF]
}

// keep adds a row to its bucket, unless that is full.
func (b *band) keep(i uint32, most int) {
	at := b.at[i]
	if at == none {
		return
	}
	n := b.slots[at]
	if here := n & 0xFFFF; int(n>>16+here) < most {
		b.slots[at+1+here] = i
		b.slots[at]++
	}
}

// store writes the entries of the chunk's kept rows as a run.
func (b *band) store(d *deduper) error {
	w := bufio.NewWriterSize(b.file, 128<<10)
	r := run{off: b.size}
	var entry [8]byte
	for _, e := range b.keys {
		if i := uint32(e); d.first[i] == none {
			binary.LittleEndian.PutUint64(entry[:], e>>32<<32|uint64(uint32(d.lo)+i))
			if _, err := w.Write(entry[:]); err != nil {
				return err
			}
			r.n++
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b.runs = append(b.runs, r)
	b.size += int64(8 * r.n)
	return nil
}
