package ingest

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/clean"
)

// A batch is large enough that handing it on costs little beside its records,
// and small enough that all workers are busy on small parts.
const (
	batchRecords = 128
	batchBytes   = 128 << 10
	// poolBytes is the largest arena that is used again: a long record's is not
	// kept.
	poolBytes = 1 << 20
)

// batch is a run of records of one part, in order.
type batch struct {
	reader *data.Reader
	items  []item
	arena  []byte // what the raws' JSON points into

	done chan struct{} // closed by the worker
	err  error         // what ended reading, behind items; io.EOF at the part's end
}

// item is one record on its way.
type item struct {
	raw  data.Raw
	drop *entry // it is a duplicate: it is not even decoded

	record    data.Record
	signature clean.Signature
	encoded   data.Encoded
	err       error
}

// batchPool keeps batches for their memory.
type batchPool struct{ p sync.Pool }

func (p *batchPool) get() *batch {
	b, ok := p.p.Get().(*batch)
	if !ok {
		b = &batch{items: make([]item, 0, batchRecords)}
	}
	return b
}

// put takes a batch back whose items nobody uses any more.
func (p *batchPool) put(b *batch) {
	clear(b.items)
	b.items, b.arena, b.reader, b.err = b.items[:0], b.arena[:0], nil, nil
	if cap(b.arena) <= poolBytes {
		p.p.Put(b)
	}
}

// pass is one reading of a part.
type pass struct {
	job     *Job
	part    int
	workers int
	// drops are the part's duplicates in order; may be nil.
	drops *lineReader[entry]
	// work is called for every record that is no duplicate, by several
	// goroutines; it sets item.err.
	work func(r *data.Reader, it *item)
	// take is called with each batch in the order of the records.
	take func(ctx context.Context, items []item) error
}

// pipe carries batches from the goroutine that reads, by those that work, to the
// one that takes. Errors travel in the records' order too, so that which of two
// is reported does not depend on timing.
type pipe struct {
	jobs  chan *batch // to the workers
	order chan *batch // the same, to take
}

// run reads the part to its end.
func (p *pass) run(ctx context.Context) (err error) {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	c := pipe{jobs: make(chan *batch), order: make(chan *batch, 2*p.workers)}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	r, err := data.OpenPart(ctx, p.job.format, p.job.plan.Parts[p.part].Part, p.job.o.Open, p.job.plan.Spec.MaxExpansion)
	if err != nil {
		return err
	}
	wg.Go(func() {
		defer close(c.order)
		defer close(c.jobs)
		p.read(ctx, r, c)
	})
	for range p.workers {
		wg.Go(func() {
			for b := range c.jobs {
				for i := range b.items {
					if it := &b.items[i]; it.drop == nil {
						p.work(b.reader, it)
					}
				}
				close(b.done)
			}
		})
	}
	defer func() {
		cancel()
		wg.Wait() // nobody uses the reader any more
		if e := r.Close(); e != nil && err == nil {
			err = e
		}
	}()
	for b := range c.order {
		select {
		case <-ctx.Done():
			return context.Cause(outer)
		case <-b.done:
		}
		if err := p.take(ctx, b.items); err != nil {
			return err
		}
		if b.err == io.EOF {
			return nil
		}
		if b.err != nil {
			return b.err
		}
		p.job.batches.put(b)
	}
	return context.Cause(outer) // reading stops without a word only when the context ends
}

// read reads batches until the part ends; what ends it is the last batch's err.
func (p *pass) read(ctx context.Context, r *data.Reader, c pipe) {
	drop, dropErr := p.nextDrop()
	for {
		b := p.job.batches.get()
		b.reader, b.done = r, make(chan struct{})
		b.err = b.fill(r)
		for i := range b.items {
			if it := &b.items[i]; drop != nil && it.raw.Number == drop.Record {
				it.drop = drop
				drop, dropErr = p.nextDrop()
			}
		}
		if dropErr != nil {
			b.err = dropErr
		} else if b.err == io.EOF && drop != nil {
			b.err = errors.New("the duplicates found are not those of the part: remove what was remembered of it")
		}
		end := b.err != nil
		for _, to := range []chan *batch{c.order, c.jobs} {
			select {
			case <-ctx.Done():
				return
			case to <- b:
			}
		}
		if end {
			return
		}
	}
}

func (p *pass) nextDrop() (*entry, error) {
	if p.drops == nil {
		return nil, nil
	}
	e, err := p.drops.next()
	if err == io.EOF {
		return nil, nil
	}
	return &e, err
}

// fill reads records until the batch is full. It returns nil when there may be
// more, and what ended reading otherwise.
func (b *batch) fill(r *data.Reader) error {
	size := 0
	for len(b.items) < batchRecords && size < batchBytes {
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
		b.items = append(b.items, item{raw: raw})
	}
	return nil
}

// clean decodes and cleans a record.
func (j *Job) clean(r *data.Reader, it *item) bool {
	if it.record, it.err = r.Decode(it.raw); it.err != nil {
		return false
	}
	it.err = j.cleaner.Clean(&it.record)
	return it.err == nil
}
