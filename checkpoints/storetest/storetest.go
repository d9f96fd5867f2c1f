// Package storetest is the one suite that every [checkpoints.Store] passes, the
// faults it is tried with, and the benchmarks that compare stores.
package storetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream/checkpoints"
)

// Open returns the store under test. Each call may return a handle of its own,
// but all handles of one test show the same objects, and no others.
type Open func(t testing.TB) checkpoints.Store

// Run tests the contract of [checkpoints.Store].
func Run(t *testing.T, open Open) {
	for _, c := range []struct {
		name string
		test func(*testing.T, Open)
	}{
		{"PutGet", testPutGet},
		{"PutOverwrites", testPutOverwrites},
		{"PutWrongSize", testPutWrongSize},
		{"PutIfAbsent", testPutIfAbsent},
		{"PutIfAbsentRace", testPutIfAbsentRace},
		{"Range", testRange},
		{"NotFound", testNotFound},
		{"Keys", testKeys},
		{"BadKeys", testBadKeys},
		{"DirectoryKey", testDirectoryKey},
		{"ListOrder", testListOrder},
		{"ListPages", testListPages},
		{"ListStops", testListStops},
		{"Delete", testDelete},
		{"Cancelled", testCancelled},
		{"CancelledMidway", testCancelledMidway},
		{"Large", testLarge},
		{"NoTornRead", testNoTornRead},
		{"Probe", testProbe},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

// RandomBytes returns n bytes that are the same for equal seeds and do not compress.
func RandomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	var s [32]byte
	for i := range 8 {
		s[i] = byte(seed >> (8 * i))
	}
	rand.NewChaCha8(s).Read(b) // never fails
	return b
}

func put(t testing.TB, s checkpoints.Store, key string, b []byte) {
	t.Helper()
	require.NoError(t, s.Put(t.Context(), key, bytes.NewReader(b), int64(len(b))))
}

func get(t testing.TB, s checkpoints.Store, key string) []byte {
	t.Helper()
	rc, info, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	defer rc.Close()
	b, err := io.ReadAll(rc)
	require.NoError(t, err)
	require.Equal(t, key, info.Key)
	require.EqualValues(t, len(b), info.Size)
	return b
}

func list(t testing.TB, s checkpoints.Store, prefix, startAfter string) []string {
	t.Helper()
	keys := []string{}
	for info, err := range s.List(t.Context(), prefix, startAfter) {
		require.NoError(t, err)
		keys = append(keys, info.Key)
	}
	return keys
}

func testPutGet(t *testing.T, open Open) {
	s := open(t)
	for _, n := range []int{0, 1, 4095, 1 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			key := fmt.Sprintf("putget/%d", n)
			want := RandomBytes(uint64(n), n)
			before := time.Now()
			put(t, s, key, want)
			require.True(t, bytes.Equal(want, get(t, s, key)), "content differs")
			info, err := s.Stat(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, key, info.Key)
			require.EqualValues(t, n, info.Size)
			require.WithinDuration(t, before, info.ModTime, time.Minute)
		})
	}
}

func testPutOverwrites(t *testing.T, open Open) {
	s := open(t)
	body := bytes.NewReader([]byte("second"))
	_, err := body.Seek(3, io.SeekStart)
	require.NoError(t, err)
	put(t, s, "k", []byte("first, and longer"))
	require.NoError(t, s.Put(t.Context(), "k", body, 6), "Put reads from the start wherever the body stands")
	require.Equal(t, "second", string(get(t, s, "k")))
	require.Equal(t, []string{"k"}, list(t, s, "", ""))
}

func testPutWrongSize(t *testing.T, open Open) {
	s := open(t)
	require.Error(t, s.Put(t.Context(), "short", strings.NewReader("abc"), 5))
	_, err := s.Stat(t.Context(), "short")
	require.ErrorIs(t, err, checkpoints.ErrNotFound, "a failed Put leaves nothing")
}

func testPutIfAbsent(t *testing.T, open Open) {
	s := open(t)
	require.NoError(t, s.PutIfAbsent(t.Context(), "d/k", []byte("one")))
	require.ErrorIs(t, s.PutIfAbsent(t.Context(), "d/k", []byte("two")), checkpoints.ErrExists)
	require.ErrorIs(t, s.PutIfAbsent(t.Context(), "d/k", []byte("one")), checkpoints.ErrExists, "equal bytes are no excuse after a clear answer")
	require.Equal(t, "one", string(get(t, s, "d/k")))
	require.NoError(t, s.PutIfAbsent(t.Context(), "empty", nil))
	require.ErrorIs(t, s.PutIfAbsent(t.Context(), "empty", nil), checkpoints.ErrExists)
	put(t, s, "over", []byte("x"))
	require.ErrorIs(t, s.PutIfAbsent(t.Context(), "over", []byte("y")), checkpoints.ErrExists)
	require.NoError(t, s.Delete(t.Context(), "d/k"))
	require.NoError(t, s.PutIfAbsent(t.Context(), "d/k", []byte("again")))
	require.Equal(t, "again", string(get(t, s, "d/k")))
}

// testPutIfAbsentRace lets 16 writers, each with a handle of its own, race for one key, many times.
func testPutIfAbsentRace(t *testing.T, open Open) {
	const writers, rounds = 16, 20
	stores := make([]checkpoints.Store, writers)
	for w := range stores {
		stores[w] = open(t)
	}
	for round := range rounds {
		key := fmt.Sprintf("race/%03d/k", round)
		errs := make([]error, writers)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				<-start
				errs[w] = stores[w].PutIfAbsent(t.Context(), key, fmt.Appendf(nil, "writer %d of round %d", w, round))
			})
		}
		close(start)
		wg.Wait()
		winner := -1
		for w, err := range errs {
			if err == nil {
				require.Equal(t, -1, winner, "writers %d and %d both won round %d", winner, w, round)
				winner = w
				continue
			}
			require.ErrorIs(t, err, checkpoints.ErrExists)
		}
		require.NotEqual(t, -1, winner, "nobody won round %d", round)
		require.Equal(t, fmt.Sprintf("writer %d of round %d", winner, round), string(get(t, stores[0], key)))
	}
}

func testRange(t *testing.T, open Open) {
	s := open(t)
	b := RandomBytes(1, 10_000)
	put(t, s, "r", b)
	put(t, s, "zero", nil)
	for _, c := range []struct{ off, n, want int64 }{
		{0, 1, 1}, {0, 10_000, 10_000}, {9_999, 1, 1}, {5_000, 100, 100}, {9_990, 100, 10}, {0, 1 << 40, 10_000},
	} {
		t.Run(fmt.Sprintf("%d+%d", c.off, c.n), func(t *testing.T) {
			rc, err := s.GetRange(t.Context(), "r", c.off, c.n)
			require.NoError(t, err)
			defer rc.Close()
			got, err := io.ReadAll(rc)
			require.NoError(t, err)
			require.True(t, bytes.Equal(b[c.off:c.off+c.want], got), "got %d bytes", len(got))
		})
	}
	for _, c := range []struct {
		name   string
		key    string
		off, n int64
	}{
		{"at the end", "r", 10_000, 1}, {"past the end", "r", 20_000, 5}, {"negative offset", "r", -1, 5},
		{"no length", "r", 0, 0}, {"negative length", "r", 0, -1}, {"empty object", "zero", 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.GetRange(t.Context(), c.key, c.off, c.n)
			require.ErrorIs(t, err, checkpoints.ErrRange)
		})
	}
}

func testNotFound(t *testing.T, open Open) {
	s := open(t)
	put(t, s, "dir/sub/file", []byte("x"))
	for _, key := range []string{"absent", "dir", "dir/sub", "dir/sub/absent", "dir/sub/file/below", "a/b/c/d"} {
		t.Run(strings.ReplaceAll(key, "/", "_"), func(t *testing.T) {
			_, _, err := s.Get(t.Context(), key)
			require.ErrorIs(t, err, checkpoints.ErrNotFound)
			_, err = s.GetRange(t.Context(), key, 0, 1)
			require.ErrorIs(t, err, checkpoints.ErrNotFound)
			_, err = s.Stat(t.Context(), key)
			require.ErrorIs(t, err, checkpoints.ErrNotFound)
			require.NoError(t, s.Delete(t.Context(), key))
		})
	}
	require.Equal(t, "x", string(get(t, s, "dir/sub/file")))
}

var strangeKeys = []string{
	"plain", "with space/and two  spaces", " leading", "trailing ", "plus+sign", "percent%41%2F", "amp&eq=quest?hash#",
	"quotes'\"`", "brackets[](){}<>", "colon:semi;comma,", "at@dollar$excl!star*", "tilde~caret^pipe|",
	"unicode/žluťoučký/模型/🙂", "combining/é", "not-ascii-space/\u00a0", "CASE/Case", "case/case", "meta", "meta/meta", "dots.in..name",
	"trailing.", "-dash", "_under", "long/" + strings.Repeat("n", checkpoints.MaxSegment),
	strings.Repeat("deep/", 100) + "end", strings.Repeat("wide-segment-"+strings.Repeat("w", 150)+"/", 5) + "k",
}

func testKeys(t *testing.T, open Open) {
	s := open(t)
	var want []string
	for _, key := range strangeKeys {
		if key == "meta" {
			continue // "meta/meta" needs it as a directory
		}
		require.NoError(t, checkpoints.ValidateKey(key), key)
		put(t, s, key, []byte("old"))
		put(t, s, key, []byte(key))
		require.ErrorIs(t, s.PutIfAbsent(t.Context(), key, []byte("x")), checkpoints.ErrExists, key)
		want = append(want, key)
	}
	slices.Sort(want)
	require.Equal(t, want, list(t, s, "", ""))
	for _, key := range want {
		require.Equal(t, key, string(get(t, s, key)))
		require.Equal(t, key, list(t, s, key, "")[0], "a key is a prefix of itself")
		if i := strings.LastIndexByte(key, '/'); i >= 0 {
			require.Contains(t, list(t, s, key[:i+1], ""), key)
		}
	}
	for _, key := range want {
		require.NoError(t, s.Delete(t.Context(), key))
	}
	require.Empty(t, list(t, s, "", ""))
}

// BadKeys are refused by every store.
var BadKeys = []string{
	"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", ".hidden", "a/.hidden", "nul\x00", "tab\t", "line\n",
	"back\\slash", "bad\xffutf8", "del\x7f", strings.Repeat("s", checkpoints.MaxSegment+1), strings.Repeat("d/", checkpoints.MaxKey/2) + "d",
}

func testBadKeys(t *testing.T, open Open) {
	s := open(t)
	for _, key := range BadKeys {
		t.Run(fmt.Sprintf("%.20q", key), func(t *testing.T) {
			_, _, err := s.Get(t.Context(), key)
			require.ErrorIs(t, err, checkpoints.ErrKey)
			_, err = s.GetRange(t.Context(), key, 0, 1)
			require.ErrorIs(t, err, checkpoints.ErrKey)
			_, err = s.Stat(t.Context(), key)
			require.ErrorIs(t, err, checkpoints.ErrKey)
			require.ErrorIs(t, s.Put(t.Context(), key, strings.NewReader("x"), 1), checkpoints.ErrKey)
			require.ErrorIs(t, s.PutIfAbsent(t.Context(), key, []byte("x")), checkpoints.ErrKey)
			require.ErrorIs(t, s.Delete(t.Context(), key), checkpoints.ErrKey)
		})
	}
	require.Empty(t, list(t, s, "", ""))
}

// testDirectoryKey: a key that is a directory of another may be refused or
// held, but never takes anything else away.
func testDirectoryKey(t *testing.T, open Open) {
	s := open(t)
	put(t, s, "a/b", []byte("under"))
	if err := s.Put(t.Context(), "a", strings.NewReader("over"), 4); err != nil {
		require.NotErrorIs(t, err, checkpoints.ErrUnavailable, "a refusal is permanent")
	}
	require.Error(t, s.PutIfAbsent(t.Context(), "a/b", nil))
	put(t, s, "f", []byte("file"))
	if err := s.Put(t.Context(), "f/g", strings.NewReader("over"), 4); err != nil {
		require.NotErrorIs(t, err, checkpoints.ErrUnavailable, "a refusal is permanent")
	}
	require.Equal(t, "under", string(get(t, s, "a/b")))
	require.Equal(t, "file", string(get(t, s, "f")))
}

func testListOrder(t *testing.T, open Open) {
	s := open(t)
	// '-' and '.' sort before '/', '0' after: directory order is not key order.
	want := []string{"a-b/x", "a.b", "a/x", "a/y/z", "a0", "b/1-1", "b/1/1", "b/1/2", "b/10", "b/2", "b1"}
	slices.Sort(want)
	for _, i := range rand.Perm(len(want)) {
		put(t, s, want[i], []byte("x"))
	}
	from := func(prefix, after string) []string {
		keys := []string{}
		for _, k := range want {
			if strings.HasPrefix(k, prefix) && k > after {
				keys = append(keys, k)
			}
		}
		return keys
	}
	for _, prefix := range []string{"", "a", "a/", "a/y", "b/1", "b/1/", "b/", "c", "a/x/", "a/x", "../", ".", "a//"} {
		for _, after := range append([]string{"", "a", "a/", "a/x", "b/1/1x", "b/1", "zzz", "a-", "A"}, want...) {
			require.Equal(t, from(prefix, after), list(t, s, prefix, after), "prefix %q after %q", prefix, after)
		}
	}
}

// testListPages lists more keys than one page of S3 holds.
func testListPages(t *testing.T, open Open) {
	s := open(t)
	const n = 1_250
	want := make([]string, n)
	var wg sync.WaitGroup
	next := make(chan int)
	for range 8 {
		wg.Go(func() {
			for i := range next {
				if err := s.PutIfAbsent(t.Context(), want[i], []byte("x")); err != nil {
					t.Errorf("put %s: %v", want[i], err)
				}
			}
		})
	}
	for i := range n {
		want[i] = fmt.Sprintf("pages/%02d/%08d", i/100, i)
		next <- i
	}
	close(next)
	wg.Wait()
	require.Equal(t, want, list(t, s, "pages/", ""))
	require.Equal(t, want[1_100:], list(t, s, "pages/", want[1_099]))
}

func testListStops(t *testing.T, open Open) {
	s := open(t)
	for i := range 5 {
		put(t, s, fmt.Sprintf("d%d/k", i), []byte("x"))
	}
	seen := 0
	for _, err := range s.List(t.Context(), "", "") {
		require.NoError(t, err)
		if seen++; seen == 2 {
			break
		}
	}
	require.Equal(t, 2, seen)
}

func testDelete(t *testing.T, open Open) {
	s := open(t)
	require.NoError(t, s.Delete(t.Context(), "x/absent"))
	put(t, s, "x/y/one", []byte("1"))
	put(t, s, "x/two", []byte("2"))
	require.NoError(t, s.Delete(t.Context(), "x/y/one"))
	require.NoError(t, s.Delete(t.Context(), "x/y/one"))
	require.Equal(t, []string{"x/two"}, list(t, s, "", ""))
	put(t, s, "x/y/one", []byte("again"))
	require.Equal(t, "again", string(get(t, s, "x/y/one")))
}

func testCancelled(t *testing.T, open Open) {
	s := open(t)
	put(t, s, "k", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	start := time.Now()
	_, _, err := s.Get(ctx, "k")
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.GetRange(ctx, "k", 0, 1)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Stat(ctx, "k")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, s.Put(ctx, "new", strings.NewReader("x"), 1), context.Canceled)
	require.ErrorIs(t, s.PutIfAbsent(ctx, "new", []byte("x")), context.Canceled)
	require.ErrorIs(t, s.Delete(ctx, "k"), context.Canceled)
	err = nil
	for _, err = range s.List(ctx, "", "") {
		if err != nil {
			break
		}
	}
	require.ErrorIs(t, err, context.Canceled, "a cancelled List must not look like an empty one")
	require.Less(t, time.Since(start), 5*time.Second)
	require.Equal(t, []string{"k"}, list(t, s, "", ""))
}

// slowBody cancels a context once half of it is read.
type slowBody struct {
	*bytes.Reader
	cancel func()
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.Len() <= int(b.Size()/2) {
		b.cancel()
	}
	return b.Reader.Read(p[:min(len(p), 64<<10)])
}

func (b *slowBody) ReadAt([]byte, int64) (int, error) {
	return 0, errors.New("a store reads a body through Read and Seek alone")
}

func (b *slowBody) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{b})
}

func testCancelledMidway(t *testing.T, open Open) {
	s := open(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := s.Put(ctx, "half", &slowBody{bytes.NewReader(RandomBytes(3, 8<<20)), cancel}, 8<<20)
	require.ErrorIs(t, err, context.Canceled)
	_, err = s.Stat(t.Context(), "half")
	require.ErrorIs(t, err, checkpoints.ErrNotFound, "half an object must not be visible")
}

func testLarge(t *testing.T, open Open) {
	s := open(t)
	n := 40 << 20 // past every client's multipart threshold
	if testing.Short() {
		n = 17 << 20
	}
	b := RandomBytes(4, n)
	put(t, s, "large", b)
	rc, info, err := s.Get(t.Context(), "large")
	require.NoError(t, err)
	defer rc.Close()
	require.EqualValues(t, n, info.Size)
	h := sha256.New()
	_, err = io.Copy(h, rc)
	require.NoError(t, err)
	want := sha256.Sum256(b)
	require.Equal(t, want[:], h.Sum(nil))
}

// testNoTornRead overwrites an object while others read it: each reads one of the versions, whole.
func testNoTornRead(t *testing.T, open Open) {
	s := open(t)
	const versions, size = 20, 200_000
	body := func(v int) []byte { return bytes.Repeat([]byte{byte(v)}, size+v) }
	put(t, s, "torn", body(0))
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				rc, _, err := s.Get(t.Context(), "torn")
				if err != nil {
					t.Errorf("get: %v", err)
					return
				}
				b, err := io.ReadAll(rc)
				rc.Close()
				if err != nil {
					t.Errorf("read: %v", err)
					return
				}
				if len(b) == 0 || !bytes.Equal(b, body(int(b[0]))) {
					t.Errorf("torn read of %d bytes", len(b))
					return
				}
			}
		})
	}
	for v := 1; v < versions; v++ {
		put(t, s, "torn", body(v))
	}
	close(done)
	wg.Wait()
}

func testProbe(t *testing.T, open Open) {
	s := open(t)
	for _, c := range checkpoints.Probe(t.Context(), s) {
		require.NoError(t, c.Err, c.Name)
	}
	require.Empty(t, list(t, s, "", ""), "the probe cleans up")
}
