package storetest

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/specstream/specstream/checkpoints"
)

// Fault is what goes wrong with one operation.
type Fault int

// Faults. Those that do not fit an operation do nothing to it.
const (
	None       Fault = iota
	FailBefore       // it does not happen, and fails
	LoseReply        // it happens, and fails
	FlipBit          // one bit of what is read is wrong
	Cut              // what is read, or listed, breaks off half way
)

// Op is one operation on a [Faulty] store.
type Op struct {
	N    int64  // counts from 0
	Name string // "put", "create", "get", "range", "stat", "list", "delete"
	Key  string
}

// Write reports whether the operation changes the store.
func (o Op) Write() bool { return o.Name == "put" || o.Name == "create" || o.Name == "delete" }

// Faulty makes a store's operations fail as planned. Its errors wrap
// [checkpoints.ErrUnavailable].
type Faulty struct {
	Store checkpoints.Store
	// Plan says what goes wrong with an operation. It may be called concurrently.
	Plan func(Op) Fault

	n        atomic.Int64
	Injected atomic.Int64 // faults so far
}

var _ checkpoints.Store = (*Faulty)(nil)

// Random returns a plan in which each operation meets one of the faults with
// probability p.
func Random(seed uint64, p float64, faults ...Fault) func(Op) Fault {
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(Op) Fault {
		mu.Lock()
		defer mu.Unlock()
		if rng.Float64() >= p {
			return None
		}
		return faults[rng.IntN(len(faults))]
	}
}

func (f *Faulty) plan(name, key string) Fault {
	fault := f.Plan(Op{N: f.n.Add(1) - 1, Name: name, Key: key})
	if fault != None {
		f.Injected.Add(1)
	}
	return fault
}

func injected(name, key, what string) error {
	return fmt.Errorf("%s %s: %w: injected: %s", name, key, checkpoints.ErrUnavailable, what)
}

// do runs a write, or a read whose answer is lost as a whole.
func (f *Faulty) do(name, key string, op func() error) (Fault, error) {
	fault := f.plan(name, key)
	if fault == FailBefore {
		return fault, injected(name, key, "not sent")
	}
	err := op()
	if fault == LoseReply {
		return fault, injected(name, key, "reply lost")
	}
	return fault, err
}

// Put implements [checkpoints.Store].
func (f *Faulty) Put(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	_, err := f.do("put", key, func() error { return f.Store.Put(ctx, key, body, size) })
	return err
}

// PutIfAbsent implements [checkpoints.Store].
func (f *Faulty) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	_, err := f.do("create", key, func() error { return f.Store.PutIfAbsent(ctx, key, body) })
	return err
}

// Delete implements [checkpoints.Store].
func (f *Faulty) Delete(ctx context.Context, key string) error {
	_, err := f.do("delete", key, func() error { return f.Store.Delete(ctx, key) })
	return err
}

// Stat implements [checkpoints.Store].
func (f *Faulty) Stat(ctx context.Context, key string) (info checkpoints.Info, err error) {
	_, err = f.do("stat", key, func() (err error) {
		info, err = f.Store.Stat(ctx, key)
		return err
	})
	return info, err
}

// Get implements [checkpoints.Store].
func (f *Faulty) Get(ctx context.Context, key string) (rc io.ReadCloser, info checkpoints.Info, err error) {
	fault, err := f.do("get", key, func() (err error) {
		rc, info, err = f.Store.Get(ctx, key)
		return err
	})
	if err != nil {
		closeLost(rc)
		return nil, checkpoints.Info{}, err
	}
	return spoil(rc, info.Size, fault, key), info, nil
}

// GetRange implements [checkpoints.Store].
func (f *Faulty) GetRange(ctx context.Context, key string, off, n int64) (rc io.ReadCloser, err error) {
	fault, err := f.do("range", key, func() (err error) {
		rc, err = f.Store.GetRange(ctx, key, off, n)
		return err
	})
	if err != nil {
		closeLost(rc)
		return nil, err
	}
	return spoil(rc, n, fault, key), nil
}

func closeLost(rc io.ReadCloser) {
	if rc != nil {
		rc.Close()
	}
}

// List implements [checkpoints.Store].
func (f *Faulty) List(ctx context.Context, prefix, startAfter string) iter.Seq2[checkpoints.Info, error] {
	return func(yield func(checkpoints.Info, error) bool) {
		fault := f.plan("list", prefix)
		if fault == FailBefore || fault == LoseReply {
			yield(checkpoints.Info{}, injected("list", prefix, "not sent"))
			return
		}
		n := 0
		for info, err := range f.Store.List(ctx, prefix, startAfter) {
			if !yield(info, err) {
				return
			}
			if n++; fault == Cut && n == 2 {
				yield(checkpoints.Info{}, injected("list", prefix, "broke off"))
				return
			}
		}
	}
}

// spoil damages a body of size bytes.
func spoil(rc io.ReadCloser, size int64, fault Fault, key string) io.ReadCloser {
	if size == 0 || fault != FlipBit && fault != Cut {
		return rc
	}
	return &spoilt{ReadCloser: rc, at: size / 2, cut: fault == Cut, key: key}
}

type spoilt struct {
	io.ReadCloser
	at  int64 // bytes until the damage
	cut bool
	key string
}

func (s *spoilt) Read(p []byte) (int, error) {
	if s.cut {
		if s.at == 0 {
			return 0, injected("read", s.key, "broke off")
		}
		p = p[:min(int64(len(p)), s.at)]
	}
	n, err := s.ReadCloser.Read(p)
	if !s.cut && s.at >= 0 && s.at < int64(n) {
		p[s.at] ^= 0x10
	}
	s.at -= int64(n)
	return n, err
}
