package kernels

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// gemmShapes are the products that training spends its time in: [m, n, k] with
// the layout of a linear layer's forward pass (B transposed).
var gemmShapes = []struct {
	name    string
	m, n, k int
}{
	{"square1024", 1024, 1024, 1024},
	{"qkv", 1024, 512, 192},
	{"up", 1024, 1376, 256},
	{"down", 1024, 256, 1376},
	{"head", 256, 8192, 256},
	{"lora", 1024, 8, 256},
	{"scores", 64, 100, 32},
	{"values", 64, 32, 100},
	{"tile128", 128, 128, 64},
}

// BenchmarkGemmSerial compares the back ends on one core: GFLOP/s by the clock,
// GFLOP/s/core by processor time, which a busy machine does not distort. The
// ratio of our kernels to OpenBLAS is read off one run; where the system has no
// OpenBLAS that part is skipped with the loader's reason.
func BenchmarkGemmSerial(b *testing.B) {
	for _, s := range gemmShapes {
		for _, name := range []string{"openblas", "avx512", "avx2", "go"} {
			b.Run(fmt.Sprintf("%s/%s", s.name, name), func(b *testing.B) {
				withBackend(b, name)
				benchmarkGemm(b, GemmSerial[float32], false, true, s.m, s.n, s.k)
			})
		}
	}
}

// BenchmarkGemm is the same over all cores, for the chosen back end, in the
// three layouts of a linear layer: forward, gradient of the input, gradient of
// the weight.
func BenchmarkGemm(b *testing.B) {
	for _, s := range gemmShapes[:5] {
		b.Run(s.name+"/forward", func(b *testing.B) { benchmarkGemm(b, Gemm[float32], false, true, s.m, s.n, s.k) })
		b.Run(s.name+"/dx", func(b *testing.B) { benchmarkGemm(b, Gemm[float32], false, false, s.m, s.n, s.k) })
		b.Run(s.name+"/dw", func(b *testing.B) { benchmarkGemm(b, Gemm[float32], true, false, s.m, s.n, s.k) })
	}
}

func benchmarkGemm(b *testing.B, f gemmFunc[float32], transA, transB bool, m, n, k int) {
	rng := rand.New(rand.NewPCG(1, 1))
	ar, ac := stored(transA, m, k)
	br, bc := stored(transB, k, n)
	x, w, y := randomSlice[float32](rng, ar*ac), randomSlice[float32](rng, br*bc), make([]float32, m*n)
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		f(transA, transB, m, n, k, 1, x, ac, w, bc, 0, y, n)
	}
	work := 2 * float64(m) * float64(n) * float64(k) * float64(b.N) / 1e9
	b.ReportMetric(work/b.Elapsed().Seconds(), "GFLOP/s")
	b.ReportMetric(work/(cpuTime()-start).Seconds(), "GFLOP/s/core")
}

func BenchmarkMulRows(b *testing.B) {
	for _, shape := range [][2]int{{512, 192}, {1376, 256}, {256, 1376}} {
		for _, rows := range []int{1, 2, 5, 32, 128} {
			for _, procs := range []int{1, runtime.NumCPU()} {
				b.Run(fmt.Sprintf("%dx%d/rows=%d/cores=%d", shape[0], shape[1], rows, procs), func(b *testing.B) {
					defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
					out, in := shape[0], shape[1]
					rng := rand.New(rand.NewPCG(1, 1))
					p := Pack(randomSlice[float32](rng, out*in), out, in)
					x, y := randomSlice[float32](rng, rows*in), make([]float32, rows*out)
					b.ReportAllocs()
					start := cpuTime()
					for b.Loop() {
						p.MulRows(y, out, x, in, rows, false)
					}
					work := 2 * float64(out*in*rows) * float64(b.N) / 1e9
					b.ReportMetric(work/b.Elapsed().Seconds(), "GFLOP/s")
					b.ReportMetric(work/(cpuTime()-start).Seconds(), "GFLOP/s/core")
					b.ReportMetric(float64(p.Bytes())*float64(b.N)/b.Elapsed().Seconds()/1e9, "GB/s")
				})
			}
		}
	}
}

func BenchmarkElementwise(b *testing.B) {
	const n = 4096
	rng := rand.New(rand.NewPCG(1, 1))
	x, y, z, w := randomSlice[float32](rng, n), randomSlice[float32](rng, n), randomSlice[float32](rng, n), randomSlice[float32](rng, n)
	out, inv := make([]float32, n), make([]float32, 16)
	cases := []struct {
		name string
		run  func()
	}{
		{"dot", func() { Dot(x, y) }},
		{"axpy", func() { Axpy(out, 1e-9, x) }},
		{"exp", func() { exp32(out, x) }},
		{"softmax", func() { copy(out, x); SoftmaxInPlace(out) }},
		{"swiglu", func() { SwiGLU(out, x, y) }},
		{"swiglubackward", func() { SwiGLUBackward(out, w, z, x, y) }},
		{"rmsnorm", func() { RMSNorm(out, x, y, 16, n/16, 1e-5, inv) }},
		{"crossentropy", func() {
			copy(out, x)
			CrossEntropyRows(out, 1, n, []int32{7}, inv[:1], []float64{0}, []bool{false})
		}},
	}
	for _, c := range cases {
		for _, name := range []string{"avx512", "avx2", "go"} {
			b.Run(c.name+"/"+name, func(b *testing.B) {
				withBackend(b, name)
				start := cpuTime()
				for b.Loop() {
					c.run()
				}
				b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(b.N)/n, "cpu-ns/element")
			})
		}
	}
}

func BenchmarkAttendRow(b *testing.B) {
	const keys, heads, hd = 512, 4, 64
	rng := rand.New(rand.NewPCG(1, 1))
	k, v := randomSlice[float32](rng, keys*heads*hd), randomSlice[float32](rng, keys*heads*hd)
	q, out, scores := randomSlice[float32](rng, hd), make([]float32, hd), make([]float32, keys)
	runs := []KVRun{{K: k, V: v, Stride: heads * hd, N: keys}}
	for _, name := range []string{"avx512", "avx2", "go"} {
		b.Run(name, func(b *testing.B) {
			withBackend(b, name)
			b.ReportAllocs()
			start := cpuTime()
			for b.Loop() {
				AttendRow(out, q, runs, 0.125, scores)
			}
			b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(b.N)/keys, "cpu-ns/key")
		})
	}
}
