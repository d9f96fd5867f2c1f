package ingest

import (
	"context"
	"sync"
)

// inOrder calls do for 0 to n-1, at most parallel at once, begun in order, and
// take with the results in order, in the goroutine that called it. The error of
// the least index ends it, so that which of several is returned does not depend
// on timing; what is running then is cancelled and waited for.
func inOrder[T any](ctx context.Context, n, parallel int, do func(ctx context.Context, i int) (T, error), take func(i int, v T) error) error {
	type result struct {
		v   T
		err error
	}
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	slots := make(chan struct{}, max(1, parallel))
	order := make(chan chan result, 2*max(1, parallel))
	wg.Go(func() {
		defer close(order)
		for i := range n {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			done := make(chan result, 1)
			wg.Go(func() {
				defer func() { <-slots }()
				v, err := do(ctx, i)
				done <- result{v, err}
			})
			select {
			case order <- done:
			case <-ctx.Done():
				return
			}
		}
	})
	for i := range n {
		done, ok := <-order
		if !ok {
			return context.Cause(outer)
		}
		r := <-done
		if r.err != nil {
			return r.err
		}
		if err := take(i, r.v); err != nil {
			return err
		}
	}
	return nil
}
