package checkpoints

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/specstream/specstream"
)

// marker is the file that says what a fetched folder holds. It is hidden, so it
// is never part of an artefact.
const marker = ".specstream.json"

// fetched is the marker's content.
type fetched struct {
	Version int               `json:"version"` // 1
	Content specstream.Digest `json:"content"`
	Files   []fetchedFile     `json:"files"`
}

type fetchedFile struct {
	Name    string    `json:"name"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mod_time"`
}

// staleFetch is the age at which a download's folder counts as a dead process's.
const staleFetch = 24 * time.Hour

// Fetch makes dir hold the files of the artefact, each verified, and returns its
// manifest. dir appears whole or not at all. If dir holds the artefact already,
// nothing is downloaded: when an earlier Fetch made it and no file's size or time
// has changed since, it is believed; otherwise its files are read and compared.
// A folder that an earlier Fetch made and that has changed is replaced; any other
// folder with content is refused with an [specstream.InputError].
//
// Several processes may fetch into one dir at once.
func (r *Repo) Fetch(ctx context.Context, ref specstream.Ref, dir string) (Manifest, error) {
	m, err := r.ReadManifest(ctx, ref)
	if err != nil {
		return Manifest{}, fmt.Errorf("fetch: %w", err)
	}
	if err := r.fetch(ctx, m, filepath.Clean(dir)); err != nil {
		return Manifest{}, fmt.Errorf("fetch %s: %w", ref.Key, err)
	}
	return m, nil
}

func (r *Repo) fetch(ctx context.Context, m Manifest, dir string) (err error) {
	if hit, err := holds(ctx, dir, m); hit || err != nil {
		return err
	}
	parent, base := filepath.Split(dir)
	if parent == "" {
		parent = "."
	}
	if err := os.MkdirAll(parent, 0o777); err != nil {
		return err
	}
	if err := sweep(parent, base); err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(parent, tempPrefix(base)+"*")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	if err := os.Chmod(tmp, 0o755); err != nil {
		return err
	}
	if err := r.downloadAll(ctx, m, tmp); err != nil {
		return err
	}
	if err := writeMarker(tmp, m); err != nil {
		return err
	}
	return install(ctx, tmp, dir, m)
}

func tempPrefix(base string) string { return ".fetch-" + base + "-" }

// sweep removes what processes that died more than a day ago left.
func sweep(parent, base string) error {
	old, err := os.ReadDir(parent)
	if err != nil {
		return err
	}
	for _, e := range old {
		if !strings.HasPrefix(e.Name(), tempPrefix(base)) {
			continue
		}
		if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < staleFetch {
			continue // gone meanwhile, or in use
		}
		if err := os.RemoveAll(filepath.Join(parent, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// downloadAll fetches all files into dir, some at a time.
func (r *Repo) downloadAll(ctx context.Context, m Manifest, dir string) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.parallel())
	for _, f := range m.Files {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			return errors.Join(err, g.Wait())
		}
		g.Go(func() error { return r.fetchFile(ctx, f, path) })
	}
	return g.Wait()
}

// install gives the finished folder its name. Another process may do the same.
func install(ctx context.Context, tmp, dir string, m Manifest) error {
	for range 10 {
		err := os.Rename(tmp, dir)
		if err == nil {
			return syncDirs(dir)
		}
		if !errors.Is(err, fs.ErrExist) && !isDir(dir) {
			return err
		}
		hit, herr := holds(ctx, dir, m)
		if hit || herr != nil {
			return herr
		}
		// An earlier fetch's, changed since: out of the way with it.
		aside := tmp + "-old"
		if err := os.Rename(dir, aside); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(aside); err != nil {
			return err
		}
	}
	return fmt.Errorf("folder %s keeps being replaced by somebody else", dir)
}

func isDir(path string) bool {
	st, err := os.Lstat(path)
	return err == nil && st.IsDir()
}

// holds reports whether dir holds exactly the artefact's files. A folder that is
// neither that, nor empty, nor made by an earlier fetch is an InputError.
func holds(ctx context.Context, dir string, m Manifest) (bool, error) {
	st, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if !st.IsDir() {
		return false, &specstream.InputError{File: dir, Reason: "it is a file, and a folder is to be made there", Hint: "name another folder"}
	}
	b, err := os.ReadFile(filepath.Join(dir, marker))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	ours := err == nil
	if ours {
		var f fetched
		if json.Unmarshal(b, &f) == nil && f.Content == m.Content && unchanged(dir, f) {
			return true, nil
		}
	}
	same, empty, err := compare(ctx, dir, m)
	if same || err != nil {
		return same, err
	}
	if !ours && !empty {
		return false, &specstream.InputError{File: dir, Reason: "the folder holds something else", Hint: "name another folder or remove it"}
	}
	return false, nil
}

// unchanged reports whether all files are as the fetch left them. It does not
// look for others: the artefact's are there, and that is what counts.
func unchanged(dir string, f fetched) bool {
	for _, x := range f.Files {
		st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(x.Name)))
		if err != nil || !st.Mode().IsRegular() || st.Size() != x.Size || !st.ModTime().Equal(x.ModTime) {
			return false
		}
	}
	return len(f.Files) > 0
}

// compare reads the folder's files.
func compare(ctx context.Context, dir string, m Manifest) (same, empty bool, err error) {
	seen := 0
	differ := errors.New("differs")
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != dir && d.Name()[0] == '.' {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return ctx.Err()
		}
		seen++
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		f, ok := m.File(filepath.ToSlash(rel))
		if !ok {
			return differ
		}
		if st, err := os.Stat(path); err != nil || st.Size() != f.Size {
			return errors.Join(differ, err)
		}
		got, err := digestFile(ctx, path)
		if err != nil {
			return err
		}
		if got != f.Digest {
			return differ
		}
		return nil
	})
	if err != nil && !errors.Is(err, differ) {
		return false, false, err
	}
	return err == nil && seen == len(m.Files), seen == 0, nil
}

func digestFile(ctx context.Context, path string) (specstream.Digest, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		_, err := io.CopyN(h, f, 8<<20)
		if errors.Is(err, io.EOF) {
			return digestOf(h), nil
		}
		if err != nil {
			return "", err
		}
	}
}

func writeMarker(dir string, m Manifest) error {
	out := fetched{Version: 1, Content: m.Content}
	for _, f := range m.Files {
		st, err := os.Stat(filepath.Join(dir, filepath.FromSlash(f.Name)))
		if err != nil {
			return err
		}
		out.Files = append(out.Files, fetchedFile{Name: f.Name, Size: st.Size(), ModTime: st.ModTime()})
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, marker))
	if err != nil {
		return err
	}
	if _, err := f.Write(append(b, '\n')); err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close())
}

// syncDirs makes the folder's names durable: files were flushed one by one.
func syncDirs(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return syncDir(path)
	})
	return errors.Join(err, syncDir(filepath.Dir(dir)))
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

// Verify reads every file of the artefact and checks its digest.
func (r *Repo) Verify(ctx context.Context, ref specstream.Ref) (Manifest, error) {
	m, err := r.ReadManifest(ctx, ref)
	if err != nil {
		return Manifest{}, fmt.Errorf("verify: %w", err)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(r.parallel())
	for _, f := range m.Files {
		g.Go(func() (err error) {
			for range damagedFiles {
				if err = r.download(ctx, f, io.Discard); !errors.Is(err, ErrCorrupt) {
					return err
				}
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return Manifest{}, fmt.Errorf("verify %s: %w", ref.Key, err)
	}
	return m, nil
}
