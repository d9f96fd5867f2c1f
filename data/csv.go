package data

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// rows yields the rows of CSV with a header (RFC 4180: cells with commas, quotes
// or line breaks in double quotes; LF or CRLF). Line breaks inside a cell become
// \n, empty lines are no rows, and NULs are text like any other. The bounds of
// rows are found by counting quotes, which is right for well-formed rows;
// encoding/csv takes the row apart and refuses others.
type rows struct {
	window
	feed   *bytes.Reader
	csv    *csv.Reader
	header []string

	pick []int    // where the format's columns are; nil: rows become JSON objects
	keys []string // of those objects: `{"name":` or `,"name":`
	json []byte
}

func newRows(r io.Reader, off int64) *rows {
	c := &rows{window: newWindow(r, off, "a row"), feed: bytes.NewReader(nil)}
	c.csv = csv.NewReader(c.feed)
	c.csv.FieldsPerRecord, c.csv.ReuseRecord = -1, true
	return c
}

// readHeader reads the header and checks it against the format.
func (c *rows) readHeader(f Format) error {
	head, err := c.row()
	if err == io.EOF {
		return &specstream.InputError{Reason: "the file is empty"}
	}
	if err != nil {
		return err
	}
	return c.setHeader(f, slices.Clone(head))
}

func (c *rows) setHeader(f Format, header []string) error {
	c.header = header
	c.csv.FieldsPerRecord = len(header)
	at := map[string]int{}
	for i, h := range header {
		name := h
		if f.csv {
			name = strings.ToLower(strings.TrimSpace(h))
		}
		if _, twice := at[name]; twice {
			return &specstream.InputError{Field: h, Reason: "the header names the column twice"}
		}
		at[name] = i
	}
	if err := f.CheckColumns(header); err != nil {
		return err
	}
	if f.csv {
		c.pick = make([]int, 0, len(f.columns))
		for _, name := range f.columns {
			c.pick = append(c.pick, at[name])
		}
		return nil
	}
	lead := "{"
	for _, h := range header {
		c.keys = append(c.keys, string(appendJSONString([]byte(lead), h))+":")
		lead = ","
	}
	return nil
}

// next returns the next row.
func (c *rows) next() (Raw, error) {
	cells, err := c.row()
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		return Raw{Bad: bad(BadColumns, "", "has %d columns, the header has %d", len(cells), len(c.header))}, nil
	case err != nil:
		return Raw{}, err
	}
	if c.pick != nil {
		raw := Raw{Cells: make([]string, len(c.pick))}
		for i, at := range c.pick {
			raw.Cells[i] = cells[at]
		}
		return raw, nil
	}
	c.json = c.json[:0]
	for i, cell := range cells {
		c.json = appendJSONString(append(c.json, c.keys[i]...), cell)
	}
	c.json = append(c.json, '}')
	return Raw{JSON: c.json}, nil
}

// row reads the next row that is not empty.
func (c *rows) row() ([]string, error) {
	line, err := c.line()
	if err != nil {
		return nil, err
	}
	c.feed.Reset(line)
	cells, err := c.csv.Read()
	var p *csv.ParseError
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		return cells, err
	case errors.As(err, &p):
		return nil, damaged("%v in the row that begins at byte %d", p.Err, c.from)
	case err != nil:
		return nil, damaged("%v in the row that begins at byte %d", err, c.from)
	case c.feed.Len() > 0:
		return nil, damaged("the row that begins at byte %d has no clear end", c.from)
	}
	return cells, nil
}

// line delimits the next row that is not empty, line break included.
func (c *rows) line() ([]byte, error) {
	for {
		start, i, quotes := c.pos, c.pos, 0
		for {
			if n := bytes.IndexByte(c.buf[i:c.end], '\n'); n >= 0 {
				quotes += bytes.Count(c.buf[i:i+n], []byte{'"'})
				i += n + 1
				if quotes%2 == 0 {
					break
				}
				continue
			}
			quotes += bytes.Count(c.buf[i:c.end], []byte{'"'})
			i = c.end
			moved, err := c.fill(start)
			start, i = start-moved, i-moved
			c.pos = start
			if err == io.EOF {
				if i == start {
					return nil, io.EOF
				}
				break
			}
			if err != nil {
				return nil, err
			}
		}
		line := c.buf[start:i]
		if len(line) > 2 || len(bytes.Trim(line, "\r\n")) > 0 || string(line) == "\r\r" {
			return c.take(start, i), nil
		}
		c.pos = i
	}
}

// appendJSONString appends a JSON string. Bytes that are not UTF-8 stay as they
// are, for the decoder to report.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		from = i + 1
		switch c {
		case '"', '\\':
			b = append(b, '\\', c)
		case '\n':
			b = append(b, `\n`...)
		default:
			b = fmt.Appendf(b, `\u%04x`, c)
		}
	}
	return append(append(b, s[from:]...), '"')
}
