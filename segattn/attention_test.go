package segattn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// sees says whether query row a attends to key row b, straight from Eq. 2 and 3.
type sees func(a, b rowID, shared bool) bool

// rowID names a row: position t and stream j, 0 for the main stream.
type rowID struct{ t, j int }

// method is the mask of the method.
func method(a, b rowID, shared bool) bool {
	switch {
	case a.j == 0 && b.j == 0:
		return b.t <= a.t
	case a.j == 0:
		return shared && b.t == a.t
	case b.j == 0:
		return b.t <= a.t
	}
	return b.t == a.t && b.j <= a.j
}

// dense computes attention and its gradient with explicit masks over all rows
// of one sequence; rows and packed q|k|v are in the layout's order.
func dense(mask sees, ids []rowID, shared bool, h Heads, qkv, dout []float64) (out, dqkv []float64) {
	n, w, d := len(ids), h.Width(), h.Dim
	out, dqkv = make([]float64, n*h.Query*d), make([]float64, len(qkv))
	scale := 1 / math.Sqrt(float64(d))
	for qh := range h.Query {
		kh := qh / (h.Query / h.KV)
		qc, kc, vc := qh*d, (h.Query+kh)*d, (h.Query+h.KV+kh)*d
		for a := range n {
			p := make([]float64, n)
			var z float64
			for b := range n {
				if !mask(ids[a], ids[b], shared) {
					continue
				}
				var s float64
				for c := range d {
					s += qkv[a*w+qc+c] * qkv[b*w+kc+c]
				}
				p[b] = math.Exp(s * scale)
				z += p[b]
			}
			var delta float64
			dp := make([]float64, n)
			for b := range n {
				p[b] /= z
				for c := range d {
					out[a*h.Query*d+qc+c] += p[b] * qkv[b*w+vc+c]
					dp[b] += dout[a*h.Query*d+qc+c] * qkv[b*w+vc+c]
				}
				delta += p[b] * dp[b]
			}
			for b := range n {
				ds := p[b] * (dp[b] - delta) * scale
				for c := range d {
					dqkv[b*w+vc+c] += p[b] * dout[a*h.Query*d+qc+c]
					dqkv[a*w+qc+c] += ds * qkv[b*w+kc+c]
					dqkv[b*w+kc+c] += ds * qkv[a*w+qc+c]
				}
			}
		}
	}
	return out, dqkv
}

func relativeError(a, b []float64) float64 {
	var d, n float64
	for i := range b {
		d += (a[i] - b[i]) * (a[i] - b[i])
		n += b[i] * b[i]
	}
	return math.Sqrt(d / n)
}

// windowed is the method's mask in a layer with a sliding window: a row sees no
// main row window or more positions before its own.
func windowed(window int) sees {
	return func(a, b rowID, shared bool) bool {
		return method(a, b, shared) && (b.j > 0 || a.t+a.j-b.t < window)
	}
}

// compare runs the kernels with a window (0 for none) over a sequence in one
// segment and returns how far they are from the dense computation with the given
// mask.
func compare(t *testing.T, mask sees, shared bool, window int) float64 {
	t.Helper()
	s := Sequence{Length: 90, Spans: []Span{{12, 20}, {30, 88}}} // more rows than a tile
	h := Heads{Query: 4, KV: 2, Dim: 6, Window: window}
	const gamma = 3
	seg := Whole(s)
	r := Lay([]*Segment{&seg}, Both, gamma, shared)
	var ids []rowID
	for p := range s.Length - 1 {
		ids = append(ids, rowID{p, 0})
	}
	for _, p := range s.StreamPositions() {
		for j := 1; j <= gamma; j++ {
			ids = append(ids, rowID{p, j})
		}
	}
	if len(ids) != r.Total() {
		t.Fatalf("the layout has %d rows, want %d", r.Total(), len(ids))
	}
	rng := rand.New(rand.NewPCG(7, 8))
	qkv, dout := make([]float64, r.Total()*h.Width()), make([]float64, r.Total()*h.Query*h.Dim)
	for i := range qkv {
		qkv[i] = rng.NormFloat64()
	}
	for i := range dout {
		dout[i] = rng.NormFloat64()
	}
	wantOut, wantGrad := dense(mask, ids, shared, h, qkv, dout)
	kv := NewKV[float64](h, []int{s.Length - 1}, true)
	out, grad := make([]float64, len(dout)), make([]float64, len(qkv))
	norm := make([]float64, 2*r.Total()*h.Query)
	Forward(r, h, qkv, kv, out, norm)
	Backward(r, h, qkv, out, norm, dout, kv, grad)
	return max(relativeError(out, wantOut), relativeError(grad, wantGrad))
}

func TestAttentionIsDenseMaskedAttention(t *testing.T) {
	for name, shared := range map[string]bool{"shared": true, "main rows without streams": false} {
		t.Run(name, func(t *testing.T) {
			if e := compare(t, method, shared, 0); e > 1e-12 {
				t.Errorf("kernels differ from dense masks by %.2g", e)
			}
			for _, window := range []int{4, 5, 11, 64, 70, 88, 89, 200} { // from γ+1 to more than there is
				if e := compare(t, windowed(window), shared, window); e > 1e-12 {
					t.Errorf("with a window of %d kernels differ from dense masks by %.2g", window, e)
				}
			}
		})
	}
}

// TestEveryMaskTermMatters breaks one term of the mask at a time: the comparison
// must notice each.
func TestEveryMaskTermMatters(t *testing.T) {
	for _, m := range []struct {
		name   string
		breaks func(a, b rowID) bool // pairs whose visibility is flipped
	}{
		{"main sees the next main position", func(a, b rowID) bool { return a.j == 0 && b.j == 0 && b.t == a.t+1 }},
		{"main misses itself", func(a, b rowID) bool { return a.j == 0 && b == a }},
		{"main misses its last stream", func(a, b rowID) bool { return a.j == 0 && b.j == 3 && b.t == a.t }},
		{"main sees another position's stream", func(a, b rowID) bool { return a.j == 0 && b.j == 1 && b.t == a.t-1 }},
		{"stream sees the next main position", func(a, b rowID) bool { return a.j > 0 && b.j == 0 && b.t == a.t+1 }},
		{"stream misses its own main row", func(a, b rowID) bool { return a.j > 0 && b.j == 0 && b.t == a.t }},
		{"stream misses an earlier stream", func(a, b rowID) bool { return a.j > 1 && b.j == a.j-1 && b.t == a.t }},
		{"stream misses itself", func(a, b rowID) bool { return a.j > 0 && b == a }},
		{"stream sees a later stream", func(a, b rowID) bool { return a.j > 0 && b.j == a.j+1 && b.t == a.t }},
		{"stream sees another position's stream", func(a, b rowID) bool { return a.j > 0 && b.j == a.j && b.t == a.t-1 }},
	} {
		t.Run(m.name, func(t *testing.T) {
			broken := func(a, b rowID, shared bool) bool { return method(a, b, shared) != m.breaks(a, b) }
			if e := compare(t, broken, true, 0); e < 1e-3 {
				t.Errorf("the broken mask differs by %.2g only: the comparison would not notice", e)
			}
		})
	}
}

// TestEveryWindowTermMatters shifts the window's edge by one for one kind of row
// at a time.
func TestEveryWindowTermMatters(t *testing.T) {
	const window = 9
	right := windowed(window)
	for _, m := range []struct {
		name  string
		shift func(a rowID) int // of the window, for rows of this kind
	}{
		{"main rows see one more", func(a rowID) int { return b2i(a.j == 0) }},
		{"main rows see one less", func(a rowID) int { return -b2i(a.j == 0) }},
		{"streams see one more", func(a rowID) int { return b2i(a.j > 0) }},
		{"streams see one less", func(a rowID) int { return -b2i(a.j > 0) }},
		{"streams see what their main row sees", func(a rowID) int { return a.j }},
	} {
		t.Run(m.name, func(t *testing.T) {
			broken := func(a, b rowID, shared bool) bool {
				if b.j > 0 {
					return right(a, b, shared)
				}
				return windowed(window+m.shift(a))(a, b, shared)
			}
			if e := compare(t, broken, true, window); e < 1e-3 {
				t.Errorf("the broken window differs by %.2g only: the comparison would not notice", e)
			}
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// TestSegmentsReproduceTheWhole compares passes over segments in reverse with one
// pass over the whole sequence.
func TestSegmentsReproduceTheWhole(t *testing.T) {
	for _, window := range []int{0, 3, 7, 30} {
		t.Run(fmt.Sprintf("window %d", window), func(t *testing.T) { segmentsReproduceTheWhole(t, window) })
	}
}

func segmentsReproduceTheWhole(t *testing.T, window int) {
	s := Sequence{Length: 40, Spans: []Span{{9, 40}}}
	h := Heads{Query: 2, KV: 1, Dim: 4, Window: window}
	const gamma = 2
	rng := rand.New(rand.NewPCG(3, 4))
	value := map[rowID][]float64{} // q|k|v and dout of each row
	draw := func(id rowID) []float64 {
		if value[id] == nil {
			v := make([]float64, h.Width()+h.Query*h.Dim)
			for i := range v {
				v[i] = rng.NormFloat64()
			}
			value[id] = v
		}
		return value[id]
	}
	run := func(g int) map[rowID][]float64 {
		segs := Split(s, g, false)
		kv := NewKV[float64](h, []int{s.Length - 1}, true)
		grads := map[rowID][]float64{}
		rows := func(seg *Segment) (r *Rows, ids []rowID, qkv, dout []float64) {
			r = Lay([]*Segment{seg}, Both, gamma, true)
			for p := seg.Lo; p < seg.Hi; p++ {
				ids = append(ids, rowID{p, 0})
			}
			for _, p := range seg.Streams {
				for j := 1; j <= gamma; j++ {
					ids = append(ids, rowID{p, j})
				}
			}
			for _, id := range ids {
				v := draw(id)
				qkv, dout = append(qkv, v[:h.Width()]...), append(dout, v[h.Width():]...)
			}
			return r, ids, qkv, dout
		}
		for i := range segs {
			r, _, qkv, _ := rows(&segs[i])
			Forward(r, h, qkv, kv, make([]float64, r.Total()*h.Query*h.Dim), make([]float64, 2*r.Total()*h.Query))
		}
		for i := len(segs) - 1; i >= 0; i-- {
			r, ids, qkv, dout := rows(&segs[i])
			out, grad := make([]float64, len(dout)), make([]float64, len(qkv))
			norm := make([]float64, 2*r.Total()*h.Query)
			Forward(r, h, qkv, kv, out, norm)
			Backward(r, h, qkv, out, norm, dout, kv, grad)
			for k, id := range ids {
				grads[id] = grad[k*h.Width() : (k+1)*h.Width()]
			}
		}
		return grads
	}
	for id := range run(1) {
		draw(id) // fix every row's values before comparing
	}
	want := run(1)
	for _, g := range []int{2, 5, 1000} {
		got := run(g)
		if len(got) != len(want) {
			t.Fatalf("%d segments have %d rows, want %d", g, len(got), len(want))
		}
		for id, w := range want {
			if e := relativeError(got[id], w); e > 1e-12 {
				t.Errorf("%d segments: gradient of row %v differs by %.2g", g, id, e)
			}
		}
	}
}
