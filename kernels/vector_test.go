package kernels

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestVectorFunctions(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(31, 32))
			for n := range 150 {
				x, y := randomSlice[float32](rng, n), randomSlice[float32](rng, n+20)
				tail := append([]float32(nil), y[n:]...)
				var dot, squares, scale float64
				greatest := float32(math.Inf(-1))
				for i, v := range x {
					dot += float64(v) * float64(y[i])
					scale += math.Abs(float64(v) * float64(y[i]))
					squares += float64(v) * float64(v)
					greatest = max(greatest, v)
				}
				require.InDelta(t, dot, Dot(x, y), 1e-6*scale+1e-30)
				require.InDelta(t, squares, SumSquares(x), 1e-12*squares)
				require.Equal(t, greatest, maxOf(x))

				want := make([]float64, n)
				for i := range want {
					want[i] = float64(y[i]) + 0.75*float64(x[i])
				}
				Axpy(y[:n], 0.75, x)
				requireClose(t, want, widen(y[:n]), 1e-6)
				Scale(y[:n], -2)
				Scale(want, -2)
				requireClose(t, want, widen(y[:n]), 1e-6)
				require.Equal(t, tail, y[n:], "written past the end, n=%d", n)
			}
		})
	}
}

// TestExp covers the whole range: the relative error of normal results, the
// gradual underflow, overflow, infinities and NaN.
func TestExp(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			var x []float32
			for v := float32(-110); v < 95; v += 0.00137 {
				x = append(x, v)
			}
			y := append([]float32(nil), x...)
			ExpInPlace(y)
			worst := 0.0
			for i, v := range x {
				want := math.Exp(float64(v))
				switch {
				case want > math.MaxFloat32*(1+1e-7):
					require.True(t, math.IsInf(float64(y[i]), 1), "exp(%v) = %v", v, y[i])
				case want < 1.2e-38: // subnormal: absolute error of a few steps
					require.InDelta(t, want, float64(y[i]), 3e-45, "exp(%v)", v)
				case want < math.MaxFloat32*(1-1e-6):
					worst = max(worst, math.Abs(float64(y[i])/want-1))
				}
			}
			require.Less(t, worst, 2e-7)
			t.Logf("greatest relative error %.3g", worst)
			special := []float32{float32(math.Inf(-1)), 0, float32(math.Inf(1)), float32(math.NaN()), -1e30, 1e30}
			ExpInPlace(special)
			require.Equal(t, float32(0), special[0])
			require.Equal(t, float32(1), special[1])
			require.True(t, math.IsInf(float64(special[2]), 1))
			require.True(t, math.IsNaN(float64(special[3])))
			require.Equal(t, float32(0), special[4])
			require.True(t, math.IsInf(float64(special[5]), 1))
		})
	}
	require.Equal(t, float32(math.E), Exp32(1))
}

func TestSoftmaxInPlace(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(33, 34))
			for _, n := range []int{1, 2, 7, 8, 9, 16, 31, 33, 100, 1000} {
				x := randomSlice[float32](rng, n)
				Scale(x, 20)
				x[rng.IntN(n)] += 500 // would overflow without the shift
				y64, y := widen(x), append([]float32(nil), x...)
				max64, sum64 := SoftmaxInPlace(y64)
				greatest, sum := SoftmaxInPlace(y)
				require.Equal(t, float32(max64), greatest)
				require.InEpsilon(t, sum64, sum, 1e-5)
				requireClose(t, y64, widen(y), 1e-5)
				var total float64
				for _, p := range y {
					total += float64(p)
				}
				require.InDelta(t, 1, total, 1e-5)
			}
			masked := []float32{-inf, 3, -inf, 3}
			greatest, sum := SoftmaxInPlace(masked)
			require.Equal(t, []float32{0, 0.5, 0, 0.5}, masked)
			require.Equal(t, []float32{3, 2}, []float32{greatest, sum})
			nothing := []float32{-inf, -inf, -inf}
			greatest, sum = SoftmaxInPlace(nothing)
			require.Equal(t, []float32{0, 0, 0}, nothing)
			require.Equal(t, []float32{-inf, 0}, []float32{greatest, sum})
			_, sum = SoftmaxInPlace([]float32{1, float32(math.NaN()), 2})
			require.True(t, math.IsNaN(float64(sum)), "NaN must not vanish")
			_, sum = SoftmaxInPlace([]float32{-inf, float32(math.NaN())})
			require.True(t, math.IsNaN(float64(sum)), "NaN must not vanish among masked entries")
		})
	}
}

func TestCrossEntropyGradients(t *testing.T) {
	rng := rand.New(rand.NewPCG(35, 36))
	const rows, v = 4, 9
	logits, labels, scale := randomSlice[float64](rng, rows*v), []int32{2, -1, 0, 8}, []float64{0.5, 9, 2, -1}
	loss := make([]float64, rows)
	total := func() float64 {
		CrossEntropyRows(append([]float64(nil), logits...), rows, v, labels, scale, loss, nil)
		return Dot(loss, scale)
	}
	want := numericGradient(logits, total)
	CrossEntropyRows(logits, rows, v, labels, scale, loss, nil)
	requireClose(t, want, logits, 1e-7)
}

func TestCrossEntropyRows(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(37, 38))
			for _, v := range []int{1, 5, 16, 100, 4099} {
				const rows = 6
				logits := randomSlice[float32](rng, rows*v)
				Scale(logits, 10)
				labels, scale := make([]int32, rows), randomSlice[float32](rng, rows)
				for r := range labels {
					labels[r] = int32(rng.IntN(v))
				}
				labels[3] = -100
				x64 := widen(logits)
				loss, loss64 := make([]float64, rows), make([]float64, rows)
				hit, hit64 := make([]bool, rows), make([]bool, rows)
				hit[3] = true
				CrossEntropyRows(x64, rows, v, labels, widen(scale), loss64, hit64)
				one := append([]float32(nil), logits...)
				CrossEntropyRows(logits, rows, v, labels, scale, loss, hit)
				for r := range rows {
					require.InDelta(t, loss64[r], loss[r], 1e-5*(1+loss64[r]))
					require.Equal(t, hit64[r], hit[r])
					requireClose(t, x64[r*v:(r+1)*v], widen(logits[r*v:(r+1)*v]), 1e-5)
					var alone [1]float64
					CrossEntropyRows(one[r*v:(r+1)*v], 1, v, labels[r:], scale[r:], alone[:], nil)
					require.Equal(t, loss[r], alone[0])
				}
				require.Equal(t, logits, one, "a row alone gives the same bits")
				require.Equal(t, make([]float32, v), logits[3*v:4*v])
				require.Zero(t, loss[3])
				require.False(t, hit[3])
			}
		})
	}
}

func TestCrossEntropyHit(t *testing.T) {
	cases := []struct {
		name   string
		logits []float32
		label  int32
		want   bool
	}{
		{"argmax", []float32{1, 5, 2}, 1, true},
		{"not the argmax", []float32{1, 5, 2}, 2, false},
		{"tie goes to the lower id", []float32{5, 1, 5}, 0, true},
		{"tie lost to a lower id", []float32{5, 1, 5}, 2, false},
		{"first of one", []float32{-3}, 0, true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			hit := []bool{!tc.want}
			CrossEntropyRows(tc.logits, 1, len(tc.logits), []int32{tc.label}, []float32{1}, make([]float64, 1), hit)
			require.Equal(t, tc.want, hit[0])
		})
	}
	require.PanicsWithValue(t, "kernels: CrossEntropyRows: label 3 of row 0 is not below 3", func() {
		CrossEntropyRows(make([]float32, 3), 1, 3, []int32{3}, []float32{1}, make([]float64, 1), nil)
	})
}
