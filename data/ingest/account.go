package ingest

import (
	"fmt"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
)

// Account says what became of the records. Read = Kept + the sum of Dropped.
type Account struct {
	Counts
	// Shards is the number of shards.
	Shards int `json:"shards"`
	// Manifest is the digest of the data set's manifest.
	Manifest specstream.Digest `json:"manifest"`

	// Dataset is the manifest, for the caller to store.
	Dataset shard.Manifest `json:"-"`
	// Shown are the first samples, as many as Options.Show asks for.
	Shown []data.Sample `json:"-"`
}

// Counts count records and what they gave, of a part or of all.
type Counts struct {
	// Read counts the records read.
	Read int64 `json:"read"`
	// Kept counts the records that gave at least one sample.
	Kept int64 `json:"kept"`
	// Dropped counts the records that gave none, by reason: the codes of bad
	// records and of skipped ones in package data, and the reasons of cleaning.
	Dropped map[string]int64 `json:"dropped"`
	// Changed counts the kept records that were altered, by reason; a record may
	// have several.
	Changed map[string]int64 `json:"changed"`
	// Quarantined counts the bad records among the dropped.
	Quarantined int64 `json:"quarantined"`
	// Samples counts the samples written.
	Samples int64 `json:"samples"`
	// SamplesDropped counts samples left out, by reason: of dropped records
	// and of kept ones, the long turns of a conversation.
	SamplesDropped map[string]int64 `json:"samples_dropped"`
	// Tokens counts all tokens written, CompletionTokens those that carry loss.
	Tokens           int64 `json:"tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
}

func newCounts() Counts {
	return Counts{Dropped: map[string]int64{}, Changed: map[string]int64{}, SamplesDropped: map[string]int64{}}
}

// add adds a part's counts.
func (c *Counts) add(o Counts) {
	c.Read += o.Read
	c.Kept += o.Kept
	c.Quarantined += o.Quarantined
	c.Samples += o.Samples
	c.Tokens += o.Tokens
	c.CompletionTokens += o.CompletionTokens
	for _, m := range []struct{ to, from map[string]int64 }{{c.Dropped, o.Dropped}, {c.Changed, o.Changed}, {c.SamplesDropped, o.SamplesDropped}} {
		for k, n := range m.from {
			m.to[k] += n
		}
	}
}

// badRecords is what counts towards MaxBad, of a part.
type badRecords struct {
	Read  int64  `json:"read"`
	Bad   int64  `json:"bad"`
	First *entry `json:"first,omitempty"` // the first bad record
}

func (b *badRecords) add(e entry) {
	b.Bad++
	if b.First == nil {
		b.First = &e
	}
}

// judge adds up the bad records of parts in order.
type judge struct {
	job   *Job
	sum   badRecords
	first int // the part of sum.First
}

// take returns an error that names the first bad record once there are too many.
func (g *judge) take(part int, b badRecords) error {
	if g.sum.First == nil && b.First != nil {
		g.sum.First, g.first = b.First, part
	}
	g.sum.Read += b.Read
	g.sum.Bad += b.Bad
	return g.check(false)
}

// check judges; end says that all records were read.
func (g *judge) check(end bool) error {
	j := g.job
	if !j.tolerance.Exceeded(g.sum.Bad, g.sum.Read, end) {
		return nil
	}
	e := g.sum.First
	return &specstream.InputError{File: j.plan.Parts[g.first].URI, Record: e.Record, Field: e.Field, Reason: e.Reason,
		Hint: fmt.Sprintf("bad records: %d of the %d read, and max_bad is %q; mend them or raise max_bad", g.sum.Bad, g.sum.Read, j.plan.Spec.MaxBad)}
}
