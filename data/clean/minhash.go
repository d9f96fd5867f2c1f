package clean

// minHash is the MinHash of a set, one element after the other, by Ertl's
// SuperMinHash (arXiv:1706.05698): every element hands the values 0 + u, 1 + u,
// 2 + u … (u uniform in 0..1) to the hash functions in an order of its own, so
// that most elements of a larger set are done after one or two of the 128. Two
// sets agree in a function with the probability of their Jaccard similarity, as
// with independent functions, and with an error that is no greater.
type minHash struct {
	least  [permutations]uint64 // whole part << 32 | u
	levels [permutations]uint8  // how many of least have a whole part
	top    int                  // the greatest whole part of any
	// An element's order, as far as it was needed: place i is order[i] if
	// owner[i] is the element, else i.
	order [permutations]uint8
	owner [permutations]uint32
	n     uint32 // elements
}

func (m *minHash) reset() {
	*m = minHash{top: permutations - 1}
	for i := range m.least {
		m.least[i] = permutations << 32
	}
	m.levels[m.top] = permutations
}

// take takes an element, a well-mixed hash, into the set.
func (m *minHash) take(x uint64) {
	m.n++
	for i := 0; i <= m.top; i++ {
		x += rollBase
		random := mix(x)
		// Places below i are settled; the next one's function is drawn from the rest.
		k := i + int((random&0xFFFFFFFF)*uint64(permutations-i)>>32)
		if m.owner[i] != m.n {
			m.owner[i], m.order[i] = m.n, uint8(i)
		}
		if m.owner[k] != m.n {
			m.owner[k], m.order[k] = m.n, uint8(k)
		}
		m.order[i], m.order[k] = m.order[k], m.order[i]
		f := m.order[i]
		v := uint64(i)<<32 | random>>32
		if v >= m.least[f] {
			continue
		}
		was := min(int(m.least[f]>>32), permutations-1)
		m.least[f] = v
		if i < was {
			m.levels[was]--
			m.levels[i]++
			for m.levels[m.top] == 0 {
				m.top--
			}
		}
	}
}
