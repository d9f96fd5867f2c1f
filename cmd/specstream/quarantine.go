package main

import (
	"bufio"
	"errors"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream/jobs"
)

func newDataQuarantine() *cobra.Command {
	var store string
	c := &cobra.Command{
		Use:   "quarantine DATASET",
		Short: "Print what became of records that a data set did not keep as they were",
		Long: `Print a JSON line for each record that was quarantined, left out or changed when a
data set was made: its file, number and field, the reason, and of a duplicate what it
is the duplicate of. DATASET is the folder of an ingest or, with --store, a
reference.`,
		Args: exactArgs(1, "one data set"),
		RunE: func(cmd *cobra.Command, args []string) error {
			w := bufio.NewWriter(cmd.OutOrStdout())
			return errors.Join(jobs.Quarantine(cmd.Context(), store, args[0], w), w.Flush())
		},
	}
	c.Flags().StringVar(&store, "store", "", "the store that DATASET is a reference in")
	return c
}
