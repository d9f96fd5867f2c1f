// Package testdata finds the real data sets that some tests read and that are
// not part of the repository.
package testdata

import (
	"os"
	"path/filepath"
	"testing"
)

// Shared returns the path of a file of the shared data folder: the one named by
// SPECSTREAM_DATA, else shared/data beside the repository. It skips the test
// when the file is absent.
func Shared(t testing.TB, rel string) string {
	t.Helper()
	root := os.Getenv("SPECSTREAM_DATA")
	if root == "" {
		dir, err := os.Getwd()
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
				root = filepath.Join(filepath.Dir(dir), "shared", "data")
				break
			}
			up := filepath.Dir(dir)
			if up == dir {
				t.Skip("not inside the repository, so the shared data folder cannot be found; set SPECSTREAM_DATA")
			}
			dir = up
		}
	}
	p := filepath.Join(root, rel)
	if _, err := os.Stat(p); err != nil {
		t.Skipf("needs %s of the shared data sets, which is absent here; set SPECSTREAM_DATA to their folder", rel)
	}
	return p
}
