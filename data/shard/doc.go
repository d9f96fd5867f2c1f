// Package shard stores a data set as immutable Parquet shards with a manifest,
// reads them back as Arrow record batches, and fixes the order in which
// training sees the samples.
//
// # Files
//
// A data set is a manifest (JSON, [Manifest]) and the shards it names by
// SHA-256. A shard is an ordinary Parquet file, readable by any Parquet
// reader, with the columns
//
//	id        string          the sample's name in its source
//	tokens    list<int32>     the whole sequence; PLAIN, zstd
//	spans     list<int32>     completion ranges [start, end), flattened pairs
//	prompt    string          the text before the last completion
//	reference string          the text of the last completion
//	alternatives list<string> further references
//
// none of them nullable, and the key-value entry specstream.schema = "1". Row
// groups are cut by tokens, so that each is one range read of a useful size.
// Equal samples written with equal options give equal bytes, hence equal
// digests.
//
// # Integrity
//
// The manifest holds the digest of each shard, and of each row group's bytes
// and the footer's inside it. A reader fetches whole row groups (or whole
// shards, with [DatasetOptions].CacheDir) and checks the digest of what it
// fetched before it parses a byte, then schema, row and token counts after.
// The digest of a manifest therefore vouches for every token read under it:
// truncation, rot, or another file in a shard's place is an error that names
// the shard, never wrong tokens. Pages carry CRC-32 checksums besides, for
// other readers.
//
// # Order
//
// See [Order]: a permutation of the rows for each epoch, a function of the
// manifest's digest and the seed alone. A training run's place in it is one
// integer, the step, whatever the number of workers.
package shard
