package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// numericGradient differentiates loss with respect to every element of x by
// central differences.
func numericGradient(x []float64, loss func() float64) []float64 {
	const step = 1e-6
	g := make([]float64, len(x))
	for i, v := range x {
		x[i] = v + step
		up := loss()
		x[i] = v - step
		down := loss()
		x[i] = v
		g[i] = (up - down) / (2 * step)
	}
	return g
}

// requireClose demands ‖a-b‖/‖b‖ <= tolerance.
func requireClose[T Float](t *testing.T, want, got []T, tolerance float64, msg ...any) {
	t.Helper()
	require.Len(t, got, len(want), msg...)
	var diff, norm float64
	for i := range want {
		d := float64(got[i]) - float64(want[i])
		diff += d * d
		norm += float64(want[i]) * float64(want[i])
	}
	if !(math.Sqrt(diff) <= tolerance*math.Sqrt(norm)) {
		t.Fatalf("relative error %.3g exceeds %.3g %v", math.Sqrt(diff/norm), tolerance, msg)
	}
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

func TestRMSNormGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	const rows, h, eps = 3, 10, 1e-5
	x, w, dy := randomSlice[float64](rng, rows*h), randomSlice[float64](rng, h), randomSlice[float64](rng, rows*h)
	y, inv := make([]float64, rows*h), make([]float64, rows)
	loss := func() float64 {
		RMSNorm(y, x, w, rows, h, eps, nil)
		return Dot(y, dy)
	}
	wantX, wantW := numericGradient(x, loss), numericGradient(w, loss)
	RMSNorm(y, x, w, rows, h, eps, inv)
	dx, dw := make([]float64, rows*h), make([]float64, h)
	for i := range dx {
		dx[i] = math.NaN() // must be overwritten, not read
	}
	RMSNormBackward(dx, dy, x, w, inv, rows, h, false)
	RMSNormWeightGrad(dw, dy, x, inv, rows, h)
	requireClose(t, wantX, dx, 1e-7)
	requireClose(t, wantW, dw, 1e-7)

	twice := append([]float64(nil), dx...)
	RMSNormBackward(twice, dy, x, w, inv, rows, h, true)
	Scale(twice, 0.5)
	requireClose(t, dx, twice, 1e-14, "accumulate")
	RMSNormWeightGrad(dw, dy, x, inv, rows, h)
	Scale(dw, 0.5)
	requireClose(t, wantW, dw, 1e-7, "the weight gradient adds")
}

// TestRMSNormFloat32 compares the vector versions with float64, at widths
// around the vector lengths, and checks that a row alone gives the same bits.
func TestRMSNormFloat32(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(23, 24))
			for _, h := range []int{1, 7, 8, 15, 16, 17, 33, 64, 192, 257} {
				const rows = 9
				x, w, dy := randomSlice[float32](rng, rows*h), randomSlice[float32](rng, h), randomSlice[float32](rng, rows*h)
				y, inv, dx, dw := make([]float32, rows*h), make([]float32, rows), make([]float32, rows*h), make([]float32, h)
				RMSNorm(y, x, w, rows, h, 1e-5, inv)
				RMSNormBackward(dx, dy, x, w, inv, rows, h, false)
				RMSNormWeightGrad(dw, dy, x, inv, rows, h)

				x64, w64, dy64 := widen(x), widen(w), widen(dy)
				y64, inv64, dx64, dw64 := make([]float64, rows*h), make([]float64, rows), make([]float64, rows*h), make([]float64, h)
				RMSNorm(y64, x64, w64, rows, h, 1e-5, inv64)
				RMSNormBackward(dx64, dy64, x64, w64, inv64, rows, h, false)
				RMSNormWeightGrad(dw64, dy64, x64, inv64, rows, h)
				requireClose(t, y64, widen(y), 1e-6, "y", h)
				requireClose(t, inv64, widen(inv), 1e-6, "inv", h)
				requireClose(t, dw64, widen(dw), 1e-6, "dw", h)
				if h > 1 { // with one column dx is a difference of equal terms
					requireClose(t, dx64, widen(dx), 2e-6, "dx", h)
				}

				add := append([]float32(nil), dy...)
				RMSNormBackward(add, dy, x, w, inv, rows, h, true)
				for i := range add {
					require.InDelta(t, dy[i]+dx[i], add[i], 1e-5)
				}
				for r := range rows {
					one := make([]float32, h)
					RMSNorm(one, x[r*h:], w, 1, h, 1e-5, nil)
					require.Equal(t, y[r*h:(r+1)*h], one)
					RMSNormBackward(one, dy[r*h:], x[r*h:], w, inv[r:], 1, h, false)
					require.Equal(t, dx[r*h:(r+1)*h], one)
				}
			}
		})
	}
}

func TestSwiGLUGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(25, 26))
	const n = 21
	gate, up, dy := randomSlice[float64](rng, n), randomSlice[float64](rng, n), randomSlice[float64](rng, n)
	y, dgate, dup := make([]float64, n), make([]float64, n), make([]float64, n)
	loss := func() float64 {
		SwiGLU(y, gate, up)
		return Dot(y, dy)
	}
	wantGate, wantUp := numericGradient(gate, loss), numericGradient(up, loss)
	SwiGLUBackward(dgate, dup, dy, gate, up)
	requireClose(t, wantGate, dgate, 1e-7)
	requireClose(t, wantUp, dup, 1e-7)
}

func TestSwiGLUFloat32(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(27, 28))
			for n := range 70 {
				gate, up, dy := randomSlice[float32](rng, n), randomSlice[float32](rng, n), randomSlice[float32](rng, n)
				Scale(gate, 5)
				const guard = 20
				y, dgate, dup := randomSlice[float32](rng, n+guard), randomSlice[float32](rng, n+guard), randomSlice[float32](rng, n+guard)
				tails := [][]float32{append([]float32(nil), y[n:]...), append([]float32(nil), dgate[n:]...), append([]float32(nil), dup[n:]...)}
				SwiGLU(y[:n], gate, up)
				SwiGLUBackward(dgate[:n], dup[:n], dy, gate, up)
				y64, dgate64, dup64 := make([]float64, n), make([]float64, n), make([]float64, n)
				SwiGLU(y64, widen(gate), widen(up))
				SwiGLUBackward(dgate64, dup64, widen(dy), widen(gate), widen(up))
				requireClose(t, y64, widen(y[:n]), 1e-6)
				requireClose(t, dgate64, widen(dgate[:n]), 1e-6)
				requireClose(t, dup64, widen(dup[:n]), 1e-6)
				require.Equal(t, tails, [][]float32{y[n:], dgate[n:], dup[n:]}, "written past the end, n=%d", n)
				for i := range n { // an element does not know its place
					var one [1]float32
					SwiGLU(one[:], gate[i:i+1], up[i:i+1])
					require.Equal(t, y[i], one[0])
				}
				SwiGLUBackward(gate, up, dy, gate, up) // in place
				require.Equal(t, dgate[:n], gate)
				require.Equal(t, dup[:n], up)
			}
			extreme := []float32{-1e4, -200, -90, 90, 200, 1e4}
			y := make([]float32, len(extreme))
			SwiGLU(y, extreme, []float32{1, 1, 1, 1, 1, 1})
			for i, g := range extreme {
				require.InDelta(t, max(g, 0), y[i], 1e-30+1e-6*math.Abs(float64(g))*float64(b2i(g > 0)), "silu(%v)", g)
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
