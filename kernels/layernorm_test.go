package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLayerNormGradient(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	const rows, h, eps = 3, 10, 1e-5
	x, w, b, dy := randomSlice[float64](rng, rows*h), randomSlice[float64](rng, h), randomSlice[float64](rng, h), randomSlice[float64](rng, rows*h)
	y, stats := make([]float64, rows*h), make([]float64, 2*rows)
	want := numericGradient(x, func() float64 {
		LayerNorm(y, x, w, b, rows, h, eps, nil)
		return Dot(y, dy)
	})
	LayerNorm(y, x, w, b, rows, h, eps, stats)
	dx := make([]float64, rows*h)
	for i := range dx {
		dx[i] = math.NaN() // must be overwritten, not read
	}
	LayerNormBackward(dx, dy, x, w, stats, rows, h, false)
	requireClose(t, want, dx, 1e-7)

	twice := append([]float64(nil), dx...)
	LayerNormBackward(twice, dy, x, w, stats, rows, h, true)
	Scale(twice, 0.5)
	requireClose(t, dx, twice, 1e-14, "accumulate")
	LayerNormBackward(dy, dy, x, w, stats, rows, h, false)
	require.Equal(t, dx, dy, "in place")
}

// TestLayerNormFloat32 compares float32 with float64, far from zero too, and
// checks that a row alone gives the same bits.
func TestLayerNormFloat32(t *testing.T) {
	rng := rand.New(rand.NewPCG(33, 34))
	for _, h := range []int{2, 7, 33, 768} {
		for _, offset := range []float32{0, 50} {
			const rows = 9
			x, w, b, dy := randomSlice[float32](rng, rows*h), randomSlice[float32](rng, h), randomSlice[float32](rng, h), randomSlice[float32](rng, rows*h)
			for i := range x {
				x[i] += offset
			}
			y, dx, stats := make([]float32, rows*h), make([]float32, rows*h), make([]float32, 2*rows)
			LayerNorm(y, x, w, b, rows, h, 1e-5, stats)
			LayerNormBackward(dx, dy, x, w, stats, rows, h, false)
			y64, dx64, stats64 := make([]float64, rows*h), make([]float64, rows*h), make([]float64, 2*rows)
			LayerNorm(y64, widen(x), widen(w), widen(b), rows, h, 1e-5, stats64)
			LayerNormBackward(dx64, widen(dy), widen(x), widen(w), stats64, rows, h, false)
			tolerance := 2e-6 * (1 + float64(offset)) // the mean's own rounding
			requireClose(t, y64, widen(y), tolerance, "y", h, offset)
			if h > 2 { // with two columns dx is a difference of equal terms
				requireClose(t, dx64, widen(dx), tolerance, "dx", h, offset)
			}
			for r := range rows {
				one := make([]float32, h)
				LayerNorm(one, x[r*h:], w, b, 1, h, 1e-5, nil)
				require.Equal(t, y[r*h:(r+1)*h], one)
			}
		}
	}
}

func TestReLU(t *testing.T) {
	inf := float32(math.Inf(1))
	x := []float32{-inf, -2, 0, 3, inf}
	y := make([]float32, len(x))
	ReLU(y, x)
	require.Equal(t, []float32{0, 0, 0, 3, inf}, y)
	dx := []float32{9, 9, 9, 9, 9}
	ReLUBackward(dx, []float32{1, 2, 3, 4, 5}, x)
	require.Equal(t, []float32{0, 0, 0, 4, 5}, dx)
	nan := []float32{float32(math.NaN())}
	ReLU(nan, nan)
	require.True(t, nan[0] != nan[0], "damage stays visible")
}

func TestAddBias(t *testing.T) {
	y := []float32{1, 2, 3, 4, 5, 6}
	AddBias(y, 3, []float32{10, 20}, 2)
	require.Equal(t, []float32{11, 22, 3, 14, 25, 6}, y)
	AddBias(y[:5], 3, []float32{1, 1}, 2)
	require.Panics(t, func() { AddBias(y[:4], 3, []float32{1, 1}, 2) })
}
