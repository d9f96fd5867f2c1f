package clean

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sort"

	"github.com/specstream/specstream"
)

// rowFile holds the signatures of all parts one after the other, in rows of one
// size, so that any of them is one read away.
type rowFile struct {
	f      *os.File
	size   int   // bytes of a row
	n      int   // rows
	starts []int // of each part the index of its first row
}

// collect copies signature files into a row file, and checks that they are whole.
func collect(ctx context.Context, files []SignatureSource, dir string, near bool) (_ *rowFile, err error) {
	f, err := os.Create(filepath.Join(dir, "rows"))
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	r := &rowFile{f: f, size: rowHead}
	if near {
		r.size += nearBytes
	}
	w := bufio.NewWriterSize(f, 256<<10)
	row := make([]byte, r.size)
	for part, src := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		r.starts = append(r.starts, r.n)
		err := readSignatures(src, part, func(head, min []byte) error {
			if r.n++; r.n%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if r.n == math.MaxUint32 {
				return &specstream.InputError{Reason: "more records than duplicates can be found among", Hint: "make several data sets"}
			}
			if near && rowKind(head) == exactOnly {
				return &specstream.InputError{
					File: fmt.Sprintf("signatures of part %d", part), Reason: "made for exact duplicates only",
					Hint: "remove the file, so that the part is signed again",
				}
			}
			clear(row)
			copy(row[copy(row, head):], min)
			_, err := w.Write(row)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return r, w.Flush()
}

// part tells the part of a row.
func (r *rowFile) part(i int) int {
	return sort.Search(len(r.starts), func(p int) bool { return r.starts[p] > i }) - 1
}

// each reads the rows [lo, hi) in order.
func (r *rowFile) each(lo, hi int, do func(i int, row []byte)) error {
	in := bufio.NewReaderSize(io.NewSectionReader(r.f, int64(lo)*int64(r.size), int64(hi-lo)*int64(r.size)), 256<<10)
	row := make([]byte, r.size)
	for i := lo; i < hi; i++ {
		if _, err := io.ReadFull(in, row); err != nil {
			return fmt.Errorf("reading %s: %w", r.f.Name(), err)
		}
		do(i, row)
	}
	return nil
}

// cachedRows is how many rows a rowReader remembers: those of the first of many
// near duplicates are asked for again and again.
const cachedRows = 1 << 10

// rowReader reads rows in any order. Only one goroutine uses it.
type rowReader struct {
	file *rowFile
	held []int64 // by place: 1 + index of the row there
	buf  []byte
}

func newRowReader(f *rowFile) *rowReader {
	return &rowReader{file: f}
}

// row returns a row, valid until the next call.
func (r *rowReader) row(i int) ([]byte, error) {
	if r.held == nil {
		r.held, r.buf = make([]int64, cachedRows), make([]byte, cachedRows*r.file.size)
	}
	place := i % cachedRows
	row := r.buf[place*r.file.size : (place+1)*r.file.size]
	if r.held[place] == int64(i)+1 {
		return row, nil
	}
	r.held[place] = 0
	if _, err := r.file.f.ReadAt(row, int64(i)*int64(r.file.size)); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.file.f.Name(), err)
	}
	r.held[place] = int64(i) + 1
	return row, nil
}
