package activities

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/worker"

	"github.com/specstream/specstream/workflows"
)

// WorkerOptions say how much a worker takes on.
type WorkerOptions struct {
	// Slots is how many trainings, evaluations and ingestions run at once; 0 runs
	// none, for a worker that only makes decisions.
	Slots int
	// Grace is that of [Config]: stopping waits so long for children, and a
	// little longer. Default 30 s.
	Grace time.Duration
	// Identity names the worker in histories. Default: process and host.
	Identity string
}

// Run works until ctx ends, then stops in order: children are told to commit
// their progress, and their activities are handed to other workers. It returns
// an error only if it could not start or the server turned it away.
func Run(ctx context.Context, c client.Client, a workflows.Activities, o WorkerOptions) error {
	if o.Grace == 0 {
		o.Grace = 30 * time.Second
	}
	fatal := make(chan error, 2) // one from each worker at most
	options := worker.Options{
		Identity:          o.Identity,
		WorkerStopTimeout: o.Grace + 10*time.Second,
		// Cancellation reaches an activity in the answer to a heartbeat, and the
		// SDK sends a heartbeat on only this often: by default, up to a minute.
		MaxHeartbeatThrottleInterval:     5 * time.Second,
		DefaultHeartbeatThrottleInterval: 5 * time.Second,
		OnFatalError: func(err error) {
			select {
			case fatal <- err:
			default: // one reason is enough
			}
		},
	}
	short := worker.New(c, workflows.Queue, options)
	workflows.Register(short)
	workflows.RegisterShort(short, a)
	workers := []worker.Worker{short}
	if o.Slots > 0 {
		options.MaxConcurrentActivityExecutionSize = o.Slots
		options.DisableWorkflowWorker = true
		compute := worker.New(c, workflows.ComputeQueue, options)
		workflows.RegisterCompute(compute, a)
		workers = append(workers, compute)
	}
	var stop sync.WaitGroup
	defer stop.Wait()
	for _, w := range workers {
		if err := w.Start(); err != nil {
			return fmt.Errorf("start worker: %w", err)
		}
		defer stop.Go(w.Stop) // all at once: each may take its grace period
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-fatal:
		return fmt.Errorf("worker: %w", err)
	}
}
