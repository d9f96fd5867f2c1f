package shard

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// orderManifest makes a valid manifest of row groups of these many rows.
func orderManifest(name string, rows ...int64) Manifest {
	m := Manifest{Schema: ManifestVersion, Lineage: testLineage()}
	d := specstream.DigestBytes([]byte(name))
	for i, n := range rows {
		if i%3 == 0 {
			m.Shards = append(m.Shards, Shard{Digest: d, Bytes: 1 << 20, Index: Blob{d, 1}})
		}
		s := &m.Shards[len(m.Shards)-1]
		s.Groups = append(s.Groups, n)
		s.Rows += n
		s.Tokens += n
		m.Counts.Samples += n
		m.Counts.Tokens += n
	}
	m.Counts.MaxLength = 1
	m.Lengths = Histogram{0, m.Counts.Samples}
	return m
}

func newOrder(t testing.TB, m Manifest, o OrderOptions) *Order {
	t.Helper()
	order, err := NewOrder(m, o)
	require.NoError(t, err)
	return order
}

// step returns the rows of a step.
func step(t testing.TB, o *Order, k int64) []int64 {
	t.Helper()
	rows, err := o.Step(t.Context(), k)
	require.NoError(t, err)
	return rows
}

// Sequences of version 1 of the algorithm. If this fails the order has changed,
// and every run under way would see other samples: don't update the file, raise
// orderVersion.
func TestOrderGolden(t *testing.T) {
	type vector struct {
		Manifest specstream.Digest `json:"manifest"`
		Groups   []int64           `json:"groups"`
		Seed     uint64            `json:"seed"`
		Window   int               `json:"window"`
		Step     int64             `json:"step"`
		Batch    int64             `json:"batch"`
		Rows     []int64           `json:"rows"`
	}
	var got []vector
	for _, v := range []vector{
		{Groups: []int64{7, 3, 12, 1, 5}, Seed: 1, Window: 2, Step: 0, Batch: 28},
		{Groups: []int64{7, 3, 12, 1, 5}, Seed: 1, Window: 2, Step: 1, Batch: 28},
		{Groups: []int64{7, 3, 12, 1, 5}, Seed: 2, Window: 2, Step: 0, Batch: 28},
		{Groups: []int64{7, 3, 12, 1, 5}, Seed: 1, Window: 8, Step: 0, Batch: 28},
		{Groups: []int64{700, 300, 1200, 100, 500}, Seed: math.MaxUint64, Window: 3, Step: 123456789, Batch: 16},
	} {
		// The digest is given, not computed: the manifest's format may grow,
		// the order must not change with it.
		o := newOrder(t, orderManifest("golden", v.Groups...), OrderOptions{Seed: v.Seed, Window: v.Window, GlobalBatch: v.Batch})
		o.manifest = specstream.DigestBytes([]byte("golden"))
		v.Manifest = o.manifest
		v.Rows = step(t, o, v.Step)
		got = append(got, v)
	}
	golden := filepath.Join("testdata", "order.golden.json")
	if *update {
		b, err := json.MarshalIndent(got, "", " ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(golden, b, 0o644))
	}
	b, err := os.ReadFile(golden)
	require.NoError(t, err)
	var want []vector
	require.NoError(t, json.Unmarshal(b, &want))
	require.Equal(t, want, got)
}

func TestOrderEveryRowOnceAnEpoch(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for trial := range 60 {
		groups := make([]int64, 1+r.IntN(40))
		for i := range groups {
			groups[i] = 1 + r.Int64N(50)
		}
		m := orderManifest(fmt.Sprint(trial), groups...)
		window, g := 1+r.IntN(12), 1+r.Int64N(2*m.Counts.Samples)
		o := newOrder(t, m, OrderOptions{Seed: r.Uint64(), Window: window, GlobalBatch: g})
		var seq []int64
		for k := int64(0); int64(len(seq)) < 3*o.Rows(); k++ {
			seq = append(seq, step(t, o, k)...)
		}
		var epochs [][]int64
		for e := range int64(3) {
			epoch := seq[e*o.Rows() : (e+1)*o.Rows()]
			epochs = append(epochs, slices.Clone(epoch))
			sorted := slices.Sorted(slices.Values(epoch))
			for i, row := range sorted {
				require.EqualValues(t, i, row, "trial %d epoch %d", trial, e)
			}
			// Rows stay within the window's row groups.
			requireWindows(t, groups, window, epoch)
		}
		if o.Rows() > 20 {
			require.NotEqual(t, epochs[0], epochs[1])
			require.NotEqual(t, epochs[1], epochs[2])
		}
	}
}

// requireWindows checks that an epoch is cut into runs that are each all the
// rows of window row groups.
func requireWindows(t *testing.T, groups []int64, window int, epoch []int64) {
	t.Helper()
	var groupOf []int
	for g, n := range groups {
		for range n {
			groupOf = append(groupOf, g)
		}
	}
	left := slices.Clone(groups)
	open := map[int]bool{}
	for _, row := range epoch {
		g := groupOf[row]
		open[g] = true
		require.LessOrEqual(t, len(open), window)
		left[g]--
		done := len(open) == window // the last window may be shorter and stays open
		for g := range open {
			done = done && left[g] == 0
		}
		if done {
			clear(open)
		}
	}
}

// What a step holds does not depend on the number of workers, on where a run
// was interrupted, or on what was asked before.
func TestOrderElastic(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	groups := make([]int64, 30)
	for i := range groups {
		groups[i] = 20 + r.Int64N(60)
	}
	m := orderManifest("elastic", groups...)
	const g, steps = 24, 200
	options := OrderOptions{Seed: 7, Window: 4, GlobalBatch: g}
	ref := newOrder(t, m, options)
	want := make([][]int64, steps)
	for k := range want {
		want[k] = step(t, ref, int64(k))
	}
	for trial := range 50 {
		for k := 0; k < steps; {
			o, world := newOrder(t, m, options), 1+r.IntN(30)
			for range 1 + r.IntN(steps/3) {
				if k == steps {
					break
				}
				rows := step(t, o, int64(k))
				union := make([]int64, g)
				for rank := range world {
					part := Slice(rows, rank, world)
					require.LessOrEqual(t, len(part), g/world+1)
					require.GreaterOrEqual(t, len(part), g/world)
					for i, p := range part {
						union[rank+i*world] = p
					}
				}
				require.Equal(t, want[k], union, "trial %d step %d of %d workers", trial, k, world)
				k++
			}
		}
	}
	for range 500 { // random access
		k := r.IntN(steps)
		require.Equal(t, want[k], step(t, ref, int64(k)))
	}
	// The batch size regroups positions and changes nothing else.
	options.GlobalBatch = 2 * g
	require.Equal(t, slices.Concat(want[0], want[1]), step(t, newOrder(t, m, options), 0))
}

func TestOrderDependsOn(t *testing.T) {
	m := orderManifest("a", 50, 60, 70)
	order := func(m Manifest, seed uint64, window int) []int64 {
		return step(t, newOrder(t, m, OrderOptions{Seed: seed, Window: window, GlobalBatch: 180}), 0)
	}
	base := order(m, 1, 2)
	require.Equal(t, base, order(m, 1, 2))
	require.NotEqual(t, base, order(m, 2, 2), "the seed")
	require.NotEqual(t, base, order(m, 1, 3), "the window")
	require.NotEqual(t, base, order(orderManifest("b", 50, 60, 70), 1, 2), "the manifest")
	require.Equal(t, order(m, 1, DefaultWindow), order(m, 1, 0))
}

// Every place of an epoch is as likely for every row.
func TestOrderUniform(t *testing.T) {
	const rows, epochs = 12, 24000
	o := newOrder(t, orderManifest("u", 3, 3, 3, 3), OrderOptions{Seed: 5, Window: 4, GlobalBatch: rows}) // one window: all permutations
	var seen [rows][rows]float64
	for e := range int64(epochs) {
		for at, row := range step(t, o, e) {
			seen[at][row]++
		}
	}
	chi := 0.0
	for at := range seen {
		for _, n := range seen[at] {
			d := n - epochs/rows
			chi += d * d / (epochs / rows)
		}
	}
	// (rows−1)² = 121 degrees of freedom: mean 121, standard deviation 15.6.
	require.Less(t, chi, 121+5*15.6)
	require.Greater(t, chi, 121-5*15.6)
}

func TestOrderFarAway(t *testing.T) {
	o := newOrder(t, orderManifest("far", 3, 4), OrderOptions{Seed: 1, GlobalBatch: 8})
	require.Len(t, step(t, o, math.MaxInt64/8-1), 8)
	require.Panics(t, func() { _, _ = o.Step(t.Context(), math.MaxInt64/8) })
	require.Panics(t, func() { _, _ = o.Step(t.Context(), -1) })
	require.Panics(t, func() { Slice(nil, 1, 1) })
	require.Panics(t, func() { Slice(nil, -1, 1) })
	require.Empty(t, Slice([]int64{1}, 2, 3))
	for _, tt := range []struct {
		field string
		o     OrderOptions
	}{{"window", OrderOptions{GlobalBatch: 1, Window: -1}}, {"global_batch", OrderOptions{}}, {"global_batch", OrderOptions{GlobalBatch: -8}}} {
		_, err := NewOrder(orderManifest("far", 3), tt.o)
		var in *specstream.InputError
		require.ErrorAs(t, err, &in)
		require.Equal(t, tt.field, in.Field)
	}
	_, err := NewOrder(orderManifest("far", 3), OrderOptions{GlobalBatch: 1, Bucketing: true})
	require.ErrorContains(t, err, "bucketing needs the store")
	_, err = NewOrder(Manifest{}, OrderOptions{GlobalBatch: 1})
	require.True(t, specstream.BadInput(err))
	// Position 12 is row 5 of 7 in epoch 1.
	epoch, left := newOrder(t, orderManifest("far", 3, 4), OrderOptions{GlobalBatch: 4}).Epoch(3)
	require.EqualValues(t, 1, epoch)
	require.EqualValues(t, 1, left)
}

func BenchmarkOrder(b *testing.B) {
	groups := make([]int64, 2000)
	for i := range groups {
		groups[i] = 900
	}
	m := orderManifest("bench", groups...)
	b.Run("steps", func(b *testing.B) {
		o := newOrder(b, m, OrderOptions{Seed: 1, GlobalBatch: 64})
		k := int64(0)
		for b.Loop() {
			step(b, o, k)
			k++
		}
	})
	b.Run("random access", func(b *testing.B) {
		o := newOrder(b, m, OrderOptions{Seed: 1, GlobalBatch: 64})
		r := rand.New(rand.NewPCG(1, 1))
		for b.Loop() {
			step(b, o, r.Int64N(1<<40))
		}
	})
}
