package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxElement is the most bytes one JSON element may have. It bounds the memory
// of reading; the longest conversations known are a few MiB.
const maxElement = 64 << 20

// damage reports bytes that are not well-formed: the container can't be read on.
type damage struct{ reason string }

func (d *damage) Error() string { return d.reason }

func damaged(format string, args ...any) error { return &damage{fmt.Sprintf(format, args...)} }

// splitter yields the top-level elements of one JSON array, or of a sequence of
// JSON values each beginning on a line of its own (JSON Lines; an element may
// span lines). It holds one element at a time. It checks everything between
// elements; what is inside an element is for the decoder to check, which is why
// an element's bytes must be decoded before the stream can be called sound.
type splitter struct {
	r   io.Reader
	buf []byte // buf[pos:end] is read and not yet consumed
	pos int
	end int
	off int64 // bytes of the stream before buf[0]
	max int

	state splitState
	n     int64 // elements yielded
}

type splitState int

const (
	splitStart      splitState = iota
	splitArrayFirst            // behind '[': an element or ']'
	splitArrayNext             // behind an element: ',' or ']'
	splitArrayEnd              // behind ']': only white space
	splitLineFirst             // at a value of a sequence
	splitLineNext              // behind a value of a sequence: a line break or the end
	splitDone
)

func newSplitter(r io.Reader) *splitter {
	return &splitter{r: r, buf: make([]byte, 64<<10), max: maxElement}
}

// fill reads more bytes, keeping those from keep on, and returns by how much
// positions moved. At the end of the stream it returns io.EOF.
func (s *splitter) fill(keep int) (moved int, err error) {
	if keep > 0 {
		copy(s.buf, s.buf[keep:s.end])
		s.end -= keep
		s.off += int64(keep)
	}
	if s.end == len(s.buf) {
		if len(s.buf) >= s.max {
			return keep, damaged("an element is longer than %d MiB; a closing bracket or quote may be missing before it", s.max>>20)
		}
		grown := make([]byte, min(2*len(s.buf), s.max))
		copy(grown, s.buf[:s.end])
		s.buf = grown
	}
	for range 100 { // a Reader may return 0, nil; one that only does so is broken
		n, err := s.r.Read(s.buf[s.end:])
		s.end += n
		if n > 0 {
			return keep, nil // an error read along comes again
		}
		if err != nil {
			return keep, err
		}
	}
	return keep, io.ErrNoProgress
}

// skipSpace moves to the next byte that is not JSON white space, and reports
// whether a line break was among those skipped. io.EOF: there is none.
func (s *splitter) skipSpace() (c byte, newline bool, err error) {
	for {
		for ; s.pos < s.end; s.pos++ {
			switch c := s.buf[s.pos]; c {
			case '\n':
				newline = true
			case ' ', '\t', '\r':
			default:
				return c, newline, nil
			}
		}
		moved, err := s.fill(s.pos)
		s.pos -= moved
		if err != nil {
			return 0, newline, err
		}
	}
}

// next returns the bytes of the next element, valid until the call after. It
// returns io.EOF behind the last element of a sound stream, *damage where the
// stream is not well-formed, and the reader's own errors as they are.
func (s *splitter) next() ([]byte, error) {
	for {
		if s.state == splitDone {
			return nil, io.EOF
		}
		c, newline, err := s.skipSpace()
		if err != nil {
			if err == io.EOF {
				return nil, s.atEnd()
			}
			return nil, err
		}
		switch s.state {
		case splitStart:
			switch c {
			case '[':
				s.state = splitArrayFirst
				s.pos++
			case '{':
				s.state = splitLineFirst
			default:
				return nil, damaged("want a JSON array or JSON Lines, got %s at byte %d", quoteByte(c), s.at())
			}
		case splitArrayFirst:
			if c == ']' {
				s.state = splitArrayEnd
				s.pos++
				continue
			}
			return s.element(splitArrayNext)
		case splitArrayNext:
			switch c {
			case ']':
				s.state = splitArrayEnd
				s.pos++
			case ',':
				s.pos++
				c, _, err := s.skipSpace()
				if err != nil {
					if err == io.EOF {
						return nil, s.atEnd()
					}
					return nil, err
				}
				if c == ',' || c == ']' {
					return nil, damaged("want an element behind the comma, got %s at byte %d", quoteByte(c), s.at())
				}
				return s.element(splitArrayNext)
			default:
				return nil, damaged("want a comma or the closing bracket behind element %d, got %s at byte %d", s.n, quoteByte(c), s.at())
			}
		case splitArrayEnd:
			return nil, damaged("data behind the closing bracket: %s at byte %d", quoteByte(c), s.at())
		case splitLineNext:
			if !newline {
				return nil, damaged("want a line break behind value %d, got %s at byte %d", s.n, quoteByte(c), s.at())
			}
			s.state = splitLineFirst
		case splitLineFirst:
			if c != '{' {
				return nil, damaged("want a JSON object on each line, got %s at byte %d", quoteByte(c), s.at())
			}
			return s.element(splitLineNext)
		}
	}
}

// atEnd judges the end of the stream between elements.
func (s *splitter) atEnd() error {
	switch s.state {
	case splitStart:
		return damaged("the file is empty")
	case splitArrayFirst, splitArrayNext:
		return damaged("the file ends inside its JSON array, behind element %d: the closing bracket is missing", s.n)
	}
	s.state = splitDone
	return io.EOF
}

// at is the position in the stream, in bytes.
func (s *splitter) at() int64 { return s.off + int64(s.pos) }

// element delimits the element that begins at pos.
func (s *splitter) element(then splitState) ([]byte, error) {
	start, i := s.pos, s.pos
	depth, inString := 0, false
	for {
		for i < s.end {
			if inString {
				j := bytes.IndexByte(s.buf[i:s.end], '"')
				if j < 0 {
					i = s.end
					break
				}
				i += j + 1
				if !escaped(s.buf[start : i-1]) {
					inString = false
					if depth == 0 {
						return s.yield(start, i, then)
					}
				}
				continue
			}
			switch s.buf[i] {
			case '"':
				if depth == 0 && i > start { // a literal with a quote in it
					return s.yield(start, i, then)
				}
				inString = true
			case '{', '[':
				depth++
			case '}', ']':
				if depth == 0 { // the end of the array behind a number or literal
					return s.yield(start, i, then)
				}
				if depth--; depth == 0 {
					return s.yield(start, i+1, then)
				}
			case ',', ' ', '\t', '\r', '\n':
				if depth == 0 {
					return s.yield(start, i, then)
				}
			}
			i++
		}
		moved, err := s.fill(start)
		start, i = start-moved, i-moved
		s.pos = start
		if err != nil {
			if errors.Is(err, io.EOF) {
				what := "its closing bracket"
				if inString {
					what = "a closing quote"
				} else if depth == 0 {
					what = "what should follow it"
				}
				return nil, damaged("the file ends inside the element that begins at byte %d: %s is missing", s.at(), what)
			}
			return nil, err
		}
	}
}

func (s *splitter) yield(start, end int, then splitState) ([]byte, error) {
	s.pos, s.state = end, then
	s.n++
	return s.buf[start:end:end], nil
}

// escaped reports whether the byte behind b is escaped: b ends with an odd
// number of backslashes.
func escaped(b []byte) bool {
	n := 0
	for n < len(b) && b[len(b)-1-n] == '\\' {
		n++
	}
	return n&1 == 1
}

func quoteByte(c byte) string {
	if c < 0x80 {
		return fmt.Sprintf("%q", rune(c))
	}
	return fmt.Sprintf("byte 0x%02x", c)
}
