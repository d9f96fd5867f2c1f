package kernels

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestParallel(t *testing.T) {
	defer goleak.VerifyNone(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for _, procs := range []int{1, 2, 4} {
		runtime.GOMAXPROCS(procs)
		for _, n := range []int{0, 1, 2, 3, 100} {
			counts := make([]atomic.Int32, n)
			Parallel(n, func(i int) {
				counts[i].Add(1)
				Parallel(3, func(int) { counts[i].Add(1) }) // nested
			})
			for i := range counts {
				require.Equal(t, int32(4), counts[i].Load(), "index %d of %d", i, n)
			}
		}
	}
}

func TestParallelPanic(t *testing.T) {
	defer goleak.VerifyNone(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	cause := errors.New("bad piece")
	for range 20 {
		require.PanicsWithValue(t, cause, func() {
			Parallel(50, func(i int) {
				if i%7 == 3 {
					panic(cause)
				}
			})
		})
	}
}

func TestParallelRows(t *testing.T) {
	for _, tc := range []struct{ rows, block, blocks int }{{0, 4, 0}, {1, 4, 1}, {8, 4, 2}, {9, 4, 3}, {5, 0, 5}, {5, 100, 1}} {
		var blocks, rows atomic.Int32
		ParallelRows(tc.rows, tc.block, func(lo, hi int) {
			blocks.Add(1)
			rows.Add(int32(hi - lo))
		})
		require.Equal(t, []int32{int32(tc.blocks), int32(tc.rows)}, []int32{blocks.Load(), rows.Load()}, "%+v", tc)
	}
}
