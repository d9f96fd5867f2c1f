package data

import (
	"context"
	"errors"
	"io"

	"github.com/specstream/specstream"
)

// ScanOptions configures [Scan].
type ScanOptions struct {
	// Format is what the records are to be read as: it chooses the container
	// where the content doesn't tell, and says which columns there must be.
	Format Format
	// URI and Open name and open the input. Open may be nil for local files.
	URI  string
	Open Opener
	// PartBytes is about how many bytes of decompressed text a part has: it ends
	// with the record that reaches them. 0 makes one part.
	PartBytes int64
	// Limit ends the last part with that many records; the rest of the input is
	// hashed, and not looked at. 0: none.
	Limit int64
	// Pin is the SHA-256 the input must have; empty for any.
	Pin specstream.Digest
	// MaxExpansion is how many bytes a compressed input may expand to for each
	// of its own, once it has passed 64 MiB; a page of Parquet likewise. 0 is
	// the default of a DataSpec, 200.
	MaxExpansion int
	// Progress is told the number of stored bytes read so far, by the goroutine
	// that called Scan. May be nil.
	Progress func(bytes int64)
}

// Scanned is what a scan found.
type Scanned struct {
	Input Input
	Parts []Part
}

// Scan reads an input once from its beginning to its end, in bounded memory: it
// computes its SHA-256 and cuts it into parts. A container that is damaged, has
// columns that the format can't use, or is not the one that is pinned is an
// InputError. What is inside the records is not looked at; their decoding reports
// what is wrong with it.
func Scan(ctx context.Context, o ScanOptions) (Scanned, error) {
	if o.Open == nil {
		o.Open = OpenFile
	}
	s, err := openStream(ctx, o.URI, o.Open, streamOptions{sum: true, maxExpansion: o.MaxExpansion, progress: o.Progress})
	if err != nil {
		return Scanned{}, err
	}
	var out Scanned
	if head, _ := s.text.Peek(len(magicParquet)); s.compression == "" && string(head) == magicParquet {
		out, err = scanParquet(ctx, s, o)
	} else {
		out, err = scanText(s, o)
	}
	if err == nil {
		out.Input.SHA256, err = s.drain()
		out.Input.URI, out.Input.Bytes = o.URI, s.raw.n
		out.Input.Compression = s.compression
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return Scanned{}, unjoined(err)
	}
	if err := checkPin(o.URI, o.Pin, out.Input.SHA256); err != nil {
		return Scanned{}, err
	}
	for _, p := range out.Parts {
		out.Input.Records += p.Records
		out.Input.Container = p.Container
	}
	share(out.Parts, out.Input, o.Limit > 0 && out.Input.Records == o.Limit)
	return out, nil
}

// share sets what each part stands for of the stored bytes: of a text that is
// stored as it is, all from behind the part before, and the last part the rest of
// the input too.
func share(parts []Part, in Input, limited bool) {
	var from int64
	for i := range parts {
		p := &parts[i]
		switch {
		case p.Compression != "":
			p.Bytes = in.Bytes
		case p.Container != ContainerParquet:
			p.Bytes, from = p.End-from, p.End
		}
	}
	if n := len(parts); n > 0 && !limited && parts[n-1].Compression == "" && parts[n-1].Container != ContainerParquet {
		parts[n-1].Bytes += in.Bytes - from
	}
}

// cutter cuts the elements of a text into parts.
type cutter struct {
	part  Part // the one that is open, if sum.open
	sum   textSum
	parts []Part
}

// scanText cuts a text into parts.
func scanText(s *stream, o ScanOptions) (Scanned, error) {
	t, err := readText(s, o.Format)
	if err != nil {
		return Scanned{}, err
	}
	var c cutter
	src, w := t.src, t.src.text()
	w.sum = &c.sum
	var n int64
	for ; o.Limit <= 0 || n < o.Limit; n++ {
		if _, err := src.next(); err == io.EOF {
			break
		} else if err != nil {
			return Scanned{}, t.failed(n+1, err)
		}
		if !c.sum.open {
			container, header := src.describe()
			c.part = Part{URI: o.URI, Container: container, Compression: s.compression, Start: w.from, First: n + 1, Header: header}
			c.sum.begin(w)
		}
		c.sum.add(w)
		c.part.Records++
		if s.compression == "" && o.PartBytes > 0 && w.at()-c.part.Start >= o.PartBytes {
			c.cut(w)
		}
	}
	if c.sum.open {
		c.cut(w)
	}
	return Scanned{Parts: c.parts}, nil
}

// cut ends the open part behind its last element.
func (c *cutter) cut(w *window) {
	c.part.End, c.part.Digest = c.sum.end, c.sum.finish(w)
	c.parts = append(c.parts, c.part)
}

// unjoined is the one error of a join, if it has but one.
func unjoined(err error) error {
	if j, ok := err.(interface{ Unwrap() []error }); ok && len(j.Unwrap()) == 1 {
		return j.Unwrap()[0]
	}
	return err
}
