package shard

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
	"slices"

	"github.com/specstream/specstream"
)

// Validate checks that every field is in range, digests are well formed and
// sums agree, and names the first field that is not right.
func (m Manifest) Validate() error {
	if m.Schema != ManifestVersion {
		return &specstream.InputError{Field: "schema", Reason: fmt.Sprintf("%d is not %d", m.Schema, ManifestVersion),
			Hint: "ingest the data again with this version"}
	}
	if len(m.Shards) == 0 {
		return specstream.Invalid("shards", "the data set has no shards")
	}
	if err := m.Lineage.validate(len(m.Shards)); err != nil {
		return err
	}
	var rows, tokens int64
	for i, s := range m.Shards {
		if err := s.validate(i); err != nil {
			return err
		}
		rows, tokens = rows+s.Rows, tokens+s.Tokens
		if rows < 0 || tokens < 0 {
			return specstream.Invalid(fmt.Sprintf("shards[%d]", i), "the counts overflow")
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
	case c.MaxLength < 0 || c.MaxLength > min(tokens, math.MaxInt32) || (tokens > 0) != (c.MaxLength > 0):
		return specstream.Invalid("counts.max_length", "%d can't be among %d tokens", c.MaxLength, tokens)
	}
	if err := m.Lengths.validate(c); err != nil {
		return err
	}
	for i, b := range m.TokenCounts {
		if err := b.validate(fmt.Sprintf("token_counts[%d]", i)); err != nil {
			return err
		}
	}
	return nil
}

// validate checks a lineage of so many shards.
func (l Lineage) validate(shards int) error {
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
	if l.VocabSize < 1 || l.VocabSize > math.MaxInt32 {
		return specstream.Invalid(f+"vocab_size", "%d is outside 1..%d", l.VocabSize, math.MaxInt32)
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
	next := 0
	for i, p := range l.Parts {
		if err := p.validate(fmt.Sprintf("%sparts[%d]", f, i), len(l.Sources), next, shards); err != nil {
			return err
		}
		next = p.Shards[1]
	}
	if len(l.Parts) > 0 && next != shards {
		return specstream.Invalid(f+"parts", "they have %d shards, the data set %d", next, shards)
	}
	return l.Account.validate(f + "account")
}

// validate checks the part whose shards begin at next.
func (p Part) validate(field string, sources, next, shards int) error {
	if p.Source < 0 || p.Source >= sources {
		return specstream.Invalid(field+".source", "%d is none of the %d sources", p.Source, sources)
	}
	for _, c := range []struct {
		name     string
		v, least int64
	}{{"start", p.Start, 0}, {"end", p.End, p.Start}, {"first", p.First, 1}, {"records", p.Records, 0}, {"quarantine_bytes", p.QuarantineBytes, 0}} {
		if c.v < c.least {
			return specstream.Invalid(field+"."+c.name, "%d is below %d", c.v, c.least)
		}
	}
	if p.Container == "" {
		return specstream.Invalid(field+".container", "no container is named")
	}
	if p.Digest == "" {
		return specstream.Invalid(field+".digest", "the part has no digest")
	}
	if p.Shards[0] != next || p.Shards[1] < next || p.Shards[1] > shards {
		return specstream.Invalid(field+".shards", "%v is not a range from %d within %d shards", p.Shards, next, shards)
	}
	if p.Quarantine != "" {
		if err := p.Quarantine.Validate(); err != nil {
			return specstream.Invalid(field+".quarantine", "%v", err)
		}
	}
	return nil
}

func (a Account) validate(field string) error {
	if a.Read < 0 {
		return specstream.Invalid(field+".read", "%d is negative", a.Read)
	}
	if a.Kept < 0 || a.Kept > a.Read {
		return specstream.Invalid(field+".kept", "%d is outside 0..%d, the records read", a.Kept, a.Read)
	}
	if a.Quarantined < 0 || a.Quarantined > a.Read-a.Kept {
		return specstream.Invalid(field+".quarantined", "%d is outside 0..%d, the records dropped", a.Quarantined, a.Read-a.Kept)
	}
	gone := int64(0)
	for _, n := range a.Dropped {
		gone += n
	}
	for _, r := range []struct {
		name    string
		reasons map[string]int64
		most    int64
	}{{"dropped", a.Dropped, a.Read}, {"changed", a.Changed, a.Read}, {"samples_dropped", a.SamplesDropped, math.MaxInt64}} {
		for _, reason := range slices.Sorted(maps.Keys(r.reasons)) {
			if n := r.reasons[reason]; n < 0 || n > r.most {
				return specstream.Invalid(field+"."+r.name, "%d for %q is outside 0..%d", n, reason, r.most)
			}
		}
	}
	if a.Kept+gone != a.Read {
		return specstream.Invalid(field, "%d records kept and %d dropped are not the %d read", a.Kept, gone, a.Read)
	}
	return nil
}

func (b Blob) validate(field string) error {
	if err := b.Digest.Validate(); err != nil {
		return specstream.Invalid(field+".digest", "%v", err)
	}
	if b.Bytes < 1 || b.Bytes > MaxShardBytes {
		return specstream.Invalid(field+".bytes", "%d is outside 1..%d", b.Bytes, MaxShardBytes)
	}
	return nil
}

// validate checks shard i. Every writer keeps these bounds, and they keep
// 32-bit offsets and the sums from overflowing.
func (s Shard) validate(i int) error {
	bad := func(field, format string, args ...any) error {
		return specstream.Invalid(fmt.Sprintf("shards[%d].%s", i, field), format, args...)
	}
	if err := s.Digest.Validate(); err != nil {
		return bad("digest", "%v", err)
	}
	if s.Bytes < 1 || s.Bytes > MaxShardBytes {
		return bad("bytes", "%d is outside 1..%d", s.Bytes, MaxShardBytes)
	}
	if len(s.Groups) == 0 {
		return bad("groups", "the shard has no row groups")
	}
	rows := int64(0)
	for j, n := range s.Groups {
		if n < 1 || n > maxGroupRows {
			return bad(fmt.Sprintf("groups[%d]", j), "%d rows is outside 1..%d", n, maxGroupRows)
		}
		rows += n
	}
	if rows != s.Rows {
		return bad("rows", "%d is not the row groups' sum, %d", s.Rows, rows)
	}
	if most := int64(len(s.Groups)) * maxGroupTokens; s.Tokens < 0 || s.Tokens > most {
		return bad("tokens", "%d is outside 0..%d", s.Tokens, most)
	}
	if err := s.Index.validate("index"); err != nil {
		var in *specstream.InputError
		if errors.As(err, &in) {
			return bad(in.Field, "%s", in.Reason)
		}
		return err
	}
	return nil
}

// validate checks that the histogram can be that of samples of these counts.
func (h Histogram) validate(c Counts) error {
	if len(h) != bits.Len64(uint64(c.MaxLength))+1 || h[len(h)-1] == 0 {
		return specstream.Invalid("lengths", "its last bucket is not that of the longest sample, of %d tokens", c.MaxLength)
	}
	samples, least, most := int64(0), int64(0), uint64(0)
	for i, n := range h {
		if n < 0 || n > c.Samples-samples {
			return specstream.Invalid("lengths", "%d samples in bucket %d are not among the data set's %d", n, i, c.Samples)
		}
		samples += n
		if i == 0 {
			continue
		}
		// Checked before it is added, so that no sum overflows.
		if n > (c.Tokens-least)>>(i-1) {
			return specstream.Invalid("lengths", "samples of these lengths have more than %d tokens", c.Tokens)
		}
		least, most = least+n<<(i-1), most+uint64(n)*(1<<i-1)
	}
	if samples != c.Samples {
		return specstream.Invalid("lengths", "it has %d samples, the data set %d", samples, c.Samples)
	}
	if uint64(c.Tokens) > most {
		return specstream.Invalid("lengths", "samples of these lengths have fewer than %d tokens", c.Tokens)
	}
	return nil
}
