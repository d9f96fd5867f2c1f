package jobs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestScratchFolders(t *testing.T) {
	e := &Env{Work: t.TempDir()}
	used, removeUsed, err := e.scratch()
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(used, "file"), nil, 0o644))

	// What a killed process leaves: a folder whose lock nobody holds.
	left := filepath.Join(e.Work, scratchPrefix+"left")
	require.NoError(t, os.MkdirAll(filepath.Join(left, "state"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(left, scratchLock), nil, 0o644))
	// A process may also be killed before it has a lock.
	bare := filepath.Join(e.Work, scratchPrefix+"bare")
	require.NoError(t, os.Mkdir(bare, 0o755))
	other := filepath.Join(e.Work, "shards")
	require.NoError(t, os.Mkdir(other, 0o755))

	next, removeNext, err := e.scratch()
	require.NoError(t, err)
	require.NotEqual(t, used, next)
	require.FileExists(t, filepath.Join(used, "file"), "a folder in use stays")
	require.NoDirExists(t, left)
	require.NoDirExists(t, bare)
	require.DirExists(t, other, "caches stay")

	require.NoError(t, removeUsed())
	require.NoError(t, removeNext())
	require.NoDirExists(t, used)
	require.NoDirExists(t, next)
}
