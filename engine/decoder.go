package engine

import (
	"context"
	"slices"
	"time"

	"github.com/specstream/specstream"
)

// Method is a way of decoding with one adapter.
type Method string

const (
	// Autoregressive decodes a token a forward without streams: the base itself
	// in lossless mode, the base with the adapter's LoRA in shared mode.
	Autoregressive Method = "autoregressive"
	// Speculative verifies a draft tree and drafts the next in every forward.
	Speculative Method = "speculative"
	// Empty decodes a token a forward with streams attached and nothing drafted.
	// In shared mode the main stream sees its own streams, so this, not
	// Autoregressive, is what Speculative must reproduce. In lossless mode it
	// emits what Autoregressive emits.
	Empty Method = "empty"
)

// Baseline returns the method whose tokens speculative decoding must reproduce.
func Baseline(m specstream.Mode) Method {
	if m == specstream.Shared {
		return Empty
	}
	return Autoregressive
}

// Request is one prompt to decode.
type Request struct {
	// Prompt holds the prompt's tokens; at least one.
	Prompt []int32
	// EOS are the tokens that end the decode; may be empty.
	EOS []int32
	// Method is how to decode.
	Method Method
	// Decode holds the limits and the draft tree's shape, complete.
	Decode specstream.DecodeSpec
	// Observe, when not nil, is told of every forward after the prefill. The
	// step's slices are the callee's only until it returns.
	Observe func(Step)
}

// Step is one forward after the prefill.
type Step struct {
	// Root is the token at the tree's root: the last token emitted before.
	Root int32
	// Draft holds each stream's tokens of which the tree was grown, likeliest
	// first; empty when nothing was drafted.
	Draft [][]int32
	// Kept are the nodes of the full tree, numbered breadth first, that pruning kept.
	Kept []int
	// Accepted is the number of draft tokens on the accepted path.
	Accepted int
	// Emitted is the number of tokens emitted, the correction included, after
	// cutting at an end token or the limit.
	Emitted int
}

// Result is one decode.
type Result struct {
	// Tokens are the emitted tokens, without the prompt, up to and including the
	// end token if one was emitted. The first is the prefill's.
	Tokens []int32
	// TargetCalls is the number of forwards after the prefill.
	TargetCalls int
	// Emitted is the number of tokens those forwards emitted: len(Tokens) − 1.
	Emitted int
	// PrefillTime runs until the first token is known and the first tree drafted.
	PrefillTime time.Duration
	// DecodeTime is the time of all forwards after the prefill.
	DecodeTime time.Duration
	// MinMargin is the least gap between the two highest main-stream logits over
	// all tokens chosen: how near the decode came to a tie.
	MinMargin float32
}

// Decoder decodes prompts with one base and one adapter.
//
// Decode validates the request (an InputError names the bad field), then
// decodes greedily until an end token, exactly MaxNewTokens tokens, or the base's
// last position, and stops early with ctx's error when ctx ends. Ties go to the
// lower token id. Equal requests give equal tokens. The tokens of Speculative
// equal those of [Baseline] up to what the implementation says of near-ties in
// floating point; the CPU engine guarantees bit equality.
//
// Calls must not overlap; Close frees what the decoder holds, after which it
// must not be used.
type Decoder interface {
	Decode(ctx context.Context, r Request) (Result, error)
	Close() error
}

// Tokens emits tokens under a request's limits. Every decoder ends decodes
// through it, so that all count alike.
type Tokens struct {
	list []int32
	eos  []int32
	most int
	done bool
}

// NewTokens returns an empty list that ends after an end token of r or after
// the request's limit, whichever comes first; positions is the number the base
// has, prompt included.
func NewTokens(r Request, positions int) *Tokens {
	most := min(r.Decode.MaxNewTokens, positions-len(r.Prompt))
	return &Tokens{list: make([]int32, 0, most), eos: r.EOS, most: most}
}

// Append emits tokens in order until the list ends and returns how many it took.
func (t *Tokens) Append(tokens ...int32) int {
	n := 0
	for _, token := range tokens {
		if t.done {
			break
		}
		t.list = append(t.list, token)
		n++
		t.done = len(t.list) >= t.most || slices.Contains(t.eos, token)
	}
	return n
}

// Done reports whether the list has ended.
func (t *Tokens) Done() bool { return t.done }

// List returns the tokens emitted so far.
func (t *Tokens) List() []int32 { return t.list }

// Limit returns the most tokens the list can hold.
func (t *Tokens) Limit() int { return t.most }

// Check validates a request for a base of that vocabulary and number of
// positions.
func (r Request) Check(vocab, positions int) error {
	if len(r.Prompt) == 0 {
		return specstream.Invalid("prompt", "it holds no token")
	}
	if len(r.Prompt) >= positions {
		return specstream.Invalid("prompt", "its %d tokens leave no room in the base's %d positions", len(r.Prompt), positions)
	}
	for i, t := range r.Prompt {
		if t < 0 || int(t) >= vocab {
			return specstream.Invalid("prompt", "token %d, %d, is outside the vocabulary of %d", i, t, vocab)
		}
	}
	switch r.Method {
	case Autoregressive, Speculative, Empty:
	default:
		return specstream.Invalid("method", "%q is not %q, %q or %q", r.Method, Autoregressive, Speculative, Empty)
	}
	return r.Decode.Validate()
}
