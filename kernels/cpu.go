package kernels

import "math"

// level is an instruction set that the vector kernels are written for.
type level int32

const (
	levelGo level = iota
	levelAVX2
	levelAVX512
)

func (l level) String() string {
	switch l {
	case levelAVX2:
		return "avx2+fma"
	case levelAVX512:
		return "avx512"
	}
	return "go"
}

// maskTable is read by the AVX2 kernels: eight words from index 32-n mask the
// first n lanes of a vector.
var maskTable = func() (t [64]int32) {
	for i := range 32 {
		t[i] = -1
	}
	return t
}()

// expTable holds the constants of the vector exponential, each repeated over a
// 512-bit vector; its layout is known to internal/gen.
var expTable = func() (t [14][16]float32) {
	for i, v := range []float32{
		-104, 89, // beyond these exp is 0 and +Inf in float32
		math.Log2E,
		0.693359375, -2.12194440e-4, // ln 2 in two parts
		1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
		1,
		math.Float32frombits(127), // exponent bias, as an integer
		float32(math.Inf(-1)),
	} {
		for lane := range t[i] {
			t[i][lane] = v
		}
	}
	return t
}()
