package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/jobs"
	"github.com/specstream/specstream/report"
	"github.com/specstream/specstream/workflows"
	"github.com/specstream/specstream/workflows/activities"
)

func newWorker(o *options) *cobra.Command {
	var (
		conn  connection
		slots int
		work  string
	)
	c := &cobra.Command{
		Use:   "worker",
		Short: "Run workflows and activities against a Temporal server and a store",
		Long: `Run workflows and activities. Training, evaluation and ingestion run in child
processes; SIGTERM lets them commit their progress, and other workers take their work
over.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if work == "" {
				d, err := cacheDir()
				if err != nil {
					return err
				}
				work = filepath.Join(d, "work")
			}
			env, err := conn.env(ctx, work)
			if err != nil {
				return err
			}
			if err := probeStore(ctx, env); err != nil {
				return err
			}
			cl, err := conn.temporal(ctx, os.Stderr)
			if err != nil {
				return err
			}
			defer cl.Close()
			a, err := activities.New(activities.Config{Store: conn.store, WorkDir: work, Repo: env.Repo,
				Base: func(ctx context.Context, base string) (workflows.BaseInfo, error) { return resolveBase(ctx, env, base) },
				Report: func(ctx context.Context, in workflows.ReportInput) (workflows.ReportInfo, error) {
					return buildReport(ctx, env, in)
				}})
			if err != nil {
				return err
			}
			if !o.json {
				fmt.Fprintf(cmd.ErrOrStderr(), "worker: %d slots, Temporal %s, store %s\n", slots, conn.address, conn.store)
			}
			return activities.Run(ctx, cl, a, activities.WorkerOptions{Slots: slots})
		},
	}
	conn.register(c)
	c.Flags().IntVar(&slots, "slots", 1, "trainings, evaluations or ingestions at a time")
	c.Flags().StringVar(&work, "work-dir", "", "folder for caches and scratch (default: the user's cache)")
	return c
}

// probeStore refuses a store on which commits would not be safe.
func probeStore(ctx context.Context, env *jobs.Env) error {
	for _, c := range checkpoints.Probe(ctx, env.Repo.Store) {
		if c.Err != nil {
			return fmt.Errorf("the store fails the check %q: %w", c.Name, c.Err)
		}
	}
	return nil
}

// resolveBase describes a base to workflows.
func resolveBase(ctx context.Context, env *jobs.Env, base string) (workflows.BaseInfo, error) {
	b, err := env.ResolveBase(ctx, base)
	if err != nil {
		return workflows.BaseInfo{}, err
	}
	return workflows.BaseInfo{Ref: b.Ref, Digest: b.Content, Tokenizer: b.Tokenizer, Config: workflows.BaseConfig{ModelType: b.Config.Architecture,
		Layers: b.Config.NumLayers, Hidden: b.Config.HiddenSize, Heads: b.Config.NumHeads, KVHeads: b.Config.NumKVHeads, Vocab: b.Config.VocabSize}}, nil
}

// buildReport writes a pipeline's report into the work folder.
func buildReport(ctx context.Context, env *jobs.Env, in workflows.ReportInput) (workflows.ReportInfo, error) {
	d := report.Data{Title: "specstream: " + in.Spec.Name, Job: string(in.Job), Outcome: string(in.Outcome), Started: in.Started, Ended: time.Now(),
		Facts: []report.Fact{
			{Name: "base", Value: fmt.Sprintf("%s, %d layers, hidden %d, vocabulary %d; %s", in.Base.Config.ModelType, in.Base.Config.Layers, in.Base.Config.Hidden, in.Base.Config.Vocab, in.Base.Digest)},
			{Name: "training data", Value: fmt.Sprintf("%d records, %d tokens; %s", in.Data.Account.Kept, in.Data.Account.Tokens, in.Data.Digest)},
			{Name: "hold-out", Value: fmt.Sprintf("%d records; %s", in.HoldOut.Account.Kept, in.HoldOut.Digest)},
		}}
	if p := in.Promotion; p != nil {
		d.Facts = append(d.Facts, report.Fact{Name: "promoted to", Value: fmt.Sprintf("%s, generation %d: %s", p.Alias, p.Generation, p.Ref)})
	}
	if x := in.Decision; x != nil {
		verb := "rejected"
		if x.Approved {
			verb = "approved"
		}
		d.Decision = fmt.Sprintf("%s by %s %s", verb, x.Who, x.Why)
	}
	for _, m := range in.Modes {
		if m.Checkpoint == nil || m.Evaluation == nil {
			continue
		}
		mode, err := env.ReportMode(ctx, m.Checkpoint.Ref, m.Evaluation.Ref)
		if err != nil {
			return workflows.ReportInfo{}, err
		}
		for _, g := range m.Gates {
			mode.Gates = append(mode.Gates, report.Gate{Name: g.Gate, Detail: g.Detail, Passed: g.Passed})
		}
		d.Modes = append(d.Modes, mode)
	}
	path := filepath.Join(env.Work, "reports", in.Job.Hex()[:16]+".html")
	return workflows.ReportInfo{Path: path}, jobs.WriteReport(path, d)
}
