// Package gorgonia is the CPU training backend: adapters and base models trained
// through gorgonia's expression graphs and tape machine.
//
// Every heavy operation is one fused graph operation with a hand-written
// backward, because gorgonia's primitives are several times slower and keep every
// intermediate result alive (docs/decisions). An operation owns its output, has
// room for a fixed capacity of rows, and works on the live rows of the run, so
// one compiled graph serves every batch and, bound to each layer's weights in
// turn, every layer.
//
// Rows go through in packs of bounded size, gradients of parameters are summed
// where the optimiser reads them, and the gradients of rows share one buffer an
// operation's name over all layers: memory is that of one pack's activations.
package gorgonia
