//go:build unix

package tokenizer

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestBenchPeer is the Go side of testdata/bench_peer.py, which runs it in a
// process of its own for each measurement: it encodes the texts of a file once,
// with a tokenizer that has encoded nothing before, and prints what that took.
func TestBenchPeer(t *testing.T) {
	file, path := os.Getenv("BENCH_TEXTS"), os.Getenv("BENCH_TOKENIZER")
	if file == "" {
		t.Skip("only testdata/bench_peer.py runs this")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	if err := json.Unmarshal(b, &texts); err != nil {
		t.Fatal(err)
	}
	tok, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	ids, n := []int32(nil), 0
	cpu, start := cpuTime(t), time.Now()
	for _, s := range texts {
		ids = tok.EncodeSpecial(ids[:0], s)
		n += len(ids)
	}
	wall, used := time.Since(start), cpuTime(t)-cpu
	fmt.Printf("BENCH {\"ids\": %d, \"wall\": %f, \"cpu\": %f, \"text\": %d}\n", n, wall.Seconds(), used.Seconds(), len(strings.Join(texts, "")))
}

// cpuTime is the processor time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		t.Fatal(err)
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
