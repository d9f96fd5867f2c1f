package clean

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// naive is the definition of Dedupe, word by word and with the square of the
// records' number: of number (from 0) the number of the record it repeats.
func naive(sigs []Signature, threshold float64) map[int]int {
	out := map[int]int{}
	var kept []int
next:
	for i, s := range sigs {
		for _, j := range kept {
			k := sigs[j]
			if s.exact == k.exact || threshold > 0 && s.kind == full && k.kind == full && estimate(s, k) >= threshold {
				out[i] = j
				continue next
			}
		}
		kept = append(kept, i)
	}
	return out
}

// flat numbers the records of all parts in a row, as naive does.
func flat(files []SignatureSource, sizes []int, dups []Duplicate) map[int]int {
	starts := make([]int, len(files)+1)
	for i, n := range sizes {
		starts[i+1] = starts[i] + n
	}
	out := map[int]int{}
	for _, d := range dups {
		out[starts[d.Part]+int(d.Number)-1] = starts[d.OfPart] + int(d.OfNumber) - 1
	}
	return out
}

// family makes records that are variants of few texts, some equal, some near,
// some in between and some short.
func family(r *rand.Rand, c *Cleaner, n int) []Signature {
	var docs [][]string
	var out []Signature
	for range n {
		var d []string
		switch k := r.IntN(10); {
		case k < 2 || len(docs) == 0:
			d = document(r, 5+r.IntN(100))
		case k < 4:
			d = docs[r.IntN(len(docs))]
		default:
			d = docs[r.IntN(len(docs))]
			d = edited(r, d, 1+r.IntN(1+len(d)/15))
		}
		docs = append(docs, d)
		text := strings.Join(d, " ")
		if r.IntN(3) == 0 {
			text = strings.ToUpper(text)
		}
		out = append(out, c.Sign(chat(text)))
	}
	return out
}

// TestDedupeAgainstDefinition: whatever the threshold, the cut into parts and
// the size of the chunks, exactly the duplicates of the definition are found.
func TestDedupeAgainstDefinition(t *testing.T) {
	rounds := 40
	if testing.Short() {
		rounds = 10
	}
	found := 0
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 7))
		threshold := []float64{0.7, 0.8, 0.85, 0.9, 1}[round%5]
		spec := specstream.CleanSpec{Dedupe: specstream.DedupeNear, NearThreshold: threshold}
		if round%7 == 6 {
			spec, threshold = specstream.CleanSpec{Dedupe: specstream.DedupeExact}, 0
		}
		c := newCleaner(t, spec)
		sigs := family(r, c, 20+r.IntN(300))
		want := naive(sigs, threshold)
		found += len(want)
		for range 3 {
			var sizes []int
			for range r.IntN(5) {
				sizes = append(sizes, r.IntN(len(sigs)/3))
			}
			c.limits.chunkMin = 10 + r.IntN(2*len(sigs))
			c.limits.chunkMax = c.limits.chunkMin
			files := cut(t, sigs, sizes...)
			dups := dedupe(t, c, files)
			require.Equal(t, want, flat(files, sizes, dups), "round %d, parts %v, chunks of %d", round, sizes, c.limits.chunkMin)
			require.True(t, slices.IsSortedFunc(dups, func(a, b Duplicate) int {
				if a.Part != b.Part {
					return a.Part - b.Part
				}
				return int(a.Number - b.Number)
			}))
			for _, d := range dups {
				require.Equal(t, d.Reason == ReasonExact, d.Similarity == 1 && threshold < 1 || d.Reason == ReasonExact)
				require.GreaterOrEqual(t, d.Similarity, threshold)
				require.LessOrEqual(t, d.Similarity, 1.0)
			}
		}
	}
	require.Greater(t, found, 10*rounds)
}

// TestDedupePrefix: what becomes of a record does not depend on what follows.
func TestDedupePrefix(t *testing.T) {
	for seed := range uint64(5) {
		r := rand.New(rand.NewPCG(seed, 8))
		c := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeNear, NearThreshold: 0.6}) // banding is not certain here
		c.limits = limits{bucket: 3, chunkMin: 30, chunkMax: 100}
		sigs := family(r, c, 400)
		files := cut(t, sigs, 100, 50, 150, 1)
		whole := dedupe(t, c, files)
		require.NotEmpty(t, whole)
		for n := range files {
			c.limits.chunkMin = 20 + r.IntN(80)
			var want []Duplicate
			for _, d := range whole {
				if d.Part < n {
					want = append(want, d)
				}
			}
			require.Equal(t, want, dedupe(t, c, files[:n]), "the first %d parts", n)
		}
	}
}

// TestFullBuckets: a bucket's bound holds in the same way for any cut into parts
// and chunks, and the first of many variants is still compared with.
func TestFullBuckets(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	c := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeNear})
	base := document(r, 300)
	var sigs []Signature
	for range 200 { // too different to be duplicates, like enough to share buckets
		sigs = append(sigs, c.Sign(chat(strings.Join(edited(r, base, 15), " "))))
	}
	sigs = append(sigs, sigs...)
	for _, b := range []int{1, 5, 50, 256} {
		var first map[int]int
		for _, chunk := range []int{33, 150, 1000} {
			for _, sizes := range [][]int{nil, {3, 200}} {
				c.limits = limits{bucket: b, chunkMin: chunk, chunkMax: chunk}
				files := cut(t, sigs, sizes...)
				got := flat(files, sizes, dedupe(t, c, files))
				if first == nil {
					first = got
				}
				require.Equal(t, first, got, "buckets of %d, chunks of %d, parts %v", b, chunk, sizes)
			}
		}
		for i := 200; i < 400; i++ {
			require.Contains(t, first, i, "equal records are found whatever the bound")
		}
		if b == 256 {
			require.Equal(t, naive(sigs, 0.85), first)
		}
	}
}

// TestAllSimilar: many variants of one text cost one comparison each.
func TestAllSimilar(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 2000
	}
	r := rand.New(rand.NewPCG(11, 12))
	c := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeNear})
	sigs := make([]Signature, n)
	one := c.Sign(chat(strings.Join(document(r, 300), " ")))
	for i := range sigs {
		sigs[i] = one
		sigs[i].exact[0], sigs[i].exact[1] = byte(i), byte(i>>8)
		for range 5 {
			sigs[i].near[r.IntN(permutations)] ^= 1
		}
	}
	dups := dedupe(t, c, cut(t, sigs))
	require.Len(t, dups, n-1)
	for _, d := range dups {
		require.Equal(t, int64(1), d.OfNumber)
	}
}

// TestRecall measures near duplicates against the true similarity of texts.
func TestRecall(t *testing.T) {
	pairs := 3000
	if testing.Short() {
		pairs = 600
	}
	for _, threshold := range []float64{0.5, 0.7, 0.85} {
		r := rand.New(rand.NewPCG(13, uint64(threshold*100)))
		c := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeNear, NearThreshold: threshold})
		var sigs []Signature
		truth := make([]float64, 0, pairs)
		for range pairs {
			a := document(r, 100+r.IntN(200))
			b := edited(r, a, r.IntN(len(a)/6))
			truth = append(truth, jaccard(a, b))
			sigs = append(sigs, c.Sign(chat(strings.Join(a, " "))), c.Sign(chat(strings.Join(b, " "))))
		}
		got := map[int64]bool{}
		for _, d := range dedupe(t, c, cut(t, sigs)) {
			require.Equal(t, d.Number-1, d.OfNumber, "no duplicates but of the same text")
			got[d.Number/2-1] = true
		}
		// The estimate's standard error is at most 0.044: pairs that are more
		// than two of it beyond the threshold are told with few mistakes, those
		// within it are not asked about.
		margin := 0.09
		var should, hit, shouldNot, wrong, said, right int
		for i, j := range truth {
			dup := got[int64(i)]
			switch {
			case j >= threshold+margin:
				should++
				if dup {
					hit++
				}
			case j < threshold-margin:
				shouldNot++
				if dup {
					wrong++
				}
			}
			if dup {
				said++
				if j >= threshold-margin {
					right++
				}
			}
		}
		t.Logf("threshold %.2f: recall %d of %d beyond it, %d of %d short of it wrongly, precision %d of %d", threshold, hit, should, wrong, shouldNot, right, said)
		require.Greater(t, should, pairs/20)
		require.Greater(t, shouldNot, pairs/20)
		require.GreaterOrEqual(t, float64(hit), 0.99*float64(should))
		require.LessOrEqual(t, float64(wrong), 0.01*float64(shouldNot))
		require.GreaterOrEqual(t, float64(right), 0.99*float64(said))
	}
}

func TestBands(t *testing.T) {
	for _, threshold := range []float64{0.01, 0.3, 0.5, 0.68, 0.7, 0.85, 0.9, 0.999, 1} {
		need := leastMatches(threshold)
		n := nearBands(need)
		covered := make([]int, permutations)
		for i := 1; i <= n; i++ {
			b, err := newBand(i, n, &rowFile{size: rowHead + nearBytes}, t.TempDir())
			require.NoError(t, err)
			require.NoError(t, b.file.Close())
			require.Less(t, b.from, b.to)
			for k := b.from; k < b.to; k += 2 {
				covered[(k-rowHead)/2]++
			}
		}
		require.Equal(t, slices.Repeat([]int{1}, permutations), covered, "every value is in one band")
		if threshold >= 0.68 {
			require.Greater(t, n, permutations-need, "one band more than two near duplicates have differences")
		}
	}
	require.Equal(t, 109, leastMatches(0.85))
	require.Equal(t, 128, leastMatches(1))
	require.Equal(t, 64, leastMatches(0.5))
}

func TestDedupeErrors(t *testing.T) {
	near := newCleaner(t, specstream.CleanSpec{Dedupe: specstream.DedupeNear})
	sigs := sampleSignatures(true, 30)
	never := func(Duplicate) error { return errors.New("nothing may be decided") }
	run := func(ctx context.Context, yield func(Duplicate) error, files ...SignatureSource) error {
		dir := t.TempDir()
		err := near.Dedupe(ctx, files, dir, yield)
		left, rerr := os.ReadDir(dir)
		require.NoError(t, rerr)
		require.Empty(t, left)
		return err
	}
	whole := signatures(t, append(sigs, sigs...))

	err := run(t.Context(), never, whole, signatures(t, sampleSignatures(false, 3)))
	require.ErrorContains(t, err, "signatures of part 1: made for exact duplicates only")
	require.True(t, specstream.BadInput(err))

	b := make([]byte, whole.Size())
	_, rerr := whole.ReadAt(b, 0)
	require.NoError(t, rerr)
	b[len(b)/2] ^= 1
	err = run(t.Context(), never, whole, strings.NewReader(string(b)))
	require.ErrorContains(t, err, "signatures of part 1: damaged")
	err = run(t.Context(), never, failing{whole})
	require.ErrorIs(t, err, errDisk)

	stop := errors.New("stop")
	require.ErrorIs(t, run(t.Context(), func(Duplicate) error { return stop }, whole), stop)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, run(ctx, never, whole), context.Canceled)
	ctx, cancel = context.WithCancel(t.Context())
	n := 0
	near.limits = limits{bucket: 256, chunkMin: 10, chunkMax: 10}
	err = run(ctx, func(Duplicate) error { n++; cancel(); return nil }, whole)
	require.ErrorIs(t, err, context.Canceled)
	require.Positive(t, n)

	require.Empty(t, dedupe(t, near, nil))
	require.Empty(t, dedupe(t, near, cut(t, nil, 0, 0)))
}

// synthetic makes a million signatures and more without texts: a tenth of them
// near duplicates of earlier ones, a tenth exact.
type synthetic struct {
	n, parts int
}

func (s synthetic) files(tb testing.TB) []SignatureSource {
	dir := tb.TempDir()
	r := rand.New(rand.NewPCG(15, 16))
	var out []SignatureSource
	var old []Signature
	for p := range s.parts {
		f, err := os.Create(fmt.Sprintf("%s/%d", dir, p))
		require.NoError(tb, err)
		tb.Cleanup(func() { f.Close() })
		w := NewSignatureWriter(f)
		for i := range s.n / s.parts {
			var sig Signature
			switch k := r.IntN(10); {
			case k == 0 && len(old) > 0:
				sig = old[r.IntN(len(old))]
			default:
				sig.kind = full
				if k == 1 && len(old) > 0 {
					sig = old[r.IntN(len(old))]
					for range 10 {
						sig.near[r.IntN(permutations)] = uint16(r.Uint32())
					}
				} else {
					for j := range sig.near {
						sig.near[j] = uint16(r.Uint32())
					}
				}
				for j := range sig.exact {
					sig.exact[j] = byte(r.Uint32())
				}
			}
			if len(old) < 10_000 {
				old = append(old, sig)
			}
			require.NoError(tb, w.Write(int64(i)+1, sig))
		}
		require.NoError(tb, w.Close())
		st, err := f.Stat()
		require.NoError(tb, err)
		out = append(out, sized{f, st.Size()})
	}
	return out
}

type sized struct {
	*os.File
	size int64
}

func (s sized) Size() int64 { return s.size }

func BenchmarkDedupe(b *testing.B) {
	s := synthetic{n: 1_000_000, parts: 20}
	files := s.files(b)
	c := newCleaner(b, specstream.CleanSpec{Dedupe: specstream.DedupeNear})
	var size int64
	for _, f := range files {
		size += f.Size()
	}
	b.SetBytes(size)
	dir := b.TempDir()
	peak := watchHeap(b)
	dups := 0
	for b.Loop() {
		dups = 0
		if err := c.Dedupe(context.Background(), files, dir, func(Duplicate) error { dups++; return nil }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
	b.ReportMetric(float64(peak())/float64(s.n), "heap-B/record")
	b.ReportMetric(float64(dups), "duplicates")
}
