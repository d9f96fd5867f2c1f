package workflows_test

import (
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/workflows"
)

func TestStagesRunAlone(t *testing.T) {
	data := specstream.DataSpec{Format: "e2e", Inputs: []string{"a.csv"}}
	train := specstream.TrainSpec{AdapterSpec: specstream.AdapterSpec{Mode: specstream.Shared}}
	for _, c := range []struct {
		workflow string
		input    any
		want     string // what the activity got to do
	}{
		{workflows.IngestDatasetWorkflow, workflows.IngestInput{Spec: data, Base: ref("base")}, "ingest"},
		{workflows.TrainAdapterWorkflow, workflows.TrainInput{Spec: train, Base: ref("base"), Dataset: ref("data")}, "train"},
		{workflows.EvaluateCheckpointWorkflow, workflows.EvalInput{Checkpoint: ref("ckpt-shared"), Base: ref("base"), HoldOut: ref("data")}, "evaluate"},
		{workflows.PromoteCheckpointWorkflow, workflows.PromoteInput{Alias: "production", Ref: ref("c"), Who: "ada"}, "promote"},
	} {
		t.Run(c.workflow, func(t *testing.T) {
			f := &fakeWork{}
			env := newEnv(t, f)
			env.ExecuteWorkflow(c.workflow, c.input)
			require.NoError(t, env.GetWorkflowError())
			require.Equal(t, map[string]int{c.want: 1}, f.calls)
			if c.want == "promote" {
				require.NotEmpty(t, f.promoted[0].RequestID, "a promotion started by hand is repeatable too")
			}
		})
	}
}

func TestStagesRefuseBadInput(t *testing.T) {
	digest := ref("x").Digest
	refJSON := `{"key":"manifests/x.json","digest":"` + string(digest) + `"}`
	for _, c := range []struct{ name, workflow, input, want string }{
		{"ingest format", workflows.IngestDatasetWorkflow, `{"spec":{"format":"pdf","inputs":["a"]},"base":` + refJSON + `}`, `field "format"`},
		{"ingest base", workflows.IngestDatasetWorkflow, `{"spec":{"format":"sql","inputs":["a"]}}`, `field "base"`},
		{"ingest unknown", workflows.IngestDatasetWorkflow, `{"spek":1}`, `field "spek"`},
		{"train mode", workflows.TrainAdapterWorkflow, `{"spec":{},"base":` + refJSON + `,"dataset":` + refJSON + `}`, `field "mode"`},
		{"train dataset", workflows.TrainAdapterWorkflow, `{"spec":{"mode":"lossless"},"base":` + refJSON + `,"dataset":{"key":"k","digest":"md5:0"}}`, `field "dataset"`},
		{"evaluate prompts", workflows.EvaluateCheckpointWorkflow, `{"spec":{"prompts":-1}}`, `field "prompts"`},
		{"evaluate hold-out", workflows.EvaluateCheckpointWorkflow, `{"spec":{},"base":` + refJSON + `,"checkpoint":` + refJSON + `}`, `field "hold_out"`},
		{"promote alias", workflows.PromoteCheckpointWorkflow, `{"ref":` + refJSON + `,"who":"ada"}`, `field "alias"`},
		{"promote nobody", workflows.PromoteCheckpointWorkflow, `{"ref":` + refJSON + `,"alias":"a"}`, `field "who"`},
		{"promote nothing", workflows.PromoteCheckpointWorkflow, `{"alias":"a","who":"ada"}`, `field "ref"`},
		{"bad heartbeat", workflows.TrainAdapterWorkflow, `{"spec":{"mode":"lossless"},"base":` + refJSON + `,"dataset":` + refJSON + `,"runtime":{"heartbeat_timeout":"x"}}`, `field "heartbeat_timeout"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &fakeWork{}
			env := newEnv(t, f)
			env.ExecuteWorkflow(c.workflow, raw(c.input))
			requireBadInput(t, env.GetWorkflowError(), c.want)
			require.Empty(t, f.calls)
		})
	}
}

func TestGates(t *testing.T) {
	good := workflows.EvaluationInfo{MeanAcceptedTokens: 2, Parity: 1, Prompts: 200}
	edit := func(f func(e *workflows.EvaluationInfo)) workflows.EvaluationInfo { e := good; f(&e); return e }
	for _, c := range []struct {
		name   string
		mode   specstream.Mode
		spec   specstream.GateSpec
		e      workflows.EvaluationInfo
		failed string // names of gates that fail, joined
	}{
		{"all pass at their bounds", specstream.Lossless, specstream.GateSpec{MeanAcceptedTokens: 2, Prompts: 200}, good, ""},
		{"no bounds", specstream.Lossless, specstream.GateSpec{}, good, ""},
		{"parity a hair under 1", specstream.Lossless, specstream.GateSpec{}, edit(func(e *workflows.EvaluationInfo) { e.Parity = math.Nextafter(1, 0) }), "lossless_parity"},
		{"parity above 1 is nonsense", specstream.Lossless, specstream.GateSpec{}, edit(func(e *workflows.EvaluationInfo) { e.Parity = 1.5 }), "lossless_parity"},
		{"shared mode needs no parity", specstream.Shared, specstream.GateSpec{}, edit(func(e *workflows.EvaluationInfo) { e.Parity = 0.3 }), ""},
		{"accepted tokens", specstream.Shared, specstream.GateSpec{MeanAcceptedTokens: 2.1}, good, "mean_accepted_tokens"},
		{"not a number", specstream.Shared, specstream.GateSpec{}, edit(func(e *workflows.EvaluationInfo) { e.MeanAcceptedTokens = math.NaN() }), "mean_accepted_tokens"},
		{"prompts", specstream.Shared, specstream.GateSpec{Prompts: 201}, good, "prompts"},
		{"nothing measured", specstream.Lossless, specstream.GateSpec{}, workflows.EvaluationInfo{Parity: 1}, "prompts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var failed []string
			for _, g := range workflows.Gates(c.spec, c.mode, c.e) {
				require.NotEmpty(t, g.Detail)
				if !g.Passed {
					failed = append(failed, g.Gate)
				}
			}
			require.Equal(t, c.failed, strings.Join(failed, ","))
		})
	}
}

func TestWorkIDsNameAllThatDetermineTheResult(t *testing.T) {
	spec := specstream.TrainSpec{AdapterSpec: specstream.AdapterSpec{Mode: specstream.Lossless}}
	a, b := ref("a").Digest, ref("b").Digest
	id := func(s specstream.TrainSpec, base, data specstream.Digest) string {
		v, err := workflows.TrainID(s, base, data)
		require.NoError(t, err)
		return v
	}
	base := id(spec, a, b)
	require.Regexp(t, `^train-[0-9a-f]{32}$`, base)
	require.Equal(t, base, id(spec.WithDefaults(), a, b), "defaults that are spelt out change nothing")
	more := spec
	more.Steps = 201
	require.NotEqual(t, base, id(more, a, b))
	require.NotEqual(t, base, id(spec, b, a))
	require.NotEqual(t, base, id(spec, a, a))
}

func TestStartOptionsMakeTheSameOrderOneJob(t *testing.T) {
	o, err := workflows.StartOptions(job())
	require.NoError(t, err)
	again, err := workflows.StartOptions(job().WithDefaults())
	require.NoError(t, err)
	require.Equal(t, o.ID, again.ID)
	require.Equal(t, workflows.Queue, o.TaskQueue)
	require.Equal(t, enumspb.WORKFLOW_ID_CONFLICT_POLICY_USE_EXISTING, o.WorkflowIDConflictPolicy)
	slow := job()
	slow.Runtime.HeartbeatTimeout = "9m"
	o2, err := workflows.StartOptions(slow)
	require.NoError(t, err)
	require.Equal(t, o.ID, o2.ID, "how a job is run does not name it")
	bad := job()
	bad.Base = ""
	_, err = workflows.StartOptions(bad)
	require.True(t, specstream.BadInput(err))
}
