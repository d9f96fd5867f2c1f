package ingest

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
)

// A batch is large enough that handing it on costs little beside its records,
// and small enough that all workers are busy on small inputs.
const (
	batchRecords = 128
	batchBytes   = 128 << 10
)

// batch is a run of records of one input, in order.
type batch struct {
	reader *data.Reader
	raws   []data.Raw
	arena  []byte // what raws' JSON points into

	out  []outcome     // of raws, once done is closed
	done chan struct{} // closed by the worker

	file   string        // input the records come from
	bytes  int64         // stored bytes read so far, over all inputs
	source *shard.Source // set on the last batch of an input
	err    error         // what ended reading, behind raws
}

// outcome is what became of one record.
type outcome struct {
	samples []data.Sample
	tooLong int
	changed []string
	err     error
}

// isRecord reports whether err is about the record alone.
func (o outcome) isRecord() bool {
	var b *data.BadRecordError
	var s *data.SkipError
	return errors.As(o.err, &b) || errors.As(o.err, &s)
}

// pipeline reads in one goroutine and encodes in several; next gives the
// batches in the order they were read. Errors travel in that order too, so that
// which of two is reported does not depend on timing.
type pipeline struct {
	jobs   chan *batch // to the workers
	order  chan *batch // the same, to next
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

func startPipeline(ctx context.Context, j *job) *pipeline {
	ctx, cancel := context.WithCancel(ctx)
	p := &pipeline{jobs: make(chan *batch), order: make(chan *batch, 2*j.Workers), cancel: cancel}
	p.wg.Go(func() {
		defer close(p.order)
		defer close(p.jobs)
		p.read(ctx, j)
	})
	for range j.Workers {
		p.wg.Go(func() {
			for b := range p.jobs {
				b.encode(j.encoder)
				close(b.done)
			}
		})
	}
	return p
}

// stop ends the goroutines and waits for them.
func (p *pipeline) stop() {
	p.cancel()
	for range p.order { // what was read and not taken
	}
	p.wg.Wait()
}

// next returns the next batch, encoded, and io.EOF behind the last.
func (p *pipeline) next(ctx context.Context) (*batch, error) {
	var b *batch
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case b = <-p.order:
	}
	if b == nil {
		// The reader also stops, without a word, when the context ends.
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, io.EOF
	}
	select {
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-b.done:
		return b, nil
	}
}

// send hands a batch on. It reports false when the pipeline stops.
func (p *pipeline) send(ctx context.Context, b *batch) bool {
	b.done = make(chan struct{})
	select {
	case <-ctx.Done():
		return false
	case p.order <- b:
	}
	select {
	case <-ctx.Done():
		return false
	case p.jobs <- b:
		return true
	}
}

// read reads all inputs. What ends it early is the err of the last batch.
func (p *pipeline) read(ctx context.Context, j *job) {
	var bytes int64 // of the inputs that are read to their end
	left := int64(j.Spec.Limit)
	for _, uri := range j.inputs {
		r, err := data.OpenWith(ctx, j.Spec.Format, uri, j.Opener)
		if err != nil {
			p.send(ctx, &batch{file: uri, err: err})
			return
		}
		for more := true; more; {
			b := &batch{reader: r, file: uri}
			b.err = b.fill(r, left)
			if j.Spec.Limit > 0 {
				left -= int64(len(b.raws))
			}
			limited := j.Spec.Limit > 0 && left == 0
			more = b.err == nil && !limited
			if b.err == io.EOF {
				b.err = nil
			} else if b.err == nil && limited {
				b.err = r.Drain()
			}
			in := r.Input()
			b.bytes = bytes + in.Bytes
			if !more {
				bytes = b.bytes
				b.source = &shard.Source{URI: in.URI, Bytes: in.Bytes, SHA256: in.SHA256, Records: in.Records}
				if err := r.Close(); err != nil && b.err == nil {
					b.err = err
				}
			}
			failed := b.err != nil
			if !p.send(ctx, b) {
				if more {
					_ = r.Close() // stopping: the cause is reported already
				}
				return
			}
			if failed {
				return
			}
		}
		if j.Spec.Limit > 0 && left == 0 {
			return
		}
	}
}

// fill reads records until the batch is full or limit are read; 0 is no limit.
// It returns nil when there may be more, and what ended reading otherwise.
func (b *batch) fill(r *data.Reader, limit int64) error {
	size := 0
	for len(b.raws) < batchRecords && size < batchBytes && (limit == 0 || int64(len(b.raws)) < limit) {
		raw, err := r.NextRaw()
		if err != nil {
			return err
		}
		if raw.JSON != nil {
			// The arena may move as it grows; the bytes of earlier records
			// stay where they are, in the old one.
			n := len(b.arena)
			b.arena = append(b.arena, raw.JSON...)
			raw.JSON = b.arena[n:len(b.arena):len(b.arena)]
		}
		size += len(raw.JSON)
		for _, c := range raw.Cells {
			size += len(c)
		}
		b.raws = append(b.raws, raw)
	}
	return nil
}

// encode decodes and tokenises the records.
func (b *batch) encode(e *data.Encoder) {
	b.out = make([]outcome, len(b.raws))
	for i, raw := range b.raws {
		o := &b.out[i]
		rec, err := b.reader.Decode(raw)
		if err != nil {
			o.err = err
			continue
		}
		o.changed = rec.Changed
		o.samples, o.tooLong, o.err = e.Samples(rec)
	}
}
