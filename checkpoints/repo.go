package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/specstream/specstream"
)

// Repo is the commit protocol over one store. The zero value of every field but
// Store is ready to use; a Repo has no state of its own and may be shared.
type Repo struct {
	// Store holds everything.
	Store Store
	// Parallel is how many blobs or files move at once. Default 4. Uploading
	// holds that many pieces of at most 64 MiB in memory.
	Parallel int
	// Now tells the time for records. Default time.Now. Nothing is decided by it.
	Now func() time.Time
}

// Errors of the protocol.
var (
	// ErrFenced means that a newer attempt holds the run's lease: the caller's
	// attempt is over and must stop.
	ErrFenced = errors.New("fenced: a newer attempt holds the run's lease")
	// ErrConflict means that the slot of a commit, or the request ID of a
	// promotion, is taken by other content.
	ErrConflict = errors.New("conflict with what is committed")
	// ErrStale means that an alias has moved on since the caller looked.
	ErrStale = errors.New("the alias has moved on")
	// ErrCorrupt means that stored bytes are not those that were written.
	ErrCorrupt = errors.New("stored bytes are damaged")
)

func (r *Repo) parallel() int {
	if r.Parallel > 0 {
		return r.Parallel
	}
	return 4
}

func (r *Repo) now() time.Time {
	if r.Now != nil {
		return r.Now().UTC()
	}
	return time.Now().UTC()
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// ValidateName checks the name of a run or an alias: 1 to 128 letters, digits,
// dots, dashes and underscores, the first a letter or a digit.
func ValidateName(field, name string) error {
	if !nameRule.MatchString(name) {
		return specstream.Invalid(field, "%.150q: want 1 to 128 letters, digits, dots, dashes or underscores, the first a letter or a digit", name)
	}
	return nil
}

// Retries of what the store's own retries did not cure: a body that broke off,
// or a store without any.
const (
	tries      = 4
	retryDelay = 50 * time.Millisecond
)

// again runs op until it does not fail with ErrUnavailable.
func again(ctx context.Context, op func() error) error {
	for try := 1; ; try++ {
		err := op()
		if err == nil || !errors.Is(err, ErrUnavailable) || try == tries {
			return err
		}
		if e := pause(ctx, try); e != nil {
			return e
		}
	}
}

func pause(ctx context.Context, try int) error {
	select {
	case <-time.After(rand.N(retryDelay << try)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// generations is a create-only log: <prefix><generation, 20 digits>.json, from 1
// on without gaps.
type generations struct {
	repo   *Repo
	prefix string
}

func (g generations) key(generation int64) string {
	return fmt.Sprintf("%s%020d.json", g.prefix, generation)
}

// latest returns the newest generation, 0 for an empty log.
func (g generations) latest(ctx context.Context) (int64, error) {
	last := int64(0)
	for n, err := range g.all(ctx) {
		if err != nil {
			return 0, err
		}
		last = n
	}
	return last, nil
}

// all yields the log's generations in ascending order.
func (g generations) all(ctx context.Context) iter.Seq2[int64, error] {
	return func(yield func(int64, error) bool) {
		last := int64(0)
		err := listRetry(ctx, g.repo.Store, g.prefix, "", func(info Info) (bool, error) {
			digits, ok := strings.CutSuffix(strings.TrimPrefix(info.Key, g.prefix), ".json")
			n, err := strconv.ParseInt(digits, 10, 64)
			if !ok || err != nil || g.key(n) != info.Key {
				return true, nil // not an entry
			}
			if n != last+1 {
				return false, fmt.Errorf("%w: log %s has no generation %d but has %d", ErrCorrupt, g.prefix, last+1, n)
			}
			last = n
			return yield(n, nil), nil
		})
		if err != nil {
			yield(0, err)
		}
	}
}

// listRetry visits the objects under prefix after startAfter until visit returns
// false, going on from the last one seen when the store breaks off.
func listRetry(ctx context.Context, s Store, prefix, startAfter string, visit func(Info) (bool, error)) error {
	return again(ctx, func() error {
		for info, err := range s.List(ctx, prefix, startAfter) {
			if err != nil {
				return err
			}
			startAfter = info.Key
			if more, err := visit(info); !more || err != nil {
				return err
			}
		}
		return nil
	})
}

// children returns the distinct names that follow prefix up to the next slash,
// asking the store once for each rather than for every object below.
func (r *Repo) children(ctx context.Context, prefix string) ([]string, error) {
	var names []string
	after := ""
	for {
		found := ""
		err := listRetry(ctx, r.Store, prefix, after, func(info Info) (bool, error) {
			found = info.Key
			return false, nil
		})
		if err != nil {
			return nil, err
		}
		if found == "" {
			return names, nil
		}
		name, _, dir := strings.Cut(strings.TrimPrefix(found, prefix), "/")
		if !dir || ValidateName("name", name) != nil || len(names) > 0 && names[len(names)-1] == name {
			after = found // not ours
			continue
		}
		names = append(names, name)
		after = prefix + name + "/~" // after every entry, which begins with a digit
	}
}

// copyObject appends the object's bytes to w, of which there must be size. When
// the body breaks off it goes on where it stopped.
func (r *Repo) copyObject(ctx context.Context, w io.Writer, key string, size int64) error {
	var done int64
	for try := 1; ; try++ {
		n, err := r.copyFrom(ctx, w, key, done, size)
		done += n
		if err == nil && done == size {
			return nil
		}
		if err == nil {
			return fmt.Errorf("%w: %s has %d bytes, not %d", ErrCorrupt, key, done, size)
		}
		if !errors.Is(err, ErrUnavailable) || try >= tries {
			return err
		}
		if n > 0 {
			try = 0 // it gets on: a long object may break off any number of times
		}
		if err := pause(ctx, max(try, 1)); err != nil {
			return err
		}
	}
}

func (r *Repo) copyFrom(ctx context.Context, w io.Writer, key string, off, size int64) (int64, error) {
	var rc io.ReadCloser
	if off == 0 {
		body, info, err := r.Store.Get(ctx, key)
		if err != nil {
			return 0, err
		}
		rc = body
		if info.Size != size {
			rc.Close()
			return 0, fmt.Errorf("%w: %s has %d bytes, not %d", ErrCorrupt, key, info.Size, size)
		}
	} else {
		if off == size {
			return 0, nil
		}
		body, err := r.Store.GetRange(ctx, key, off, size-off)
		if err != nil {
			return 0, err
		}
		rc = body
	}
	defer rc.Close()
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, rc, make([]byte, 256<<10))
	if err == nil && off+n < size {
		err = fmt.Errorf("%w: %s broke off after %d of %d bytes", ErrUnavailable, key, off+n, size)
	}
	return n, err
}
