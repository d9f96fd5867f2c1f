package data

import (
	"fmt"
	"io"

	"github.com/zeebo/xxh3"
)

// maxElement is the most bytes one element of a text may have: a JSON value or a
// row of CSV. It bounds the memory of reading; the longest conversations known
// are a few MiB.
const maxElement = 64 << 20

// damage reports bytes that are not well-formed: the container can't be read on.
type damage struct{ reason string }

func (d *damage) Error() string { return d.reason }

func damaged(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...)} }

// window is what is looked at of a text: buf[pos:end] is read and not yet
// consumed. It grows to hold one element.
type window struct {
	r    io.Reader
	buf  []byte
	pos  int
	end  int
	off  int64 // place of buf[0] in the text
	max  int   // most bytes of an element
	long string

	from int64    // where the last element begins in the text
	sum  *textSum // follows the text; nil: no one asks
}

func newWindow(r io.Reader, off int64, long string) window {
	return window{r: r, off: off, buf: make([]byte, 128<<10), max: maxElement, long: long}
}

// at is the position in the text, in bytes: behind the last element, once one
// was yielded.
func (w *window) at() int64 { return w.off + int64(w.pos) }

// fill reads more bytes, keeping those from keep on, and returns by how much
// positions moved. At the end of the text it returns io.EOF.
func (w *window) fill(keep int) (moved int, err error) {
	if keep > 0 {
		if w.sum != nil {
			w.sum.upTo(w, w.off+int64(keep))
		}
		copy(w.buf, w.buf[keep:w.end])
		w.end -= keep
		w.off += int64(keep)
	}
	if w.end == len(w.buf) {
		if len(w.buf) >= w.max {
			return keep, damaged("%s is longer than %d MiB; a closing quote or bracket may be missing before it", w.long, w.max>>20)
		}
		grown := make([]byte, min(2*len(w.buf), w.max))
		copy(grown, w.buf[:w.end])
		w.buf = grown
	}
	for range 100 { // a Reader may return 0, nil; one that only does so is broken
		n, err := w.r.Read(w.buf[w.end:])
		w.end += n
		if n > 0 {
			return keep, nil // an error read along comes again
		}
		if err != nil {
			return keep, err
		}
	}
	return keep, io.ErrNoProgress
}

// take consumes the element buf[start:end].
func (w *window) take(start, end int) []byte {
	w.from, w.pos = w.off+int64(start), end
	return w.buf[start:end:end]
}

// textSum computes the digest of a run of elements with all that is between
// them. It follows the window rather than each element, since a long run is
// hashed several times as fast as many short ones.
type textSum struct {
	h    xxh3.Hasher
	next int64 // place in the text that h has come to
	end  int64 // end of the last element of the run
	// sum is the digest up to end, when h has gone past it.
	sum  string
	open bool
}

// begin starts a run at the window's last element.
func (s *textSum) begin(w *window) {
	s.h.Reset()
	s.next, s.open = w.from, true
	s.add(w)
}

// add takes the window's last element into the run.
func (s *textSum) add(w *window) { s.end, s.sum = w.at(), "" }

// upTo hashes what leaves the window.
func (s *textSum) upTo(w *window, to int64) {
	if !s.open || to <= s.next {
		return
	}
	if s.next <= s.end && s.end < to {
		s.hash(w, s.end)
		s.sum = digestOf(&s.h)
	}
	s.hash(w, to)
}

func (s *textSum) hash(w *window, to int64) {
	s.h.Write(w.buf[s.next-w.off : to-w.off])
	s.next = to
}

// finish ends the run with its last element and returns the digest.
func (s *textSum) finish(w *window) string {
	s.open = false
	if s.sum == "" {
		s.hash(w, s.end)
		s.sum = digestOf(&s.h)
	}
	return s.sum
}

func digestOf(h *xxh3.Hasher) string {
	b := h.Sum128().Bytes()
	return fmt.Sprintf("xxh3:%x", b)
}
