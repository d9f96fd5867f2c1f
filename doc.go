// Package specstream holds the vocabulary of the specstream pipeline: the
// specifications users write, the references stages hand to one another, the
// digests that name work and artefacts, and the error kinds that decide
// whether a failure is worth retrying.
//
// specstream trains Speculative Streaming adapters (Bhendawade et al., 2024):
// a few thousand parameters that let a frozen base model draft and verify
// several tokens in one forward pass. The package imports the standard library
// alone and everything else imports it.
package specstream
