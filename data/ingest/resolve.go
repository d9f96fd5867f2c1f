package ingest

import (
	"context"
	"fmt"
	"os"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/clean"
	"github.com/specstream/specstream/data/shard"
)

// resolution is the blob that names all parts' duplicates.
type resolution struct {
	Plan specstream.Digest `json:"plan"`
	Resolved
}

// Resolved is what [Job.Resolve] makes of all parts' signatures.
type Resolved struct {
	// Drops are the blobs of the parts' duplicates, without a digest for a part
	// that has none.
	Drops []shard.Blob `json:"drops"`
}

func (r Resolved) blobs() []shard.Blob { return r.Drops }

// Resolve is the stage Resolve: it signs the parts that are not signed yet and
// finds the duplicates among all. The digest is for [Job.Use].
func (j *Job) Resolve(ctx context.Context) (specstream.Digest, error) {
	d, err := j.resolve(ctx)
	return d, cause(ctx, err)
}

func (j *Job) resolve(ctx context.Context) (specstream.Digest, error) {
	signed, err := j.signAll(ctx)
	if err != nil {
		return "", err
	}
	// The same signatures in the same order have the same duplicates.
	key := partKey{Stage: StageResolve, Schema: planSchema, Clean: *j.plan.Spec.Clean, Rules: j.plan.Clean}
	d, err := specstream.DigestJSON(struct {
		Parts []string
		Files [][]shard.Blob
	}{j.partDigests(), filesOf(signed)})
	if err != nil {
		return "", err
	}
	key.Part = string(d)
	r, ok, err := recall[Resolved](ctx, j.o, key)
	if err != nil {
		return "", err
	}
	if !ok {
		if r.Drops, err = j.findDuplicates(ctx, signed); err != nil {
			return "", err
		}
		if err := remember(ctx, j.o.Memo, key, r); err != nil {
			return "", err
		}
	}
	if j.resolution, err = putJSON(ctx, j.o.Blobs, resolution{j.digest, r}); err != nil {
		return "", fmt.Errorf("store the resolution: %w", err)
	}
	j.drops = r.Drops
	return j.resolution, nil
}

// Use makes the job leave out the duplicates that [Job.Resolve] has found, here
// or elsewhere.
func (j *Job) Use(ctx context.Context, d specstream.Digest) error {
	var r resolution
	if err := getJSON(ctx, j.o.Blobs, d, &r); err != nil {
		return fmt.Errorf("read the resolution: %w", err)
	}
	if r.Plan != j.digest || len(r.Drops) != len(j.plan.Parts) {
		return &specstream.InputError{Field: "resolution", Reason: fmt.Sprintf("%s is not that of the plan %s", d.Short(), j.digest.Short())}
	}
	j.resolution, j.drops = d, r.Drops
	return nil
}

// signAll signs all parts and judges the bad records met.
func (j *Job) signAll(ctx context.Context) ([]Signed, error) {
	j.tracker.start(StageSign, j.plan.Bytes(), len(j.plan.Parts))
	parallel, workers := j.share()
	signed := make([]Signed, 0, len(j.plan.Parts))
	g := judge{job: j}
	err := inOrder(ctx, len(j.plan.Parts), parallel, func(ctx context.Context, i int) (Signed, error) {
		return j.sign(ctx, i, workers)
	}, func(i int, s Signed) error {
		signed = append(signed, s)
		return g.take(i, s.Bad)
	})
	if err == nil {
		err = g.check(true)
	}
	j.tracker.end(err)
	if err != nil && specstream.BadInput(err) {
		q := j.quarantine()
		for i, s := range signed { // no later stage will tell of them
			if e := q.part(ctx, i, s.Quarantine.Digest); e != nil {
				return nil, e
			}
		}
	}
	return signed, err
}

// findDuplicates stores the duplicates of each part.
func (j *Job) findDuplicates(ctx context.Context, signed []Signed) (drops []shard.Blob, err error) {
	j.tracker.start(StageResolve, 0, len(signed))
	defer func() { j.tracker.end(err) }()
	dir, err := os.MkdirTemp(j.o.Scratch, "duplicates-*")
	if err != nil {
		return nil, fmt.Errorf("find duplicates: %w", err)
	}
	defer func() {
		if e := os.RemoveAll(dir); e != nil && err == nil {
			err = fmt.Errorf("find duplicates: %w", e)
		}
	}()
	cache := chunkCache{ctx: ctx, store: j.o.Blobs}
	var sources []clean.SignatureSource
	for _, s := range signed {
		r := &chunkReader{cache: &cache, files: s.Files}
		for _, f := range s.Files {
			r.size += f.Bytes
		}
		sources = append(sources, r)
	}
	drops = make([]shard.Blob, len(signed))
	at, lines := 0, &lineWriter{}
	store := func() (err error) {
		drops[at], err = lines.store(ctx, j.o.Blobs)
		lines = &lineWriter{}
		return wrap("store duplicates", err)
	}
	err = j.cleaner.Dedupe(ctx, sources, dir, func(d clean.Duplicate) error {
		if d.Part != at {
			if err := store(); err != nil {
				return err
			}
			at = d.Part
		}
		return lines.add(entry{Record: d.Number, Code: d.Reason, Action: ActionDropped,
			OfPart: j.plan.Parts[d.OfPart].Digest, OfRecord: d.OfNumber, Similarity: d.Similarity})
	})
	if err != nil {
		return nil, fmt.Errorf("find duplicates: %w", err)
	}
	return drops, store()
}

func (j *Job) partDigests() []string {
	out := make([]string, len(j.plan.Parts))
	for i, p := range j.plan.Parts {
		out[i] = fmt.Sprintf("%s#%d", p.Digest, p.First)
	}
	return out
}

func filesOf(signed []Signed) [][]shard.Blob {
	out := make([][]shard.Blob, len(signed))
	for i, s := range signed {
		out[i] = s.Files
	}
	return out
}
