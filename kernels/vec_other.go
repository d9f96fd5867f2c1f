//go:build !amd64

package kernels

// Without assembly the float32 functions are the portable ones.

func dot32(a, b []float32) float32      { return dotGo(a, b) }
func dot3f32(a, b, c []float32) float32 { return dot3Go(a, b, c) }
func sumSquares32(x []float32) float64  { return sumSquaresGo(x) }
func max32(x []float32) float32         { return maxGo(x) }

func axpy32(y []float32, a float32, x []float32)   { axpyGo(y, a, x) }
func scale32(x []float32, a float32)               { scaleGo(x, a) }
func mulScale32(y, x, w []float32, a float32)      { mulScaleGo(y, x, w, a) }
func mulAdd32(y, x, w []float32, a float32)        { mulAddGo(y, x, w, a) }
func rotate32(x, y, cos, sin []float32, s float32) { rotateGo(x, y, cos, sin, s) }
func exp32(y, x []float32)                         { expGo(y, x) }
func expSum32(x []float32, shift float32) float32  { return expSumGo(x, shift) }
func swiglu32(y, g, u []float32)                   { swigluGo(y, g, u) }
func swigluBack32(dg, du, dy, g, u []float32)      { swigluBackGo(dg, du, dy, g, u) }

func normBack32(dx, dy, w, x []float32, inv, coef float32, add bool) {
	normBackGo(dx, dy, w, x, inv, coef, add)
}

func attendScores32(p, q, k []float32, stride int, scale float32) {
	attendScoresGo(p, q, k, stride, scale)
}

func attendValues32(out, p, v []float32, stride int) { attendValuesGo(out, p, v, stride) }

func softmaxBack32(d, p []float32, a float32) { softmaxBackGo(d, p, a) }
func adamW32(p, g, m, v []float32, s AdamW)   { adamWGo(p, g, m, v, s) }
