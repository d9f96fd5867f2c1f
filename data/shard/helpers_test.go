package shard

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memBlobs is a store in memory that counts its calls.
type memBlobs struct {
	mu    sync.Mutex
	blobs map[specstream.Digest][]byte
	opens int
	puts  int
}

func newMemBlobs() *memBlobs { return &memBlobs{blobs: map[specstream.Digest][]byte{}} }

func (s *memBlobs) PutBlob(ctx context.Context, b []byte) (specstream.Digest, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.puts++
	d := specstream.DigestBytes(b)
	s.blobs[d] = b
	return d, nil
}

type memReader struct {
	*bytes.Reader
}

func (memReader) Close() error { return nil }

func (s *memBlobs) OpenBlob(ctx context.Context, d specstream.Digest) (BlobReader, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opens++
	b, ok := s.blobs[d]
	if !ok {
		return nil, fmt.Errorf("blob %s: %w", d, fs.ErrNotExist)
	}
	return memReader{bytes.NewReader(b)}, nil
}

// set puts bytes under a digest that need not be theirs.
func (s *memBlobs) set(d specstream.Digest, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.blobs[d] = b
}

func testLineage() Lineage {
	return Lineage{
		Spec:      specstream.DataSpec{Format: "sql", Inputs: []string{"a.json"}}.WithDefaults(),
		Template:  "plain/1",
		Tokenizer: specstream.DigestBytes([]byte("tokenizer")),
		VocabSize: 32000,
		Sources:   []Source{{URI: "a.json", Bytes: 10, SHA256: specstream.DigestBytes([]byte("a")), Records: 3}},
		Account:   Account{Read: 3, Kept: 2, Dropped: map[string]int64{"too long": 1}, Changed: map[string]int64{}},
	}
}

// randomSample makes a sample of about mean tokens; now and then one with
// nothing in it, or twenty times as long.
func randomSample(r *rand.Rand, i, mean int) data.Sample {
	n := 1 + r.IntN(2*mean)
	switch r.IntN(40) {
	case 0:
		return data.Sample{}
	case 1:
		n *= 20
	}
	s := data.Sample{ID: fmt.Sprintf("row-%d/1", i), Tokens: make([]int32, n)}
	for j := range s.Tokens {
		s.Tokens[j] = int32(min(r.ExpFloat64()*2000, 31999))
	}
	for at := 0; at < n; {
		start := at + r.IntN(n-at)
		end := start + 1 + r.IntN(n-start)
		s.Spans = append(s.Spans, data.Span{Start: start, End: end})
		at = end + r.IntN(3)
	}
	if r.IntN(5) > 0 {
		s.Prompt = strings.Repeat("Wie heißt die Spalte? ", r.IntN(8))
		s.Reference = "SELECT 列 FROM t" + strings.Repeat(" ;", r.IntN(9))
	}
	for range r.IntN(3) {
		s.Alternatives = append(s.Alternatives, strings.Repeat("α", r.IntN(4)))
	}
	return s
}

func randomSamples(seed uint64, n, mean int) []data.Sample {
	r := rand.New(rand.NewPCG(seed, 1))
	out := make([]data.Sample, n)
	for i := range out {
		out[i] = randomSample(r, i, mean)
	}
	return out
}

// write stores samples and returns their manifest.
func write(t testing.TB, o Options, samples []data.Sample) Manifest {
	t.Helper()
	w, err := NewWriter(o)
	require.NoError(t, err)
	for _, s := range samples {
		require.NoError(t, w.Write(t.Context(), s))
	}
	m, err := w.Commit(t.Context(), testLineage())
	require.NoError(t, err)
	return m
}

func open(t testing.TB, b Blobs, m Manifest, o DatasetOptions) *Dataset {
	t.Helper()
	d, err := OpenDataset(t.Context(), b, m, o)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// copySamples takes a record's rows out of its memory.
func copySamples(t testing.TB, rec arrow.Record) []data.Sample {
	t.Helper()
	view, err := Samples(rec)
	require.NoError(t, err)
	out := make([]data.Sample, len(view))
	for i, s := range view {
		out[i] = data.Sample{ID: strings.Clone(s.ID), Tokens: slices.Clone(s.Tokens), Spans: slices.Clone(s.Spans),
			Prompt: strings.Clone(s.Prompt), Reference: strings.Clone(s.Reference)}
		for _, a := range s.Alternatives {
			out[i].Alternatives = append(out[i].Alternatives, strings.Clone(a))
		}
	}
	return out
}

// requireSamples compares samples, nil and empty slices being the same.
func requireSamples(t testing.TB, want, got []data.Sample) {
	t.Helper()
	require.Equal(t, len(want), len(got))
	for i := range want {
		w, g := want[i], got[i]
		if w.ID != g.ID || w.Prompt != g.Prompt || w.Reference != g.Reference || !slices.Equal(w.Tokens, g.Tokens) ||
			!slices.Equal(w.Spans, g.Spans) || !slices.Equal(w.Alternatives, g.Alternatives) {
			t.Fatalf("sample %d: want %+v, got %+v", i, w, g)
		}
	}
}
