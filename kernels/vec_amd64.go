package kernels

import "unsafe"

// The functions of this file pick the vector kernel of the active instruction
// set. They take slices whose lengths the caller has checked: the first
// argument's length is the number of elements.

func dot32(a, b []float32) float32 {
	pa, pb := unsafe.SliceData(a), unsafe.SliceData(b)
	switch activeLevel() {
	case levelAVX512:
		return vecDotAVX512(pa, pb, len(a))
	case levelAVX2:
		return vecDotAVX2(pa, pb, len(a))
	}
	return dotGo(a, b)
}

func dot3f32(a, b, c []float32) float32 {
	pa, pb, pc := unsafe.SliceData(a), unsafe.SliceData(b), unsafe.SliceData(c)
	switch activeLevel() {
	case levelAVX512:
		return vecDot3AVX512(pa, pb, pc, len(a))
	case levelAVX2:
		return vecDot3AVX2(pa, pb, pc, len(a))
	}
	return dot3Go(a, b, c)
}

func sumSquares32(x []float32) float64 {
	switch activeLevel() {
	case levelAVX512:
		return vecSumSquaresAVX512(unsafe.SliceData(x), len(x))
	case levelAVX2:
		return vecSumSquaresAVX2(unsafe.SliceData(x), len(x))
	}
	return sumSquaresGo(x)
}

func max32(x []float32) float32 {
	switch activeLevel() {
	case levelAVX512:
		return vecMaxAVX512(unsafe.SliceData(x), len(x))
	case levelAVX2:
		return vecMaxAVX2(unsafe.SliceData(x), len(x))
	}
	return maxGo(x)
}

func axpy32(y []float32, a float32, x []float32) {
	switch activeLevel() {
	case levelAVX512:
		vecAxpyAVX512(unsafe.SliceData(y), unsafe.SliceData(x), len(y), a)
	case levelAVX2:
		vecAxpyAVX2(unsafe.SliceData(y), unsafe.SliceData(x), len(y), a)
	default:
		axpyGo(y, a, x)
	}
}

func scale32(x []float32, a float32) {
	switch activeLevel() {
	case levelAVX512:
		vecScaleAVX512(unsafe.SliceData(x), len(x), a)
	case levelAVX2:
		vecScaleAVX2(unsafe.SliceData(x), len(x), a)
	default:
		scaleGo(x, a)
	}
}

func mulScale32(y, x, w []float32, a float32) {
	py, px, pw := unsafe.SliceData(y), unsafe.SliceData(x), unsafe.SliceData(w)
	switch activeLevel() {
	case levelAVX512:
		vecMulScaleAVX512(py, px, pw, len(y), a)
	case levelAVX2:
		vecMulScaleAVX2(py, px, pw, len(y), a)
	default:
		mulScaleGo(y, x, w, a)
	}
}

func mulAdd32(y, x, w []float32, a float32) {
	py, px, pw := unsafe.SliceData(y), unsafe.SliceData(x), unsafe.SliceData(w)
	switch activeLevel() {
	case levelAVX512:
		vecMulAddAVX512(py, px, pw, len(y), a)
	case levelAVX2:
		vecMulAddAVX2(py, px, pw, len(y), a)
	default:
		mulAddGo(y, x, w, a)
	}
}

func normBack32(dx, dy, w, x []float32, inv, coef float32, add bool) {
	pd, py, pw, px := unsafe.SliceData(dx), unsafe.SliceData(dy), unsafe.SliceData(w), unsafe.SliceData(x)
	switch l := activeLevel(); {
	case l == levelAVX512 && add:
		vecNormBackAddAVX512(pd, py, pw, px, len(dx), inv, coef)
	case l == levelAVX512:
		vecNormBackAVX512(pd, py, pw, px, len(dx), inv, coef)
	case l == levelAVX2 && add:
		vecNormBackAddAVX2(pd, py, pw, px, len(dx), inv, coef)
	case l == levelAVX2:
		vecNormBackAVX2(pd, py, pw, px, len(dx), inv, coef)
	default:
		normBackGo(dx, dy, w, x, inv, coef, add)
	}
}

func rotate32(x, y, cos, sin []float32, sign float32) {
	px, py, pc, ps := unsafe.SliceData(x), unsafe.SliceData(y), unsafe.SliceData(cos), unsafe.SliceData(sin)
	switch activeLevel() {
	case levelAVX512:
		vecRotateAVX512(px, py, pc, ps, len(x), sign)
	case levelAVX2:
		vecRotateAVX2(px, py, pc, ps, len(x), sign)
	default:
		rotateGo(x, y, cos, sin, sign)
	}
}

func exp32(y, x []float32) {
	switch activeLevel() {
	case levelAVX512:
		vecExpAVX512(unsafe.SliceData(y), unsafe.SliceData(x), len(y))
	case levelAVX2:
		vecExpAVX2(unsafe.SliceData(y), unsafe.SliceData(x), len(y))
	default:
		expGo(y, x)
	}
}

func expSum32(x []float32, shift float32) float32 {
	switch activeLevel() {
	case levelAVX512:
		return vecExpSumAVX512(unsafe.SliceData(x), len(x), shift)
	case levelAVX2:
		return vecExpSumAVX2(unsafe.SliceData(x), len(x), shift)
	}
	return expSumGo(x, shift)
}

func swiglu32(y, g, u []float32) {
	py, pg, pu := unsafe.SliceData(y), unsafe.SliceData(g), unsafe.SliceData(u)
	switch activeLevel() {
	case levelAVX512:
		vecSwiGLUAVX512(py, pg, pu, len(y))
	case levelAVX2:
		vecSwiGLUAVX2(py, pg, pu, len(y))
	default:
		swigluGo(y, g, u)
	}
}

func swigluBack32(dg, du, dy, g, u []float32) {
	pdg, pdu, pdy, pg, pu := unsafe.SliceData(dg), unsafe.SliceData(du), unsafe.SliceData(dy), unsafe.SliceData(g), unsafe.SliceData(u)
	switch activeLevel() {
	case levelAVX512:
		vecSwiGLUBackAVX512(pdg, pdu, pdy, pg, pu, len(dg))
	case levelAVX2:
		vecSwiGLUBackAVX2(pdg, pdu, pdy, pg, pu, len(dg))
	default:
		swigluBackGo(dg, du, dy, g, u)
	}
}

// attendScores32 does p[j] = scale·dot(q, k[j*stride:]) for j < len(p).
func attendScores32(p, q, k []float32, stride int, scale float32) {
	pp, pq, pk := unsafe.SliceData(p), unsafe.SliceData(q), unsafe.SliceData(k)
	switch activeLevel() {
	case levelAVX512:
		attendScoresAVX512(pp, pq, pk, stride, len(p), len(q), scale)
	case levelAVX2:
		attendScoresAVX2(pp, pq, pk, stride, len(p), len(q), scale)
	default:
		attendScoresGo(p, q, k, stride, scale)
	}
}

// attendValues32 does out[d] += Σ_j p[j]·v[j*stride+d], j ascending.
func attendValues32(out, p, v []float32, stride int) {
	po, pp, pv := unsafe.SliceData(out), unsafe.SliceData(p), unsafe.SliceData(v)
	switch activeLevel() {
	case levelAVX512:
		attendValuesAVX512(po, pp, pv, stride, len(p), len(out))
	case levelAVX2:
		attendValuesAVX2(po, pp, pv, stride, len(p), len(out))
	default:
		attendValuesGo(out, p, v, stride)
	}
}

// softmaxBack32 does d[i] = p[i]·(d[i]-a).
func softmaxBack32(d, p []float32, a float32) {
	switch activeLevel() {
	case levelAVX512:
		vecSoftmaxBackAVX512(unsafe.SliceData(d), unsafe.SliceData(p), len(d), a)
	case levelAVX2:
		vecSoftmaxBackAVX2(unsafe.SliceData(d), unsafe.SliceData(p), len(d), a)
	default:
		softmaxBackGo(d, p, a)
	}
}

func adamW32(p, g, m, v []float32, s AdamW) {
	pp, pg, pm, pv := unsafe.SliceData(p), unsafe.SliceData(g), unsafe.SliceData(m), unsafe.SliceData(v)
	b1, b2 := float32(s.Beta1), float32(s.Beta2)
	step := vecAdamWAVX2
	switch activeLevel() {
	case levelAVX512:
		step = vecAdamWAVX512
	case levelAVX2:
	default:
		adamWGo(p, g, m, v, s)
		return
	}
	step(pp, pg, pm, pv, len(p), float32(s.Factor), b1, 1-b1, b2, 1-b2, float32(s.Keep), float32(s.Rate), float32(s.Root), float32(s.Eps))
}
