package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/jobs"
	"github.com/specstream/specstream/trainer"
)

func newTrain(o *options) *cobra.Command {
	var (
		spec           specstream.TrainSpec
		alpha0, alpha  float64
		base, dir, out string
		child          childFlags
	)
	c := &cobra.Command{
		Use:   "train --base DIR --data DIR|dataset.json --mode lossless|shared --out DIR",
		Short: "Train an adapter",
		Long: `Train a Speculative Streaming adapter on a frozen base. The state is saved beside
the adapter as it goes: the same command goes on where it was stopped, and ends with
the same bytes as if it had not been.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			r, err := o.newReporter()
			if err != nil {
				return err
			}
			defer r.finish()
			progress := func(p trainer.Progress) { r.report(trainEvent("train", p)) }
			if child.store != "" {
				return child.train(ctx, cmd.OutOrStdout(), progress)
			}
			for _, f := range [][2]string{{"base", base}, {"data", dir}, {"out", out}} {
				if err := required(f[0], f[1]); err != nil {
					return err
				}
			}
			if cmd.Flags().Changed("alpha-0") {
				spec.Alpha0 = &alpha0
			}
			if cmd.Flags().Changed("alpha-stream") {
				spec.AlphaStream = &alpha
			}
			res, err := jobs.TrainLocal(ctx, spec, base, dir, out, progress)
			if err != nil {
				return err
			}
			r.finish()
			return o.print(cmd.OutOrStdout(), res, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %s adapter of %d parameters, %d steps, loss %.4f, next-stream accuracy %.3f\n%s\n",
					res.Out, res.Mode, res.Parameters, res.Steps, res.Loss, res.Accuracy[min(1, len(res.Accuracy)-1)], res.Digest)
			})
		},
	}
	f := c.Flags()
	adapterFlags(c, &spec.AdapterSpec)
	f.StringVar(&base, "base", "", "the base model's Hugging Face folder")
	f.StringVar(&dir, "data", "", "the dataset's folder or its dataset.json")
	f.StringVar(&out, "out", "", "folder to write")
	f.IntVar(&spec.Steps, "steps", 200, "optimiser steps")
	f.IntVar(&spec.BatchSize, "batch-size", 16, "samples a step")
	f.IntVar(&spec.MicroBatch, "micro-batch", 0, "samples a pass (default: the batch)")
	f.IntVar(&spec.Segments, "segments", 0, "completion segments a sample (0: as --memory-budget asks)")
	f.Int64Var(&spec.MemoryBudget, "memory-budget", 0, "bytes of activations that segments keep to (0: unlimited)")
	f.Float64Var(&spec.LearningRate, "learning-rate", 5e-4, "AdamW's peak rate")
	f.IntVar(&spec.WarmupSteps, "warmup-steps", 0, "linear warm-up (default: a twentieth of the steps)")
	f.Float64Var(&spec.WeightDecay, "weight-decay", 0, "AdamW's decoupled decay")
	f.Float64Var(&spec.ClipNorm, "clip-norm", 1, "cap on the global gradient norm")
	f.Float64Var(&alpha0, "alpha-0", 0, "weight of the next-token loss (default: shared 1, lossless 0)")
	f.Float64Var(&alpha, "alpha-stream", 0, "weight of each stream's loss (default: shared 0.1, lossless 1)")
	f.Uint64Var(&spec.Seed, "seed", 1, "seed of initialisation and order")
	f.BoolVar(&spec.Bucketing, "bucketing", false, "draw each batch from samples of similar lengths")
	f.IntVar(&spec.PackTokens, "pack-tokens", 0, "order a batch so that runs of it fill packs of that many tokens (0: as drawn)")
	f.IntVar(&spec.SaveEvery, "save-every", 50, "steps between resumable states")
	child.register(c)
	return c
}

func (f *childFlags) train(ctx context.Context, w io.Writer, progress func(trainer.Progress)) error {
	var spec specstream.TrainSpec
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
	info, err := env.Train(ctx, spec, base, dataset, progress)
	if err != nil {
		return err
	}
	return json.NewEncoder(w).Encode(info)
}
