// Package mem keeps objects in memory: for tests and for trials that need not
// outlive the process.
package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/specstream/specstream/checkpoints"
)

// Store is a [checkpoints.Store] in memory. The zero value is not usable; see [New].
type Store struct {
	mu      sync.RWMutex
	objects map[string]object
	keys    []string // sorted
}

type object struct {
	body []byte // never written to once stored
	time time.Time
}

var _ checkpoints.Store = (*Store)(nil)

// New returns an empty store.
func New() *Store { return &Store{objects: map[string]object{}} }

var shared struct {
	sync.Mutex
	m map[string]*Store
}

// Shared returns the process's store of that name, made on first use.
func Shared(name string) *Store {
	shared.Lock()
	defer shared.Unlock()
	s := shared.m[name]
	if s == nil {
		if shared.m == nil {
			shared.m = map[string]*Store{}
		}
		s = New()
		shared.m[name] = s
	}
	return s
}

func check(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	if err := checkpoints.ValidateKey(key); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// Put implements [checkpoints.Store].
func (s *Store) Put(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	if err := check(ctx, "put", key); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(body, b); err != nil {
		return fmt.Errorf("put %s: read %d bytes of body: %w", key, size, err)
	}
	if err := ctx.Err(); err != nil { // reading the body may have taken long
		return fmt.Errorf("put %s: %w", key, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set(key, b)
}

// PutIfAbsent implements [checkpoints.Store].
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	if err := check(ctx, "create", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[key]; ok {
		return fmt.Errorf("create %s: %w", key, checkpoints.ErrExists)
	}
	return s.set(key, bytes.Clone(body))
}

// set stores b under key. It refuses what a file system would: a key that is a
// directory of another or lies under one.
func (s *Store) set(key string, b []byte) error {
	for i := range key {
		if key[i] == '/' {
			if _, ok := s.objects[key[:i]]; ok {
				return fmt.Errorf("put %s: %s is an object, not a directory", key, key[:i])
			}
		}
	}
	dir := key + "/"
	if i, _ := slices.BinarySearch(s.keys, dir); i < len(s.keys) && strings.HasPrefix(s.keys[i], dir) {
		return fmt.Errorf("put %s: it is a directory of %s", key, s.keys[i])
	}
	if _, ok := s.objects[key]; !ok {
		i, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Insert(s.keys, i, key)
	}
	s.objects[key] = object{body: b, time: time.Now()}
	return nil
}

func (s *Store) get(ctx context.Context, op, key string) (object, error) {
	if err := check(ctx, op, key); err != nil {
		return object{}, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	o, ok := s.objects[key]
	if !ok {
		return object{}, fmt.Errorf("%s %s: %w", op, key, checkpoints.ErrNotFound)
	}
	return o, nil
}

// Get implements [checkpoints.Store].
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, checkpoints.Info, error) {
	o, err := s.get(ctx, "get", key)
	if err != nil {
		return nil, checkpoints.Info{}, err
	}
	return io.NopCloser(bytes.NewReader(o.body)), o.info(key), nil
}

func (o object) info(key string) checkpoints.Info {
	return checkpoints.Info{Key: key, Size: int64(len(o.body)), ModTime: o.time}
}

// GetRange implements [checkpoints.Store].
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := checkpoints.ValidateRange(off, n); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	o, err := s.get(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	size := int64(len(o.body))
	if off >= size {
		return nil, fmt.Errorf("get %s: %w: offset %d of %d bytes", key, checkpoints.ErrRange, off, size)
	}
	return io.NopCloser(bytes.NewReader(o.body[off : off+min(n, size-off)])), nil
}

// Stat implements [checkpoints.Store].
func (s *Store) Stat(ctx context.Context, key string) (checkpoints.Info, error) {
	o, err := s.get(ctx, "stat", key)
	if err != nil {
		return checkpoints.Info{}, err
	}
	return o.info(key), nil
}

// List implements [checkpoints.Store]. It lists the objects there when it is called.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[checkpoints.Info, error] {
	return func(yield func(checkpoints.Info, error) bool) {
		s.mu.RLock()
		var found []checkpoints.Info
		i, _ := slices.BinarySearch(s.keys, max(prefix, startAfter))
		for ; i < len(s.keys) && strings.HasPrefix(s.keys[i], prefix); i++ {
			if k := s.keys[i]; k > startAfter {
				found = append(found, s.objects[k].info(k))
			}
		}
		s.mu.RUnlock()
		for _, info := range found {
			if err := ctx.Err(); err != nil {
				yield(checkpoints.Info{}, fmt.Errorf("list %s: %w", prefix, err))
				return
			}
			if !yield(info, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(checkpoints.Info{}, fmt.Errorf("list %s: %w", prefix, err))
		}
	}
}

// Delete implements [checkpoints.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := check(ctx, "delete", key); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.objects[key]; ok {
		delete(s.objects, key)
		i, _ := slices.BinarySearch(s.keys, key)
		s.keys = slices.Delete(s.keys, i, i+1)
	}
	return nil
}
