package main

import (
	"fmt"
	"text/tabwriter"

	"go.temporal.io/api/workflowservice/v1"

	"github.com/specstream/specstream/workflows"
)

type listRequest = workflowservice.ListWorkflowExecutionsRequest

// printResult prints a pipeline's result as a table.
func printResult(w writer, res workflows.PipelineResult) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "mode\tmean accepted\tn-gram drafter\tparity\tprompts\texact match\tspeed-up\ttraining\t")
	for _, m := range res.Modes {
		e := m.Evaluation
		if e == nil || m.Checkpoint == nil {
			fmt.Fprintf(t, "%s\t-\t-\t-\t-\t-\t-\t-\t\n", m.Mode)
			continue
		}
		fmt.Fprintf(t, "%s\t%.2f\t%.2f\t%.4f\t%d\t%.3f\t%.2f\t%.0fs\t\n", m.Mode, e.MeanAcceptedTokens, e.NGramMeanAcceptedTokens, e.Parity, e.Prompts, e.ExactMatch, e.Speedup, m.Checkpoint.Seconds)
	}
	t.Flush()
	for _, m := range res.Modes {
		for _, g := range m.Gates {
			if !g.Passed {
				fmt.Fprintf(w, "%s gate %s failed: %s\n", m.Mode, g.Gate, g.Detail)
			}
		}
	}
	fmt.Fprintf(w, "outcome     %s\n", res.Outcome)
	if res.Promotion != nil {
		fmt.Fprintf(w, "checkpoint  %s\nalias       %s, generation %d\n", res.Promotion.Ref, res.Promotion.Alias, res.Promotion.Generation)
	}
	if res.Report != nil {
		fmt.Fprintf(w, "report      %s\n", res.Report.Path)
	}
	for _, warning := range res.Warnings {
		fmt.Fprintf(w, "warning     %s\n", warning)
	}
}
