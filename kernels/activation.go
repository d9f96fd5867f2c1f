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
