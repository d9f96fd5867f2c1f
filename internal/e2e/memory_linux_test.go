package e2e

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bigEnv says how large, in MB, the input of TestIngestMemory is.
const bigEnv = "SPECSTREAM_TEST_BIG_MB"

// maxRSS is the most memory an ingestion may take, in bytes.
const maxRSS = 600e6

// TestIngestMemory ingests one JSON array of conversations, with cleaning and
// near duplicates, in bounded memory. Its size does not matter: set the
// environment variable to 5000 to see.
func TestIngestMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("ingests some 100 MB")
	}
	f := setup(t)
	dir := t.TempDir()
	size := int64(120)
	if s := os.Getenv(bigEnv); s != "" {
		var err error
		size, err = strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
	}
	in := filepath.Join(dir, "chat.json")
	records := writeChat(t, in, size*1e6)
	tokenizer := filepath.Join(f.base, "tokenizer.json")
	if s := os.Getenv("SPECSTREAM_TEST_TOKENIZER"); s != "" {
		tokenizer = s
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Hour)
	defer cancel()
	c := command(ctx, "ingest", "--format", "sharegpt", "--template", "vicuna", "--tokenizer", tokenizer, "--overlong", "split", "--out", filepath.Join(dir, "out"), "--json", "--progress", "plain", in)
	c.Env = append(c.Env, "TMPDIR="+dir)
	var stdout, stderr strings.Builder
	c.Stdout, c.Stderr = &stdout, &stderr
	began := time.Now()
	require.NoError(t, c.Run(), &stderr)
	took := time.Since(began)
	var a account
	result{stdout: stdout.String()}.decode(t, &a)
	require.Equal(t, records, *a.Read)
	rss := c.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10
	t.Logf("%d MB, %d records, %d tokens in %v: %.1f MB/s, peak RSS %.0f MB", size, records, *a.Tokens, took.Round(time.Second), float64(size)/took.Seconds(), float64(rss)/1e6)
	require.Less(t, rss, int64(maxRSS))
}

// writeChat writes one JSON array of so many bytes of conversations in a made-up
// language, no two of them alike.
func writeChat(t testing.TB, path string, bytes int64) (records int64) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 8000)
	for i := range words {
		var w strings.Builder
		for range 1 + rng.IntN(4) {
			w.WriteByte("bcdfghjklmnprstvwz"[rng.IntN(18)])
			w.WriteByte("aeiou"[rng.IntN(5)])
			if rng.IntN(3) == 0 {
				w.WriteByte("nrslt"[rng.IntN(5)])
			}
		}
		words[i] = w.String()
	}
	f, err := os.Create(path)
	require.NoError(t, err)
	w := bufio.NewWriterSize(f, 1<<20)
	text := func(n int) {
		for range n {
			w.WriteString(words[int(float64(len(words))*rng.Float64()*rng.Float64())])
			w.WriteString([]string{" ", " ", " ", " ", " ", ", ", ". ", `.\n`}[rng.IntN(8)])
		}
		w.WriteByte('.')
	}
	var written int64
	w.WriteByte('[')
	for ; written < bytes; records++ {
		if records > 0 {
			w.WriteString(",\n")
		}
		fmt.Fprintf(w, `{"id":"chat_%d","conversations":[`, records)
		for turn := range 1 + rng.IntN(6) {
			if turn > 0 {
				w.WriteByte(',')
			}
			w.WriteString(`{"from":"human","value":"`)
			text(5 + rng.IntN(60))
			w.WriteString(`"},{"from":"gpt","value":"`)
			text(20 + rng.IntN(250))
			w.WriteString(`"}`)
		}
		w.WriteString("]}")
		if records%64 == 0 {
			require.NoError(t, w.Flush())
			written, err = f.Seek(0, 1)
			require.NoError(t, err)
		}
	}
	w.WriteByte(']')
	require.NoError(t, w.Flush())
	require.NoError(t, f.Close())
	return records
}
