package engine_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine"
	"github.com/specstream/specstream/engine/cpu"
	"github.com/specstream/specstream/engine/enginetest"
)

// scripted decodes by a table, in stated times.
type scripted struct {
	output map[engine.Method]map[int32][]int32 // by the prompt's first token
	steps  map[int32][]int                     // tokens each speculative forward emits
	asked  []engine.Method
	fail   error
}

func (s *scripted) Decode(_ context.Context, r engine.Request) (engine.Result, error) {
	s.asked = append(s.asked, r.Method)
	if s.fail != nil {
		return engine.Result{}, s.fail
	}
	tokens := s.output[r.Method][r.Prompt[0]]
	res := engine.Result{Tokens: tokens, Emitted: len(tokens) - 1, TargetCalls: len(tokens) - 1, MinMargin: 0.5, PrefillTime: 2 * time.Second}
	if r.Method == engine.Speculative {
		res.TargetCalls = len(s.steps[r.Prompt[0]])
		for _, n := range s.steps[r.Prompt[0]] {
			if r.Observe != nil {
				r.Observe(engine.Step{Emitted: n})
			}
		}
		res.DecodeTime = time.Duration(res.TargetCalls) * 1500 * time.Millisecond
		return res, nil
	}
	res.DecodeTime = time.Duration(res.TargetCalls) * time.Second
	return res, nil
}

func (s *scripted) Close() error { return nil }

func words(tokens []int32) string {
	var b strings.Builder
	for i, t := range tokens {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "w%d", t)
	}
	return b.String()
}

// two prompts: 10 emits seven tokens in three forwards, 20 two in one, differing
// from the baseline.
func script() (*scripted, engine.EvalInput) {
	plain := map[int32][]int32{10: {1, 2, 3, 4, 5, 6, 0}, 20: {7, 8}}
	d := &scripted{
		output: map[engine.Method]map[int32][]int32{engine.Autoregressive: plain, engine.Empty: plain, engine.Speculative: {10: plain[10], 20: {7, 9}}},
		steps:  map[int32][]int{10: {3, 1, 2}, 20: {1}},
	}
	return d, engine.EvalInput{
		Mode: specstream.Lossless, Gamma: 2, Decoder: d, EOS: []int32{0}, Detokenize: words, Spec: specstream.EvalSpec{}.WithDefaults(),
		Prompts: []engine.Prompt{{ID: "a", Tokens: []int32{10, 1}, Text: "ten", Reference: "w1 w2  w3 w4 w5 w6"}, {ID: "b", Tokens: []int32{20}, Text: "twenty", Reference: "w7 w9"}},
	}
}

func TestEvaluateFigures(t *testing.T) {
	d, in := script()
	var records bytes.Buffer
	in.Records = &records
	var seen []engine.Summary
	report, err := engine.Evaluate(context.Background(), in, func(done, total int, running engine.Summary) {
		require.Equal(t, 2, total)
		require.Equal(t, done, running.Prompts)
		seen = append(seen, running)
	})
	require.NoError(t, err)
	require.Len(t, seen, 2)
	require.Equal(t, 2.0, seen[0].MeanAcceptedTokens, "six tokens in three forwards")
	require.Equal(t, report.Summary, seen[1])

	require.Equal(t, 7.0/4, report.MeanAcceptedTokens, "pooled, not the mean of 2 and 1")
	require.Equal(t, 7, report.Emitted)
	require.Equal(t, 4, report.TargetCalls)
	require.Equal(t, []int{0, 2, 1, 1}, report.EmittedPerCall)
	require.Equal(t, 0.5, report.Parity)
	require.Equal(t, []engine.Mismatch{{ID: "b", At: 1, Margin: 0.5}}, report.Mismatches)
	require.Equal(t, 0.5, report.ExactMatch, "a's reference has two spaces")
	require.Equal(t, engine.Quality{Compared: 2, ExactMatch: 0.5, ExactMatchFolded: 1, Rouge1: 1, RougeLSum: 1}, report.Speculative)
	require.Equal(t, 0.5, report.Autoregressive.ExactMatchFolded)
	require.InDelta(t, 0.75, report.Autoregressive.Rouge1, 1e-12)

	// Speculative: 7 tokens in 6 s; autoregressive: 7 in 7 s. Prompt a: 6 in 4.5 against 6 in 6; b: 1 in 1.5 against 1 in 1.
	require.InDelta(t, 7.0/6, report.Speedup, 1e-9)
	require.InDelta(t, (6/4.5+1/1.5)/2, report.Speed.DecodeMean, 1e-9)
	require.InDelta(t, 11.0/10, report.Speed.WithPrefill, 1e-9)
	require.InDelta(t, (8/6.5+3/3.5)/2, report.Speed.WithPrefillMean, 1e-9)
	require.InDelta(t, 1.5, report.Speed.LatencyOverhead, 1e-9)
	require.InDelta(t, report.MeanAcceptedTokens/report.Speed.LatencyOverhead, report.Speedup, 1e-9)
	require.InDelta(t, 1.0, report.NGramMeanAcceptedTokens, 1e-9)

	require.Equal(t, []string{"w1", " w2 w3 w4", " w5", " w6"}, report.Samples[0].Pieces)
	require.Equal(t, []int{1, 3, 1, 2}, report.Samples[0].Emitted)
	require.Len(t, report.Samples, 2)

	lines := bufio.NewScanner(&records)
	var ids []string
	for lines.Scan() {
		var r engine.Record
		require.NoError(t, json.Unmarshal(lines.Bytes(), &r))
		ids = append(ids, r.ID)
		require.Equal(t, r.ID == "a", r.Parity)
		require.Equal(t, r.ID == "b", r.BaselineTokens != nil)
	}
	require.Equal(t, []string{"a", "b"}, ids)

	// An uncounted decode of each, then both a prompt, in turns.
	ar, ss := engine.Autoregressive, engine.Speculative
	require.Equal(t, []engine.Method{ar, ss, ar, ss, ss, ar}, d.asked)

	b, err := json.Marshal(report)
	require.NoError(t, err)
	var keys map[string]any
	require.NoError(t, json.Unmarshal(b, &keys))
	for _, k := range []string{"mean_accepted_tokens", "ngram_mean_accepted_tokens", "parity", "prompts", "exact_match", "speedup"} {
		require.Contains(t, keys, k)
	}
}

func TestEvaluateSharedComparesWithEmptyDraft(t *testing.T) {
	d, in := script()
	in.Mode = specstream.Shared
	d.output[engine.Autoregressive] = map[int32][]int32{10: {3}, 20: {3}} // LoRA without streams says something else
	report, err := engine.Evaluate(context.Background(), in, nil)
	require.NoError(t, err)
	require.Equal(t, engine.Empty, report.Baseline)
	require.Equal(t, 0.5, report.Parity)
}

func TestEvaluateLimitsAndErrors(t *testing.T) {
	_, in := script()
	in.Spec.Prompts = 1
	report, err := engine.Evaluate(context.Background(), in, nil)
	require.NoError(t, err)
	require.Equal(t, 1, report.Prompts)
	require.Equal(t, 1.0, report.Parity)

	in.Prompts[0].Reference = ""
	report, err = engine.Evaluate(context.Background(), in, nil)
	require.NoError(t, err)
	require.Zero(t, report.Speculative.Compared)
	require.Zero(t, report.ExactMatch)

	for name, c := range map[string]struct {
		change func(*scripted, *engine.EvalInput)
		bad    bool
	}{
		"no prompts":        {func(_ *scripted, in *engine.EvalInput) { in.Prompts = nil }, true},
		"no mode":           {func(_ *scripted, in *engine.EvalInput) { in.Mode = "" }, true},
		"no streams":        {func(_ *scripted, in *engine.EvalInput) { in.Gamma = 0 }, true},
		"incomplete spec":   {func(_ *scripted, in *engine.EvalInput) { in.Spec = specstream.EvalSpec{} }, true},
		"no detokeniser":    {func(_ *scripted, in *engine.EvalInput) { in.Detokenize = nil }, false},
		"bad prompt":        {func(d *scripted, _ *engine.EvalInput) { d.fail = specstream.Invalid("prompt", "it holds no token") }, true},
		"device lost":       {func(d *scripted, _ *engine.EvalInput) { d.fail = errors.New("lost") }, false},
		"records unwritten": {func(_ *scripted, in *engine.EvalInput) { in.Records = full{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			d, in := script()
			c.change(d, &in)
			_, err := engine.Evaluate(context.Background(), in, nil)
			require.Error(t, err)
			require.Equal(t, c.bad, specstream.BadInput(err), err)
		})
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("disk full") }

// TestEvaluateCPU evaluates random adapters with the reference engine: whatever
// they draft, parity is complete.
func TestEvaluateCPU(t *testing.T) {
	for _, mode := range []specstream.Mode{specstream.Lossless, specstream.Shared} {
		t.Run(string(mode), func(t *testing.T) {
			w, a := enginetest.Model(t, enginetest.Config(5), specstream.AdapterSpec{Mode: mode, Gamma: 3}, 1)
			d, err := cpu.New(w, a)
			require.NoError(t, err)
			defer func() { require.NoError(t, d.Close()) }()
			r := rand.New(rand.NewPCG(1, 1))
			in := engine.EvalInput{Mode: mode, Gamma: 3, Decoder: d, EOS: []int32{4}, Detokenize: words, Spec: specstream.EvalSpec{DecodeSpec: specstream.DecodeSpec{MaxNewTokens: 16}, Samples: 3}.WithDefaults()}
			for i := range 10 {
				in.Prompts = append(in.Prompts, engine.Prompt{ID: fmt.Sprint(i), Tokens: enginetest.Prompt(r, 5, 6), Reference: "w1"})
			}
			report, err := engine.Evaluate(context.Background(), in, nil)
			require.NoError(t, err)
			require.Equal(t, 1.0, report.Parity)
			require.Empty(t, report.Mismatches)
			require.Greater(t, report.MeanAcceptedTokens, 1.0)
			require.LessOrEqual(t, report.MeanAcceptedTokens, 4.0)
			require.Positive(t, report.Speedup)
			require.Len(t, report.Samples, 3)
			sum, calls := 0, 0
			for n, count := range report.EmittedPerCall {
				sum += n * count
				calls += count
			}
			require.Equal(t, report.Emitted, sum)
			require.Equal(t, report.TargetCalls, calls)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_, err = engine.Evaluate(ctx, in, nil)
			require.ErrorIs(t, err, context.Canceled)
		})
	}
}
