package main

// trainKernels emits what only training needs.
func trainKernels(f *file, s isa) {
	vecAdamW(f, s)
	vecSoftmaxBack(f, s)
	copyPanel(f, s)
}

func vecAdamW(f *file, s isa) {
	ref := f.begin("vecAdamW"+s.name, "does one step of AdamW on p[i] with gradient factor*grad[i].", join(ptr("p", "grad", "m", "v"), ints("n"),
		floats("factor", "beta1", "rest1", "beta2", "rest2", "keep", "rate", "root", "eps")), "")
	f.op("MOVQ %s, DI", ref["p"])
	f.op("MOVQ %s, SI", ref["grad"])
	f.op("MOVQ %s, DX", ref["m"])
	f.op("MOVQ %s, R8", ref["v"])
	f.op("MOVQ %s, CX", ref["n"])
	const first = 5 // registers 5.. hold the scalars
	for i, name := range []string{"factor", "beta1", "rest1", "beta2", "rest2", "keep", "rate", "root", "eps"} {
		f.op("VBROADCASTSS %s, %s", ref[name], s.v(first+i))
	}
	factor, beta1, rest1, beta2, rest2 := s.v(first), s.v(first+1), s.v(first+2), s.v(first+3), s.v(first+4)
	keep, rate, root, eps := s.v(first+5), s.v(first+6), s.v(first+7), s.v(first+8)
	g, m, v, p := s.v(0), s.v(1), s.v(2), s.v(3)
	each(f, s, []string{"DI", "SI", "DX", "R8"}, func(tail bool) {
		load(f, s, "(SI)", g, tail)
		load(f, s, "(DX)", m, tail)
		load(f, s, "(R8)", v, tail)
		load(f, s, "(DI)", p, tail)
		f.op("VMULPS %s, %s, %s", factor, g, g)
		f.op("VMULPS %s, %s, %s", beta1, m, m)
		f.op("VFMADD231PS %s, %s, %s", rest1, g, m)
		f.op("VMULPS %s, %s, %s", g, g, g)
		f.op("VMULPS %s, %s, %s", beta2, v, v)
		f.op("VFMADD231PS %s, %s, %s", rest2, g, v)
		store(f, s, m, "(DX)", tail)
		store(f, s, v, "(R8)", tail)
		f.op("VSQRTPS %s, %s", v, v)
		f.op("VMULPS %s, %s, %s", root, v, v)
		f.op("VADDPS %s, %s, %s", eps, v, v)
		f.op("VMULPS %s, %s, %s", rate, m, m)
		f.op("VDIVPS %s, %s, %s", v, m, m)
		f.op("VMULPS %s, %s, %s", keep, p, p)
		f.op("VSUBPS %s, %s, %s", m, p, p)
		store(f, s, p, "(DI)", tail)
	})
	f.end()
}

func vecSoftmaxBack(f *file, s isa) {
	ref := f.begin("vecSoftmaxBack"+s.name, "does d[i] = p[i]*(d[i]-a).", join(ptr("d", "p"), ints("n"), floats("a")), "")
	f.op("MOVQ %s, DI", ref["d"])
	f.op("MOVQ %s, SI", ref["p"])
	f.op("MOVQ %s, CX", ref["n"])
	f.op("VBROADCASTSS %s, %s", ref["a"], s.v(0))
	each(f, s, []string{"SI", "DI"}, func(tail bool) {
		load(f, s, "(DI)", s.v(1), tail)
		load(f, s, "(SI)", s.v(2), tail)
		f.op("VSUBPS %s, %s, %s", s.v(0), s.v(1), s.v(1))
		f.op("VMULPS %s, %s, %s", s.v(2), s.v(1), s.v(1))
		store(f, s, s.v(1), "(DI)", tail)
	})
	f.end()
}

// copyPanel emits the packer of a full panel of a matrix that is not transposed.
func copyPanel(f *file, s isa) {
	ref := f.begin("copyPanel"+s.name, "copies rows of two vectors that lie ss elements apart to dst, where they touch.", join(ptr("dst", "src"), ints("ss", "k")), "")
	f.op("MOVQ %s, DI", ref["dst"])
	f.op("MOVQ %s, SI", ref["src"])
	f.op("MOVQ %s, R8", ref["ss"])
	f.op("SHLQ $2, R8")
	f.op("MOVQ %s, CX", ref["k"])
	loop := f.fresh("loop")
	f.mark(loop)
	f.op("VMOVUPS (SI), %s", s.v(0))
	f.op("VMOVUPS %d(SI), %s", s.bytes(), s.v(1))
	f.op("VMOVUPS %s, (DI)", s.v(0))
	f.op("VMOVUPS %s, %d(DI)", s.v(1), s.bytes())
	f.op("ADDQ R8, SI")
	f.op("ADDQ $%d, DI", 2*s.bytes())
	f.op("DECQ CX")
	f.op("JNZ %s", loop)
	f.end()
}
