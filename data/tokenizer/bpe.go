package tokenizer

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// noRank marks a pair that does not merge.
const noRank = int32(1<<31 - 1)

// mergeTable maps a pair of symbol ids to the rank and the product of its
// merge: a hash table with open addressing, the inner loop of encoding. Most
// pairs do not merge, and the table is larger than the processor's caches, so a
// bitmap of hashes that does fit answers for most of those.
type mergeTable struct {
	filter []uint64
	slots  []mergeSlot
	shift  uint // of a hash to a slot
	sieve  uint // of a hash to a bit of the filter
}

type mergeSlot struct {
	pair     uint64 // left<<32 | right; emptyPair when free
	rank, id int32
}

const emptyPair = ^uint64(0)

func pairOf(left, right int32) uint64 { return uint64(uint32(left))<<32 | uint64(uint32(right)) }

func hashPair(pair uint64) uint64 { return pair * 0x9E3779B97F4A7C15 }

func newMergeTable(n int) mergeTable {
	bits := uint(6)
	for 1<<bits < n+n/2 {
		bits++
	}
	t := mergeTable{slots: make([]mergeSlot, 1<<bits), shift: 64 - bits, filter: make([]uint64, 1<<(bits-3)), sieve: 64 - bits - 3}
	for i := range t.slots {
		t.slots[i] = mergeSlot{pair: emptyPair, rank: noRank}
	}
	return t
}

// put adds a merge. A repeated pair keeps what was put last.
func (t *mergeTable) put(pair uint64, rank, id int32) {
	h := hashPair(pair)
	bit := h >> t.sieve
	t.filter[bit>>6] |= 1 << (bit & 63)
	mask := uint64(len(t.slots) - 1)
	for h >>= t.shift; ; h = (h + 1) & mask {
		if s := &t.slots[h]; s.pair == pair || s.pair == emptyPair {
			*s = mergeSlot{pair, rank, id}
			return
		}
	}
}

// merge returns the rank and product of merging left and right.
func (t *mergeTable) merge(left, right int32) (rank, id int32) {
	pair := pairOf(left, right)
	h := hashPair(pair)
	if bit := h >> t.sieve; t.filter[bit>>6]>>(bit&63)&1 == 0 {
		return noRank, 0
	}
	return t.find(pair, h)
}

func (t *mergeTable) find(pair, h uint64) (rank, id int32) {
	mask := uint64(len(t.slots) - 1)
	for h >>= t.shift; ; h = (h + 1) & mask {
		if s := &t.slots[h]; s.pair == pair || s.pair == emptyPair {
			return s.rank, s.id
		}
	}
}

// runeTable maps characters to ids, in pages of 256.
type runeTable struct {
	page [(utf8.MaxRune + 1) >> 8]uint16
	ids  []int32
}

func newRuneTable() *runeTable {
	t := &runeTable{ids: make([]int32, 256)}
	for i := range t.ids {
		t.ids[i] = -1
	}
	return t
}

func (t *runeTable) put(r rune, id int32) {
	p := &t.page[r>>8]
	if *p == 0 {
		*p = uint16(len(t.ids) >> 8)
		for range 256 {
			t.ids = append(t.ids, -1)
		}
	}
	t.ids[int(*p)<<8|int(r&0xff)] = id
}

// id returns the id of a character, -1 when it has none.
func (t *runeTable) id(r rune) int32 { return t.ids[int(t.page[r>>8])<<8|int(r&0xff)] }

// model turns pieces of text into ids.
type model interface {
	get() *encoder
	put(*encoder)
	// piece appends the ids of one pre-token, which is not empty.
	piece(e *encoder, dst []int32, s string) []int32
}

// bpe is a byte-pair-encoding model: initial symbols, merges and the pool of
// its encoders.
type bpe struct {
	merges    mergeTable
	byteLevel bool
	bytes     [256]int32       // id of a byte's symbol: byte-level alphabet, or <0xNN> tokens; -1 when absent
	ascii     [128]int32       // character-level: ids of ASCII characters, -1 when absent
	chars     *runeTable       // character-level: ids of the other characters
	bytePairs []int32          // byte-level: ranks of pairs of bytes; nil when some byte has no symbol
	fallback  bool             // character-level: byte_fallback
	unk       int32            // id for unknown characters; -1: they are dropped
	fuseUnk   bool             // runs of unknown characters become one
	words     map[string]int32 // ignore_merges: whole pieces that are tokens, nil without it
	longest   int              // of words, in bytes
	cutMeta   bool             // no merge crosses from another character to ▁: text can be cut there
	spm       bool             // SentencePiece's treatment of unknown characters
	unused    map[int32]bool   // SentencePiece: pieces that merge but are taken apart again
	encoders  sync.Pool        // of *encoder
}

// charID returns the id of a one-character token, -1 when there is none.
func (m *bpe) charID(r rune) int32 {
	if r < utf8.RuneSelf {
		return m.ascii[r]
	}
	return m.chars.id(r)
}

// encoder is the scratch memory of one call to Encode, and a cache of pieces
// already encoded: most text is made of few distinct words.
type encoder struct {
	cache map[string]span
	arena []int32 // ids of cached pieces
	sym   []int32
	ranks []int32
	heap  []heapEntry
	prev  []int32
	next  []int32
	best  []bestNode         // Unigram
	parts map[int32][2]int32 // how unused pieces came about
}

// span locates the ids of a cached piece in the arena.
type span struct{ start, len int32 }

// Limits of the piece cache of one encoder: about 8 MB when full.
const (
	cacheEntries  = 1 << 16
	cacheMaxPiece = 64      // bytes
	scratchKeep   = 1 << 20 // symbols; larger scratch is not kept for the next call
)

func (m *bpe) get() *encoder  { return getEncoder(&m.encoders) }
func (m *bpe) put(e *encoder) { putEncoder(&m.encoders, e) }

func getEncoder(pool *sync.Pool) *encoder {
	if e, ok := pool.Get().(*encoder); ok {
		return e
	}
	return &encoder{cache: make(map[string]span)}
}

func putEncoder(pool *sync.Pool, e *encoder) {
	if cap(e.sym) > scratchKeep {
		e.sym, e.ranks, e.heap, e.prev, e.next = nil, nil, nil, nil, nil
	}
	if cap(e.best) > scratchKeep {
		e.best = nil
	}
	pool.Put(e)
}

// remember caches the ids of a piece.
func (e *encoder) remember(s string, ids []int32) {
	if len(e.cache) >= cacheEntries {
		clear(e.cache)
		e.arena = e.arena[:0]
	}
	at := int32(len(e.arena))
	e.arena = append(e.arena, ids...)
	// A copy, so that a cached piece does not keep its text alive.
	e.cache[strings.Clone(s)] = span{at, int32(len(ids))}
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
	if len(s) <= cacheMaxPiece {
		if v, ok := e.cache[s]; ok {
			return append(dst, e.arena[v.start:v.start+v.len]...)
		}
	}
	n := len(dst)
	whole := false
	if len(s) <= m.longest {
		var id int32
		if id, whole = m.words[s]; whole {
			dst = append(dst, id)
		}
	}
	if !whole {
		dst = m.mergeWord(e, dst, s)
	}
	if len(s) <= cacheMaxPiece {
		e.remember(s, dst[n:])
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
	if m.spm {
		for _, r := range s {
			id := m.charID(r)
			if id < 0 {
				id = unknownSymbol(r)
			}
			dst = append(dst, id)
		}
		return dst
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
	if len(e.sym) > shortWord || m.unused != nil {
		return m.mergeLong(e, dst)
	}
	sym, ranks := e.sym, e.ranks[:0]
	if m.bytePairs != nil {
		for i := 0; i+1 < len(s); i++ {
			ranks = append(ranks, m.bytePairs[int(s[i])<<8|int(s[i+1])])
		}
	} else {
		for i := 0; i+1 < len(sym); i++ {
			rank, _ := m.merges.merge(sym[i], sym[i+1])
			ranks = append(ranks, rank)
		}
	}
	e.ranks = ranks
	for {
		best, at := noRank, -1
		for i, rank := range ranks {
			if rank < best {
				best, at = rank, i
			}
		}
		if at < 0 {
			if m.spm {
				return m.spell(e, dst, sym)
			}
			return append(dst, sym...)
		}
		// Looked up again: few pairs merge of all those that are looked at.
		_, sym[at] = m.merges.merge(sym[at], sym[at+1])
		sym = append(sym[:at+1], sym[at+2:]...)
		ranks = append(ranks[:at], ranks[at+1:]...)
		if at < len(ranks) {
			ranks[at], _ = m.merges.merge(sym[at], sym[at+1])
		}
		if at > 0 {
			ranks[at-1], _ = m.merges.merge(sym[at-1], sym[at])
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
				if m.unused[id] {
					e.parts[id] = [2]int32{sym[i], sym[j]} // the last pair looked at counts
				}
			}
		}
	}
	if m.unused != nil {
		e.parts = make(map[int32][2]int32)
	}
	for i := range n - 1 {
		consider(i)
	}
	const gone = -1 // no symbol: those of unknown characters are below
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
	k := 0
	for i := int32(0); i < n; i = next[i] {
		sym[k] = sym[i]
		k++
	}
	if m.spm {
		return m.spell(e, dst, sym[:k])
	}
	return append(dst, sym[:k]...)
}

// spell appends the ids of SentencePiece's symbols: unused pieces are taken
// apart, and characters that are no pieces become bytes, or one unknown piece
// for a run of them.
func (m *bpe) spell(e *encoder, dst []int32, sym []int32) []int32 {
	run := false // the last id stands for unknown characters
	var one func(s int32)
	one = func(s int32) {
		if p, ok := e.parts[s]; ok && m.unused[s] {
			one(p[0])
			one(p[1])
			return
		}
		switch {
		case s >= 0:
			dst, run = append(dst, s), false
		case m.fallback:
			var buf [utf8.UTFMax]byte
			for _, b := range buf[:utf8.EncodeRune(buf[:], -s-2)] {
				dst = append(dst, m.bytes[b])
			}
		case !run:
			dst, run = append(dst, m.unk), true
		}
	}
	for _, s := range sym {
		one(s)
	}
	return dst
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
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
