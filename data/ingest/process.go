package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
)

// Processed is what [Job.Process] makes of a part.
type Processed struct {
	// Written names the part's shards.
	Written shard.Written `json:"written"`
	// Counts say what became of its records.
	Counts Counts `json:"counts"`
	// FirstBad is the first bad record.
	FirstBad *entry `json:"first_bad,omitempty"`
	// Quarantine is the blob of what became of records that were not kept as
	// they were, if there are any.
	Quarantine shard.Blob `json:"quarantine,omitzero"`

	stopped bool // there are more bad records than the job tolerates
	shown   []data.Sample
}

func (p Processed) blobs() []shard.Blob {
	out := []shard.Blob{{Digest: p.Written.TokenCounts, Bytes: p.Written.TokenCountsBytes}, p.Quarantine}
	for _, s := range p.Written.Shards {
		out = append(out, shard.Blob{Digest: s.Digest, Bytes: s.Bytes}, s.Index)
	}
	return out
}

func (p Processed) bad() badRecords {
	return badRecords{Read: p.Counts.Read, Bad: p.Counts.Quarantined, First: p.FirstBad}
}

func (j *Job) processKey(part int) partKey {
	s := j.plan.Spec
	k := j.partKey(StageProcess, part)
	// How duplicates are found matters no more: which they are does.
	k.Clean.Dedupe, k.Clean.NearThreshold = "", 0
	k.Shards, k.Tokenizer, k.Template = shard.ManifestVersion, j.plan.Tokenizer, j.plan.Template
	k.SpecialTokens, k.Turns, k.MaxLength, k.Overlong, k.ShardTokens = s.SpecialTokens, s.Turns, s.MaxLength, s.Overlong, s.ShardTokens
	if j.drops != nil {
		k.Drops = j.drops[part].Digest
	}
	return k
}

// processed looks for the shards of a part.
func (j *Job) processed(ctx context.Context, part int) (Processed, bool, error) {
	if err := j.checkPart(part); err != nil {
		return Processed{}, false, err
	}
	if j.Dedupes() && j.drops == nil {
		return Processed{}, false, errors.New("ingest: the duplicates are not resolved yet")
	}
	return recall[Processed](ctx, j.o, j.processKey(part))
}

// Process is the stage Process of one part. More bad records than MaxBad allows
// in this part alone, or damage, are a [specstream.InputError].
func (j *Job) Process(ctx context.Context, part int) (Counts, error) {
	if err := j.checkPart(part); err != nil {
		return Counts{}, err
	}
	j.tracker.start(StageProcess, j.plan.Parts[part].Bytes, 1)
	p, err := j.process(ctx, part, j.o.Workers)
	if err == nil {
		err = (&judge{job: j}).take(part, p.bad())
	}
	j.tracker.end(err)
	return p.Counts, cause(ctx, err)
}

func (j *Job) process(ctx context.Context, part, workers int) (Processed, error) {
	p, ok, err := j.processed(ctx, part)
	if err != nil {
		return p, err
	}
	if ok {
		j.tracker.skip(j.plan.Parts[part].Part)
		return p, nil
	}
	w, err := shard.NewWriter(shard.Options{Blobs: j.o.Shards, ShardTokens: j.plan.Spec.ShardTokens})
	if err != nil {
		return p, err
	}
	s := &sink{job: j, writer: w, meter: j.meter(part)}
	s.p.Counts = newCounts()
	run := pass{job: j, part: part, workers: workers, take: s.take, work: func(r *data.Reader, it *item) {
		if j.clean(r, it) {
			it.encoded, it.err = j.encoder.Samples(it.record)
		}
	}}
	if j.drops != nil {
		if run.drops, err = openLines[entry](ctx, j.o.Blobs, j.drops[part].Digest); err != nil {
			return p, fmt.Errorf("read duplicates: %w", err)
		}
		defer run.drops.close()
	}
	err = run.run(ctx)
	s.p.stopped = errors.Is(err, errTooManyBad)
	if err != nil && !s.p.stopped {
		return s.p, err
	}
	if s.p.Quarantine, err = s.lines.store(ctx, j.o.Blobs); err != nil || s.p.stopped {
		return s.p, wrap("store quarantine", err)
	}
	if s.p.Written, err = w.Finish(ctx); err != nil {
		return s.p, err
	}
	s.meter(Progress{Done: 1})
	return s.p, remember(ctx, j.o.Memo, j.processKey(part), s.p)
}

// sink accounts for the records of a part and writes their samples.
type sink struct {
	job    *Job
	writer *shard.Writer
	lines  lineWriter
	meter  func(Progress)
	p      Processed
}

// take takes the next records.
func (s *sink) take(ctx context.Context, items []item) error {
	before := s.p.Counts
	for i := range items {
		if err := s.record(ctx, &items[i]); err != nil {
			return err
		}
	}
	c := s.p.Counts
	s.meter(Progress{Read: c.Read - before.Read, Kept: c.Kept - before.Kept, Quarantined: c.Quarantined - before.Quarantined,
		Samples: c.Samples - before.Samples, Tokens: c.Tokens - before.Tokens})
	return nil
}

func (s *sink) record(ctx context.Context, it *item) error {
	c := &s.p.Counts
	if it.drop != nil {
		c.Read++
		c.Dropped[it.drop.Code]++
		return s.lines.add(*it.drop)
	}
	e, bad, err := entryOf(it.err)
	if err != nil {
		return err
	}
	c.Read++
	if it.err != nil {
		c.Dropped[e.Code]++
		if err := s.lines.add(e); err != nil || !bad {
			return err
		}
		c.Quarantined++
		if s.p.FirstBad == nil {
			s.p.FirstBad = &e
		}
		if s.job.tolerance.Exceeded(c.Quarantined, c.Read, false) {
			return errTooManyBad
		}
		return nil
	}
	if err := s.lost(it); err != nil || len(it.encoded.Samples) == 0 {
		return err
	}
	c.Kept++
	for _, code := range changes(it) {
		c.Changed[code]++
		if err := s.lines.add(entry{Record: it.raw.Number, Code: code, Action: ActionChanged}); err != nil {
			return err
		}
	}
	for _, sample := range it.encoded.Samples {
		if err := s.writer.Write(ctx, sample); err != nil {
			return fmt.Errorf("write sample %s: %w", sample.ID, err)
		}
		c.Samples++
		c.Tokens += int64(len(sample.Tokens))
		c.CompletionTokens += int64(sample.CompletionTokens())
		if len(s.p.shown) < s.job.o.Show {
			s.p.shown = append(s.p.shown, keep(sample))
		}
	}
	return nil
}

// lost accounts for samples that were left out. When none is left, the record is
// dropped for the most frequent of their reasons.
func (s *sink) lost(it *item) error {
	var most string
	dropped := it.encoded.Dropped
	for _, reason := range sortedKeys(dropped) {
		s.p.Counts.SamplesDropped[reason] += dropped[reason]
		if most == "" || dropped[reason] > dropped[most] {
			most = reason
		}
	}
	if len(it.encoded.Samples) > 0 {
		for _, reason := range sortedKeys(dropped) {
			if err := s.lines.add(entry{Record: it.raw.Number, Code: reason, Action: ActionDropped, Samples: dropped[reason]}); err != nil {
				return err
			}
		}
		return nil
	}
	if most == "" {
		most = data.SkipNoPair
	}
	s.p.Counts.Dropped[most]++
	return s.lines.add(entry{Record: it.raw.Number, Code: most, Action: ActionDropped})
}

// changes are the codes of what altered a record, each once.
func changes(it *item) []string {
	codes := slices.Concat(it.record.Changed, it.encoded.Changed)
	slices.Sort(codes)
	return slices.Compact(codes)
}

// keep returns a copy of a sample that shares no memory with a batch.
func keep(s data.Sample) data.Sample {
	s.ID, s.Prompt, s.Reference = strings.Clone(s.ID), strings.Clone(s.Prompt), strings.Clone(s.Reference)
	s.Tokens, s.Spans, s.Alternatives = slices.Clone(s.Tokens), slices.Clone(s.Spans), nil
	return s
}

// meter returns a function that adds a part's progress: with each record, its
// share of the part's bytes.
func (j *Job) meter(part int) func(Progress) {
	p := j.plan.Parts[part]
	var read, told int64
	return func(d Progress) {
		read += d.Read
		if p.Records > 0 {
			done := int64(float64(p.Bytes) * float64(read) / float64(p.Records))
			d.Bytes = done - told
			told = done
		}
		j.tracker.add(d)
	}
}
