package kernels

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTrainingVectors holds AdamW's step and the soft-max backward of every
// instruction set to float64, for lengths around whole vectors, and checks that
// an element's result does not depend on where in the slice it lies.
func TestTrainingVectors(t *testing.T) {
	s := AdamW{Factor: 0.7, Beta1: 0.9, Beta2: 0.999, Keep: 0.99, Rate: 1e-2, Root: 3, Eps: 1e-8}
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(41, 42))
			for _, n := range []int{1, 7, 8, 15, 16, 17, 100} {
				p, g, m, v := randomSlice[float32](rng, n), randomSlice[float32](rng, n), randomSlice[float32](rng, n), randomSlice[float32](rng, n)
				for i := range v {
					v[i] *= v[i]
				}
				p64, g64, m64, v64 := widen(p), widen(g), widen(m), widen(v)
				last := []float32{p[n-1], m[n-1], v[n-1]}
				Step(s, p64, g64, m64, v64)
				Step(s, p, g, m, v)
				requireClose(t, p64, widen(p), 1e-5)
				requireClose(t, m64, widen(m), 1e-6)
				requireClose(t, v64, widen(v), 1e-6)
				Step(s, last[:1], g[n-1:], last[1:2], last[2:])
				require.Equal(t, []float32{p[n-1], m[n-1], v[n-1]}, last, "alone")

				d, w := randomSlice[float32](rng, n), randomSlice[float32](rng, n)
				d64 := widen(d)
				SoftmaxBackward(d64, widen(w), 0.3)
				SoftmaxBackward(d, w, 0.3)
				requireClose(t, d64, widen(d), 1e-6)
			}
		})
	}
}
