package main

import "fmt"

// Layout of the constant table expTable (see cpu_amd64.go): 64 bytes each.
const (
	expLow, expHigh, expLog2e, expLn2Hi, expLn2Lo = 0, 1, 2, 3, 4
	expC0, expOne, expBias, expNegInf             = 5, 11, 12, 13
)

// konst is the memory operand of a constant of expTable.
func konst(i int) string { return fmt.Sprintf("·expTable+%d(SB)", 64*i) }

// tailMask turns CX (1..lanes-1 elements left) into K1 or the mask vector Y15.
func tailMask(f *file, s isa) {
	if s.wide {
		f.op("MOVQ $1, AX")
		f.op("SHLQ CX, AX")
		f.op("DECQ AX")
		f.op("KMOVW AX, K1")
		return
	}
	f.op("MOVQ CX, BX")
	f.op("SHLQ $2, BX")
	f.op("LEAQ ·maskTable+128(SB), AX")
	f.op("SUBQ BX, AX")
	f.op("VMOVUPS (AX), Y15")
}

// load reads a vector; lanes beyond a tail read as zero.
func load(f *file, s isa, at, reg string, tail bool) {
	switch {
	case !tail:
		f.op("VMOVUPS %s, %s", at, reg)
	case s.wide:
		f.op("VMOVUPS.Z %s, K1, %s", at, reg)
	default:
		f.op("VMASKMOVPS %s, Y15, %s", at, reg)
	}
}

// store writes a vector; lanes beyond a tail are left alone.
func store(f *file, s isa, reg, at string, tail bool) {
	switch {
	case !tail:
		f.op("VMOVUPS %s, %s", reg, at)
	case s.wide:
		f.op("VMOVUPS %s, K1, %s", reg, at)
	default:
		f.op("VMASKMOVPS %s, Y15, %s", reg, at)
	}
}

// each runs body over CX elements: whole vectors, then one masked tail. The
// tail does the same arithmetic as a whole vector, so an element's value does
// not depend on its place in the slice. The pointers advance by a vector.
func each(f *file, s isa, pointers []string, body func(tail bool)) {
	loop, tail, done := f.fresh("loop"), f.fresh("tail"), f.fresh("done")
	f.mark(loop)
	f.op("CMPQ CX, $%d", s.lanes)
	f.op("JLT %s", tail)
	body(false)
	for _, p := range pointers {
		f.op("ADDQ $%d, %s", s.bytes(), p)
	}
	f.op("SUBQ $%d, CX", s.lanes)
	f.op("JMP %s", loop)
	f.mark(tail)
	f.op("TESTQ CX, CX")
	f.op("JLE %s", done)
	tailMask(f, s)
	body(true)
	f.mark(done)
}

// zero clears registers.
func zero(f *file, regs ...string) {
	for _, r := range regs {
		f.op("VXORPS %s, %s, %s", r, r, r)
	}
}

// fold combines all lanes of register 0 into X0 with op (VADDPS or VMAXPS),
// halving: a fixed order. It uses register 1.
func fold(f *file, s isa, op string) {
	if s.wide {
		f.op("VEXTRACTF64X4 $1, Z0, Y1")
		f.op("%s Y1, Y0, Y0", op)
	}
	f.op("VEXTRACTF128 $1, Y0, X1")
	f.op("%s X1, X0, X0", op)
	f.op("VPERMILPS $0x0e, X0, X1")
	f.op("%s X1, X0, X0", op)
	f.op("VPERMILPS $0x01, X0, X1")
	f.op("%s X1, X0, X0", op)
}

// unrolled4 runs body(i) for four vectors at a time while 4·lanes elements are
// left, offsets i·bytes; then each finishes. Four accumulators hide the FMA
// latency.
func unrolled4(f *file, s isa, pointers []string, body func(i int)) {
	loop, done := f.fresh("four"), f.fresh("few")
	f.mark(loop)
	f.op("CMPQ CX, $%d", 4*s.lanes)
	f.op("JLT %s", done)
	for i := range 4 {
		body(i)
	}
	for _, p := range pointers {
		f.op("ADDQ $%d, %s", 4*s.bytes(), p)
	}
	f.op("SUBQ $%d, CX", 4*s.lanes)
	f.op("JMP %s", loop)
	f.mark(done)
}

// sum4 adds registers 1..3 to register 0, pairwise.
func sum4(f *file, s isa, op string) {
	f.op("%s %s, %s, %s", op, s.v(1), s.v(0), s.v(0))
	f.op("%s %s, %s, %s", op, s.v(3), s.v(2), s.v(2))
	f.op("%s %s, %s, %s", op, s.v(2), s.v(0), s.v(0))
}

func vectorKernels(f *file, s isa) {
	vecDot(f, s)
	vecDot3(f, s)
	vecSumSquares(f, s)
	vecMax(f, s)
	vecAxpy(f, s)
	vecScale(f, s)
	vecMulScale(f, s)
	vecMulAdd(f, s)
	vecNormBack(f, s, false)
	vecNormBack(f, s, true)
	vecRotate(f, s)
}

func vecDot(f *file, s isa) {
	ref := f.begin("vecDot"+s.name, "returns the sum of a[i]*b[i].", join(ptr("a", "b"), ints("n")), "float32")
	f.op("MOVQ %s, SI", ref["a"])
	f.op("MOVQ %s, DI", ref["b"])
	f.op("MOVQ %s, CX", ref["n"])
	zero(f, s.v(0), s.v(1), s.v(2), s.v(3))
	unrolled4(f, s, []string{"SI", "DI"}, func(i int) {
		f.op("VMOVUPS %d(SI), %s", i*s.bytes(), s.v(4+i))
		f.op("VFMADD231PS %d(DI), %s, %s", i*s.bytes(), s.v(4+i), s.v(i))
	})
	each(f, s, []string{"SI", "DI"}, func(tail bool) {
		load(f, s, "(SI)", s.v(4), tail)
		load(f, s, "(DI)", s.v(5), tail)
		f.op("VFMADD231PS %s, %s, %s", s.v(5), s.v(4), s.v(0))
	})
	sum4(f, s, "VADDPS")
	fold(f, s, "VADDPS")
	f.op("VMOVSS X0, %s", ref["ret"])
	f.end()
}

func vecDot3(f *file, s isa) {
	ref := f.begin("vecDot3"+s.name, "returns the sum of a[i]*b[i]*c[i].", join(ptr("a", "b", "c"), ints("n")), "float32")
	f.op("MOVQ %s, SI", ref["a"])
	f.op("MOVQ %s, DI", ref["b"])
	f.op("MOVQ %s, DX", ref["c"])
	f.op("MOVQ %s, CX", ref["n"])
	zero(f, s.v(0), s.v(1), s.v(2), s.v(3))
	unrolled4(f, s, []string{"SI", "DI", "DX"}, func(i int) {
		f.op("VMOVUPS %d(SI), %s", i*s.bytes(), s.v(4+i))
		f.op("VMULPS %d(DI), %s, %s", i*s.bytes(), s.v(4+i), s.v(4+i))
		f.op("VFMADD231PS %d(DX), %s, %s", i*s.bytes(), s.v(4+i), s.v(i))
	})
	each(f, s, []string{"SI", "DI", "DX"}, func(tail bool) {
		load(f, s, "(SI)", s.v(4), tail)
		load(f, s, "(DI)", s.v(5), tail)
		load(f, s, "(DX)", s.v(6), tail)
		f.op("VMULPS %s, %s, %s", s.v(5), s.v(4), s.v(4))
		f.op("VFMADD231PS %s, %s, %s", s.v(6), s.v(4), s.v(0))
	})
	sum4(f, s, "VADDPS")
	fold(f, s, "VADDPS")
	f.op("VMOVSS X0, %s", ref["ret"])
	f.end()
}

// vecSumSquares accumulates in float64: the RMS of a long row would otherwise
// lose digits.
func vecSumSquares(f *file, s isa) {
	ref := f.begin("vecSumSquares"+s.name, "returns the sum of x[i]*x[i], in float64.", join(ptr("x"), ints("n")), "float64")
	half := "Y" // register of half as many float32 lanes
	if !s.wide {
		half = "X"
	}
	h := func(i int) string { return fmt.Sprintf("%s%d", half, i) }
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, CX", ref["n"])
	zero(f, s.v(0), s.v(1))
	each(f, s, []string{"SI"}, func(tail bool) {
		load(f, s, "(SI)", s.v(4), tail)
		if s.wide {
			f.op("VEXTRACTF64X4 $1, Z4, Y5")
		} else {
			f.op("VEXTRACTF128 $1, Y4, X5")
		}
		f.op("VCVTPS2PD %s, %s", h(4), s.v(4))
		f.op("VCVTPS2PD %s, %s", h(5), s.v(5))
		f.op("VFMADD231PD %s, %s, %s", s.v(4), s.v(4), s.v(0))
		f.op("VFMADD231PD %s, %s, %s", s.v(5), s.v(5), s.v(1))
	})
	f.op("VADDPD %s, %s, %s", s.v(1), s.v(0), s.v(0))
	if s.wide {
		f.op("VEXTRACTF64X4 $1, Z0, Y1")
		f.op("VADDPD Y1, Y0, Y0")
	}
	f.op("VEXTRACTF128 $1, Y0, X1")
	f.op("VADDPD X1, X0, X0")
	f.op("VPERMILPD $1, X0, X1")
	f.op("VADDSD X1, X0, X0")
	f.op("VMOVSD X0, %s", ref["ret"])
	f.end()
}

func vecMax(f *file, s isa) {
	ref := f.begin("vecMax"+s.name, "returns the greatest x[i], or -Inf when n is 0.", join(ptr("x"), ints("n")), "float32")
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, CX", ref["n"])
	for i := range 4 {
		f.op("VMOVUPS %s, %s", konst(expNegInf), s.v(i))
	}
	unrolled4(f, s, []string{"SI"}, func(i int) {
		f.op("VMAXPS %d(SI), %s, %s", i*s.bytes(), s.v(i), s.v(i))
	})
	each(f, s, []string{"SI"}, func(tail bool) {
		switch {
		case !tail:
			f.op("VMOVUPS (SI), %s", s.v(4))
		case s.wide:
			f.op("VMOVUPS %s, Z4", konst(expNegInf))
			f.op("VMOVUPS (SI), K1, Z4")
		default:
			f.op("VMOVUPS %s, Y5", konst(expNegInf))
			f.op("VMASKMOVPS (SI), Y15, Y4")
			f.op("VBLENDVPS Y15, Y4, Y5, Y4")
		}
		f.op("VMAXPS %s, %s, %s", s.v(4), s.v(0), s.v(0))
	})
	sum4(f, s, "VMAXPS")
	fold(f, s, "VMAXPS")
	f.op("VMOVSS X0, %s", ref["ret"])
	f.end()
}

func vecAxpy(f *file, s isa) {
	ref := f.begin("vecAxpy"+s.name, "does y[i] += a*x[i].", join(ptr("y", "x"), ints("n"), floats("a")), "")
	f.op("MOVQ %s, DI", ref["y"])
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, CX", ref["n"])
	f.op("VBROADCASTSS %s, %s", ref["a"], s.v(0))
	each(f, s, []string{"SI", "DI"}, func(tail bool) {
		load(f, s, "(SI)", s.v(1), tail)
		load(f, s, "(DI)", s.v(2), tail)
		f.op("VFMADD231PS %s, %s, %s", s.v(0), s.v(1), s.v(2))
		store(f, s, s.v(2), "(DI)", tail)
	})
	f.end()
}

func vecScale(f *file, s isa) {
	ref := f.begin("vecScale"+s.name, "does x[i] *= a.", join(ptr("x"), ints("n"), floats("a")), "")
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, CX", ref["n"])
	f.op("VBROADCASTSS %s, %s", ref["a"], s.v(0))
	each(f, s, []string{"SI"}, func(tail bool) {
		load(f, s, "(SI)", s.v(1), tail)
		f.op("VMULPS %s, %s, %s", s.v(0), s.v(1), s.v(1))
		store(f, s, s.v(1), "(SI)", tail)
	})
	f.end()
}

func vecMulScale(f *file, s isa) {
	ref := f.begin("vecMulScale"+s.name, "does y[i] = x[i]*a*w[i].", join(ptr("y", "x", "w"), ints("n"), floats("a")), "")
	f.op("MOVQ %s, DI", ref["y"])
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, DX", ref["w"])
	f.op("MOVQ %s, CX", ref["n"])
	f.op("VBROADCASTSS %s, %s", ref["a"], s.v(0))
	each(f, s, []string{"SI", "DI", "DX"}, func(tail bool) {
		load(f, s, "(SI)", s.v(1), tail)
		load(f, s, "(DX)", s.v(2), tail)
		f.op("VMULPS %s, %s, %s", s.v(0), s.v(1), s.v(1))
		f.op("VMULPS %s, %s, %s", s.v(2), s.v(1), s.v(1))
		store(f, s, s.v(1), "(DI)", tail)
	})
	f.end()
}

func vecMulAdd(f *file, s isa) {
	ref := f.begin("vecMulAdd"+s.name, "does y[i] += a*x[i]*w[i].", join(ptr("y", "x", "w"), ints("n"), floats("a")), "")
	f.op("MOVQ %s, DI", ref["y"])
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, DX", ref["w"])
	f.op("MOVQ %s, CX", ref["n"])
	f.op("VBROADCASTSS %s, %s", ref["a"], s.v(0))
	each(f, s, []string{"SI", "DI", "DX"}, func(tail bool) {
		load(f, s, "(SI)", s.v(1), tail)
		load(f, s, "(DX)", s.v(2), tail)
		load(f, s, "(DI)", s.v(3), tail)
		f.op("VMULPS %s, %s, %s", s.v(0), s.v(1), s.v(1))
		f.op("VFMADD231PS %s, %s, %s", s.v(2), s.v(1), s.v(3))
		store(f, s, s.v(3), "(DI)", tail)
	})
	f.end()
}

// vecNormBack is the element-wise half of the RMS norm's backward pass.
func vecNormBack(f *file, s isa, add bool) {
	name, op := "vecNormBack", "="
	if add {
		name, op = "vecNormBackAdd", "+="
	}
	ref := f.begin(name+s.name, "does dx[i] "+op+" inv*dy[i]*w[i] - coef*x[i].", join(ptr("dx", "dy", "w", "x"), ints("n"), floats("inv", "coef")), "")
	f.op("MOVQ %s, DI", ref["dx"])
	f.op("MOVQ %s, SI", ref["dy"])
	f.op("MOVQ %s, DX", ref["w"])
	f.op("MOVQ %s, R8", ref["x"])
	f.op("MOVQ %s, CX", ref["n"])
	f.op("VBROADCASTSS %s, %s", ref["inv"], s.v(0))
	f.op("VBROADCASTSS %s, %s", ref["coef"], s.v(1))
	each(f, s, []string{"DI", "SI", "DX", "R8"}, func(tail bool) {
		load(f, s, "(SI)", s.v(2), tail)
		load(f, s, "(DX)", s.v(3), tail)
		load(f, s, "(R8)", s.v(4), tail)
		f.op("VMULPS %s, %s, %s", s.v(0), s.v(2), s.v(2))
		f.op("VMULPS %s, %s, %s", s.v(3), s.v(2), s.v(2))
		f.op("VFNMADD231PS %s, %s, %s", s.v(1), s.v(4), s.v(2))
		if add {
			load(f, s, "(DI)", s.v(5), tail)
			f.op("VADDPS %s, %s, %s", s.v(5), s.v(2), s.v(2))
		}
		store(f, s, s.v(2), "(DI)", tail)
	})
	f.end()
}

func vecRotate(f *file, s isa) {
	ref := f.begin("vecRotate"+s.name, "rotates the pairs (x[i], y[i]) by the angle of (cos[i], sign*sin[i]).", join(ptr("x", "y", "cos", "sin"), ints("n"), floats("sign")), "")
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, DI", ref["y"])
	f.op("MOVQ %s, DX", ref["cos"])
	f.op("MOVQ %s, R8", ref["sin"])
	f.op("MOVQ %s, CX", ref["n"])
	f.op("VBROADCASTSS %s, %s", ref["sign"], s.v(0))
	each(f, s, []string{"SI", "DI", "DX", "R8"}, func(tail bool) {
		load(f, s, "(SI)", s.v(1), tail)
		load(f, s, "(DI)", s.v(2), tail)
		load(f, s, "(DX)", s.v(3), tail)
		load(f, s, "(R8)", s.v(4), tail)
		f.op("VMULPS %s, %s, %s", s.v(0), s.v(4), s.v(4))
		f.op("VMULPS %s, %s, %s", s.v(3), s.v(1), s.v(5))
		f.op("VFNMADD231PS %s, %s, %s", s.v(4), s.v(2), s.v(5))
		f.op("VMULPS %s, %s, %s", s.v(3), s.v(2), s.v(6))
		f.op("VFMADD231PS %s, %s, %s", s.v(4), s.v(1), s.v(6))
		store(f, s, s.v(5), "(SI)", tail)
		store(f, s, s.v(6), "(DI)", tail)
	})
	f.end()
}

// at is the memory operand offset(base).
func at(base string, offset int) string { return fmt.Sprintf("%d(%s)", offset, base) }
