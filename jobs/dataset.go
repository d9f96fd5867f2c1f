package jobs

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/data/ingest"
)

// DatasetPlan is a planned ingestion in a store.
type DatasetPlan struct {
	// Plan names it.
	Plan specstream.Digest `json:"plan"`
	// Parts, Bytes (stored) and Records are its size.
	Parts   int   `json:"parts"`
	Bytes   int64 `json:"bytes"`
	Records int64 `json:"records"`
	// Dedupes says that parts are signed, and their duplicates resolved, before
	// they are processed.
	Dedupes bool `json:"dedupes"`
	// Pending are the parts on which the first stage is not done yet, as ranges
	// [from, to).
	Pending [][2]int `json:"pending"`
	// Dataset is set when there was so little to do that it is done: one part.
	Dataset *DatasetInfo `json:"dataset,omitempty"`
}

// DatasetPart is what working on one part came to.
type DatasetPart struct {
	Bytes       int64 `json:"bytes"`
	Records     int64 `json:"records"`
	Quarantined int64 `json:"quarantined"`
	Samples     int64 `json:"samples"`
	Tokens      int64 `json:"tokens"`
}

// DatasetDuplicates are the resolved duplicates of a planned ingestion.
type DatasetDuplicates struct {
	Resolution specstream.Digest `json:"resolution"`
	// Pending are the parts that are not processed yet, as ranges [from, to).
	Pending [][2]int `json:"pending"`
}

// DatasetStage says which part of a planned ingestion is to be done.
type DatasetStage struct {
	Plan specstream.Digest
	// Resolution is set once duplicates are resolved.
	Resolution specstream.Digest
	Part       int
}

// datasetOptions completes what the stages need, with the tokenizer the spec
// names, or the base's. remove removes its scratch folder.
func (e *Env) datasetOptions(ctx context.Context, spec specstream.DataSpec, base specstream.Ref, progress func(ingest.Progress)) (o ingest.Options, remove func() error, err error) {
	path := spec.Tokenizer
	if path == "" {
		_, dir, err := e.fetch(ctx, base, checkpoints.KindBase)
		if err != nil {
			return o, nil, err
		}
		path = filepath.Join(dir, "tokenizer.json")
	}
	if o, err = ingestOptions(path, IngestOptions{Progress: progress}); err != nil {
		return o, nil, err
	}
	e.place(&o)
	o.Scratch, remove, err = e.scratch()
	return o, remove, err
}

// PlanDataset plans an ingestion. One of a single part is done at once.
func (e *Env) PlanDataset(ctx context.Context, spec specstream.DataSpec, base specstream.Ref, progress func(ingest.Progress)) (p DatasetPlan, err error) {
	o, remove, err := e.datasetOptions(ctx, spec, base, progress)
	if err != nil {
		return p, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	j, err := ingest.NewJob(ctx, spec, o)
	if err != nil {
		return p, err
	}
	plan := j.Plan()
	p = DatasetPlan{Plan: j.Digest(), Parts: len(plan.Parts), Bytes: plan.Bytes(), Records: plan.Records(), Dedupes: j.Dedupes()}
	if p.Parts <= 1 {
		info, err := e.finish(ctx, j)
		p.Dataset = &info
		return p, err
	}
	stage := ingest.StageProcess
	if p.Dedupes {
		stage = ingest.StageSign
	}
	p.Pending, err = pending(ctx, j, stage)
	return p, err
}

// finish does what is left of a job and commits the dataset.
func (e *Env) finish(ctx context.Context, j *ingest.Job) (DatasetInfo, error) {
	account, err := j.Finish(ctx)
	if err != nil {
		return DatasetInfo{}, err
	}
	return e.commitDataset(ctx, account)
}

// openDatasetJob goes on with a plan.
func (e *Env) openDatasetJob(ctx context.Context, s DatasetStage, o ingest.Options) (*ingest.Job, error) {
	j, err := ingest.OpenJob(ctx, s.Plan, o)
	if err == nil && s.Resolution != "" {
		err = j.Use(ctx, s.Resolution)
	}
	return j, err
}

// stage runs f on an opened job.
func stage[T any](ctx context.Context, e *Env, spec specstream.DataSpec, base specstream.Ref, s DatasetStage, progress func(ingest.Progress), f func(*ingest.Job) (T, error)) (out T, err error) {
	o, remove, err := e.datasetOptions(ctx, spec, base, progress)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, remove()) }()
	j, err := e.openDatasetJob(ctx, s, o)
	if err != nil {
		return out, err
	}
	return f(j)
}

// SignPart signs one part.
func (e *Env) SignPart(ctx context.Context, spec specstream.DataSpec, base specstream.Ref, s DatasetStage, progress func(ingest.Progress)) (DatasetPart, error) {
	return stage(ctx, e, spec, base, s, progress, func(j *ingest.Job) (DatasetPart, error) {
		if err := j.Sign(ctx, s.Part); err != nil {
			return DatasetPart{}, err
		}
		p := j.Plan().Parts[s.Part]
		return DatasetPart{Bytes: p.Bytes, Records: p.Records}, nil
	})
}

// ResolveDuplicates finds the duplicates among all parts.
func (e *Env) ResolveDuplicates(ctx context.Context, spec specstream.DataSpec, base specstream.Ref, s DatasetStage, progress func(ingest.Progress)) (DatasetDuplicates, error) {
	return stage(ctx, e, spec, base, s, progress, func(j *ingest.Job) (r DatasetDuplicates, err error) {
		if r.Resolution, err = j.Resolve(ctx); err == nil {
			r.Pending, err = pending(ctx, j, ingest.StageProcess)
		}
		return r, err
	})
}

// ProcessPart processes one part.
func (e *Env) ProcessPart(ctx context.Context, spec specstream.DataSpec, base specstream.Ref, s DatasetStage, progress func(ingest.Progress)) (DatasetPart, error) {
	return stage(ctx, e, spec, base, s, progress, func(j *ingest.Job) (DatasetPart, error) {
		c, err := j.Process(ctx, s.Part)
		if err != nil {
			return DatasetPart{}, err
		}
		return DatasetPart{Bytes: j.Plan().Parts[s.Part].Bytes, Records: c.Read, Quarantined: c.Quarantined, Samples: c.Samples, Tokens: c.Tokens}, nil
	})
}

// CommitDataset does what is left of a planned ingestion, which is nothing but
// joining the parts when all are processed, and commits the dataset.
func (e *Env) CommitDataset(ctx context.Context, spec specstream.DataSpec, base specstream.Ref, s DatasetStage, progress func(ingest.Progress)) (DatasetInfo, error) {
	return stage(ctx, e, spec, base, s, progress, func(j *ingest.Job) (DatasetInfo, error) { return e.finish(ctx, j) })
}

// pending returns the parts on which a stage is not done yet, as ranges [from, to).
func pending(ctx context.Context, j *ingest.Job, stage string) (ranges [][2]int, err error) {
	parts, err := j.Pending(ctx, stage)
	for _, i := range parts {
		if n := len(ranges); n > 0 && ranges[n-1][1] == i {
			ranges[n-1][1] = i + 1
		} else {
			ranges = append(ranges, [2]int{i, i + 1})
		}
	}
	return ranges, err
}
