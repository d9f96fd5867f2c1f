// Package trainer trains Speculative Streaming adapters: the loop over the
// deterministic sample order, the learning-rate schedule, the global loss
// normalisation, resumable state, and the Backend that does the arithmetic.
//
// A run is a pure function of the base, the dataset's manifest and the
// specification: killed at any step and resumed from its last saved state, it
// ends with the same bits as a run that was left alone.
package trainer
