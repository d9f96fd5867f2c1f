package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUpToDate: the committed assembly is what this generator writes.
func TestUpToDate(t *testing.T) {
	const dir = "../.."
	files := generate()
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err, "run go generate ./kernels")
		require.True(t, want == string(got), "%s is stale: run go generate ./kernels", name)
		require.LessOrEqual(t, strings.Count(want, "\n"), maxLines, name)
	}
	present, err := filepath.Glob(filepath.Join(dir, "*.s"))
	require.NoError(t, err)
	for _, path := range present {
		require.Contains(t, files, filepath.Base(path), "left over from an older generator")
	}
}
