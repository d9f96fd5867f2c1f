package kernels

// SwiGLU does y[i] = silu(gate[i])·up[i] with silu(g) = g/(1+exp(-g)), the gate
// of Llama's feed-forward, over len(y) elements. y may be gate or up.
func SwiGLU[T Float](y, gate, up []T) {
	atLeast("SwiGLU", "gate", len(gate), len(y))
	atLeast("SwiGLU", "up", len(up), len(y))
	if d, ok := single(y); ok {
		g, _ := single(gate)
		u, _ := single(up)
		swiglu32(d, g, u)
		return
	}
	swigluGo(y, gate, up)
}

// SwiGLUBackward writes the gradients of [SwiGLU] for the output gradient dy
// over len(dgate) elements. The outputs may be any of the inputs.
func SwiGLUBackward[T Float](dgate, dup, dy, gate, up []T) {
	n := len(dgate)
	atLeast("SwiGLUBackward", "dup", len(dup), n)
	atLeast("SwiGLUBackward", "dy", len(dy), n)
	atLeast("SwiGLUBackward", "gate", len(gate), n)
	atLeast("SwiGLUBackward", "up", len(up), n)
	if dg, ok := single(dgate); ok {
		du, _ := single(dup)
		d, _ := single(dy)
		g, _ := single(gate)
		u, _ := single(up)
		swigluBack32(dg, du, d, g, u)
		return
	}
	swigluBackGo(dgate, dup, dy, gate, up)
}

// ReLU does y[i] = max(x[i], 0) over len(y) elements; NaN stays NaN. y may be x.
func ReLU[T Float](y, x []T) {
	atLeast("ReLU", "x", len(x), len(y))
	x = x[:len(y)]
	for i, v := range x {
		y[i] = max(v, 0)
	}
}

// ReLUBackward writes the gradient of [ReLU] for the output gradient dy over
// len(dx) elements: dy where x is positive, else 0. dx may be dy.
func ReLUBackward[T Float](dx, dy, x []T) {
	atLeast("ReLUBackward", "dy", len(dy), len(dx))
	atLeast("ReLUBackward", "x", len(x), len(dx))
	dy, x = dy[:len(dx)], x[:len(dx)]
	for i, v := range x {
		if v > 0 {
			dx[i] = dy[i]
		} else {
			dx[i] = 0
		}
	}
}

// AddBias adds b [n] to the first n columns of each of y's rows, whose leading
// dimension is ldy.
func AddBias[T Float](y []T, ldy int, b []T, rows int) {
	if rows > 0 {
		atLeast("AddBias", "y", len(y), (rows-1)*ldy+len(b))
	}
	ParallelRows(rows, rowBlock(len(b)), func(lo, hi int) {
		for r := lo; r < hi; r++ {
			Axpy(y[r*ldy:][:len(b)], 1, b)
		}
	})
}
