package shard

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"sort"
	"sync"

	"github.com/specstream/specstream"
)

// DefaultWindow is the number of row groups rows are shuffled within.
const DefaultWindow = 8

// orderVersion names the algorithm; it is part of the key, so that another
// algorithm could never be taken for this one.
const orderVersion = "specstream.order.v1"

// OrderOptions say which of a data set's orders is meant.
type OrderOptions struct {
	// Seed picks one of the orders.
	Seed uint64
	// GlobalBatch is the number of samples of a step, over all workers.
	GlobalBatch int64
	// Window is the number of row groups that rows are shuffled within. Default
	// [DefaultWindow]; a larger one mixes better and needs a larger
	// [DatasetOptions].CacheBytes.
	Window int
	// Bucketing gives each step samples of similar lengths; see [Order].
	Bucketing bool
	// Blobs is where the data set lies. Bucketing needs it, for the lengths.
	Blobs Blobs
}

// Order is the sequence in which training sees a data set: an endless row of
// positions 0, 1, 2, …, the e-th run of Rows() of them being epoch e, a
// permutation of the rows. Step k takes the positions k·g … (k+1)·g−1 for a
// global batch of g samples. The sequence depends on the manifest's digest, the
// seed and the window alone, with bucketing on the global batch too, and never
// on the number of workers: a run may stop at any step and go on with another
// number of them. Its state is one integer; see [OrderState].
//
// # Algorithm, version 1
//
//   - Random numbers are the 64-bit outputs of ChaCha8 (as specified by C2SP,
//     math/rand/v2's) whose 32-byte seed is the SHA-256 of
//     "specstream.order.v1", a zero byte, the manifest's digest as text, a
//     zero byte, the purpose as text, a zero byte, and then seed, window, epoch and
//     index as 64-bit little-endian integers.
//   - A number below n is the high half of the 128-bit product of an output and
//     n, drawn again while the low half is below 2^64 mod n (Lemire, 2019).
//   - Shuffling is Fisher and Yates's, from the last element down: for i = n−1
//     … 1 swap elements i and a number below i+1.
//   - An epoch shuffles the data set's row groups (purpose "blocks", index 0),
//     cuts that sequence into windows of w row groups (the last may be shorter),
//     lists the rows of a window's groups in order, and shuffles them (purpose
//     "window", index the window's number in the epoch).
//   - With bucketing, the rows at the n·g positions of the n steps that lie
//     wholly within a window are then sorted by length, those of equal length
//     staying in order, and cut into n batches of g, which are shuffled (purpose
//     "buckets", index as before). Rows of steps that reach over a window's ends
//     stay where they are: at most two steps a window have samples of any length.
//
// Reading thus stays within w row groups at a time, while every window mixes
// samples from all over the data set. Any step is found without replaying those
// before it. Memory is 20 bytes a row group and 8 bytes a row of two windows,
// and while a window is bucketed 12 more bytes a row of it and the lengths of the
// shards it touches. An Order is safe for concurrent use.
type Order struct {
	manifest specstream.Digest
	o        OrderOptions
	shards   []Shard
	rows     int64
	groups   []orderGroup
	starts   []int64 // of each row group, and the number of rows at the end

	mu     sync.Mutex
	epoch  epochOrder
	recent [2]windowOrder
	turn   int
	index  *lru[*shardIndex]
}

// orderGroup places a row group.
type orderGroup struct{ shard, index int32 }

// epochOrder is one epoch's sequence of row groups.
type epochOrder struct {
	valid  bool
	epoch  int64
	blocks []int32
	starts []int64 // position in the epoch where each window begins, and the end
}

// windowOrder is one window's rows in order.
type windowOrder struct {
	valid         bool
	epoch, window int64
	rows          []int64
}

// NewOrder returns an order of a data set.
func NewOrder(m Manifest, o OrderOptions) (*Order, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if o.Window == 0 {
		o.Window = DefaultWindow
	}
	if o.Window < 0 {
		return nil, specstream.Invalid("window", "%d row groups", o.Window)
	}
	if o.GlobalBatch < 1 {
		return nil, specstream.Invalid("global_batch", "%d samples is not positive", o.GlobalBatch)
	}
	if o.Bucketing && o.Blobs == nil {
		return nil, errors.New("order: bucketing needs the store that has the lengths")
	}
	d, err := m.Digest()
	if err != nil {
		return nil, err
	}
	order := &Order{manifest: d, o: o, shards: m.Shards, rows: m.Counts.Samples, starts: []int64{0}, index: newCountCache[*shardIndex](indexesKept)}
	at := int64(0)
	for i, s := range m.Shards {
		for j, rows := range s.Groups {
			at += rows
			order.starts = append(order.starts, at)
			order.groups = append(order.groups, orderGroup{int32(i), int32(j)})
		}
	}
	if len(order.starts) > math.MaxInt32 {
		return nil, fmt.Errorf("order: %d row groups, the most is %d", len(order.starts)-1, math.MaxInt32-1)
	}
	return order, nil
}

// Rows returns the number of rows, which is the length of an epoch.
func (o *Order) Rows() int64 { return o.rows }

// GlobalBatch returns the number of samples of a step.
func (o *Order) GlobalBatch() int64 { return o.o.GlobalBatch }

// Step returns the rows of step k, 0-based row numbers for [Dataset.Batch]. A
// step at the end of an epoch goes on into the next. It fails only with
// bucketing, where lengths can't be read. It panics if k is negative or the
// position passes 2^63.
func (o *Order) Step(ctx context.Context, k int64) ([]int64, error) {
	g := o.o.GlobalBatch
	pos := position(k, g)
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]int64, 0, g)
	for int64(len(out)) < g {
		epoch, at := pos/o.rows, pos%o.rows
		o.setEpoch(epoch)
		w := int64(sort.Search(len(o.epoch.starts), func(i int) bool { return o.epoch.starts[i] > at }) - 1)
		rows, err := o.windowRows(ctx, epoch, w)
		if err != nil {
			return nil, fmt.Errorf("order: %w", err)
		}
		rows = rows[at-o.epoch.starts[w]:]
		rows = rows[:min(int64(len(rows)), g-int64(len(out)))]
		out = append(out, rows...)
		pos += int64(len(rows))
	}
	return out, nil
}

// Epoch returns the epoch, from 0, of step k's first position, and how many
// steps, k included, begin before that epoch ends. It panics as Step does.
func (o *Order) Epoch(k int64) (epoch, left int64) {
	g := o.o.GlobalBatch
	pos := position(k, g)
	return pos / o.rows, (o.rows - pos%o.rows + g - 1) / g
}

// position returns k·g.
func position(k, g int64) int64 {
	if k < 0 || k >= math.MaxInt64/g {
		panic(fmt.Sprintf("shard: step %d of batches of %d", k, g))
	}
	return k * g
}

// setEpoch makes o.epoch that of epoch.
func (o *Order) setEpoch(epoch int64) {
	if o.epoch.valid && o.epoch.epoch == epoch {
		return
	}
	n := len(o.starts) - 1
	e := epochOrder{valid: true, epoch: epoch, blocks: make([]int32, n), starts: []int64{0}}
	for i := range e.blocks {
		e.blocks[i] = int32(i)
	}
	shuffle(o.random("blocks", epoch, 0), e.blocks)
	at := int64(0)
	for i, b := range e.blocks {
		at += o.starts[b+1] - o.starts[b]
		if (i+1)%o.o.Window == 0 || i+1 == n {
			e.starts = append(e.starts, at)
		}
	}
	o.epoch = e
}

// windowRows returns the rows of a window of the current epoch.
func (o *Order) windowRows(ctx context.Context, epoch, w int64) ([]int64, error) {
	for i := range o.recent {
		if r := &o.recent[i]; r.valid && r.epoch == epoch && r.window == w {
			return r.rows, nil
		}
	}
	first := int(w) * o.o.Window
	rows := make([]int64, 0, o.epoch.starts[w+1]-o.epoch.starts[w])
	blocks := o.epoch.blocks[first:min(first+o.o.Window, len(o.epoch.blocks))]
	for _, b := range blocks {
		for r := o.starts[b]; r < o.starts[b+1]; r++ {
			rows = append(rows, r)
		}
	}
	shuffle(o.random("window", epoch, w), rows)
	if o.o.Bucketing {
		if err := o.bucket(ctx, epoch, w, blocks, rows); err != nil {
			return nil, err
		}
	}
	o.recent[o.turn] = windowOrder{true, epoch, w, rows}
	o.turn = 1 - o.turn
	return rows, nil
}

// random returns the generator of one purpose; see Order's algorithm.
func (o *Order) random(purpose string, epoch, index int64) *rand.ChaCha8 {
	b := []byte(orderVersion + "\x00" + string(o.manifest) + "\x00" + purpose + "\x00")
	for _, v := range []uint64{o.o.Seed, uint64(o.o.Window), uint64(epoch), uint64(index)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return rand.NewChaCha8(sha256.Sum256(b))
}

// below returns a number in 0..n−1; n is positive. The standard library's own
// bounded numbers are not promised to stay the same.
func below(r *rand.ChaCha8, n uint64) uint64 {
	hi, lo := bits.Mul64(r.Uint64(), n)
	if lo < n {
		for least := -n % n; lo < least; {
			hi, lo = bits.Mul64(r.Uint64(), n)
		}
	}
	return hi
}

func shuffle[T any](r *rand.ChaCha8, v []T) {
	for i := len(v) - 1; i > 0; i-- {
		j := below(r, uint64(i+1))
		v[i], v[j] = v[j], v[i]
	}
}

// Slice returns the positions that a rank of world workers takes: rank,
// rank+world, rank+2·world, …. Ranks differ by at most one in number, and
// together they take each position once. It panics unless 0 ≤ rank < world.
func Slice(positions []int64, rank, world int) []int64 {
	if rank < 0 || rank >= world {
		panic(fmt.Sprintf("shard: rank %d of %d", rank, world))
	}
	out := make([]int64, 0, (len(positions)-rank+world-1)/world)
	for i := rank; i < len(positions); i += world {
		out = append(out, positions[i])
	}
	return out
}
