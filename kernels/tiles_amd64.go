package kernels

import "unsafe"

// tileKernel computes a tile of C = alpha·A·B + beta·C; see internal/gen.
type tileKernel func(k int, a *float32, ars, acs int, b *float32, bks int, c *float32, ldc int, alpha, beta float32, cols int)

// tileSet is the family of micro-kernels of one instruction set.
type tileSet struct {
	lanes  int // float32 lanes of a vector; a full panel is two vectors wide
	height int // rows of the tallest tile
	full   [13]tileKernel
	half   [13]tileKernel // for panels of at most lanes columns
	// transpose packs up to lanes rows of src as columns of dst.
	transpose func(dst *float32, ds int, src *float32, ss, k, rows, store int)
	// copyPanel packs a full panel of k rows of src, which is not transposed.
	copyPanel func(dst, src *float32, ss, k int)
}

var avx512Tiles = tileSet{
	lanes: 16, height: 12,
	full: [13]tileKernel{nil,
		tile1x32AVX512, tile2x32AVX512, tile3x32AVX512, tile4x32AVX512, tile5x32AVX512, tile6x32AVX512,
		tile7x32AVX512, tile8x32AVX512, tile9x32AVX512, tile10x32AVX512, tile11x32AVX512, tile12x32AVX512},
	half: [13]tileKernel{nil,
		tile1x16AVX512, tile2x16AVX512, tile3x16AVX512, tile4x16AVX512, tile5x16AVX512, tile6x16AVX512,
		tile7x16AVX512, tile8x16AVX512, tile9x16AVX512, tile10x16AVX512, tile11x16AVX512, tile12x16AVX512},
	transpose: transposeAVX512, copyPanel: copyPanelAVX512,
}

var avx2Tiles = tileSet{
	lanes: 8, height: 6,
	full: [13]tileKernel{nil,
		tile1x16AVX2, tile2x16AVX2, tile3x16AVX2, tile4x16AVX2, tile5x16AVX2, tile6x16AVX2},
	half: [13]tileKernel{nil,
		tile1x8AVX2, tile2x8AVX2, tile3x8AVX2, tile4x8AVX2, tile5x8AVX2, tile6x8AVX2},
	transpose: transposeAVX2, copyPanel: copyPanelAVX2,
}

// tilesFor returns the kernels of an instruction set, nil for portable Go.
func tilesFor(l level) *tileSet {
	switch l {
	case levelAVX512:
		return &avx512Tiles
	case levelAVX2:
		return &avx2Tiles
	}
	return nil
}

// nextHeight splits rows into tiles of nearly equal height, so that the last
// one is not a sliver, and returns the height of the next.
func (s *tileSet) nextHeight(rows int) int {
	tiles := (rows + s.height - 1) / s.height
	return (rows + tiles - 1) / tiles
}

// kernel returns the micro-kernel for a tile.
func (s *tileSet) kernel(height, cols int) tileKernel {
	if cols <= s.lanes {
		return s.half[height]
	}
	return s.full[height]
}

// wideRows computes y = x·Wᵀ (+ beta·y) for one or two rows over groups of
// whole panels of Packed, and returns how many panels it did.
func wideRows(l level, rows, panels, in int, x *float32, ldx int, w *float32, y *float32, ldy int, beta float32) int {
	const size = 4 * packedWidth
	done := 0
	stride := in * packedWidth
	step := func(group int, kernel func(w, y *float32)) {
		for ; done+group <= panels; done += group {
			kernel((*float32)(unsafe.Add(unsafe.Pointer(w), done*stride*4)), (*float32)(unsafe.Add(unsafe.Pointer(y), done*size)))
		}
	}
	switch {
	case l == levelAVX512 && rows == 1:
		step(4, func(w, y *float32) {
			tile1x128AVX512(in, x, ldx, 1, w, packedWidth, stride, y, ldy, 1, beta)
		})
	case l == levelAVX512 && rows == 2:
		step(4, func(w, y *float32) {
			tile2x128AVX512(in, x, ldx, 1, w, packedWidth, stride, y, ldy, 1, beta)
		})
	case l == levelAVX2 && rows == 1:
		step(2, func(w, y *float32) {
			tile1x64AVX2(in, x, ldx, 1, w, packedWidth, stride, y, ldy, 1, beta)
		})
	case l == levelAVX2 && rows == 2:
		step(1, func(w, y *float32) {
			tile2x32AVX2(in, x, ldx, 1, w, packedWidth, stride, y, ldy, 1, beta)
		})
	}
	return done
}
