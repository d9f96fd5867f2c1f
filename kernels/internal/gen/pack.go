package main

import "fmt"

// packKernels emits the transposing packer
//
//	transpose(dst, ds, src, ss, k, rows, store)
//
// dst[p*ds+i] = src[i*ss+p] for p < k and i < store, where rows (1..lanes) rows
// of src exist and the last one stands in for those that don't: the padding of
// a packed panel must be ordinary numbers, its products are never stored.
func packKernels(f *file, s isa) {
	name := "transpose" + s.name
	params := join(ptr("dst"), ints("ds"), ptr("src"), ints("ss", "k", "rows", "store"))
	ref := f.begin(name, "writes dst[p*ds+i] = src[min(i,rows-1)*ss+p] for p < k, i < store.", params, "")
	f.op("MOVQ %s, DI", ref["dst"])
	f.op("MOVQ %s, R8", ref["ds"])
	f.op("SHLQ $2, R8")
	f.op("MOVQ %s, SI", ref["src"])
	f.op("MOVQ %s, R9", ref["ss"])
	f.op("SHLQ $2, R9")
	f.op("MOVQ %s, DX", ref["k"])
	f.op("MOVQ %s, R10", ref["rows"])
	f.op("MOVQ %s, CX", ref["store"])
	if s.wide {
		f.op("MOVQ $1, AX")
		f.op("SHLQ CX, AX")
		f.op("DECQ AX")
		f.op("KMOVW AX, K1")
	} else {
		f.op("SHLQ $2, CX")
		f.op("LEAQ ·maskTable+128(SB), R12")
		f.op("SUBQ CX, R12") // address of the store mask
	}
	block, done := f.fresh("block"), f.fresh("done")
	f.mark(block)
	f.note("columns of this block: min(k left, %d)", s.lanes)
	f.op("MOVQ DX, CX")
	f.op("CMPQ CX, $%d", s.lanes)
	whole := f.fresh("whole")
	f.op("JLE %s", whole)
	f.op("MOVQ $%d, CX", s.lanes)
	f.mark(whole)
	if s.wide {
		f.op("MOVQ $1, AX")
		f.op("SHLQ CX, AX")
		f.op("DECQ AX")
		f.op("KMOVW AX, K2")
	} else {
		f.op("MOVQ CX, BX")
		f.op("SHLQ $2, BX")
		f.op("LEAQ ·maskTable+128(SB), AX")
		f.op("SUBQ BX, AX")
		f.op("VMOVUPS (AX), Y15")
	}
	f.op("MOVQ SI, AX")
	for i := range s.lanes {
		if s.wide {
			f.op("VMOVUPS.Z (AX), K2, %s", s.v(i))
		} else {
			f.op("VMASKMOVPS (AX), Y15, %s", s.v(i))
		}
		if i+1 < s.lanes {
			f.op("LEAQ (AX)(R9*1), BX")
			f.op("CMPQ R10, $%d", i+1)
			f.op("CMOVQGT BX, AX")
		}
	}
	var out []string
	if s.wide {
		out = transpose16(f)
	} else {
		out = transpose8(f)
		f.op("VMOVUPS (R12), Y15")
	}
	for i, r := range out {
		if s.wide {
			f.op("VMOVUPS %s, K1, (DI)", r)
		} else {
			f.op("VMASKMOVPS %s, Y15, (DI)", r)
		}
		f.op("DECQ CX")
		f.op("JZ %s", done+"b")
		if i+1 < len(out) {
			f.op("ADDQ R8, DI")
		}
	}
	f.mark(done + "b")
	f.op("ADDQ R8, DI")
	f.op("ADDQ $%d, SI", s.bytes())
	f.op("SUBQ $%d, DX", s.lanes)
	f.op("JG %s", block)
	f.end()
}

// transpose16 transposes Z0..Z15 and returns the registers of the 16 columns.
func transpose16(f *file) []string {
	z := func(i int) string { return fmt.Sprintf("Z%d", i) }
	f.note("pairs of rows")
	for i := 0; i < 16; i += 2 {
		f.op("VUNPCKLPS %s, %s, %s", z(i+1), z(i), z(16+i))
		f.op("VUNPCKHPS %s, %s, %s", z(i+1), z(i), z(17+i))
	}
	f.note("groups of four rows: Z(4g+c) holds column c+4L of rows 4g..4g+3 in lane L")
	for g := 0; g < 16; g += 4 {
		f.op("VUNPCKLPD %s, %s, %s", z(18+g), z(16+g), z(g))
		f.op("VUNPCKHPD %s, %s, %s", z(18+g), z(16+g), z(g+1))
		f.op("VUNPCKLPD %s, %s, %s", z(19+g), z(17+g), z(g+2))
		f.op("VUNPCKHPD %s, %s, %s", z(19+g), z(17+g), z(g+3))
	}
	f.note("transpose of the 128-bit lanes")
	out := make([]string, 16)
	for c := range 4 {
		v0, v1, v2, v3 := z(c), z(4+c), z(8+c), z(12+c)
		a, b, d, e := z(16+4*c), z(17+4*c), z(18+4*c), z(19+4*c)
		f.op("VSHUFF32X4 $0x88, %s, %s, %s", v1, v0, a)
		f.op("VSHUFF32X4 $0x88, %s, %s, %s", v3, v2, b)
		f.op("VSHUFF32X4 $0xdd, %s, %s, %s", v1, v0, d)
		f.op("VSHUFF32X4 $0xdd, %s, %s, %s", v3, v2, e)
		f.op("VSHUFF32X4 $0x88, %s, %s, %s", b, a, v0)
		f.op("VSHUFF32X4 $0x88, %s, %s, %s", e, d, v1)
		f.op("VSHUFF32X4 $0xdd, %s, %s, %s", b, a, v2)
		f.op("VSHUFF32X4 $0xdd, %s, %s, %s", e, d, v3)
		out[c], out[c+4], out[c+8], out[c+12] = v0, v1, v2, v3
	}
	return out
}

// transpose8 transposes Y0..Y7 and returns the registers of the 8 columns.
func transpose8(f *file) []string {
	y := func(i int) string { return fmt.Sprintf("Y%d", i) }
	f.note("pairs of rows")
	for i := 0; i < 8; i += 2 {
		f.op("VUNPCKLPS %s, %s, %s", y(i+1), y(i), y(8+i/2)) // low halves in Y8..Y11
		f.op("VUNPCKHPS %s, %s, %s", y(i+1), y(i), y(i))     // high halves stay
	}
	f.note("groups of four rows, then exchange of the 128-bit halves")
	// Column c (0..3) of rows 0..3 and of rows 4..7.
	lo := []string{"Y1", "Y3", "Y5", "Y7"}
	hi := []string{"Y12", "Y13", "Y14", "Y15"}
	f.op("VUNPCKLPD Y9, Y8, %s", lo[0])
	f.op("VUNPCKHPD Y9, Y8, %s", lo[1])
	f.op("VUNPCKLPD Y2, Y0, %s", lo[2])
	f.op("VUNPCKHPD Y2, Y0, %s", lo[3])
	f.op("VUNPCKLPD Y11, Y10, %s", hi[0])
	f.op("VUNPCKHPD Y11, Y10, %s", hi[1])
	f.op("VUNPCKLPD Y6, Y4, %s", hi[2])
	f.op("VUNPCKHPD Y6, Y4, %s", hi[3])
	out := make([]string, 8)
	first := []string{"Y0", "Y2", "Y4", "Y6"}
	for c := range 4 {
		f.op("VPERM2F128 $0x20, %s, %s, %s", hi[c], lo[c], first[c])
		f.op("VPERM2F128 $0x31, %s, %s, %s", hi[c], lo[c], lo[c])
		out[c], out[c+4] = first[c], lo[c]
	}
	return out
}
