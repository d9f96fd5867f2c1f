package devserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/term"
)

const modulePath = "github.com/specstream/specstream"

// Ready reports whether [Start] would find its server without building it.
func Ready(o Options) bool {
	if os.Getenv(AddressEnv) != "" {
		return true
	}
	if _, err := exec.LookPath("temporal"); err == nil {
		return true
	}
	_, path, err := cached(o)
	if err != nil {
		return false
	}
	_, err = os.Stat(path)
	return err == nil
}

// cached returns infra/devstack's sources and where its executable is kept. The
// name covers the sources, the pinned dependencies and the Go version.
func cached(o Options) (src, path string, err error) {
	if src, err = sourceDir(); err != nil {
		return "", "", err
	}
	digest, err := sourceDigest(src)
	if err != nil {
		return "", "", err
	}
	cache := o.CacheDir
	if cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return "", "", fmt.Errorf("no cache folder: %w", err)
		}
		cache = filepath.Join(dir, "specstream")
	}
	return src, filepath.Join(cache, "devstack-"+digest, "devstack"), nil
}

// build returns infra/devstack's executable, compiling it unless the cache has it.
func build(ctx context.Context, o Options) (string, error) {
	src, path, err := cached(o)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(filepath.Dir(path), "lock"), o.Progress)
	if err != nil {
		return "", err
	}
	defer unlock()
	switch _, err := os.Stat(path); {
	case err == nil:
		return path, nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	tmp := path + ".tmp"
	if err := goBuild(ctx, src, tmp, o.Progress); err != nil {
		return "", err
	}
	return path, os.Rename(tmp, path)
}

// sourceDir returns infra/devstack of a checkout: the one SPECSTREAM_SRC names,
// the one around the working directory, or the one this program was built from.
func sourceDir() (string, error) {
	if root := os.Getenv(SourceEnv); root != "" {
		if dir, ok := devstackOf(root); ok {
			return dir, nil
		}
		return "", fmt.Errorf("%s=%s is no checkout of %s", SourceEnv, root, modulePath)
	}
	var starts []string
	if wd, err := os.Getwd(); err == nil {
		starts = append(starts, wd)
	}
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for {
			if src, ok := devstackOf(dir); ok {
				return src, nil
			}
			up := filepath.Dir(dir)
			if up == dir {
				break
			}
			dir = up
		}
	}
	return "", fmt.Errorf("no Temporal server is at hand: run inside a checkout of %s or name one with %s, install the `temporal` command, or set %s",
		modulePath, SourceEnv, AddressEnv)
}

// devstackOf returns the nested module of the checkout at root.
func devstackOf(root string) (string, bool) {
	b, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return "", false
	}
	first, _, _ := bytes.Cut(b, []byte("\n"))
	if strings.TrimSpace(string(first)) != "module "+modulePath {
		return "", false
	}
	dir := filepath.Join(root, "infra", "devstack")
	_, err = os.Stat(filepath.Join(dir, "go.mod"))
	return dir, err == nil
}

// sourceDigest names what would be built, by 16 hex digits.
func sourceDigest(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return "", err
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
	files = append(files, filepath.Join(dir, "go.mod"), filepath.Join(dir, "go.sum"))
	slices.Sort(files)
	h := sha256.New()
	fmt.Fprintf(h, "%s %s %s\n", runtime.Version(), runtime.GOOS, runtime.GOARCH)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", fmt.Errorf("sources of devstack: %w", err)
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(f), len(b))
		h.Write(b) // a hash never fails
	}
	return hex.EncodeToString(h.Sum(nil))[:16], nil
}

func goBuild(ctx context.Context, src, out string, progress io.Writer) error {
	goTool, err := exec.LookPath("go")
	if err != nil {
		return fmt.Errorf("no `go` command on the PATH: install Go, install the `temporal` command, or set %s", AddressEnv)
	}
	command := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, goTool, args...)
		cmd.Dir = src
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=readonly")
		// The go tool ends its compilers when it is interrupted, not when it is killed.
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = 10 * time.Second
		return cmd
	}
	fmt.Fprintln(progress, "building the Temporal development server; the first time takes some minutes")
	deps, err := command("list", "-deps", ".").Output()
	if err != nil {
		return commandError("go list", err, nil)
	}
	cmd := command("build", "-v", "-ldflags=-s -w", "-o", out, ".")
	r, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	c := newCounter(progress, bytes.Count(deps, []byte("\n")))
	tail := followBuild(r, c)
	err = cmd.Wait()
	c.stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return commandError("go build", err, tail)
	}
	fmt.Fprintf(progress, "built in %s\n", time.Since(c.began).Round(time.Second))
	return nil
}

// followBuild counts the packages `go build -v` names and returns its last
// other lines, which are what went wrong.
func followBuild(r io.Reader, c *counter) []string {
	var tail []string
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if !strings.ContainsAny(line, " :") {
			c.n.Add(1)
			continue
		}
		if tail = append(tail, line); len(tail) > 20 {
			tail = tail[1:]
		}
	}
	if err := lines.Err(); err != nil {
		tail = append(tail, err.Error())
	}
	return tail
}

func commandError(what string, err error, output []string) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		output = append(output, strings.TrimSpace(string(exit.Stderr)))
	}
	if len(output) == 0 {
		return fmt.Errorf("%s: %w", what, err)
	}
	return fmt.Errorf("%s: %w:\n%s", what, err, strings.Join(output, "\n"))
}

// counter shows how many packages are compiled: on one line of a terminal
// every second, elsewhere a line every 15 seconds.
type counter struct {
	n     atomic.Int64
	began time.Time
	quit  chan struct{}
	wg    sync.WaitGroup
}

func newCounter(w io.Writer, total int) *counter {
	c := &counter{began: time.Now(), quit: make(chan struct{})}
	every, format := 15*time.Second, "compiled %d of at most %d packages, %s\n"
	f, isFile := w.(*os.File)
	onTerminal := isFile && term.IsTerminal(int(f.Fd()))
	if onTerminal {
		every, format = time.Second, "\r\x1b[Kcompiled %d of at most %d packages, %s"
	}
	c.wg.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-c.quit:
				if onTerminal {
					fmt.Fprint(w, "\r\x1b[K")
				}
				return
			case <-tick.C:
				fmt.Fprintf(w, format, c.n.Load(), total, time.Since(c.began).Round(time.Second))
			}
		}
	})
	return c
}

func (c *counter) stop() {
	close(c.quit)
	c.wg.Wait()
}

// lock takes an exclusive lock on a file, waiting for a build that another
// process is doing.
func lock(ctx context.Context, path string, progress io.Writer) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil // closing ends the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if !told {
			fmt.Fprintln(progress, "another process is building the Temporal development server; waiting for it")
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}
