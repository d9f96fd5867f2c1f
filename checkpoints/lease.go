package checkpoints

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/specstream/specstream"
)

// Lease is one attempt's permission to commit to a run. It ends when the next
// attempt acquires one.
type Lease struct {
	Version    int               `json:"version"` // 1
	Run        string            `json:"run"`
	Generation int64             `json:"generation"` // from 1 on; goes into Manifest.Generation
	Holder     string            `json:"holder"`     // for people
	Nonce      string            `json:"nonce"`      // tells whose entry it is when an answer was lost
	Acquired   time.Time         `json:"acquired"`   // the holder's clock
	Sum        specstream.Digest `json:"sum"`        // as in [Manifest]
}

const leaseVersion = 1

// Resume is what an attempt goes on from.
type Resume struct {
	Ref      specstream.Ref
	Manifest Manifest
}

func (r *Repo) leases(run string) generations { return generations{r, "leases/" + run + "/"} }

// Acquire gives the caller the run's next generation and fences all earlier
// ones; it always succeeds. It returns the artefact to go on from, already
// committed under the new generation, or nil if the run has none. When Acquire
// fails with [ErrFenced], yet another attempt came after this one.
func (r *Repo) Acquire(ctx context.Context, run, holder string) (Lease, *Resume, error) {
	if err := ValidateName("run", run); err != nil {
		return Lease{}, nil, err
	}
	lease, err := r.acquire(ctx, run, holder)
	if err != nil {
		return Lease{}, nil, fmt.Errorf("acquire lease of %s: %w", run, err)
	}
	// Only now, with earlier generations fenced, is the latest one final.
	ref, m, ok, err := r.Latest(ctx, run)
	if err != nil {
		return Lease{}, nil, fmt.Errorf("acquire lease of %s: %w", run, err)
	}
	if !ok {
		return lease, nil, nil
	}
	m.Generation = lease.Generation
	m.Parents = []specstream.Ref{ref}
	m.Writer, m.Created = holder, r.now()
	if ref, err = r.Commit(ctx, m); err != nil {
		return Lease{}, nil, fmt.Errorf("acquire lease of %s: take over: %w", run, err)
	}
	return lease, &Resume{Ref: ref, Manifest: m}, nil
}

func (r *Repo) acquire(ctx context.Context, run, holder string) (Lease, error) {
	log := r.leases(run)
	last, err := log.latest(ctx)
	if err != nil {
		return Lease{}, err
	}
	for {
		last++
		if last > maxGeneration {
			return Lease{}, fmt.Errorf("the run has had %d attempts", maxGeneration)
		}
		l := Lease{Version: leaseVersion, Run: run, Generation: last, Holder: holder, Nonce: ulid.Make().String(), Acquired: r.now(), Sum: zeroSum}
		body, err := seal(l)
		if err != nil {
			return Lease{}, err
		}
		if _, mine, err := r.create(ctx, log.key(last), body); err != nil || mine {
			return l, err
		}
		// Somebody else's: ours comes after it.
	}
}

// CheckLease returns [ErrFenced] unless generation is the run's newest. A run
// without leases is at generation 0.
func (r *Repo) CheckLease(ctx context.Context, run string, generation int64) error {
	last, err := r.leases(run).latest(ctx)
	if err != nil {
		return fmt.Errorf("check lease of %s: %w", run, err)
	}
	if last > generation {
		return fmt.Errorf("%w: run %s is at attempt %d, this is %d", ErrFenced, run, last, generation)
	}
	if last < generation {
		return specstream.Invalid("generation", "%d: run %s is at %d; acquire a lease first", generation, run, last)
	}
	return nil
}
