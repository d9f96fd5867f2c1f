package shard

import (
	"crypto/sha256"
	"encoding/binary"
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

// Order is the sequence in which training sees a data set: an endless row of
// positions 0, 1, 2, …, the e-th run of Rows() of them being epoch e, a
// permutation of the rows. It depends on the manifest's digest, the seed and
// the window alone, not on the number of workers, so a run may stop at any step
// and go on with another number of them; its state is one integer.
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
//
// Reading thus stays within w row groups at a time, while every window mixes
// samples from all over the data set. Any step is found without replaying those
// before it. Memory is 16 bytes a row group and 8 bytes a row of two windows. An
// Order is safe for concurrent use.
type Order struct {
	manifest specstream.Digest
	seed     uint64
	window   int
	rows     int64
	starts   []int64 // of each row group, and the number of rows at the end

	mu     sync.Mutex
	epoch  epochOrder
	recent [2]windowOrder
	turn   int
}

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

// NewOrder returns the order of a data set. A window of 0 is [DefaultWindow];
// a larger one mixes better and needs a larger [DatasetOptions].CacheBytes.
func NewOrder(m Manifest, seed uint64, window int) (*Order, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	if window == 0 {
		window = DefaultWindow
	}
	if window < 0 {
		return nil, fmt.Errorf("order: a window of %d row groups", window)
	}
	d, err := m.Digest()
	if err != nil {
		return nil, err
	}
	o := &Order{manifest: d, seed: seed, window: window, rows: m.Counts.Samples, starts: []int64{0}}
	for _, s := range m.Shards {
		for _, g := range s.RowGroups {
			o.starts = append(o.starts, o.starts[len(o.starts)-1]+g.Rows)
		}
	}
	if len(o.starts) > math.MaxInt32 {
		return nil, fmt.Errorf("order: %d row groups, the most is %d", len(o.starts)-1, math.MaxInt32-1)
	}
	return o, nil
}

// Rows returns the number of rows, which is the length of an epoch.
func (o *Order) Rows() int64 { return o.rows }

// Step returns the rows of step k of global batches of g samples: those at the
// positions k·g … (k+1)·g−1, 0-based row numbers for [Dataset.Batch]. A step at
// the end of an epoch goes on into the next. It panics if k or g is negative or
// the position passes 2^63.
func (o *Order) Step(k, g int64) []int64 {
	pos := position(k, g)
	o.mu.Lock()
	defer o.mu.Unlock()
	out := make([]int64, 0, g)
	for int64(len(out)) < g {
		epoch, at := pos/o.rows, pos%o.rows
		o.setEpoch(epoch)
		w := int64(sort.Search(len(o.epoch.starts), func(i int) bool { return o.epoch.starts[i] > at }) - 1)
		rows := o.windowRows(epoch, w)[at-o.epoch.starts[w]:]
		rows = rows[:min(int64(len(rows)), g-int64(len(out)))]
		out = append(out, rows...)
		pos += int64(len(rows))
	}
	return out
}

// Epoch returns the epoch, from 0, of step k's first position, and how many
// steps of g samples, k included, begin before that epoch ends. It panics as
// Step does, and if g is 0.
func (o *Order) Epoch(k, g int64) (epoch, left int64) {
	pos := position(k, g)
	return pos / o.rows, (o.rows - pos%o.rows + g - 1) / g
}

// position returns k·g.
func position(k, g int64) int64 {
	if k < 0 || g < 0 || (g > 0 && k >= math.MaxInt64/g) {
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
		if (i+1)%o.window == 0 || i+1 == n {
			e.starts = append(e.starts, at)
		}
	}
	o.epoch = e
}

// windowRows returns the rows of a window of the current epoch.
func (o *Order) windowRows(epoch, w int64) []int64 {
	for i := range o.recent {
		if r := &o.recent[i]; r.valid && r.epoch == epoch && r.window == w {
			return r.rows
		}
	}
	first := int(w) * o.window
	rows := make([]int64, 0, o.epoch.starts[w+1]-o.epoch.starts[w])
	for _, b := range o.epoch.blocks[first:min(first+o.window, len(o.epoch.blocks))] {
		for r := o.starts[b]; r < o.starts[b+1]; r++ {
			rows = append(rows, r)
		}
	}
	shuffle(o.random("window", epoch, w), rows)
	o.recent[o.turn] = windowOrder{true, epoch, w, rows}
	o.turn = 1 - o.turn
	return rows
}

// random returns the generator of one purpose; see Order's algorithm.
func (o *Order) random(purpose string, epoch, index int64) *rand.ChaCha8 {
	b := []byte(orderVersion + "\x00" + string(o.manifest) + "\x00" + purpose + "\x00")
	for _, v := range []uint64{o.seed, uint64(o.window), uint64(epoch), uint64(index)} {
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
