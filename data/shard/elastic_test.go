package shard

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// lengthSamples have lengths of 1 to 400 tokens; the first token says which.
func lengthSamples(n int) []data.Sample {
	r := rand.New(rand.NewPCG(77, 1))
	out := make([]data.Sample, n)
	for i := range out {
		out[i].Tokens = make([]int32, 1+int(399*math.Pow(r.Float64(), 3)))
		out[i].Tokens[0] = int32(i)
	}
	return out
}

// Any sequence of world sizes and kills reads what one worker reads alone, no
// sample lost and none doubled: the state is saved now and then, workers are
// killed in the middle of a step or between a step and its state, and any number
// of others goes on from the last state.
func TestElasticAndKilled(t *testing.T) {
	blobs := newMemBlobs()
	const rows = 700
	samples := lengthSamples(rows)
	m := write(t, Options{Blobs: blobs, ShardTokens: 12_000, RowGroupTokens: 1500}, samples)
	rounds := 60
	if testing.Short() {
		rounds = 15
	}
	r := rand.New(rand.NewPCG(5, 6))
	for round := range rounds {
		options := OrderOptions{Seed: r.Uint64(), GlobalBatch: 1 + r.Int64N(70), Window: 1 + r.IntN(12), Bucketing: round%2 == 0, Blobs: blobs}
		steps := 3 * rows / options.GlobalBatch // three epochs
		alone := newOrder(t, m, options)
		var want []int64
		for k := range steps {
			want = append(want, step(t, alone, k)...)
		}

		saved, err := json.Marshal(alone.State(0))
		require.NoError(t, err)
		var got []int64 // what the steps up to the saved state have read
		for next := int64(0); next < steps; {
			var s OrderState
			require.NoError(t, json.Unmarshal(saved, &s))
			world := 1 + r.IntN(17)
			ranks := make([]*Order, world) // each worker has its own
			for i := range ranks {
				var at int64
				ranks[i], at, err = Resume(s, m, blobs)
				require.NoError(t, err)
				require.Equal(t, next, at)
			}
			lives := 1 + r.Int64N(steps)
			pending := slices.Clone(got)
			for k := next; k < steps && k < next+lives; k++ {
				batch := make([]int64, options.GlobalBatch)
				dead := r.IntN(20) == 0
				for i, o := range ranks {
					if dead && i == world/2 {
						break // killed before the step's end
					}
					for j, row := range Slice(step(t, o, k), i, world) {
						batch[i+j*world] = row
					}
				}
				if dead {
					break
				}
				pending = append(pending, batch...)
				if r.IntN(4) == 0 { // a state is saved; steps behind it are lost with the workers
					saved, err = json.Marshal(ranks[0].State(k + 1))
					require.NoError(t, err)
					got, next = slices.Clone(pending), k+1
				}
			}
		}
		require.Equal(t, want, got, "round %d", round)
		requireEpochs(t, rows, got)
	}
}

// requireEpochs checks that each whole epoch of a sequence has every row once.
func requireEpochs(t *testing.T, rows int, seq []int64) {
	t.Helper()
	for e := 0; (e+1)*rows <= len(seq); e++ {
		for i, row := range slices.Sorted(slices.Values(seq[e*rows : (e+1)*rows])) {
			require.EqualValues(t, i, row, "epoch %d", e)
		}
	}
}

// Workers that go on in mid-epoch read the tokens of every remaining sample
// exactly once, through the data set itself.
func TestResumeReadsTheRest(t *testing.T) {
	blobs := newMemBlobs()
	const rows, g = 500, 12
	samples := lengthSamples(rows)
	m := write(t, Options{Blobs: blobs, ShardTokens: 9000, RowGroupTokens: 1500}, samples)
	seen := make([]int, rows)
	read := func(o *Order, d *Dataset, k int64, world int) {
		rowsOf := step(t, o, k)
		if left := rows - k*g; left < g {
			rowsOf = rowsOf[:left] // the epoch ends here
		}
		for rank := range world {
			rec, err := d.Batch(t.Context(), Slice(rowsOf, rank, world))
			require.NoError(t, err)
			for _, s := range copySamples(t, rec) {
				require.Equal(t, samples[s.Tokens[0]].Tokens, s.Tokens)
				seen[s.Tokens[0]]++
			}
			rec.Release()
		}
	}
	o := newOrder(t, m, OrderOptions{Seed: 3, GlobalBatch: g, Window: 3, Bucketing: true, Blobs: blobs})
	d := open(t, blobs, m, DatasetOptions{})
	for k := range int64(17) {
		read(o, d, k, 3)
	}
	again, next, err := Resume(o.State(17), m, blobs)
	require.NoError(t, err)
	cached := open(t, blobs, m, DatasetOptions{CacheDir: t.TempDir()})
	for k := next; k*g < rows; k++ {
		read(again, cached, k, 7)
	}
	require.Equal(t, slices.Repeat([]int{1}, rows), seen)
}

func TestBucketing(t *testing.T) {
	blobs := newMemBlobs()
	const rows, g, window = 2000, 16, 8
	samples := lengthSamples(rows)
	m := write(t, Options{Blobs: blobs, ShardTokens: 20_000, RowGroupTokens: 4000}, samples)
	plain := newOrder(t, m, OrderOptions{Seed: 9, GlobalBatch: g, Window: window})
	o := newOrder(t, m, OrderOptions{Seed: 9, GlobalBatch: g, Window: window, Bucketing: true, Blobs: blobs})

	// The spread of lengths inside a step, which is what padding or uneven
	// workers cost, falls; steps that reach over a window's ends are few.
	spread := func(o *Order) (mean float64, wide int) {
		const steps = 3 * rows / g
		for k := range int64(steps) {
			least, most := math.MaxInt, 0
			for _, row := range step(t, o, k) {
				n := len(samples[row].Tokens)
				least, most = min(least, n), max(most, n)
			}
			mean += float64(most-least) / steps
			if most-least > 100 {
				wide++
			}
		}
		return mean, wide
	}
	random, _ := spread(plain)
	bucketed, wide := spread(o)
	t.Logf("tokens between the shortest and the longest of a step: %.0f at random, %.0f in buckets", random, bucketed)
	require.Less(t, bucketed, random/4)
	groups := 0
	for _, s := range m.Shards {
		groups += len(s.Groups)
	}
	windows := 3 * ((groups + window - 1) / window)
	require.LessOrEqual(t, wide, 3*windows, "steps over the ends of windows, and the longest of each")

	// Windows hold the same rows as without, and steps come in any order of
	// length.
	var seq, ref []int64
	var lengths []int
	for k := range int64(3*rows/g) + 1 {
		seq, ref = append(seq, step(t, o, k)...), append(ref, step(t, plain, k)...)
		lengths = append(lengths, len(samples[step(t, o, k)[0]].Tokens))
	}
	requireEpochs(t, rows, seq)
	plain.setEpoch(0)
	ends := plain.epoch.starts
	for i := range len(ends) - 1 {
		require.ElementsMatch(t, ref[ends[i]:ends[i+1]], seq[ends[i]:ends[i+1]])
	}
	rising := 0
	for i := 1; i < len(lengths); i++ {
		if lengths[i] >= lengths[i-1] {
			rising++
		}
	}
	require.InDelta(t, len(lengths)/2, rising, float64(len(lengths))/6)

	// A batch as large as a window leaves nothing to sort.
	whole := OrderOptions{Seed: 9, GlobalBatch: rows, Window: window}
	want := step(t, newOrder(t, m, whole), 0)
	whole.Bucketing, whole.Blobs = true, blobs
	require.Equal(t, want, step(t, newOrder(t, m, whole), 0))

	// Lengths that can't be read are an error that names the shard.
	whole.GlobalBatch = g
	blobs.set(m.Shards[0].Index.Digest, []byte("x"))
	bad := newOrder(t, m, whole)
	var err error
	for k := int64(0); err == nil && k < rows/g; k++ {
		_, err = bad.Step(t.Context(), k)
	}
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, string(m.Shards[0].Digest))
}

// The bucketed sequence of version 1 of the algorithm; see TestOrderGolden.
func TestBucketingGolden(t *testing.T) {
	blobs := newMemBlobs()
	samples := make([]data.Sample, 300)
	for i := range samples {
		samples[i].Tokens = make([]int32, 1+i*i*31%97)
	}
	m := write(t, Options{Blobs: blobs, ShardTokens: 4000, RowGroupTokens: 900}, samples)
	o := newOrder(t, m, OrderOptions{Seed: 11, GlobalBatch: 7, Window: 4, Bucketing: true, Blobs: blobs})
	// The digest is given, not computed: the order must not change with the
	// manifest's format.
	o.manifest = specstream.DigestBytes([]byte("golden"))
	var seq []int64
	for k := range int64(100) {
		seq = append(seq, step(t, o, k)...)
	}
	d, err := specstream.DigestJSON(seq)
	require.NoError(t, err)
	require.EqualValues(t, "sha256:51a577cc6893d841d3a5039af8eba65a09d130bda9fc88ba1535141a0b62ea1a", d)
}

func TestResumeRefuses(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs, RowGroupTokens: 300}, randomSamples(4, 90, 30))
	other := write(t, Options{Blobs: blobs, RowGroupTokens: 200}, randomSamples(4, 90, 30))
	options := OrderOptions{Seed: 1 << 63, GlobalBatch: 8, Window: 2, Bucketing: true, Blobs: blobs}
	o := newOrder(t, m, options)
	good := o.State(25)
	require.EqualValues(t, 200, good.Next)
	require.EqualValues(t, 2, good.Epoch)
	b, err := json.Marshal(good)
	require.NoError(t, err)
	var s OrderState
	require.NoError(t, json.Unmarshal(b, &s))
	require.Equal(t, good, s)
	again, k, err := Resume(s, m, blobs)
	require.NoError(t, err)
	require.EqualValues(t, 25, k)
	require.Equal(t, step(t, o, 25), step(t, again, 25))

	tests := []struct {
		name  string
		spoil func(s *OrderState)
		field string
	}{
		{"algorithm", func(s *OrderState) { s.Algorithm = "specstream.order.v2" }, "algorithm"},
		{"manifest", func(s *OrderState) { s.Manifest = other.Shards[0].Digest }, "manifest"},
		{"seed", func(s *OrderState) { s.Seed++ }, "seed"},
		{"global batch", func(s *OrderState) { s.GlobalBatch = 4 }, "global_batch"},
		{"no global batch", func(s *OrderState) { s.GlobalBatch = 0 }, "global_batch"},
		{"window", func(s *OrderState) { s.Window = 3 }, "window"},
		{"no window", func(s *OrderState) { s.Window = 0 }, "window"},
		{"bucketing", func(s *OrderState) { s.Bucketing = false }, "bucketing"},
		{"in mid step", func(s *OrderState) { s.Next++ }, "next"},
		{"negative", func(s *OrderState) { s.Next = -8 }, "next"},
		{"too far", func(s *OrderState) { s.Next = math.MaxInt64 - 7 }, "next"},
		{"another epoch", func(s *OrderState) { s.Epoch++ }, "epoch"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := good
			tt.spoil(&s)
			_, err := o.Resume(s)
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, tt.field, in.Field)
		})
	}
	_, _, err = Resume(good, other, blobs)
	require.ErrorContains(t, err, "manifest")
	require.True(t, specstream.BadInput(err))
	s = good
	s.Window = 0
	_, _, err = Resume(s, m, blobs)
	require.True(t, specstream.BadInput(err))
}

// A state of any content is refused or gives an order that goes on.
func FuzzOrderState(f *testing.F) {
	m := orderManifest("state", 3, 4, 5)
	o, err := NewOrder(m, OrderOptions{Seed: 1, GlobalBatch: 2})
	require.NoError(f, err)
	b, err := json.Marshal(o.State(9))
	require.NoError(f, err)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var s OrderState
		if json.Unmarshal(b, &s) != nil || s.GlobalBatch > 1<<16 {
			return
		}
		o, k, err := Resume(s, m, newMemBlobs())
		if err != nil {
			require.True(t, specstream.BadInput(err), "%v", err)
			return
		}
		require.Equal(t, s, o.State(k))
		if !s.Bucketing { // the store has no lengths
			require.Len(t, step(t, o, k), int(s.GlobalBatch))
		}
	})
}
