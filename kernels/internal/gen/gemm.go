package main

import "fmt"

// tileShape is one micro-kernel: mr rows of C by nv vectors of columns.
type tileShape struct {
	mr, nv int
	panels bool // vectors 2.. lie in further B panels, bps elements apart
}

// tileShapes lists the micro-kernels of an instruction set: every height from
// one row to the one that fills the register file with accumulators (enough
// independent FMA chains to hide the latency, and one load of B serves that
// many FMAs), for full and half panels of columns. The "panels" shapes serve
// one or two rows, where only many columns at once give enough chains.
func (s isa) tileShapes() (shapes []tileShape) {
	tallest := 6
	if s.wide {
		tallest = 12
	}
	for _, nv := range []int{2, 1} {
		for mr := tallest; mr >= 1; mr-- {
			shapes = append(shapes, tileShape{mr: mr, nv: nv})
		}
	}
	if s.wide {
		return append(shapes, tileShape{1, 8, true}, tileShape{2, 8, true})
	}
	return append(shapes, tileShape{1, 8, true}, tileShape{2, 4, true})
}

func gemmKernels(f *file, s isa) {
	for _, t := range s.tileShapes() {
		gemmTile(f, s, t)
	}
}

// gemmTile emits
//
//	C[mr, cols] = alpha·A[mr, k]·B[k, cols] + beta·C
//
// with A[i,p] at a[i*ars+p*acs], row p of B at b[p*bks], row i of C at c[i*ldc].
// Every element is one chain of FMAs over p = 0..k-1 starting from zero, then
// one rounding for alpha and beta, whatever the shape of the tile: that is what
// makes results independent of how a matrix is cut into tiles.
func gemmTile(f *file, s isa, t tileShape) {
	width := t.nv * s.lanes
	name := fmt.Sprintf("tile%dx%d%s", t.mr, width, s.name)
	params := join(ints("k"), ptr("a"), ints("ars", "acs"), ptr("b"), ints("bks"))
	if t.panels {
		params = join(params, ints("bps"))
	}
	params = join(params, ptr("c"), ints("ldc"), floats("alpha", "beta"))
	doc := fmt.Sprintf("computes a %d by %d tile of C from A and B; strides in elements.", t.mr, width)
	if !t.panels {
		params = join(params, ints("cols"))
		doc = fmt.Sprintf("computes a %d by cols (1..%d) tile of C; strides in elements.", t.mr, width)
	}
	ref := f.begin(name, doc, params, "")

	// Registers: B vectors first (or A broadcasts alone where B is used from
	// memory), accumulators from the top.
	numRegs := 16
	if s.wide {
		numRegs = 32
	}
	acc := func(i, j int) string { return s.v(numRegs - t.mr*t.nv + i*t.nv + j) }

	f.op("MOVQ %s, CX", ref["k"])
	f.op("MOVQ %s, SI", ref["a"])
	f.op("MOVQ %s, R8", ref["ars"])
	f.op("SHLQ $2, R8")
	f.op("MOVQ %s, R9", ref["acs"])
	f.op("SHLQ $2, R9")
	f.op("MOVQ %s, DI", ref["b"])
	f.op("MOVQ %s, R10", ref["bks"])
	f.op("SHLQ $2, R10")
	f.op("MOVQ %s, DX", ref["c"])
	f.op("MOVQ %s, R11", ref["ldc"])
	f.op("SHLQ $2, R11")
	f.op("LEAQ (R8)(R8*2), R12") // 3*ars
	if t.panels {
		f.op("MOVQ %s, R13", ref["bps"])
		f.op("SHLQ $2, R13")
		f.op("LEAQ (R13)(R13*2), BX")
	}
	// One base pointer for every four rows of A.
	bases := []string{"SI", "R13", "BX"}
	groups := (t.mr + 3) / 4
	if groups > 1 {
		f.op("LEAQ (SI)(R8*4), R13")
	}
	if groups > 2 {
		f.op("LEAQ (SI)(R8*8), BX")
	}
	aRef := func(i int) string {
		base := bases[i/4]
		return []string{"(" + base + ")", "(" + base + ")(R8*1)", "(" + base + ")(R8*2)", "(" + base + ")(R12*1)"}[i%4]
	}
	// A panel of Packed is 32 columns wide whatever the instruction set.
	perPanel := 32 / s.lanes
	bRef := func(j int) string {
		if !t.panels {
			return fmt.Sprintf("%d(DI)", j*s.bytes())
		}
		off := (j % perPanel) * s.bytes()
		return []string{
			fmt.Sprintf("%d(DI)", off), fmt.Sprintf("%d(DI)(R13*1)", off),
			fmt.Sprintf("%d(DI)(R13*2)", off), fmt.Sprintf("%d(DI)(BX*1)", off),
		}[j/perPanel]
	}
	for i := range t.mr {
		for j := range t.nv {
			a := acc(i, j)
			f.op("VXORPS %s, %s, %s", a, a, a)
		}
	}
	loop, done := f.fresh("loop"), f.fresh("done")
	f.op("TESTQ CX, CX")
	f.op("JLE %s", done)
	f.op("PCALIGN $32")
	f.mark(loop)
	switch {
	case t.panels && t.mr == 1:
		f.op("VBROADCASTSS (SI), %s", s.v(0))
		for j := range t.nv {
			f.op("VFMADD231PS %s, %s, %s", bRef(j), s.v(0), acc(0, j))
		}
	case t.panels:
		for i := range t.mr {
			f.op("VBROADCASTSS %s, %s", aRef(i), s.v(i))
		}
		for j := range t.nv {
			f.op("VMOVUPS %s, %s", bRef(j), s.v(t.mr+j%2))
			for i := range t.mr {
				f.op("VFMADD231PS %s, %s, %s", s.v(t.mr+j%2), s.v(i), acc(i, j))
			}
		}
	default:
		for j := range t.nv {
			f.op("VMOVUPS %s, %s", bRef(j), s.v(j))
		}
		spare := numRegs - t.mr*t.nv - t.nv // registers left for broadcasts
		for i := range t.mr {
			x := s.v(t.nv + i%min(spare, 6))
			f.op("VBROADCASTSS %s, %s", aRef(i), x)
			for j := range t.nv {
				f.op("VFMADD231PS %s, %s, %s", s.v(j), x, acc(i, j))
			}
		}
	}
	for g := range groups {
		f.op("ADDQ R9, %s", bases[g])
	}
	f.op("ADDQ R10, DI")
	f.op("DECQ CX")
	f.op("JNZ %s", loop)
	f.mark(done)
	gemmStore(f, s, t, ref, acc)
	f.end()
}

// gemmStore emits the write-back of a tile. beta == 0 never reads C, so that
// NaN in fresh memory can't leak.
func gemmStore(f *file, s isa, t tileShape, ref map[string]string, acc func(i, j int) string) {
	alpha, beta, tmp, mask := s.v(0), s.v(1), s.v(2), s.v(3)
	f.op("VBROADCASTSS %s, %s", ref["alpha"], alpha)
	f.op("VBROADCASTSS %s, %s", ref["beta"], beta)
	masked := !t.panels
	if masked {
		f.op("MOVQ %s, CX", ref["cols"])
		if s.wide {
			// K1, K2 = which of the first and second 16 columns exist.
			f.op("MOVQ $1, AX")
			f.op("SHLQ CX, AX")
			f.op("DECQ AX")
			f.op("KMOVW AX, K1")
			f.op("SHRQ $16, AX")
			f.op("KMOVW AX, K2")
		}
	}
	overwrite, out := f.fresh("overwrite"), f.fresh("out")
	emit := func(accumulate, partial bool) {
		for i := range t.mr {
			for j := range t.nv {
				at := fmt.Sprintf("%d(DX)", j*s.bytes())
				a := acc(i, j)
				switch {
				case partial && s.wide:
					k := fmt.Sprintf("K%d", j+1)
					if accumulate {
						f.op("VMOVUPS.Z %s, %s, %s", at, k, tmp)
						f.op("VMULPS %s, %s, %s", beta, tmp, tmp)
						f.op("VFMADD231PS %s, %s, %s", alpha, a, tmp)
						f.op("VMOVUPS %s, %s, %s", tmp, k, at)
					} else {
						f.op("VMULPS %s, %s, %s", alpha, a, a)
						f.op("VMOVUPS %s, %s, %s", a, k, at)
					}
				case partial:
					f.op("VMOVUPS %d(AX), %s", j*s.bytes(), mask)
					if accumulate {
						f.op("VMASKMOVPS %s, %s, %s", at, mask, tmp)
						f.op("VMULPS %s, %s, %s", beta, tmp, tmp)
						f.op("VFMADD231PS %s, %s, %s", alpha, a, tmp)
						f.op("VMASKMOVPS %s, %s, %s", tmp, mask, at)
					} else {
						f.op("VMULPS %s, %s, %s", alpha, a, a)
						f.op("VMASKMOVPS %s, %s, %s", a, mask, at)
					}
				case accumulate:
					f.op("VMULPS %s, %s, %s", at, beta, tmp)
					f.op("VFMADD231PS %s, %s, %s", alpha, a, tmp)
					f.op("VMOVUPS %s, %s", tmp, at)
				default:
					f.op("VMULPS %s, %s, %s", alpha, a, a)
					f.op("VMOVUPS %s, %s", a, at)
				}
			}
			if i+1 < t.mr {
				f.op("ADDQ R11, DX")
			}
		}
	}
	branch := func(partial bool) {
		over := f.fresh("overwrite")
		f.op("MOVL %s, R8", ref["beta"])
		f.op("SHLL $1, R8") // drops the sign: beta = -0 counts as 0
		f.op("JZ %s", over)
		emit(true, partial)
		f.op("JMP %s", out)
		f.mark(over)
		emit(false, partial)
	}
	if t.panels || s.wide {
		branch(masked)
		f.mark(out)
		return
	}
	// AVX2: masked stores are slow on some CPUs, so full tiles avoid them.
	f.op("CMPQ CX, $%d", t.nv*s.lanes)
	f.op("JLT %s", overwrite)
	branch(false)
	f.op("JMP %s", out)
	f.mark(overwrite)
	f.op("LEAQ ·maskTable+128(SB), AX")
	f.op("SHLQ $2, CX")
	f.op("SUBQ CX, AX")
	branch(true)
	f.mark(out)
}
