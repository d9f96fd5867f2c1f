package main

// exponential emits x = exp(x) in place; t0..t2 are clobbered. Cody and Waite:
// x = n·ln2 + r with |r| <= ln2/2, a polynomial of degree 6 for exp(r) (the
// coefficients of Cephes' expf), then scaling by 2^n. Overflow gives +Inf,
// underflow passes through subnormals to 0, NaN stays NaN.
func exponential(f *file, s isa, x, t0, t1, t2 string) {
	// VMAXPS and VMINPS return their second source when one is NaN: x is there.
	f.op("VMOVUPS %s, %s", konst(expLow), t0)
	f.op("VMAXPS %s, %s, %s", x, t0, x)
	f.op("VMOVUPS %s, %s", konst(expHigh), t0)
	f.op("VMINPS %s, %s, %s", x, t0, x)
	f.op("VMULPS %s, %s, %s", konst(expLog2e), x, t0)
	if s.wide {
		f.op("VRNDSCALEPS $8, %s, %s", t0, t0)
	} else {
		f.op("VROUNDPS $8, %s, %s", t0, t0)
	}
	f.op("VFNMADD231PS %s, %s, %s", konst(expLn2Hi), t0, x)
	f.op("VFNMADD231PS %s, %s, %s", konst(expLn2Lo), t0, x)
	f.op("VMOVUPS %s, %s", konst(expC0), t1)
	for i := 1; i < 6; i++ {
		f.op("VFMADD213PS %s, %s, %s", konst(expC0+i), x, t1)
	}
	f.op("VMULPS %s, %s, %s", x, x, t2)
	f.op("VFMADD213PS %s, %s, %s", x, t2, t1)
	f.op("VADDPS %s, %s, %s", konst(expOne), t1, t1)
	if s.wide {
		f.op("VSCALEFPS %s, %s, %s", t0, t1, x)
		return
	}
	// 2^n as 2^(n/2)·2^(n-n/2), so that neither factor leaves the normal range.
	f.op("VCVTPS2DQ %s, %s", t0, t0)
	f.op("VPSRAD $1, %s, %s", t0, t2)
	f.op("VPSUBD %s, %s, %s", t2, t0, t0)
	for _, r := range []string{t0, t2} {
		f.op("VPADDD %s, %s, %s", konst(expBias), r, r)
		f.op("VPSLLD $23, %s, %s", r, r)
	}
	f.op("VMULPS %s, %s, %s", t2, t1, x)
	f.op("VMULPS %s, %s, %s", t0, x, x)
}

// sigmoid emits sig = 1/(1+exp(-g)); g is kept, t0..t2 are clobbered.
func sigmoid(f *file, s isa, g, sig, t0, t1, t2 string) {
	zero(f, sig)
	f.op("VSUBPS %s, %s, %s", g, sig, sig)
	exponential(f, s, sig, t0, t1, t2)
	f.op("VMOVUPS %s, %s", konst(expOne), t0)
	f.op("VADDPS %s, %s, %s", t0, sig, sig)
	f.op("VDIVPS %s, %s, %s", sig, t0, sig)
}

func fusedKernels(f *file, s isa) {
	vecExp(f, s)
	vecExpSum(f, s)
	vecSwiGLU(f, s)
	vecSwiGLUBack(f, s)
	attendScores(f, s)
	attendValues(f, s)
}

func vecExp(f *file, s isa) {
	ref := f.begin("vecExp"+s.name, "does y[i] = exp(x[i]).", join(ptr("y", "x"), ints("n")), "")
	f.op("MOVQ %s, DI", ref["y"])
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, CX", ref["n"])
	each(f, s, []string{"SI", "DI"}, func(tail bool) {
		load(f, s, "(SI)", s.v(1), tail)
		exponential(f, s, s.v(1), s.v(2), s.v(3), s.v(4))
		store(f, s, s.v(1), "(DI)", tail)
	})
	f.end()
}

func vecExpSum(f *file, s isa) {
	ref := f.begin("vecExpSum"+s.name, "does x[i] = exp(x[i]-shift) and returns the sum.", join(ptr("x"), ints("n"), floats("shift")), "float32")
	f.op("MOVQ %s, SI", ref["x"])
	f.op("MOVQ %s, CX", ref["n"])
	f.op("VBROADCASTSS %s, %s", ref["shift"], s.v(5))
	zero(f, s.v(0))
	each(f, s, []string{"SI"}, func(tail bool) {
		load(f, s, "(SI)", s.v(1), tail)
		f.op("VSUBPS %s, %s, %s", s.v(5), s.v(1), s.v(1))
		exponential(f, s, s.v(1), s.v(2), s.v(3), s.v(4))
		store(f, s, s.v(1), "(SI)", tail)
		switch {
		case !tail:
			f.op("VADDPS %s, %s, %s", s.v(1), s.v(0), s.v(0))
		case s.wide:
			f.op("VADDPS Z1, Z0, K1, Z0")
		default:
			f.op("VANDPS Y15, Y1, Y1")
			f.op("VADDPS Y1, Y0, Y0")
		}
	})
	fold(f, s, "VADDPS")
	f.op("VMOVSS X0, %s", ref["ret"])
	f.end()
}

func vecSwiGLU(f *file, s isa) {
	ref := f.begin("vecSwiGLU"+s.name, "does y[i] = gate[i]*sigmoid(gate[i])*up[i].", join(ptr("y", "gate", "up"), ints("n")), "")
	f.op("MOVQ %s, DI", ref["y"])
	f.op("MOVQ %s, SI", ref["gate"])
	f.op("MOVQ %s, DX", ref["up"])
	f.op("MOVQ %s, CX", ref["n"])
	each(f, s, []string{"SI", "DI", "DX"}, func(tail bool) {
		load(f, s, "(SI)", s.v(0), tail)
		load(f, s, "(DX)", s.v(5), tail)
		sigmoid(f, s, s.v(0), s.v(1), s.v(2), s.v(3), s.v(4))
		f.op("VMULPS %s, %s, %s", s.v(1), s.v(0), s.v(0))
		f.op("VMULPS %s, %s, %s", s.v(5), s.v(0), s.v(0))
		store(f, s, s.v(0), "(DI)", tail)
	})
	f.end()
}

func vecSwiGLUBack(f *file, s isa) {
	ref := f.begin("vecSwiGLUBack"+s.name, "writes the gradients of gate*sigmoid(gate)*up for the gradient dy.", join(ptr("dgate", "dup", "dy", "gate", "up"), ints("n")), "")
	f.op("MOVQ %s, DI", ref["dgate"])
	f.op("MOVQ %s, R8", ref["dup"])
	f.op("MOVQ %s, R9", ref["dy"])
	f.op("MOVQ %s, SI", ref["gate"])
	f.op("MOVQ %s, DX", ref["up"])
	f.op("MOVQ %s, CX", ref["n"])
	each(f, s, []string{"DI", "R8", "R9", "SI", "DX"}, func(tail bool) {
		load(f, s, "(SI)", s.v(0), tail)
		load(f, s, "(DX)", s.v(5), tail)
		load(f, s, "(R9)", s.v(6), tail)
		sigmoid(f, s, s.v(0), s.v(1), s.v(2), s.v(3), s.v(4))
		f.note("du = dy*g*s; dg = dy*u*s*(1+g*(1-s)) = dy*u*(s + g*s*(1-s))")
		f.op("VMULPS %s, %s, %s", s.v(1), s.v(0), s.v(2)) // g*s
		f.op("VMULPS %s, %s, %s", s.v(6), s.v(2), s.v(3)) // du
		f.op("VMOVUPS %s, %s", konst(expOne), s.v(4))
		f.op("VSUBPS %s, %s, %s", s.v(1), s.v(4), s.v(4))      // 1-s
		f.op("VFMADD231PS %s, %s, %s", s.v(4), s.v(2), s.v(1)) // s + g*s*(1-s)
		f.op("VMULPS %s, %s, %s", s.v(5), s.v(6), s.v(6))
		f.op("VMULPS %s, %s, %s", s.v(1), s.v(6), s.v(6))
		store(f, s, s.v(3), "(R8)", tail)
		store(f, s, s.v(6), "(DI)", tail)
	})
	f.end()
}

// attendScores: one accumulator a key; the out-of-order core overlaps keys.
func attendScores(f *file, s isa) {
	ref := f.begin("attendScores"+s.name, "does p[j] = scale * dot(q, k[j*stride:][:hd]) for j < n.", join(ptr("p", "q", "k"), ints("stride", "n", "hd"), floats("scale")), "")
	f.op("MOVQ %s, DI", ref["p"])
	f.op("MOVQ %s, R8", ref["q"])
	f.op("MOVQ %s, R9", ref["k"])
	f.op("MOVQ %s, R10", ref["stride"])
	f.op("SHLQ $2, R10")
	f.op("MOVQ %s, R11", ref["n"])
	f.op("VMOVSS %s, X7", ref["scale"])
	key, out := f.fresh("key"), f.fresh("out")
	f.op("TESTQ R11, R11")
	f.op("JLE %s", out)
	f.mark(key)
	f.op("MOVQ R8, SI")
	f.op("MOVQ R9, DX")
	f.op("MOVQ %s, CX", ref["hd"])
	zero(f, s.v(0))
	each(f, s, []string{"SI", "DX"}, func(tail bool) {
		load(f, s, "(SI)", s.v(2), tail)
		load(f, s, "(DX)", s.v(3), tail)
		f.op("VFMADD231PS %s, %s, %s", s.v(3), s.v(2), s.v(0))
	})
	fold(f, s, "VADDPS")
	f.op("VMULSS X7, X0, X0")
	f.op("VMOVSS X0, (DI)")
	f.op("ADDQ $4, DI")
	f.op("ADDQ R10, R9")
	f.op("DECQ R11")
	f.op("JNZ %s", key)
	f.mark(out)
	f.end()
}

// attendValues: the head's dimensions are cut into chunks of vectors; within a
// chunk each dimension is one FMA chain over the keys, started from out, so
// that a run of keys may be handed over in any number of pieces.
func attendValues(f *file, s isa) {
	ref := f.begin("attendValues"+s.name, "does out[d] += sum over j of p[j]*v[j*stride+d] for d < hd, j < n in order.", join(ptr("out", "p", "v"), ints("stride", "n", "hd")), "")
	f.op("MOVQ %s, DI", ref["out"])
	f.op("MOVQ %s, R9", ref["v"])
	f.op("MOVQ %s, R10", ref["stride"])
	f.op("SHLQ $2, R10")
	f.op("MOVQ %s, CX", ref["hd"])
	done := f.fresh("done")
	f.op("MOVQ %s, R11", ref["n"])
	f.op("TESTQ R11, R11")
	f.op("JLE %s", done)
	chunk := func(nv int, tail bool) {
		for j := range nv {
			load(f, s, at("DI", j*s.bytes()), s.v(j), tail)
		}
		f.op("MOVQ %s, SI", ref["p"])
		f.op("MOVQ R9, DX")
		f.op("MOVQ %s, R11", ref["n"])
		key := f.fresh("key")
		f.mark(key)
		f.op("VBROADCASTSS (SI), %s", s.v(8))
		for j := range nv {
			if tail {
				load(f, s, "(DX)", s.v(9), true)
				f.op("VFMADD231PS %s, %s, %s", s.v(9), s.v(8), s.v(j))
			} else {
				f.op("VFMADD231PS %d(DX), %s, %s", j*s.bytes(), s.v(8), s.v(j))
			}
		}
		f.op("ADDQ $4, SI")
		f.op("ADDQ R10, DX")
		f.op("DECQ R11")
		f.op("JNZ %s", key)
		for j := range nv {
			store(f, s, s.v(j), at("DI", j*s.bytes()), tail)
		}
	}
	for _, nv := range []int{8, 4, 1} {
		loop, next := f.fresh("chunk"), f.fresh("next")
		f.mark(loop)
		f.op("CMPQ CX, $%d", nv*s.lanes)
		f.op("JLT %s", next)
		chunk(nv, false)
		f.op("ADDQ $%d, DI", nv*s.bytes())
		f.op("ADDQ $%d, R9", nv*s.bytes())
		f.op("SUBQ $%d, CX", nv*s.lanes)
		f.op("JMP %s", loop)
		f.mark(next)
	}
	f.op("TESTQ CX, CX")
	f.op("JLE %s", done)
	tailMask(f, s)
	chunk(1, true)
	f.mark(done)
	f.end()
}
