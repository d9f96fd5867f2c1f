package gorgonia

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/kernels"
	"github.com/specstream/specstream/model"
	"github.com/specstream/specstream/model/safetensors"
	"github.com/specstream/specstream/segattn"
	"github.com/specstream/specstream/trainer"
)

const goldenDir = "../../testdata/golden/method"

// golden is one case of the independent PyTorch implementation.
type golden struct {
	name    string
	weights *model.Weights
	adapter *model.Adapter
	spec    specstream.TrainSpec
	batch   []trainer.Sequence
	loss    struct {
		Total   float64   `json:"total"`
		Main    float64   `json:"main"`
		Streams []float64 `json:"streams"`
		Prune   float64   `json:"prune"`
		Counts  []int     `json:"counts"`
	}
	grads map[string][]float64 // by our parameter names
}

func goldenCases(t *testing.T) []golden {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(goldenDir, "*.safetensors"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden vectors in %s (%v)", goldenDir, err)
	}
	var out []golden
	for _, f := range files {
		out = append(out, readGolden(t, strings.TrimSuffix(f, ".safetensors")))
	}
	return out
}

// parameterName maps a golden tensor's name to ours.
func parameterName(name string) string {
	p := strings.Split(name, ".")
	switch p[0] {
	case "stream_embeddings":
		return model.StreamEmbeddingsName
	case "pruner":
		return model.PrunerName(p[1])
	case "stream_init":
		return model.StreamInitName(p[1])
	case "stream_adapters":
		return model.StreamAdapterName(int(p[1][0]-'0'), p[2])
	case "lora":
		return model.LoRAName(int(p[1][0]-'0'), p[2], p[3])
	}
	return ""
}

func readGolden(t *testing.T, path string) golden {
	t.Helper()
	g := golden{name: filepath.Base(path), grads: map[string][]float64{}}
	b, err := os.ReadFile(path + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var meta struct {
		Config json.RawMessage
		Spec   struct {
			specstream.TrainSpec
			Alpha0 float64 `json:"alpha_0"`
			Alpha  float64 `json:"alpha_stream"`
		}
		Samples []struct {
			Tokens []int32
			Spans  [][2]int
		}
		Loss json.RawMessage
	}
	if err := json.Unmarshal(b, &meta); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(meta.Loss, &g.loss); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), meta.Config, 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, err := model.ReadConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	g.spec = meta.Spec.TrainSpec
	g.spec.Alpha0, g.spec.AlphaStream = &meta.Spec.Alpha0, &meta.Spec.Alpha
	g.spec = g.spec.WithDefaults()
	if err := g.spec.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, s := range meta.Samples {
		q := trainer.Sequence{Tokens: s.Tokens}
		for _, p := range s.Spans {
			q.Spans = append(q.Spans, segattn.Span{Start: p[0], End: p[1]})
		}
		g.batch = append(g.batch, q)
	}
	f, err := safetensors.Open(path + ".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g.weights = model.NewWeights(cfg, 1)
	g.weights.Named(func(name string, shape []int, data []float32) {
		tensor, ok := f.Lookup(name)
		if !ok {
			t.Fatalf("%s: no tensor %q", path, name)
		}
		if err := f.Float32s(tensor, data); err != nil {
			t.Fatal(err)
		}
	})
	if g.adapter, err = model.NewAdapter(cfg, g.spec.AdapterSpec, 1); err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, tensor := range f.Tensors {
		if p := g.adapter.Param(parameterName(tensor.Name)); p != nil {
			if err := f.Float32s(tensor, p.Data); err != nil {
				t.Fatal(err)
			}
			seen++
		}
		if name, ok := strings.CutPrefix(tensor.Name, "grad."); ok {
			raw, err := io.ReadAll(f.Section(tensor))
			if err != nil {
				t.Fatal(err)
			}
			v := make([]float64, len(raw)/8)
			for i := range v {
				v[i] = math.Float64frombits(binary.LittleEndian.Uint64(raw[8*i:]))
			}
			g.grads[parameterName(name)] = v
		}
	}
	if seen != len(g.adapter.Params) || len(g.grads) != len(g.adapter.Params) {
		t.Fatalf("%s: %d parameters and %d gradients, want %d of each", path, seen, len(g.grads), len(g.adapter.Params))
	}
	return g
}

// relative is ‖a − b‖ / ‖b‖.
func relative[A, B kernels.Float](a []A, b []B) float64 {
	var d, n float64
	for i := range b {
		x := float64(a[i]) - float64(b[i])
		d += x * x
		n += float64(b[i]) * float64(b[i])
	}
	if n == 0 {
		return math.Sqrt(d)
	}
	return math.Sqrt(d / n)
}

func accumulate[T kernels.Float](t *testing.T, g golden, segments int) (*Adapter[T], trainer.Losses) {
	t.Helper()
	spec := g.spec
	spec.Segments = segments
	b, err := NewAdapter[T](g.weights, g.adapter, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	l, err := b.Accumulate(context.Background(), g.batch, trainer.CountTargets(g.batch, spec.Gamma))
	if err != nil {
		t.Fatal(err)
	}
	return b, l
}

func checkGolden[T kernels.Float](t *testing.T, g golden, tolerance float64) {
	b, l := accumulate[T](t, g, 1)
	counts := trainer.CountTargets(g.batch, g.spec.Gamma)
	for j, c := range counts {
		if c != g.loss.Counts[j] {
			t.Errorf("stream %d has %d targets, want %d", j, c, g.loss.Counts[j])
		}
	}
	for j, want := range g.loss.Streams {
		if got := l.Streams[j+1] / float64(counts[j+1]); math.Abs(got-want) > tolerance*want {
			t.Errorf("loss of stream %d is %v, want %v", j+1, got, want)
		}
	}
	if got := l.Prune / float64(counts[0]); math.Abs(got-g.loss.Prune) > tolerance*g.loss.Prune {
		t.Errorf("prune loss is %v, want %v", got, g.loss.Prune)
	}
	if g.spec.Mode == specstream.Shared {
		if got := l.Total(counts, *g.spec.Alpha0, *g.spec.AlphaStream); math.Abs(got-g.loss.Total) > tolerance*g.loss.Total {
			t.Errorf("total loss is %v, want %v", got, g.loss.Total)
		}
	}
	worst := 0.0
	for name, want := range g.grads {
		e := relative(b.Gradient(name), want)
		worst = max(worst, e)
		if !(e <= tolerance) {
			t.Errorf("gradient of %s is off by %.2g", name, e)
		}
	}
	t.Logf("worst relative gradient error %.2g", worst)
}

// TestGolden compares losses and every gradient with the PyTorch implementation.
func TestGolden(t *testing.T) {
	for _, g := range goldenCases(t) {
		t.Run(g.name+"/float64", func(t *testing.T) { checkGolden[float64](t, g, 1e-6) })
		t.Run(g.name+"/float32", func(t *testing.T) { checkGolden[float32](t, g, 1e-4) })
	}
}

// TestSegmentsAgree holds the gradients of every number of segments to the
// unsegmented ones, while the live stream rows fall.
func TestSegmentsAgree(t *testing.T) {
	for _, g := range goldenCases(t) {
		t.Run(g.name, func(t *testing.T) {
			ref, refLoss := accumulate[float32](t, g, 1)
			peak := ref.PeakStreamRows
			for _, segments := range []int{2, 5, 1000} {
				b, l := accumulate[float32](t, g, segments)
				for j, want := range refLoss.Streams {
					if math.Abs(l.Streams[j]-want) > 1e-5*math.Abs(want) {
						t.Errorf("%d segments: loss of stream %d is %v, want %v", segments, j, l.Streams[j], want)
					}
				}
				worst := 0.0
				for _, p := range g.adapter.Params {
					e := relative(b.Gradient(p.Name), ref.Gradient(p.Name))
					worst = max(worst, e)
					if !(e <= 1e-5) {
						t.Errorf("%d segments: gradient of %s differs by %.2g", segments, p.Name, e)
					}
				}
				if b.PeakStreamRows >= peak {
					t.Errorf("%d segments hold %d stream rows, fewer segments held %d", segments, b.PeakStreamRows, peak)
				}
				if segments == 1000 && b.PeakStreamRows != len(g.batch)*g.spec.Gamma {
					t.Errorf("one token a segment holds %d stream rows, want γ for each of %d sequences", b.PeakStreamRows, len(g.batch))
				}
				t.Logf("%d segments: %d of %d stream rows, worst gradient difference %.2g", segments, b.PeakStreamRows, ref.PeakStreamRows, worst)
				peak = b.PeakStreamRows
			}
		})
	}
}

// TestMicroBatchesAgree holds the gradients of sample after sample to those of the
// whole batch.
func TestMicroBatchesAgree(t *testing.T) {
	for _, g := range goldenCases(t) {
		t.Run(g.name, func(t *testing.T) {
			ref, _ := accumulate[float32](t, g, 2)
			spec := g.spec
			spec.Segments = 3
			b, err := NewAdapter[float32](g.weights, g.adapter, spec)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			counts := trainer.CountTargets(g.batch, spec.Gamma)
			for i := range g.batch {
				if _, err := b.Accumulate(context.Background(), g.batch[i:i+1], counts); err != nil {
					t.Fatal(err)
				}
			}
			for _, p := range g.adapter.Params {
				if e := relative(b.Gradient(p.Name), ref.Gradient(p.Name)); !(e <= 1e-5) {
					t.Errorf("gradient of %s differs by %.2g", p.Name, e)
				}
			}
		})
	}
}

// TestEveryFamilyHasGoldenVectors fails when a family that loads goes untested.
func TestEveryFamilyHasGoldenVectors(t *testing.T) {
	seen := map[string]map[specstream.Mode]bool{}
	for _, g := range goldenCases(t) {
		a := g.weights.Config.Architecture
		if seen[a] == nil {
			seen[a] = map[specstream.Mode]bool{}
		}
		seen[a][g.spec.Mode] = true
		if w := g.weights.Config.SlidingWindow; w > 0 {
			longest := 0
			for _, s := range g.batch {
				longest = max(longest, len(s.Tokens))
			}
			if longest < 2*w {
				t.Errorf("%s: no sequence is much longer than the window of %d", g.name, w)
			}
		}
	}
	for _, a := range model.Architectures() {
		if len(seen[a]) != 2 {
			t.Errorf("%s has golden vectors for %v only", a, seen[a])
		}
	}
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatal(err)
	}
}
