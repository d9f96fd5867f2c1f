//go:build !amd64

package kernels

// nativeGemm is not reached: without assembly bestLevel is levelGo.
func nativeGemm(_ level, parallel, transA, transB bool, m, n, k int, alpha float32, a []float32, lda int, b []float32, ldb int, beta float32, c []float32, ldc int) {
	goGemm(parallel, transA, transB, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
}

func packedRows(_ level, p *Packed, y []float32, ldy int, x []float32, ldx, rows int, accumulate bool, q0, q1 int) {
	packedRowsGo(p, y, ldy, x, ldx, rows, accumulate, q0, q1)
}
