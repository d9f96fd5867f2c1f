package kernels

// AdamW is the scalars of one step of AdamW (Loshchilov and Hutter, 2019, with
// the bias corrections folded in).
type AdamW struct {
	// Factor multiplies the gradient (clipping).
	Factor float64
	// Beta1 and Beta2 are the decays of the moments.
	Beta1, Beta2 float64
	// Keep multiplies the parameter: 1 minus rate times weight decay.
	Keep float64
	// Rate is the learning rate over the first moment's bias correction, Root one
	// over the square root of the second's.
	Rate, Root float64
	// Eps is added to the root of the corrected second moment.
	Eps float64
}

// Step updates the parameters p and their moments m and v, all of len(p), from
// the gradient g, element by element:
//
//	x = factor·g;  m = β1·m + (1-β1)·x;  v = β2·v + (1-β2)·x²
//	p = keep·p - rate·m / (√v·root + eps)
func Step[T Float](s AdamW, p, g, m, v []T) {
	atLeast("Step", "g", len(g), len(p))
	atLeast("Step", "m", len(m), len(p))
	atLeast("Step", "v", len(v), len(p))
	if p32, ok := single(p); ok {
		g32, _ := single(g)
		m32, _ := single(m)
		v32, _ := single(v)
		adamW32(p32, g32, m32, v32, s)
		return
	}
	adamWGo(p, g[:len(p)], m, v, s)
}
