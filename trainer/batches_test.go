package trainer_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/trainer"
)

// testShards stores a small dataset, whose samples' first token is their number.
func testShards(t *testing.T, n int) (shard.DirBlobs, shard.Manifest) {
	t.Helper()
	blobs := shard.DirBlobs{Dir: t.TempDir()}
	w, err := shard.NewWriter(shard.Options{Blobs: blobs, ShardTokens: 300, RowGroupTokens: 60})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		s := data.Sample{Tokens: make([]int32, 4+i*7%11), Spans: []data.Span{{Start: 2, End: 4}}}
		s.Tokens[0] = int32(i)
		if err := w.Write(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	m, err := w.Commit(t.Context(), shard.Lineage{Spec: specstream.DataSpec{Format: "sql", Inputs: []string{"a"}}, Template: "plain/1",
		Tokenizer: specstream.DigestBytes(nil), VocabSize: 1000, Sources: []shard.Source{{URI: "a", SHA256: specstream.DigestBytes(nil)}}})
	if err != nil {
		t.Fatal(err)
	}
	return blobs, m
}

func openShards(t *testing.T, blobs shard.DirBlobs, m shard.Manifest, o shard.OrderOptions) *trainer.ShardBatches {
	t.Helper()
	o.Blobs = blobs
	order, err := shard.NewOrder(m, o)
	if err != nil {
		t.Fatal(err)
	}
	ds, err := shard.OpenDataset(t.Context(), blobs, m, shard.DatasetOptions{WithoutText: true, CacheDir: filepath.Join(t.TempDir(), "cache")})
	if err != nil {
		t.Fatal(err)
	}
	b := &trainer.ShardBatches{Dataset: ds, Order: order}
	t.Cleanup(b.Close)
	return b
}

func TestShardBatches(t *testing.T) {
	blobs, m := testShards(t, 50)
	for name, o := range map[string]shard.OrderOptions{"drawn": {Seed: 1, GlobalBatch: 5}, "bucketed": {Seed: 1, GlobalBatch: 5, Bucketing: true}} {
		b := openShards(t, blobs, m, o)
		seen := map[int32]int{}
		for k := range 20 { // two epochs
			batch, err := b.Batch(t.Context(), k, 5)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range batch {
				i := s.Tokens[0]
				seen[i]++
				if len(s.Tokens) != 4+int(i)*7%11 || len(s.Spans) != 1 || s.Spans[0].Start != 2 {
					t.Errorf("%s: sample %d came as %v", name, i, s)
				}
			}
		}
		for i := range int32(50) {
			if seen[i] != 2 {
				t.Errorf("%s: sample %d was seen %d times in two epochs", name, i, seen[i])
			}
		}
		if _, err := b.Batch(t.Context(), 0, 6); err == nil {
			t.Errorf("%s: a batch of another size was given", name)
		}
	}
}

// A training's state says which data it has seen, also through wrappers, and a
// run with others is refused.
func TestStateHasItsPlaceInTheData(t *testing.T) {
	blobs, m := testShards(t, 50)
	o := shard.OrderOptions{Seed: 1, GlobalBatch: 5, Bucketing: true}
	f := newFixture(specstream.Lossless)
	f.spec.BatchSize, f.spec.Steps, f.spec.MicroBatch = 5, 6, 5
	dir := trainer.StateDir(t.TempDir())
	run := func(b trainer.Batches, stop int) error {
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		_, err := trainer.Run(ctx, f.spec, &countBackend{}, b, dir, func(p trainer.Progress) {
			if p.Step == stop {
				cancel(specstream.ErrDrained)
			}
		})
		return err
	}
	wrapped := trainer.WholeText{Batches: trainer.Packed{Batches: openShards(t, blobs, m, o), Tokens: 30}}
	if err := run(wrapped, 3); !errors.Is(err, specstream.ErrDrained) {
		t.Fatal(err)
	}
	state, found, err := dir.Load(t.Context())
	if err != nil || !found || state.Order == nil {
		t.Fatalf("state %+v, %v, %v", state, found, err)
	}
	if state.Order.Next != 15 || !state.Order.Bucketing || state.Order.Seed != 1 {
		t.Errorf("the saved place is %+v", *state.Order)
	}
	for field, other := range map[string]shard.OrderOptions{"seed": {Seed: 2, GlobalBatch: 5, Bucketing: true},
		"bucketing": {Seed: 1, GlobalBatch: 5}, "window": {Seed: 1, GlobalBatch: 5, Bucketing: true, Window: 3}} {
		err := run(openShards(t, blobs, m, other), 0)
		var in *specstream.InputError
		if !errors.As(err, &in) || in.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	otherBlobs, otherData := testShards(t, 49)
	if err := run(openShards(t, otherBlobs, otherData, o), 0); !specstream.BadInput(err) {
		t.Errorf("another dataset: %v", err)
	}
	moved := state
	moved.Order = nil
	if err := dir.Save(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	if err := run(wrapped, 0); !specstream.BadInput(err) {
		t.Errorf("a state without its place: %v", err)
	}
	place := *state.Order
	place.Next = 20
	moved.Order = &place
	if err := dir.Save(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	var in *specstream.InputError
	if err := run(wrapped, 0); !errors.As(err, &in) || in.Field != "next" {
		t.Errorf("a state of another step: %v", err)
	}
	if err := dir.Save(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if err := run(wrapped, 0); err != nil {
		t.Errorf("the run itself: %v", err)
	}
}

// countBackend counts steps and does no arithmetic.
type countBackend struct {
	trainer.Backend
	steps int
}

func (*countBackend) Accumulate(_ context.Context, batch []trainer.Sequence, c trainer.Counts) (trainer.Losses, error) {
	l := trainer.NewLosses(len(c) - 1)
	for _, s := range batch {
		l.Streams[0] += float64(slices.Max(s.Tokens))
	}
	return l, nil
}

func (b *countBackend) Step(float64) (float64, error) {
	b.steps++
	return 0, nil
}

func (b *countBackend) State() (trainer.State, error) { return trainer.State{Step: b.steps}, nil }

func (b *countBackend) Restore(s trainer.State) error {
	b.steps = s.Step
	return nil
}
