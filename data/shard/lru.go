package shard

import (
	"container/list"
	"context"
	"errors"
	"sync"

	"github.com/apache/arrow/go/v17/arrow"
)

// lru keeps the most recently used values, within a bound on the sum of their
// sizes, and lets concurrent callers share one load.
type lru[V any] struct {
	limit   int64
	size    func(V) int64
	retain  func(V) // takes a reference for a caller; may be nil
	release func(V) // gives the lru's reference up; may be nil

	mu      sync.Mutex
	total   int64
	entries map[int]*lruEntry[V]
	recent  *list.List // of loaded *lruEntry[V], the latest in front
}

type lruEntry[V any] struct {
	key    int
	done   chan struct{} // closed when loaded or err is set
	loaded bool
	value  V // the lru holds one reference
	err    error
	size   int64
	at     *list.Element
}

// newGroupCache keeps decoded row groups within a bound of bytes.
func newGroupCache(limit int64) *lru[arrow.Record] {
	return &lru[arrow.Record]{limit: limit, size: recordBytes, retain: arrow.Record.Retain, release: arrow.Record.Release}
}

// newCountCache keeps a number of values that the collector frees.
func newCountCache[V any](limit int64) *lru[V] {
	return &lru[V]{limit: limit, size: func(V) int64 { return 1 }}
}

// get returns a value, loading it if need be, with a reference for the caller.
func (c *lru[V]) get(ctx context.Context, key int, load func() (V, error)) (v V, err error) {
	for {
		if err := ctx.Err(); err != nil {
			return v, err
		}
		c.mu.Lock()
		if c.entries == nil {
			c.entries, c.recent = map[int]*lruEntry[V]{}, list.New()
		}
		e, ok := c.entries[key]
		if ok && e.loaded {
			c.hold(e.value)
			c.recent.MoveToFront(e.at)
			c.mu.Unlock()
			return e.value, nil
		}
		if !ok {
			e = &lruEntry[V]{key: key, done: make(chan struct{})}
			c.entries[key] = e
			c.mu.Unlock()
			return c.fill(e, load)
		}
		c.mu.Unlock()
		select {
		case <-e.done:
			// A load that was cancelled is nobody else's failure. Otherwise go
			// round: the entry is there, or was evicted already.
			if e.err != nil && !errors.Is(e.err, context.Canceled) && !errors.Is(e.err, context.DeadlineExceeded) {
				return v, e.err
			}
		case <-ctx.Done():
			return v, ctx.Err()
		}
	}
}

func (c *lru[V]) hold(v V) {
	if c.retain != nil {
		c.retain(v)
	}
}

// fill loads an entry and makes room for it.
func (c *lru[V]) fill(e *lruEntry[V], load func() (V, error)) (V, error) {
	v, err := load()
	c.mu.Lock()
	defer c.mu.Unlock()
	defer close(e.done)
	if err != nil {
		e.err = err
		delete(c.entries, e.key)
		return v, err
	}
	c.hold(v) // the caller's reference
	e.value, e.loaded, e.size = v, true, c.size(v)
	e.at = c.recent.PushFront(e)
	c.total += e.size
	for c.total > c.limit {
		c.evict(c.recent.Back().Value.(*lruEntry[V]))
	}
	return v, nil
}

// evict drops a loaded entry; c.mu is held.
func (c *lru[V]) evict(e *lruEntry[V]) {
	c.recent.Remove(e.at)
	delete(c.entries, e.key)
	c.total -= e.size
	if c.release != nil {
		c.release(e.value)
	}
}

// clear drops all loaded entries.
func (c *lru[V]) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.recent != nil && c.recent.Len() > 0 {
		c.evict(c.recent.Back().Value.(*lruEntry[V]))
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
