package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/specstream/specstream"
)

// ManifestVersion is the version of the manifest's and the shards' format.
const ManifestVersion = 1

// MaxShardBytes is the largest shard, in bytes: one PUT to any store.
const MaxShardBytes = 256 << 20

// Manifest describes a data set completely. Two data sets are the same exactly
// when their manifests' digests are.
type Manifest struct {
	// Schema is [ManifestVersion].
	Schema int `json:"schema"`
	// Lineage says where the samples came from.
	Lineage Lineage `json:"lineage"`
	// Counts are the sums over all shards.
	Counts Counts `json:"counts"`
	// Shards are the files, in the order of the samples.
	Shards []Shard `json:"shards"`
}

// Lineage says what a data set was made from, and how.
type Lineage struct {
	// Spec is the completed specification.
	Spec specstream.DataSpec `json:"spec"`
	// Template names the prompt template with its version, for example "plain/1".
	Template string `json:"template"`
	// Tokenizer is the digest of the tokenizer's definition.
	Tokenizer specstream.Digest `json:"tokenizer"`
	// VocabSize is one more than the largest id the tokenizer can give. Every
	// token is below it.
	VocabSize int `json:"vocab_size"`
	// Sources are the files read, in order.
	Sources []Source `json:"sources"`
	// Account says what became of the records.
	Account Account `json:"account"`
}

// Source is one file records were read from.
type Source struct {
	// URI is a local path or an s3:// object.
	URI string `json:"uri"`
	// Bytes is the file's size as stored (compressed if it is).
	Bytes int64 `json:"bytes"`
	// SHA256 is the digest of those bytes.
	SHA256 specstream.Digest `json:"sha256"`
	// Records is how many records were read from it.
	Records int64 `json:"records"`
}

// Account says what became of the records read.
type Account struct {
	// Read counts the records read: the kept and the dropped.
	Read int64 `json:"read"`
	// Kept counts the records that gave at least one sample.
	Kept int64 `json:"kept"`
	// Dropped counts the records left out, by reason.
	Dropped map[string]int64 `json:"dropped"`
	// Changed counts the records kept but altered, by reason.
	Changed map[string]int64 `json:"changed"`
}

// Counts are sizes of a data set.
type Counts struct {
	// Samples is the number of rows.
	Samples int64 `json:"samples"`
	// Tokens counts all tokens.
	Tokens int64 `json:"tokens"`
	// CompletionTokens counts the tokens inside spans.
	CompletionTokens int64 `json:"completion_tokens"`
	// MaxLength is the longest sample, in tokens.
	MaxLength int64 `json:"max_length"`
}

// Shard is one Parquet file.
type Shard struct {
	// Digest is the SHA-256 of the file: its name in the store.
	Digest specstream.Digest `json:"digest"`
	// Bytes is the file's size.
	Bytes int64 `json:"bytes"`
	// Rows and Tokens are the sums over its row groups.
	Rows   int64 `json:"rows"`
	Tokens int64 `json:"tokens"`
	// RowGroups are the file's row groups in order. Their bytes follow one
	// another without a gap from offset 4, behind the file's magic number.
	RowGroups []RowGroup `json:"row_groups"`
	// Footer is the SHA-256 of the bytes behind the last row group: page
	// indexes, metadata and magic number.
	Footer specstream.Digest `json:"footer"`
}

// RowGroup is the unit of reading and of checking.
type RowGroup struct {
	Rows   int64 `json:"rows"`
	Tokens int64 `json:"tokens"`
	// Bytes is the size of the row group's pages in the file.
	Bytes int64 `json:"bytes"`
	// Digest is the SHA-256 of those bytes.
	Digest specstream.Digest `json:"digest"`
}

// footerOffset returns where the bytes behind the last row group begin.
func (s Shard) footerOffset() int64 {
	off := int64(len(parquetMagic))
	for _, g := range s.RowGroups {
		off += g.Bytes
	}
	return off
}

// Encode returns the manifest as it is stored: indented JSON with fields in
// the order of the struct, map keys sorted, and a final newline.
func (m Manifest) Encode() ([]byte, error) {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return append(b, '\n'), nil
}

// Digest returns the SHA-256 of what [Manifest.Encode] returns. It names the
// data set and keys the order of training.
func (m Manifest) Digest() (specstream.Digest, error) {
	b, err := m.Encode()
	if err != nil {
		return "", err
	}
	return specstream.DigestBytes(b), nil
}

// ReadManifest decodes a manifest strictly and validates it. Its errors about
// content are [specstream.InputError]s that name the file and the field.
func ReadManifest(name string, r io.Reader) (Manifest, error) {
	var m Manifest
	if err := specstream.DecodeStrict(name, r, &m); err != nil {
		var in *specstream.InputError
		if errors.As(err, &in) {
			c := *in
			c.Hint = fmt.Sprintf("this version reads data set manifests of schema %d", ManifestVersion)
			return Manifest{}, &c
		}
		return Manifest{}, err
	}
	if err := m.Validate(); err != nil {
		var in *specstream.InputError
		if errors.As(err, &in) {
			c := *in
			c.File = name
			return Manifest{}, &c
		}
		return Manifest{}, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}

// Validate checks that every field is in range, digests are well formed and
// sums agree, and names the first field that is not right.
func (m Manifest) Validate() error {
	if m.Schema != ManifestVersion {
		return &specstream.InputError{Field: "schema", Reason: fmt.Sprintf("%d is not %d", m.Schema, ManifestVersion),
			Hint: "ingest the data again with this version"}
	}
	if err := m.Lineage.validate(); err != nil {
		return err
	}
	if len(m.Shards) == 0 {
		return specstream.Invalid("shards", "the data set has no shards")
	}
	var rows, tokens int64
	for i, s := range m.Shards {
		field := fmt.Sprintf("shards[%d]", i)
		if err := s.validate(field); err != nil {
			return err
		}
		rows, tokens = rows+s.Rows, tokens+s.Tokens
		if rows < 0 || tokens < 0 {
			return specstream.Invalid(field, "the counts overflow")
		}
	}
	c := m.Counts
	switch {
	case c.Samples != rows:
		return specstream.Invalid("counts.samples", "%d is not the shards' sum, %d", c.Samples, rows)
	case c.Tokens != tokens:
		return specstream.Invalid("counts.tokens", "%d is not the shards' sum, %d", c.Tokens, tokens)
	case c.CompletionTokens < 0 || c.CompletionTokens > tokens:
		return specstream.Invalid("counts.completion_tokens", "%d is outside 0..%d", c.CompletionTokens, tokens)
	case c.MaxLength < 0 || c.MaxLength > tokens || (tokens > 0) != (c.MaxLength > 0):
		return specstream.Invalid("counts.max_length", "%d can't be among %d tokens", c.MaxLength, tokens)
	}
	return nil
}

func (l Lineage) validate() error {
	const f = "lineage."
	if err := l.Spec.Validate(); err != nil {
		var in *specstream.InputError
		if errors.As(err, &in) {
			c := *in
			c.Field = f + "spec." + c.Field
			return &c
		}
		return fmt.Errorf("lineage.spec: %w", err)
	}
	if l.Template == "" {
		return specstream.Invalid(f+"template", "no template is named")
	}
	if err := l.Tokenizer.Validate(); err != nil {
		return specstream.Invalid(f+"tokenizer", "%v", err)
	}
	if l.VocabSize < 1 || l.VocabSize > 1<<31-1 {
		return specstream.Invalid(f+"vocab_size", "%d is outside 1..2147483647", l.VocabSize)
	}
	if len(l.Sources) == 0 {
		return specstream.Invalid(f+"sources", "no source is named")
	}
	for i, s := range l.Sources {
		sf := fmt.Sprintf("%ssources[%d]", f, i)
		if s.URI == "" {
			return specstream.Invalid(sf+".uri", "the source has no name")
		}
		if s.Bytes < 0 {
			return specstream.Invalid(sf+".bytes", "%d is negative", s.Bytes)
		}
		if s.Records < 0 {
			return specstream.Invalid(sf+".records", "%d is negative", s.Records)
		}
		if err := s.SHA256.Validate(); err != nil {
			return specstream.Invalid(sf+".sha256", "%v", err)
		}
	}
	a := l.Account
	if a.Read < 0 {
		return specstream.Invalid(f+"account.read", "%d is negative", a.Read)
	}
	if a.Kept < 0 || a.Kept > a.Read {
		return specstream.Invalid(f+"account.kept", "%d is outside 0..%d, the records read", a.Kept, a.Read)
	}
	gone := int64(0)
	for _, n := range a.Dropped {
		gone += n
	}
	for _, r := range []struct {
		name    string
		reasons map[string]int64
	}{{"dropped", a.Dropped}, {"changed", a.Changed}} {
		for _, reason := range slices.Sorted(maps.Keys(r.reasons)) {
			if n := r.reasons[reason]; n < 0 || n > a.Read {
				return specstream.Invalid(f+"account."+r.name, "%d for %q is outside 0..%d, the records read", n, reason, a.Read)
			}
		}
	}
	if a.Kept+gone != a.Read {
		return specstream.Invalid(f+"account", "%d records kept and %d dropped are not the %d read", a.Kept, gone, a.Read)
	}
	return nil
}

func (s Shard) validate(field string) error {
	if err := s.Digest.Validate(); err != nil {
		return specstream.Invalid(field+".digest", "%v", err)
	}
	if err := s.Footer.Validate(); err != nil {
		return specstream.Invalid(field+".footer", "%v", err)
	}
	if s.Bytes < 1 || s.Bytes > MaxShardBytes {
		return specstream.Invalid(field+".bytes", "%d is outside 1..%d", s.Bytes, MaxShardBytes)
	}
	if len(s.RowGroups) == 0 {
		return specstream.Invalid(field+".row_groups", "the shard has no row groups")
	}
	var rows, tokens int64
	left := s.Bytes
	for i, g := range s.RowGroups {
		gf := fmt.Sprintf("%s.row_groups[%d]", field, i)
		// Every writer keeps these bounds, and they keep 32-bit offsets and the
		// sums below from overflowing.
		if g.Rows < 1 || g.Rows > maxGroupRows {
			return specstream.Invalid(gf+".rows", "%d is outside 1..%d", g.Rows, maxGroupRows)
		}
		if g.Tokens < 0 || g.Tokens > maxGroupTokens {
			return specstream.Invalid(gf+".tokens", "%d is outside 0..%d", g.Tokens, maxGroupTokens)
		}
		if g.Bytes < 1 || g.Bytes > left {
			return specstream.Invalid(gf+".bytes", "%d is outside 1..%d, what the shard has left", g.Bytes, left)
		}
		if err := g.Digest.Validate(); err != nil {
			return specstream.Invalid(gf+".digest", "%v", err)
		}
		left -= g.Bytes
		rows, tokens = rows+g.Rows, tokens+g.Tokens
	}
	if s.footerOffset() >= s.Bytes {
		return specstream.Invalid(field+".bytes", "%d leaves no footer behind the row groups, which end at %d", s.Bytes, s.footerOffset())
	}
	if rows != s.Rows {
		return specstream.Invalid(field+".rows", "%d is not the row groups' sum, %d", s.Rows, rows)
	}
	if tokens != s.Tokens {
		return specstream.Invalid(field+".tokens", "%d is not the row groups' sum, %d", s.Tokens, tokens)
	}
	return nil
}
