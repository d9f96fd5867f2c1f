// Package file keeps objects as files of a folder, for one machine or for
// machines that share a POSIX file system with working hard links. Objects are
// plain files named by their keys, so ordinary tools can read them.
//
// Every write goes to a file of its own in <root>/.tmp, is flushed to the disk,
// and takes its name in one step: by rename (Put) or by hard link, which fails
// if the name is taken (PutIfAbsent). Directories are flushed after. So a crash
// leaves an object whole or absent, and processes sharing the folder need no
// locks.
package file

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/specstream/specstream/checkpoints"
)

// tmpDir holds files being written. Keys cannot begin with a dot, so it is no object.
const tmpDir = ".tmp"

// staleAfter is the age at which a temporary file counts as a dead writer's.
const staleAfter = 24 * time.Hour

// Store is a [checkpoints.Store] in a folder.
type Store struct {
	root string
}

var _ checkpoints.Store = (*Store)(nil)

// Open opens the store in dir, which it makes if need be, and removes what
// writers that died more than a day ago left in its temporary folder.
func Open(dir string) (*Store, error) {
	root, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open store %s: %w", dir, err)
	}
	if err := os.MkdirAll(filepath.Join(root, tmpDir), 0o777); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	entries, err := os.ReadDir(filepath.Join(root, tmpDir))
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || time.Since(info.ModTime()) < staleAfter {
			continue // gone meanwhile, or in use
		}
		if err := os.Remove(filepath.Join(root, tmpDir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open store: remove a dead writer's file: %w", err)
		}
	}
	return &Store{root: root}, nil
}

// Dir returns the store's folder.
func (s *Store) Dir() string { return s.root }

func (s *Store) path(key string) string { return filepath.Join(s.root, filepath.FromSlash(key)) }

func check(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%s %s: %w", op, key, err)
	}
	if err := checkpoints.ValidateKey(key); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}

// Put implements [checkpoints.Store].
func (s *Store) Put(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	if err := check(ctx, "put", key); err != nil {
		return err
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	if err := s.write(ctx, key, body, size, os.Rename); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return nil
}

// PutIfAbsent implements [checkpoints.Store].
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	if err := check(ctx, "create", key); err != nil {
		return err
	}
	// Losing is common (the loser of every race, every repeated commit) and a
	// look is cheaper than a flushed file; the link decides all the same.
	if _, err := os.Lstat(s.path(key)); err == nil {
		return fmt.Errorf("create %s: %w", key, checkpoints.ErrExists)
	}
	err := s.write(ctx, key, bytes.NewReader(body), int64(len(body)), os.Link)
	switch {
	case errors.Is(err, fs.ErrExist):
		err = checkpoints.ErrExists
	case errors.Is(err, errors.ErrUnsupported), errors.Is(err, syscall.EPERM):
		err = fmt.Errorf("%w: the file system of %s has no hard links, which creating without overwriting needs", err, s.root)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", key, err)
	}
	return nil
}

// write puts size bytes of body into a flushed temporary file and lets publish
// give it its name.
func (s *Store) write(ctx context.Context, key string, body io.Reader, size int64, publish func(from, to string) error) (err error) {
	f, err := os.CreateTemp(filepath.Join(s.root, tmpDir), "w-*")
	if err != nil {
		return err
	}
	defer func() {
		f.Close() // closed already unless something failed
		if e := os.Remove(f.Name()); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = cmp.Or(err, e)
		}
	}()
	n, err := io.Copy(f, io.LimitReader(reader{ctx, body}, size+1))
	if err != nil {
		return err
	}
	if n != size {
		return fmt.Errorf("the body has %d bytes or more, not %d", n, size)
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	to := s.path(key)
	for try := 0; ; try++ {
		if err := s.mkdirs(filepath.Dir(to)); err != nil {
			return err
		}
		err := publish(f.Name(), to)
		if errors.Is(err, fs.ErrNotExist) && try < 100 {
			continue // a Delete took the empty directory away in between
		}
		if err != nil {
			return err
		}
		return syncDir(filepath.Dir(to))
	}
}

// mkdirs makes dir and flushes each directory that got a new entry.
func (s *Store) mkdirs(dir string) error {
	if st, err := os.Stat(dir); err == nil {
		if !st.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
		return nil
	}
	if dir == s.root {
		return fmt.Errorf("the store's folder %s is gone", s.root)
	}
	parent := filepath.Dir(dir)
	if err := s.mkdirs(parent); err != nil {
		return err
	}
	switch err := os.Mkdir(dir, 0o777); {
	case errors.Is(err, fs.ErrExist):
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return nil // the parent went again: the caller's publish fails and it comes back
	case err != nil:
		return err
	}
	return syncDir(parent)
}

// syncDir makes the names in dir durable. Platforms that cannot flush a
// directory order such changes themselves.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // emptied and removed by a Delete meanwhile
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// reader fails once its context is done.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

func (s *Store) open(ctx context.Context, op, key string) (*os.File, fs.FileInfo, error) {
	if err := check(ctx, op, key); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(s.path(key))
	if err != nil {
		return nil, nil, notFound(op, key, err)
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, nil, fmt.Errorf("%s %s: %w", op, key, err)
	}
	if !st.Mode().IsRegular() {
		f.Close()
		return nil, nil, fmt.Errorf("%s %s: %w", op, key, checkpoints.ErrNotFound)
	}
	return f, st, nil
}

func notFound(op, key string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		err = checkpoints.ErrNotFound
	}
	return fmt.Errorf("%s %s: %w", op, key, err)
}

func info(key string, st fs.FileInfo) checkpoints.Info {
	return checkpoints.Info{Key: key, Size: st.Size(), ModTime: st.ModTime()}
}

// body is an open object, or a part of one.
type body struct {
	io.Reader
	io.Closer
}

// Get implements [checkpoints.Store].
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, checkpoints.Info, error) {
	f, st, err := s.open(ctx, "get", key)
	if err != nil {
		return nil, checkpoints.Info{}, err
	}
	return body{reader{ctx, f}, f}, info(key, st), nil
}

// GetRange implements [checkpoints.Store].
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := checkpoints.ValidateRange(off, n); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	f, st, err := s.open(ctx, "get", key)
	if err != nil {
		return nil, err
	}
	if off >= st.Size() {
		f.Close()
		return nil, fmt.Errorf("get %s: %w: offset %d of %d bytes", key, checkpoints.ErrRange, off, st.Size())
	}
	return body{reader{ctx, io.NewSectionReader(f, off, min(n, st.Size()-off))}, f}, nil
}

// Stat implements [checkpoints.Store].
func (s *Store) Stat(ctx context.Context, key string) (checkpoints.Info, error) {
	if err := check(ctx, "stat", key); err != nil {
		return checkpoints.Info{}, err
	}
	st, err := os.Stat(s.path(key))
	if err != nil {
		return checkpoints.Info{}, notFound("stat", key, err)
	}
	if !st.Mode().IsRegular() {
		return checkpoints.Info{}, fmt.Errorf("stat %s: %w", key, checkpoints.ErrNotFound)
	}
	return info(key, st), nil
}

// Delete implements [checkpoints.Store]. It removes directories it empties.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := check(ctx, "delete", key); err != nil {
		return err
	}
	p := s.path(key)
	st, err := os.Lstat(p)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || (err == nil && st.IsDir()) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	dir := filepath.Dir(p)
	for dir != s.root && os.Remove(dir) == nil { // fails, as it should, while anything is in it
		dir = filepath.Dir(dir)
	}
	if err := syncDir(dir); err != nil {
		return fmt.Errorf("delete %s: %w", key, err)
	}
	return nil
}

// List implements [checkpoints.Store]. It holds one directory a level in memory.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[checkpoints.Info, error] {
	return func(yield func(checkpoints.Info, error) bool) {
		dir := prefix[:strings.LastIndexByte(prefix, '/')+1]
		if strings.Contains("/"+prefix, "/.") || strings.Contains("/"+prefix, "//") {
			return // no valid key begins so, and the path must not leave the folder
		}
		stopped := false
		if err := s.walk(ctx, dir, prefix, startAfter, func(i checkpoints.Info) bool {
			stopped = !yield(i, nil)
			return !stopped
		}); err != nil && !stopped {
			yield(checkpoints.Info{}, fmt.Errorf("list %s: %w", prefix, err))
		}
	}
}

var errStop = errors.New("stop")

// walk visits the objects under dir ("" or ending in a slash) in key order.
func (s *Store) walk(ctx context.Context, dir, prefix, startAfter string, visit func(checkpoints.Info) bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.path(dir))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	// "a-b" sorts before the contents of "a", whose keys begin with "a/".
	name := func(e fs.DirEntry) string {
		if e.IsDir() {
			return e.Name() + "/"
		}
		return e.Name()
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(name(a), name(b)) })
	for _, e := range entries {
		key := dir + name(e)
		if e.IsDir() {
			if e.Name()[0] == '.' || !strings.HasPrefix(key, prefix) && !strings.HasPrefix(prefix, key) {
				continue
			}
			if key <= startAfter && !strings.HasPrefix(startAfter, key) {
				continue // everything in it sorts before startAfter
			}
			if err := s.walk(ctx, key, prefix, startAfter, visit); err != nil {
				return err
			}
			continue
		}
		if !strings.HasPrefix(key, prefix) || key <= startAfter || !e.Type().IsRegular() || checkpoints.ValidateKey(key) != nil {
			continue
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted meanwhile
		}
		if err != nil {
			return err
		}
		if !visit(info(key, st)) {
			return errStop
		}
	}
	return nil
}
