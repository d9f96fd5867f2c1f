package kernels

import (
	"math"
	"unsafe"
)

// The portable versions of the vector functions, for float64 and for CPUs
// without assembly. Products are converted explicitly (T(a*b)) before they are
// added: the language then forbids fusing them, so that every CPU that runs
// this code gets the same bits.

func dotGo[T Float](a, b []T) T {
	b = b[:len(a)]
	var s0, s1, s2, s3 T
	i := 0
	for ; i+4 <= len(a); i += 4 {
		s0 += T(a[i] * b[i])
		s1 += T(a[i+1] * b[i+1])
		s2 += T(a[i+2] * b[i+2])
		s3 += T(a[i+3] * b[i+3])
	}
	for ; i < len(a); i++ {
		s0 += T(a[i] * b[i])
	}
	return (s0 + s1) + (s2 + s3)
}

func dot3Go[T Float](a, b, c []T) T {
	b, c = b[:len(a)], c[:len(a)]
	var s T
	for i := range a {
		s += T(T(a[i]*b[i]) * c[i])
	}
	return s
}

func sumSquaresGo[T Float](x []T) float64 {
	var s float64
	for _, v := range x {
		s += float64(float64(v) * float64(v))
	}
	return s
}

func maxGo[T Float](x []T) T {
	m := T(math.Inf(-1))
	for _, v := range x {
		if v > m {
			m = v
		}
	}
	return m
}

func axpyGo[T Float](y []T, a T, x []T) {
	x = x[:len(y)]
	for i := range y {
		y[i] += T(a * x[i])
	}
}

func scaleGo[T Float](x []T, a T) {
	for i := range x {
		x[i] *= a
	}
}

func mulScaleGo[T Float](y, x, w []T, a T) {
	x, w = x[:len(y)], w[:len(y)]
	for i := range y {
		y[i] = T(x[i]*a) * w[i]
	}
}

func mulAddGo[T Float](y, x, w []T, a T) {
	x, w = x[:len(y)], w[:len(y)]
	for i := range y {
		y[i] += T(T(x[i]*a) * w[i])
	}
}

func normBackGo[T Float](dx, dy, w, x []T, inv, coef T, add bool) {
	dy, w, x = dy[:len(dx)], w[:len(dx)], x[:len(dx)]
	for i := range dx {
		d := T(T(dy[i]*inv)*w[i]) - T(coef*x[i])
		if add {
			d += dx[i]
		}
		dx[i] = d
	}
}

// layerNormGo does one row of LayerNorm and returns its mean and inv.
func layerNormGo[T Float](y, x, w, b []T, eps float64) (mean, inv T) {
	y, w, b = y[:len(x)], w[:len(x)], b[:len(x)]
	var sum, squares float64
	for _, v := range x {
		sum += float64(v)
	}
	center := sum / float64(len(x))
	for _, v := range x {
		d := float64(v) - center
		squares += float64(d * d)
	}
	mean, inv = T(center), T(1/math.Sqrt(squares/float64(len(x))+eps))
	for i, v := range x {
		y[i] = T(T((v-mean)*inv)*w[i]) + b[i]
	}
	return mean, inv
}

// layerNormBackGo does one row of LayerNormBackward.
func layerNormBackGo[T Float](dx, dy, w, x []T, mean, inv T, add bool) {
	dy, w, x = dy[:len(dx)], w[:len(dx)], x[:len(dx)]
	var sum, dot float64 // of g, and of g∘n
	for i, v := range dy {
		g := T(v * w[i])
		sum += float64(g)
		dot += float64(float64(g) * float64(T((x[i]-mean)*inv)))
	}
	center, slope := T(sum/float64(len(dx))), T(dot/float64(len(dx)))
	for i, v := range dy {
		g := T(T(v*w[i])-center-T(T((x[i]-mean)*inv)*slope)) * inv
		if add {
			g += dx[i]
		}
		dx[i] = g
	}
}

func rotateGo[T Float](x, y, cos, sin []T, sign T) {
	y, cos, sin = y[:len(x)], cos[:len(x)], sin[:len(x)]
	for i := range x {
		c, s := cos[i], sin[i]*sign
		x[i], y[i] = T(x[i]*c)-T(y[i]*s), T(y[i]*c)+T(x[i]*s)
	}
}

// expFast is exp(x) for float32 results: Cody and Waite's reduction and a
// polynomial in float64, so that the result is correctly rounded but for rare
// last-bit cases; several times as fast as math.Exp.
func expFast(x float32) float32 {
	switch {
	case x != x:
		return x
	case x > 89:
		return float32(math.Inf(1))
	case x < -104:
		return 0
	}
	const shift = 3 << 51 // adding it rounds a float64 to an integer
	v := float64(x)
	n := float64(float64(v*math.Log2E)+shift) - shift
	r := v - float64(n*math.Ln2) // |r| <= ln2/2: the remainder of the series is below 1e-9
	p := float64(r*(1.0/40320)) + 1.0/5040
	p = float64(p*r) + 1.0/720
	p = float64(p*r) + 1.0/120
	p = float64(p*r) + 1.0/24
	p = float64(p*r) + 1.0/6
	p = float64(p*r) + 0.5
	p = float64(p*r) + 1
	p = float64(p*r) + 1
	return float32(p * math.Float64frombits(uint64(int64(n)+1023)<<52))
}

// exponential is exp in the precision of T.
func exponential[T Float](x T) T {
	if unsafe.Sizeof(x) == 4 {
		return T(expFast(float32(x)))
	}
	return T(math.Exp(float64(x)))
}

func expGo[T Float](y, x []T) {
	x = x[:len(y)]
	for i := range y {
		y[i] = exponential(x[i])
	}
}

func expSumGo[T Float](x []T, shift T) T {
	var sum T
	for i, v := range x {
		e := exponential(v - shift)
		x[i] = e
		sum += e
	}
	return sum
}

func sigmoidGo[T Float](g T) T { return 1 / (1 + exponential(-g)) }

func swigluGo[T Float](y, g, u []T) {
	g, u = g[:len(y)], u[:len(y)]
	for i := range y {
		y[i] = g[i] * sigmoidGo(g[i]) * u[i]
	}
}

func swigluBackGo[T Float](dg, du, dy, g, u []T) {
	du, dy, g, u = du[:len(dg)], dy[:len(dg)], g[:len(dg)], u[:len(dg)]
	for i := range dg {
		s := sigmoidGo(g[i])
		silu := g[i] * s
		d, up := dy[i], u[i]
		du[i] = d * silu
		dg[i] = d * up * (s + T(silu*(1-s)))
	}
}

func attendScoresGo(p, q, k []float32, stride int, scale float32) {
	for j := range p {
		p[j] = dotGo(q, k[j*stride:]) * scale
	}
}

func attendValuesGo(out, p, v []float32, stride int) {
	for j, a := range p {
		axpyGo(out, a, v[j*stride:])
	}
}

func softmaxBackGo[T Float](d, p []T, a T) {
	for i := range d {
		d[i] = p[i] * (d[i] - a)
	}
}

func adamWGo[T Float](p, g, m, v []T, s AdamW) {
	factor, keep, rate, root, eps := T(s.Factor), T(s.Keep), T(s.Rate), T(s.Root), T(s.Eps)
	b1, b2 := T(s.Beta1), T(s.Beta2)
	for i, x := range g {
		x *= factor
		m[i] = T(b1*m[i]) + T((1-b1)*x)
		v[i] = T(b2*v[i]) + T((1-b2)*T(x*x))
		p[i] = T(keep*p[i]) - rate*m[i]/(T(T(math.Sqrt(float64(v[i])))*root)+eps)
	}
}
