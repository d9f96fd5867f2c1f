package kernels

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// backends lists the back ends this machine can run; OpenBLAS only where the
// system has it.
func backends(t testing.TB) []string {
	t.Helper()
	before := active.Load()
	defer func() { active.Store(before) }()
	var names []string
	for _, name := range []string{"openblas", "avx512", "avx2", "go"} {
		if err := Use(name); err == nil {
			names = append(names, name)
		} else {
			t.Logf("back end %s is left out: %v", name, err)
		}
	}
	return names
}

// withBackend makes a back end active for the rest of the test.
func withBackend(t testing.TB, name string) {
	t.Helper()
	before := current()
	if err := Use(name); err != nil {
		t.Skipf("back end %s: %v", name, err)
	}
	t.Cleanup(func() { active.Store(before) })
}

func randomSlice[T Float](rng *rand.Rand, n int) []T {
	x := make([]T, n)
	for i := range x {
		x[i] = T(rng.NormFloat64())
	}
	return x
}

// stored returns the shape of an operand as it lies in memory.
func stored(trans bool, rows, cols int) (int, int) {
	if trans {
		return cols, rows
	}
	return rows, cols
}

// naiveGemm is the definition, in float64.
func naiveGemm[T Float](transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int) []T {
	out := append([]T(nil), c...)
	for i := range m {
		for j := range n {
			var sum float64
			for p := range k {
				ai, bi := i*lda+p, p*ldb+j
				if transA {
					ai = p*lda + i
				}
				if transB {
					bi = j*ldb + p
				}
				sum += float64(a[ai]) * float64(b[bi])
			}
			sum *= float64(alpha)
			if beta != 0 {
				sum += float64(beta) * float64(c[i*ldc+j])
			}
			out[i*ldc+j] = T(sum)
		}
	}
	return out
}

type gemmFunc[T Float] func(transA, transB bool, m, n, k int, alpha T, a []T, lda int, b []T, ldb int, beta T, c []T, ldc int)

// checkGemm compares one product with the definition; elements of C outside the
// matrix (the gap of the leading dimension and a guard band) must not change.
func checkGemm[T Float](t *testing.T, rng *rand.Rand, f gemmFunc[T], transA, transB bool, m, n, k int, alpha, beta T) {
	t.Helper()
	ar, ac := stored(transA, m, k)
	br, bc := stored(transB, k, n)
	lda, ldb, ldc := ac+rng.IntN(5), bc+rng.IntN(5), n+rng.IntN(5)
	a, b := randomSlice[T](rng, ar*lda), randomSlice[T](rng, br*ldb)
	const guard = 40
	c := randomSlice[T](rng, m*ldc+guard)
	if beta == 0 {
		for i := range m {
			for j := range n {
				c[i*ldc+j] = T(math.NaN())
			}
		}
	}
	want := naiveGemm(transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	f(transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
	tolerance := 2e-6 * math.Sqrt(float64(k)+1) * (math.Abs(float64(alpha)) + math.Abs(float64(beta)) + 1)
	for i, w := range want {
		if i/ldc < m && i%ldc < n {
			if d := math.Abs(float64(c[i] - w)); !(d <= tolerance*(1+math.Abs(float64(w)))) {
				t.Fatalf("transA=%v transB=%v m=%d n=%d k=%d alpha=%v beta=%v lda=%d ldb=%d ldc=%d: C[%d,%d] = %v, want %v",
					transA, transB, m, n, k, alpha, beta, lda, ldb, ldc, i/ldc, i%ldc, c[i], w)
			}
			continue
		}
		if c[i] != w {
			t.Fatalf("m=%d n=%d k=%d ldc=%d: element %d outside C was written", m, n, k, ldc, i)
		}
	}
}

func TestGemmMatchesDefinition(t *testing.T) {
	sizes := [][3]int{
		{1, 1, 1}, {1, 33, 7}, {2, 5, 3}, {3, 31, 16}, {5, 32, 17}, {6, 16, 8}, {7, 17, 9}, {11, 40, 1}, {12, 32, 64},
		{13, 47, 31}, {25, 100, 33}, {64, 32, 100}, {64, 100, 32}, {49, 129, 15}, {97, 65, 70}, {100, 3, 300}, {50, 70, 513},
	}
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(1, 2))
			for _, s := range sizes {
				for flags := range 4 {
					for _, ab := range [][2]float64{{1, 0}, {1, 1}, {-0.5, 0.25}, {2, -1}} {
						transA, transB := flags&1 != 0, flags&2 != 0
						checkGemm(t, rng, Gemm[float32], transA, transB, s[0], s[1], s[2], float32(ab[0]), float32(ab[1]))
						checkGemm(t, rng, GemmSerial[float32], transA, transB, s[0], s[1], s[2], float32(ab[0]), float32(ab[1]))
						checkGemm(t, rng, Gemm[float64], transA, transB, s[0], s[1], s[2], ab[0], ab[1])
					}
				}
			}
		})
	}
}

func TestGemmRandomSizes(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(3, 4))
			for range 150 {
				m, n, k := 1+rng.IntN(150), 1+rng.IntN(150), 1+rng.IntN(150)
				checkGemm(t, rng, Gemm[float32], rng.IntN(2) == 0, rng.IntN(2) == 0, m, n, k, float32(rng.NormFloat64()), float32(rng.IntN(3)))
			}
		})
	}
}

// TestGemmLarge crosses the blocks of depth (256), columns (2048) and rows.
func TestGemmLarge(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(5, 6))
			for flags := range 4 {
				checkGemm(t, rng, Gemm[float32], flags&1 != 0, flags&2 != 0, 211, 150, 600, 1, 1)
			}
			checkGemm(t, rng, Gemm[float32], false, true, 30, 2100, 40, 1, 0)
			checkGemm(t, rng, Gemm[float32], false, false, 60, 4101, 20, 1, 0)
		})
	}
}

type namedFloat float32

func TestGemmNamedFloat(t *testing.T) {
	a, b, c := []namedFloat{1, 2, 3, 4}, []namedFloat{5, 6, 7, 8}, make([]namedFloat, 4)
	Gemm(false, false, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2)
	require.Equal(t, []namedFloat{19, 22, 43, 50}, c)
}

func TestGemmDegenerate(t *testing.T) {
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			nan := float32(math.NaN())
			cases := []struct {
				name        string
				k           int
				alpha, beta float32
				want        []float32
			}{
				{"no depth clears", 0, 1, 0, []float32{0, 0}},
				{"no depth scales", 0, 1, 2, []float32{nan, 6}},
				{"alpha 0 ignores NaN operands", 1, 0, 0, []float32{0, 0}},
				{"alpha 0 keeps C", 1, 0, 1, []float32{nan, 3}},
			}
			for _, tc := range cases {
				t.Run(tc.name, func(t *testing.T) {
					c := []float32{nan, 3}
					Gemm(false, false, 1, 2, tc.k, tc.alpha, []float32{nan}, 1, []float32{nan, nan}, 2, tc.beta, c, 2)
					for i, w := range tc.want {
						if c[i] != w && !(math.IsNaN(float64(c[i])) && math.IsNaN(float64(w))) {
							t.Fatalf("C = %v, want %v", c, tc.want)
						}
					}
				})
			}
			// A NaN operand must reach its row or column of C and nothing else.
			a, b, c := make([]float32, 20*20), make([]float32, 20*20), make([]float32, 20*20)
			a[3*20+5] = nan
			Gemm(false, true, 20, 20, 20, 1, a, 20, b, 20, 0, c, 20)
			for i, v := range c {
				require.Equal(t, i/20 == 3, math.IsNaN(float64(v)), "C[%d,%d] = %v", i/20, i%20, v)
			}
		})
	}
}

func TestGemmRefusesWrongSizes(t *testing.T) {
	buffer := make([]float32, 8)
	cases := []struct {
		name string
		call func()
		text string
	}{
		{"short A", func() { Gemm(false, false, 3, 2, 3, 1, buffer, 3, buffer, 2, 0, buffer, 2) }, "A has 8 elements, needs 9"},
		{"short B", func() { Gemm(false, true, 1, 3, 4, 1, buffer, 4, buffer, 4, 0, buffer, 3) }, "B has 8 elements, needs 12"},
		{"short C", func() { Gemm(false, false, 2, 5, 1, 1, buffer, 1, buffer, 5, 0, buffer, 5) }, "C has 8 elements, needs 10"},
		{"leading dimension", func() { Gemm(false, false, 1, 2, 4, 1, buffer, 3, buffer, 2, 0, buffer, 2) }, "leading dimension 3 of A is below its 4 columns"},
		{"negative size", func() { Gemm(false, false, -1, 2, 4, 1, buffer, 4, buffer, 2, 0, buffer, 2) }, "negative size"},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			defer func() {
				v := recover()
				require.NotNil(t, v)
				require.Contains(t, fmt.Sprint(v), tc.text)
			}()
			tc.call()
		})
	}
}

// TestGemmThreads: bit-equal results at any GOMAXPROCS, and serial.
func TestGemmThreads(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	shapes := [][3]int{{300, 200, 300}, {17, 1500, 64}, {700, 40, 50}}
	for _, name := range backends(t) {
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			for _, s := range shapes {
				m, n, k := s[0], s[1], s[2]
				rng := rand.New(rand.NewPCG(7, 8))
				a, b, c0 := randomSlice[float32](rng, m*k), randomSlice[float32](rng, n*k), randomSlice[float32](rng, m*n)
				var first []float32
				for _, procs := range []int{1, 2, 4} {
					runtime.GOMAXPROCS(procs)
					c := append([]float32(nil), c0...)
					Gemm(false, true, m, n, k, 1.5, a, k, b, k, 0.5, c, n)
					if first == nil {
						first = c
					}
					require.Equal(t, first, c, "GOMAXPROCS=%d shape %v", procs, s)
				}
			}
		})
	}
}

// TestNativeGemmTiling: with our kernels an element depends on its row of A,
// its column of B and k alone, not on the shape of the product around it.
func TestNativeGemmTiling(t *testing.T) {
	for _, name := range backends(t) {
		if name == "openblas" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			withBackend(t, name)
			rng := rand.New(rand.NewPCG(9, 10))
			const m, n, k = 90, 140, 300
			a, b := randomSlice[float32](rng, m*k), randomSlice[float32](rng, n*k)
			whole := make([]float32, m*n)
			Gemm(false, true, m, n, k, 1, a, k, b, k, 0, whole, n)
			for range 30 {
				i, j := rng.IntN(m), rng.IntN(n)
				rows, cols := 1+rng.IntN(m-i), 1+rng.IntN(n-j)
				part := make([]float32, rows*cols)
				GemmSerial(false, true, rows, cols, k, 1, a[i*k:], k, b[j*k:], k, 0, part, cols)
				for r := range rows {
					require.Equal(t, whole[(i+r)*n+j:(i+r)*n+j+cols], part[r*cols:(r+1)*cols], "rows %d+%d columns %d+%d", i, rows, j, cols)
				}
			}
		})
	}
}
