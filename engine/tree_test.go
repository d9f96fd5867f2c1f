package engine_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/engine/enginetest"
)

func TestTreeSize(t *testing.T) {
	for _, c := range []struct{ gamma, k, want int }{
		{4, 3, 121}, {4, 1, 5}, {1, 1, 2}, {1, 16, 17}, {5, 4, 1365}, {0, 3, 1}, {16, 1, 17}, {11, 2, 4095}, {12, 2, engine.MaxTree + 1}, {16, 16, engine.MaxTree + 1},
	} {
		require.Equal(t, c.want, engine.TreeSize(c.gamma, c.k), "%d streams, %d tokens", c.gamma, c.k)
	}
	require.NoError(t, engine.CheckTree(4, specstream.DecodeSpec{TreeFactor: 3}))
	require.True(t, specstream.BadInput(engine.CheckTree(4, specstream.DecodeSpec{TreeFactor: 16})))
}

func TestGrow(t *testing.T) {
	var tree engine.Tree
	tree.Grow(9, nil)
	require.Equal(t, engine.Tree{Tokens: []int32{9}, Parents: []int{-1}, Depths: []int{0}}, tree)
	tree.Grow(7, [][]int32{{1, 2}, {3, 4}})
	require.Equal(t, engine.Tree{
		Tokens:  []int32{7, 1, 2, 3, 4, 3, 4},
		Parents: []int{-1, 0, 0, 1, 1, 2, 2},
		Depths:  []int{0, 1, 1, 2, 2, 2, 2},
	}, tree)
	require.Equal(t, []int{0, 2, 5}, tree.Path(5, nil))
	require.Equal(t, []int{0}, tree.Path(0, []int{8, 8, 8}))
	for gamma := range 5 {
		for k := 1; k <= 4; k++ {
			draft := make([][]int32, gamma)
			for j := range draft {
				draft[j] = make([]int32, k)
			}
			tree.Grow(0, draft)
			require.Equal(t, engine.TreeSize(gamma, k), tree.Len())
		}
	}
}

func TestPrune(t *testing.T) {
	for _, c := range enginetest.PruneCases {
		t.Run(c.Name, func(t *testing.T) {
			var tree engine.Tree
			tree.Grow(0, c.Draft)
			require.Equal(t, c.Want, tree.Prune(c.Transition, c.Limit, c.Threshold))
		})
	}
}

// TestPruneAgainstDefinition compares with the definition, spelled out: take the
// best node whose parent is in, until there are enough.
func TestPruneAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for trial := range 300 {
		gamma, k := 1+r.IntN(4), 1+r.IntN(3)
		draft := make([][]int32, gamma)
		for j := range draft {
			for range k {
				draft[j] = append(draft[j], r.Int32N(4))
			}
		}
		var tree engine.Tree
		tree.Grow(0, draft)
		transition := make([]float64, tree.Len())
		for i := range transition {
			transition[i] = float64(r.IntN(4)) / 4 // coarse: many ties
		}
		limit, threshold := 1+r.IntN(tree.Len()+2), float64(r.IntN(3))/4
		path := make([]float64, tree.Len())
		path[0] = 1
		in := map[int]bool{0: true}
		for n := 1; n < tree.Len(); n++ {
			path[n] = path[tree.Parents[n]] * transition[n]
		}
		for len(in) < limit {
			best := -1
			for n := 1; n < tree.Len(); n++ {
				if in[n] || !in[tree.Parents[n]] || transition[n] < threshold {
					continue
				}
				if best < 0 || path[n] > path[best] || path[n] == path[best] && tree.Tokens[n] < tree.Tokens[best] {
					best = n
				}
			}
			if best < 0 {
				break
			}
			in[best] = true
		}
		got := tree.Prune(transition, limit, threshold)
		require.Len(t, got, len(in), "trial %d", trial)
		for _, n := range got {
			require.True(t, in[n], "trial %d, node %d", trial, n)
		}
		require.True(t, slices.IsSorted(got))
		var part engine.Tree
		part.Restrict(&tree, got)
		for i, n := range got {
			require.Equal(t, tree.Tokens[n], part.Tokens[i])
			require.Equal(t, tree.Depths[n], part.Depths[i])
			if i > 0 {
				require.Equal(t, tree.Parents[n], got[part.Parents[i]])
			}
		}
	}
}

func TestAccept(t *testing.T) {
	for _, c := range enginetest.AcceptCases {
		t.Run(c.Name, func(t *testing.T) {
			var tree engine.Tree
			tree.Grow(7, c.Draft)
			path, correction := tree.Accept(func(n int) int32 {
				require.GreaterOrEqual(t, c.Choice[n], int32(0), "node %d is off the path", n)
				return c.Choice[n]
			})
			require.Equal(t, c.Path, path)
			require.Equal(t, c.Correction, correction)
		})
	}
}

func TestArgMaxAndTopK(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct {
		name   string
		logits []float32
		best   int32
		margin float32
		top3   []int32
	}{
		{"distinct", []float32{1, 5, 3, 4}, 1, 1, []int32{1, 3, 2}},
		{"ties go to the lower id", []float32{2, 7, 7, 2, 7}, 1, 0, []int32{1, 2, 4}},
		{"ties at the end", []float32{3, 1, 2, 1, 2}, 0, 1, []int32{0, 2, 4}},
		{"rising", []float32{1, 2, 3, 4}, 3, 1, []int32{3, 2, 1}},
		{"falling", []float32{4, 3, 2, 1}, 0, 1, []int32{0, 1, 2}},
		{"negative", []float32{-3, -1, -2}, 1, 1, []int32{1, 2, 0}},
		{"one", []float32{4}, 0, inf, []int32{0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			best, margin := engine.ArgMax(c.logits)
			require.Equal(t, c.best, best)
			require.Equal(t, c.margin, margin)
			require.Equal(t, c.top3, engine.TopK(c.logits, 3, nil))
		})
	}
	_, margin := engine.ArgMax([]float32{float32(math.NaN()), float32(math.NaN())})
	require.True(t, margin != margin, "NaN tells damage")

	r := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		logits := make([]float32, 1+r.IntN(20))
		order := make([]int32, len(logits))
		for i := range logits {
			logits[i], order[i] = float32(r.IntN(5)), int32(i)
		}
		slices.SortStableFunc(order, func(a, b int32) int { return int(logits[b]) - int(logits[a]) })
		k := 1 + r.IntN(6)
		require.Equal(t, order[:min(k, len(order))], engine.TopK(logits, k, make([]int32, 9)))
	}
}

func TestNGramAccepted(t *testing.T) {
	for _, c := range []struct {
		name           string
		prompt, output []int32
		gamma          int
		calls, emitted int
	}{
		{"nothing repeats", []int32{1, 2, 3}, []int32{4, 5, 6, 7}, 4, 3, 3},
		{"the prefill alone", []int32{1}, []int32{4}, 4, 0, 0},
		{"no output", []int32{1}, nil, 4, 0, 0},
		// After 2, "1 2" was followed by 3 4 5 6: four accepted and a correction.
		{"a copy of the prompt", []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 1}, []int32{2, 3, 4, 5, 6, 7}, 4, 1, 5},
		{"a shorter draft", []int32{1, 2, 3, 4, 5, 6, 7, 8, 9, 1}, []int32{2, 3, 4, 5, 6, 7}, 2, 2, 5},
		{"the end cuts the correction", []int32{1, 2, 3, 4, 1}, []int32{2, 3, 4}, 4, 1, 2},
		{"the most recent occurrence", []int32{5, 6, 5, 7, 9}, []int32{5, 7, 8}, 1, 1, 2},
		{"the longest suffix", []int32{1, 2, 3, 8, 2, 9, 1}, []int32{2, 3, 0}, 1, 1, 2},
		{"a run feeds itself", []int32{4}, []int32{4, 4, 4, 4, 4}, 4, 2, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls, emitted := engine.NGramAccepted(c.prompt, c.output, c.gamma)
			require.Equal(t, c.calls, calls)
			require.Equal(t, c.emitted, emitted)
			require.Equal(t, max(0, len(c.output)-1), emitted, "every token after the prefill's is emitted by some forward")
		})
	}
}

func TestTokens(t *testing.T) {
	for _, c := range []struct {
		name      string
		limit     int
		positions int
		want      []int32
		took      []int
	}{
		{"end token inside", 10, 100, []int32{5, 6, 2}, []int{1, 2, 0}},
		{"limit inside", 2, 100, []int32{5, 6}, []int{1, 1, 0}},
		{"positions", 10, 5, []int32{5, 6}, []int{1, 1, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tokens := engine.NewTokens(engine.Request{Prompt: make([]int32, 3), EOS: []int32{2}, Decode: specstream.DecodeSpec{MaxNewTokens: c.limit}}, c.positions)
			for i, batch := range [][]int32{{5}, {6, 2, 7}, {8}} {
				require.Equal(t, c.took[i], tokens.Append(batch...), "batch %d", i)
			}
			require.True(t, tokens.Done())
			require.Equal(t, c.want, tokens.List())
		})
	}
}

func BenchmarkPrune(b *testing.B) {
	for _, k := range []int{2, 3, 4} {
		b.Run(fmt.Sprintf("k=%d", k), func(b *testing.B) {
			draft := make([][]int32, 4)
			for j := range draft {
				for i := range k {
					draft[j] = append(draft[j], int32(i))
				}
			}
			var tree engine.Tree
			tree.Grow(0, draft)
			r := rand.New(rand.NewPCG(1, 2))
			transition := make([]float64, tree.Len())
			for i := range transition {
				transition[i] = r.Float64()
			}
			for b.Loop() {
				tree.Prune(transition, 32, 0)
			}
		})
	}
}
