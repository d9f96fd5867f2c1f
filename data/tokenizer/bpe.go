package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// noRank marks a pair that does not merge.
const noRank = int32(1<<31 - 1)

// mergeTable maps a pair of symbol ids to the rank and the product of its
// merge: a hash table with open addressing, the inner loop of encoding.
type mergeTable struct {
	slots []mergeSlot
	shift uint
}

type mergeSlot struct {
	pair     uint64 // left<<32 | right; emptyPair when free
	rank, id int32
}

const emptyPair = ^uint64(0)

func pairOf(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

func newMergeTable(n int) mergeTable {
	bits := uint(4)
	for 1<<bits < 2*n {
		bits++
	}
	t := mergeTable{slots: make([]mergeSlot, 1<<bits), shift: 64 - bits}
	for i := range t.slots {
		t.slots[i] = mergeSlot{pair: emptyPair, rank: noRank}
	}
	return t
}

// find returns the slot of a pair, or the free slot it belongs in.
func (t *mergeTable) find(pair uint64) *mergeSlot {
	mask := uint64(len(t.slots) - 1)
	for h := pair * 0x9E3779B97F4A7C15 >> t.shift; ; h = (h + 1) & mask {
		if s := &t.slots[h]; s.pair == pair || s.pair == emptyPair {
			return s
		}
	}
}

// merge returns the rank and product of merging left and right.
func (t *mergeTable) merge(left, right int32) (rank, id int32) {
	s := t.find(pairOf(left, right))
	return s.rank, s.id
}

// bpe is a byte-pair-encoding model: initial symbols, merges and the pool of
// its encoders.
type bpe struct {
	merges    mergeTable
	byteLevel bool
	bytes     [256]int32       // id of a byte's symbol: byte-level alphabet, or <0xNN> tokens; -1 when absent
	ascii     [128]int32       // character-level: ids of ASCII characters, -1 when absent
	chars     map[rune]int32   // character-level: ids of the other characters
	fallback  bool             // character-level: byte_fallback
	unk       int32            // id for unknown characters; -1: they are dropped
	fuseUnk   bool             // runs of unknown characters become one
	words     map[string]int32 // ignore_merges: whole pieces that are tokens, nil without it
	cutMeta   bool             // no merge crosses from another character to ▁: text can be cut there
	encoders  sync.Pool        // of *encoder
}

// charID returns the id of a one-character token, -1 when there is none.
func (m *bpe) charID(r rune) int32 {
	if r < utf8.RuneSelf {
		return m.ascii[r]
	}
	if id, ok := m.chars[r]; ok {
		return id
	}
	return -1
}

// encoder is the scratch memory of one call to Encode, and a cache of pieces
// already encoded: most text is made of few distinct words.
type encoder struct {
	cache map[string]span
	arena []int32 // ids of cached pieces
	sym   []int32
	pairs []candidate
	heap  []heapEntry
	prev  []int32
	next  []int32
}

// span locates the ids of a cached piece in the arena.
type span struct{ start, len int32 }

type candidate struct{ rank, id int32 }

// Limits of the piece cache of one encoder: about 8 MB when full.
const (
	cacheEntries  = 1 << 16
	cacheMaxPiece = 64      // bytes
	scratchKeep   = 1 << 20 // symbols; larger scratch is not kept for the next call
)

func (m *bpe) get() *encoder {
	if e, ok := m.encoders.Get().(*encoder); ok {
		return e
	}
	return &encoder{cache: make(map[string]span)}
}

func (m *bpe) put(e *encoder) {
	if cap(e.sym) > scratchKeep {
		e.sym, e.pairs, e.heap, e.prev, e.next = nil, nil, nil, nil, nil
	}
	m.encoders.Put(e)
}

// piece appends the ids of one pre-token, which is not empty.
func (m *bpe) piece(e *encoder, dst []int32, s string) []int32 {
	if m.byteLevel || !m.cutMeta || m.words != nil {
		return m.word(e, dst, s)
	}
	// SentencePiece models see a whole text as one piece. Where no merge can
	// span a cut before ▁, cutting there gives the same ids and lets the cache
	// and the short-word algorithm work.
	for i := 0; i < len(s); {
		j := i
		for strings.HasPrefix(s[j:], metaSymbol) {
			j += len(metaSymbol)
		}
		if k := strings.Index(s[j:], metaSymbol); k >= 0 {
			j += k
		} else {
			j = len(s)
		}
		dst = m.word(e, dst, s[i:j])
		i = j
	}
	return dst
}

// metaSymbol is U+2581, SentencePiece's stand-in for a space.
const metaSymbol = "▁"

// word appends the ids of one piece, from the cache if it can.
func (m *bpe) word(e *encoder, dst []int32, s string) []int32 {
	if v, ok := e.cache[s]; ok {
		return append(dst, e.arena[v.start:v.start+v.len]...)
	}
	n := len(dst)
	if id, ok := m.words[s]; ok {
		dst = append(dst, id)
	} else {
		dst = m.mergeWord(e, dst, s)
	}
	if len(s) <= cacheMaxPiece {
		if len(e.cache) >= cacheEntries {
			clear(e.cache)
			e.arena = e.arena[:0]
		}
		at := int32(len(e.arena))
		e.arena = append(e.arena, dst[n:]...)
		// A copy, so that a cached piece does not keep its text alive.
		e.cache[strings.Clone(s)] = span{at, int32(len(dst) - n)}
	}
	return dst
}

// symbols appends the initial symbols of a piece.
func (m *bpe) symbols(dst []int32, s string) []int32 {
	pending := false // an unknown symbol waits to be written, as in Hugging Face
	unknown := func() {
		if m.unk < 0 {
			return
		}
		if pending && !m.fuseUnk {
			dst = append(dst, m.unk)
		}
		pending = true
	}
	known := func(id int32) {
		if pending {
			dst = append(dst, m.unk)
			pending = false
		}
		dst = append(dst, id)
	}
	if m.byteLevel {
		for i := range len(s) {
			if id := m.bytes[s[i]]; id >= 0 {
				known(id)
			} else {
				unknown()
			}
		}
	} else {
		for i, r := range s {
			if id := m.charID(r); id >= 0 {
				known(id)
				continue
			}
			c := s[i : i+utf8.RuneLen(r)]
			if m.fallback && m.haveBytes(c) {
				// Hugging Face does not write a pending unknown symbol here.
				for k := range len(c) {
					dst = append(dst, m.bytes[c[k]])
				}
				continue
			}
			unknown()
		}
	}
	if pending {
		dst = append(dst, m.unk)
	}
	return dst
}

func (m *bpe) haveBytes(c string) bool {
	for i := range len(c) {
		if m.bytes[c[i]] < 0 {
			return false
		}
	}
	return true
}

// shortWord is the most symbols for which scanning all pairs for the best
// merge beats a heap.
const shortWord = 96

// mergeWord appends the ids of a piece: its symbols, merged in order of rank
// and, within a rank, from left to right.
func (m *bpe) mergeWord(e *encoder, dst []int32, s string) []int32 {
	e.sym = m.symbols(e.sym[:0], s)
	if len(e.sym) > shortWord {
		return m.mergeLong(e, dst)
	}
	sym, pairs := e.sym, e.pairs[:0]
	for i := 0; i+1 < len(sym); i++ {
		rank, id := m.merges.merge(sym[i], sym[i+1])
		pairs = append(pairs, candidate{rank, id})
	}
	e.pairs = pairs
	for {
		best, at := noRank, -1
		for i := range pairs {
			if pairs[i].rank < best {
				best, at = pairs[i].rank, i
			}
		}
		if at < 0 {
			return append(dst, sym...)
		}
		sym[at] = pairs[at].id
		sym = append(sym[:at+1], sym[at+2:]...)
		pairs = append(pairs[:at], pairs[at+1:]...)
		if at < len(pairs) {
			pairs[at].rank, pairs[at].id = m.merges.merge(sym[at], sym[at+1])
		}
		if at > 0 {
			pairs[at-1].rank, pairs[at-1].id = m.merges.merge(sym[at-1], sym[at])
		}
	}
}

// heapEntry is a possible merge of the symbols left and right, of which the
// first is at position pos.
type heapEntry struct{ rank, pos, id, left, right int32 }

func (a heapEntry) before(b heapEntry) bool {
	return a.rank < b.rank || a.rank == b.rank && a.pos < b.pos
}

// mergeLong is mergeWord in O(n log n) for long pieces.
func (m *bpe) mergeLong(e *encoder, dst []int32) []int32 {
	sym := e.sym
	n := int32(len(sym))
	e.next, e.prev = grow(e.next, len(sym)), grow(e.prev, len(sym))
	next, prev, h := e.next, e.prev, e.heap[:0]
	for i := range n {
		next[i], prev[i] = i+1, i-1
	}
	consider := func(i int32) {
		if j := next[i]; j < n {
			if rank, id := m.merges.merge(sym[i], sym[j]); rank != noRank {
				h = pushHeap(h, heapEntry{rank, i, id, sym[i], sym[j]})
			}
		}
	}
	for i := range n - 1 {
		consider(i)
	}
	const gone = -1
	for len(h) > 0 {
		var x heapEntry
		x, h = popHeap(h)
		i := x.pos
		if sym[i] != x.left || next[i] >= n || sym[next[i]] != x.right {
			continue // a neighbour merged since
		}
		j := next[i]
		sym[i], sym[j] = x.id, gone
		next[i] = next[j]
		if next[i] < n {
			prev[next[i]] = i
		}
		if prev[i] >= 0 {
			consider(prev[i])
		}
		consider(i)
	}
	e.heap = h
	for i := int32(0); i < n; i = next[i] {
		dst = append(dst, sym[i])
	}
	return dst
}

func grow(s []int32, n int) []int32 {
	if cap(s) < n {
		return make([]int32, n)
	}
	return s[:n]
}

// pushHeap and popHeap are a binary heap without container/heap's interface
// calls, which would dominate the merges of a long piece.
func pushHeap(h []heapEntry, x heapEntry) []heapEntry {
	h = append(h, x)
	i := len(h) - 1
	for i > 0 {
		p := (i - 1) / 2
		if !h[i].before(h[p]) {
			break
		}
		h[i], h[p] = h[p], h[i]
		i = p
	}
	return h
}

func popHeap(h []heapEntry) (heapEntry, []heapEntry) {
	top, n := h[0], len(h)-1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		c := 2*i + 1
		if c >= n {
			break
		}
		if c+1 < n && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(h[i]) {
			break
		}
		h[i], h[c] = h[c], h[i]
		i = c
	}
	return top, h
}
