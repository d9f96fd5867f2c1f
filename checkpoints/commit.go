package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/specstream/specstream"
)

// Commit makes an artefact visible: it checks that every blob is there, that the
// manifest's generation is the run's newest (see the package's documentation on
// fencing), creates the manifest, and checks the generation again.
//
// Committing the same content at the same run, step and generation again
// returns the first commit's reference. Errors: [ErrFenced], [ErrConflict] if
// other content is committed there, [specstream.InputError] for a bad manifest.
// After any other error the commit may or may not have happened; doing it again
// settles that.
func (r *Repo) Commit(ctx context.Context, m Manifest) (specstream.Ref, error) {
	ref, err := r.commit(ctx, m)
	if err != nil {
		return specstream.Ref{}, fmt.Errorf("commit %s step %d: %w", m.Run, m.Step, err)
	}
	return ref, nil
}

func (r *Repo) commit(ctx context.Context, m Manifest) (specstream.Ref, error) {
	m.Version, m.Sum = ManifestVersion, zeroSum
	m.Files = slices.Clone(m.Files)
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	m.Content = m.ContentDigest()
	if m.Created.IsZero() {
		m.Created = r.now()
	}
	if err := m.Validate(); err != nil {
		return specstream.Ref{}, err
	}
	if err := r.checkBlobs(ctx, m); err != nil {
		return specstream.Ref{}, err
	}
	if err := r.CheckLease(ctx, m.Run, m.Generation); err != nil {
		return specstream.Ref{}, err
	}
	body, err := seal(m)
	if err != nil {
		return specstream.Ref{}, err
	}
	held, mine, err := r.create(ctx, m.Key(), body)
	if err != nil {
		return specstream.Ref{}, err
	}
	if !mine {
		first, err := parseAt(m.Key(), held)
		if err != nil {
			return specstream.Ref{}, err
		}
		if first.Content != m.Content {
			return specstream.Ref{}, fmt.Errorf("%w: %s holds content %s, not %s; commit it as another run or step",
				ErrConflict, m.Key(), first.Content.Short(), m.Content.Short())
		}
	}
	// Without this look the lease could have changed hands just before the
	// manifest landed, and its next holder missed it.
	if err := r.CheckLease(ctx, m.Run, m.Generation); err != nil {
		return specstream.Ref{}, err
	}
	return specstream.Ref{Key: m.Key(), Digest: specstream.DigestBytes(held)}, nil
}

// checkBlobs makes sure that no manifest names a blob that is missing.
func (r *Repo) checkBlobs(ctx context.Context, m Manifest) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2 * r.parallel())
	for _, f := range m.Files {
		for _, b := range f.blobs() {
			g.Go(func() error {
				return again(ctx, func() error {
					info, err := r.Store.Stat(ctx, blobKey(b.Digest))
					if errors.Is(err, ErrNotFound) {
						return fmt.Errorf("file %s: blob %s is not in the store: put it before committing", f.Name, b.Digest)
					}
					if err == nil && info.Size != b.Size {
						return fmt.Errorf("file %s: %w: blob %s has %d bytes, not %d", f.Name, ErrCorrupt, b.Digest, info.Size, b.Size)
					}
					return err
				})
			})
		}
	}
	return g.Wait()
}

// CommitDir stores all files under dir and commits them. m gives everything but
// Files; an empty Run becomes "<kind>-<first 16 digits of the content digest>", so
// that the same folder twice is one commit. Hidden files (whose name, or whose
// directory's, begins with a dot) are not part of an artefact and are left out;
// links to files are followed.
func (r *Repo) CommitDir(ctx context.Context, dir string, m Manifest) (specstream.Ref, error) {
	var paths []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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
			return nil
		}
		st, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !st.Mode().IsRegular() {
			return &specstream.InputError{File: path, Reason: "neither a file nor a directory", Hint: "an artefact has regular files only"}
		}
		paths = append(paths, path)
		return nil
	})
	if err != nil {
		return specstream.Ref{}, fmt.Errorf("commit folder: %w", err)
	}
	if len(paths) == 0 {
		return specstream.Ref{}, &specstream.InputError{File: dir, Reason: "the folder has no files to commit"}
	}
	m.Files = make([]File, len(paths))
	for i, path := range paths { // one after another: PutFile is parallel inside
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return specstream.Ref{}, fmt.Errorf("commit folder: %w", err)
		}
		if m.Files[i], err = r.PutFile(ctx, path); err != nil {
			return specstream.Ref{}, fmt.Errorf("commit folder: %w", err)
		}
		m.Files[i].Name = filepath.ToSlash(rel)
	}
	if m.Run == "" {
		m.Run = fmt.Sprintf("%s-%.16s", m.Kind, m.ContentDigest().Hex())
	}
	return r.Commit(ctx, m)
}

// ReadManifest reads what ref names and verifies its digest.
func (r *Repo) ReadManifest(ctx context.Context, ref specstream.Ref) (Manifest, error) {
	if _, err := specstream.ParseRef(ref.String()); err != nil {
		return Manifest{}, &specstream.InputError{Field: "reference", Reason: err.Error()}
	}
	if _, _, _, err := parseManifestKey(ref.Key); err != nil {
		return Manifest{}, &specstream.InputError{Field: "reference", Reason: err.Error()}
	}
	body, err := r.record(ctx, ref.Key)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	if got := specstream.DigestBytes(body); got != ref.Digest {
		return Manifest{}, fmt.Errorf("read manifest: %w: %s has digest %s, want %s", ErrCorrupt, ref.Key, got, ref.Digest)
	}
	m, err := parseAt(ref.Key, body)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	return m, nil
}

// parseAt parses a manifest and checks that it is the one its key says.
func parseAt(key string, b []byte) (Manifest, error) {
	m, err := ParseManifest(key, b)
	if err != nil {
		return Manifest{}, err
	}
	if m.Key() != key {
		return Manifest{}, fmt.Errorf("%w: %s holds the manifest of %s", ErrCorrupt, key, m.Key())
	}
	return m, nil
}

func parseManifestKey(key string) (run string, step, generation int64, err error) {
	bad := fmt.Errorf("%q is not the key of a manifest, manifests/RUN/STEP-GENERATION.json", key)
	rest, ok := strings.CutPrefix(key, "manifests/")
	run, name, ok2 := strings.Cut(rest, "/")
	name, ok3 := strings.CutSuffix(name, ".json")
	s, g, ok4 := strings.Cut(name, "-")
	if !ok || !ok2 || !ok3 || !ok4 || len(s) != 8 || len(g) != 8 || ValidateName("run", run) != nil {
		return "", 0, 0, bad
	}
	us, err1 := strconv.ParseUint(s, 10, 32)
	ug, err2 := strconv.ParseUint(g, 10, 32)
	if err1 != nil || err2 != nil {
		return "", 0, 0, bad
	}
	return run, int64(us), int64(ug), nil
}

// Entry is one manifest of a run, as its key tells.
type Entry struct {
	Key        string
	Step       int64
	Generation int64
	// Superseded manifests are complete, but a later attempt went on from an
	// earlier step, or committed the same step again.
	Superseded bool
}

// Entries lists a run's manifests by step, then generation.
func (r *Repo) Entries(ctx context.Context, run string) ([]Entry, error) {
	if err := ValidateName("run", run); err != nil {
		return nil, err
	}
	var entries []Entry
	err := listRetry(ctx, r.Store, "manifests/"+run+"/", "", func(info Info) (bool, error) {
		if _, step, generation, err := parseManifestKey(info.Key); err == nil {
			entries = append(entries, Entry{Key: info.Key, Step: step, Generation: generation})
		}
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("list manifests of %s: %w", run, err)
	}
	// A generation's first manifest is where it took over: from there on the
	// earlier generations do not count.
	first := map[int64]int64{}
	for _, e := range entries {
		if s, ok := first[e.Generation]; !ok || e.Step < s {
			first[e.Generation] = e.Step
		}
	}
	for i, e := range entries {
		for g, s := range first {
			if g > e.Generation && e.Step >= s {
				entries[i].Superseded = true
			}
		}
	}
	return entries, nil
}

// Latest returns the run's newest artefact: of the highest generation that
// committed anything, the one of the highest step. ok is false if there is none.
func (r *Repo) Latest(ctx context.Context, run string) (ref specstream.Ref, m Manifest, ok bool, err error) {
	entries, err := r.Entries(ctx, run)
	if err != nil || len(entries) == 0 {
		return specstream.Ref{}, Manifest{}, false, err
	}
	last := slices.MaxFunc(entries, func(a, b Entry) int {
		if a.Generation != b.Generation {
			return int(a.Generation - b.Generation)
		}
		return int(a.Step - b.Step)
	})
	b, err := r.record(ctx, last.Key)
	if err == nil {
		m, err = parseAt(last.Key, b)
	}
	if err != nil {
		return specstream.Ref{}, Manifest{}, false, fmt.Errorf("latest of %s: %w", run, err)
	}
	return specstream.Ref{Key: last.Key, Digest: specstream.DigestBytes(b)}, m, true, nil
}

// Runs lists the names of all runs that have manifests, in lexical order.
func (r *Repo) Runs(ctx context.Context) ([]string, error) {
	names, err := r.children(ctx, "manifests/")
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return names, nil
}
