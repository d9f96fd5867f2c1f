package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
)

// RunProtocol tries the commit protocol on a store, under faults.
func RunProtocol(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"CommitAndFetch", testCommitAndFetch},
		{"CommitUnderFaults", testCommitUnderFaults},
		{"CrashAnywhere", testCrashAnywhere},
		{"RacingCommitters", testRacingCommitters},
		{"LateZombie", testLateZombie},
		{"RacingAttempts", testRacingAttempts},
		{"RacingPromotions", testRacingPromotions},
		{"RepeatedPromotion", testRepeatedPromotion},
		{"RotAtRest", testRotAtRest},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

// files writes an artefact's folder and returns its path.
func files(t testing.TB, seed uint64) string {
	t.Helper()
	dir := t.TempDir()
	for name, size := range map[string]int{"config.json": 300, "adapter.safetensors": 200_000, "deep/er/empty": 0} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
		require.NoError(t, os.WriteFile(path, RandomBytes(seed+uint64(size), size), 0o666))
	}
	return dir
}

func sameFiles(t testing.TB, want, got string) {
	t.Helper()
	for _, name := range []string{"config.json", "adapter.safetensors", "deep/er/empty"} {
		w, err := os.ReadFile(filepath.Join(want, filepath.FromSlash(name)))
		require.NoError(t, err)
		g, err := os.ReadFile(filepath.Join(got, filepath.FromSlash(name)))
		require.NoError(t, err)
		require.True(t, bytes.Equal(w, g), "%s differs", name)
	}
}

func adapter(run string, step, generation int64) checkpoints.Manifest {
	return checkpoints.Manifest{Kind: checkpoints.KindAdapter, Run: run, Step: step, Generation: generation,
		Spec: []byte(`{"steps": 100, "note": "<&>"}`), Metrics: map[string]float64{"loss": 1.5}}
}

func testCommitAndFetch(t *testing.T, open Open) {
	repo := &checkpoints.Repo{Store: open(t)}
	src := files(t, 1)
	ref, err := repo.CommitDir(t.Context(), src, adapter("", 3, 0))
	require.NoError(t, err)
	m, err := repo.ReadManifest(t.Context(), ref)
	require.NoError(t, err)
	require.Equal(t, "adapter-"+m.Content.Hex()[:16], m.Run)
	again, err := repo.CommitDir(t.Context(), src, adapter("", 3, 0))
	require.NoError(t, err)
	require.Equal(t, ref, again, "the same content twice is one commit")

	dst := filepath.Join(t.TempDir(), "new", "model")
	_, err = repo.Fetch(t.Context(), ref, dst)
	require.NoError(t, err)
	sameFiles(t, src, dst)
	latest, lm, ok, err := repo.Latest(t.Context(), m.Run)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, ref, latest)
	require.Equal(t, m, lm)
	runs, err := repo.Runs(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{m.Run}, runs)
}

// testCommitUnderFaults commits and fetches while a third of all operations fail.
func testCommitUnderFaults(t *testing.T, open Open) {
	const rounds = 12
	store := open(t)
	clean := &checkpoints.Repo{Store: store}
	faulty := &Faulty{Store: store, Plan: Random(7, 0.3, FailBefore, LoseReply, FlipBit, Cut)}
	repo := &checkpoints.Repo{Store: faulty}
	for round := range rounds {
		src := files(t, uint64(round))
		run := fmt.Sprintf("faults-%02d", round)
		var ref specstream.Ref
		until(t, func() (err error) {
			ref, err = repo.CommitDir(t.Context(), src, adapter(run, 1, 0))
			return err
		})
		entries, err := clean.Entries(t.Context(), run)
		require.NoError(t, err)
		require.Len(t, entries, 1, "doubled")
		_, err = clean.Verify(t.Context(), ref)
		require.NoError(t, err, "a committed artefact is whole")
		dst := filepath.Join(t.TempDir(), "dst")
		until(t, func() error {
			_, err := repo.Fetch(t.Context(), ref, dst)
			return err
		})
		sameFiles(t, src, dst)
		left, err := filepath.Glob(filepath.Join(filepath.Dir(dst), ".fetch-*"))
		require.NoError(t, err)
		require.Empty(t, left, "failed fetches clean up")
	}
	require.Greater(t, faulty.Injected.Load(), int64(rounds))
}

// until repeats op as an orchestrator would: while errors are worth it.
func until(t testing.TB, op func() error) {
	t.Helper()
	for range 200 {
		err := op()
		if err == nil {
			return
		}
		require.False(t, specstream.BadInput(err), "a fault must not look like bad input: %v", err)
		require.NotErrorIs(t, err, checkpoints.ErrConflict)
		require.NotErrorIs(t, err, checkpoints.ErrFenced)
	}
	t.Fatal("no success in 200 tries")
}

// testCrashAnywhere ends a committing attempt at every operation in turn, once
// before the operation and once after it. At no point is anything but a whole
// artefact visible, and the next attempt ends with the same content.
func testCrashAnywhere(t *testing.T, open Open) {
	src, older := files(t, 100), files(t, 101)
	for _, landed := range []bool{false, true} {
		for at := int64(0); ; at++ {
			store := open(t)
			run := fmt.Sprintf("crash-%v-%d", landed, at)
			clean := &checkpoints.Repo{Store: store}
			lease, _, err := clean.Acquire(t.Context(), run, "first")
			require.NoError(t, err)
			before, err := clean.CommitDir(t.Context(), older, adapter(run, 10, lease.Generation))
			require.NoError(t, err)

			ctx, kill := context.WithCancel(t.Context())
			var n atomic.Int64
			dying := &checkpoints.Repo{Parallel: 1, Store: &Faulty{Store: store, Plan: func(Op) Fault {
				switch i := n.Add(1) - 1; {
				case i < at:
					return None
				case i == at && landed:
					kill()
					return LoseReply
				default:
					kill()
					return FailBefore
				}
			}}}
			ref, err := dying.CommitDir(ctx, src, adapter(run, 20, lease.Generation))
			kill()
			survived := err == nil

			seen, _, ok, err := clean.Latest(t.Context(), run)
			require.NoError(t, err)
			require.True(t, ok)
			_, err = clean.Verify(t.Context(), seen)
			require.NoError(t, err, "what is visible after a crash at operation %d is whole", at)
			if survived {
				require.Equal(t, ref, seen, "an acknowledged commit is the latest")
				require.Greater(t, at, int64(5), "the commit has more operations than were tried")
				break
			}

			next, resume, err := clean.Acquire(t.Context(), run, "second")
			require.NoError(t, err)
			require.NotNil(t, resume)
			want := before
			if seen != before {
				want = seen
			}
			require.Equal(t, []specstream.Ref{want}, resume.Manifest.Parents, "the next attempt goes on from what was visible")
			done, err := clean.CommitDir(t.Context(), src, adapter(run, 20, next.Generation))
			require.NoError(t, err)
			latest, m, _, err := clean.Latest(t.Context(), run)
			require.NoError(t, err)
			require.Equal(t, done, latest)
			dst := filepath.Join(t.TempDir(), "dst")
			_, err = clean.Fetch(t.Context(), latest, dst)
			require.NoError(t, err)
			sameFiles(t, src, dst)
			require.EqualValues(t, 20, m.Step)
		}
	}
}

// testRacingCommitters: 16 committers of one slot. With equal content all get one
// reference; with different content one wins and the others are told.
func testRacingCommitters(t *testing.T, open Open) {
	const writers = 16
	repo := &checkpoints.Repo{Store: &Faulty{Store: open(t), Plan: Random(3, 0.1, LoseReply, FailBefore)}}
	for _, differ := range []bool{false, true} {
		t.Run(fmt.Sprintf("differ=%v", differ), func(t *testing.T) {
			run := fmt.Sprintf("racers-%v", differ)
			refs := make([]specstream.Ref, writers)
			errs := make([]error, writers)
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					text := "same"
					if differ {
						text = fmt.Sprint("writer ", w)
					}
					for range 100 {
						m := adapter(run, 1, 0)
						m.Writer = fmt.Sprint(w)
						var d specstream.Digest
						if d, errs[w] = repo.PutBlob(t.Context(), []byte(text)); errs[w] == nil {
							m.Files = []checkpoints.File{{Name: "f", Digest: d, Size: int64(len(text))}}
							refs[w], errs[w] = repo.Commit(t.Context(), m)
						}
						if !errors.Is(errs[w], checkpoints.ErrUnavailable) {
							return
						}
					}
				})
			}
			wg.Wait()
			seen := map[specstream.Ref]bool{}
			for w, err := range errs {
				if err == nil {
					seen[refs[w]] = true
					continue
				}
				require.True(t, differ, "writer %d: %v", w, err)
				require.ErrorIs(t, err, checkpoints.ErrConflict)
			}
			require.Len(t, seen, 1)
			clean := repo.Store.(*Faulty).Store
			require.Len(t, list(t, clean, "manifests/"+run+"/", ""), 1)
		})
	}
}

// testLateZombie: an attempt that lost its lease can neither be acknowledged nor
// be seen, wherever its commit is held up.
func testLateZombie(t *testing.T, open Open) {
	src := files(t, 5)
	for _, stall := range []string{"before its first check", "between check and manifest"} {
		t.Run(stall, func(t *testing.T) {
			store := open(t)
			clean := &checkpoints.Repo{Store: store}
			run := "zombie"
			old, resume, err := clean.Acquire(t.Context(), run, "old")
			require.NoError(t, err)
			require.Nil(t, resume)
			_, err = clean.CommitDir(t.Context(), src, adapter(run, 50, old.Generation))
			require.NoError(t, err)

			var newest checkpoints.Lease
			takeOver := sync.OnceFunc(func() {
				var err error
				newest, resume, err = clean.Acquire(t.Context(), run, "new")
				require.NoError(t, err)
			})
			if stall == "before its first check" {
				takeOver()
			}
			zombie := &checkpoints.Repo{Store: &Faulty{Store: store, Plan: func(op Op) Fault {
				if op.Name == "create" && strings.HasPrefix(op.Key, "manifests/") {
					takeOver() // it stalls here, just before its manifest is sent
				}
				return None
			}}}
			_, err = zombie.CommitDir(t.Context(), files(t, 6), adapter(run, 90, old.Generation))
			require.ErrorIs(t, err, checkpoints.ErrFenced)
			require.EqualValues(t, 50, resume.Manifest.Step)

			_, m, _, err := clean.Latest(t.Context(), run)
			require.NoError(t, err)
			require.EqualValues(t, 50, m.Step, "the zombie's step 90 is not the latest")
			require.Equal(t, newest.Generation, m.Generation)
			ref, err := clean.CommitDir(t.Context(), src, adapter(run, 60, newest.Generation))
			require.NoError(t, err)
			latest, _, _, err := clean.Latest(t.Context(), run)
			require.NoError(t, err)
			require.Equal(t, ref, latest)
			_, err = clean.CommitDir(t.Context(), src, adapter(run, 61, 0))
			require.ErrorIs(t, err, checkpoints.ErrFenced, "no lease is an old lease")
		})
	}
}

// testRacingAttempts lets attempts acquire, commit a few steps and be overtaken,
// all at once. Every acknowledged step must be in what the last one resumes from.
func testRacingAttempts(t *testing.T, open Open) {
	const attempts, steps = 8, 5
	store := open(t)
	clean := &checkpoints.Repo{Store: store}
	repo := &checkpoints.Repo{Store: &Faulty{Store: store, Plan: Random(11, 0.05, LoseReply, FailBefore)}}
	d, err := clean.PutBlob(t.Context(), []byte("state"))
	require.NoError(t, err)
	var acknowledged atomic.Int64 // highest step
	var wg sync.WaitGroup
	for a := range attempts {
		wg.Go(func() {
			lease, resume, err := repo.Acquire(t.Context(), "race", fmt.Sprint("attempt ", a))
			if err != nil {
				if !errors.Is(err, checkpoints.ErrFenced) && !errors.Is(err, checkpoints.ErrUnavailable) {
					t.Errorf("acquire: %v", err)
				}
				return
			}
			step := int64(0)
			if resume != nil {
				step = resume.Manifest.Step
			}
			for range steps {
				step++
				m := adapter("race", step, lease.Generation)
				m.Files = []checkpoints.File{{Name: "state", Digest: d, Size: 5}}
				_, err := repo.Commit(t.Context(), m)
				switch {
				case err == nil:
					for {
						seen := acknowledged.Load()
						if step <= seen || acknowledged.CompareAndSwap(seen, step) {
							break
						}
					}
				case errors.Is(err, checkpoints.ErrUnavailable):
					step-- // once more
				default:
					if !errors.Is(err, checkpoints.ErrFenced) {
						t.Errorf("commit: %v", err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	_, resume, err := clean.Acquire(t.Context(), "race", "last")
	require.NoError(t, err)
	require.NotNil(t, resume)
	require.GreaterOrEqual(t, resume.Manifest.Step, acknowledged.Load(), "an acknowledged commit was lost")
	require.Positive(t, acknowledged.Load())
}

// testRacingPromotions: 16 writers append to one alias while replies are lost;
// nothing is lost and nothing doubled.
func testRacingPromotions(t *testing.T, open Open) {
	const writers, each = 16, 4
	store := open(t)
	clean := &checkpoints.Repo{Store: store}
	ref, err := clean.CommitDir(t.Context(), files(t, 1), adapter("promoted", 1, 0))
	require.NoError(t, err)
	faulty := &Faulty{Store: store, Plan: Random(5, 0.1, LoseReply, FailBefore, Cut)}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			repo := &checkpoints.Repo{Store: faulty}
			for k := range each {
				req := checkpoints.PromoteRequest{ID: fmt.Sprintf("%d.%d", w, k), Ref: ref, Who: "tester"}
				for try := 0; ; try++ {
					p, err := repo.Promote(t.Context(), "production", req)
					if err == nil {
						if p.ID != req.ID {
							t.Errorf("request %s got the entry of %s", req.ID, p.ID)
						}
						break
					}
					if !errors.Is(err, checkpoints.ErrUnavailable) || try == 100 {
						t.Errorf("promote: %v", err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	log, err := clean.History(t.Context(), "production")
	require.NoError(t, err)
	ids := map[string]int{}
	for i, p := range log {
		require.EqualValues(t, i+1, p.Generation)
		ids[p.ID]++
	}
	require.Len(t, ids, writers*each, "lost")
	require.Len(t, log, writers*each, "doubled")
	require.NotZero(t, faulty.Injected.Load())
}

func testRepeatedPromotion(t *testing.T, open Open) {
	store := open(t)
	repo := &checkpoints.Repo{Store: store}
	a, err := repo.CommitDir(t.Context(), files(t, 1), adapter("a", 1, 0))
	require.NoError(t, err)
	b, err := repo.CommitDir(t.Context(), files(t, 2), adapter("b", 1, 0))
	require.NoError(t, err)
	first, err := repo.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "one", Ref: a, Who: "x"})
	require.NoError(t, err)
	_, err = repo.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "two", Ref: b, Who: "x"})
	require.NoError(t, err)
	again, err := repo.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "one", Ref: a, Who: "x"})
	require.NoError(t, err)
	require.Equal(t, first, again, "a retried activity gets its first answer, though the alias has moved on")
	now, err := repo.Current(t.Context(), "production")
	require.NoError(t, err)
	require.Equal(t, b, now.Ref)

	// The reply to the one write that matters is lost, and the process dies: the
	// retry finds its own entry.
	dying := &checkpoints.Repo{Store: &Faulty{Store: store, Plan: func() func(Op) Fault {
		dead := atomic.Bool{}
		return func(op Op) Fault {
			if dead.Load() {
				return FailBefore
			}
			if op.Name == "create" {
				dead.Store(true)
				return LoseReply
			}
			return None
		}
	}()}}
	_, err = dying.Rollback(t.Context(), "production", checkpoints.RollbackRequest{ID: "three", Who: "x"})
	require.ErrorIs(t, err, checkpoints.ErrUnavailable)
	p, err := repo.Rollback(t.Context(), "production", checkpoints.RollbackRequest{ID: "three", Who: "x"})
	require.NoError(t, err)
	require.Equal(t, a, p.Ref)
	log, err := repo.History(t.Context(), "production")
	require.NoError(t, err)
	require.Len(t, log, 3)
}

// testRotAtRest damages each stored object in turn: every reader notices.
func testRotAtRest(t *testing.T, open Open) {
	store := open(t)
	repo := &checkpoints.Repo{Store: store}
	ref, err := repo.CommitDir(t.Context(), files(t, 1), adapter("rot", 1, 0))
	require.NoError(t, err)
	_, err = repo.Promote(t.Context(), "rotten", checkpoints.PromoteRequest{Ref: ref, Who: "x"})
	require.NoError(t, err)
	damaged := 0
	for _, key := range list(t, store, "", "") {
		good := get(t, store, key)
		if len(good) == 0 {
			continue
		}
		// Every part of a record matters; of a blob, any bit is as good as another.
		stride := len(good)
		if !strings.HasPrefix(key, "blobs/") {
			stride = 13
		}
		for at := stride / 2; at < len(good); at += stride {
			bad := bytes.Clone(good)
			bad[at] ^= 1
			put(t, store, key, bad)
			if strings.HasPrefix(key, "refs/") {
				_, err := repo.Current(t.Context(), "rotten")
				require.ErrorIs(t, err, checkpoints.ErrCorrupt, "%s byte %d", key, at)
				continue
			}
			_, err = repo.Verify(t.Context(), ref)
			require.ErrorIs(t, err, checkpoints.ErrCorrupt, "%s byte %d", key, at)
		}
		if !strings.HasPrefix(key, "refs/") {
			_, err := repo.Fetch(t.Context(), ref, filepath.Join(t.TempDir(), "dst"))
			require.ErrorIs(t, err, checkpoints.ErrCorrupt, key)
		}
		put(t, store, key, good)
		damaged++
	}
	require.Equal(t, 4, damaged, "two blobs, the manifest, the alias's entry")
	_, err = repo.Verify(t.Context(), ref)
	require.NoError(t, err)
}
