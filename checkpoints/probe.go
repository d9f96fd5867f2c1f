package checkpoints

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// Check is one finding of [Probe].
type Check struct {
	Name string        // what was tried
	Took time.Duration // how long it took
	Err  error         // nil if the store did what it must
}

// Prober is implemented by stores that can check more than the contract, such
// as a server's other conditional writes.
type Prober interface {
	// Probe tries the store on keys that begin with prefix and removes them.
	Probe(ctx context.Context, prefix string) []Check
}

// probeWriters is how many writers race in the probe.
const probeWriters = 8

// Probe tries on the store itself what commits rest on: an object is read back
// as written, creating is refused on a taken key, and of racing creators exactly
// one wins. A server that ignores conditions passes ordinary use until two
// writers meet, so this runs before work does. Probe writes a few small objects
// under probe/ and removes them.
func Probe(ctx context.Context, s Store) []Check {
	prefix := "probe/" + ulid.Make().String() + "/"
	var checks []Check
	try := func(name string, f func() error) bool {
		start := time.Now()
		err := f()
		checks = append(checks, Check{Name: name, Took: time.Since(start), Err: err})
		return err == nil
	}
	if !try("write and read back", func() error { return probeRoundTrip(ctx, s, prefix+"round-trip") }) {
		return checks // the rest would only repeat why
	}
	try("creating refuses a taken key", func() error { return probeSequential(ctx, s, prefix+"sequential") })
	try("one of racing creators wins", func() error { return probeRace(ctx, s, prefix+"race") })
	if p, ok := s.(Prober); ok {
		checks = append(checks, p.Probe(ctx, prefix+"driver/")...)
	}
	return checks
}

func probeRoundTrip(ctx context.Context, s Store, key string) (err error) {
	want := []byte("specstream probe " + key)
	if err := s.Put(ctx, key, bytes.NewReader(want), int64(len(want))); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Delete(ctx, key)) }()
	got, err := readObject(ctx, s, key, int64(len(want)))
	if err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("read %d bytes back that are not those written", len(got))
	}
	for info, err := range s.List(ctx, key, "") {
		if err != nil {
			return err
		}
		if info.Key == key {
			return nil
		}
	}
	return errors.New("an object written is missing in a list made after: the store's lists lag behind")
}

var errNoConditions = errors.New("the store overwrote an existing object though asked not to: " +
	"it ignores conditional writes (If-None-Match), so commits and promotions are not safe on it; use another server or version")

func probeSequential(ctx context.Context, s Store, key string) (err error) {
	if err := s.PutIfAbsent(ctx, key, []byte("first")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Delete(ctx, key)) }()
	switch err := s.PutIfAbsent(ctx, key, []byte("second")); {
	case err == nil:
		return errNoConditions
	case !errors.Is(err, ErrExists):
		return err
	}
	return nil
}

func probeRace(ctx context.Context, s Store, key string) (err error) {
	errs := make([]error, probeWriters)
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() { errs[w] = s.PutIfAbsent(ctx, key, fmt.Appendf(nil, "writer %d", w)) })
	}
	wg.Wait()
	defer func() { err = errors.Join(err, s.Delete(ctx, key)) }()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !errors.Is(err, ErrExists):
			return err
		}
	}
	if won != 1 {
		return fmt.Errorf("%d of %d racing creators were told that they won: %w", won, probeWriters, errNoConditions)
	}
	return nil
}

// readObject reads an object of at most most bytes whole.
func readObject(ctx context.Context, s Store, key string, most int64) ([]byte, error) {
	rc, info, err := s.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	if info.Size > most {
		return nil, fmt.Errorf("read %s: %d bytes, want at most %d", key, info.Size, most)
	}
	b := make([]byte, info.Size)
	if _, err := io.ReadFull(rc, b); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: the object broke off", ErrUnavailable)
		}
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return b, nil
}
