package s3server_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream/infra/s3server"
)

// parentArg makes the test binary start a server and then wait to be killed.
const parentArg = "test-parent"

func TestMain(m *testing.M) {
	s3server.RunIfChild()
	if len(os.Args) == 3 && os.Args[1] == parentArg {
		c, err := s3server.Start(context.Background(), s3server.ChildConfig{Config: config(os.Args[2])})
		if err != nil {
			panic(err)
		}
		os.Stdout.WriteString(c.Addr() + " " + strconv.Itoa(c.PID()) + "\n")
		select {}
	}
	goleak.VerifyTestMain(m)
}

const bucket = "test"

func config(dir string) s3server.Config {
	return s3server.Config{Dir: dir, AccessKey: "testkey", SecretKey: "testsecret", Buckets: []string{bucket}}
}

func start(t *testing.T, cfg s3server.Config) *s3server.Child {
	t.Helper()
	c, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: cfg})
	require.NoError(t, err)
	t.Cleanup(func() { stop(t, c) })
	return c
}

func stop(t *testing.T, c *s3server.Child) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	require.NoError(t, c.Stop(ctx))
}

func client(t *testing.T, addr string) *minio.Core {
	t.Helper()
	tr, err := minio.DefaultTransport(false)
	require.NoError(t, err)
	t.Cleanup(tr.CloseIdleConnections)
	c, err := minio.NewCore(addr, &minio.Options{Creds: credentials.NewStaticV4("testkey", "testsecret", ""), Region: "us-east-1", MaxRetries: 1, Transport: tr})
	require.NoError(t, err)
	return c
}

func putObject(t *testing.T, c *minio.Core, key, text string) {
	t.Helper()
	_, err := c.Client.PutObject(t.Context(), bucket, key, strings.NewReader(text), int64(len(text)), minio.PutObjectOptions{})
	require.NoError(t, err)
}

func getObject(t *testing.T, c *minio.Core, key string) string {
	t.Helper()
	rc, _, _, err := c.GetObject(t.Context(), bucket, key, minio.GetObjectOptions{})
	require.NoError(t, err)
	defer rc.Close()
	b, err := io.ReadAll(rc)
	require.NoError(t, err)
	return string(b)
}

func TestKeepsObjectsOverRestarts(t *testing.T) {
	for _, mode := range []string{s3server.Xattr, s3server.Sidecar} {
		t.Run(mode, func(t *testing.T) {
			cfg := config(t.TempDir())
			cfg.Metadata = mode
			c, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: cfg})
			require.NoError(t, err)
			putObject(t, client(t, c.Addr()), "a/b", "one")
			stop(t, c)
			cfg.Metadata = "" // the folder knows
			c, err = s3server.Start(t.Context(), s3server.ChildConfig{Config: cfg})
			require.NoError(t, err)
			require.Equal(t, "one", getObject(t, client(t, c.Addr()), "a/b"))
			c.Kill()
			require.Error(t, c.Err())
			c = start(t, cfg)
			require.Equal(t, "one", getObject(t, client(t, c.Addr()), "a/b"))
			b, err := os.ReadFile(filepath.Join(cfg.Dir, "data", bucket, "a", "b"))
			require.NoError(t, err)
			require.Equal(t, "one", string(b), "objects are plain files")
		})
	}
}

func TestRefuses(t *testing.T) {
	used := config(t.TempDir())
	start(t, used)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	xattr := config(t.TempDir())
	xattr.Metadata = s3server.Xattr
	c := start(t, xattr)
	stop(t, c)
	newer := config(t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(newer.Dir, "format.json"), []byte(`{"version": 99, "metadata": "xattr"}`), 0o666))
	damaged := config(t.TempDir())
	require.NoError(t, os.WriteFile(filepath.Join(damaged.Dir, "format.json"), []byte(`{`), 0o666))
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o666))

	for _, c := range []struct {
		name string
		cfg  s3server.Config
		edit func(*s3server.Config)
		want string
	}{
		{"a folder in use", used, nil, "another server uses it"},
		{"an address in use", config(t.TempDir()), func(c *s3server.Config) { c.Addr = taken.Addr().String() }, "address already in use"},
		{"a folder of the other mode", xattr, func(c *s3server.Config) { c.Metadata = s3server.Sidecar }, `keeps metadata as "xattr"`},
		{"an unknown mode", config(t.TempDir()), func(c *s3server.Config) { c.Metadata = "none" }, `"none" is neither`},
		{"a newer folder", newer, nil, "says version 99"},
		{"a damaged folder", damaged, nil, "is damaged"},
		{"a file", config(file), nil, "not a directory"},
		{"no credentials", config(t.TempDir()), func(c *s3server.Config) { c.SecretKey = "" }, "no access key"},
		{"a bad bucket name", config(t.TempDir()), func(c *s3server.Config) { c.Buckets = []string{"../up"} }, "bucket name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.edit != nil {
				c.edit(&c.cfg)
			}
			var log bytes.Buffer
			_, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: c.cfg, Log: &log})
			require.ErrorContains(t, err, c.want, "the error says why, not just that")
			require.Contains(t, log.String(), c.want)
		})
	}
}

// TestStopFinishesRequests stops the server while an upload is under way.
func TestStopFinishesRequests(t *testing.T) {
	cfg := config(t.TempDir())
	child, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: cfg})
	require.NoError(t, err)
	c := client(t, child.Addr())
	half := strings.Repeat("half", 1<<18)
	began, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	var putErr error
	wg.Go(func() {
		// Enough that the client does not hold it back in its buffers.
		body := io.MultiReader(strings.NewReader(half), gate{began, release}, strings.NewReader(half))
		_, putErr = c.PutObject(t.Context(), bucket, "slow", body, int64(2*len(half)), "", "", minio.PutObjectOptions{DisableContentSha256: true})
	})
	<-began
	time.Sleep(300 * time.Millisecond) // until the server, too, has come to the body
	go func() {
		time.Sleep(300 * time.Millisecond)
		close(release)
	}()
	stop(t, child)
	wg.Wait()
	require.NoError(t, putErr, "an orderly stop lets a request finish")
	require.True(t, half+half == getObject(t, client(t, start(t, cfg).Addr()), "slow"), "it was acknowledged, so it is there")
}

// gate reads nothing until it is released.
type gate struct {
	began   chan<- struct{}
	release <-chan struct{}
}

func (g gate) Read([]byte) (int, error) {
	close(g.began)
	<-g.release
	return 0, io.EOF
}

// TestDiesWithParent kills the process that started the server.
func TestDiesWithParent(t *testing.T) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	parent := exec.CommandContext(t.Context(), self, parentArg, dir)
	parent.Stderr = os.Stderr
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	buf := make([]byte, 100)
	n, err := out.Read(buf)
	require.NoError(t, err)
	addr, _, ok := strings.Cut(string(buf[:n]), " ")
	require.True(t, ok)
	putObject(t, client(t, addr), "k", "v")

	require.NoError(t, parent.Process.Kill())
	_ = parent.Wait() // it was killed
	require.Eventually(t, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, 15*time.Second, 20*time.Millisecond, "the server must not outlive its parent")
	require.Eventually(t, func() bool { // and gives the folder free
		c, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: config(dir), Log: io.Discard})
		if err != nil {
			return false
		}
		defer stop(t, c)
		return getObject(t, client(t, c.Addr()), "k") == "v"
	}, 15*time.Second, 50*time.Millisecond)
}

// TestUnfinishedMultipart: a kill in mid-completion leaves a claim on the upload
// that must be given back, or a repeated completion is told of an object that is
// not there.
func TestUnfinishedMultipart(t *testing.T) {
	cfg := config(t.TempDir())
	child, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: cfg})
	require.NoError(t, err)
	c := client(t, child.Addr())
	id, err := c.NewMultipartUpload(t.Context(), bucket, "big", minio.PutObjectOptions{})
	require.NoError(t, err)
	part, err := c.PutObjectPart(t.Context(), bucket, "big", id, 1, strings.NewReader("part"), 4, minio.PutObjectPartOptions{})
	require.NoError(t, err)
	child.Kill()
	uploads, err := filepath.Glob(filepath.Join(cfg.Dir, "data", bucket, ".sgwtmp", "multipart", "*", id))
	require.NoError(t, err)
	require.Len(t, uploads, 1)
	require.NoError(t, os.Rename(uploads[0], uploads[0]+"."+strings.Trim(part.ETag, `"`)+"-1.inprogress"))

	c = client(t, start(t, cfg).Addr())
	_, err = c.CompleteMultipartUpload(t.Context(), bucket, "big", id, []minio.CompletePart{{PartNumber: 1, ETag: part.ETag}}, minio.PutObjectOptions{})
	require.NoError(t, err)
	require.Equal(t, "part", getObject(t, c, "big"))
}

// TestOrphanedSidecar: a kill between an object's metadata and the object itself
// must not make creating it fail for ever.
func TestOrphanedSidecar(t *testing.T) {
	cfg := config(t.TempDir())
	cfg.Metadata = s3server.Sidecar
	child, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: cfg})
	require.NoError(t, err)
	c := client(t, child.Addr())
	putObject(t, c, "d/k", "v")
	putObject(t, c, "d/meta", "stays")
	child.Kill()
	require.NoError(t, os.Remove(filepath.Join(cfg.Dir, "data", bucket, "d", "k")))

	c = client(t, start(t, cfg).Addr())
	o := minio.PutObjectOptions{DisableMultipart: true}
	o.SetMatchETagExcept("*")
	_, err = c.Client.PutObject(t.Context(), bucket, "d/k", strings.NewReader("new"), 3, o)
	require.NoError(t, err)
	require.Equal(t, "new", getObject(t, c, "d/k"))
	require.Equal(t, "stays", getObject(t, c, "d/meta"))
	_, err = c.Client.PutObject(t.Context(), bucket, "d/meta", strings.NewReader("new"), 3, o)
	require.Error(t, err, "its metadata is still there")
}

func TestUnknownAccessKeyIsForbidden(t *testing.T) {
	addr := start(t, config(t.TempDir())).Addr()
	tr, err := minio.DefaultTransport(false)
	require.NoError(t, err)
	t.Cleanup(tr.CloseIdleConnections)
	c, err := minio.New(addr, &minio.Options{Creds: credentials.NewStaticV4("stranger", "x", ""), Region: "us-east-1", MaxRetries: 1, Transport: tr})
	require.NoError(t, err)
	_, err = c.StatObject(t.Context(), bucket, "k", minio.StatObjectOptions{})
	require.Equal(t, http.StatusForbidden, minio.ToErrorResponse(err).StatusCode, "404 would read as: no such object")
}

func TestSupervisorRestarts(t *testing.T) {
	var mu sync.Mutex
	var reports []error
	s, err := s3server.Supervise(t.Context(), s3server.ChildConfig{Config: config(t.TempDir())}, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, err)
	})
	require.NoError(t, err)
	putObject(t, client(t, s.Addr()), "k", "v")
	pid := s.PID()
	s.Kill()
	require.Eventually(t, func() bool { return s.Restarts() == 1 }, 20*time.Second, 10*time.Millisecond)
	require.NotEqual(t, pid, s.PID())
	require.Equal(t, "v", getObject(t, client(t, s.Addr()), "k"), "on the same address")
	require.NoError(t, s.Stop(t.Context()))
	mu.Lock()
	require.Len(t, reports, 1)
	require.ErrorContains(t, reports[0], "killed")
	mu.Unlock()
	_, err = net.Dial("tcp", s.Addr())
	require.Error(t, err, "stopped is stopped")
}

func TestStartGivesUp(t *testing.T) {
	start := time.Now()
	_, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: config(t.TempDir()), Command: []string{"sleep", "60"}, StartTimeout: 200 * time.Millisecond})
	require.ErrorContains(t, err, "does not accept requests")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, err = s3server.Start(ctx, s3server.ChildConfig{Config: config(t.TempDir()), Command: []string{"sleep", "60"}})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(start), 10*time.Second)
	_, err = s3server.Start(t.Context(), s3server.ChildConfig{Config: config(t.TempDir()), Command: []string{"/does/not/exist"}})
	require.ErrorIs(t, err, os.ErrNotExist)
}
