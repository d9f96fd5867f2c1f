package trainer_test

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
	"github.com/specstream/specstream/trainer/gorgonia"
)

// fixture is a tiny base and endless batches of random samples.
type fixture struct {
	weights *model.Weights
	spec    specstream.TrainSpec
}

func newFixture(mode specstream.Mode) fixture {
	c := model.Config{Architecture: "LlamaForCausalLM", HiddenSize: 16, IntermediateSize: 24, NumLayers: 3, NumHeads: 2, NumKVHeads: 1, HeadDim: 8,
		VocabSize: 40, MaxPositions: 64, RMSNormEps: 1e-5, RopeTheta: 10000, BOS: -1}
	s := specstream.TrainSpec{AdapterSpec: specstream.AdapterSpec{Mode: mode, MSALayers: 2, Gamma: 3, LoRARank: 4}, Steps: 9, BatchSize: 4, MicroBatch: 3,
		Segments: 2, LearningRate: 0.01, SaveEvery: 2}
	return fixture{model.NewWeights(c, 5), s.WithDefaults()}
}

// Batch makes the batch of a step from its number alone.
func (fixture) Batch(ctx context.Context, step, size int) ([]trainer.Sequence, error) {
	r := rand.New(rand.NewPCG(uint64(step), 1))
	var out []trainer.Sequence
	for range size {
		prompt, completion := 2+r.IntN(6), 1+r.IntN(8)
		s := trainer.Sequence{Spans: []segattn.Span{{Start: prompt, End: prompt + completion}}}
		for range prompt + completion {
			s.Tokens = append(s.Tokens, int32(r.IntN(40)))
		}
		out = append(out, s)
	}
	return out, ctx.Err()
}

// train runs the fixture in dir until it ends or stopAfter steps are done, then
// cancels with cause.
func (f fixture) train(t *testing.T, dir string, stopAfter int, cause error) (specstream.Digest, []trainer.Metrics, error) {
	t.Helper()
	a, err := model.NewAdapter(f.weights.Config, f.spec.AdapterSpec, f.spec.Seed)
	if err != nil {
		t.Fatal(err)
	}
	b, err := gorgonia.NewAdapter[float32](f.weights, a, f.spec)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := 0
	history, runErr := trainer.Run(ctx, f.spec, b, f, trainer.StateDir(dir), func(trainer.Progress) {
		if done++; done == stopAfter {
			cancel(cause)
		}
	})
	d, err := b.Adapter().Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d, history, runErr
}

// TestResumeIsBitEqual stops a run again and again, both in an orderly way and
// as a kill would, and compares the bits it ends with.
func TestResumeIsBitEqual(t *testing.T) {
	for _, mode := range []specstream.Mode{specstream.Lossless, specstream.Shared} {
		f := newFixture(mode)
		want, wantHistory, err := f.train(t, t.TempDir(), 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, cause := range map[string]error{"drained": specstream.ErrDrained, "killed": errors.New("killed")} {
			for stop := 1; stop <= 3; stop++ {
				dir := t.TempDir()
				runs := 0
				for {
					runs++
					// A kill loses the steps since the last state, so it must come later
					// than the next state for the run to advance.
					after := stop
					if cause != specstream.ErrDrained {
						after = stop + f.spec.SaveEvery
					}
					got, history, err := f.train(t, dir, after, cause)
					if err == nil {
						if got != want {
							t.Errorf("%s, %s every %d steps: the adapter differs from an undisturbed run's", mode, name, stop)
						}
						if !slices.EqualFunc(history, wantHistory, func(a, b trainer.Metrics) bool { return a.Step == b.Step && a.Loss == b.Loss }) {
							t.Errorf("%s, %s every %d steps: the history differs", mode, name, stop)
						}
						break
					}
					if cause == specstream.ErrDrained && !errors.Is(err, specstream.ErrDrained) {
						t.Fatalf("a drained run says %v", err)
					}
					if runs > 20 {
						t.Fatalf("%s: the run does not end", name)
					}
				}
				if runs == 1 {
					t.Errorf("%s, %s every %d steps: the run was never stopped", mode, name, stop)
				}
			}
		}
	}
}

func TestLossFalls(t *testing.T) {
	for _, mode := range []specstream.Mode{specstream.Lossless, specstream.Shared} {
		f := newFixture(mode)
		f.spec.Steps = 60
		same := sameBatch{f}
		a, err := model.NewAdapter(f.weights.Config, f.spec.AdapterSpec, 1)
		if err != nil {
			t.Fatal(err)
		}
		b, err := gorgonia.NewAdapter[float32](f.weights, a, f.spec)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		h, err := trainer.Run(context.Background(), f.spec, b, same, trainer.StateDir(t.TempDir()), nil)
		if err != nil {
			t.Fatal(err)
		}
		if first, last := h[0].Loss, h[len(h)-1].Loss; last > 0.97*first {
			t.Errorf("%s: the loss on one batch went from %.3f to %.3f", mode, first, last)
		}
	}
}

// sameBatch is the same batch at every step.
type sameBatch struct{ fixture }

func (s sameBatch) Batch(ctx context.Context, _, size int) ([]trainer.Sequence, error) {
	return s.fixture.Batch(ctx, 0, size)
}

func TestLossThatIsNotANumberStops(t *testing.T) {
	f := newFixture(specstream.Lossless)
	f.weights.Norm[0] = float32(math.NaN())
	_, _, err := f.train(t, t.TempDir(), 0, nil)
	if !specstream.BadInput(err) {
		t.Errorf("a loss that is not a number gave %v", err)
	}
}

func TestStateFileRefusesDamage(t *testing.T) {
	dir := t.TempDir()
	f := newFixture(specstream.Lossless)
	if _, _, err := f.train(t, dir, 3, specstream.ErrDrained); !errors.Is(err, specstream.ErrDrained) {
		t.Fatal(err)
	}
	path := filepath.Join(dir, trainer.StateFileName)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)-5], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.train(t, dir, 0, nil); err == nil {
		t.Error("a truncated state is resumed from")
	}
}

func TestLearningRate(t *testing.T) {
	s := specstream.TrainSpec{AdapterSpec: specstream.AdapterSpec{Mode: specstream.Lossless}, Steps: 100, WarmupSteps: 10, LearningRate: 1}.WithDefaults()
	for _, c := range []struct {
		step int
		want float64
	}{{0, 0.1}, {9, 1}, {10, 1}, {55, 0.5}, {99, 1.0 / 90}} {
		if got := trainer.LearningRate(s, c.step); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("rate of step %d is %v, want %v", c.step, got, c.want)
		}
	}
}

func TestCountTargets(t *testing.T) {
	batch := []trainer.Sequence{{Tokens: make([]int32, 10), Spans: []segattn.Span{{Start: 2, End: 4}, {Start: 7, End: 10}}}}
	if got, want := trainer.CountTargets(batch, 3), (trainer.Counts{5, 3, 1, 1}); !slices.Equal(got, want) {
		t.Errorf("targets %v, want %v (an empty sum is divided by one)", got, want)
	}
}
