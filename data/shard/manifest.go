package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/specstream/specstream"
)

// ManifestVersion is the version of the manifest's format.
const ManifestVersion = 2

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
	// Lengths is the histogram of the samples' lengths in tokens.
	Lengths Histogram `json:"lengths"`
	// TokenCounts are blobs whose sums are the occurrences of each token, one
	// for each part that has samples; see [TokenCounts].
	TokenCounts []Blob `json:"token_counts"`
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
	// Clean names the version of the cleaning rules.
	Clean string `json:"clean,omitempty"`
	// Sources are the files read, in order.
	Sources []Source `json:"sources"`
	// Parts are the runs of records that were processed one by one, in order;
	// none if the samples were not made of parts of inputs.
	Parts []Part `json:"parts,omitempty"`
	// Account says what became of the records.
	Account Account `json:"account"`
}

// Source is one file records were read from.
type Source struct {
	// URI is a local path or the address of an object.
	URI string `json:"uri"`
	// Bytes is the file's size as stored (compressed if it is).
	Bytes int64 `json:"bytes"`
	// SHA256 is the digest of those bytes.
	SHA256 specstream.Digest `json:"sha256"`
	// Records is how many records were read from it.
	Records int64 `json:"records"`
}

// Part is a run of whole records of one source and the shards made of it.
type Part struct {
	// Source is the index of its source in Lineage.Sources.
	Source int `json:"source"`
	// Container is how its records are stored, such as "json-lines".
	Container string `json:"container"`
	// Compression is that of the stored file, such as "gzip"; empty for none.
	Compression string `json:"compression,omitempty"`
	// Start and End are the byte range of the decompressed text that holds the
	// records; of a Parquet file the range of row groups.
	Start int64 `json:"start"`
	End   int64 `json:"end"`
	// First is the number of its first record in the source, from 1.
	First int64 `json:"first"`
	// Records is how many it has.
	Records int64 `json:"records"`
	// Digest names the bytes of the part.
	Digest string `json:"digest"`
	// Shards is the half-open range of Manifest.Shards made of it, empty if no
	// sample came of it. [NewManifest] sets it.
	Shards [2]int `json:"shards"`
	// Quarantine is the blob of the records left out, with their reasons; empty
	// if there is none. QuarantineBytes is its size.
	Quarantine      specstream.Digest `json:"quarantine,omitempty"`
	QuarantineBytes int64             `json:"quarantine_bytes,omitempty"`
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
	// Quarantined counts the bad records among the dropped.
	Quarantined int64 `json:"quarantined,omitempty"`
	// SamplesDropped counts the samples left out, by reason: of dropped records
	// and of kept ones.
	SamplesDropped map[string]int64 `json:"samples_dropped,omitempty"`
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

// add adds another part's counts.
func (c *Counts) add(o Counts) {
	c.Samples += o.Samples
	c.Tokens += o.Tokens
	c.CompletionTokens += o.CompletionTokens
	c.MaxLength = max(c.MaxLength, o.MaxLength)
}

// Blob names stored bytes.
type Blob struct {
	// Digest is their SHA-256.
	Digest specstream.Digest `json:"digest"`
	// Bytes is how many they are.
	Bytes int64 `json:"bytes"`
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
	// Groups are the numbers of rows of the file's row groups, in order.
	Groups []int64 `json:"groups"`
	// Index is the blob that places and vouches for the row groups and holds
	// the rows' lengths; see the package's documentation.
	Index Blob `json:"index"`
}

// NewManifest joins what was written for the parts of a data set, in order, into
// the manifest, which the caller stores: until then nothing names the shards.
// The lineage's spec is completed; its parts, if it has any, are those of the
// arguments one by one, and get their ranges of shards. No sample at all, a
// token outside the vocabulary or a lineage that does not validate is a
// [specstream.InputError].
func NewManifest(l Lineage, parts []Written) (Manifest, error) {
	l.Spec = l.Spec.WithDefaults()
	if len(l.Parts) > 0 && len(l.Parts) != len(parts) {
		return Manifest{}, fmt.Errorf("make manifest: %d parts were written, the lineage names %d", len(parts), len(l.Parts))
	}
	m := Manifest{Schema: ManifestVersion, Lineage: l, Lengths: Histogram{}, TokenCounts: []Blob{}, Shards: []Shard{}}
	m.Lineage.Parts = append([]Part(nil), l.Parts...)
	for i, p := range parts {
		if p.Counts.Samples > 0 && int64(p.MaxToken) >= int64(l.VocabSize) {
			in := &specstream.InputError{Record: p.MaxSample, Field: ColumnTokens,
				Reason: fmt.Sprintf("token %d is outside the vocabulary of %d", p.MaxToken, l.VocabSize)}
			if len(l.Parts) > 0 {
				in.Reason = fmt.Sprintf("sample %d of part %d: %s", in.Record, i, in.Reason)
				in.Record = 0
			}
			return Manifest{}, in
		}
		first := len(m.Shards)
		m.Shards = append(m.Shards, p.Shards...)
		m.Counts.add(p.Counts)
		m.Lengths = m.Lengths.Add(p.Lengths)
		if p.TokenCounts != "" {
			m.TokenCounts = append(m.TokenCounts, Blob{p.TokenCounts, p.TokenCountsBytes})
		}
		if len(l.Parts) > 0 {
			m.Lineage.Parts[i].Shards = [2]int{first, len(m.Shards)}
		}
	}
	if m.Counts.Samples == 0 {
		return Manifest{}, &specstream.InputError{Field: "inputs", Reason: "no sample is left of the records read",
			Hint: "see the account of what was dropped"}
	}
	if err := m.Validate(); err != nil {
		return Manifest{}, err
	}
	return m, nil
}

// Blobs lists every blob that the data set needs, shards first, with no digest
// twice: what a store must keep, and a copy must bring along.
func (m Manifest) Blobs() []Blob {
	seen := map[specstream.Digest]bool{}
	var out []Blob
	add := func(b Blob) {
		if b.Digest != "" && !seen[b.Digest] {
			seen[b.Digest] = true
			out = append(out, b)
		}
	}
	for _, s := range m.Shards {
		add(Blob{s.Digest, s.Bytes})
	}
	for _, s := range m.Shards {
		add(s.Index)
	}
	for _, b := range m.TokenCounts {
		add(b)
	}
	for _, p := range m.Lineage.Parts {
		add(Blob{p.Quarantine, p.QuarantineBytes})
	}
	return out
}

// Encode returns the manifest as it is stored: JSON with fields in the order of
// the struct and map keys sorted, one line for each source, part and shard, and
// a final newline. A shard takes about 300 bytes and 4 for each row group.
func (m Manifest) Encode() ([]byte, error) {
	b, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return append(breakLines(b), '\n'), nil
}

// breakLines puts a line break before the fields of the outermost two objects
// and before each object in an array of compact JSON.
func breakLines(b []byte) []byte {
	out := make([]byte, 0, len(b)+len(b)/64)
	var open []byte // brackets around the place
	inString := false
	for i, c := range b {
		switch {
		case inString:
			inString = c != '"' || escaped(b[:i])
		case c == '"':
			inString = true
		case c == '{' || c == '[':
			if c == '{' && len(open) > 0 && open[len(open)-1] == '[' {
				out = append(out, '\n')
			}
			open = append(open, c)
		case c == '}' || c == ']':
			open = open[:len(open)-1]
		}
		out = append(out, c)
		if c == ',' && !inString && len(open) <= 2 && open[len(open)-1] == '{' {
			out = append(out, '\n')
		}
	}
	return out
}

// escaped reports whether an odd number of backslashes ends b.
func escaped(b []byte) bool {
	n := 0
	for n < len(b) && b[len(b)-1-n] == '\\' {
		n++
	}
	return n%2 == 1
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
	var in *specstream.InputError
	if err := specstream.DecodeStrict(name, r, &m); err != nil {
		if errors.As(err, &in) {
			c := *in
			c.Hint = fmt.Sprintf("this version reads data set manifests of schema %d", ManifestVersion)
			return Manifest{}, &c
		}
		return Manifest{}, err
	}
	if err := m.Validate(); err != nil {
		if errors.As(err, &in) {
			c := *in
			c.File = name
			return Manifest{}, &c
		}
		return Manifest{}, fmt.Errorf("%s: %w", name, err)
	}
	return m, nil
}
