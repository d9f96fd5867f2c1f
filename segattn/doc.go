// Package segattn is segment attention (Speculative Streaming, Appendix I): the
// layout of main-stream and speculative-stream rows, the split of a sequence
// into segments, the memory planner, and the attention kernels with their
// hand-written backward.
//
// A sequence of L tokens has main rows at positions 0..L-2; the row of position
// t predicts token t+1. Positions that have a completion target carry γ stream
// rows as well; stream j of position t predicts token t+1+j. Every stream row
// attends to the main rows of positions ≤ t and to streams 1..j of its own
// position (Eq. 2). In shared mode the main row of position t attends to its own
// γ streams too (Eq. 3).
//
// In a layer with a sliding window of W positions a row sees no main row W or more
// positions before its own, by position ids as the base learnt them: stream j of
// position t stands at t+j, so its window begins at t+j-W+1, where that of the
// main row it speaks for does.
//
// Streams of one position are never seen by another, so the stream rows of one
// segment are all that need be in memory at a time. Segments are coupled through
// main keys and values alone: a forward pass leaves them in a [KV] store, and the
// backward pass, which visits segments in reverse, adds its part of their
// gradient to accumulators in the same store. When the segment that owns a
// position is reached, the accumulator of that position is complete and becomes
// the gradient of its key and value. The result is exact for any number of
// segments.
package segattn
