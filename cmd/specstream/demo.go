package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/synth"
	"github.com/specstream/specstream/workflows"
)

// demoBase is the base model of the demonstration, made by `go tool task
// demo-base` from generated data.
//
//go:embed demobase
var demoBase embed.FS

// The amounts of generated data: training records, as many again with names drawn
// anew, and held-out prompts. No table and no question template of the prompts is
// trained on.
const (
	demoRecords = 8000
	demoRenamed = 6000
	demoPrompts = 200
)

// demoResult is what `demo --json` prints.
type demoResult struct {
	Modes      map[specstream.Mode]demoMode `json:"modes"`
	Checkpoint string                       `json:"checkpoint"`
	Promoted   bool                         `json:"promoted"`
	Report     string                       `json:"report"`
	Seconds    float64                      `json:"seconds"`
}

type demoMode struct {
	MeanAcceptedTokens      float64 `json:"mean_accepted_tokens"`
	NGramMeanAcceptedTokens float64 `json:"ngram_mean_accepted_tokens"`
	Parity                  float64 `json:"parity"`
	Prompts                 int     `json:"prompts"`
	ExactMatch              float64 `json:"exact_match"`
	Speedup                 float64 `json:"speedup"`
}

func newDemo(o *options) *cobra.Command {
	var (
		dir  string
		yes  bool
		keep bool
	)
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run the whole pipeline on generated data: the place to start",
		Long: `Run the whole pipeline end to end on this machine: start a Temporal and an S3 server,
generate questions with SQL, ingest them, train adapters in both modes, evaluate them
on prompts whose tables and question templates are held out, ask for approval, promote.
It ends with a result table, the checkpoint's reference and an HTML report.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if dir == "" {
				d, err := cacheDir()
				if err != nil {
					return err
				}
				dir = filepath.Join(d, "demo")
			}
			r, err := o.newReporter()
			if err != nil {
				return err
			}
			defer r.finish()
			res, err := runDemo(ctx, dir, yes, keep, r)
			if err != nil {
				return err
			}
			r.finish()
			out := demoResult{Modes: map[specstream.Mode]demoMode{}, Promoted: res.Outcome == workflows.Promoted, Seconds: res.seconds}
			for _, m := range res.Modes {
				if e := m.Evaluation; e != nil {
					out.Modes[m.Mode] = demoMode{e.MeanAcceptedTokens, e.NGramMeanAcceptedTokens, e.Parity, e.Prompts, e.ExactMatch, e.Speedup}
				}
			}
			if res.Promotion != nil {
				out.Checkpoint = res.Promotion.Ref.String()
			}
			if res.Report != nil {
				out.Report = res.Report.Path
			}
			if err := o.print(cmd.OutOrStdout(), out, func(w writer) {
				printResult(w, res.PipelineResult)
				fmt.Fprintf(w, "seconds     %.0f\n", res.seconds)
			}); err != nil {
				return err
			}
			return resultError(res.PipelineResult)
		},
	}
	c.Flags().StringVar(&dir, "data-dir", "", "folder for servers, data and report (default: demo in the user's cache)")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "approve without asking")
	c.Flags().BoolVar(&keep, "keep", false, "go on from an earlier demo in the folder instead of starting afresh")
	return c
}

// demoRun is a pipeline's result and how long it took.
type demoRun struct {
	workflows.PipelineResult
	seconds float64
}

func runDemo(ctx context.Context, dir string, yes, keep bool, r *reporter) (res demoRun, err error) {
	began := time.Now()
	if err := prepareDemo(dir, keep); err != nil {
		return res, err
	}
	job, err := demoJob(dir)
	if err != nil {
		return res, err
	}
	r.report(event{Stage: "starting servers"})
	s, err := startStack(ctx, filepath.Join(dir, "stack"), 1, os.Stderr)
	if err != nil {
		return res, err
	}
	defer func() { err = errors.Join(err, s.stop()) }()
	conn := connection{address: s.config.TemporalAddress, namespace: s.config.Namespace, store: s.config.store()}
	cl, err := conn.temporal(ctx, s.log)
	if err != nil {
		return res, err
	}
	defer cl.Close()
	run, err := startPipeline(ctx, cl, job)
	if err != nil {
		return res, err
	}
	if s.config.UIAddress != "" {
		r.finish()
		fmt.Fprintf(os.Stderr, "watch it at http://%s/namespaces/%s/workflows/%s\n", s.config.UIAddress, s.config.Namespace, run.GetID())
	}
	res.PipelineResult, err = followPipeline(ctx, cl, run, r, func(ctx context.Context, st workflows.Status) error {
		approved, why := yes, "approved by demo --yes"
		if !yes {
			printStatus(os.Stderr, st)
			approved, why = confirm("promote this checkpoint?"), "decided at the prompt of the demo"
		}
		_, err := decide(ctx, cl, run.GetID(), st.Waiting.Evidence, approved, whoAmI(), why)
		return err
	})
	res.seconds = time.Since(began).Seconds()
	return res, err
}

// prepareDemo writes the base and the generated data into the folder. Without
// keep, what an earlier demo left there is removed first.
func prepareDemo(dir string, keep bool) error {
	marker := filepath.Join(dir, ".specstream-demo")
	if !keep {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) > 0 {
			if _, err := os.Stat(marker); err != nil {
				return usageError{fmt.Errorf("%s is not empty and was not made by a demo: give another --data-dir", dir)}
			}
			lock, err := lockFolder(filepath.Join(dir, "stack"))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			if lock != nil {
				lock.Close()
			}
			if err := os.RemoveAll(dir); err != nil {
				return err
			}
		}
	}
	for _, d := range []string{"base", "data"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(marker, nil, 0o644); err != nil {
		return err
	}
	files, err := fs.ReadDir(demoBase, "demobase")
	if err != nil {
		return err
	}
	for _, f := range files {
		b, err := fs.ReadFile(demoBase, "demobase/"+f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "base", f.Name()), b, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(
		writeSQL(filepath.Join(dir, "data", "train.json"), demoRecords, synth.Train),
		writeSQL(filepath.Join(dir, "data", "renamed.json"), demoRenamed, synth.Renamed),
		writeSQL(filepath.Join(dir, "data", "heldout.json"), demoPrompts, synth.HeldOut))
}

func writeSQL(path string, n int, split synth.Split) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return synth.SQL(f, 2, n, split)
}

// demoJob is the job of the demonstration.
func demoJob(dir string) (specstream.JobSpec, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return specstream.JobSpec{}, err
	}
	sql := func(names ...string) specstream.DataSpec {
		d := specstream.DataSpec{Format: "sql", MaxLength: 512}
		for _, n := range names {
			d.Inputs = append(d.Inputs, filepath.Join(abs, "data", n))
		}
		return d
	}
	// The base has only eight thin layers, and its streams need all of them. For the
	// same reason lossless streams pass through the frozen MLP beside their adapter.
	half := 0.5
	job := specstream.JobSpec{
		Name: "demo", Base: filepath.Join(abs, "base"), Data: sql("train.json", "renamed.json"), HoldOut: sql("heldout.json"),
		Overrides: map[specstream.Mode]specstream.TrainSpec{
			specstream.Lossless: {AdapterSpec: specstream.AdapterSpec{MSALayers: 8, StreamRank: 32, StreamMLP: specstream.StreamMLPBaseAdapter},
				Steps: 300, BatchSize: 16, LearningRate: 5e-3},
			specstream.Shared: {AdapterSpec: specstream.AdapterSpec{MSALayers: 8, LoRARank: 16}, Steps: 200, BatchSize: 16, LearningRate: 2e-3, AlphaStream: &half},
		},
		Eval:  specstream.EvalSpec{DecodeSpec: specstream.DecodeSpec{MaxNewTokens: 96, TreeNodes: 16}, Prompts: demoPrompts},
		Gates: specstream.GateSpec{MeanAcceptedTokens: 1.5, Prompts: demoPrompts},
	}
	return job.WithDefaults(), nil
}
