package kernels

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAttendRow(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(41, 42))
			for _, hd := range []int{2, 8, 15, 16, 32, 48, 64, 80, 128, 200, 256} {
				for _, n := range []int{1, 3, 40} {
					stride := hd + rng.IntN(9)
					k, v, q := randomSlice[float32](rng, n*stride), randomSlice[float32](rng, n*stride), randomSlice[float32](rng, hd)
					scratch := make([]float32, n)
					out := make([]float32, hd)
					for i := range out {
						out[i] = float32(math.NaN())
					}
					const scale = 0.3
					AttendRow(out, q, []KVRun{{K: k, V: v, Stride: stride, N: n}}, scale, scratch)

					p, want := make([]float64, n), make([]float64, hd)
					for j := range p {
						for d := range hd {
							p[j] += scale * float64(q[d]) * float64(k[j*stride+d])
						}
					}
					SoftmaxInPlace(p)
					for j := range p {
						for d := range want {
							want[d] += p[j] * float64(v[j*stride+d])
						}
					}
					requireClose(t, want, widen(out), 2e-5, "hd", hd, "keys", n)

					// The same keys in other pieces, some empty, some elsewhere.
					for range 4 {
						var runs []KVRun
						for j := 0; j < n; {
							count := rng.IntN(n - j + 1)
							run := KVRun{K: k[j*stride:], V: v[j*stride:], Stride: stride, N: count}
							if rng.IntN(2) == 0 && count > 0 { // a compact copy
								run = KVRun{Stride: hd, N: count}
								for i := range count {
									run.K = append(run.K, k[(j+i)*stride:][:hd]...)
									run.V = append(run.V, v[(j+i)*stride:][:hd]...)
								}
							}
							runs = append(runs, run)
							j += count
						}
						again := make([]float32, hd)
						AttendRow(again, q, runs, scale, scratch)
						require.Equal(t, out, again, "hd %d keys %d runs %d", hd, n, len(runs))
					}
				}
			}
			out := []float32{1, 2}
			AttendRow(out, []float32{1, 1}, nil, 1, nil)
			require.Equal(t, []float32{0, 0}, out, "no keys")
		})
	}
}

func TestRotary(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(43, 44))
			const heads, hd, pos, theta = 3, 20, 300, 10000.0
			x := randomSlice[float32](rng, heads*hd)
			got := append([]float32(nil), x...)
			r := NewRotary[float32](hd, theta, nil)
			r.Apply(got, heads, hd, pos, false)
			want := make([]float64, heads*hd)
			for h := range heads {
				for i := range hd / 2 {
					angle := pos * math.Pow(theta, -2*float64(i)/hd)
					a, b := float64(x[h*hd+i]), float64(x[h*hd+hd/2+i])
					want[h*hd+i] = a*math.Cos(angle) - b*math.Sin(angle)
					want[h*hd+hd/2+i] = b*math.Cos(angle) + a*math.Sin(angle)
				}
			}
			requireClose(t, want, widen(got), 1e-6)
			r.Apply(got, heads, hd, pos, true)
			requireClose(t, widen(x), widen(got), 1e-6, "the inverse undoes it")
			r.Apply(got, heads, hd, 0, false)
			requireClose(t, widen(x), widen(got), 1e-6, "position 0 is the identity")
		})
	}
}

func TestRotaryScaling(t *testing.T) {
	// Llama 3.1: head dimension 128, theta 500000; the values follow Hugging
	// Face's _compute_llama3_parameters.
	scaling := &RopeScaling{Factor: 8, LowFreqFactor: 1, HighFreqFactor: 4, OriginalMaxPositions: 8192}
	plain, scaled := inverseFrequencies(128, 500000, nil), inverseFrequencies(128, 500000, scaling)
	require.Equal(t, 1.0, plain[0])
	kept, blended, slowed := 0, 0, 0
	for i, f := range plain {
		wavelength := 2 * math.Pi / f
		switch {
		case wavelength < 8192/4.0:
			require.Equal(t, f, scaled[i])
			kept++
		case wavelength > 8192:
			require.InEpsilon(t, f/8, scaled[i], 1e-15)
			slowed++
		default:
			smooth := (8192/wavelength - 1) / 3
			require.InEpsilon(t, (1-smooth)*f/8+smooth*f, scaled[i], 1e-15)
			blended++
		}
	}
	require.Equal(t, []int{29, 6, 29}, []int{kept, blended, slowed})
}

func TestRotaryConcurrent(t *testing.T) {
	r := NewRotary[float64](8, 10000, nil)
	reference := NewRotary[float64](8, 10000, nil)
	reference.Apply(make([]float64, 8), 1, 8, 5000, false)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for range 200 {
				pos := rng.IntN(5000)
				x := []float64{1, 2, 3, 4, 5, 6, 7, 8}
				y := append([]float64(nil), x...)
				r.Apply(x, 1, 8, pos, false)
				reference.Apply(y, 1, 8, pos, false)
				if x[0] != y[0] || x[7] != y[7] {
					t.Errorf("position %d differs while the table grows", pos)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestRotaryRefuses(t *testing.T) {
	r := NewRotary[float32](4, 10000, nil)
	require.Panics(t, func() { NewRotary[float32](5, 10000, nil) })
	require.PanicsWithValue(t, "kernels: Rotary.Apply: negative position -1", func() { r.Apply(make([]float32, 4), 1, 4, -1, false) })
	require.PanicsWithValue(t, "kernels: Rotary.Apply: headDim 8, made for 4", func() { r.Apply(make([]float32, 8), 1, 8, 0, false) })
	require.PanicsWithValue(t, "kernels: Rotary.Apply: x has 4 elements, needs 8", func() { r.Apply(make([]float32, 4), 2, 4, 0, false) })
}
