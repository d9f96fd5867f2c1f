package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

func newUp(o *options) *cobra.Command {
	var (
		conn  connection
		slots int
	)
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a Temporal server, an S3 server and a worker, with data kept in a folder",
		Long: `Run everything a pipeline needs on this machine: a Temporal server with its web UI,
an S3-compatible server, and a worker. Data is kept in a folder; after a crash, even a
kill -9, the same command takes up running workflows where they were.

Temporal is the server that $TEMPORAL_ADDRESS names, else a "temporal" command on the
PATH, else the project's own development server, which is built on first use.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			dir, err := conn.dir()
			if err != nil {
				return err
			}
			s, err := startStack(ctx, dir, slots, os.Stderr)
			if err != nil {
				return err
			}
			info := struct {
				DataDir   string `json:"data_dir"`
				Temporal  string `json:"temporal"`
				Namespace string `json:"namespace"`
				UI        string `json:"ui,omitempty"`
				S3        string `json:"s3"`
				AccessKey string `json:"s3_access_key"`
				Store     string `json:"store"`
				Log       string `json:"log"`
			}{s.dir, s.config.TemporalAddress, s.config.Namespace, s.config.UIAddress, s.config.s3Endpoint(), s.config.AccessKey, s.config.store(), filepath.Join(s.dir, logFile)}
			err = o.print(cmd.OutOrStdout(), info, func(w writer) {
				fmt.Fprintf(w, "Temporal   %s (namespace %s)\n", info.Temporal, info.Namespace)
				if info.UI != "" {
					fmt.Fprintf(w, "web UI     http://%s\n", info.UI)
				}
				fmt.Fprintf(w, "S3         %s, keys in %s/stack.json\nstore      %s\nlog        %s\n", info.S3, info.DataDir, info.Store, info.Log)
				fmt.Fprintln(w, "ready; Ctrl-C stops it, running workflows go on at the next start")
			})
			if err == nil {
				<-ctx.Done()
			}
			if stopErr := s.stop(); err == nil {
				err = stopErr
			}
			return err
		},
	}
	c.Flags().StringVar(&conn.dataDir, "data-dir", "", "folder for all data (default: $"+dataDirEnv+", else ~/.local/share/specstream)")
	c.Flags().IntVar(&slots, "slots", 1, "trainings or evaluations at a time; 0 runs no worker")
	return c
}
