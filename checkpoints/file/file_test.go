package file_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/file"
	"github.com/specstream/specstream/checkpoints/storetest"
)

// stores opens a new handle at each call, on one folder a test.
func stores() storetest.Open {
	dirs := map[testing.TB]string{}
	return func(t testing.TB) checkpoints.Store {
		if dirs[t] == "" {
			dirs[t] = t.TempDir()
		}
		s, err := file.Open(dirs[t])
		require.NoError(t, err)
		return s
	}
}

func TestStore(t *testing.T) { storetest.Run(t, stores()) }

func BenchmarkStore(b *testing.B) { storetest.Bench(b, stores()) }

func TestProtocol(t *testing.T) { storetest.RunProtocol(t, stores()) }
