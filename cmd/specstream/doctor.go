package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"

	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/kernels"
)

// finding is one line of the doctor's report.
type finding struct {
	What   string `json:"what"`
	Status string `json:"status"` // "ok", "warning" or "failed"
	Detail string `json:"detail"`
}

func newDoctor(o *options) *cobra.Command {
	var conn connection
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Check servers, store and devices",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			list := diagnose(cmd.Context(), &conn)
			if err := o.print(cmd.OutOrStdout(), list, func(w writer) {
				for _, f := range list {
					fmt.Fprintf(w, "%-8s %-22s %s\n", f.Status, f.What, f.Detail)
				}
			}); err != nil {
				return err
			}
			for _, f := range list {
				if f.Status == "failed" {
					return fmt.Errorf("%s: %s", f.What, f.Detail)
				}
			}
			return nil
		},
	}
	conn.register(c)
	return c
}

func diagnose(ctx context.Context, conn *connection) []finding {
	list := []finding{{"CPU", "ok", fmt.Sprintf("%s/%s, %d cores used", runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))},
		{"matrix products", "ok", kernels.Backend()}}
	if err := kernels.EnvError(); err != nil {
		list[1].Status, list[1].Detail = "warning", err.Error()
	}
	list = append(list, gpuFinding(ctx))
	if err := conn.resolve(); err != nil {
		return append(list, finding{"configuration", "failed", err.Error()})
	}
	return append(append(list, temporalFinding(ctx, conn)), storeFindings(ctx, conn)...)
}

// gpuFinding reports NVIDIA devices. This version trains and decodes on the CPU.
func gpuFinding(ctx context.Context) finding {
	if found, err := filepath.Glob("/dev/nvidia[0-9]*"); err != nil || len(found) == 0 {
		return finding{"GPU", "ok", "none; the CPU is used"}
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	name := "an NVIDIA device"
	if b, err := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader").Output(); err == nil {
		name = string(b[:max(0, len(b)-1)])
	}
	return finding{"GPU", "warning", name + " is present, but this version trains and decodes on the CPU"}
}

func temporalFinding(ctx context.Context, conn *connection) finding {
	cl, err := conn.temporal(ctx, os.Stderr)
	if err != nil {
		return finding{"Temporal", "warning", err.Error()}
	}
	defer cl.Close()
	if _, err := cl.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return finding{"Temporal", "failed", err.Error()}
	}
	return finding{"Temporal", "ok", conn.address + ", namespace " + conn.namespace}
}

func storeFindings(ctx context.Context, conn *connection) []finding {
	if conn.store == "" {
		return []finding{{"store", "warning", "none is named: give --store or start one with `specstream up`"}}
	}
	env, err := conn.env(ctx, "")
	if err != nil {
		return []finding{{"store", "failed", err.Error()}}
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	var list []finding
	for _, c := range checkpoints.Probe(ctx, env.Repo.Store) {
		f := finding{"store: " + c.Name, "ok", conn.store}
		if c.Err != nil {
			f.Status, f.Detail = "failed", c.Err.Error()
		}
		list = append(list, f)
	}
	return list
}
