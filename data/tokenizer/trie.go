package tokenizer

// trie finds the strings that a text begins with.
type trie struct {
	root  [256]int32
	slots []trieSlot // open addressing
	shift uint
	id    []int32 // by node; -1: no string ends here
}

type trieSlot struct {
	key  uint64 // node<<8 | byte; emptyPair when free
	next int32
}

// step returns the node that a byte leads to, -1 when there is none.
func (t *trie) step(node int32, b byte) int32 {
	if node == 0 {
		return t.root[b]
	}
	key := uint64(node)<<8 | uint64(b)
	mask := uint64(len(t.slots) - 1)
	for h := key * 0x9E3779B97F4A7C15 >> t.shift; ; h = (h + 1) & mask {
		switch s := &t.slots[h]; s.key {
		case key:
			return s.next
		case emptyPair:
			return -1
		}
	}
}

type trieBuilder struct {
	next map[uint64]int32
	id   []int32
}

func newTrieBuilder() *trieBuilder {
	return &trieBuilder{next: make(map[uint64]int32), id: []int32{-1}}
}

func (b *trieBuilder) add(s string, id int32) {
	node := int32(0)
	for i := range len(s) {
		key := uint64(node)<<8 | uint64(s[i])
		to, ok := b.next[key]
		if !ok {
			to = int32(len(b.id))
			b.id = append(b.id, -1)
			b.next[key] = to
		}
		node = to
	}
	b.id[node] = id
}

func (b *trieBuilder) build() trie {
	bits := uint(4)
	for 1<<bits < 2*len(b.next) {
		bits++
	}
	t := trie{slots: make([]trieSlot, 1<<bits), shift: 64 - bits, id: b.id}
	for i := range t.root {
		t.root[i] = -1
	}
	for i := range t.slots {
		t.slots[i].key = emptyPair
	}
	mask := uint64(len(t.slots) - 1)
	for key, to := range b.next {
		if key < 256 {
			t.root[key] = to
			continue
		}
		h := key * 0x9E3779B97F4A7C15 >> t.shift
		for t.slots[h].key != emptyPair {
			h = (h + 1) & mask
		}
		t.slots[h] = trieSlot{key, to}
	}
	return t
}
