package shard

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
)

// groupCache keeps the most recently used decoded row groups, within a bound of
// bytes, and lets concurrent callers share one load.
type groupCache struct {
	mu      sync.Mutex
	limit   int64
	bytes   int64
	entries map[int]*groupEntry
	recent  *list.List // of loaded *groupEntry, the latest in front
}

type groupEntry struct {
	group int
	done  chan struct{} // closed when rec or err is set
	rec   arrow.Record  // the cache holds one reference
	err   error
	bytes int64
	at    *list.Element
}

func (c *groupCache) init(limit int64) {
	c.limit, c.entries, c.recent = limit, map[int]*groupEntry{}, list.New()
}

// get returns a row group, loading it if need be. The caller releases it.
func (c *groupCache) get(ctx context.Context, group int, load func() (arrow.Record, error)) (arrow.Record, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c.mu.Lock()
		e, ok := c.entries[group]
		if ok && e.rec != nil {
			e.rec.Retain()
			c.recent.MoveToFront(e.at)
			c.mu.Unlock()
			return e.rec, nil
		}
		if !ok {
			e = &groupEntry{group: group, done: make(chan struct{})}
			c.entries[group] = e
			c.mu.Unlock()
			return c.fill(e, load)
		}
		c.mu.Unlock()
		select {
		case <-e.done:
			// A load that was cancelled is nobody else's failure. Otherwise go
			// round: the entry is there, or was evicted already.
			if e.err != nil && !errors.Is(e.err, context.Canceled) && !errors.Is(e.err, context.DeadlineExceeded) {
				return nil, e.err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// fill loads an entry and makes room for it.
func (c *groupCache) fill(e *groupEntry, load func() (arrow.Record, error)) (arrow.Record, error) {
	rec, err := load()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(e.done)
	if err != nil {
		e.err = err
		delete(c.entries, e.group)
		return nil, err
	}
	rec.Retain() // the caller's reference
	e.rec, e.bytes = rec, recordBytes(rec)
	e.at = c.recent.PushFront(e)
	c.bytes += e.bytes
	for c.bytes > c.limit {
		c.evict(c.recent.Back().Value.(*groupEntry))
	}
	return rec, nil
}

// evict drops a loaded entry; c.mu is held.
func (c *groupCache) evict(e *groupEntry) {
	c.recent.Remove(e.at)
	delete(c.entries, e.group)
	c.bytes -= e.bytes
	e.rec.Release()
}

// clear drops all loaded entries.
func (c *groupCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.recent.Len() > 0 {
		c.evict(c.recent.Back().Value.(*groupEntry))
	}
}

// recordBytes is the memory of a record's buffers, in bytes.
func recordBytes(rec arrow.Record) int64 {
	n := int64(0)
	for _, c := range rec.Columns() {
		n += dataBytes(c.Data())
	}
	return n
}

func dataBytes(d arrow.ArrayData) int64 {
	n := int64(0)
	for _, b := range d.Buffers() {
		if b != nil {
			n += int64(b.Cap())
		}
	}
	for _, c := range d.Children() {
		n += dataBytes(c)
	}
	return n
}
