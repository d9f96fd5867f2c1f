// Package remote opens inputs over HTTP: https:// and http:// addresses, and
// hf://datasets/OWNER/NAME[@REVISION]/PATH for files of the Hugging Face hub.
//
// An input is read by range requests. A connection that is cut or stalls is taken
// up where it broke off, and an input that is no longer the one that was opened,
// by its entity tag, its date or its length, is an error rather than a mixture of
// two. A server without ranges is read from the start again; only Parquet, which
// is read from its end, needs ranges. Answers that say to come back later (408,
// 429 and 5xx) are followed, after the time that Retry-After names.
//
// Inputs are read as they are stored: one that is served with a content encoding
// of gzip is recognised and decompressed by package data, and its digest is that
// of the compressed bytes.
//
// A token for the hub goes to the hub's host alone, whatever it redirects to.
package remote
