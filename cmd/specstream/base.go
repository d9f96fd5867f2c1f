package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream/jobs"
	"github.com/specstream/specstream/trainer"
)

// cacheDir is specstream's folder in the user's cache.
func cacheDir() (string, error) {
	if d := os.Getenv("SPECSTREAM_CACHE"); d != "" {
		return d, nil
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a cache folder (set SPECSTREAM_CACHE): %w", err)
	}
	return filepath.Join(d, "specstream"), nil
}

func newBase(o *options) *cobra.Command {
	var (
		spec      jobs.BaseSpec
		flags     dataFlags
		out, work string
	)
	c := &cobra.Command{
		Use:   "base --format FORMAT --out DIR INPUT...",
		Short: "Train a tokenizer and pretrain a small base model from scratch",
		Long: `Train a byte-level BPE tokenizer and pretrain a small Llama-type decoder on the
given records, and write them as a Hugging Face folder. It is meant for
demonstrations and tests; production bases come from elsewhere.

The state is saved as it goes: the same command goes on where it was stopped.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := required("out", out); err != nil {
				return err
			}
			if len(args) == 0 {
				return usageError{fmt.Errorf("name at least one input file")}
			}
			var err error
			if spec.Data, err = flags.complete(cmd, args); err != nil {
				return err
			}
			if work == "" {
				d, err := cacheDir()
				if err != nil {
					return err
				}
				work = d
			}
			r, err := o.newReporter()
			if err != nil {
				return err
			}
			defer r.finish()
			res, err := jobs.Base(cmd.Context(), spec, out, work, func(stage string, p trainer.Progress) { r.report(trainEvent(stage, p)) })
			if err != nil {
				return err
			}
			r.finish()
			return o.print(cmd.OutOrStdout(), res, func(w io.Writer) {
				fmt.Fprintf(w, "%s: %d parameters, vocabulary %d, %d steps over %d tokens, final loss %.3f\n", res.Dir, res.Parameters, res.Vocab, res.Steps, res.Tokens, res.FinalLoss)
			})
		},
	}
	f := c.Flags()
	f.StringVar(&out, "out", "", "folder to write")
	f.StringVar(&work, "work-dir", "", "folder for shards and resumable state (default: the user's cache)")
	flags.register(c)
	d := jobs.BaseSpec{}.WithDefaults()
	f.IntVar(&spec.Vocab, "vocab", d.Vocab, "vocabulary size")
	f.IntVar(&spec.Hidden, "hidden", d.Hidden, "hidden size")
	f.IntVar(&spec.FF, "ff", d.FF, "MLP width")
	f.IntVar(&spec.Layers, "layers", d.Layers, "decoder layers")
	f.IntVar(&spec.Heads, "heads", d.Heads, "query heads")
	f.IntVar(&spec.KVHeads, "kv-heads", d.KVHeads, "key/value heads")
	f.IntVar(&spec.Steps, "steps", d.Steps, "optimiser steps")
	f.IntVar(&spec.BatchSize, "batch-size", d.BatchSize, "samples a step")
	f.Float64Var(&spec.LearningRate, "learning-rate", d.LearningRate, "AdamW's peak rate")
	f.Uint64Var(&spec.Seed, "seed", d.Seed, "seed of initialisation and order")
	f.StringVar(&spec.DType, "dtype", d.DType, "type of the saved weights: F32, BF16 or F16")
	return c
}

// trainEvent renders a step of training.
func trainEvent(stage string, p trainer.Progress) event {
	return event{Stage: stage, Step: int64(p.Step), Steps: int64(p.Steps), Loss: p.Loss, TokensPerSecond: p.TokensPerSecond, ETASeconds: p.ETASeconds}
}
