package checkpoints_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/mem"
	"github.com/specstream/specstream/checkpoints/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRepo() *checkpoints.Repo { return &checkpoints.Repo{Store: mem.New()} }

// artefact is a manifest of one small file, stored.
func artefact(t testing.TB, r *checkpoints.Repo, run string, step, generation int64, text string) checkpoints.Manifest {
	t.Helper()
	d, err := r.PutBlob(t.Context(), []byte(text))
	require.NoError(t, err)
	return checkpoints.Manifest{Kind: checkpoints.KindAdapter, Run: run, Step: step, Generation: generation,
		Files: []checkpoints.File{{Name: "f", Digest: d, Size: int64(len(text))}}}
}

func commit(t testing.TB, r *checkpoints.Repo, run string, step, generation int64, text string) specstream.Ref {
	t.Helper()
	ref, err := r.Commit(t.Context(), artefact(t, r, run, step, generation, text))
	require.NoError(t, err)
	return ref
}

func keys(t testing.TB, s checkpoints.Store, prefix string) []string {
	t.Helper()
	var keys []string
	for info, err := range s.List(t.Context(), prefix, "") {
		require.NoError(t, err)
		keys = append(keys, info.Key)
	}
	return keys
}

func TestPutBlobOnce(t *testing.T) {
	puts := 0
	faulty := &storetest.Faulty{Store: mem.New(), Plan: func(op storetest.Op) storetest.Fault {
		if op.Name == "put" {
			puts++
		}
		return storetest.None
	}}
	r := &checkpoints.Repo{Store: faulty}
	for range 3 {
		d, err := r.PutBlob(t.Context(), []byte("bytes"))
		require.NoError(t, err)
		require.Equal(t, digest("bytes"), d)
	}
	require.Equal(t, 1, puts)
	require.Equal(t, []string{"blobs/sha256/" + digest("bytes").Hex()[:2] + "/" + digest("bytes").Hex()}, keys(t, faulty, ""))
}

func TestPutPieces(t *testing.T) {
	r := newRepo()
	for _, size := range []int{0, 1, 99, 100, 101, 1000, 1001, 5555} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			b := storetest.RandomBytes(uint64(size), size)
			f, err := r.PutPieces(t.Context(), bytes.NewReader(b), int64(size), 100)
			require.NoError(t, err)
			require.Equal(t, specstream.DigestBytes(b), f.Digest)
			if size <= 100 {
				require.Empty(t, f.Blobs)
			} else {
				require.Len(t, f.Blobs, (size+99)/100)
			}
			f.Name = "f"
			rd, err := r.OpenFile(t.Context(), f)
			require.NoError(t, err)
			defer rd.Close()
			require.EqualValues(t, size, rd.Size())
			got, err := io.ReadAll(io.NewSectionReader(rd, 0, rd.Size()))
			require.NoError(t, err)
			require.True(t, bytes.Equal(b, got))
			for _, at := range [][2]int{{0, 10}, {95, 10}, {99, 102}, {size - 1, 1}, {size - 5, 5}} {
				if at[0] < 0 || at[0]+at[1] > size {
					continue
				}
				p := make([]byte, at[1])
				_, err := rd.ReadAt(p, int64(at[0]))
				require.NoError(t, err)
				require.True(t, bytes.Equal(b[at[0]:at[0]+at[1]], p))
			}
			p := make([]byte, 10)
			n, err := rd.ReadAt(p, int64(size)-1)
			if size > 0 {
				require.Equal(t, 1, n)
				require.ErrorIs(t, err, io.EOF)
			} else {
				require.Error(t, err)
			}
			n, err = rd.ReadAt(p, int64(size)+100)
			require.Zero(t, n)
			require.ErrorIs(t, err, io.EOF)
		})
	}
	_, err := r.PutPieces(t.Context(), strings.NewReader("short"), 1000, 100)
	require.Error(t, err, "a file that shrinks is an error")
}

func TestPutPiecesFails(t *testing.T) {
	broken := errors.New("broken")
	r := &checkpoints.Repo{Store: failing{mem.New(), broken}}
	_, err := r.PutPieces(t.Context(), bytes.NewReader(make([]byte, 10_000)), 10_000, 100)
	require.ErrorIs(t, err, broken)
}

// failing refuses every Put for good.
type failing struct {
	*mem.Store
	err error
}

func (f failing) Put(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	return f.err
}

func TestPutFile(t *testing.T) {
	r := newRepo()
	path := filepath.Join(t.TempDir(), "some.bin")
	b := storetest.RandomBytes(1, 65<<20) // two pieces
	require.NoError(t, os.WriteFile(path, b, 0o666))
	f, err := r.PutFile(t.Context(), path)
	require.NoError(t, err)
	require.Equal(t, "some.bin", f.Name)
	require.Len(t, f.Blobs, 2)
	require.Equal(t, specstream.DigestBytes(b), f.Digest)
	require.NoError(t, f.Validate())

	_, err = r.PutFile(t.Context(), filepath.Dir(path))
	require.Error(t, err)
	_, err = r.PutFile(t.Context(), path+"absent")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFetchBlob(t *testing.T) {
	r := newRepo()
	d, err := r.PutBlob(t.Context(), []byte("bytes"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "b")
	require.NoError(t, r.FetchBlob(t.Context(), d, path))
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "bytes", string(b))
	require.ErrorIs(t, r.FetchBlob(t.Context(), digest("absent"), path), checkpoints.ErrNotFound)
	require.Error(t, r.FetchBlob(t.Context(), "sha256:../../x", path))
	rd, err := r.OpenBlob(t.Context(), d)
	require.NoError(t, err)
	defer rd.Close()
	require.EqualValues(t, 5, rd.Size())
}

// A long object may break off more often than an operation is tried, as long as
// each time more of it came.
func TestDownloadGoesOn(t *testing.T) {
	var cuts atomic.Int64
	faulty := &storetest.Faulty{Store: mem.New(), Plan: func(op storetest.Op) storetest.Fault {
		if (op.Name == "get" || op.Name == "range") && cuts.Add(1) <= 12 {
			return storetest.Cut
		}
		return storetest.None
	}}
	r := &checkpoints.Repo{Store: faulty}
	b := storetest.RandomBytes(9, 1<<20)
	d, err := r.PutBlob(t.Context(), b)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "b")
	require.NoError(t, r.FetchBlob(t.Context(), d, path))
	got, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(b, got))
	require.EqualValues(t, 12, faulty.Injected.Load())
}

// Lost replies and other passing faults do not reach the caller.
func TestOneLostReplyIsNoError(t *testing.T) {
	for _, op := range []string{"put", "create", "stat", "get", "list"} {
		for name, fault := range map[string]storetest.Fault{"lost reply": storetest.LoseReply, "not sent": storetest.FailBefore} {
			t.Run(op+" "+name, func(t *testing.T) {
				var once sync.Once
				r := &checkpoints.Repo{Store: &storetest.Faulty{Store: mem.New(), Plan: func(o storetest.Op) (f storetest.Fault) {
					if o.Name == op {
						once.Do(func() { f = fault })
					}
					return f
				}}}
				lease, _, err := r.Acquire(t.Context(), "run", "me")
				require.NoError(t, err)
				require.EqualValues(t, 1, lease.Generation)
				ref := commit(t, r, "run", 1, 1, "x")
				p, err := r.Promote(t.Context(), "alias", checkpoints.PromoteRequest{Ref: ref, Who: "me"})
				require.NoError(t, err)
				require.EqualValues(t, 1, p.Generation)
				require.Len(t, keys(t, r.Store, ""), 4, "blob, lease, manifest, alias: each once")
			})
		}
	}
}

func TestCommitRefuses(t *testing.T) {
	r := newRepo()
	commit(t, r, "run", 1, 0, "x")
	for _, c := range []struct {
		name string
		edit func(*checkpoints.Manifest)
		want error // nil: an InputError
	}{
		{"other content in the slot", func(m *checkpoints.Manifest) { *m = artefact(t, r, "run", 1, 0, "other") }, checkpoints.ErrConflict},
		{"no lease", func(m *checkpoints.Manifest) { m.Generation = 1 }, nil},
		{"bad name", func(m *checkpoints.Manifest) { m.Files[0].Name = "../x" }, nil},
		{"no files", func(m *checkpoints.Manifest) { m.Files = nil }, nil},
		{"wrong size", func(m *checkpoints.Manifest) { m.Step, m.Files[0].Size = 2, 99 }, checkpoints.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := artefact(t, r, "run", 1, 0, "x")
			c.edit(&m)
			_, err := r.Commit(t.Context(), m)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			} else {
				require.True(t, specstream.BadInput(err), err)
			}
		})
	}
	m := artefact(t, r, "run", 3, 0, "x")
	m.Files[0].Digest = digest("never put")
	_, err := r.Commit(t.Context(), m)
	require.ErrorContains(t, err, "is not in the store")
	require.Len(t, keys(t, r.Store, "manifests/"), 1)
}

func TestReadManifestRefuses(t *testing.T) {
	r := newRepo()
	ref := commit(t, r, "run", 1, 0, "x")
	other := commit(t, r, "run", 2, 0, "y")
	_, err := r.ReadManifest(t.Context(), specstream.Ref{Key: ref.Key, Digest: other.Digest})
	require.ErrorIs(t, err, checkpoints.ErrCorrupt)
	for _, bad := range []specstream.Ref{{}, {Key: ref.Key}, {Key: "refs/a/1.json", Digest: ref.Digest}, {Key: "manifests/a/b/../c.json", Digest: ref.Digest}, {Key: "manifests/run/1-0.json", Digest: ref.Digest}} {
		_, err := r.ReadManifest(t.Context(), bad)
		require.True(t, specstream.BadInput(err), "%v: %v", bad, err)
	}
	_, err = r.ReadManifest(t.Context(), specstream.Ref{Key: "manifests/run/00000009-00000000.json", Digest: ref.Digest})
	require.ErrorIs(t, err, checkpoints.ErrNotFound)
	// A manifest under another's key is not believed, though its own sum is right.
	b := readAll(t, r.Store, ref.Key)
	key := "manifests/run/00000007-00000000.json"
	require.NoError(t, r.Store.Put(t.Context(), key, bytes.NewReader(b), int64(len(b))))
	_, err = r.ReadManifest(t.Context(), specstream.Ref{Key: key, Digest: ref.Digest})
	require.ErrorIs(t, err, checkpoints.ErrCorrupt)
}

func readAll(t testing.TB, s checkpoints.Store, key string) []byte {
	t.Helper()
	rc, _, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	defer rc.Close()
	b, err := io.ReadAll(rc)
	require.NoError(t, err)
	return b
}

func TestAcquire(t *testing.T) {
	r := newRepo()
	l, resume, err := r.Acquire(t.Context(), "run", "one")
	require.NoError(t, err)
	require.Nil(t, resume)
	require.EqualValues(t, 1, l.Generation)
	commit(t, r, "run", 10, 1, "ten")
	twenty := commit(t, r, "run", 20, 1, "twenty")

	l, resume, err = r.Acquire(t.Context(), "run", "two")
	require.NoError(t, err)
	require.EqualValues(t, 2, l.Generation)
	require.EqualValues(t, 20, resume.Manifest.Step)
	require.Equal(t, []specstream.Ref{twenty}, resume.Manifest.Parents)
	require.Equal(t, "two", resume.Manifest.Writer)
	m, err := r.ReadManifest(t.Context(), resume.Ref)
	require.NoError(t, err)
	require.Equal(t, digestOf(t, r, twenty), m.Content)
	require.EqualValues(t, 2, m.Generation)

	_, err = r.Commit(t.Context(), artefact(t, r, "run", 30, 1, "late"))
	require.ErrorIs(t, err, checkpoints.ErrFenced)
	require.ErrorIs(t, r.CheckLease(t.Context(), "run", 1), checkpoints.ErrFenced)
	require.NoError(t, r.CheckLease(t.Context(), "run", 2))
	require.True(t, specstream.BadInput(r.CheckLease(t.Context(), "run", 3)))
	require.NoError(t, r.CheckLease(t.Context(), "other", 0))
	_, _, err = r.Acquire(t.Context(), "a/b", "x")
	require.True(t, specstream.BadInput(err))

	entries, err := r.Entries(t.Context(), "run")
	require.NoError(t, err)
	require.Equal(t, []checkpoints.Entry{
		{Key: "manifests/run/00000010-00000001.json", Step: 10, Generation: 1},
		{Key: "manifests/run/00000020-00000001.json", Step: 20, Generation: 1, Superseded: true},
		{Key: "manifests/run/00000020-00000002.json", Step: 20, Generation: 2},
	}, entries)
}

func digestOf(t testing.TB, r *checkpoints.Repo, ref specstream.Ref) specstream.Digest {
	t.Helper()
	m, err := r.ReadManifest(t.Context(), ref)
	require.NoError(t, err)
	return m.Content
}

func TestLatest(t *testing.T) {
	r := newRepo()
	_, _, ok, err := r.Latest(t.Context(), "run")
	require.NoError(t, err)
	require.False(t, ok)
	commit(t, r, "run", 2, 0, "two")
	want := commit(t, r, "run", 10, 0, "ten")
	commit(t, r, "run", 3, 0, "three")
	commit(t, r, "run-2", 99, 0, "another run's")
	require.NoError(t, r.Store.Put(t.Context(), "manifests/run/99999999-x.json", strings.NewReader("x"), 1))
	ref, m, ok, err := r.Latest(t.Context(), "run")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, want, ref)
	require.EqualValues(t, 10, m.Step)
}

func TestRunsAndAliases(t *testing.T) {
	r := newRepo()
	var want []string
	for _, run := range []string{"a", "a-b", "a.b", "a0", "b"} {
		for step := range int64(3) {
			ref := commit(t, r, run, step, 0, "x")
			_, err := r.Promote(t.Context(), run, checkpoints.PromoteRequest{Ref: ref, Who: "me"})
			require.NoError(t, err)
		}
		want = append(want, run)
	}
	for _, stray := range []string{"manifests/stray", "manifests/b/žluť", "manifests/b/žluť2", "manifests/č/x"} {
		require.NoError(t, r.Store.Put(t.Context(), stray, strings.NewReader("x"), 1))
	}
	runs, err := r.Runs(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, want, runs)
	aliases, err := r.Aliases(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, want, aliases)
}

func TestPromote(t *testing.T) {
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := newRepo()
	r.Now = func() time.Time { return clock }
	a, b := commit(t, r, "run", 1, 0, "a"), commit(t, r, "run", 2, 0, "b")
	_, err := r.Current(t.Context(), "production")
	require.ErrorIs(t, err, checkpoints.ErrNotFound)
	log, err := r.History(t.Context(), "production")
	require.NoError(t, err)
	require.Empty(t, log)

	zero, one := int64(0), int64(1)
	p, err := r.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "1", Ref: a, Who: "ann", Why: "better", Evidence: []specstream.Ref{b}, Expect: &zero})
	require.NoError(t, err)
	require.Equal(t, checkpoints.Promotion{Version: 1, Alias: "production", Generation: 1, Ref: a, ID: "1", Nonce: p.Nonce,
		Who: "ann", Why: "better", Evidence: []specstream.Ref{b}, At: clock, Sum: p.Sum}, p)
	_, err = r.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "2", Ref: b, Who: "bob", Expect: &zero})
	require.ErrorIs(t, err, checkpoints.ErrStale)
	_, err = r.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "2", Ref: b, Who: "bob", Expect: &one})
	require.NoError(t, err)
	again, err := r.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "1", Ref: a, Who: "ann", Expect: &zero})
	require.NoError(t, err, "a repeated request is answered, though its expectation no longer holds")
	require.Equal(t, p, again)

	now, err := r.Current(t.Context(), "production")
	require.NoError(t, err)
	require.Equal(t, b, now.Ref)
	log, err = r.History(t.Context(), "production")
	require.NoError(t, err)
	require.Len(t, log, 2)
	require.Equal(t, p, log[0])
	require.Equal(t, now, log[1])
}

func TestPromoteRefuses(t *testing.T) {
	r := newRepo()
	a, b := commit(t, r, "run", 1, 0, "a"), commit(t, r, "run", 2, 0, "b")
	_, err := r.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "1", Ref: a, Who: "ann"})
	require.NoError(t, err)
	for _, c := range []struct {
		name  string
		alias string
		req   checkpoints.PromoteRequest
		want  error // nil: an InputError
	}{
		{"the ID of another request", "production", checkpoints.PromoteRequest{ID: "1", Ref: b, Who: "ann"}, checkpoints.ErrConflict},
		{"nobody", "production", checkpoints.PromoteRequest{Ref: b}, nil},
		{"a bad alias", "../production", checkpoints.PromoteRequest{Ref: b, Who: "x"}, nil},
		{"no reference", "production", checkpoints.PromoteRequest{Who: "x"}, nil},
		{"bad evidence", "production", checkpoints.PromoteRequest{Ref: b, Who: "x", Evidence: []specstream.Ref{{Key: "k"}}}, nil},
		{"what is not committed", "production", checkpoints.PromoteRequest{Ref: specstream.Ref{Key: "manifests/run/00000009-00000000.json", Digest: a.Digest}, Who: "x"}, checkpoints.ErrNotFound},
		{"what has another digest", "production", checkpoints.PromoteRequest{Ref: specstream.Ref{Key: a.Key, Digest: b.Digest}, Who: "x"}, checkpoints.ErrCorrupt},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := r.Promote(t.Context(), c.alias, c.req)
			if c.want != nil {
				require.ErrorIs(t, err, c.want)
			} else {
				require.True(t, specstream.BadInput(err), "%v", err)
			}
		})
	}
	require.Len(t, keys(t, r.Store, "refs/"), 1)
}

func TestRollback(t *testing.T) {
	r := newRepo()
	_, err := r.Rollback(t.Context(), "production", checkpoints.RollbackRequest{Who: "x"})
	require.ErrorIs(t, err, checkpoints.ErrNotFound)
	refs := map[string]specstream.Ref{}
	for i, name := range []string{"a", "b", "b", "c"} {
		refs[name] = commit(t, r, "run", int64(i), 0, name)
		if name == "b" {
			refs[name] = commit(t, r, "run", 1, 0, name)
		}
		_, err := r.Promote(t.Context(), "production", checkpoints.PromoteRequest{Ref: refs[name], Who: "x"})
		require.NoError(t, err)
	}
	back := func(req checkpoints.RollbackRequest) checkpoints.Promotion {
		t.Helper()
		req.Who = "x"
		p, err := r.Rollback(t.Context(), "production", req)
		require.NoError(t, err)
		return p
	}
	p := back(checkpoints.RollbackRequest{ID: "r1"})
	require.Equal(t, refs["b"], p.Ref, "the newest that named something else than c")
	require.EqualValues(t, 3, p.RollbackTo)
	require.EqualValues(t, 5, p.Generation)
	require.Equal(t, p, back(checkpoints.RollbackRequest{ID: "r1"}), "a repeated request rolls back once")
	require.Equal(t, refs["a"], back(checkpoints.RollbackRequest{ID: "r2", To: 1}).Ref)
	for _, to := range []int64{-1, 7, 1 << 40} {
		_, err := r.Rollback(t.Context(), "production", checkpoints.RollbackRequest{To: to, Who: "x"})
		require.ErrorIs(t, err, checkpoints.ErrNotFound)
	}
	_, err = r.Rollback(t.Context(), "production", checkpoints.RollbackRequest{ID: "r2", To: 2, Who: "x"})
	require.ErrorIs(t, err, checkpoints.ErrConflict)
	_, err = r.Promote(t.Context(), "production", checkpoints.PromoteRequest{ID: "r2", Ref: refs["a"], Who: "x"})
	require.ErrorIs(t, err, checkpoints.ErrConflict, "a promotion is not the rollback of the same ID")
	stale := int64(2)
	_, err = r.Rollback(t.Context(), "production", checkpoints.RollbackRequest{Expect: &stale, Who: "x"})
	require.ErrorIs(t, err, checkpoints.ErrStale)
}

func TestLogWithAHoleIsCorrupt(t *testing.T) {
	r := newRepo()
	ref := commit(t, r, "run", 1, 0, "a")
	for range 3 {
		_, err := r.Promote(t.Context(), "production", checkpoints.PromoteRequest{Ref: ref, Who: "x"})
		require.NoError(t, err)
	}
	require.NoError(t, r.Store.Delete(t.Context(), keys(t, r.Store, "refs/")[1]))
	_, err := r.Current(t.Context(), "production")
	require.ErrorIs(t, err, checkpoints.ErrCorrupt)
}
