package gorgonia

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

// TestFiniteDifferences holds the gradients of both modes to central differences
// of the loss in float64.
func TestFiniteDifferences(t *testing.T) {
	for _, g := range goldenCases(t) {
		t.Run(g.name, func(t *testing.T) {
			spec := g.spec
			spec.Segments = 2
			b, err := NewAdapter[float64](g.weights, g.adapter, spec)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			counts := trainer.CountTargets(g.batch, spec.Gamma)
			loss := func() (total, prune float64) {
				l, err := b.Accumulate(context.Background(), g.batch, counts)
				if err != nil {
					t.Fatal(err)
				}
				return l.Total(counts, *spec.Alpha0, *spec.AlphaStream), l.Prune / float64(counts[0])
			}
			loss()
			grads := map[string][]float64{}
			for _, p := range b.params {
				grads[p.name] = append([]float64(nil), p.grad...)
			}
			rng := rand.New(rand.NewPCG(5, 6))
			coordinates := 2
			if testing.Short() {
				coordinates = 1
			}
			for _, p := range b.params {
				for range coordinates {
					i := rng.IntN(len(p.data))
					const eps = 1e-5
					keep := p.data[i]
					p.data[i] = keep + eps
					up, upPrune := loss()
					p.data[i] = keep - eps
					down, downPrune := loss()
					p.data[i] = keep
					want := (up - down) / (2 * eps)
					if !strings.HasPrefix(p.name, "pruning") { // the early exit's loss reaches o_θ alone
						want -= (upPrune - downPrune) / (2 * eps)
					}
					if got := grads[p.name][i]; math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
						t.Errorf("d loss / d %s[%d] is %v, finite differences say %v", p.name, i, got, want)
					}
				}
			}
		})
	}
}

// TestEveryStepRunsOnTheTapeMachine fails when an operation of a step is not run
// by gorgonia's tape machine, or when a step does without one it needs.
func TestEveryStepRunsOnTheTapeMachine(t *testing.T) {
	for _, g := range goldenCases(t) {
		if g.name != "shared" && g.name != "lossless-adapter" && g.name != "opt-shared" {
			continue
		}
		t.Run(g.name, func(t *testing.T) {
			seen := map[string]int{}
			observe = func(name string) {
				pc := make([]uintptr, 32)
				frames := runtime.CallersFrames(pc[:runtime.Callers(1, pc)])
				for {
					f, more := frames.Next()
					if strings.Contains(f.Function, "gorgonia.(*tapeMachine)") {
						seen[name]++
						return
					}
					if !more {
						t.Errorf("%s ran outside the tape machine", name)
						return
					}
				}
			}
			defer func() { observe = nil }()
			accumulate[float32](t, g, 2)
			want := []string{"rmsnorm", "qkv", "attention", "o", "gate_up", "swiglu", "down", "streams", "headloss", "pruner",
				"drmsnorm", "dqkv", "dattention", "do", "dstreams", "dheadloss", "dpruner"}
			if g.name == "opt-shared" {
				want = []string{"layernorm", "qkv", "attention", "o", "up", "relu", "down", "streams", "headloss", "pruner",
					"dlayernorm", "dqkv", "dattention", "do", "dup", "drelu", "ddown", "dstreams", "dheadloss", "dpruner"}
			} else if g.spec.Mode == specstream.Shared {
				want = append(want, "dgate_up", "dswiglu", "ddown")
			} else {
				want = append(want, "stream_adapter", "dstream_adapter", "keys")
			}
			for _, name := range want {
				if seen[name] == 0 {
					t.Errorf("no %s ran on the tape machine", name)
				}
			}
			segments, layers := 2, g.weights.Config.NumLayers
			if g.spec.Mode == specstream.Lossless {
				if got, want := seen["attention"], layers-1+segments*g.spec.MSALayers; got != want {
					t.Errorf("%d attention operations, want %d: one a layer but the last, whose main rows nothing reads, and one a segment and multi-stream layer", got, want)
				}
				if got, want := seen["dattention"], segments*g.spec.MSALayers; got != want {
					t.Errorf("%d attention backwards, want %d: none below the streams", got, want)
				}
			}
		})
	}
}

// TestSamplesBeyondLearnedPositionsAreRefused trains on a sample that has no row in
// the base's position table.
func TestSamplesBeyondLearnedPositionsAreRefused(t *testing.T) {
	for _, g := range goldenCases(t) {
		if g.name != "opt-lossless" {
			continue
		}
		b, err := NewAdapter[float32](g.weights, g.adapter, g.spec)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		most := g.weights.Config.MaxPositions
		for n, fits := range map[int]bool{most + 1: true, most + 2: false} {
			s := trainer.Sequence{Tokens: make([]int32, n), Spans: []segattn.Span{{Start: 1, End: n}}}
			batch := []trainer.Sequence{s}
			_, err := b.Accumulate(context.Background(), batch, trainer.CountTargets(batch, g.spec.Gamma))
			if specstream.BadInput(err) == fits || (err == nil) != fits {
				t.Errorf("a sample of %d tokens for %d positions gave %v", n, most, err)
			}
		}
	}
}

// TestMutationsWouldBeNoticed checks that each mask term and position rule,
// broken on purpose in the independent implementation, moves some gradient by far
// more than the tolerance the golden vectors are held to.
func TestMutationsWouldBeNoticed(t *testing.T) {
	type mutation struct {
		Change float64 `json:"gradient_relative_change_max"`
		What   string  `json:"what"`
	}
	var cases map[string]struct {
		Mutations map[string]mutation `json:"mutations"`
	}
	readJSON(t, goldenDir+"/mutations.json", &cases)
	if len(cases) < 4 {
		t.Fatalf("only %d cases have mutations", len(cases))
	}
	for name, c := range cases {
		if len(c.Mutations) < 6 {
			t.Errorf("%s has only %d mutations", name, len(c.Mutations))
		}
		for m, v := range c.Mutations {
			if v.Change < 10*1e-4 {
				t.Errorf("%s: %s (%s) moves gradients by %.2g only", name, m, v.What, v.Change)
			}
		}
	}
}

// TestPlanPredictsTheGraph compares the planner's bytes with what the graph holds.
func TestPlanPredictsTheGraph(t *testing.T) {
	for _, g := range goldenCases(t) {
		t.Run(g.name, func(t *testing.T) {
			b, _ := accumulate[float32](t, g, 1)
			rows := int64(b.msa.b.rows)
			var held int64
			for _, n := range b.msa.b.g.AllNodes() {
				if _, isGradient := n.Op().(*gradient[float32]); isGradient {
					continue // it writes to a buffer counted below
				}
				if s := n.Shape(); len(s) == 2 && int64(s[0]) == rows {
					held += int64(s.TotalSize()) * 4
				}
			}
			for _, buffer := range b.msa.b.buffers {
				held += int64(len(buffer)) * 4
			}
			layer, ends := b.Shape().RowValues()
			predicted := rows * (layer*int64(g.spec.MSALayers) + ends) * 4
			if r := float64(predicted) / float64(held); r < 0.85 || r > 1.25 {
				t.Errorf("the planner predicts %d bytes for %d rows, the graph holds %d", predicted, rows, held)
			}
		})
	}
}
