package ingest

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/shard"
)

// merge processes the parts that are not done yet, judges all bad records, and
// makes the manifest.
func (j *Job) merge(ctx context.Context) (Account, error) {
	a := Account{Counts: newCounts()}
	var written []shard.Written
	lineage := shard.Lineage{Spec: j.plan.Spec, Template: j.plan.Template, Tokenizer: j.plan.Tokenizer, VocabSize: j.plan.VocabSize, Clean: j.plan.Clean}
	for _, in := range j.plan.Inputs {
		lineage.Sources = append(lineage.Sources, shard.Source{URI: in.URI, Bytes: in.Bytes, SHA256: in.SHA256, Records: in.Records})
	}
	g, q := judge{job: j}, j.quarantine()
	j.tracker.start(StageProcess, j.plan.Bytes(), len(j.plan.Parts))
	parallel, workers := j.share()
	err := inOrder(ctx, len(j.plan.Parts), parallel, func(ctx context.Context, i int) (Processed, error) {
		return j.process(ctx, i, workers)
	}, func(i int, p Processed) error {
		if err := q.part(ctx, i, p.Quarantine.Digest); err != nil {
			return err
		}
		a.add(p.Counts)
		if err := g.take(i, p.bad()); err != nil {
			return err
		}
		a.Shown = append(a.Shown, p.shown[:min(len(p.shown), j.o.Show-len(a.Shown))]...)
		lineage.Parts = append(lineage.Parts, j.lineagePart(i, p))
		a.Shards += len(p.Written.Shards)
		written = append(written, p.Written)
		return nil
	})
	if err == nil {
		err = g.check(true)
	}
	j.tracker.end(err)
	if err != nil {
		return a, err
	}
	if a.Samples == 0 {
		return a, &specstream.InputError{Field: "inputs", Reason: fmt.Sprintf("none of the %d records read gave a sample", a.Read), Hint: fmt.Sprintf("dropped: %v", a.Dropped)}
	}
	lineage.Account = shard.Account{Read: a.Read, Kept: a.Kept, Dropped: a.Dropped, Changed: a.Changed, Quarantined: a.Quarantined, SamplesDropped: a.SamplesDropped}
	if a.Dataset, err = shard.NewManifest(lineage, written); err != nil {
		return a, fmt.Errorf("make the manifest: %w", err)
	}
	a.Manifest, err = a.Dataset.Digest()
	return a, wrap("make the manifest", err)
}

// lineagePart describes a part.
func (j *Job) lineagePart(i int, p Processed) shard.Part {
	q := j.plan.Parts[i]
	return shard.Part{Source: q.Input, Container: q.Container, Compression: q.Compression, Start: q.Start, End: q.End, First: q.First,
		Records: q.Records, Digest: q.Digest, Quarantine: p.Quarantine.Digest, QuarantineBytes: p.Quarantine.Bytes}
}

func sortedKeys(m map[string]int64) []string { return slices.Sorted(maps.Keys(m)) }
