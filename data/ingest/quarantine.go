package ingest

import (
	"context"
	"fmt"
	"io"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
)

// What became of a quarantined record.
const (
	// ActionQuarantined: the record is bad, and counts towards MaxBad.
	ActionQuarantined = "quarantined"
	// ActionDropped: the record is sound but left out, or, with Samples set,
	// samples of it are.
	ActionDropped = "dropped"
	// ActionChanged: the record was kept, altered.
	ActionChanged = "changed"
)

// Quarantined is one line of the quarantine: what became of one record that was
// not kept as it was.
type Quarantined struct {
	File   string `json:"file"`
	Record int64  `json:"record"`
	Field  string `json:"field,omitempty"`
	// Code is the reason's code, as in the Account.
	Code string `json:"code"`
	// Reason is the reason in words, where there is more to say than the code.
	Reason string `json:"reason,omitempty"`
	// Action is one of the Action… constants.
	Action string `json:"action"`
	// Samples is how many samples of a kept record were left out.
	Samples int64 `json:"samples,omitempty"`
	// OfFile and OfRecord are what a duplicate is the duplicate of, Similarity
	// how similar (0..1).
	OfFile     string  `json:"of_file,omitempty"`
	OfRecord   int64   `json:"of_record,omitempty"`
	Similarity float64 `json:"similarity,omitempty"`
}

// entry is a Quarantined as a part's blob has it: without names of files, which
// are not the part's own.
type entry struct {
	Record int64  `json:"record"`
	Field  string `json:"field,omitempty"`
	Code   string `json:"code"`
	Reason string `json:"reason,omitempty"`
	Action string `json:"action"`
	// Samples as in Quarantined.
	Samples int64 `json:"samples,omitempty"`
	// OfPart and OfRecord say of what a record is the duplicate: of a record of
	// the first part of that content.
	OfPart     string  `json:"of_part,omitempty"`
	OfRecord   int64   `json:"of_record,omitempty"`
	Similarity float64 `json:"similarity,omitempty"`
}

// badEntry describes a bad record.
func badEntry(bad *data.BadRecordError) entry {
	return entry{Record: bad.Input.Record, Field: bad.Input.Field, Code: bad.Code, Reason: inWords(bad.Input), Action: ActionQuarantined}
}

func skipEntry(s *data.SkipError) entry {
	return entry{Record: s.Input.Record, Field: s.Input.Field, Code: s.Reason, Reason: inWords(s.Input), Action: ActionDropped}
}

func inWords(in *specstream.InputError) string {
	if in.Err == nil {
		return in.Reason
	}
	if in.Reason == "" {
		return in.Err.Error()
	}
	return in.Reason + ": " + in.Err.Error()
}

// Quarantine tells what became of each record of a data set that was not kept as
// it was, in the order of the inputs. It is what Options.Quarantine was told when
// the data set was made.
func Quarantine(ctx context.Context, blobs Blobs, m shard.Manifest, tell func(Quarantined) error) error {
	l := m.Lineage
	q := quarantine{blobs: blobs, tell: tell}
	for _, p := range l.Parts {
		q.parts = append(q.parts, place{l.Sources[p.Source].URI, p.Digest, p.First, p.Records})
	}
	for i, p := range l.Parts {
		if err := q.part(ctx, i, p.Quarantine); err != nil {
			return err
		}
	}
	return nil
}

// quarantine gives the lines of parts' blobs the names of files.
type quarantine struct {
	blobs Blobs
	parts []place
	tell  func(Quarantined) error
	of    map[string][]int // parts by digest, in order
}

// place is where the records of a part are.
type place struct {
	file, digest   string
	first, records int64
}

func (j *Job) quarantine() *quarantine {
	q := &quarantine{blobs: j.o.Blobs, tell: j.o.Quarantine}
	for _, p := range j.plan.Parts {
		q.parts = append(q.parts, place{p.URI, p.Digest, p.First, p.Records})
	}
	return q
}

// part tells the lines of one part.
func (q *quarantine) part(ctx context.Context, part int, lines specstream.Digest) error {
	if q.tell == nil || lines == "" {
		return nil
	}
	r, err := openLines[entry](ctx, q.blobs, lines)
	if err != nil {
		return fmt.Errorf("read quarantine: %w", err)
	}
	defer r.close()
	for {
		e, err := r.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read quarantine: %w", err)
		}
		l := Quarantined{File: q.parts[part].file, Record: e.Record, Field: e.Field, Code: e.Code, Reason: e.Reason, Action: e.Action, Samples: e.Samples}
		if e.OfPart != "" {
			l.OfFile, l.OfRecord, l.Similarity = q.fileOf(e.OfPart, e.OfRecord), e.OfRecord, e.Similarity
		}
		if err := q.tell(l); err != nil {
			return fmt.Errorf("write quarantine: %w", err)
		}
	}
}

// fileOf returns the file of the first part of a content that has the record.
func (q *quarantine) fileOf(digest string, record int64) string {
	if q.of == nil {
		q.of = map[string][]int{}
		for i, p := range q.parts {
			q.of[p.digest] = append(q.of[p.digest], i)
		}
	}
	for _, i := range q.of[digest] {
		if p := q.parts[i]; record >= p.first && record < p.first+p.records {
			return p.file
		}
	}
	return ""
}
