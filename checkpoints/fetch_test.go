package checkpoints_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/mem"
	"github.com/specstream/specstream/checkpoints/storetest"
)

func write(t testing.TB, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o777))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o666))
}

func read(t testing.TB, dir, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	require.NoError(t, err)
	return string(b)
}

// counting is a repository that counts bodies read.
func counting() (*checkpoints.Repo, *atomic.Int64) {
	var gets atomic.Int64
	return &checkpoints.Repo{Store: &storetest.Faulty{Store: mem.New(), Plan: func(op storetest.Op) storetest.Fault {
		if op.Name == "get" && op.Key[:6] == "blobs/" {
			gets.Add(1)
		}
		return storetest.None
	}}}, &gets
}

func TestCommitDir(t *testing.T) {
	r := newRepo()
	src := t.TempDir()
	write(t, src, "config.json", "{}")
	write(t, src, "sub/weights", "w")
	write(t, src, ".hidden", "no")
	write(t, src, ".git/config", "no")
	require.NoError(t, os.Symlink(filepath.Join(src, "sub", "weights"), filepath.Join(src, "link")))
	ref, err := r.CommitDir(t.Context(), src, checkpoints.Manifest{Kind: checkpoints.KindBase, Code: "v1"})
	require.NoError(t, err)
	m, err := r.ReadManifest(t.Context(), ref)
	require.NoError(t, err)
	names := []string{}
	for _, f := range m.Files {
		names = append(names, f.Name)
	}
	require.Equal(t, []string{"config.json", "link", "sub/weights"}, names)
	require.Equal(t, "v1", m.Code)
	require.EqualValues(t, 4, m.Size())
	f, ok := m.File("sub/weights")
	require.True(t, ok)
	require.Equal(t, digest("w"), f.Digest)
	_, ok = m.File("absent")
	require.False(t, ok)

	write(t, src, "config.json", "{ }")
	other, err := r.CommitDir(t.Context(), src, checkpoints.Manifest{Kind: checkpoints.KindBase})
	require.NoError(t, err, "another content is another run")
	require.NotEqual(t, ref.Key, other.Key)

	_, err = r.CommitDir(t.Context(), t.TempDir(), checkpoints.Manifest{Kind: checkpoints.KindBase})
	require.True(t, specstream.BadInput(err), "%v", err)
	_, err = r.CommitDir(t.Context(), filepath.Join(src, "absent"), checkpoints.Manifest{Kind: checkpoints.KindBase})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.Symlink(src, filepath.Join(src, "loop")))
	_, err = r.CommitDir(t.Context(), src, checkpoints.Manifest{Kind: checkpoints.KindBase})
	require.True(t, specstream.BadInput(err), "%v", err)
}

func TestFetchCaches(t *testing.T) {
	r, gets := counting()
	src := t.TempDir()
	write(t, src, "a", "one")
	write(t, src, "b/c", "two")
	ref, err := r.CommitDir(t.Context(), src, checkpoints.Manifest{Kind: checkpoints.KindBase})
	require.NoError(t, err)
	dir := filepath.Join(t.TempDir(), "cache", "base")
	fetch := func(want int64) {
		t.Helper()
		before := gets.Load()
		_, err := r.Fetch(t.Context(), ref, dir)
		require.NoError(t, err)
		require.Equal(t, "one", read(t, dir, "a"))
		require.Equal(t, "two", read(t, dir, "b/c"))
		require.Equal(t, want, gets.Load()-before, "downloads")
		entries, err := os.ReadDir(filepath.Dir(dir))
		require.NoError(t, err)
		require.Len(t, entries, 1, "nothing is left beside the folder")
	}
	fetch(2)
	fetch(0)
	write(t, dir, "extra", "a file more does no harm")
	fetch(0)
	require.NoError(t, os.Chtimes(filepath.Join(dir, "a"), time.Now(), time.Now().Add(time.Hour)))
	require.NoError(t, os.Remove(filepath.Join(dir, "extra")))
	fetch(0) // touched but equal: read, not downloaded
	write(t, dir, "a", "damaged")
	fetch(2)
	require.NoError(t, os.Remove(filepath.Join(dir, "b", "c")))
	fetch(2)
	require.NoError(t, os.Remove(filepath.Join(dir, checkpoints.Marker)))
	fetch(0) // somebody's copy, equal
	require.NoError(t, os.RemoveAll(dir))
	require.NoError(t, os.MkdirAll(dir, 0o777))
	fetch(2) // an empty folder is no obstacle
}

func TestFetchRefusesAnothersFolder(t *testing.T) {
	r := newRepo()
	ref := commit(t, r, "run", 1, 0, "x")
	dir := t.TempDir()
	write(t, dir, "notes.txt", "mine")
	_, err := r.Fetch(t.Context(), ref, dir)
	require.True(t, specstream.BadInput(err), "%v", err)
	require.Equal(t, "mine", read(t, dir, "notes.txt"))
	_, err = r.Fetch(t.Context(), ref, filepath.Join(dir, "notes.txt"))
	require.True(t, specstream.BadInput(err), "%v", err)
	_, err = r.Fetch(t.Context(), ref, filepath.Join(dir, "notes.txt", "below"))
	require.Error(t, err)
	require.Equal(t, "mine", read(t, dir, "notes.txt"))
}

func TestFetchConcurrently(t *testing.T) {
	r := newRepo()
	ref := commit(t, r, "run", 1, 0, "x")
	dir := filepath.Join(t.TempDir(), "d")
	for round := range 10 {
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				if _, err := r.Fetch(t.Context(), ref, dir); err != nil {
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		require.Equal(t, "x", read(t, dir, "f"))
		require.NoError(t, os.RemoveAll(dir))
	}
	left, err := os.ReadDir(filepath.Dir(dir))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestFetchSweepsTheDead(t *testing.T) {
	r := newRepo()
	ref := commit(t, r, "run", 1, 0, "x")
	parent := t.TempDir()
	for name, age := range map[string]time.Duration{".fetch-d-old": 48 * time.Hour, ".fetch-d-new": time.Hour, ".fetch-other-old": 48 * time.Hour} {
		path := filepath.Join(parent, name)
		require.NoError(t, os.Mkdir(path, 0o777))
		require.NoError(t, os.Chtimes(path, time.Now().Add(-age), time.Now().Add(-age)))
	}
	_, err := r.Fetch(t.Context(), ref, filepath.Join(parent, "d"))
	require.NoError(t, err)
	require.NoDirExists(t, filepath.Join(parent, ".fetch-d-old"))
	require.DirExists(t, filepath.Join(parent, ".fetch-d-new"))
	require.DirExists(t, filepath.Join(parent, ".fetch-other-old"))
}
