package segattn

import "fmt"

// Shape is what the planner needs to know of a base and an adapter.
type Shape struct {
	Hidden, FF, Vocab int
	// NoGate is true where the MLP has no gate projection.
	NoGate bool
	Heads  Heads
	// Layers is the number of multi-stream layers, N_s.
	Layers int
	Gamma  int
	// Shared is true for shared mode: main rows are trained beside the streams
	// and every row passes through the MLP.
	Shared bool
	// Rank is the rank of LoRA (shared) or of the stream adapters (lossless).
	Rank int
	// WithMLP is true where streams pass through the frozen MLP as well.
	WithMLP bool
	// ValueBytes is the size of a value, 4 for float32.
	ValueBytes int64
	// HeadChunk is the most rows whose logits exist at a time.
	HeadChunk int
}

// Plan is a choice of segments and the bytes it is predicted to hold.
type Plan struct {
	// Segments is the number of completion segments a sequence is split into.
	Segments int `json:"segments"`
	// Rows is the most rows of one segment pass.
	Rows int `json:"rows"`
	// StreamRows is the most of them that are stream rows.
	StreamRows int `json:"stream_rows"`
	// Activations is the bytes of the multi-stream layers' values and gradients
	// for those rows: the part that segments cap.
	Activations int64 `json:"activations"`
	// MainKV is the bytes of main keys and values of the multi-stream layers,
	// with their gradient accumulators in shared mode.
	MainKV int64 `json:"main_kv"`
	// Head is the bytes of one chunk of logits.
	Head int64 `json:"head"`
}

// Total is the predicted peak.
func (p Plan) Total() int64 { return p.Activations + p.MainKV + p.Head }

// RowValues is the number of values one row holds in each multi-stream layer,
// every operation's output, and in all layers together: the gradients that the
// layers share and what lies between their ends and the loss.
func (s Shape) RowValues() (layer, ends int64) {
	h, f, w, q := int64(s.Hidden), int64(s.FF), int64(s.Heads.Width()), int64(s.Heads.Query*s.Heads.Dim)
	up := 2 * f // gate|up
	if s.NoGate {
		up = f
	}
	layer = 3*h + w + q + 2*int64(s.Heads.Query) // norm, q|k|v, attention with its two norms a head, o, norm
	// Entry states, streams, final norm, head; then the gradients of the norms
	// and of the head, q|k|v and attention.
	ends = 4*h + 4*h + w + q
	ends += 2 * int64(s.Rank) // the low-rank products of the operation at work
	if !s.Shared {
		layer += h // stream adapter
	}
	if s.Shared || s.WithMLP {
		layer += up + f + h // gate|up, activation, down
		ends += h + up + f
	}
	return layer, ends
}

// Predict returns the plan of a number of segments for a pack of sequences.
func (s Shape) Predict(pack []Sequence, segments int) Plan {
	p := Plan{Segments: segments}
	split := make([][]Segment, len(pack))
	most := 0
	for i, q := range pack {
		split[i] = Split(q, segments, s.Shared)
		most = max(most, len(split[i]))
		kv := int64(q.Length-1) * int64(2*s.Heads.KV*s.Heads.Dim) * int64(s.Layers)
		if s.Shared {
			kv *= 2
		}
		p.MainKV += kv * s.ValueBytes
	}
	parts := StreamsOnly
	if s.Shared {
		parts = Both
	}
	for g := range most {
		segs := make([]*Segment, len(pack))
		for i := range split {
			if g < len(split[i]) {
				segs[i] = &split[i][g]
			}
		}
		r := Lay(segs, parts, s.Gamma, s.Shared)
		p.Rows = max(p.Rows, r.Total())
		p.StreamRows = max(p.StreamRows, r.Stream)
	}
	layer, ends := s.RowValues()
	p.Activations = int64(p.Rows) * (layer*int64(s.Layers) + ends) * s.ValueBytes
	p.Head = int64(min(s.HeadChunk, p.Rows)) * int64(s.Vocab+2*s.Hidden) * s.ValueBytes
	return p
}

// Choose returns the plan with the fewest segments that fits the budget in bytes.
// When even one token a segment does not, the error says the least budget that
// would do.
func (s Shape) Choose(pack []Sequence, budget int64) (Plan, error) {
	most := 1
	for _, q := range pack {
		most = max(most, len(q.StreamPositions()))
	}
	p := s.Predict(pack, 1)
	if budget == 0 || p.Total() <= budget {
		return p, nil
	}
	least := s.Predict(pack, most)
	if least.Total() > budget {
		return least, fmt.Errorf("a memory budget of %d bytes is too small for this batch: one token a segment takes %d bytes; give at least that, or a smaller micro_batch", budget, least.Total())
	}
	lo, hi := 1, most // Predict(lo) does not fit, Predict(hi) does
	for hi-lo > 1 {
		mid := (lo + hi) / 2
		if s.Predict(pack, mid).Total() <= budget {
			hi = mid
		} else {
			lo = mid
		}
	}
	return s.Predict(pack, hi), nil
}
