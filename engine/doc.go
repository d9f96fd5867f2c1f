// Package engine defines how prompts are decoded and how decodes are measured,
// independently of the device: the [Decoder] contract, the draft tree with its
// pruning and acceptance (Speculative Streaming, sections 2.2 and 2.3, Appendix
// G.1), a prompt-lookup drafter to compare with, and the evaluation of a
// checkpoint.
//
// Decoding is greedy. In lossless mode the tokens are those of the base decoded
// autoregressively; in shared mode those of the same adapter decoded with an
// empty draft. Package enginetest holds the suite that every decoder passes;
// package cpu is the reference.
package engine
