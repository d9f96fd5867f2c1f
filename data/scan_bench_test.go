//go:build unix

package data

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkScanFile measures a file of ShareGPT conversations that
// $SPECSTREAM_BENCH_JSON names: scanning it, splitting its parts, and splitting
// and decoding them, by as many goroutines as Go uses CPUs. It reports wall time
// and, less moved by what else the machine does, CPU time. testdata/bench_scan.py
// compares it with DuckDB.
func BenchmarkScanFile(b *testing.B) {
	file := os.Getenv("SPECSTREAM_BENCH_JSON")
	if file == "" {
		b.Skip("SPECSTREAM_BENCH_JSON names no file")
	}
	f, err := FormatOf("sharegpt")
	require.NoError(b, err)
	s, err := Scan(b.Context(), ScanOptions{Format: f, URI: file, PartBytes: 8 << 20})
	require.NoError(b, err)
	for name, work := range map[string]func(b *testing.B){
		"scan": func(b *testing.B) {
			_, err := Scan(b.Context(), ScanOptions{Format: f, URI: file, PartBytes: 8 << 20})
			require.NoError(b, err)
		},
		"split":  func(b *testing.B) { require.Equal(b, s.Input.Records, readParts(b, f, s.Parts, false)) },
		"decode": func(b *testing.B) { require.Equal(b, s.Input.Records, readParts(b, f, s.Parts, true)) },
	} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(s.Input.Bytes)
			before := cpuTime(b)
			for b.Loop() {
				work(b)
			}
			b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// cpuTime is what the process has used so far.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// readParts reads parts in parallel and returns the number of records.
func readParts(b *testing.B, f Format, parts []Part, decode bool) int64 {
	var next, records atomic.Int64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(parts)); i = next.Add(1) - 1 {
				r, err := OpenPart(b.Context(), f, parts[i], nil, 0)
				if err != nil {
					b.Error(err)
					return
				}
				for {
					raw, err := r.NextRaw()
					if err == nil && decode {
						_, err = r.Decode(raw)
					}
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Error(err)
						return
					}
					records.Add(1)
				}
				if err := r.Close(); err != nil {
					b.Error(err)
				}
			}
		})
	}
	wg.Wait()
	return records.Load()
}
