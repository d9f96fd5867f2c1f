package kernels

import (
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

var packedShapes = [][2]int{{1, 1}, {5, 3}, {16, 8}, {31, 17}, {32, 32}, {33, 64}, {100, 50}, {129, 20}, {512, 192}, {700, 256}}

func TestMulRowsMatchesDefinition(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(11, 12))
			for _, s := range packedShapes {
				out, in := s[0], s[1]
				w := randomSlice[float32](rng, out*in)
				p := Pack(w, out, in)
				for _, rows := range []int{1, 2, 3, 5, 12, 13, 29, 60} {
					for _, accumulate := range []bool{false, true} {
						ldx, ldy := in+rng.IntN(4), out+rng.IntN(4)
						x, y := randomSlice[float32](rng, rows*ldx), randomSlice[float32](rng, rows*ldy+40)
						var beta float32
						if accumulate {
							beta = 1
						}
						want := naiveGemm(false, true, rows, out, in, 1, x, ldx, w, in, beta, y, ldy)
						p.MulRows(y, ldy, x, ldx, rows, accumulate)
						for i := range y {
							if i/ldy < rows && i%ldy < out {
								require.InDelta(t, want[i], y[i], 2e-5*math.Sqrt(float64(in))+1e-6)
							} else {
								require.Equal(t, want[i], y[i], "outside y: [%d,%d]", i/ldy, i%ldy)
							}
						}
					}
				}
			}
		})
	}
}

// TestMulRowsIndependentOfBatch is the property the lossless promise rests on:
// random cuts of a batch, at several thread counts, give the same bits.
func TestMulRowsIndependentOfBatch(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(13, 14))
			for _, s := range packedShapes {
				out, in := s[0], s[1]
				p := Pack(randomSlice[float32](rng, out*in), out, in)
				const rows = 70
				x, y0 := randomSlice[float32](rng, rows*in), randomSlice[float32](rng, rows*out)
				for _, accumulate := range []bool{false, true} {
					want := append([]float32(nil), y0...)
					for r := range rows {
						p.MulRows(want[r*out:], out, x[r*in:], in, 1, accumulate)
					}
					for range 8 {
						runtime.GOMAXPROCS(1 + rng.IntN(4))
						got := append([]float32(nil), y0...)
						for r := 0; r < rows; {
							n := 1 + rng.IntN(min(rows-r, 1+rng.IntN(rows)))
							p.MulRows(got[r*out:], out, x[r*in:], in, n, accumulate)
							r += n
						}
						require.Equal(t, want, got, "weight [%d, %d]", out, in)
					}
				}
			}
		})
	}
}

// TestPackedSurvivesSwitch: the layout does not depend on the instruction set.
func TestPackedSurvivesSwitch(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	const out, in, rows = 70, 40, 7
	w, x := randomSlice[float32](rng, out*in), randomSlice[float32](rng, rows*in)
	p := Pack(w, out, in)
	want := naiveGemm(false, true, rows, out, in, 1, x, in, w, in, 0, make([]float32, rows*out), out)
	for _, name := range backends(t) {
		withBackend(t, name)
		y := make([]float32, rows*out)
		p.MulRows(y, out, x, in, rows, false)
		for i := range y {
			require.InDelta(t, want[i], y[i], 1e-4, name)
		}
	}
	require.Equal(t, 4*96*in, p.Bytes())
}

func TestMulRowsRefusesWrongSizes(t *testing.T) {
	p := Pack(make([]float32, 6), 2, 3)
	y, x := make([]float32, 4), make([]float32, 6)
	require.PanicsWithValue(t, "kernels: MulRows: x has 6 elements, needs 9", func() { p.MulRows(make([]float32, 6), 2, x, 3, 3, false) })
	require.PanicsWithValue(t, "kernels: MulRows: y has 4 elements, needs 5", func() { p.MulRows(y, 3, x, 3, 2, false) })
	require.PanicsWithValue(t, "kernels: MulRows: leading dimensions ldx=2 ldy=2 for weight [2, 3]", func() { p.MulRows(y, 2, x, 2, 1, false) })
	require.PanicsWithValue(t, "kernels: Pack: w has 6 elements, needs 8", func() { Pack(make([]float32, 6), 2, 4) })
}
