package remote

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server serves one object with faults.
type server struct {
	*httptest.Server
	t       testing.TB
	mu      sync.Mutex
	asked   []string // Range and If-Range of every request
	content []byte
	etag    string
	fault   func(n int, w http.ResponseWriter, r *http.Request) (done bool)
	// noRanges answers 200 to everything; noLength doesn't tell the length.
	noRanges, noLength bool
	cut                int // bytes of an answer before the connection is cut; 0: none
}

func serve(t testing.TB, content []byte) *server {
	s := &server{t: t, content: content, etag: `"one"`}
	s.Server = httptest.NewServer(http.HandlerFunc(s.handle))
	t.Cleanup(s.Server.Close)
	return s
}

func (s *server) handle(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, r.Header.Get("Range")+" "+r.Header.Get("If-Range"))
	if r.Header.Get("Accept-Encoding") != "identity" {
		s.t.Errorf("Accept-Encoding %q", r.Header.Get("Accept-Encoding"))
	}
	if s.fault != nil && s.fault(len(s.asked), w, r) {
		return
	}
	if s.etag != "" {
		w.Header().Set("ETag", s.etag)
	}
	if s.noRanges {
		r.Header.Del("Range")
		w.Header().Set("Accept-Ranges", "none")
	}
	if s.noLength {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
	}
	out := http.ResponseWriter(w)
	if s.cut > 0 {
		out = &cutter{ResponseWriter: w, left: s.cut}
	}
	if s.noLength {
		_, _ = out.Write(s.content)
		return
	}
	http.ServeContent(out, r, "", time.Time{}, bytes.NewReader(s.content))
}

// cutter cuts the connection after some bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p[:min(len(p), c.left)])
	if c.left -= n; c.left == 0 && n < len(p) {
		c.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

func (s *server) requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *server) opener() data.Opener {
	return Opener(s.Client(), Options{Backoff: time.Millisecond, Stall: 300 * time.Millisecond, Tries: 4})
}

func read(t testing.TB, open data.Opener, uri string) ([]byte, error) {
	t.Helper()
	rc, err := open(t.Context(), uri)
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	return io.ReadAll(rc)
}

func random(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func TestRead(t *testing.T) {
	for _, size := range []int{0, 1, 1000, 300_000} {
		for name, set := range map[string]func(*server){
			"ranges": func(*server) {}, "no ranges": func(s *server) { s.noRanges = true }, "no length": func(s *server) { s.noRanges, s.noLength = true, true },
			"no entity tag": func(s *server) { s.etag = "" }, "weak entity tag": func(s *server) { s.etag = `W/"one"` },
		} {
			t.Run(fmt.Sprint(size, name), func(t *testing.T) {
				s := serve(t, random(size))
				set(s)
				got, err := read(t, s.opener(), s.URL+"/x")
				require.NoError(t, err)
				require.True(t, bytes.Equal(s.content, got))
				require.Len(t, s.requests(), 1, "one request, and no HEAD before it")
			})
		}
	}
}

// TestResume: a connection that is cut again and again costs no byte, and none is
// fetched twice where the server has ranges.
func TestResume(t *testing.T) {
	content := random(100_000)
	for _, c := range []struct {
		name     string
		set      func(*server)
		requests int
		second   string
	}{
		{"ranges", func(s *server) { s.cut = 30_000 }, 4, `bytes=30000- "one"`},
		{"weak entity tag", func(s *server) { s.cut, s.etag = 30_000, `W/"one"` }, 4, "bytes=30000- "},
		{"nothing to tell versions by", func(s *server) { s.cut, s.etag = 30_000, "" }, 4, "bytes=30000- "},
		{"no ranges", func(s *server) {
			s.noRanges = true
			s.fault = func(n int, _ http.ResponseWriter, _ *http.Request) bool { s.cut = 30_000 * n; return false }
		}, 4, `bytes=30000- "one"`},
		{"no length", func(s *server) {
			s.noRanges, s.noLength = true, true
			s.fault = func(n int, _ http.ResponseWriter, _ *http.Request) bool { s.cut = 30_000 * n; return false }
		}, 4, `bytes=30000- "one"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, content)
			c.set(s)
			got, err := read(t, s.opener(), s.URL+"/x")
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, got))
			asked := s.requests()
			require.Len(t, asked, c.requests)
			require.Equal(t, c.second, asked[1])
		})
	}
}

func TestChanged(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *server)
		want   string
	}{
		{"entity tag", func(s *server) { s.etag = `"two"` }, `its entity tag was "one" and is "two"`},
		{"entity tag, no ranges", func(s *server) { s.etag, s.noRanges = `"two"`, true }, `its entity tag was "one" and is "two"`},
		{"length", func(s *server) { s.etag, s.content = "", s.content[:90_000] }, "it had 100000 bytes and has 90000"},
		{"cut behind", func(s *server) { s.etag, s.content = "", s.content[:10_000] }, "it had 100000 bytes and has 10000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, random(100_000))
			s.fault = func(n int, _ http.ResponseWriter, _ *http.Request) bool {
				if s.cut = 0; n == 1 {
					s.cut = 30_000
				} else {
					c.change(s)
				}
				return false
			}
			got, err := read(t, s.opener(), s.URL+"/x")
			require.ErrorContains(t, err, "the input changed while it was read: "+c.want)
			require.True(t, specstream.BadInput(err))
			require.Len(t, got, 30_000, "nothing of the other version is given out")
		})
	}
}

// TestStorm: answers of 503 and 429 are waited out, Retry-After is kept, and a
// server that never comes back is given up.
func TestStorm(t *testing.T) {
	s := serve(t, random(1000))
	s.fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n < 4 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader([]int{503, 429, 500}[n-1])
		}
		return n < 4
	}
	got, err := read(t, s.opener(), s.URL+"/x")
	require.NoError(t, err)
	require.Len(t, got, 1000)
	require.Len(t, s.requests(), 4)

	s = serve(t, nil)
	s.fault = func(_ int, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(503); return true }
	_, err = read(t, s.opener(), s.URL+"/x")
	require.ErrorContains(t, err, "gave up after 4 tries")
	require.ErrorContains(t, err, "503 Service Unavailable")
	require.False(t, specstream.BadInput(err), "worth another try later")
	require.Len(t, s.requests(), 4)

	s = serve(t, random(10))
	var first, second time.Time
	s.fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if second = time.Now(); n == 1 {
			first = second
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(429)
		}
		return n == 1
	}
	_, err = read(t, s.opener(), s.URL+"/x")
	require.NoError(t, err)
	require.GreaterOrEqual(t, second.Sub(first), time.Second)
}

func TestRetryAfter(t *testing.T) {
	require.Equal(t, 7*time.Second, retryAfter(" 7"))
	require.Zero(t, retryAfter(""))
	require.Zero(t, retryAfter("soon"))
	require.Zero(t, retryAfter("-3"))
	require.InDelta(t, 60, retryAfter(time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)).Seconds(), 2)
	require.Zero(t, retryAfter(time.Now().Add(-time.Minute).UTC().Format(http.TimeFormat)))
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		status int
		want   string
		absent bool
	}{{404, "there is no such input", true}, {410, "there is no such input", true}, {403, "access is refused", false}, {401, "access is refused", false}, {400, "can't be fetched", false}} {
		s := serve(t, nil)
		s.fault = func(_ int, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(c.status); return true }
		_, err := read(t, s.opener(), s.URL+"/x")
		require.ErrorContains(t, err, c.want)
		require.True(t, specstream.BadInput(err))
		require.Equal(t, c.absent, errors.Is(err, fs.ErrNotExist))
		require.Len(t, s.requests(), 1, "no second try")
	}
	for _, uri := range []string{"https://", "http://\x00", "hf://models/a/b/c", "hf://datasets/a", "hf://datasets/a/b", "hf://datasets//b/c", "hf://datasets/a/b@/c", "hf://datasets/a/b@%zz/c"} {
		_, err := read(t, Opener(nil, Options{}), uri)
		require.True(t, specstream.BadInput(err), uri)
	}
}

// TestWrongLength: a server that states more bytes than it has is given up, and
// one that answers with another range than was asked for is not believed.
func TestWrongLength(t *testing.T) {
	s := serve(t, nil)
	s.fault = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Length", "100")
		_, _ = w.Write(make([]byte, 60))
		return true
	}
	_, err := read(t, s.opener(), s.URL+"/x")
	require.ErrorContains(t, err, "gave up after 4 tries")
	require.False(t, specstream.BadInput(err))

	s = serve(t, random(1000))
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if s.cut = 400; n > 1 {
			w.Header().Set("Content-Range", "bytes 0-999/1000")
			w.WriteHeader(206)
		}
		return n > 1
	}
	got, err := read(t, s.opener(), s.URL+"/x")
	require.ErrorContains(t, err, "asked for bytes from 400 on")
	require.Len(t, got, 400)
}

func TestStall(t *testing.T) {
	s := serve(t, random(10_000))
	release := make(chan struct{})
	t.Cleanup(func() { close(release) })
	s.fault = func(n int, w http.ResponseWriter, r *http.Request) bool {
		if n == 1 {
			w.Header().Set("ETag", s.etag)
			w.Header().Set("Content-Range", "bytes 0-9999/10000")
			w.WriteHeader(206)
			_, _ = w.Write(s.content[:5000])
			w.(http.Flusher).Flush()
		}
		if n <= 2 { // the second says nothing at all
			s.mu.Unlock()
			select {
			case <-release:
			case <-r.Context().Done():
			}
			s.mu.Lock()
		}
		return n <= 2
	}
	got, err := read(t, s.opener(), s.URL+"/x")
	require.NoError(t, err)
	require.True(t, bytes.Equal(s.content, got))
	require.Len(t, s.requests(), 3)
}

func TestCancel(t *testing.T) {
	s := serve(t, random(1000))
	s.fault = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(503)
		return true
	}
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(why) })
	start := time.Now()
	_, err := s.opener()(ctx, s.URL+"/x")
	require.ErrorIs(t, err, why)
	require.Less(t, time.Since(start), 10*time.Second)

	s = serve(t, random(1000))
	ctx, cancel = context.WithCancelCause(t.Context())
	rc, err := s.opener()(ctx, s.URL+"/x")
	require.NoError(t, err)
	cancel(why)
	_, err = io.ReadAll(rc)
	require.ErrorIs(t, err, why)
	require.NoError(t, rc.Close())
}

func TestSeek(t *testing.T) {
	content := random(200_000)
	for _, noRanges := range []bool{false, true} {
		s := serve(t, content)
		s.noRanges, s.cut = noRanges, 150_000
		if noRanges {
			s.cut = 0
		}
		rc, err := s.opener()(t.Context(), s.URL+"/x")
		require.NoError(t, err)
		f := rc.(io.ReadSeeker)
		r := rand.New(rand.NewPCG(1, 2))
		for range 50 {
			off, n := r.Int64N(int64(len(content)+1)), r.IntN(5000)
			whence := r.IntN(3)
			at, err := f.Seek(off-[]int64{0, must(f.Seek(0, io.SeekCurrent)), int64(len(content))}[whence], whence)
			require.NoError(t, err)
			require.Equal(t, off, at)
			b := make([]byte, n)
			got, err := io.ReadFull(f, b)
			want := content[off:min(off+int64(n), int64(len(content)))]
			require.Equal(t, len(want), got)
			require.True(t, bytes.Equal(want, b[:got]))
			if got < n {
				require.Contains(t, []error{io.EOF, io.ErrUnexpectedEOF}, err)
			}
			if !noRanges {
				got, err = rc.(io.ReaderAt).ReadAt(b, off)
				require.True(t, bytes.Equal(want, b[:got]))
				require.Equal(t, got < n, err == io.EOF)
			}
		}
		_, err = f.Seek(-1, io.SeekStart)
		require.Error(t, err)
		if noRanges {
			_, err = rc.(io.ReaderAt).ReadAt(make([]byte, 1), 0)
			require.ErrorContains(t, err, "no range requests")
		}
		require.NoError(t, rc.Close())
	}
}

func must(n int64, err error) int64 {
	if err != nil {
		panic(err)
	}
	return n
}

func sqlLines(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"question":"How many %d?","context":"c","answer":"SELECT %d"}`+"\n", i, i)
	}
	return b.String()
}

// TestScanAndRead scans and reads inputs over a server that cuts every answer.
func TestScanAndRead(t *testing.T) {
	f, err := data.FormatOf("sql")
	require.NoError(t, err)
	lines := sqlLines(3000)
	var packed, rows bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err = z.Write([]byte(lines))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	type row struct {
		Question string `parquet:"question"`
		Context  string `parquet:"context"`
		Answer   string `parquet:"answer"`
	}
	w := parquet.NewGenericWriter[row](&rows, parquet.MaxRowsPerRowGroup(500))
	for i := range 3000 {
		_, err := w.Write([]row{{fmt.Sprintf("How many %d?", i), "c", fmt.Sprintf("SELECT %d", i)}})
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	for _, c := range []struct {
		name    string
		content []byte
		parts   int
		encoded string
	}{{"lines", []byte(lines), 11, ""}, {"gzip", packed.Bytes(), 1, ""}, {"content encoding gzip", packed.Bytes(), 1, "gzip"}, {"Parquet", rows.Bytes(), 3, ""}} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, c.content)
			s.cut = 20_000
			s.fault = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				if c.encoded != "" {
					w.Header().Set("Content-Encoding", c.encoded)
					w.Header().Set("Content-Length", strconv.Itoa(len(c.content)))
					s.cut = 0
				}
				return false
			}
			uri := s.URL + "/data?download=true"
			got, err := data.Scan(t.Context(), data.ScanOptions{Format: f, URI: uri, Open: s.opener(), PartBytes: 20_000, Pin: specstream.DigestBytes(c.content)})
			require.NoError(t, err)
			require.InDelta(t, c.parts, len(got.Parts), 3)
			n := 0
			for _, p := range got.Parts {
				before := len(s.requests())
				r, err := data.OpenPart(t.Context(), f, p, s.opener(), 0)
				require.NoError(t, err)
				for {
					rec, err := r.Next()
					if err == io.EOF {
						break
					}
					require.NoError(t, err)
					require.Equal(t, fmt.Sprintf("SELECT %d", n), rec.Turns[1].Text)
					n++
				}
				require.NoError(t, r.Close())
				if c.name == "lines" && p.Start > 70_000 {
					require.Contains(t, s.requests()[before+1], fmt.Sprintf("bytes=%d-", p.Start), "what lies before a part is not fetched")
				}
			}
			require.Equal(t, 3000, n)
		})
	}
	s := serve(t, rows.Bytes())
	s.noRanges = true
	_, err = data.Scan(t.Context(), data.ScanOptions{Format: f, URI: s.URL + "/x", Open: s.opener()})
	require.ErrorContains(t, err, "its server answers no range requests")
	require.True(t, specstream.BadInput(err))

	s = serve(t, []byte("x"))
	s.fault = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Encoding", "br")
		return false
	}
	_, err = read(t, s.opener(), s.URL+"/x")
	require.ErrorContains(t, err, `content encoding "br"`)
}

func TestOtherInputs(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a.txt")
	require.NoError(t, os.WriteFile(file, []byte("local"), 0o600))
	got, err := read(t, Opener(nil, Options{}), file)
	require.NoError(t, err)
	require.Equal(t, "local", string(got))
	_, err = read(t, Opener(nil, Options{}), "s3://bucket/key")
	require.ErrorContains(t, err, "no store for s3://")
	for uri, want := range map[string]bool{"https://a/b": true, "http://a": true, "hf://datasets/a/b/c": true, "s3://a/b": false, "a/b": false, "https": false} {
		require.Equal(t, want, Handles(uri), uri)
	}
}

func TestCredentialsInAddress(t *testing.T) {
	s := serve(t, nil)
	s.fault = func(_ int, w http.ResponseWriter, r *http.Request) bool {
		user, password, _ := r.BasicAuth()
		require.Equal(t, "u:p4ss", user+":"+password)
		w.WriteHeader(404)
		return true
	}
	_, err := read(t, s.opener(), strings.Replace(s.URL, "http://", "http://u:p4ss@", 1)+"/x")
	require.ErrorContains(t, err, "there is no such input")
	require.NotContains(t, err.Error(), "p4ss")
}
