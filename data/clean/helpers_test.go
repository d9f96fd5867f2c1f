package clean

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"runtime"
	"runtime/metrics"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/internal/testdata"
)

func newCleaner(t testing.TB, spec specstream.CleanSpec) *Cleaner {
	t.Helper()
	c, err := New(spec.WithDefaults())
	require.NoError(t, err)
	return c
}

// chat makes a record of turns that alternate, the user's first.
func chat(turns ...string) data.Record {
	r := data.Record{Source: "in.json", Number: 7}
	for i, t := range turns {
		r.Turns = append(r.Turns, data.Turn{Role: []data.Role{data.User, data.Assistant}[i%2], Text: t})
	}
	return r
}

// conversations reads a ShareGPT array of the shared data as it stands: index i
// of the array is record i+1.
func conversations(t testing.TB, rel string) []data.Record {
	t.Helper()
	f, err := os.Open(testdata.Shared(t, rel))
	require.NoError(t, err)
	defer f.Close()
	var in io.Reader = f
	if strings.HasSuffix(rel, ".gz") {
		in, err = gzip.NewReader(f)
		require.NoError(t, err)
	}
	type message struct{ From, Value, Role, Content string }
	var list []struct{ Conversations, Messages []message }
	require.NoError(t, json.NewDecoder(in).Decode(&list))
	roles := map[string]data.Role{"human": data.User, "user": data.User, "system": data.System, "observation": data.User}
	out := make([]data.Record, 0, len(list))
	for i, e := range list {
		r := data.Record{Source: rel, Number: int64(i) + 1}
		for _, m := range append(e.Conversations, e.Messages...) {
			role, ok := roles[strings.ToLower(m.From+m.Role)]
			if !ok {
				role = data.Assistant
			}
			r.Turns = append(r.Turns, data.Turn{Role: role, Text: m.Value + m.Content})
		}
		out = append(out, r)
	}
	return out
}

// signatures writes a signature file; numbers count from 1.
func signatures(t testing.TB, sigs []Signature) SignatureSource {
	t.Helper()
	var b bytes.Buffer
	w := NewSignatureWriter(&b)
	for i, s := range sigs {
		require.NoError(t, w.Write(int64(i)+1, s))
	}
	require.NoError(t, w.Close())
	return bytes.NewReader(b.Bytes())
}

// cut makes signature files of parts of the given sizes, and one of the rest.
func cut(t testing.TB, sigs []Signature, sizes ...int) []SignatureSource {
	t.Helper()
	var out []SignatureSource
	for _, n := range sizes {
		n = min(n, len(sigs))
		out = append(out, signatures(t, sigs[:n]))
		sigs = sigs[n:]
	}
	return append(out, signatures(t, sigs))
}

func dedupe(t testing.TB, c *Cleaner, files []SignatureSource) []Duplicate {
	t.Helper()
	var out []Duplicate
	dir := t.TempDir()
	require.NoError(t, c.Dedupe(context.Background(), files, dir, func(d Duplicate) error {
		out = append(out, d)
		return nil
	}))
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left, "scratch files are removed")
	return out
}

// watchHeap samples the memory in use on the heap until the function it returns
// is called, which tells the most.
func watchHeap(tb testing.TB) func() uint64 {
	tb.Helper()
	stop, done := make(chan struct{}), make(chan uint64)
	runtime.GC()
	go func() {
		var most uint64
		sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
		for {
			metrics.Read(sample)
			most = max(most, sample[0].Value.Uint64())
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
	}()
	return func() uint64 {
		close(stop)
		return <-done
	}
}

// reportCPU runs a benchmark and reports megabytes by processor time, which
// other work on the machine disturbs less than the clock.
func reportCPU(b *testing.B, size int64, work func()) {
	b.Helper()
	used := func() time.Duration {
		var u syscall.Rusage
		require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.SetBytes(size)
	begin := used()
	for b.Loop() {
		work()
	}
	b.ReportMetric(float64(size)*float64(b.N)/1e6/(used()-begin).Seconds(), "cpu-MB/s")
}
