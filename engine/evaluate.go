package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/specstream/specstream"
)

// Prompt is one held-out prompt.
type Prompt struct {
	// ID names it in records and errors.
	ID string
	// Tokens is the prompt as the model reads it.
	Tokens []int32
	// Text is the prompt as people read it, for samples.
	Text string
	// Reference is the completion wished for; empty when there is none to
	// compare with.
	Reference string
}

// EvalInput is what [Evaluate] measures and how.
type EvalInput struct {
	// Mode is the adapter's mode.
	Mode specstream.Mode
	// Gamma is the adapter's number of streams: the n-gram drafter gets as many.
	Gamma int
	// Decoder decodes with base and adapter.
	Decoder Decoder
	// Prompts are decoded in order; with Spec.Prompts > 0 only the first so many.
	Prompts []Prompt
	// EOS are the tokens that end a decode; they are left out of its text.
	EOS []int32
	// Detokenize renders tokens as text.
	Detokenize func(tokens []int32) string
	// Spec is complete.
	Spec specstream.EvalSpec
	// Records, when not nil, receives a [Record] a prompt as a line of JSON, at once.
	Records io.Writer
}

// Evaluate decodes every prompt speculatively and by its mode's baselines and
// measures the decodes (see [Report]). Methods take turns going first, so that
// neither owns the warm cache, after an uncounted decode of each. Progress, when
// not nil, is told after every prompt of the figures so far.
//
// An InputError names the prompt that cannot be decoded.
func Evaluate(ctx context.Context, in EvalInput, progress func(done, total int, running Summary)) (Report, error) {
	prompts := in.Prompts
	if n := in.Spec.Prompts; n > 0 && n < len(prompts) {
		prompts = prompts[:n]
	}
	if err := in.check(prompts); err != nil {
		return Report{}, fmt.Errorf("evaluate: %w", err)
	}
	methods := []Method{Autoregressive, Speculative}
	if in.Mode == specstream.Shared {
		methods = []Method{Autoregressive, Empty, Speculative}
	}
	for _, m := range methods {
		r := in.request(prompts[0], m)
		r.Decode.MaxNewTokens = min(r.Decode.MaxNewTokens, 8)
		if _, err := in.Decoder.Decode(ctx, r); err != nil {
			return Report{}, promptError(prompts[0], 0, err)
		}
	}
	t := newTally(in, len(prompts))
	for i, p := range prompts {
		results := map[Method]Result{}
		var calls []int
		for k := range methods {
			m := methods[(k+i)%len(methods)]
			r := in.request(p, m)
			if m == Speculative {
				r.Observe = func(s Step) { calls = append(calls, s.Emitted) }
			}
			res, err := in.Decoder.Decode(ctx, r)
			if err != nil {
				return Report{}, promptError(p, i, err)
			}
			results[m] = res
		}
		record := t.add(p, results, calls)
		if in.Records != nil {
			b, err := json.Marshal(record)
			if err != nil {
				return Report{}, fmt.Errorf("evaluate: encode the record of prompt %q: %w", p.ID, err)
			}
			if _, err := in.Records.Write(append(b, '\n')); err != nil {
				return Report{}, fmt.Errorf("evaluate: write the record of prompt %q: %w", p.ID, err)
			}
		}
		if progress != nil {
			progress(i+1, len(prompts), t.summary())
		}
	}
	return t.report(), nil
}

func (in EvalInput) check(prompts []Prompt) error {
	if len(prompts) == 0 {
		return &specstream.InputError{Field: "prompts", Reason: "there is no prompt to decode", Hint: "check the hold-out data"}
	}
	if in.Mode != specstream.Lossless && in.Mode != specstream.Shared {
		return specstream.Invalid("mode", "%q is neither \"lossless\" nor \"shared\"", in.Mode)
	}
	if in.Gamma < 1 {
		return specstream.Invalid("gamma", "%d is not positive", in.Gamma)
	}
	if in.Decoder == nil || in.Detokenize == nil {
		return errors.New("no decoder or no detokeniser is given")
	}
	return in.Spec.Validate()
}

func (in EvalInput) request(p Prompt, m Method) Request {
	return Request{Prompt: p.Tokens, EOS: in.EOS, Method: m, Decode: in.Spec.DecodeSpec}
}

// promptError names the prompt in an error.
func promptError(p Prompt, index int, err error) error {
	var bad *specstream.InputError
	if errors.As(err, &bad) {
		named := *bad
		named.Record = int64(index + 1)
		err = &named
	}
	return fmt.Errorf("evaluate: prompt %q: %w", p.ID, err)
}

// text renders tokens without the end token they may finish with.
func (in EvalInput) text(tokens []int32) string {
	if n := len(tokens); n > 0 {
		for _, e := range in.EOS {
			if tokens[n-1] == e {
				tokens = tokens[:n-1]
				break
			}
		}
	}
	return in.Detokenize(tokens)
}

// fold collapses every run of white space into one space and trims both ends.
func fold(s string) string { return strings.Join(strings.Fields(s), " ") }
