package kernels

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// RopeScaling is the "llama3" frequency scaling of rotary positions (field
// rope_scaling of a Hugging Face config with rope_type "llama3").
type RopeScaling struct {
	Factor               float64 // how much low frequencies are slowed
	LowFreqFactor        float64 // wavelengths above OriginalMaxPositions/LowFreqFactor are slowed fully
	HighFreqFactor       float64 // wavelengths below OriginalMaxPositions/HighFreqFactor are kept
	OriginalMaxPositions int     // positions the model was pretrained with
}

// inverseFrequencies returns the headDim/2 angular speeds theta^(-2i/headDim),
// scaled.
func inverseFrequencies(headDim int, theta float64, scaling *RopeScaling) []float64 {
	freqs := make([]float64, headDim/2)
	for i := range freqs {
		f := math.Pow(theta, -2*float64(i)/float64(headDim))
		if s := scaling; s != nil {
			original := float64(s.OriginalMaxPositions)
			wavelength := 2 * math.Pi / f
			switch {
			case wavelength > original/s.LowFreqFactor:
				f /= s.Factor
			case wavelength >= original/s.HighFreqFactor:
				keep := (original/wavelength - s.LowFreqFactor) / (s.HighFreqFactor - s.LowFreqFactor)
				f = (1-keep)*f/s.Factor + keep*f
			}
		}
		freqs[i] = f
	}
	return freqs
}

// Rotary applies rotary position embedding in Hugging Face's "rotate_half"
// convention: dimension i of a head is paired with dimension i + headDim/2. The
// table of sines and cosines grows as positions are asked for; all methods are
// safe for concurrent use.
type Rotary[T Float] struct {
	headDim int
	freqs   []float64
	table   atomic.Pointer[rotaryTable[T]]
	grow    sync.Mutex
}

// rotaryTable is immutable once published: row pos holds headDim/2 cosines,
// then as many sines.
type rotaryTable[T Float] struct {
	positions int
	values    []T
}

// NewRotary makes the rotary embedding of a model. headDim must be even;
// scaling nil means none.
func NewRotary[T Float](headDim int, theta float64, scaling *RopeScaling) *Rotary[T] {
	if headDim < 2 || headDim%2 != 0 {
		panic(fmt.Sprintf("kernels: NewRotary: headDim %d is not a positive even number", headDim))
	}
	r := &Rotary[T]{headDim: headDim, freqs: inverseFrequencies(headDim, theta, scaling)}
	r.table.Store(&rotaryTable[T]{})
	return r
}

// Apply rotates x, consecutive heads of headDim elements, to position pos in
// place; inverse rotates back, which is also the gradient.
func (r *Rotary[T]) Apply(x []T, heads, headDim, pos int, inverse bool) {
	if headDim != r.headDim {
		panic(fmt.Sprintf("kernels: Rotary.Apply: headDim %d, made for %d", headDim, r.headDim))
	}
	atLeast("Rotary.Apply", "x", len(x), heads*headDim)
	cos, sin := r.at(pos)
	var sign T = 1
	if inverse {
		sign = -1
	}
	half := headDim / 2
	for h := range heads {
		head := x[h*headDim : (h+1)*headDim]
		rotate(head[:half], head[half:], cos, sin, sign)
	}
}

// at returns the cosines and sines of a position, growing the table if needed.
func (r *Rotary[T]) at(pos int) (cos, sin []T) {
	if pos < 0 {
		panic(fmt.Sprintf("kernels: Rotary.Apply: negative position %d", pos))
	}
	t := r.table.Load()
	if pos >= t.positions {
		t = r.extend(pos)
	}
	half := r.headDim / 2
	row := t.values[pos*r.headDim : (pos+1)*r.headDim]
	return row[:half], row[half:]
}

// extend publishes a table that reaches pos, at least twice the present one.
func (r *Rotary[T]) extend(pos int) *rotaryTable[T] {
	r.grow.Lock()
	defer r.grow.Unlock()
	old := r.table.Load()
	if pos < old.positions {
		return old
	}
	t := &rotaryTable[T]{positions: max(256, 2*old.positions, pos+1)}
	t.values = make([]T, t.positions*r.headDim)
	copy(t.values, old.values)
	half := r.headDim / 2
	for p := old.positions; p < t.positions; p++ {
		row := t.values[p*r.headDim : (p+1)*r.headDim]
		for i, f := range r.freqs {
			sin, cos := math.Sincos(float64(p) * f)
			row[i], row[half+i] = T(cos), T(sin)
		}
	}
	r.table.Store(t)
	return t
}

// rotate turns the pairs (x[i], y[i]).
func rotate[T Float](x, y, cos, sin []T, sign T) {
	if a, ok := single(x); ok {
		b, _ := single(y)
		c, _ := single(cos)
		s, _ := single(sin)
		rotate32(a, b, c, s, float32(sign))
		return
	}
	rotateGo(x, y, cos, sin, sign)
}
