package data

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxNesting is how deep the objects and arrays of an element may be nested. The
// decoders accept less still; this is where an element's bounds, found by
// counting brackets, are no longer believed.
const maxNesting = 1000

// splitter yields the top-level elements of one JSON array, or of a sequence of
// JSON values each beginning on a line of its own (JSON Lines; an element may
// span lines). It holds one element at a time. It checks everything between
// elements; what is inside an element is for the decoder to check, which is why
// an element's bytes must be decoded before the stream can be called sound.
type splitter struct {
	window
	state splitState
	part  bool  // the text is a part: its end may be behind any element
	array bool  // of one array
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

// newSplitter splits a whole text, whose first byte is at off.
func newSplitter(r io.Reader, off int64) *splitter {
	return &splitter{window: newWindow(r, off, "an element")}
}

// newPartSplitter splits a part of a text.
func newPartSplitter(r io.Reader, off int64, array bool) *splitter {
	s := newSplitter(r, off)
	s.part, s.array = true, array
	s.state = splitLineFirst
	if array {
		s.state = splitArrayFirst
	}
	return s
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
				s.state, s.array = splitArrayFirst, true
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

// atEnd judges the end of the text between elements.
func (s *splitter) atEnd() error {
	switch {
	case s.state == splitStart:
		return damaged("the file is empty")
	case s.state == splitArrayFirst, s.state == splitArrayNext && !s.part:
		return damaged("the file ends inside its JSON array, behind element %d: the closing bracket is missing", s.n)
	}
	s.state = splitDone
	return io.EOF
}

// structural marks the bytes that matter between strings.
var structural = [256]bool{'"': true, '{': true, '}': true, '[': true, ']': true, ',': true, ' ': true, '\t': true, '\r': true, '\n': true}

// element delimits the element that begins at pos.
func (s *splitter) element(then splitState) ([]byte, error) {
	start, i := s.pos, s.pos
	depth, inString := 0, false
	for {
		buf := s.buf[:s.end]
		for i < len(buf) {
			if inString {
				j := bytes.IndexByte(buf[i:], '"')
				if j < 0 {
					i = len(buf)
					break
				}
				i += j + 1
				if buf[i-2] == '\\' && escaped(buf[start:i-1]) {
					continue
				}
				inString = false
				if depth == 0 {
					return s.yield(start, i, then)
				}
				continue
			}
			c := buf[i]
			if !structural[c] {
				i++
				continue
			}
			switch c {
			case '"':
				if depth == 0 && i > start { // a literal with a quote in it
					return s.yield(start, i, then)
				}
				inString = true
			case '{', '[':
				if depth++; depth > maxNesting {
					return nil, damaged("the element that begins at byte %d is nested deeper than %d levels", s.off+int64(start), maxNesting)
				}
			case '}', ']':
				if depth == 0 { // the end of the array behind a number or literal
					return s.yield(start, i, then)
				}
				if depth--; depth == 0 {
					return s.yield(start, i+1, then)
				}
			default:
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
				if s.part && s.array && depth == 0 && !inString && i > start {
					return s.yield(start, i, then) // a number or literal at the part's end
				}
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
	s.state = then
	s.n++
	return s.take(start, end), nil
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
