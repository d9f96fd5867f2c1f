package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/open"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/data/tokenizer"
	"github.com/specstream/specstream/model"
)

// Env is where a stage works: a store that holds the truth and a folder for
// caches and scratch.
type Env struct {
	Repo *checkpoints.Repo
	// Work keeps copies of artefacts by content; losing it costs only time.
	Work string
}

// OpenEnv opens the store that uri names.
func OpenEnv(ctx context.Context, uri, work string) (*Env, error) {
	s, err := open.Store(ctx, uri)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, fmt.Errorf("work folder: %w", err)
	}
	return &Env{Repo: &checkpoints.Repo{Store: s}, Work: work}, nil
}

// repoBlobs lets shards live in the store's blobs.
type repoBlobs struct{ *checkpoints.Repo }

func (b repoBlobs) OpenBlob(ctx context.Context, d specstream.Digest) (shard.BlobReader, error) {
	r, err := b.Repo.OpenBlob(ctx, d)
	if errors.Is(err, checkpoints.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	return r, err
}

// Files of a base's folder that make up the model; others are left alone.
var baseFiles = []string{"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja", "model.safetensors.index.json"}

// isBaseFile reports whether a folder's file belongs to the model.
func isBaseFile(name string) bool {
	if strings.HasSuffix(name, ".safetensors") {
		return true
	}
	for _, f := range baseFiles {
		if name == f {
			return true
		}
	}
	return false
}

// Base is a base model in the store.
type StoredBase struct {
	Ref specstream.Ref
	// Content names the files' bytes.
	Content specstream.Digest
	// Tokenizer is the digest of tokenizer.json.
	Tokenizer specstream.Digest
	Config    model.Config
	Dir       string // local copy
}

// ResolveBase makes the base named by a folder or a reference an artefact of the
// store and keeps a local copy.
func (e *Env) ResolveBase(ctx context.Context, base string) (StoredBase, error) {
	ref, err := specstream.ParseRef(base)
	if err != nil {
		if ref, err = e.commitBase(ctx, base); err != nil {
			return StoredBase{}, err
		}
	}
	m, dir, err := e.fetch(ctx, ref, checkpoints.KindBase)
	if err != nil {
		return StoredBase{}, err
	}
	tok, ok := m.File("tokenizer.json")
	if !ok {
		return StoredBase{}, &specstream.InputError{File: base, Field: "tokenizer.json", Reason: "the base has no tokenizer.json"}
	}
	c, err := model.ReadConfig(filepath.Join(dir, "config.json"))
	if err != nil {
		return StoredBase{}, err
	}
	return StoredBase{Ref: ref, Content: m.Content, Tokenizer: tok.Digest, Config: c, Dir: dir}, nil
}

// commitBase stores a Hugging Face folder, after checking all of it but the
// weights' values.
func (e *Env) commitBase(ctx context.Context, dir string) (specstream.Ref, error) {
	if err := model.Check(dir); err != nil {
		return specstream.Ref{}, err
	}
	if _, err := loadTokenizer(filepath.Join(dir, "tokenizer.json")); err != nil {
		return specstream.Ref{}, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return specstream.Ref{}, fmt.Errorf("base: %w", err)
	}
	m := checkpoints.Manifest{Kind: checkpoints.KindBase}
	for _, f := range entries {
		if f.IsDir() || !isBaseFile(f.Name()) {
			continue
		}
		file, err := e.Repo.PutFile(ctx, filepath.Join(dir, f.Name()))
		if err != nil {
			return specstream.Ref{}, fmt.Errorf("store base: %w", err)
		}
		file.Name = f.Name()
		m.Files = append(m.Files, file)
	}
	m.Run = runName("base", m.ContentDigest())
	return e.Repo.Commit(ctx, m)
}

// runName names a piece of work by what it depends on.
func runName(what string, d specstream.Digest) string { return what + "-" + d.Hex()[:24] }

// fetch brings an artefact of the given kind into the cache.
func (e *Env) fetch(ctx context.Context, ref specstream.Ref, kind checkpoints.Kind) (checkpoints.Manifest, string, error) {
	m, err := e.Repo.ReadManifest(ctx, ref)
	if err != nil {
		return m, "", err
	}
	if m.Kind != kind {
		return m, "", &specstream.InputError{File: ref.Key, Field: "kind", Reason: fmt.Sprintf("is a %s, want a %s", m.Kind, kind)}
	}
	dir := filepath.Join(e.Work, string(kind), m.Content.Hex()[:24])
	_, err = e.Repo.Fetch(ctx, ref, dir)
	return m, dir, err
}

// loadTokenizer loads a tokenizer.json; a missing file is the user's to mend.
func loadTokenizer(path string) (*tokenizer.Tokenizer, error) {
	t, err := tokenizer.Load(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &specstream.InputError{File: path, Reason: "no such file", Hint: "name a Hugging Face tokenizer.json"}
	}
	return t, err
}

// dataset is a dataset in the store.
type dataset struct {
	ref      specstream.Ref
	content  specstream.Digest
	manifest shard.Manifest
}

// openDataset reads a committed dataset's manifest.
func (e *Env) openDataset(ctx context.Context, ref specstream.Ref) (dataset, error) {
	m, err := e.Repo.ReadManifest(ctx, ref)
	if err != nil {
		return dataset{}, err
	}
	f, ok := m.File(shard.ManifestFile)
	if m.Kind != checkpoints.KindDataset || !ok {
		return dataset{}, &specstream.InputError{File: ref.Key, Field: "kind", Reason: fmt.Sprintf("is a %s, want a dataset", m.Kind)}
	}
	r, err := e.Repo.OpenFile(ctx, f)
	if err != nil {
		return dataset{}, err
	}
	defer r.Close()
	sm, err := shard.ReadManifest(ref.Key, io.NewSectionReader(r, 0, r.Size()))
	return dataset{ref: ref, content: m.Content, manifest: sm}, err
}

// rawJSON marshals a completed specification for a manifest.
func rawJSON(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // specifications are plain structs
	}
	return b
}
