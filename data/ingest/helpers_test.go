package ingest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// byteTokenizer has a token for each byte, and one that begins and one that
// ends a sequence.
type byteTokenizer struct{}

func (byteTokenizer) Encode(dst []int32, text string) []int32 {
	for i := range len(text) {
		dst = append(dst, int32(text[i]))
	}
	return dst
}

// EncodeMarked encodes each text by itself.
func (t byteTokenizer) EncodeMarked(dst []int32, texts []string, literal []bool) (ids []int32, marks []int) {
	n := len(dst)
	for i, s := range texts {
		switch {
		case s == "</s>" && !literal[i]:
			dst = append(dst, 257)
		case s == "<s>" && !literal[i]:
			dst = append(dst, 256)
		default:
			dst = t.Encode(dst, s)
		}
		marks = append(marks, len(dst)-n)
	}
	return dst, marks
}

func (byteTokenizer) Token(id int32) string { return map[int32]string{256: "<s>", 257: "</s>"}[id] }

func (byteTokenizer) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		if id < 256 {
			b = append(b, byte(id))
		}
	}
	return string(b)
}
func (byteTokenizer) BOS() (int32, bool)        { return 256, true }
func (byteTokenizer) EOS() (int32, bool)        { return 257, true }
func (byteTokenizer) VocabSize() int            { return 258 }
func (byteTokenizer) Digest() specstream.Digest { return specstream.DigestBytes([]byte("bytes")) }

// memBlobs keeps blobs in memory.
type memBlobs struct {
	mu    sync.Mutex
	m     map[specstream.Digest][]byte
	onPut func() error // may be nil
}

func (s *memBlobs) PutBlob(ctx context.Context, b []byte) (specstream.Digest, error) {
	if s.onPut != nil {
		if err := s.onPut(); err != nil {
			return "", err
		}
	}
	d := specstream.DigestBytes(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[specstream.Digest][]byte{}
	}
	s.m[d] = bytes.Clone(b)
	return d, ctx.Err()
}

type memBlob struct{ *bytes.Reader }

func (memBlob) Close() error { return nil }

func (s *memBlobs) OpenBlob(ctx context.Context, d specstream.Digest) (shard.BlobReader, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.m[d]
	if !ok {
		return nil, fmt.Errorf("blob %s: %w", d.Short(), fs.ErrNotExist)
	}
	return memBlob{bytes.NewReader(b)}, ctx.Err()
}

// memory opens texts; like a stored object's, their readers can seek.
func memory(files map[string]string) data.Opener {
	return func(ctx context.Context, uri string) (io.ReadCloser, error) {
		text, ok := files[uri]
		if !ok {
			return nil, fmt.Errorf("get %s: %w", uri, os.ErrNotExist)
		}
		return memBlob{bytes.NewReader([]byte(text))}, ctx.Err()
	}
}

// collect collects the quarantine.
func collect(to *[]Quarantined) func(Quarantined) error {
	return func(q Quarantined) error {
		*to = append(*to, q)
		return nil
	}
}

// samples reads a data set back.
func samples(t testing.TB, blobs Blobs, m shard.Manifest) (out []data.Sample) {
	t.Helper()
	ds, err := shard.OpenDataset(t.Context(), blobs, m, shard.DatasetOptions{})
	require.NoError(t, err)
	defer ds.Close()
	for rec, err := range ds.All(t.Context()) {
		require.NoError(t, err)
		got, err := shard.Samples(rec)
		require.NoError(t, err)
		for _, s := range got {
			alternatives := s.Alternatives
			s = keep(s)
			s.Alternatives = alternatives
			out = append(out, s)
		}
	}
	return out
}

func sqlLine(i int) string {
	return fmt.Sprintf(`{"question":"How many %d?","context":"CREATE TABLE t (a INTEGER)","answer":"SELECT COUNT(*) FROM t WHERE a = %d"}`, i, i) + "\n"
}

func sqlLines(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		b.WriteString(sqlLine(i))
	}
	return b.String()
}

func sumOf(m map[string]int64) (n int64) {
	for _, v := range m {
		n += v
	}
	return n
}

// with returns options for tests.
func with(files map[string]string, edit func(*Options)) Options {
	o := Options{Tokenizer: byteTokenizer{}, Open: memory(files), Blobs: &memBlobs{}}
	if edit != nil {
		edit(&o)
	}
	return o
}

type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

var errLost = errors.New("connection reset")
