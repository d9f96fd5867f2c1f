package main

import (
	"bufio"
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream/data/synth"
)

func newGenerate() *cobra.Command {
	var (
		format, split, out string
		n                  int
		seed               uint64
	)
	c := &cobra.Command{
		Use:   "generate --format FORMAT --records N [--out FILE]",
		Short: "Write generated sample data in one of the source formats",
		Long: `Write generated sample data: questions with SQL, dialogues with summaries,
multi-turn chat, or restaurant descriptions. The same arguments give the same bytes.
The heldout split shares no table and no question template, scenario, topic or
restaurant with the train split.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if err := required("format", format); err != nil {
				return err
			}
			var w io.Writer = cmd.OutOrStdout()
			if out != "" {
				f, err := os.Create(out)
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, f.Close()) }()
				w = f
			}
			b := bufio.NewWriter(w)
			if err := synth.Write(b, format, seed, n, synth.Split(split)); err != nil {
				return err
			}
			return b.Flush()
		},
	}
	f := c.Flags()
	f.StringVar(&format, "format", "", strings.Join(synth.Formats, ", "))
	f.IntVar(&n, "records", 1000, "number of records")
	f.Uint64Var(&seed, "seed", 1, "seed")
	f.StringVar(&split, "split", string(synth.Train), "train, heldout, or renamed (sql: train with every name drawn anew)")
	f.StringVar(&out, "out", "", "file to write (default: standard output)")
	return c
}
