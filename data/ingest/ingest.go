// Package ingest makes a data set of instruction records in stages that any
// number of processes may share:
//
//	Plan     scans the inputs and cuts them into parts; its digest names the rest
//	Sign     makes the signatures of a part's records, to find duplicates by
//	Resolve  finds the duplicates among all parts
//	Process  decodes, cleans, renders and tokenises a part, and writes its shards
//	Merge    joins the parts' shards to a data set
//
// Sign and Resolve are only needed when duplicates are left out. What a stage
// makes depends on its part's content and the specification alone, never on who
// makes it, and is remembered under the digest of all that it depends on. So the
// same inputs, specification and tokenizer give the same data set, byte for
// byte, whatever the number of workers; a run that was killed goes on where it
// was; and a data set grown by new inputs shares the shards of the old ones.
//
// Memory is bounded by the parts in flight, the longest record (64 MiB at most)
// and what the shard writers hold; inputs may be of any size.
package ingest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/clean"
	"github.com/specstream/specstream/data/shard"
)

// Blobs is where plans, signatures, quarantines and shards go.
type Blobs = shard.Blobs

// Options says with what the stages work. None of it changes their results.
type Options struct {
	// Tokenizer encodes the text; the specification's own field is not followed.
	Tokenizer data.Tokenizer
	// TokenizerDir is the folder that has the tokenizer's tokenizer_config.json,
	// for the template "model".
	TokenizerDir string
	// Open opens the inputs. Default: files of the local disk.
	Open data.Opener
	// List resolves patterns that are not the local disk's. May be nil.
	List data.Lister
	// Blobs takes what the stages make.
	Blobs Blobs
	// Shards takes the shards alone. Default: Blobs.
	Shards Blobs
	// Memo remembers which work is done. Default: nothing is remembered.
	Memo Memo
	// Scratch is a folder for temporary files. Default: the system's.
	Scratch string
	// Workers is the number of records decoded and tokenised at once. Default:
	// the number of CPUs Go uses.
	Workers int
	// Quarantine is given what became of each record that was not kept as it
	// was, in the order of the inputs, also when the job fails. May be nil.
	Quarantine func(Quarantined) error
	// Show is how many of the first samples the account is to have.
	Show int
	// Progress is told how far the work is, a few times a second and at the end
	// of each stage, one call at a time. May be nil.
	Progress func(Progress)
}

func (o Options) withDefaults() (Options, error) {
	if o.Tokenizer == nil || o.Blobs == nil {
		return o, errors.New("ingest: a tokenizer and a store of blobs are needed")
	}
	if o.Open == nil {
		o.Open = data.OpenFile
	}
	if o.Shards == nil {
		o.Shards = o.Blobs
	}
	if o.Memo == nil {
		o.Memo = forgetful{}
	}
	if o.Scratch == "" {
		o.Scratch = os.TempDir()
	}
	if o.Workers < 1 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return o, nil
}

// Job is a planned ingestion. It is safe for concurrent use once [Job.Use] is
// not called any more.
type Job struct {
	o         Options
	plan      Plan
	digest    specstream.Digest
	format    data.Format
	cleaner   *clean.Cleaner
	template  data.Template
	encoder   *data.Encoder
	tolerance specstream.Tolerance
	batches   batchPool
	tracker   tracker

	resolution specstream.Digest
	drops      []shard.Blob // by part, once resolved
}

// Run ingests the inputs of spec: all stages, several parts at once. The caller
// stores the account's Dataset: until then nothing names the shards. The account
// is valid up to the failure when there is one. A damaged input, more bad records
// than MaxBad allows, or no sample at all is a [specstream.InputError]; other
// errors come from the stores or the context.
func Run(ctx context.Context, spec specstream.DataSpec, o Options) (Account, error) {
	j, err := NewJob(ctx, spec, o)
	if err != nil {
		return Account{}, err
	}
	return j.Finish(ctx)
}

// NewJob is the stage Plan: it scans the inputs of spec and stores the plan.
func NewJob(ctx context.Context, spec specstream.DataSpec, o Options) (*Job, error) {
	spec = spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	j := &Job{}
	if err := j.setUp(spec, o); err != nil {
		return nil, err
	}
	var err error
	if j.plan, err = j.makePlan(ctx, spec); err != nil {
		return nil, cause(ctx, err)
	}
	j.digest, err = putJSON(ctx, j.o.Blobs, j.plan)
	return j, cause(ctx, wrap("store the plan", err))
}

// cause returns why ctx ended if that is why the work ended, and err otherwise.
func cause(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || specstream.BadInput(err) {
		return err
	}
	return context.Cause(ctx)
}

// OpenJob goes on with the plan of a digest, which [NewJob] has stored, here or
// elsewhere. Options that do not fit the plan, such as another tokenizer, are a
// [specstream.InputError].
func OpenJob(ctx context.Context, plan specstream.Digest, o Options) (*Job, error) {
	if o.Blobs == nil {
		return nil, errors.New("ingest: a store of blobs is needed")
	}
	j := &Job{digest: plan}
	if err := getJSON(ctx, o.Blobs, plan, &j.plan); err != nil {
		return nil, fmt.Errorf("read the plan: %w", err)
	}
	if err := j.setUp(j.plan.Spec, o); err != nil {
		return nil, err
	}
	return j, j.plan.fits(j)
}

// setUp makes what the specification describes.
func (j *Job) setUp(spec specstream.DataSpec, o Options) (err error) {
	if j.o, err = o.withDefaults(); err != nil {
		return err
	}
	j.tracker.tell = o.Progress
	if j.tolerance, err = specstream.ParseTolerance(spec.MaxBad); err != nil {
		return err
	}
	if j.format, err = data.FormatFor(spec); err != nil {
		return err
	}
	if j.cleaner, err = clean.New(*spec.Clean); err != nil {
		return err
	}
	if j.template, err = data.TemplateFor(spec, j.format, o.TokenizerDir); err != nil {
		return err
	}
	j.encoder, err = data.NewEncoder(data.EncoderOptions{Tokenizer: o.Tokenizer, Template: j.template, Turns: spec.Turns,
		MaxLength: spec.MaxLength, Overlong: spec.Overlong, SpecialTokens: spec.SpecialTokens,
		AllowUnanswered: spec.Format == "specbench"}) // questions to decode from, which have no answers
	return err
}

// Digest names the plan.
func (j *Job) Digest() specstream.Digest { return j.digest }

// Plan returns the plan, which the caller does not change.
func (j *Job) Plan() *Plan { return &j.plan }

// Dedupes reports whether duplicates are left out: [Job.Process] then needs the
// resolution of all parts' signatures.
func (j *Job) Dedupes() bool { return j.cleaner.Dedupes() }

// Finish does what is left of all stages, several parts at once, and merges.
func (j *Job) Finish(ctx context.Context) (Account, error) {
	if j.Dedupes() && j.drops == nil {
		if _, err := j.Resolve(ctx); err != nil {
			return Account{Counts: newCounts()}, err
		}
	}
	a, err := j.merge(ctx)
	return a, cause(ctx, err)
}

// maxParts is how many parts are in flight at most in one process: each holds a
// shard in memory.
const maxParts = 3

// share returns how many parts are worked on at once, and with how many workers
// each.
func (j *Job) share() (parts, workers int) {
	parts = max(1, min(j.o.Workers, maxParts, len(j.plan.Parts)))
	return parts, (j.o.Workers + parts - 1) / parts
}
