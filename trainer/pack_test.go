package trainer_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/trainer"
	"github.com/specstream/specstream/trainer/gorgonia"
)

func TestPack(t *testing.T) {
	for _, tt := range []struct {
		name     string
		lengths  []int
		capacity int
		want     [][]int
	}{
		{"nothing", nil, 10, nil},
		{"one", []int{4}, 10, [][]int{{0}}},
		{"best fit", []int{6, 5, 4, 5}, 10, [][]int{{0, 2}, {1, 3}}},
		{"the fullest with room", []int{3, 7, 6, 3}, 10, [][]int{{1, 0}, {2, 3}}},
		{"longer than a pack", []int{2, 30, 8}, 10, [][]int{{1}, {2, 0}}},
		{"equals in order", []int{5, 5, 5, 5, 5}, 10, [][]int{{0, 1}, {2, 3}, {4}}},
		{"empty", []int{0, 10, 0}, 10, [][]int{{1, 0, 2}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := trainer.Pack(tt.lengths, tt.capacity)
			if !slices.EqualFunc(got, tt.want, slices.Equal) {
				t.Errorf("packs %v, want %v", got, tt.want)
			}
		})
	}
}

// Every sequence is in one pack, no pack is overfull, cutting the packed order
// greedily gives the packs again, and they are never more than without.
func TestPackProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	greedy := func(lengths []int, order []int, capacity int) (packs [][]int) {
		room := -1
		for _, i := range order {
			if len(packs) == 0 || lengths[i] > room {
				packs, room = append(packs, nil), capacity
			}
			packs[len(packs)-1] = append(packs[len(packs)-1], i)
			room -= lengths[i]
		}
		return packs
	}
	saved := 0
	for range 500 {
		capacity := 1 + r.IntN(2000)
		lengths := make([]int, r.IntN(60))
		drawn := make([]int, len(lengths))
		for i := range lengths {
			lengths[i], drawn[i] = 1+int(float64(capacity)*1.1*r.Float64()*r.Float64()), i
		}
		packs := trainer.Pack(lengths, capacity)
		for _, p := range packs {
			sum := 0
			for _, i := range p {
				sum += lengths[i]
			}
			if sum > capacity && len(p) > 1 {
				t.Fatalf("a pack of %d tokens, capacity %d", sum, capacity)
			}
		}
		order := slices.Concat(packs...)
		if !slices.Equal(slices.Sorted(slices.Values(order)), drawn) {
			t.Fatalf("packs %v of %d sequences", packs, len(lengths))
		}
		if again := greedy(lengths, order, capacity); !slices.EqualFunc(again, packs, slices.Equal) {
			t.Fatalf("packs %v are cut as %v", packs, again)
		}
		saved += len(greedy(lengths, drawn, capacity)) - len(packs)
	}
	if saved < 500 {
		t.Errorf("packing spared only %d packs in 500 batches", saved)
	}
}

// Packed batches train the same: samples that go through the model together
// share neither attention nor loss, so losses and parameters differ by rounding
// alone.
func TestPackedTrainsTheSame(t *testing.T) {
	for _, mode := range []specstream.Mode{specstream.Lossless, specstream.Shared} {
		f := newFixture(mode)
		f.spec.BatchSize, f.spec.MicroBatch, f.spec.Steps = 12, 12, 4
		run := func(b trainer.Batches) []trainer.Metrics {
			a, err := model.NewAdapter(f.weights.Config, f.spec.AdapterSpec, f.spec.Seed)
			if err != nil {
				t.Fatal(err)
			}
			backend, err := gorgonia.NewAdapter[float64](f.weights, a, f.spec)
			if err != nil {
				t.Fatal(err)
			}
			defer backend.Close()
			history, err := trainer.Run(t.Context(), f.spec, backend, b, trainer.StateDir(t.TempDir()), nil)
			if err != nil {
				t.Fatal(err)
			}
			return history
		}
		want, got := run(f), run(trainer.Packed{Batches: f, Tokens: 24})
		for i := range want {
			if d := math.Abs(want[i].Loss - got[i].Loss); !(d <= 1e-9*math.Abs(want[i].Loss)) {
				t.Errorf("%s, step %d: loss %.15g packed, %.15g as drawn", mode, i, got[i].Loss, want[i].Loss)
			}
		}
		batch, err := trainer.Packed{Batches: f, Tokens: 24}.Batch(t.Context(), 0, 12)
		if err != nil {
			t.Fatal(err)
		}
		drawn, err := f.Batch(context.Background(), 0, 12)
		if err != nil {
			t.Fatal(err)
		}
		if slices.EqualFunc(batch, drawn, func(a, b trainer.Sequence) bool { return slices.Equal(a.Tokens, b.Tokens) }) {
			t.Error("packing left the batch as it was drawn")
		}
	}
}
