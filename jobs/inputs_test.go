package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/mem"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/remote"
)

// torn is a store whose bodies break off.
type torn struct {
	checkpoints.Store
	after int64 // bytes; 0: never
	calls int
}

type tornBody struct {
	io.ReadCloser
	left int64
}

func (b *tornBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, fmt.Errorf("%w: connection reset", checkpoints.ErrUnavailable)
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}

func (s *torn) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.calls++
	r, err := s.Store.GetRange(ctx, key, off, n)
	if err != nil || s.after == 0 {
		return r, err
	}
	return &tornBody{r, s.after}, nil
}

func s3Inputs(t testing.TB, objects map[string][]byte, after int64) (inputs, *torn) {
	t.Helper()
	s := &torn{Store: mem.New(), after: after}
	for key, b := range objects {
		require.NoError(t, s.Put(t.Context(), key, bytes.NewReader(b), int64(len(b))))
	}
	return inputs{other: data.OpenFile, listOther: remote.Lister(nil, remote.Options{}), store: func(_ context.Context, uri string) (checkpoints.Store, error) {
		if uri != "s3://bucket" {
			return nil, fmt.Errorf("no bucket %s", uri)
		}
		return s, nil
	}}, s
}

func TestObjectsAreReadAgainWhereTheyBreakOff(t *testing.T) {
	want := make([]byte, 100_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(want)
	in, s := s3Inputs(t, map[string][]byte{"a/b": want, "empty": nil}, 7000)
	r, err := in.open(t.Context(), "s3://bucket/a/b")
	require.NoError(t, err)
	got, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Greater(t, s.calls, 10)
	require.NoError(t, r.Close())

	r, err = in.open(t.Context(), "s3://bucket/empty")
	require.NoError(t, err)
	got, err = io.ReadAll(r)
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestObjectsSeek(t *testing.T) {
	want := []byte("0123456789abcdefghij")
	in, s := s3Inputs(t, map[string][]byte{"k": want}, 0)
	rc, err := in.open(t.Context(), "s3://bucket/k")
	require.NoError(t, err)
	defer rc.Close()
	r := rc.(interface {
		io.ReadSeeker
		io.ReaderAt
		Size() int64
	})
	require.Equal(t, int64(20), r.Size())
	require.Zero(t, s.calls, "opening asks for no bytes")
	end, err := r.Seek(0, io.SeekEnd)
	require.NoError(t, err)
	require.Equal(t, int64(20), end)
	_, err = r.Seek(10, io.SeekStart)
	require.NoError(t, err)
	buf := make([]byte, 3)
	_, err = io.ReadFull(r, buf)
	require.NoError(t, err)
	require.Equal(t, "abc", string(buf))
	at, err := r.Seek(-2, io.SeekCurrent)
	require.NoError(t, err)
	require.Equal(t, int64(11), at)
	n, err := r.ReadAt(buf, 18)
	require.Equal(t, 2, n)
	require.ErrorIs(t, err, io.EOF)
	n, err = r.ReadAt(buf, 4)
	require.NoError(t, err)
	require.Equal(t, "456", string(buf[:n]))
	rest, err := io.ReadAll(r)
	require.NoError(t, err)
	require.Equal(t, "bcdefghij", string(rest))
	_, err = r.Seek(-1, io.SeekStart)
	require.Error(t, err)
}

func TestObjectErrors(t *testing.T) {
	in, _ := s3Inputs(t, nil, 0)
	_, err := in.open(t.Context(), "s3://bucket/absent")
	require.ErrorContains(t, err, "s3://bucket/absent: no such object")
	require.True(t, specstream.BadInput(err))
	_, err = in.open(t.Context(), "s3://bucket")
	require.True(t, specstream.BadInput(err))
	ctx, cancel := context.WithCancel(t.Context())
	in, _ = s3Inputs(t, map[string][]byte{"k": make([]byte, 100)}, 1)
	r, err := in.open(ctx, "s3://bucket/k")
	require.NoError(t, err)
	cancel()
	_, err = io.ReadAll(r)
	require.ErrorIs(t, err, context.Canceled)
}

func TestListObjects(t *testing.T) {
	objects := map[string][]byte{}
	for _, k := range []string{"d/a1.json", "d/a2.json", "d/b.json", "d/sub/a3.json", "e/a4.json", "d/a5.csv"} {
		objects[k] = []byte("x")
	}
	in, _ := s3Inputs(t, objects, 0)
	for _, c := range []struct {
		pattern string
		want    []string
		fails   bool
	}{
		{"s3://bucket/d/a*.json", []string{"s3://bucket/d/a1.json", "s3://bucket/d/a2.json"}, false},
		{"s3://bucket/*/a?.json", []string{"s3://bucket/d/a1.json", "s3://bucket/d/a2.json", "s3://bucket/e/a4.json"}, false},
		{"s3://bucket/d/[ab]*.json", []string{"s3://bucket/d/a1.json", "s3://bucket/d/a2.json", "s3://bucket/d/b.json"}, false},
		{"s3://bucket/nothing*", nil, false},
		{"s3://bucket/d/[a", nil, true},
		{"https://host/*.json", nil, true},
	} {
		t.Run(c.pattern, func(t *testing.T) {
			got, err := in.list(t.Context(), c.pattern)
			require.Equal(t, c.fails, err != nil)
			require.Equal(t, c.fails, specstream.BadInput(err))
			require.Equal(t, c.want, got)
		})
	}
}

func TestStoreMemo(t *testing.T) {
	s := mem.New()
	m := storeMemo{s}
	key := specstream.DigestBytes([]byte("key")).Hex()
	_, ok, err := m.Get(t.Context(), key)
	require.NoError(t, err)
	require.False(t, ok)
	for range 2 {
		require.NoError(t, m.Put(t.Context(), key, []byte("value")))
	}
	b, ok, err := m.Get(t.Context(), key)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "value", string(b))
	info, err := s.Stat(t.Context(), "memo/ingest/"+key[:2]+"/"+key+".json")
	require.NoError(t, err)
	require.Equal(t, int64(5), info.Size)

	down := storeMemo{unavailable{s}}
	_, _, err = down.Get(t.Context(), key)
	require.ErrorIs(t, err, checkpoints.ErrUnavailable)
}

type unavailable struct{ checkpoints.Store }

var errDown = errors.Join(checkpoints.ErrUnavailable)

func (unavailable) Get(context.Context, string) (io.ReadCloser, checkpoints.Info, error) {
	return nil, checkpoints.Info{}, errDown
}
