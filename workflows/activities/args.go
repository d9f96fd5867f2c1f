package activities

import (
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/specstream/specstream/workflows"
)

// childArgs builds the command line of a child process from its command, flags
// and specification.
func (c Config) childArgs(command string, spec any, flags ...string) ([]string, error) {
	b, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("%s: encode the specification: %w", command, err)
	}
	args := append([]string{command, "--store", c.Store, "--spec-json", string(b), "--work-dir", c.WorkDir}, flags...)
	return append(args, "--json", "--progress", "jsonl"), nil
}

func (c Config) ingestArgs(stage string, in workflows.IngestStep) ([]string, error) {
	flags := []string{"--base-ref", in.Base.String(), "--stage", stage}
	if in.Plan != "" {
		flags = append(flags, "--plan", string(in.Plan), "--part", strconv.Itoa(in.Part))
	}
	if in.Resolution != "" {
		flags = append(flags, "--resolution", string(in.Resolution))
	}
	return c.childArgs("ingest", in.Spec, flags...)
}

func (c Config) trainArgs(in workflows.TrainInput) ([]string, error) {
	return c.childArgs("train", in.Spec, "--base-ref", in.Base.String(), "--data-ref", in.Dataset.String())
}

func (c Config) evalArgs(in workflows.EvalInput) ([]string, error) {
	return c.childArgs("eval", in.Spec, "--base-ref", in.Base.String(), "--checkpoint-ref", in.Checkpoint.String(), "--data-ref", in.HoldOut.String())
}
