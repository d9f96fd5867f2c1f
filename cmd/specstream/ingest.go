package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/ingest"
	"github.com/specstream/specstream/jobs"
)

func newIngest(o *options) *cobra.Command {
	var (
		flags      dataFlags
		run        jobs.IngestOptions
		tokenizer  string
		quarantine string
		child      childFlags
		stage      stageFlags
	)
	c := &cobra.Command{
		Use:   "ingest --format FORMAT --tokenizer FILE --out DIR|s3://BUCKET/PREFIX INPUT...",
		Short: "Turn instruction records into tokenised Parquet shards with a manifest",
		Long: `Read records, clean them, render them with a prompt template, tokenise them with a
loss mask on the completions, and write Parquet shards with a manifest.

Inputs are files and s3:// objects, either with wildcards, https:// addresses and
hf://datasets/OWNER/NAME[@REVISION]/PATH: JSON, JSON lines, CSV or Parquet, plain,
gzip or zstd. A folder gets dataset.json and its blobs; a store gets a committed
artefact, whose reference is printed.

A bad record is quarantined while there are no more than --max-bad; a damaged file
always fails. Every record that is dropped or changed is counted by reason, and
--quarantine lists all of them. --dry-run tells what would become of the records,
and shows samples, without writing anything.

Work that is done is never done again: the same command goes on where it was
stopped, and with further inputs adds them to what is there.`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			limitMemory()
			ctx := cmd.Context()
			r, err := o.newReporter()
			if err != nil {
				return err
			}
			defer r.finish()
			run.Progress = func(p ingest.Progress) { r.report(ingestEvent(p)) }
			if child.store != "" {
				return child.ingest(ctx, stage, cmd.OutOrStdout(), run.Progress)
			}
			spec, err := flags.complete(cmd, args)
			if err != nil {
				return err
			}
			if tokenizer != "" {
				spec.Tokenizer = tokenizer
			}
			if err := required("format", spec.Format); err != nil {
				return err
			}
			if err := required("tokenizer", spec.Tokenizer); err != nil {
				return err
			}
			if run.DryRun {
				run.Show = drySamples
			} else if err := required("out", run.Out); err != nil {
				return err
			}
			if len(spec.Inputs) == 0 {
				return usageError{errors.New("name at least one input")}
			}
			if quarantine != "" {
				f, err := os.Create(quarantine)
				if err != nil {
					return err
				}
				w := bufio.NewWriter(f)
				defer func() { err = errors.Join(err, w.Flush(), f.Close()) }()
				run.Quarantine = w
			}
			res, err := jobs.IngestTo(ctx, spec, run)
			if err != nil {
				return err
			}
			r.finish()
			return o.print(cmd.OutOrStdout(), res, func(w io.Writer) { printAccount(w, res) })
		},
	}
	flags.register(c)
	f := c.Flags()
	f.StringVar(&tokenizer, "tokenizer", "", "Hugging Face tokenizer.json, SentencePiece .model, or tiktoken ranks")
	f.StringVar(&run.Out, "out", "", "folder, or s3://BUCKET/PREFIX")
	f.StringVar(&quarantine, "quarantine", "", "file for what became of records that were not kept as they were, as JSON lines")
	f.BoolVar(&run.DryRun, "dry-run", false, "print the account and a few samples; write nothing")
	f.IntVar(&run.Workers, "workers", 0, "records worked on at once (0: as many as CPUs)")
	child.register(c)
	stage.register(c)
	return c
}

// drySamples is how many samples a dry run shows.
const drySamples = 3

// ingestMemory is the heap at which the collector works as hard as it must. An
// ingestion needs a fraction of it, however large its inputs; without a limit
// the heap grows to twice what is in use.
const ingestMemory = 400 << 20

// limitMemory sets the limit unless the environment has one.
func limitMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(ingestMemory)
	}
}

// ingestEvent renders progress.
func ingestEvent(p ingest.Progress) event {
	e := event{Stage: "ingest " + p.Stage, Step: int64(p.Done), Steps: int64(p.Parts), Bytes: p.Bytes, TotalBytes: p.Total,
		RecordsPerSecond: p.RecordsPerSecond, BytesPerSecond: p.BytesPerSecond, ETASeconds: p.ETASeconds}
	if p.Samples > 0 {
		e.Note = fmt.Sprintf("%d samples, %d tokens", p.Samples, p.Tokens)
	}
	return e
}

func printAccount(w io.Writer, a jobs.IngestResult) {
	for _, s := range a.Shown {
		fmt.Fprintf(w, "--- %s: %d tokens, %d of them completion\n%s\n>>> %s\n", s.ID, s.Tokens, s.CompletionTokens, shorten(s.Prompt), shorten(s.Reference))
	}
	fmt.Fprintf(w, "read %d records, kept %d; %d samples, %d tokens in %d shards\n", a.Read, a.Kept, a.Samples, a.Tokens, a.Shards)
	for _, group := range []struct {
		what string
		by   map[string]int64
	}{{"dropped", a.Dropped}, {"changed", a.Changed}, {"samples dropped", a.SamplesDropped}} {
		for _, reason := range slices.Sorted(maps.Keys(group.by)) {
			fmt.Fprintf(w, "%s: %s %d\n", group.what, reason, group.by[reason])
		}
	}
	fmt.Fprintf(w, "manifest %s\n", a.Manifest)
	if a.Ref != "" {
		fmt.Fprintf(w, "reference %s\n", a.Ref)
	}
}

// shorten cuts the middle out of a long text.
func shorten(s string) string {
	const keep = 600 // runes at either end
	r := []rune(s)
	if len(r) <= 2*keep+20 {
		return s
	}
	return string(r[:keep]) + " […] " + string(r[len(r)-keep:])
}

// childFlags are the flags with which a worker runs a stage in a child process
// against a store.
type childFlags struct {
	store, base, data, checkpoint, spec, work string
}

func (f *childFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.store, "store", "", "work against a store: its URI")
	fs.StringVar(&f.base, "base-ref", "", "with --store: the base's reference")
	fs.StringVar(&f.data, "data-ref", "", "with --store: the dataset's reference")
	fs.StringVar(&f.checkpoint, "checkpoint-ref", "", "with --store: the checkpoint's reference")
	fs.StringVar(&f.spec, "spec-json", "", "with --store: the specification as JSON")
	fs.StringVar(&f.work, "work-dir", "", "folder for caches and scratch (default: the user's cache)")
}

// env opens the store and decodes the specification into spec.
func (f *childFlags) env(ctx context.Context, spec any) (*jobs.Env, error) {
	if err := required("spec-json", f.spec); err != nil {
		return nil, err
	}
	if err := specstream.DecodeStrict("--spec-json", strings.NewReader(f.spec), spec); err != nil {
		return nil, err
	}
	work := f.work
	if work == "" {
		d, err := cacheDir()
		if err != nil {
			return nil, err
		}
		work = filepath.Join(d, "work")
	}
	return jobs.OpenEnv(ctx, f.store, work)
}

// ref parses a reference flag.
func (f *childFlags) ref(name, value string) (specstream.Ref, error) {
	if err := required(name, value); err != nil {
		return specstream.Ref{}, err
	}
	r, err := specstream.ParseRef(value)
	if err != nil {
		return r, usageError{fmt.Errorf("--%s: %w", name, err)}
	}
	return r, nil
}

// stageFlags say which stage of an ingestion a child process is to do.
type stageFlags struct {
	stage, plan, resolution string
	part                    int
}

func (f *stageFlags) register(c *cobra.Command) {
	fs := c.Flags()
	fs.StringVar(&f.stage, "stage", "", "with --store: plan, sign, resolve, process or commit")
	fs.StringVar(&f.plan, "plan", "", "with --stage: the plan's digest")
	fs.StringVar(&f.resolution, "resolution", "", "with --stage: the digest of the resolved duplicates")
	fs.IntVar(&f.part, "part", 0, "with --stage: the part's index")
}

func (f *childFlags) ingest(ctx context.Context, s stageFlags, w io.Writer, progress func(ingest.Progress)) error {
	var spec specstream.DataSpec
	env, err := f.env(ctx, &spec)
	if err != nil {
		return err
	}
	var base specstream.Ref
	if f.base != "" {
		if base, err = f.ref("base-ref", f.base); err != nil {
			return err
		}
	}
	at := jobs.DatasetStage{Plan: specstream.Digest(s.plan), Resolution: specstream.Digest(s.resolution), Part: s.part}
	var out any
	switch s.stage {
	case "plan":
		out, err = env.PlanDataset(ctx, spec, base, progress)
	case "sign":
		out, err = env.SignPart(ctx, spec, base, at, progress)
	case "resolve":
		out, err = env.ResolveDuplicates(ctx, spec, base, at, progress)
	case "process":
		out, err = env.ProcessPart(ctx, spec, base, at, progress)
	case "commit":
		out, err = env.CommitDataset(ctx, spec, base, at, progress)
	default:
		return usageError{fmt.Errorf("--stage %q is not plan, sign, resolve, process or commit", s.stage)}
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(out)
}
