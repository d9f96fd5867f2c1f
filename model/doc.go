// Package model holds decoder configurations, base weights and adapters, and
// their layouts on disk: Hugging Face folders for bases, PEFT's layout plus the
// project's own tensors for adapters.
//
// Families (Llama and Vicuna, Mistral, Qwen2, Phi-3, OPT) differ in what their
// config.json holds and in what they call their tensors; both are read here, and
// what the arithmetic needs to know of a family is in [Config]. Whatever would be
// computed differently is refused.
//
// Weights are float32 in memory, row-major, projections of one input stacked.
// Projections go by their LoRA target names in every family: OPT's fc1 is up_proj,
// its fc2 down_proj.
// The package does no arithmetic beyond initialisation.
package model
