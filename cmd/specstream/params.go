package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/model"
)

// adapterFlags registers the flags that shape an adapter.
func adapterFlags(c *cobra.Command, s *specstream.AdapterSpec) {
	f := c.Flags()
	f.StringVar((*string)(&s.Mode), "mode", string(specstream.Lossless), "lossless or shared")
	f.IntVar(&s.Gamma, "gamma", 4, "speculative streams a token (γ)")
	f.IntVar(&s.MSALayers, "msa-layers", 4, "multi-stream layers at the top (N_s)")
	f.IntVar(&s.StreamRank, "stream-rank", 0, "rank of the stream adapters, lossless mode (default 8)")
	f.StringVar(&s.StreamMLP, "stream-mlp", "", "adapter or base+adapter, lossless mode (default adapter)")
	f.StringVar(&s.StreamInit, "stream-init", "", "identity or lowrank (default identity)")
	f.IntVar(&s.LoRARank, "lora-rank", 0, "rank of the LoRA adapters, shared mode (default 32)")
	f.Float64Var(&s.LoRAAlpha, "lora-alpha", 0, "LoRA's output is scaled by alpha/rank (default: the rank)")
	f.StringSliceVar(&s.LoRATargets, "lora-targets", nil, "projections that LoRA adapts (default all seven)")
	f.IntVar(&s.PruneRank, "prune-rank", 0, "rank of the pruning adapter (default 8)")
}

func newParams(o *options) *cobra.Command {
	var (
		config string
		spec   specstream.AdapterSpec
	)
	c := &cobra.Command{
		Use:   "params --config config.json",
		Short: "Print the trainable parameters of an adapter, by group",
		Long: `Print how many parameters an adapter trains on a base, by group, from the
base's Hugging Face config.json alone; no weights are needed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := required("config", config); err != nil {
				return err
			}
			cfg, err := model.ReadDimensions(config)
			if err != nil {
				return err
			}
			spec = spec.WithDefaults()
			if err := spec.Validate(); err != nil {
				return err
			}
			counts, err := model.CountParams(cfg, spec)
			if err != nil {
				return err
			}
			return o.print(cmd.OutOrStdout(), counts, func(w io.Writer) {
				t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
				for _, r := range []struct {
					name string
					n    int64
				}{{"LoRA", counts.LoRA}, {"stream embeddings", counts.StreamEmbeddings}, {"stream adapters", counts.StreamAdapters},
					{"stream initialisation", counts.StreamInit}, {"pruning adapter", counts.PruningAdapter},
					{"beyond LoRA", counts.BeyondLoRA}, {"total", counts.Total}} {
					fmt.Fprintf(t, "%s\t%d\t\n", r.name, r.n)
				}
				t.Flush()
			})
		},
	}
	c.Flags().StringVar(&config, "config", "", "the base's config.json")
	adapterFlags(c, &spec)
	return c
}
