package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
)

// verifyAll verifies every manifest that is visible in a store, but those
// already known, and notes them as known. It returns how many it verified.
func verifyAll(ctx context.Context, repo *checkpoints.Repo, known map[string]bool) (n int, err error) {
	runs, err := repo.Runs(ctx)
	if err != nil {
		return n, err
	}
	for _, run := range runs {
		entries, err := repo.Entries(ctx, run)
		if err != nil {
			return n, err
		}
		for _, e := range entries {
			if known[e.Key] {
				continue
			}
			if err := verify(ctx, repo, e.Key); err != nil {
				return n, err
			}
			known[e.Key] = true
			n++
		}
	}
	return n, nil
}

// verify reads one manifest and all its files.
func verify(ctx context.Context, repo *checkpoints.Repo, key string) error {
	r, _, err := repo.Store.Get(ctx, key)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	b, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	_, err = repo.Verify(ctx, specstream.Ref{Key: key, Digest: specstream.DigestBytes(b)})
	return err
}

// listed is what scripts read from `checkpoints list --json`.
type listed struct {
	Ref     string             `json:"ref"`
	Digest  specstream.Digest  `json:"digest"`
	Run     string             `json:"run"`
	Step    int64              `json:"step"`
	Metrics map[string]float64 `json:"metrics"`
	Aliases []string           `json:"aliases"`
}

func (s *stack) list(t testing.TB) (l []listed) {
	t.Helper()
	s.good(t, &l, "checkpoints", "list")
	return l
}

// sound checks that everything visible in the stack's store is whole.
func (s *stack) sound(t testing.TB) {
	t.Helper()
	n, err := verifyAll(t.Context(), s.repo(t), map[string]bool{})
	require.NoError(t, err)
	require.Positive(t, n)
}
