// Package e2e tests the specstream command as its users run it: the real binary,
// real servers, a tiny model. It has no code of its own but tests.
//
// SPECSTREAM_BIN names a binary to test instead of one built from this checkout.
// SPECSTREAM_KILL_ROUNDS says how many pipelines the kill test disturbs (default
// 3), SPECSTREAM_KILL_SEED with which random moments.
package e2e
