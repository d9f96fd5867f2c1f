package workflows

import (
	"fmt"

	"github.com/specstream/specstream"
)

// GateResult is one gate's verdict.
type GateResult struct {
	Gate   string `json:"gate"`
	Passed bool   `json:"passed"`
	// Detail gives the figure and the bound.
	Detail string `json:"detail"`
}

// Gates compares an evaluation with the least figures its job demands, in a
// fixed order. Lossless parity must be exactly 1: a lossless adapter that
// changes one token is broken, however good its other figures are.
//
// A figure that is not a number fails its gate.
func Gates(spec specstream.GateSpec, mode specstream.Mode, e EvaluationInfo) []GateResult {
	var gates []GateResult
	add := func(name string, passed bool, format string, args ...any) {
		gates = append(gates, GateResult{Gate: name, Passed: passed, Detail: fmt.Sprintf(format, args...)})
	}
	if mode == specstream.Lossless {
		add("lossless_parity", e.Parity == 1, "parity %v, must be exactly 1", e.Parity)
	}
	add("prompts", e.Prompts >= max(1, spec.Prompts), "%d prompts measured, must be at least %d", e.Prompts, max(1, spec.Prompts))
	add("mean_accepted_tokens", e.MeanAcceptedTokens >= spec.MeanAcceptedTokens,
		"mean accepted tokens %.4g, must be at least %.4g", e.MeanAcceptedTokens, spec.MeanAcceptedTokens)
	return gates
}

// gatesPassed reports whether a job's checkpoint may be put to a person. The
// promoted mode must pass all its gates. The other modes must pass those of
// correctness: a lossless adapter without parity means that the engine or the
// trainer is at fault, and then nothing they produced is to be trusted.
func gatesPassed(promote specstream.Mode, modes []ModeStatus) bool {
	for _, m := range modes {
		for _, g := range m.Gates {
			if !g.Passed && (m.Mode == promote || g.Gate == "lossless_parity") {
				return false
			}
		}
	}
	return true
}
