package cpu

import (
	"math"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
)

// reference is a second implementation of the forward, dense and in float64:
// every row attends to all rows under one boolean mask, there is no cache, and
// nothing is packed, fused or shared with the engine but the weights.
type reference struct {
	w *model.Weights
	a *model.Adapter // nil for the base alone
}

// row is one row of a dense forward: a main row (stream 0) or stream j of the
// main row `owner`.
type row struct {
	position int // of the main row it belongs to
	token    int32
	stream   int
	owner    int   // index of its main row; itself for a main row
	sees     []int // indices of the main rows its main row sees, itself included
}

// forward returns the logits of every row and the early-exit logits of the main
// rows. rows lists main rows first.
func (r reference) forward(rows []row) (logits, early [][]float64) {
	c := r.w.Config
	n := len(rows)
	split := c.NumLayers
	if r.a != nil {
		split -= r.a.Spec.MSALayers
	}
	visible := func(i, j int, msa bool) bool {
		x, y := rows[i], rows[j]
		if y.stream == 0 {
			for _, s := range rows[x.owner].sees {
				if s == j {
					return true
				}
			}
			return false
		}
		if !msa || y.owner != x.owner {
			return false
		}
		if x.stream == 0 {
			return r.a.Spec.Mode == specstream.Shared
		}
		return y.stream <= x.stream
	}
	x := make([][]float64, n)
	for i, w := range rows {
		x[i] = make([]float64, c.HiddenSize)
		if w.stream == 0 {
			for k := range x[i] {
				x[i][k] = float64(r.w.Embed[int(w.token)*c.HiddenSize+k])
				if c.LearnedPositions {
					x[i][k] += float64(r.w.Positions[(w.position+c.PositionOffset)*c.HiddenSize+k])
				}
			}
		}
	}
	for l := range c.NumLayers {
		if l == split && r.a != nil {
			for i, w := range rows {
				if w.stream == 0 {
					e := add(x[i], r.lowRank(x[i], 1)(r.a.Pruner()))
					early = append(early, r.head(e))
					continue
				}
				m := x[w.owner]
				x[i] = append([]float64{}, m...)
				if A, B := r.a.StreamInit(); A != nil {
					x[i] = add(x[i], r.lowRank(m, 1)(A, B))
				}
				for k := range x[i] {
					x[i][k] += float64(r.a.StreamEmbeddings()[(w.stream-1)*c.HiddenSize+k])
				}
			}
		}
		x = r.layer(l, x, rows, func(i, j int) bool { return visible(i, j, l >= split) }, l >= split)
	}
	for i := range x {
		logits = append(logits, r.head(x[i]))
	}
	return logits, early
}

func (r reference) layer(l int, x [][]float64, rows []row, visible func(i, j int) bool, msa bool) [][]float64 {
	c, w := r.w.Config, &r.w.Layers[l]
	d := c.HeadDim
	group := c.NumHeads / c.NumKVHeads
	q, k, v := make([][]float64, len(x)), make([][]float64, len(x)), make([][]float64, len(x))
	for i := range x {
		if rows[i].stream > 0 && !msa {
			continue
		}
		in := r.norm(x[i], w.AttnNorm, w.AttnNormBias)
		q[i], k[i], v[i] = r.project(l, "q_proj", in), r.project(l, "k_proj", in), r.project(l, "v_proj", in)
		if !c.LearnedPositions {
			r.rotate(q[i], rows[i].position+rows[i].stream)
			r.rotate(k[i], rows[i].position+rows[i].stream)
		}
	}
	out := make([][]float64, len(x))
	for i := range x {
		if rows[i].stream > 0 && !msa {
			out[i] = x[i]
			continue
		}
		mixed := make([]float64, c.NumHeads*d)
		for head := range c.NumHeads {
			at, kv := head*d, head/group*d
			p, sum := make([]float64, len(x)), 0.0
			for j := range x {
				far := rows[i].position+rows[i].stream-rows[j].position-rows[j].stream >= c.SlidingWindow
				if k[j] == nil || !visible(i, j) || c.SlidingWindow > 0 && l >= c.WindowFirstLayer && far {
					continue
				}
				var s float64
				for e := range d {
					s += q[i][at+e] * k[j][kv+e]
				}
				p[j] = math.Exp(s / math.Sqrt(float64(d)))
				sum += p[j]
			}
			for j := range x {
				if p[j] == 0 {
					continue
				}
				for e := range d {
					mixed[at+e] += p[j] / sum * v[j][kv+e]
				}
			}
		}
		out[i] = add(x[i], r.project(l, "o_proj", mixed))
		in := r.norm(out[i], w.MLPNorm, w.MLPNormBias)
		mlp := func() []float64 {
			if c.ReLU {
				u := r.project(l, "up_proj", in)
				for e := range u {
					u[e] = max(u[e], 0)
				}
				return r.project(l, "down_proj", u)
			}
			g, u := r.project(l, "gate_proj", in), r.project(l, "up_proj", in)
			for e := range g {
				g[e] = g[e] / (1 + math.Exp(-g[e])) * u[e]
			}
			return r.project(l, "down_proj", g)
		}
		if rows[i].stream > 0 && r.a.Spec.Mode == specstream.Lossless {
			if r.a.Spec.StreamMLP == specstream.StreamMLPBaseAdapter {
				out[i] = add(out[i], mlp())
			}
			out[i] = add(out[i], r.lowRank(in, 1)(r.a.StreamAdapter(l)))
			continue
		}
		out[i] = add(out[i], mlp())
	}
	return out
}

// project is a projection with its LoRA.
func (r reference) project(l int, target string, x []float64) []float64 {
	w, bias := r.w.Projection(l, target)
	y := matVec(w, len(w)/len(x), x)
	for i, b := range bias {
		y[i] += float64(b)
	}
	if r.a != nil {
		if A, B := r.a.LoRA(l, target); A != nil {
			y = add(y, r.lowRank(x, r.a.Spec.LoRAScale())(A, B))
		}
	}
	return y
}

func (r reference) lowRank(x []float64, scale float64) func(A, B []float32) []float64 {
	return func(A, B []float32) []float64 {
		t := matVec(A, len(A)/len(x), x)
		y := matVec(B, len(B)/len(t), t)
		for i := range y {
			y[i] *= scale
		}
		return y
	}
}

// norm is the base's norm, an RMSNorm where there is no bias.
func (r reference) norm(x []float64, w, b []float32) []float64 {
	var mean, s float64
	if b != nil {
		for _, v := range x {
			mean += v / float64(len(x))
		}
	}
	for _, v := range x {
		s += (v - mean) * (v - mean)
	}
	f := 1 / math.Sqrt(s/float64(len(x))+r.w.Config.RMSNormEps)
	y := make([]float64, len(x))
	for i := range y {
		y[i] = (x[i] - mean) * f * float64(w[i])
		if b != nil {
			y[i] += float64(b[i])
		}
	}
	return y
}

func (r reference) head(x []float64) []float64 {
	return matVec(r.w.Head, r.w.Config.VocabSize, r.norm(x, r.w.Norm, r.w.NormBias))
}

// rotate turns pairs (i, i + d/2) of every head.
func (r reference) rotate(x []float64, position int) {
	d := r.w.Config.HeadDim
	for at := 0; at < len(x); at += d {
		for i := range d / 2 {
			angle := float64(position) * math.Pow(r.w.Config.RopeTheta, -2*float64(i)/float64(d))
			sin, cos := math.Sincos(angle)
			a, b := x[at+i], x[at+i+d/2]
			x[at+i], x[at+i+d/2] = a*cos-b*sin, b*cos+a*sin
		}
	}
}

func matVec(w []float32, out int, x []float64) []float64 {
	y := make([]float64, out)
	for i := range y {
		for j, v := range x {
			y[i] += float64(w[i*len(x)+j]) * v
		}
	}
	return y
}

func add(a, b []float64) []float64 {
	y := make([]float64, len(a))
	for i := range y {
		y[i] = a[i] + b[i]
	}
	return y
}
