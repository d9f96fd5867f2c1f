package engine

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/engine/rouge"
)

// Summary is the headline of an evaluation. Its JSON keys are a contract with
// scripts.
type Summary struct {
	// MeanAcceptedTokens is β: tokens emitted by the forwards after the prefill
	// over the number of those forwards, pooled over all prompts, the correction
	// counted, nothing after an end token. 1 is autoregressive; γ+1 the most.
	MeanAcceptedTokens float64 `json:"mean_accepted_tokens"`
	// NGramMeanAcceptedTokens is the same figure of a drafter that only looks up
	// n-grams in prompt and output ([NGramAccepted]), on the same outputs.
	NGramMeanAcceptedTokens float64 `json:"ngram_mean_accepted_tokens"`
	// Parity is the share of prompts whose tokens equal the baseline's
	// ([Baseline]) exactly.
	Parity float64 `json:"parity"`
	// Prompts is the number of prompts decoded.
	Prompts int `json:"prompts"`
	// ExactMatch is the share of speculative outputs that equal their reference,
	// character for character, of the prompts that have one.
	ExactMatch float64 `json:"exact_match"`
	// Speedup is speculative over autoregressive tokens a second, decoding alone,
	// ratio of sums: same engine, device and prompts, one prompt at a time.
	Speedup float64 `json:"speedup"`
}

// Quality compares outputs with references; shares and means over the prompts
// that have one.
type Quality struct {
	// Compared is the number of prompts with a reference.
	Compared int `json:"compared"`
	// ExactMatch is the share of outputs equal to the reference.
	ExactMatch float64 `json:"exact_match"`
	// ExactMatchFolded is the same after folding runs of white space.
	ExactMatchFolded float64 `json:"exact_match_folded"`
	// Rouge1 and RougeLSum are mean F measures as Google's rouge-score computes
	// them, stemming on.
	Rouge1    float64 `json:"rouge1"`
	RougeLSum float64 `json:"rouge_lsum"`
}

// Speed compares speculative with autoregressive decoding in wall time.
type Speed struct {
	// Decode and WithPrefill are ratios of tokens a second, speculative over
	// autoregressive, of all prompts' tokens over all prompts' time: for decoding
	// alone (the prefill's token not counted) and for the whole.
	Decode      float64 `json:"decode"`
	WithPrefill float64 `json:"with_prefill"`
	// DecodeMean and WithPrefillMean are means over prompts of each prompt's ratio.
	DecodeMean      float64 `json:"decode_mean_of_ratios"`
	WithPrefillMean float64 `json:"with_prefill_mean_of_ratios"`
	// LatencyOverhead is ρ, the time of a speculative forward over that of an
	// autoregressive one; Decode is about β/ρ.
	LatencyOverhead float64 `json:"latency_overhead"`
	// Tokens a second of decoding alone, over all prompts.
	SpeculativeTokensPerSecond    float64 `json:"speculative_tokens_per_second"`
	AutoregressiveTokensPerSecond float64 `json:"autoregressive_tokens_per_second"`
}

// Mismatch is a prompt whose tokens differ from the baseline's.
type Mismatch struct {
	ID string `json:"id"`
	// At is the index of the first token that differs.
	At int `json:"at"`
	// Margin is the baseline decode's least gap between two logits: a mismatch
	// beside a tiny margin is a tie that flipped.
	Margin float32 `json:"margin"`
}

// Sample is one decode to show.
type Sample struct {
	ID        string `json:"id"`
	Prompt    string `json:"prompt"`
	Reference string `json:"reference,omitempty"`
	Output    string `json:"output"`
	// Pieces is Output cut into what the prefill and then each forward emitted.
	Pieces []string `json:"pieces"`
	// Emitted is the number of tokens of each piece, the end token included.
	Emitted            []int   `json:"emitted"`
	MeanAcceptedTokens float64 `json:"mean_accepted_tokens"`
}

// Report is what [Evaluate] found.
type Report struct {
	Summary
	// Mode is the adapter's; Gamma its number of streams.
	Mode  specstream.Mode `json:"mode"`
	Gamma int             `json:"gamma"`
	// Spec is how prompts were decoded.
	Spec specstream.EvalSpec `json:"spec"`
	// Baseline is the method that parity compares with.
	Baseline Method `json:"baseline"`
	// TargetCalls and Emitted are β's denominator and numerator.
	TargetCalls int `json:"target_calls"`
	Emitted     int `json:"emitted"`
	// EmittedPerCall[n] is how many forwards emitted n tokens, 0 .. γ+1.
	EmittedPerCall []int `json:"emitted_per_call"`
	// Speculative and Autoregressive are the qualities of the two outputs.
	Speculative    Quality `json:"speculative"`
	Autoregressive Quality `json:"autoregressive"`
	Speed          Speed   `json:"speed"`
	// Mismatches are the first few prompts without parity.
	Mismatches []Mismatch `json:"mismatches,omitempty"`
	// MinMargin is the least gap between two logits over all baseline decodes.
	MinMargin float32 `json:"min_margin"`
	// Samples are decodes to show, spread evenly over the prompts.
	Samples []Sample `json:"samples"`
}

// Record is the account of one prompt, a line of the records file.
type Record struct {
	ID           string  `json:"id"`
	PromptTokens int     `json:"prompt_tokens"`
	Output       string  `json:"output"`
	Reference    string  `json:"reference,omitempty"`
	Tokens       []int32 `json:"tokens"`
	TargetCalls  int     `json:"target_calls"`
	Emitted      int     `json:"emitted"`
	NGramCalls   int     `json:"ngram_calls"`
	NGramEmitted int     `json:"ngram_emitted"`
	// Parity says whether Tokens equal the baseline's; BaselineTokens are given
	// where they don't.
	Parity         bool    `json:"parity"`
	BaselineTokens []int32 `json:"baseline_tokens,omitempty"`
	ExactMatch     *bool   `json:"exact_match,omitempty"` // nil without a reference
	Folded         *bool   `json:"exact_match_folded,omitempty"`
	Rouge1         float64 `json:"rouge1,omitempty"`
	RougeLSum      float64 `json:"rouge_lsum,omitempty"`
	// Seconds of speculative and autoregressive decoding.
	Prefill        float64 `json:"prefill_seconds"`
	Decode         float64 `json:"decode_seconds"`
	BaselineDecode float64 `json:"autoregressive_decode_seconds"`
	MinMargin      float32 `json:"min_margin"`
}

// mostMismatches is how many mismatches a report lists.
const mostMismatches = 10

// tally adds up decodes.
type tally struct {
	in         EvalInput
	total      int
	out        Report
	same       int
	ngramCalls int
	ngramOut   int
	ss, ar     clock
	ratios     [2]mean // decode alone, with prefill
	quality    [2]tallied
}

// clock adds up the times and tokens of one method.
type clock struct {
	calls, emitted, tokens int
	decode, whole          time.Duration
}

func (c *clock) add(r Result) {
	c.calls += r.TargetCalls
	c.emitted += r.Emitted
	c.tokens += len(r.Tokens)
	c.decode += r.DecodeTime
	c.whole += r.PrefillTime + r.DecodeTime
}

type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v float64) { m.sum += v; m.n++ }
func (m mean) value() float64 { return divide(m.sum, float64(m.n)) }

// divide returns a/b, and 0 where b is 0.
func divide(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// rate returns tokens a second.
func rate(tokens int, d time.Duration) float64 { return divide(float64(tokens), d.Seconds()) }

// tallied adds up one method's quality.
type tallied struct {
	n, exact, folded int
	rouge1, rougeL   float64
}

func (q tallied) quality() Quality {
	n := float64(q.n)
	return Quality{Compared: q.n, ExactMatch: divide(float64(q.exact), n), ExactMatchFolded: divide(float64(q.folded), n), Rouge1: divide(q.rouge1, n), RougeLSum: divide(q.rougeL, n)}
}

// add compares one output and says how it did.
func (q *tallied) add(output, reference string) (exact, folded bool, s rouge.Scores) {
	exact, folded, s = output == reference, fold(output) == fold(reference), rouge.Compare(reference, output)
	q.n++
	if exact {
		q.exact++
	}
	if folded {
		q.folded++
	}
	q.rouge1 += s.Rouge1.F
	q.rougeL += s.RougeLSum.F
	return exact, folded, s
}

func newTally(in EvalInput, total int) *tally {
	t := &tally{in: in, total: total}
	t.out = Report{Mode: in.Mode, Gamma: in.Gamma, Spec: in.Spec, Baseline: Baseline(in.Mode), EmittedPerCall: make([]int, in.Gamma+2), Samples: []Sample{}}
	return t
}

// add counts one prompt; calls holds the tokens each speculative forward emitted.
func (t *tally) add(p Prompt, results map[Method]Result, calls []int) Record {
	ss, ar, base := results[Speculative], results[Autoregressive], results[t.out.Baseline]
	base.MinMargin = min(base.MinMargin, math.MaxFloat32) // JSON has no infinity
	index := t.out.Prompts
	t.out.Prompts++
	if index == 0 || base.MinMargin < t.out.MinMargin {
		t.out.MinMargin = base.MinMargin
	}
	t.ss.add(ss)
	t.ar.add(ar)
	if ss.Emitted > 0 && ar.Emitted > 0 {
		t.ratios[0].add(divide(rate(ss.Emitted, ss.DecodeTime), rate(ar.Emitted, ar.DecodeTime)))
	}
	t.ratios[1].add(divide(rate(len(ss.Tokens), ss.PrefillTime+ss.DecodeTime), rate(len(ar.Tokens), ar.PrefillTime+ar.DecodeTime)))
	for _, n := range calls {
		t.out.EmittedPerCall[min(n, t.in.Gamma+1)]++
	}
	r := Record{
		ID: p.ID, PromptTokens: len(p.Tokens), Tokens: ss.Tokens, Output: t.in.text(ss.Tokens), Reference: p.Reference,
		TargetCalls: ss.TargetCalls, Emitted: ss.Emitted, Parity: slices.Equal(ss.Tokens, base.Tokens), MinMargin: base.MinMargin,
		Prefill: ss.PrefillTime.Seconds(), Decode: ss.DecodeTime.Seconds(), BaselineDecode: ar.DecodeTime.Seconds(),
	}
	r.NGramCalls, r.NGramEmitted = NGramAccepted(p.Tokens, ss.Tokens, t.in.Gamma)
	t.ngramCalls += r.NGramCalls
	t.ngramOut += r.NGramEmitted
	if r.Parity {
		t.same++
	} else {
		r.BaselineTokens = base.Tokens
		if len(t.out.Mismatches) < mostMismatches {
			t.out.Mismatches = append(t.out.Mismatches, Mismatch{ID: p.ID, At: firstDifference(ss.Tokens, base.Tokens), Margin: base.MinMargin})
		}
	}
	if p.Reference != "" {
		exact, folded, s := t.quality[0].add(r.Output, p.Reference)
		r.ExactMatch, r.Folded, r.Rouge1, r.RougeLSum = &exact, &folded, s.Rouge1.F, s.RougeLSum.F
		t.quality[1].add(t.in.text(ar.Tokens), p.Reference)
	}
	// Sample s shows prompt ⌊s·total/samples⌋.
	if n := len(t.out.Samples); n < min(t.in.Spec.Samples, t.total) && index >= n*t.total/min(t.in.Spec.Samples, t.total) {
		t.out.Samples = append(t.out.Samples, t.sample(p, r, calls))
	}
	return r
}

func firstDifference(a, b []int32) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

// sample cuts an output into what each forward emitted.
func (t *tally) sample(p Prompt, r Record, calls []int) Sample {
	s := Sample{ID: p.ID, Prompt: p.Text, Reference: p.Reference, Output: r.Output, MeanAcceptedTokens: divide(float64(r.Emitted), float64(r.TargetCalls))}
	s.Emitted = append([]int{1}, calls...)
	before, at := "", 0
	for _, n := range s.Emitted {
		at += n
		// Text up to here: tokens alone may be halves of characters.
		upTo := t.in.text(r.Tokens[:at])
		piece, ok := strings.CutPrefix(upTo, before)
		if !ok {
			piece = t.in.text(r.Tokens[at-n : at])
		}
		s.Pieces = append(s.Pieces, piece)
		before = upTo
	}
	return s
}

func (t *tally) summary() Summary {
	n := float64(t.out.Prompts)
	return Summary{
		MeanAcceptedTokens:      divide(float64(t.ss.emitted), float64(t.ss.calls)),
		NGramMeanAcceptedTokens: divide(float64(t.ngramOut), float64(t.ngramCalls)),
		Parity:                  divide(float64(t.same), n),
		Prompts:                 t.out.Prompts,
		ExactMatch:              t.quality[0].quality().ExactMatch,
		Speedup:                 divide(rate(t.ss.emitted, t.ss.decode), rate(t.ar.emitted, t.ar.decode)),
	}
}

func (t *tally) report() Report {
	r := t.out
	r.Summary = t.summary()
	r.TargetCalls, r.Emitted = t.ss.calls, t.ss.emitted
	r.Speculative, r.Autoregressive = t.quality[0].quality(), t.quality[1].quality()
	r.Speed = Speed{
		Decode: r.Speedup, WithPrefill: divide(rate(t.ss.tokens, t.ss.whole), rate(t.ar.tokens, t.ar.whole)),
		DecodeMean: t.ratios[0].value(), WithPrefillMean: t.ratios[1].value(),
		LatencyOverhead:               divide(divide(t.ss.decode.Seconds(), float64(t.ss.calls)), divide(t.ar.decode.Seconds(), float64(t.ar.calls))),
		SpeculativeTokensPerSecond:    rate(t.ss.emitted, t.ss.decode),
		AutoregressiveTokensPerSecond: rate(t.ar.emitted, t.ar.decode),
	}
	return r
}
