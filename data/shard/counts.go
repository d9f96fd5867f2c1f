package shard

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/specstream/specstream"
)

// Written is what one [Writer] has stored: all or a part of a data set.
type Written struct {
	// Shards are the files, in order; none if no sample was written.
	Shards []Shard `json:"shards"`
	// Counts are the sums over the samples.
	Counts Counts `json:"counts"`
	// Lengths is the histogram of the samples' lengths.
	Lengths Histogram `json:"lengths"`
	// MaxToken is the greatest token, -1 without one, and MaxSample the number
	// of the first sample that has it, from 1.
	MaxToken  int32 `json:"max_token"`
	MaxSample int64 `json:"max_sample"`
	// TokenCounts is the blob of the occurrences by token, TokenCountsBytes its
	// size; empty if no sample was written.
	TokenCounts      specstream.Digest `json:"token_counts,omitempty"`
	TokenCountsBytes int64             `json:"token_counts_bytes,omitempty"`
}

// Histogram counts samples by length: element 0 those without tokens, element i
// those of 2^(i-1) to 2^i-1 tokens. Its last element is not 0.
type Histogram []int64

// observe counts one sample of n tokens.
func (h *Histogram) observe(n int) {
	b := bits.Len(uint(n))
	for len(*h) <= b {
		*h = append(*h, 0)
	}
	(*h)[b]++
}

// Add returns the histogram of both sets of samples.
func (h Histogram) Add(o Histogram) Histogram {
	out := make(Histogram, max(len(h), len(o)))
	copy(out, h)
	for i, n := range o {
		out[i] += n
	}
	return out
}

// tokenCountsMagic begins a blob of token counts.
const tokenCountsMagic = "spectok1"

// tokenCounter counts occurrences by token. Ids of real vocabularies are counted
// in an array, any others in a map, so that no id makes it large.
type tokenCounter struct {
	dense  []int64
	sparse map[int32]int64
}

const denseTokens = 1 << 20

func (c *tokenCounter) add(tokens []int32) {
	for _, t := range tokens {
		if int(t) < len(c.dense) {
			c.dense[t]++
			continue
		}
		c.grow(t)
	}
}

// grow counts a token outside the array, which it makes longer if it may.
func (c *tokenCounter) grow(t int32) {
	if t >= denseTokens {
		if c.sparse == nil {
			c.sparse = map[int32]int64{}
		}
		c.sparse[t]++
		return
	}
	c.dense = append(c.dense, make([]int64, max(int(t)+1, 2*len(c.dense), 1024)-len(c.dense))...)
	c.dense[t]++
}

// counts returns the occurrences of the tokens that occur.
func (c *tokenCounter) counts() map[int32]int64 {
	out := maps.Clone(c.sparse)
	if out == nil {
		out = map[int32]int64{}
	}
	for id, n := range c.dense {
		if n > 0 {
			out[int32(id)] = n
		}
	}
	return out
}

// encode returns the blob: the magic, the number of entries, and for each token
// that occurs, rising, its id less the one before (the first: its id) and its
// count, all as unsigned varints.
func (c *tokenCounter) encode() []byte {
	n := len(c.sparse)
	for _, k := range c.dense {
		if k > 0 {
			n++
		}
	}
	b := binary.AppendUvarint([]byte(tokenCountsMagic), uint64(n))
	last := 0
	put := func(id int, count int64) {
		b = binary.AppendUvarint(b, uint64(id-last))
		b = binary.AppendUvarint(b, uint64(count))
		last = id
	}
	for id, k := range c.dense {
		if k > 0 {
			put(id, k)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(c.sparse)) {
		put(int(id), c.sparse[id])
	}
	return b
}

// decodeTokenCounts adds a blob's counts to sums.
func decodeTokenCounts(b []byte, sums map[int32]int64) error {
	d := varints{b: b}
	if err := d.magic(tokenCountsMagic); err != nil {
		return err
	}
	n := d.next(uint64(len(b))) // an entry takes two bytes at least
	id := int64(0)
	for i := range n {
		step, count := d.next(math.MaxInt32), d.next(math.MaxInt64)
		id += int64(step)
		switch {
		case d.err != nil:
			return d.err
		case id > math.MaxInt32 || i > 0 && step == 0 || count == 0:
			return fmt.Errorf("entry %d is out of order", i)
		case sums[int32(id)] > math.MaxInt64-int64(count):
			return fmt.Errorf("the count of token %d overflows", id)
		}
		sums[int32(id)] += int64(count)
	}
	return d.end()
}

// TokenCounts returns how often each token occurs in a data set, by its id; ids
// that don't occur are absent.
func TokenCounts(ctx context.Context, blobs Blobs, m Manifest) (map[int32]int64, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	sums := map[int32]int64{}
	for _, t := range m.TokenCounts {
		b, err := readBlob(ctx, blobs, t)
		if err != nil {
			return nil, fmt.Errorf("token counts %s: %w", t.Digest, err)
		}
		if err := decodeTokenCounts(b, sums); err != nil {
			return nil, fmt.Errorf("token counts %s: %w: %w", t.Digest, ErrCorrupt, err)
		}
	}
	total := int64(0)
	for id, n := range sums {
		if int64(id) >= int64(m.Lineage.VocabSize) {
			return nil, fmt.Errorf("token counts: %w: token %d is outside the vocabulary of %d", ErrCorrupt, id, m.Lineage.VocabSize)
		}
		if total += n; total < 0 || total > m.Counts.Tokens {
			break
		}
	}
	if total != m.Counts.Tokens {
		return nil, fmt.Errorf("token counts: %w: their sum is not the manifest's %d tokens", ErrCorrupt, m.Counts.Tokens)
	}
	return sums, nil
}

// readBlob reads a whole blob and checks its size and digest.
func readBlob(ctx context.Context, blobs Blobs, want Blob) (b []byte, err error) {
	r, err := blobs.OpenBlob(ctx, want.Digest)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if r.Size() != want.Bytes {
		return nil, fmt.Errorf("%w: the blob has %d bytes, the manifest says %d", ErrCorrupt, r.Size(), want.Bytes)
	}
	b = make([]byte, want.Bytes)
	if k, err := r.ReadAt(b, 0); k < len(b) {
		if err == io.EOF {
			err = fmt.Errorf("%w: they end at byte %d", ErrCorrupt, k)
		}
		return nil, err
	}
	if got := specstream.DigestBytes(b); got != want.Digest {
		return nil, fmt.Errorf("%w: the blob has the digest %s", ErrCorrupt, got)
	}
	return b, nil
}

// varints reads unsigned varints; the first failure stays.
type varints struct {
	b   []byte
	err error
}

func (d *varints) magic(want string) error {
	if len(d.b) < len(want) || string(d.b[:len(want)]) != want {
		return fmt.Errorf("it does not begin with %q", want)
	}
	d.b = d.b[len(want):]
	return nil
}

// next returns a number of at most most.
func (d *varints) next(most uint64) uint64 {
	v, n := binary.Uvarint(d.b)
	switch {
	case d.err != nil:
		return 0
	case n <= 0:
		d.err = errors.New("it ends within a number")
	case v > most:
		d.err = fmt.Errorf("%d is more than %d", v, most)
	default:
		d.b = d.b[n:]
		return v
	}
	return 0
}

// digest returns the next 32 bytes as a digest.
func (d *varints) digest() specstream.Digest {
	if d.err == nil && len(d.b) < 32 {
		d.err = errors.New("it ends within a digest")
	}
	if d.err != nil {
		return ""
	}
	v := rawDigest(d.b)
	d.b = d.b[32:]
	return v
}

// end reports the first failure, or bytes that are left.
func (d *varints) end() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%d bytes are left over", len(d.b))
	}
	return d.err
}
