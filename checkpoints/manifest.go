package checkpoints

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/specstream/specstream"
)

// Kind says what an artefact is.
type Kind string

// Kinds of artefacts.
const (
	KindBase       Kind = "base"       // a base model in Hugging Face's layout
	KindDataset    Kind = "dataset"    // token shards and their manifest
	KindAdapter    Kind = "adapter"    // an adapter in PEFT's layout
	KindState      Kind = "state"      // a trainer's state, adapter included, to resume from
	KindEvaluation Kind = "evaluation" // measurements of a checkpoint
)

var kinds = []Kind{KindBase, KindDataset, KindAdapter, KindState, KindEvaluation}

// ManifestVersion is the version of the manifest's JSON that this package writes
// and reads.
const ManifestVersion = 1

// maxStep and maxGeneration are what the key's 8 digits hold.
const (
	maxStep       = 99_999_999
	maxGeneration = 99_999_999
)

// Manifest is one committed artefact: which files it has and where they came
// from. [Repo.Commit] sets Version, Content, Sum, and Created if it is zero.
type Manifest struct {
	// Version is ManifestVersion.
	Version int `json:"version"`
	// Kind says what the files are.
	Kind Kind `json:"kind"`
	// Run groups the artefacts of one piece of work; see [ValidateName].
	Run string `json:"run"`
	// Step is the optimiser step, 0 for artefacts without steps.
	Step int64 `json:"step"`
	// Generation is that of the lease under which it was committed; 0 without.
	Generation int64 `json:"generation"`
	// Files are sorted by name. At least one.
	Files []File `json:"files"`
	// Content is what [Manifest.ContentDigest] returns.
	Content specstream.Digest `json:"content"`
	// Parents are what it was made from: the checkpoint resumed from, the adapter evaluated.
	Parents []specstream.Ref `json:"parents,omitempty"`
	// Base and Dataset are the content digests of the base model and the data.
	Base    specstream.Digest `json:"base,omitempty"`
	Dataset specstream.Digest `json:"dataset,omitempty"`
	// Spec is the completed specification of the work.
	Spec json.RawMessage `json:"spec,omitempty"`
	// Seed is the seed of the work.
	Seed uint64 `json:"seed,omitempty"`
	// Metrics are figures by name. All are finite.
	Metrics map[string]float64 `json:"metrics,omitempty"`
	// Code is the version of the program.
	Code string `json:"code,omitempty"`
	// Writer is the process that committed, for people.
	Writer string `json:"writer,omitempty"`
	// Created is the writer's clock. Nothing is decided by it.
	Created time.Time `json:"created"`
	// Sum is the SHA-256 of the manifest's stored bytes with Sum's digits as
	// zeros. It must be the last field.
	Sum specstream.Digest `json:"sum"`
}

// File is one file of an artefact.
type File struct {
	// Name is a relative path with forward slashes. No segment begins with a dot.
	Name string `json:"name"`
	// Digest is the SHA-256 of the whole file.
	Digest specstream.Digest `json:"digest"`
	// Size is the file's length in bytes.
	Size int64 `json:"size"`
	// Blobs are the file's pieces in order; none if the file is one blob, named
	// by Digest.
	Blobs []Blob `json:"blobs,omitempty"`
}

// Blob is one stored piece of a file.
type Blob struct {
	Digest specstream.Digest `json:"digest"`
	Size   int64             `json:"size"` // bytes
}

func (f File) blobs() []Blob {
	if len(f.Blobs) == 0 {
		return []Blob{{f.Digest, f.Size}}
	}
	return f.Blobs
}

// Validate checks one file's entry and names the first bad field.
func (f File) Validate() error {
	if err := ValidateKey(f.Name); err != nil {
		return specstream.Invalid("name", "%v", err)
	}
	if err := f.Digest.Validate(); err != nil {
		return specstream.Invalid("digest", "%v", err)
	}
	if f.Size < 0 {
		return specstream.Invalid("size", "%d is negative", f.Size)
	}
	total := int64(0)
	for _, b := range f.blobs() {
		if err := b.Digest.Validate(); err != nil {
			return specstream.Invalid("blobs", "%v", err)
		}
		if b.Size < 0 || b.Size > MaxBlob {
			return specstream.Invalid("blobs", "a blob of %d bytes; want 0 to %d", b.Size, MaxBlob)
		}
		total += b.Size // no overflow: a record of 16 MiB has fewer than 2^20 blobs of 2^28
	}
	if total != f.Size {
		return specstream.Invalid("blobs", "they have %d bytes, the file %d", total, f.Size)
	}
	return nil
}

// Validate checks a completed manifest and names the first bad field.
func (m Manifest) Validate() error {
	if m.Version != ManifestVersion {
		return specstream.Invalid("version", "%d; this program reads %d", m.Version, ManifestVersion)
	}
	if !slices.Contains(kinds, m.Kind) {
		return specstream.Invalid("kind", "%q is not one of %q", m.Kind, kinds)
	}
	if err := ValidateName("run", m.Run); err != nil {
		return err
	}
	if m.Step < 0 || m.Step > maxStep {
		return specstream.Invalid("step", "%d is outside 0..%d", m.Step, maxStep)
	}
	if m.Generation < 0 || m.Generation > maxGeneration {
		return specstream.Invalid("generation", "%d is outside 0..%d", m.Generation, maxGeneration)
	}
	if len(m.Files) == 0 {
		return specstream.Invalid("files", "there are none")
	}
	for i, f := range m.Files {
		if err := f.Validate(); err != nil {
			return inFile(i, err)
		}
		if i == 0 {
			continue
		}
		before := m.Files[i-1].Name
		if f.Name <= before {
			return specstream.Invalid("files", "%q comes after %q: want names ascending, each once", f.Name, before)
		}
	}
	for i, f := range m.Files { // sorted: what lies under a name need not follow it at once
		for _, g := range m.Files[i+1:] {
			if strings.HasPrefix(g.Name, f.Name+"/") {
				return specstream.Invalid("files", "%q is a file and a directory", f.Name)
			}
			if !strings.HasPrefix(g.Name, f.Name) {
				break
			}
		}
	}
	for _, p := range m.Parents {
		if _, err := specstream.ParseRef(p.String()); err != nil {
			return specstream.Invalid("parents", "%v", err)
		}
	}
	for field, d := range map[string]specstream.Digest{"base": m.Base, "dataset": m.Dataset} {
		if d == "" {
			continue
		}
		if err := d.Validate(); err != nil {
			return specstream.Invalid(field, "%v", err)
		}
	}
	for name, v := range m.Metrics {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return specstream.Invalid("metrics", "%q is %v: leave out what is not a number", name, v)
		}
	}
	if want := m.ContentDigest(); m.Content != want {
		return specstream.Invalid("content", "%q; the files listed give %q", m.Content, want)
	}
	return nil
}

func inFile(i int, err error) error {
	var in *specstream.InputError
	if errors.As(err, &in) {
		c := *in
		c.Field = fmt.Sprintf("files[%d].%s", i, c.Field)
		return &c
	}
	return fmt.Errorf("files[%d]: %w", i, err)
}

// ContentDigest is the digest of what the artefact is, apart from when, where,
// by whom and from what it was made: its kind and its files' names and digests.
// "The same adapter" means an equal content digest.
func (m Manifest) ContentDigest() specstream.Digest {
	files := slices.Clone(m.Files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	var b bytes.Buffer
	fmt.Fprintf(&b, "specstream content 1\n%q\n", m.Kind)
	for _, f := range files {
		fmt.Fprintf(&b, "%q %s\n", f.Name, f.Digest) // quoted: a name cannot forge another line
	}
	return specstream.DigestBytes(b.Bytes())
}

// File returns the entry of that name.
func (m Manifest) File(name string) (File, bool) {
	i, ok := slices.BinarySearchFunc(m.Files, name, func(f File, n string) int { return strings.Compare(f.Name, n) })
	if !ok {
		return File{}, false
	}
	return m.Files[i], true
}

// Size is the sum of the files' sizes in bytes.
func (m Manifest) Size() int64 {
	n := int64(0)
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Key is where the manifest is stored.
func (m Manifest) Key() string {
	return fmt.Sprintf("manifests/%s/%08d-%08d.json", m.Run, m.Step, m.Generation)
}

// ParseManifest reads a stored manifest strictly. Bytes that do not have the sum
// they end in are [ErrCorrupt]; unknown fields, another version and entries that
// Validate refuses are an [specstream.InputError] naming name.
func ParseManifest(name string, b []byte) (Manifest, error) {
	var m Manifest
	if err := unseal(name, b, ManifestVersion, &m); err != nil {
		return Manifest{}, err
	}
	if err := m.Validate(); err != nil {
		var in *specstream.InputError
		if errors.As(err, &in) {
			c := *in
			c.File = name
			return Manifest{}, &c
		}
		return Manifest{}, err
	}
	return m, nil
}
