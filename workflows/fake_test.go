package workflows_test

import (
	"context"
	"fmt"
	"sync"

	"go.temporal.io/sdk/temporal"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/workflows"
)

// fakeWork implements workflows.Activities with results derived from inputs.
// Tests replace single functions.
type fakeWork struct {
	mu       sync.Mutex
	calls    map[string]int
	promoted []workflows.PromoteInput
	reports  []workflows.ReportInput

	ingest   func(ctx context.Context, in workflows.IngestStep) error
	train    func(ctx context.Context, in workflows.TrainInput) error
	evaluate func(e *workflows.EvaluationInfo)
	resolve  func() error
	report   func() error

	// Of an ingestion of several parts.
	plan        *workflows.DatasetPlan
	unprocessed [][2]int // once duplicates are resolved
	onPart      func(ctx context.Context, stage string, in workflows.IngestStep) error
	parts       []string
	committed   []workflows.IngestStep
}

func ref(name string) specstream.Ref {
	return specstream.Ref{Key: "manifests/" + name + ".json", Digest: specstream.DigestBytes([]byte(name))}
}

func (f *fakeWork) count(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[name]++
}

func (f *fakeWork) called(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

func (f *fakeWork) ResolveBase(_ context.Context, in workflows.ResolveBaseInput) (workflows.BaseInfo, error) {
	f.count("resolve")
	if f.resolve != nil {
		if err := f.resolve(); err != nil {
			return workflows.BaseInfo{}, err
		}
	}
	return workflows.BaseInfo{
		Ref: ref("base"), Digest: specstream.DigestBytes([]byte(in.Base)), Tokenizer: specstream.DigestBytes([]byte("tok")),
		Config: workflows.BaseConfig{ModelType: "llama", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, Vocab: 256},
	}, nil
}

// dataset is what an ingestion of a spec comes to.
func dataset(spec specstream.DataSpec) (workflows.DatasetInfo, error) {
	d, err := specstream.DigestJSON(spec)
	return workflows.DatasetInfo{Ref: ref("data-" + d.Short()), Digest: d, Account: workflows.Account{Read: 10, Kept: 10, Tokens: 1000, Shards: 1}}, err
}

func (f *fakeWork) PlanDataset(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPlan, error) {
	f.count("ingest")
	if f.ingest != nil {
		if err := f.ingest(ctx, in); err != nil {
			return workflows.DatasetPlan{}, err
		}
	}
	if f.plan != nil {
		return *f.plan, nil
	}
	d, err := dataset(in.Spec)
	return workflows.DatasetPlan{Plan: d.Digest, Parts: 1, Dataset: &d}, err
}

func (f *fakeWork) part(ctx context.Context, stage string, in workflows.IngestStep) (workflows.DatasetPart, error) {
	f.count(stage)
	f.mu.Lock()
	f.parts = append(f.parts, fmt.Sprintf("%s %d", stage, in.Part))
	f.mu.Unlock()
	if f.onPart != nil {
		if err := f.onPart(ctx, stage, in); err != nil {
			return workflows.DatasetPart{}, err
		}
	}
	return workflows.DatasetPart{Bytes: 100, Records: 10}, nil
}

func (f *fakeWork) SignPart(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPart, error) {
	return f.part(ctx, "sign", in)
}

func (f *fakeWork) ProcessPart(ctx context.Context, in workflows.IngestStep) (workflows.DatasetPart, error) {
	return f.part(ctx, "process", in)
}

func (f *fakeWork) ResolveDuplicates(_ context.Context, in workflows.IngestStep) (workflows.DatasetDuplicates, error) {
	f.count("resolve duplicates")
	return workflows.DatasetDuplicates{Resolution: ref("resolution").Digest, Pending: f.unprocessed}, nil
}

func (f *fakeWork) CommitDataset(_ context.Context, in workflows.IngestStep) (workflows.DatasetInfo, error) {
	f.count("commit")
	f.mu.Lock()
	f.committed = append(f.committed, in)
	f.mu.Unlock()
	return dataset(in.Spec)
}

func (f *fakeWork) TrainAdapter(ctx context.Context, in workflows.TrainInput) (workflows.CheckpointInfo, error) {
	f.count("train")
	if f.train != nil {
		if err := f.train(ctx, in); err != nil {
			return workflows.CheckpointInfo{}, err
		}
	}
	d, err := specstream.DigestJSON(in.Spec)
	return workflows.CheckpointInfo{Ref: ref("ckpt-" + string(in.Spec.Mode)), Digest: d, Mode: in.Spec.Mode, Steps: in.Spec.Steps, FinalLoss: 1.5, Seconds: 3}, err
}

func (f *fakeWork) EvaluateCheckpoint(_ context.Context, in workflows.EvalInput) (workflows.EvaluationInfo, error) {
	f.count("evaluate")
	mode := specstream.Lossless
	if in.Checkpoint.Key == ref("ckpt-shared").Key {
		mode = specstream.Shared
	}
	e := workflows.EvaluationInfo{
		Ref: ref("eval-" + string(mode)), Digest: specstream.DigestBytes([]byte("eval-" + string(mode))), Mode: mode,
		MeanAcceptedTokens: 2.4, NGramMeanAcceptedTokens: 1.3, Parity: 1, Prompts: 200, ExactMatch: 0.9, Speedup: 1.3,
	}
	if f.evaluate != nil {
		f.evaluate(&e)
	}
	return e, nil
}

func (f *fakeWork) PromoteCheckpoint(_ context.Context, in workflows.PromoteInput) (workflows.PromotionInfo, error) {
	f.count("promote")
	f.mu.Lock()
	defer f.mu.Unlock()
	f.promoted = append(f.promoted, in)
	return workflows.PromotionInfo{Alias: in.Alias, Generation: int64(len(f.promoted)), Ref: in.Ref}, nil
}

func (f *fakeWork) BuildReport(_ context.Context, in workflows.ReportInput) (workflows.ReportInfo, error) {
	f.count("report")
	f.mu.Lock()
	f.reports = append(f.reports, in)
	f.mu.Unlock()
	if f.report != nil {
		if err := f.report(); err != nil {
			return workflows.ReportInfo{}, err
		}
	}
	return workflows.ReportInfo{Path: fmt.Sprintf("report-%s.html", in.Outcome)}, nil
}

func badInput(format string, args ...any) error {
	return temporal.NewNonRetryableApplicationError(fmt.Sprintf(format, args...), workflows.BadInput, nil)
}

// job is a valid order that asks a person.
func job() specstream.JobSpec {
	return specstream.JobSpec{
		Name:    "nightly",
		Base:    "/models/base",
		Data:    specstream.DataSpec{Format: "sql", Inputs: []string{"train.json"}},
		HoldOut: specstream.DataSpec{Format: "sql", Inputs: []string{"dev.json"}},
		Gates:   specstream.GateSpec{MeanAcceptedTokens: 2, Prompts: 100},
	}
}

func autoJob() specstream.JobSpec {
	j := job()
	j.Approval.Auto = true
	return j
}
