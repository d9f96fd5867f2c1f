package storetest

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/specstream/specstream/checkpoints"
)

// benchRun makes keys new: the testing package runs one benchmark several times.
var benchRun atomic.Int64

// Bench measures what the protocol does most: MB/s of large objects, and
// requests of small ones, by one client and by several.
func Bench(b *testing.B, open Open) {
	const large = 64 << 20
	body := RandomBytes(1, large)
	b.Run("Put64MiB", func(b *testing.B) {
		s := open(b)
		b.SetBytes(large)
		for i := range b.N {
			if err := s.Put(b.Context(), fmt.Sprintf("large/%d", i%4), bytes.NewReader(body), large); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Get64MiB", func(b *testing.B) {
		s := open(b)
		put(b, s, "large", body)
		b.SetBytes(large)
		b.ResetTimer()
		for range b.N {
			rc, _, err := s.Get(b.Context(), "large")
			if err != nil {
				b.Fatal(err)
			}
			n, err := io.Copy(io.Discard, rc)
			rc.Close()
			if err != nil || n != large {
				b.Fatal(n, err)
			}
		}
	})
	b.Run("Create1KiB", func(b *testing.B) {
		s, run := open(b), benchRun.Add(1)
		for i := range b.N {
			if err := s.PutIfAbsent(b.Context(), fmt.Sprintf("small/%d/%08d", run, i), body[:1024]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Create1KiBParallel", func(b *testing.B) {
		s, run := open(b), benchRun.Add(1)
		var n atomic.Int64
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if err := s.PutIfAbsent(b.Context(), fmt.Sprintf("parallel/%d/%08d", run, n.Add(1)), body[:1024]); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
	b.Run("GetRange4KiB", func(b *testing.B) {
		s := open(b)
		put(b, s, "large", body)
		b.SetBytes(4096)
		b.ResetTimer()
		for i := range b.N {
			rc, err := s.GetRange(b.Context(), "large", int64(i*4096)%(large-4096), 4096)
			if err != nil {
				b.Fatal(err)
			}
			_, err = io.Copy(io.Discard, rc)
			rc.Close()
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	const long = 256 << 20
	b.Run("PutFile256MiB", func(b *testing.B) {
		b.SetBytes(long)
		path := filepath.Join(b.TempDir(), "f")
		for i := range b.N {
			b.StopTimer() // a new file each time: blobs that are there already are not sent
			if err := os.WriteFile(path, RandomBytes(uint64(benchRun.Add(1)), long), 0o666); err != nil {
				b.Fatal(err)
			}
			repo := &checkpoints.Repo{Store: open(b)}
			b.StartTimer()
			if _, err := repo.PutFile(b.Context(), path); err != nil {
				b.Fatal(i, err)
			}
		}
	})
	b.Run("Fetch256MiB", func(b *testing.B) {
		b.SetBytes(long)
		repo := &checkpoints.Repo{Store: open(b)}
		dir := b.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "f"), RandomBytes(1, long), 0o666); err != nil {
			b.Fatal(err)
		}
		ref, err := repo.CommitDir(b.Context(), dir, checkpoints.Manifest{Kind: checkpoints.KindBase})
		if err != nil {
			b.Fatal(err)
		}
		b.ResetTimer()
		for i := range b.N {
			to := filepath.Join(b.TempDir(), fmt.Sprint(i))
			if _, err := repo.Fetch(b.Context(), ref, to); err != nil {
				b.Fatal(err)
			}
			b.StopTimer()
			if err := os.RemoveAll(to); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
}
