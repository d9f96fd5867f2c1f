// Package model holds decoder configurations, base weights and adapters, and
// their layouts on disk: Hugging Face folders for bases, PEFT's layout plus the
// project's own tensors for adapters.
//
// Weights are float32 in memory, row-major, named as Hugging Face names them.
// The package does no arithmetic beyond initialisation.
package model
