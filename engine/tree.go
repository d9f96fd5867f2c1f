package engine

import (
	"container/heap"
	"math"

	"github.com/specstream/specstream"
)

// MaxTree is the most nodes a full draft tree may have: all of them pass
// through the layers below the streams.
const MaxTree = 4096

// TreeSize returns the number of nodes of a full tree of gamma levels of k
// children, 1 + Σ k^g, or MaxTree+1 if it is more.
func TreeSize(gamma, k int) int {
	size, level := 1, 1
	for range gamma {
		if k > 0 && level > MaxTree/k {
			return MaxTree + 1
		}
		level *= k
		size += level
		if size > MaxTree {
			return MaxTree + 1
		}
	}
	return size
}

// CheckTree refuses tree settings that make too large a tree.
func CheckTree(gamma int, d specstream.DecodeSpec) error {
	if TreeSize(gamma, d.TreeFactor) > MaxTree {
		return specstream.Invalid("tree_factor", "%d tokens a stream and %d streams make a tree of over %d nodes", d.TreeFactor, gamma, MaxTree)
	}
	return nil
}

// Tree is a draft tree, flattened breadth first: node 0 is the root, children
// come after their parents, a node's children lie together.
type Tree struct {
	Tokens  []int32 // token of each node
	Parents []int   // index of each node's parent; −1 for the root
	Depths  []int   // 0 for the root
}

// Len returns the number of nodes.
func (t *Tree) Len() int { return len(t.Tokens) }

func (t *Tree) reset() { t.Tokens, t.Parents, t.Depths = t.Tokens[:0], t.Parents[:0], t.Depths[:0] }

func (t *Tree) add(token int32, parent, depth int) {
	t.Tokens = append(t.Tokens, token)
	t.Parents = append(t.Parents, parent)
	t.Depths = append(t.Depths, depth)
}

// Grow makes t the full tree of a root and a draft, reusing its memory: every
// node of level j−1 has the tokens draft[j−1] of stream j as children, in their
// order. An empty draft makes the root alone.
func (t *Tree) Grow(root int32, draft [][]int32) {
	t.reset()
	t.add(root, -1, 0)
	first, last := 0, 1 // nodes of the level above
	for j, tokens := range draft {
		for p := first; p < last; p++ {
			for _, token := range tokens {
				t.add(token, p, j+1)
			}
		}
		first, last = last, t.Len()
	}
}

// Restrict makes t the part of full whose nodes are kept, reusing its memory.
// kept ascends, holds the root, and holds every kept node's parent.
func (t *Tree) Restrict(full *Tree, kept []int) {
	t.reset()
	at := make(map[int]int, len(kept))
	for i, n := range kept {
		at[n] = i
		parent := -1
		if p := full.Parents[n]; p >= 0 {
			parent = at[p]
		}
		t.add(full.Tokens[n], parent, full.Depths[n])
	}
}

// Path appends a node and its ancestors, root first, to path[:0].
func (t *Tree) Path(node int, path []int) []int {
	depth := t.Depths[node]
	path = path[:0]
	for range depth + 1 {
		path = append(path, 0)
	}
	for ; node >= 0; node = t.Parents[node] {
		path[depth] = node
		depth--
	}
	return path
}

// Prune returns the nodes of the tree to keep, ascending (section 2.3). Transition
// scores are early-exit probabilities of each node's token given its parent; the
// root's is not read. A subtree whose score is under threshold goes; of the rest
// the root and then the nodes of highest path probability stay until there are
// limit, ancestors always before descendants. Ties go to the lower token id, then
// the lower node.
func (t *Tree) Prune(transition []float64, limit int, threshold float64) []int {
	path := make([]float64, t.Len())
	path[0] = 1
	children := make([][2]int, t.Len()) // first and one past the last
	for n := 1; n < t.Len(); n++ {
		p := t.Parents[n]
		path[n] = path[p] * transition[n]
		if children[p][1] == 0 {
			children[p][0] = n
		}
		children[p][1] = n + 1
	}
	kept := make([]bool, t.Len())
	// Path probabilities fall along a path, so taking the best node whose parent
	// is in already takes the best nodes there are.
	frontier := &frontier{tree: t, path: path}
	open := func(n int) {
		kept[n] = true
		for c := children[n][0]; c < children[n][1]; c++ {
			if transition[c] >= threshold {
				heap.Push(frontier, c)
			}
		}
	}
	open(0)
	count := 1
	for ; count < limit && frontier.Len() > 0; count++ {
		open(heap.Pop(frontier).(int))
	}
	out := make([]int, 0, count)
	for n, k := range kept {
		if k {
			out = append(out, n)
		}
	}
	return out
}

// frontier is a heap of nodes, best first.
type frontier struct {
	tree  *Tree
	path  []float64
	nodes []int
}

func (f *frontier) Len() int      { return len(f.nodes) }
func (f *frontier) Swap(i, j int) { f.nodes[i], f.nodes[j] = f.nodes[j], f.nodes[i] }
func (f *frontier) Push(n any)    { f.nodes = append(f.nodes, n.(int)) }
func (f *frontier) Pop() any {
	last := len(f.nodes) - 1
	n := f.nodes[last]
	f.nodes = f.nodes[:last]
	return n
}

func (f *frontier) Less(i, j int) bool {
	a, b := f.nodes[i], f.nodes[j]
	switch {
	case f.path[a] != f.path[b]:
		return f.path[a] > f.path[b]
	case f.tree.Tokens[a] != f.tree.Tokens[b]:
		return f.tree.Tokens[a] < f.tree.Tokens[b]
	}
	return a < b
}

// Accept returns the longest path from the root whose tokens are the main
// stream's choices, as node indices without the root's first: choice(n) is the
// token that follows node n, and is asked only along the path. The correction is
// the choice at the path's end.
func (t *Tree) Accept(choice func(node int) int32) (path []int, correction int32) {
	node := 0
	for {
		path = append(path, node)
		correction = choice(node)
		next := -1
		for c := node + 1; c < t.Len(); c++ {
			if t.Parents[c] == node && t.Tokens[c] == correction {
				next = c
				break
			}
		}
		if next < 0 {
			return path, correction
		}
		node = next
	}
}

// ArgMax returns the token of the highest logit, the lowest id among equals, and
// how far the runner-up is below it (infinite with one logit).
func ArgMax(logits []float32) (token int32, margin float32) {
	best, second := float32(math.Inf(-1)), float32(math.Inf(-1))
	for i, v := range logits {
		if v > best {
			token, best, second = int32(i), v, best
		} else if v > second {
			second = v
		}
	}
	return token, best - second
}

// TopK returns the k tokens of the highest logits, highest first, the lower id
// first among equals, in dst's memory.
func TopK(logits []float32, k int, dst []int32) []int32 {
	dst = dst[:0]
	for i, v := range logits {
		if len(dst) == k && v <= logits[dst[k-1]] {
			continue // equal logits leave the lower id in place
		}
		if len(dst) < k {
			dst = append(dst, 0)
		}
		at := len(dst) - 1
		for ; at > 0 && v > logits[dst[at-1]]; at-- {
			dst[at] = dst[at-1]
		}
		dst[at] = int32(i)
	}
	return dst
}
