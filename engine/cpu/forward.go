package cpu

import (
	"context"
	"math"
	"runtime"

	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/kernels"
)

// span is a run of n cache slots.
type span struct{ start, n int }

// batch describes the rows of a forward: main rows first, then γ stream rows
// for each carrier, carrier by carrier.
type batch struct {
	main      int
	slot      int      // main row i's keys and values go to cache slot slot+i
	positions []int    // position of each main row
	sights    [][]span // main keys that each main row sees, its own last, in order of position
	carriers  []carrier
	group     []int // for each main row its carrier's index, or −1
}

// carrier is a position that carries streams.
type carrier struct {
	position int
	sight    []span // main keys its streams see
}

// reset empties the batch, keeping its memory.
func (b *batch) reset(slot int) {
	b.main, b.slot = 0, slot
	b.positions, b.carriers, b.group = b.positions[:0], b.carriers[:0], b.group[:0]
}

// addMain adds a main row that sees slots [0, context), the given slots after
// them, and itself; path holds offsets from the batch's first slot and ends with
// the row itself.
func (b *batch) addMain(position, context int, path ...int) {
	if len(b.sights) == b.main {
		b.sights = append(b.sights, nil)
	}
	s := b.sights[b.main][:0]
	if context > 0 {
		s = append(s, span{0, context})
	}
	for _, offset := range path {
		at := b.slot + offset
		if n := len(s); n > 0 && s[n-1].start+s[n-1].n == at {
			s[n-1].n++
		} else {
			s = append(s, span{at, 1})
		}
	}
	b.sights[b.main] = s
	b.positions = append(b.positions, position)
	b.group = append(b.group, -1)
	b.main++
}

// carry attaches streams to a main row of the batch.
func (b *batch) carry(row int) {
	b.group[row] = len(b.carriers)
	b.carriers = append(b.carriers, carrier{b.positions[row], b.sights[row]})
}

func (b *batch) rows(gamma int) int { return b.main + gamma*len(b.carriers) }

// reserve makes room for rows in every row buffer, keeping x's contents.
func (d *Decoder) reserve(rows int) {
	if rows <= d.capacity {
		return
	}
	c := d.base.config
	grown := make([]float32, rows*c.HiddenSize)
	copy(grown, d.x)
	d.capacity, d.x = rows, grown
	d.normed = make([]float32, rows*c.HiddenSize)
	d.qkv = make([]float32, rows*d.qkvWidth)
	d.attended = make([]float32, rows*c.NumHeads*c.HeadDim)
	d.up = make([]float32, rows*d.upWidth)
	d.low = make([]float32, rows*d.lowWidth)
}

// embed writes the embeddings of the batch's main rows, whose tokens are given,
// to the first rows of x; with learned positions, each with its position's added.
// Streams start above and inherit it.
func (d *Decoder) embed(b *batch, tokens []int32) {
	h := d.base.config.HiddenSize
	for i, t := range tokens {
		row := d.x[i*h : (i+1)*h]
		copy(row, d.base.embed[int(t)*h:])
		if d.base.positions != nil {
			kernels.Axpy(row, 1, d.base.positions[d.base.positionRow(b.positions[i])*h:][:h])
		}
	}
}

// positionRow is a position's row in the learned table. Draft nodes may lie past
// its end; their tokens are never emitted, so what they compute is immaterial.
func (b *Base) positionRow(p int) int { return min(p, b.config.MaxPositions-1) }

// attachStreams writes the stream rows S_j = f_η(M) + P_j (Eq. 4) behind the main
// rows; states(i) is the row of M that the i-th carrier's streams start from.
func (d *Decoder) attachStreams(b *batch, states func(i int) []float32) {
	a, h := d.adapter, d.base.config.HiddenSize
	d.reserve(b.rows(a.gamma))
	for i := range b.carriers {
		first := d.x[(b.main+i*a.gamma)*h:][:a.gamma*h]
		m := states(i)
		start := d.state[:h]
		copy(start, m)
		a.init.add(start, h, m, h, 1, d.low) // f_η(M)
		for j := range a.gamma {
			row := first[j*h : (j+1)*h]
			for k, p := range a.embeddings[j*h : (j+1)*h] {
				row[k] = start[k] + p
			}
		}
	}
}

// run takes the batch through layers [from, to). Where streams run beside main
// rows, their results in the last layer are left to [Decoder.finish]: only their
// keys and values are needed there, but for the node that is accepted.
func (d *Decoder) run(ctx context.Context, b *batch, from, to int) error {
	for l := from; l < to; l++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		rows := b.main
		if len(b.carriers) > 0 {
			rows = b.rows(d.adapter.gamma)
		}
		d.project(l, b, rows)
		if b.main > 0 && l == d.base.config.NumLayers-1 {
			rows = b.main
		}
		d.finish(l, b, 0, rows)
	}
	return nil
}

// project computes queries, keys and values of the batch's rows in a layer and
// stores keys and values.
func (d *Decoder) project(l int, b *batch, rows int) {
	c, w := d.base.config, &d.base.layers[l]
	h := c.HiddenSize
	w.attnNorm.apply(d.normed, d.x, rows, c.RMSNormEps)
	w.qkv.mulRows(d.qkv, d.qkvWidth, d.normed, h, rows, false) // [rows, q + 2·kv]
	d.loraOf(l).qkv.add(d.qkv, d.qkvWidth, d.normed, h, rows, d.low)
	d.rotateAndStore(l, b)
}

// finish is the rest of a layer for rows [lo, hi) of a projected batch, in place
// on x: attention, output projection, feed-forward.
func (d *Decoder) finish(l int, b *batch, lo, hi int) {
	c, w, lora := d.base.config, &d.base.layers[l], d.loraOf(l)
	h, q, rows := c.HiddenSize, c.NumHeads*c.HeadDim, hi-lo
	d.attend(l, b, lo, hi)
	x, attended, normed := d.x[lo*h:], d.attended[lo*q:], d.normed[lo*h:]
	w.o.mulRows(x, h, attended, q, rows, true)
	lora.o.add(x, h, attended, q, rows, d.low)
	w.mlpNorm.apply(normed, x, rows, c.RMSNormEps)
	if lo >= b.main && d.adapter.stream != nil {
		// Lossless: streams pass through their adapter in place of, or beside,
		// the frozen MLP. Main and stream rows never share a batch there.
		if d.adapter.keepMLP {
			d.mlp(w, lora, x, normed, rows)
		}
		d.adapter.stream[l].add(x, h, normed, h, rows, d.low)
		return
	}
	d.mlp(w, lora, x, normed, rows)
}

// loraOf returns a layer's LoRA; its fields are nil where there is none.
func (d *Decoder) loraOf(l int) loraLayer {
	if d.lora == nil {
		return loraLayer{}
	}
	return d.lora[l]
}

// mlp adds the feed-forward of normed rows to x.
func (d *Decoder) mlp(w *baseLayer, lora loraLayer, x, normed []float32, rows int) {
	c, n := d.base.config, d.upWidth
	h, m := c.HiddenSize, c.IntermediateSize
	w.up.mulRows(d.up, n, normed, h, rows, false) // [rows, 2·m], or [rows, m] without a gate
	lora.up.add(d.up, n, normed, h, rows, d.low)
	kernels.ParallelRows(rows, max(1, 1<<14/m), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			u := d.up[r*n : (r+1)*n]
			if c.ReLU {
				kernels.ReLU(u, u)
			} else {
				kernels.SwiGLU(u[:m], u[:m], u[m:])
			}
		}
	})
	w.down.mulRows(x, h, d.up, n, rows, true)
	lora.down.add(x, h, d.up, n, rows, d.low)
}

// rotateAndStore turns queries and keys to their positions, where those are
// rotary, and stores keys and values: main rows' in the cache, stream rows' for
// this layer only.
func (d *Decoder) rotateAndStore(l int, b *batch) {
	c := d.base.config
	q, kv := c.NumHeads*c.HeadDim, d.kvWidth
	turn := func(row []float32, position int) {
		if d.base.rotary != nil {
			d.base.rotary.Apply(row, c.NumHeads+c.NumKVHeads, c.HeadDim, position, false)
		}
	}
	for r := range b.main {
		row := d.qkv[r*d.qkvWidth : (r+1)*d.qkvWidth]
		turn(row, b.positions[r])
		at := (b.slot + r) * kv
		copy(d.cacheK[l][at:at+kv], row[q:q+kv])
		copy(d.cacheV[l][at:at+kv], row[q+kv:])
	}
	if len(b.carriers) == 0 {
		return
	}
	gamma := d.adapter.gamma
	d.streamK = grow(d.streamK, len(b.carriers)*gamma*kv)
	d.streamV = grow(d.streamV, len(b.carriers)*gamma*kv)
	for i, carrier := range b.carriers {
		for j := range gamma {
			s := i*gamma + j
			row := d.qkv[(b.main+s)*d.qkvWidth : (b.main+s+1)*d.qkvWidth]
			turn(row, carrier.position+j+1)
			copy(d.streamK[s*kv:(s+1)*kv], row[q:q+kv])
			copy(d.streamV[s*kv:(s+1)*kv], row[q+kv:])
		}
	}
}

// attend computes the attention of rows [lo, hi). Main rows see the keys in
// their sight and, where they carry streams, all of those; stream j sees its
// carrier's sight and streams 1..j (Eqs. 2 and 3). A sliding window W leaves out
// main keys W or more positions before the row's own, which for stream j is its
// carrier's + j. Sights end with their row's own key and miss no position before it,
// so those are the first of them.
func (d *Decoder) attend(l int, b *batch, lo, hi int) {
	c := d.base.config
	gamma := 0
	if len(b.carriers) > 0 {
		gamma = d.adapter.gamma
	}
	keys := 0
	for r := lo; r < hi; r++ {
		if r < b.main {
			keys = max(keys, sightKeys(b.sights[r]))
		} else {
			keys = max(keys, sightKeys(b.carriers[(r-b.main)/gamma].sight))
		}
	}
	keys += gamma
	// Waking goroutines costs microseconds; several pieces a core even out rows
	// of different lengths.
	pieces := 1
	if (hi-lo)*keys*c.NumHeads*c.HeadDim > 1<<17 {
		pieces = min(hi-lo, 4*runtime.GOMAXPROCS(0))
	}
	if len(d.workers) < pieces {
		d.workers = append(d.workers, make([]worker, pieces-len(d.workers))...)
	}
	kernels.Parallel(pieces, func(p int) {
		w := &d.workers[p]
		w.scores = grow(w.scores, keys)
		for r := lo + p; r < hi; r += pieces {
			if r < b.main {
				first, n := 0, 0
				if g := b.group[r]; g >= 0 {
					first, n = g*gamma, gamma
				}
				d.attendRow(l, r, b.sights[r], d.base.hidden(l, b.positions[r]), first, n, w)
				continue
			}
			s := r - b.main
			carrier, j := &b.carriers[s/gamma], s%gamma+1
			d.attendRow(l, r, carrier.sight, d.base.hidden(l, carrier.position+j), s/gamma*gamma, j, w)
		}
	})
}

// worker is the scratch of one piece of an attention.
type worker struct {
	scores []float32
	runs   []kernels.KVRun
}

// hidden is how many of the main keys before position p the window of layer l
// hides from a row there.
func (b *Base) hidden(l, p int) int {
	if b.layers[l].window == 0 {
		return 0
	}
	return max(0, p+1-b.layers[l].window)
}

// attendRow computes all heads of one row over the main keys in sight but the
// first hidden ones, then streams streamFirst .. streamFirst+streams of the batch.
func (d *Decoder) attendRow(l, row int, sight []span, hidden, streamFirst, streams int, w *worker) {
	c := d.base.config
	kv, group := d.kvWidth, c.NumHeads/c.NumKVHeads
	scale := float32(1 / math.Sqrt(float64(c.HeadDim)))
	for head := range c.NumKVHeads {
		w.runs = w.runs[:0]
		at := head * c.HeadDim
		skip := hidden
		for _, s := range sight {
			if skip >= s.n {
				skip -= s.n
				continue
			}
			s.start, s.n, skip = s.start+skip, s.n-skip, 0
			w.runs = append(w.runs, kernels.KVRun{K: d.cacheK[l][s.start*kv+at:], V: d.cacheV[l][s.start*kv+at:], Stride: kv, N: s.n})
		}
		if streams > 0 {
			w.runs = append(w.runs, kernels.KVRun{K: d.streamK[streamFirst*kv+at:], V: d.streamV[streamFirst*kv+at:], Stride: kv, N: streams})
		}
		for i := head * group; i < (head+1)*group; i++ {
			query := d.qkv[row*d.qkvWidth+i*c.HeadDim:][:c.HeadDim]
			out := d.attended[(row*c.NumHeads+i)*c.HeadDim:][:c.HeadDim]
			kernels.AttendRow(out, query, w.runs, scale, w.scores)
		}
	}
}

func sightKeys(s []span) int {
	n := 0
	for _, x := range s {
		n += x.n
	}
	return n
}

// grow returns a slice of n elements, s's memory where it is large enough. The
// contents are not kept.
func grow(s []float32, n int) []float32 {
	if cap(s) < n {
		return make([]float32, n+n/2)[:n]
	}
	return s[:n]
}

// headLogits applies the final norm and the LM head to rows of states [rows, h]
// and returns logits [rows, V], valid until the next call.
func (d *Decoder) headLogits(states []float32, rows int) []float32 {
	c := d.base.config
	d.headIn = grow(d.headIn, rows*c.HiddenSize)
	d.logits = grow(d.logits, rows*c.VocabSize)
	d.base.norm.apply(d.headIn, states, rows, c.RMSNormEps)
	d.base.head.MulRows(d.logits, c.VocabSize, d.headIn, c.HiddenSize, rows, false)
	return d.logits
}

// earlyRows is how many nodes' early-exit logits exist at a time.
const earlyRows = 32

// transitions returns the early-exit probability of every node's token given
// its parent, softmax(H(norm(M + o_θ(M)))) with M = x, the states entering the
// MSA layers (section 2.3).
func (d *Decoder) transitions(t *engine.Tree) []float64 {
	c := d.base.config
	h, v := c.HiddenSize, c.VocabSize
	d.scores = append(d.scores[:0], make([]float64, t.Len())...)
	node := 1 // the first whose parent has not been scored yet
	for node < t.Len() {
		// Parents come in order, each with its children together.
		d.parents = d.parents[:0]
		end := node
		for ; end < t.Len(); end++ {
			p := t.Parents[end]
			if n := len(d.parents); n == 0 || d.parents[n-1] != p {
				if n == earlyRows {
					break
				}
				d.parents = append(d.parents, p)
			}
		}
		rows := len(d.parents)
		d.early = grow(d.early, rows*h)
		d.earlyIn = grow(d.earlyIn, rows*h)
		for i, p := range d.parents {
			copy(d.early[i*h:(i+1)*h], d.x[p*h:])
		}
		copy(d.earlyIn, d.early)
		d.low = grow(d.low, max(len(d.low), rows*d.adapter.pruner.ranks()))
		d.adapter.pruner.add(d.early, h, d.earlyIn, h, rows, d.low) // M + o_θ(M)
		logits := d.headLogits(d.early, rows)
		kernels.Parallel(rows, func(i int) { kernels.SoftmaxInPlace(logits[i*v : (i+1)*v]) })
		for i := 0; node < end; node++ {
			for d.parents[i] != t.Parents[node] {
				i++
			}
			d.scores[node] = float64(logits[i*v+int(t.Tokens[node])])
		}
	}
	return d.scores
}
