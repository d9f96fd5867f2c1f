package jobs

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/report"
)

// ReportMode reads what a report shows of one trained and evaluated mode.
func (e *Env) ReportMode(ctx context.Context, checkpoint, evaluation specstream.Ref) (report.Mode, error) {
	m, dir, err := e.fetch(ctx, checkpoint, checkpoints.KindAdapter)
	if err != nil {
		return report.Mode{}, err
	}
	history, err := ReadHistory(filepath.Join(dir, HistoryFile))
	if err != nil {
		return report.Mode{}, err
	}
	info, err := checkpointInfo(checkpoint, m)
	if err != nil {
		return report.Mode{}, err
	}
	out := report.Mode{Name: string(info.Mode), Checkpoint: checkpoint.String(), Digest: string(m.Content),
		Parameters: int64(m.Metrics["parameters"]), Seconds: m.Metrics["seconds"]}
	for k, step := range history {
		for j := range step.StreamLoss {
			if k == 0 {
				out.Loss = append(out.Loss, report.Curve{Name: streamName(j)})
				out.Accuracy = append(out.Accuracy, report.Curve{Name: streamName(j)})
			}
			out.Loss[j].Values = append(out.Loss[j].Values, step.StreamLoss[j])
			out.Accuracy[j].Values = append(out.Accuracy[j].Values, step.Accuracy[j])
		}
	}
	if info.Mode == specstream.Lossless && len(out.Loss) > 0 { // its main stream is frozen and has no loss
		out.Loss, out.Accuracy = out.Loss[1:], out.Accuracy[1:]
	}
	rep, err := e.readEvaluation(ctx, evaluation)
	if err != nil {
		return report.Mode{}, err
	}
	describe(&out, rep)
	return out, nil
}

func streamName(j int) string {
	if j == 0 {
		return "next token"
	}
	return fmt.Sprintf("stream %d", j)
}

// readEvaluation reads a committed evaluation's report.
func (e *Env) readEvaluation(ctx context.Context, ref specstream.Ref) (engine.Report, error) {
	var rep engine.Report
	m, err := e.Repo.ReadManifest(ctx, ref)
	if err != nil {
		return rep, err
	}
	f, ok := m.File(ReportFile)
	if !ok {
		return rep, fmt.Errorf("%s has no %s", ref.Key, ReportFile)
	}
	r, err := e.Repo.OpenFile(ctx, f)
	if err != nil {
		return rep, err
	}
	defer r.Close()
	if err := json.NewDecoder(io.NewSectionReader(r, 0, r.Size())).Decode(&rep); err != nil {
		return rep, fmt.Errorf("%s: %s: %w", ref.Key, ReportFile, err)
	}
	return rep, nil
}

// describe adds an evaluation's figures.
func describe(m *report.Mode, r engine.Report) {
	fact := func(name, format string, args ...any) {
		m.Measures = append(m.Measures, report.Fact{Name: name, Value: fmt.Sprintf(format, args...)})
	}
	fact("mean accepted tokens", "%.3f (at most %d); n-gram lookup drafter %.3f", r.MeanAcceptedTokens, r.Gamma+1, r.NGramMeanAcceptedTokens)
	fact("parity with "+string(r.Baseline)+" decoding", "%.4f on %d prompts", r.Parity, r.Prompts)
	fact("exact match", "%.3f (%.3f with white space folded); autoregressive %.3f", r.ExactMatch, r.Speculative.ExactMatchFolded, r.Autoregressive.ExactMatch)
	fact("ROUGE-1 / ROUGE-LSum", "%.3f / %.3f", r.Speculative.Rouge1, r.Speculative.RougeLSum)
	fact("speed-up of decoding", "%.2f (mean of ratios %.2f; with prefill %.2f)", r.Speed.Decode, r.Speed.DecodeMean, r.Speed.WithPrefill)
	fact("latency overhead of a forward", "%.2f", r.Speed.LatencyOverhead)
	for n := 1; n < len(r.EmittedPerCall); n++ {
		m.Accepted = append(m.Accepted, int64(r.EmittedPerCall[n]))
	}
	m.Speed = []report.Bar{{Name: "autoregressive", Value: r.Speed.AutoregressiveTokensPerSecond, Unit: "tokens/s"},
		{Name: "speculative", Value: r.Speed.SpeculativeTokensPerSecond, Unit: "tokens/s"}}
	for _, s := range r.Samples {
		m.Samples = append(m.Samples, report.Sample{Prompt: s.Prompt, Reference: s.Reference, Calls: s.Pieces, Match: s.Output == s.Reference, Beta: s.MeanAcceptedTokens})
	}
}

// WriteReport writes a report's file in one step.
func WriteReport(path string, d report.Data) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".report-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := report.Write(f, d); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	if err := os.Chmod(f.Name(), 0o644); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
