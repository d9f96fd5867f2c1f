package checkpoints

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/specstream/specstream"
)

// Promotion is one entry of an alias's log: from its generation on, until the
// next, the alias names Ref.
type Promotion struct {
	Version    int            `json:"version"` // 1
	Alias      string         `json:"alias"`
	Generation int64          `json:"generation"` // from 1 on
	Ref        specstream.Ref `json:"ref"`
	// ID is the request's; a request repeated is one promotion.
	ID string `json:"id"`
	// Nonce tells whose entry it is when an answer was lost.
	Nonce string `json:"nonce"`
	// Who and Why are for people. Who is required.
	Who string `json:"who"`
	Why string `json:"why,omitempty"`
	// Evidence are the artefacts that the decision rests on, such as evaluations.
	Evidence []specstream.Ref `json:"evidence,omitempty"`
	// RollbackTo is the earlier generation whose Ref this entry repeats, 0 for a
	// promotion.
	RollbackTo int64 `json:"rollback_to,omitempty"`
	// At is the writer's clock.
	At time.Time `json:"at"`
	// Sum is as in [Manifest].
	Sum specstream.Digest `json:"sum"`
}

const promotionVersion = 1

// PromoteRequest asks that an alias name an artefact.
type PromoteRequest struct {
	// ID makes the request repeatable: if the alias's log has an entry of this ID
	// already, that entry is the answer. A workflow derives it from its own
	// identity. Empty: a new one, so that every call is a request of its own.
	ID string
	// Ref is what the alias shall name. It must be committed.
	Ref specstream.Ref
	// Who asks, and Why.
	Who, Why string
	// Evidence are the artefacts the decision rests on.
	Evidence []specstream.Ref
	// Expect, if not nil, is the generation the alias must be at, 0 for an alias
	// that does not exist yet; otherwise [ErrStale].
	Expect *int64
}

// RollbackRequest asks that an alias name again what it named at a generation.
type RollbackRequest struct {
	// ID makes the request repeatable, as in [PromoteRequest].
	ID string
	// To is the generation to go back to. 0: the newest one that named something
	// else than the alias does now.
	To int64
	// Who asks, and Why.
	Who, Why string
	// Expect is as in [PromoteRequest].
	Expect *int64
}

func (r *Repo) refs(alias string) generations { return generations{r, "refs/" + alias + "/"} }

// Promote appends an entry to the alias's log, making the alias if need be, and
// returns it. Repeating a request returns the first one's entry and appends
// nothing. Errors: [ErrStale], [ErrConflict] if the ID was used to ask for
// something else, [ErrNotFound] or [ErrCorrupt] if the artefact cannot be read.
func (r *Repo) Promote(ctx context.Context, alias string, req PromoteRequest) (Promotion, error) {
	fail := func(err error) (Promotion, error) {
		return Promotion{}, fmt.Errorf("promote %s: %w", alias, err)
	}
	if err := ValidateName("alias", alias); err != nil {
		return Promotion{}, err
	}
	for _, ref := range req.Evidence {
		if _, err := specstream.ParseRef(ref.String()); err != nil {
			return fail(specstream.Invalid("evidence", "%v", err))
		}
	}
	if _, err := r.ReadManifest(ctx, req.Ref); err != nil {
		return fail(err)
	}
	p, err := r.appendEntry(ctx, alias, req.Expect, Promotion{
		ID: req.ID, Ref: req.Ref, Who: req.Who, Why: req.Why, Evidence: req.Evidence,
	}, nil)
	if err != nil {
		return fail(err)
	}
	return p, nil
}

// Rollback appends an entry that names again what an earlier one named. It is
// as repeatable as Promote. Errors: [ErrStale], [ErrConflict], [ErrNotFound] if
// there is nothing to go back to.
func (r *Repo) Rollback(ctx context.Context, alias string, req RollbackRequest) (Promotion, error) {
	if err := ValidateName("alias", alias); err != nil {
		return Promotion{}, err
	}
	p, err := r.appendEntry(ctx, alias, req.Expect, Promotion{ID: req.ID, Who: req.Who, Why: req.Why, RollbackTo: req.To},
		func(p *Promotion, log []Promotion) error { return resolveRollback(p, log, req.To) })
	if err != nil {
		return Promotion{}, fmt.Errorf("roll back %s: %w", alias, err)
	}
	return p, nil
}

// resolveRollback fills in what generation "to" of the log named.
func resolveRollback(p *Promotion, log []Promotion, to int64) error {
	if to == 0 {
		for i := len(log) - 2; i >= 0; i-- {
			if log[i].Ref != log[len(log)-1].Ref {
				to = log[i].Generation
				break
			}
		}
	}
	if to < 1 || to > int64(len(log)) {
		return fmt.Errorf("%w: the alias is at generation %d and has no earlier one to go back to (asked for %d)", ErrNotFound, len(log), to)
	}
	p.RollbackTo, p.Ref = to, log[to-1].Ref
	return nil
}

// appendEntry appends p as the next generation. resolve, if not nil, completes p
// from the log as it is then.
func (r *Repo) appendEntry(ctx context.Context, alias string, expect *int64, p Promotion, resolve func(*Promotion, []Promotion) error) (Promotion, error) {
	if p.Who == "" {
		return Promotion{}, specstream.Invalid("who", "a promotion must say who asks for it")
	}
	p.Version, p.Alias, p.Nonce, p.Sum = promotionVersion, alias, ulid.Make().String(), zeroSum
	if p.ID == "" {
		p.ID = p.Nonce
	}
	wanted := p
	var log []Promotion
	for {
		var err error
		if log, err = r.history(ctx, alias, log); err != nil {
			return Promotion{}, err
		}
		for _, old := range log {
			if old.ID == p.ID {
				return repeated(old, wanted)
			}
		}
		if expect != nil && *expect != int64(len(log)) {
			return Promotion{}, fmt.Errorf("%w: it is at generation %d, expected %d", ErrStale, len(log), *expect)
		}
		if resolve != nil {
			if err := resolve(&p, log); err != nil {
				return Promotion{}, err
			}
		}
		p.Generation, p.At = int64(len(log))+1, r.now()
		body, err := seal(p)
		if err != nil {
			return Promotion{}, err
		}
		key := r.refs(alias).key(p.Generation)
		held, mine, err := r.create(ctx, key, body)
		if err != nil {
			return Promotion{}, err
		}
		entry, err := parseEntry(key, alias, p.Generation, held)
		if err != nil || mine {
			return entry, err
		}
		// Another writer has this generation; it may even be our own request,
		// repeated elsewhere.
		log = append(log, entry)
	}
}

// repeated returns the entry of a request that is asked again.
func repeated(old, wanted Promotion) (Promotion, error) {
	sameKind := (old.RollbackTo == 0) == (wanted.Ref != specstream.Ref{})
	if !sameKind || wanted.Ref != (specstream.Ref{}) && old.Ref != wanted.Ref || wanted.RollbackTo != 0 && old.RollbackTo != wanted.RollbackTo {
		return Promotion{}, fmt.Errorf("%w: request ID %q was used at generation %d to name %s", ErrConflict, old.ID, old.Generation, old.Ref)
	}
	return old, nil
}

// history reads the log's entries that follow those known, which never change.
func (r *Repo) history(ctx context.Context, alias string, known []Promotion) ([]Promotion, error) {
	last, err := r.refs(alias).latest(ctx)
	if err != nil {
		return nil, err
	}
	// Our own write, or another's, may be newer than a list the store gave.
	last = max(last, int64(len(known)))
	log := append(known, make([]Promotion, int(last)-len(known))...)
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * r.parallel())
	for i := len(known); i < len(log); i++ {
		g.Go(func() (err error) {
			log[i], err = r.entry(ctx, alias, int64(i)+1)
			return err
		})
	}
	return log, g.Wait()
}

// entry reads one entry and verifies it.
func (r *Repo) entry(ctx context.Context, alias string, generation int64) (Promotion, error) {
	key := r.refs(alias).key(generation)
	b, err := r.record(ctx, key)
	if err != nil {
		return Promotion{}, err
	}
	return parseEntry(key, alias, generation, b)
}

func parseEntry(key, alias string, generation int64, b []byte) (Promotion, error) {
	p, err := ParsePromotion(key, b)
	if err == nil && (p.Alias != alias || p.Generation != generation) {
		err = fmt.Errorf("%w: %s holds generation %d of %q", ErrCorrupt, key, p.Generation, p.Alias)
	}
	return p, err
}

// ParsePromotion reads a stored entry of an alias's log strictly. Bytes that do
// not have the sum they end in are [ErrCorrupt]; unknown fields and another
// version are an [specstream.InputError] naming name.
func ParsePromotion(name string, b []byte) (Promotion, error) {
	var p Promotion
	if err := unseal(name, b, promotionVersion, &p); err != nil {
		return Promotion{}, err
	}
	return p, nil
}

// Current returns the alias's newest entry, or [ErrNotFound].
func (r *Repo) Current(ctx context.Context, alias string) (Promotion, error) {
	if err := ValidateName("alias", alias); err != nil {
		return Promotion{}, err
	}
	last, err := r.refs(alias).latest(ctx)
	if err == nil && last == 0 {
		err = ErrNotFound
	}
	var p Promotion
	if err == nil {
		p, err = r.entry(ctx, alias, last)
	}
	if err != nil {
		return Promotion{}, fmt.Errorf("alias %s: %w", alias, err)
	}
	return p, nil
}

// History returns the alias's entries, oldest first; none if it does not exist.
func (r *Repo) History(ctx context.Context, alias string) ([]Promotion, error) {
	if err := ValidateName("alias", alias); err != nil {
		return nil, err
	}
	log, err := r.history(ctx, alias, nil)
	if err != nil {
		return nil, fmt.Errorf("history of %s: %w", alias, err)
	}
	return log, nil
}

// Aliases lists the names of all aliases, in lexical order.
func (r *Repo) Aliases(ctx context.Context) ([]string, error) {
	names, err := r.children(ctx, "refs/")
	if err != nil {
		return nil, fmt.Errorf("list aliases: %w", err)
	}
	return names, nil
}
