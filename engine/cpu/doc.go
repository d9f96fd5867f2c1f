// Package cpu is the reference decoding engine: it defines what every other
// engine must compute.
//
// A forward is a batch of rows. Main rows carry tokens and write their keys and
// values to the cache; stream rows belong to a main row and live within the
// forward. Every row's result depends on the keys it sees, in order, and on
// nothing else that shares the batch (package kernels guarantees it), so that
// verifying a draft tree gives bit for bit what decoding a token at a time gives.
//
// In lossless mode the main stream never sees a stream. The engine therefore runs
// the streams after acceptance, for the accepted node alone: of the streams that
// the method attaches to every kept node those are the only ones that are read,
// and they come out the same. In shared mode the main stream sees its own streams,
// so all kept nodes carry theirs.
//
// One decoder serves every family: norms, biases, the kind of MLP, rotary or
// learned positions and the window of each layer follow from the base's
// configuration. Learned positions are added to the token embedding, so streams,
// which begin above it, inherit their token's. A sliding window counts positions:
// stream j of position t stands at t+j and sees what the main row there will see.
package cpu
