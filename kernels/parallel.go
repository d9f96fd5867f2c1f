package kernels

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Parallel runs f(0), …, f(n-1) over the cores and returns when all have
// ended. Work is handed out one index at a time, so uneven pieces balance; the
// order is unspecified, and f must not depend on it. With one piece or one
// core everything runs on the calling goroutine. A panic in f is raised again
// on the caller once the other workers have stopped.
func Parallel(n int, f func(i int)) {
	workers := min(n, runtime.GOMAXPROCS(0))
	if workers <= 1 {
		for i := range n {
			f(i)
		}
		return
	}
	var (
		next   atomic.Int64
		wg     sync.WaitGroup
		failed atomic.Pointer[panicked]
	)
	work := func() {
		defer func() {
			if v := recover(); v != nil {
				failed.CompareAndSwap(nil, &panicked{v})
			}
		}()
		for failed.Load() == nil {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			f(i)
		}
	}
	wg.Add(workers - 1)
	for range workers - 1 {
		go func() {
			defer wg.Done()
			work()
		}()
	}
	work()
	wg.Wait()
	if p := failed.Load(); p != nil {
		panic(p.value)
	}
}

// panicked carries a recovered panic value from a worker to the caller.
type panicked struct{ value any }

// ParallelRows cuts rows into blocks of at most block rows and runs f(lo, hi)
// for each over the cores. The cut depends on rows and block alone.
func ParallelRows(rows, block int, f func(lo, hi int)) {
	if block < 1 {
		block = 1
	}
	blocks := (rows + block - 1) / block
	Parallel(blocks, func(i int) {
		f(i*block, min(rows, (i+1)*block))
	})
}

// rowBlock is a number of rows worth handing to another core when a row costs
// about cost elementary operations: waking a goroutine takes microseconds.
func rowBlock(cost int) int {
	const worthwhile = 1 << 15
	return max(1, worthwhile/max(1, cost))
}
