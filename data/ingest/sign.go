package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/clean"
	"github.com/specstream/specstream/data/shard"
)

// Signed is what [Job.Sign] makes of a part.
type Signed struct {
	// Files are the blobs of the part's signatures, one behind the other.
	Files []shard.Blob `json:"files"`
	// Bad counts the bad records.
	Bad badRecords `json:"bad"`
	// Quarantine is the blob of the bad records, if there are any.
	Quarantine shard.Blob `json:"quarantine,omitzero"`

	stopped bool // there are more bad records than the job tolerates
}

func (s Signed) blobs() []shard.Blob { return append(slices.Clone(s.Files), s.Quarantine) }

// signed looks for the signatures of a part.
func (j *Job) signed(ctx context.Context, part int) (Signed, bool, error) {
	if err := j.checkPart(part); err != nil {
		return Signed{}, false, err
	}
	return recall[Signed](ctx, j.o, j.partKey(StageSign, part))
}

// Sign is the stage Sign of one part. More bad records than MaxBad allows in
// this part alone, or damage, are a [specstream.InputError].
func (j *Job) Sign(ctx context.Context, part int) error {
	if err := j.checkPart(part); err != nil {
		return err
	}
	j.tracker.start(StageSign, j.plan.Parts[part].Bytes, 1)
	s, err := j.sign(ctx, part, j.o.Workers)
	if err == nil {
		err = (&judge{job: j}).take(part, s.Bad)
	}
	j.tracker.end(err)
	return cause(ctx, err)
}

func (j *Job) sign(ctx context.Context, part, workers int) (Signed, error) {
	s, ok, err := j.signed(ctx, part)
	if err != nil || ok {
		j.tracker.skip(j.plan.Parts[part].Part)
		return s, err
	}
	var (
		lines lineWriter
		files = chunkWriter{ctx: ctx, store: j.o.Blobs}
		sigs  = clean.NewSignatureWriter(&files)
		meter = j.meter(part)
	)
	take := func(_ context.Context, items []item) error {
		for i := range items {
			it := &items[i]
			e, bad, err := entryOf(it.err)
			if err != nil {
				return err
			}
			s.Bad.Read++
			switch {
			case bad:
				s.Bad.add(e)
				if err := lines.add(e); err != nil {
					return err
				}
				if j.tolerance.Exceeded(s.Bad.Bad, s.Bad.Read, false) {
					return errTooManyBad
				}
			case it.err == nil:
				if err := sigs.Write(it.raw.Number, it.signature); err != nil {
					return fmt.Errorf("write signatures: %w", err)
				}
			}
		}
		meter(Progress{Read: int64(len(items))})
		return nil
	}
	p := pass{job: j, part: part, workers: workers, take: take, work: func(r *data.Reader, it *item) {
		if j.clean(r, it) {
			it.signature = j.cleaner.Sign(it.record)
		}
	}}
	err = p.run(ctx)
	s.stopped = errors.Is(err, errTooManyBad)
	if err != nil && !s.stopped {
		return s, err
	}
	if s.Quarantine, err = lines.store(ctx, j.o.Blobs); err != nil || s.stopped {
		return s, err
	}
	if err := sigs.Close(); err != nil {
		return s, fmt.Errorf("write signatures: %w", err)
	}
	if s.Files, err = files.close(); err != nil {
		return s, err
	}
	meter(Progress{Done: 1})
	return s, remember(ctx, j.o.Memo, j.partKey(StageSign, part), s)
}

// errTooManyBad ends a pass that has more bad records than a job tolerates.
var errTooManyBad = errors.New("too many bad records")

// entryOf describes a record that gives no sample, and passes any error on that
// is not about the record alone: behind damage nothing can be trusted.
func entryOf(err error) (e entry, bad bool, fatal error) {
	var b *data.BadRecordError
	var s *data.SkipError
	switch {
	case err == nil:
		return e, false, nil
	case errors.As(err, &b):
		return badEntry(b), true, nil
	case errors.As(err, &s):
		return skipEntry(s), false, nil
	}
	return e, false, err
}

// chunkBytes is the size of the blobs that a part's signatures are kept in.
const chunkBytes = 16 << 20

// chunkWriter stores what is written to it as blobs.
type chunkWriter struct {
	ctx   context.Context
	store Blobs
	buf   []byte
	files []shard.Blob
}

// Write implements [io.Writer].
func (w *chunkWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), chunkBytes-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		p = p[k:]
		if len(w.buf) == chunkBytes {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *chunkWriter) flush() error {
	d, err := w.store.PutBlob(w.ctx, w.buf)
	if err != nil {
		return fmt.Errorf("store signatures: %w", err)
	}
	w.files = append(w.files, shard.Blob{Digest: d, Bytes: int64(len(w.buf))})
	w.buf = nil // the store may keep it
	return nil
}

func (w *chunkWriter) close() ([]shard.Blob, error) {
	if len(w.buf) > 0 {
		if err := w.flush(); err != nil {
			return nil, err
		}
	}
	return w.files, nil
}

// chunkCache holds the one chunk that was read last, for all parts' readers.
type chunkCache struct {
	ctx   context.Context
	store Blobs

	mu     sync.Mutex
	digest specstream.Digest
	b      []byte
}

// read copies a blob's bytes from off on.
func (c *chunkCache) read(p []byte, d specstream.Digest, off int64) (n int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.digest != d {
		if c.b, err = readBlob(c.ctx, c.store, d); err != nil {
			c.digest = ""
			return 0, err
		}
		c.digest = d
	}
	return copy(p, c.b[min(off, int64(len(c.b))):]), nil
}

// chunkReader reads a part's signatures.
type chunkReader struct {
	cache *chunkCache
	files []shard.Blob
	size  int64
}

var _ clean.SignatureSource = (*chunkReader)(nil)

// Size is the number of bytes.
func (r *chunkReader) Size() int64 { return r.size }

// ReadAt implements [io.ReaderAt].
func (r *chunkReader) ReadAt(p []byte, off int64) (n int, err error) {
	for _, f := range r.files {
		if n == len(p) {
			return n, nil
		}
		if off >= f.Bytes {
			off -= f.Bytes
			continue
		}
		got, err := r.cache.read(p[n:], f.Digest, off)
		if n += got; err != nil {
			return n, err
		}
		off = 0
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}
