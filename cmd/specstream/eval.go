package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/jobs"
)

func newEval(o *options) *cobra.Command {
	var (
		spec                    specstream.EvalSpec
		base, adapter, dir, out string
		child                   childFlags
	)
	c := &cobra.Command{
		Use:   "eval --base DIR --adapter DIR --data DIR|dataset.json --out DIR",
		Short: "Decode held-out prompts with an adapter and measure speed, acceptance and quality",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			r, err := o.newReporter()
			if err != nil {
				return err
			}
			defer r.finish()
			progress := func(done, total int, s engine.Summary) {
				r.report(event{Stage: "eval", Step: int64(done), Steps: int64(total), Note: fmt.Sprintf("mean accepted %.2f, parity %.3f", s.MeanAcceptedTokens, s.Parity)})
			}
			if child.store != "" {
				return child.eval(ctx, cmd.OutOrStdout(), progress)
			}
			for _, f := range [][2]string{{"base", base}, {"adapter", adapter}, {"data", dir}, {"out", out}} {
				if err := required(f[0], f[1]); err != nil {
					return err
				}
			}
			rep, err := jobs.EvaluateLocal(ctx, spec, base, adapter, dir, out, progress)
			if err != nil {
				return err
			}
			r.finish()
			return o.print(cmd.OutOrStdout(), rep, func(w writer) {
				fmt.Fprintf(w, "%s: mean accepted tokens %.3f (n-gram drafter %.3f), parity %.4f on %d prompts\nexact match %.3f, ROUGE-1 %.3f, speed-up %.2f (with prefill %.2f), latency overhead %.2f\n",
					rep.Mode, rep.MeanAcceptedTokens, rep.NGramMeanAcceptedTokens, rep.Parity, rep.Prompts, rep.ExactMatch, rep.Speculative.Rouge1, rep.Speed.Decode, rep.Speed.WithPrefill, rep.Speed.LatencyOverhead)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&base, "base", "", "the base model's Hugging Face folder")
	f.StringVar(&adapter, "adapter", "", "the adapter's folder")
	f.StringVar(&dir, "data", "", "the hold-out's folder or its dataset.json")
	f.StringVar(&out, "out", "", "folder for evaluation.json and records.jsonl")
	f.IntVar(&spec.Prompts, "prompts", 0, "prompts to decode (0: all)")
	f.IntVar(&spec.MaxNewTokens, "max-new-tokens", 128, "most tokens a decode")
	f.IntVar(&spec.TreeFactor, "tree-factor", 3, "tokens sampled a stream (k)")
	f.IntVar(&spec.TreeNodes, "tree-nodes", 32, "most nodes kept after pruning")
	f.Float64Var(&spec.PruneThreshold, "prune-threshold", 0, "drop subtrees of a lower transition score (0: off)")
	child.register(c)
	return c
}

func (f *childFlags) eval(ctx context.Context, w writer, progress func(done, total int, s engine.Summary)) error {
	var spec specstream.EvalSpec
	env, err := f.env(ctx, &spec)
	if err != nil {
		return err
	}
	base, err := f.ref("base-ref", f.base)
	if err != nil {
		return err
	}
	dataset, err := f.ref("data-ref", f.data)
	if err != nil {
		return err
	}
	checkpoint, err := f.ref("checkpoint-ref", f.checkpoint)
	if err != nil {
		return err
	}
	info, err := env.Evaluate(ctx, spec, base, checkpoint, dataset, progress)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(info)
}
