package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/s3"
	"github.com/specstream/specstream/checkpoints/storetest"
	"github.com/specstream/specstream/infra/s3server"
)

// faulty opens a store whose requests fail as planned.
func faulty(t testing.TB, cfg s3.Config, plan func(int64, *http.Request) storetest.HTTPFault) (*s3.Store, *storetest.Transport) {
	var tr *storetest.Transport
	cfg.WrapTransport = func(base http.RoundTripper) http.RoundTripper {
		tr = &storetest.Transport{Base: base, Plan: plan}
		return tr
	}
	return open(t, cfg), tr
}

// TestOneFault meets each kind of fault with each operation, once, on its first
// request: the operation succeeds, and has happened exactly once.
func TestOneFault(t *testing.T) {
	t.Parallel()
	endpoint := server(t, "").Endpoint()
	clean := open(t, config(endpoint))
	body := storetest.RandomBytes(1, 300_000)
	for name, fault := range map[string]storetest.HTTPFault{
		"unsent": storetest.Unsent, "reply lost": storetest.ReplyLost, "busy": storetest.Busy, "conflict": storetest.ConflictRetry,
		"upload flipped": storetest.UploadFlipped, "upload cut": storetest.UploadCut,
	} {
		t.Run(name, func(t *testing.T) {
			prefix := fmt.Sprintf("fault%d/", fault)
			for op, do := range map[string]func(*s3.Store) error{
				"put": func(s *s3.Store) error {
					return s.Put(t.Context(), prefix+"put", bytes.NewReader(body), int64(len(body)))
				},
				"create": func(s *s3.Store) error { return s.PutIfAbsent(t.Context(), prefix+"create", body) },
				"get":    func(s *s3.Store) error { return same(s, prefix+"there", body) },
				"stat": func(s *s3.Store) error {
					_, err := s.Stat(t.Context(), prefix+"there")
					return err
				},
				"list": func(s *s3.Store) error {
					for _, err := range s.List(t.Context(), prefix+"there", "") {
						return err
					}
					return errors.New("empty list")
				},
				"delete": func(s *s3.Store) error { return s.Delete(t.Context(), prefix+"gone") },
				"absent": func(s *s3.Store) error {
					if _, err := s.Stat(t.Context(), prefix+"absent"); !errors.Is(err, checkpoints.ErrNotFound) {
						return fmt.Errorf("want ErrNotFound, got %w", err)
					}
					return nil
				},
			} {
				t.Run(op, func(t *testing.T) {
					require.NoError(t, clean.Put(t.Context(), prefix+"there", bytes.NewReader(body), int64(len(body))))
					s, _ := faulty(t, config(endpoint), func(n int64, _ *http.Request) storetest.HTTPFault {
						if n == 0 {
							return fault
						}
						return storetest.NoFault
					})
					require.NoError(t, do(s))
				})
			}
			for _, key := range []string{"put", "create"} {
				require.NoError(t, same(clean, prefix+key, body), "what landed is what was sent")
			}
			// Another's object stays another's, whatever happens to the answer.
			require.NoError(t, clean.PutIfAbsent(t.Context(), prefix+"theirs", []byte("theirs")))
			s, _ := faulty(t, config(endpoint), func(n int64, _ *http.Request) storetest.HTTPFault {
				if n == 0 {
					return fault
				}
				return storetest.NoFault
			})
			require.ErrorIs(t, s.PutIfAbsent(t.Context(), prefix+"theirs", []byte("ours, longer")), checkpoints.ErrExists)
		})
	}
}

func same(s *s3.Store, key string, want []byte) error {
	rc, _, err := s.Get(context.Background(), key)
	if err != nil {
		return err
	}
	defer rc.Close()
	got, err := io.ReadAll(rc)
	if err != nil {
		return err
	}
	if !bytes.Equal(want, got) {
		return errors.New("content differs")
	}
	return nil
}

// TestOneRequest: an upload of any size is one request. In parts it would lose
// its condition, and a crash could leave parts behind.
func TestOneRequest(t *testing.T) {
	var puts atomic.Int64
	s, _ := faulty(t, config(server(t, "").Endpoint()), func(_ int64, req *http.Request) storetest.HTTPFault {
		if req.Method != http.MethodGet {
			puts.Add(1)
		}
		return storetest.NoFault
	})
	body := storetest.RandomBytes(1, 20<<20) // the client library would cut it at 16 MiB
	require.NoError(t, s.Put(t.Context(), "put", bytes.NewReader(body), int64(len(body))))
	require.NoError(t, s.PutIfAbsent(t.Context(), "create", body))
	require.EqualValues(t, 2, puts.Load())
	// The server refuses while the body is under way, which may look like a
	// broken connection; other bytes under the key settle it.
	other := storetest.RandomBytes(2, len(body))
	require.ErrorIs(t, s.PutIfAbsent(t.Context(), "create", other), checkpoints.ErrExists)
	require.NoError(t, same(s, "create", body))
}

// TestBrokenReply: a body that breaks off says so, in a way that Repo resumes from.
func TestBrokenReply(t *testing.T) {
	endpoint := server(t, "").Endpoint()
	body := storetest.RandomBytes(2, 1<<20)
	clean := &checkpoints.Repo{Store: open(t, config(endpoint))}
	d, err := clean.PutBlob(t.Context(), body)
	require.NoError(t, err)
	for name, fault := range map[string]storetest.HTTPFault{
		"cut": storetest.ReplyCut, "truncated": storetest.ReplyTruncated, "flipped": storetest.ReplyFlipped,
	} {
		t.Run(name, func(t *testing.T) {
			s, tr := faulty(t, config(endpoint), func(n int64, req *http.Request) storetest.HTTPFault {
				if req.Method == http.MethodGet && n < 6 {
					return fault
				}
				return storetest.NoFault
			})
			repo := &checkpoints.Repo{Store: s}
			path := filepath.Join(t.TempDir(), "blob")
			err := repo.FetchBlob(t.Context(), d, path)
			if fault == storetest.ReplyFlipped { // three damaged downloads in a row are taken for rot
				require.ErrorIs(t, err, checkpoints.ErrCorrupt)
				require.NoFileExists(t, path)
				return
			}
			require.NoError(t, err)
			require.Greater(t, tr.Injected.Load(), int64(2))
		})
	}
}

// TestStorm runs the protocol while every tenth request meets some fault.
func TestStorm(t *testing.T) {
	t.Parallel()
	endpoint := server(t, "").Endpoint()
	all := []storetest.HTTPFault{storetest.Unsent, storetest.ReplyLost, storetest.Busy, storetest.ConflictRetry, storetest.UploadFlipped,
		storetest.UploadCut, storetest.ReplyFlipped, storetest.ReplyCut, storetest.ReplyTruncated}
	var n atomic.Int64
	storetest.RunProtocol(t, func(t testing.TB) checkpoints.Store {
		if t.Name() == "TestStorm/RotAtRest" {
			return open(t, prefixed(endpoint, "rot")) // it sees how every single byte matters: no luck needed
		}
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(uint64(n.Add(1)), 0))
		s, _ := faulty(t, prefixed(endpoint, "storm"+fmt.Sprint(n.Load())), func(_ int64, req *http.Request) storetest.HTTPFault {
			mu.Lock()
			defer mu.Unlock()
			if rng.Float64() > 0.1 {
				return storetest.NoFault
			}
			return all[rng.IntN(len(all))]
		})
		return s
	})
}

func prefixed(endpoint, prefix string) s3.Config {
	cfg := config(endpoint)
	cfg.Prefix = prefix
	return cfg
}

// TestServerKilled kills the server with SIGKILL again and again while writers
// put blobs, commit and promote. Everything acknowledged is there, whole, once.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sup, err := s3server.Supervise(t.Context(), s3server.ChildConfig{Config: s3server.Config{
		Dir: dir, AccessKey: "testkey", SecretKey: "testsecret", Buckets: []string{bucket},
	}}, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, sup.Stop(ctx))
	})
	kills := 8
	if testing.Short() {
		kills = 3
	}
	stop := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		defer close(stop)
		for k := range kills {
			time.Sleep(rand.N(400 * time.Millisecond))
			sup.Kill()
			for sup.Restarts() <= k && t.Context().Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
		}
	})

	clean := &checkpoints.Repo{Store: open(t, config(sup.Endpoint()))}
	const writers = 6
	type done struct {
		run   string
		ref   string
		steps int
	}
	results := make([]done, writers)
	var promotions atomic.Int64
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			repo := &checkpoints.Repo{Store: open(t, config(sup.Endpoint()))}
			run := fmt.Sprintf("killed-%d", w)
			lease, _, err := repo.Acquire(t.Context(), run, "tester")
			if err != nil {
				t.Errorf("acquire: %v", err)
				return
			}
			for step := 1; ; step++ {
				select {
				case <-stop:
					if step > 2 {
						return
					}
				default:
				}
				b := storetest.RandomBytes(uint64(w*1000+step), 2<<20)
				d, err := repo.PutBlob(t.Context(), b)
				if err != nil {
					t.Errorf("put: %v", err)
					return
				}
				ref, err := repo.Commit(t.Context(), checkpoints.Manifest{Kind: checkpoints.KindState, Run: run, Step: int64(step),
					Generation: lease.Generation, Files: []checkpoints.File{{Name: "state", Digest: d, Size: int64(len(b))}}})
				if err != nil {
					t.Errorf("commit: %v", err)
					return
				}
				results[w] = done{run, ref.String(), step}
				if _, err := repo.Promote(t.Context(), "newest", checkpoints.PromoteRequest{ID: fmt.Sprintf("%d.%d", w, step), Ref: ref, Who: "tester"}); err != nil {
					t.Errorf("promote: %v", err)
					return
				}
				promotions.Add(1)
			}
		})
	}
	wg.Wait()
	killer.Wait()
	require.Equal(t, kills, sup.Restarts())
	commits := 0
	for _, r := range results {
		ref, m, ok, err := clean.Latest(t.Context(), r.run)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, r.ref, ref.String(), "the last acknowledged commit is the latest")
		require.EqualValues(t, r.steps, m.Step)
		entries, err := clean.Entries(t.Context(), r.run)
		require.NoError(t, err)
		require.Len(t, entries, r.steps)
		commits += r.steps
	}
	log, err := clean.History(t.Context(), "newest")
	require.NoError(t, err)
	require.Len(t, log, int(promotions.Load()), "a promotion lost or doubled")
	require.Len(t, log, commits)
	for _, p := range log {
		_, err := clean.Verify(t.Context(), p.Ref)
		require.NoError(t, err, "an acknowledged commit is whole")
	}
	t.Logf("%d commits and promotions through %d kills", commits, kills)
}

// TestUnreachable: a server that is not there is ErrUnavailable, in time, and
// cancelling does not wait for that.
func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	cfg := config("http://" + addr)
	cfg.RetryFor = -1
	_, err = open(t, cfg).Stat(t.Context(), "k")
	require.ErrorIs(t, err, checkpoints.ErrUnavailable)

	cfg.RetryFor = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	err = open(t, cfg).PutIfAbsent(ctx, "k", nil)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 3*time.Second)
}

// TestStall: a server that accepts and then says nothing is given up on.
func TestStall(t *testing.T) {
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "" {
			w.Header().Set("Content-Length", "100")
			w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
			w.Header().Set("ETag", `"e"`)
			_, _ = w.Write([]byte("some of it"))
			w.(http.Flusher).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-release:
		}
	}))
	defer srv.Close()
	defer close(release)
	cfg := config(srv.URL)
	cfg.RetryFor, cfg.Stall = -1, 100*time.Millisecond
	s := open(t, cfg)
	_, err := s.Stat(t.Context(), "k")
	require.ErrorIs(t, err, checkpoints.ErrUnavailable)
	require.ErrorIs(t, s.Put(t.Context(), "k", bytes.NewReader([]byte("x")), 1), checkpoints.ErrUnavailable)
	rc, _, err := s.Get(t.Context(), "k")
	require.NoError(t, err)
	defer rc.Close()
	_, err = io.ReadAll(rc)
	require.ErrorIs(t, err, checkpoints.ErrUnavailable)
	require.NotErrorIs(t, err, context.Canceled)
}

// TestPermanent: mistakes are told at once, in words that say what to do.
func TestPermanent(t *testing.T) {
	endpoint := server(t, "").Endpoint()
	for _, c := range []struct {
		name string
		edit func(*s3.Config)
		want string
	}{
		{"no bucket", func(c *s3.Config) { c.Bucket = "absent-bucket" }, `bucket "absent-bucket" does not exist`},
		{"wrong secret", func(c *s3.Config) { c.SecretKey = "other" }, "check AWS_ACCESS_KEY_ID"},
		{"unknown key", func(c *s3.Config) { c.AccessKey = "other" }, "check AWS_ACCESS_KEY_ID"},
		{"https to a http server", func(c *s3.Config) { c.Endpoint = "https" + endpoint[4:] }, "HTTP response to HTTPS client"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := config(endpoint)
			c.edit(&cfg)
			s := open(t, cfg)
			start := time.Now()
			err := s.PutIfAbsent(t.Context(), "k", []byte("x"))
			require.ErrorContains(t, err, c.want)
			require.NotErrorIs(t, err, checkpoints.ErrUnavailable)
			require.Less(t, time.Since(start), 5*time.Second)
		})
	}
	for name, cfg := range map[string]s3.Config{
		"endpoint without scheme": {Endpoint: "127.0.0.1:9000", Bucket: "b"},
		"endpoint with a path":    {Endpoint: "http://h/p", Bucket: "b"},
		"no bucket":               {Endpoint: "http://h"},
		"bad prefix":              {Endpoint: "http://h", Bucket: "b", Prefix: "a/../b"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s3.Open(cfg)
			require.Error(t, err)
		})
	}
}
