package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/ingest"
	"github.com/specstream/specstream/jobs"
)

// dataFlags registers the flags that say which records are read and how.
func dataFlags(c *cobra.Command, s *specstream.DataSpec) {
	f := c.Flags()
	f.StringVar(&s.Format, "format", "", strings.Join(specstream.Formats, ", "))
	f.StringVar(&s.Template, "template", "plain", "prompt template: plain (the format's own) or vicuna")
	f.StringVar(&s.Turns, "turns", specstream.TurnsExpand, "multi-turn samples: expand (one a turn) or inline (one a conversation)")
	f.IntVar(&s.MaxLength, "max-length", 2048, "samples of more tokens are dropped and counted")
	f.StringVar(&s.MaxBad, "max-bad", "0", "bad records tolerated: a count or a share such as 0.5%")
	f.IntVar(&s.Limit, "limit", 0, "read only the first records (0: all)")
	f.IntVar(&s.ShardTokens, "shard-tokens", 16<<20, "about how many tokens a shard holds")
}

func newIngest(o *options) *cobra.Command {
	var (
		spec       specstream.DataSpec
		out        string
		quarantine string
		child      childFlags
	)
	c := &cobra.Command{
		Use:   "ingest --format FORMAT --tokenizer FILE --out DIR|s3://BUCKET/PREFIX INPUT...",
		Short: "Turn instruction records into tokenised Parquet shards with a manifest",
		Long: `Read records, render them with a prompt template, tokenise them with a loss mask on
the completions, and write Parquet shards with a manifest. Inputs are files, globs
or s3:// objects, plain or gzip. A folder gets dataset.json and its blobs; a store
gets a committed artefact, whose reference is printed.

A bad record is quarantined with its reason while there are no more than --max-bad;
a damaged file always fails.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			r, err := o.newReporter()
			if err != nil {
				return err
			}
			defer r.finish()
			progress := func(p ingest.Progress) {
				r.report(event{Stage: "ingest", Step: p.Read, Note: fmt.Sprintf("%d samples, %d tokens", p.Samples, p.Tokens)})
			}
			if child.store != "" {
				return child.ingest(ctx, o, cmd.OutOrStdout(), progress)
			}
			for _, f := range [][2]string{{"format", spec.Format}, {"tokenizer", spec.Tokenizer}, {"out", out}} {
				if err := required(f[0], f[1]); err != nil {
					return err
				}
			}
			if len(args) == 0 {
				return usageError{errors.New("name at least one input")}
			}
			spec.Inputs = args
			var bad io.Writer
			if quarantine != "" {
				f, err := os.Create(quarantine)
				if err != nil {
					return err
				}
				defer f.Close()
				bad = f
			}
			account, err := jobs.IngestTo(ctx, spec, out, bad, progress)
			if err != nil {
				return err
			}
			r.finish()
			return o.print(cmd.OutOrStdout(), account, func(w io.Writer) { printAccount(w, account) })
		},
	}
	f := c.Flags()
	dataFlags(c, &spec)
	f.StringVar(&spec.Tokenizer, "tokenizer", "", "Hugging Face tokenizer.json")
	f.StringVar(&out, "out", "", "folder, or s3://BUCKET/PREFIX")
	f.StringVar(&quarantine, "quarantine", "", "file for the bad records' places and reasons, as JSON lines")
	child.register(c)
	return c
}

func printAccount(w io.Writer, a jobs.IngestResult) {
	fmt.Fprintf(w, "read %d records, kept %d; %d samples, %d tokens in %d shards\n", a.Read, a.Kept, a.Samples, a.Tokens, a.Shards)
	for _, group := range []struct {
		what string
		by   map[string]int64
	}{{"dropped", a.Dropped}, {"changed", a.Changed}, {"samples dropped", a.SamplesDropped}} {
		var reasons []string
		for reason := range group.by {
			reasons = append(reasons, reason)
		}
		sort.Strings(reasons)
		for _, reason := range reasons {
			fmt.Fprintf(w, "%s: %s %d\n", group.what, reason, group.by[reason])
		}
	}
	fmt.Fprintf(w, "manifest %s\n", a.Manifest)
	if a.Ref != "" {
		fmt.Fprintf(w, "reference %s\n", a.Ref)
	}
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

func (f *childFlags) ingest(ctx context.Context, o *options, w io.Writer, progress func(ingest.Progress)) error {
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
	info, err := env.Ingest(ctx, spec, base, progress)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(info)
}
