// Package shard stores a data set as immutable Parquet shards with a manifest,
// reads them back as Arrow record batches, and fixes the order in which
// training sees the samples.
//
// # Files
//
// A data set is a manifest (JSON, [Manifest], schema 2) and the blobs it names by
// SHA-256. A shard is an ordinary Parquet file, readable by any Parquet reader,
// with the columns
//
//	id        string          the sample's name in its source
//	tokens    list<int32>     the whole sequence; PLAIN, zstd
//	spans     list<int32>     completion ranges [start, end), flattened pairs
//	prompt    string          the text before the last completion
//	reference string          the text of the last completion
//	alternatives list<string> further references
//
// none of them nullable, and the key-value entry specstream.schema = "1", which
// is the version of this table. Row groups are cut by tokens, so that each is one
// range read of a useful size, about 0.4 MB. Equal samples written with equal
// options give equal bytes, hence equal digests. testdata/check_peers.py opens
// shards in DuckDB and pyarrow and compares schema and content.
//
// Beside each shard lies its index, which places and vouches for the row groups
// and holds the length of every row, so that lengths are known without reading
// tokens:
//
//	the 8 bytes "specidx1"
//	the SHA-256 of the bytes behind the last row group
//	for each row group of the manifest: its tokens, the bytes of its pages in
//	  the file, and their SHA-256
//	for each row of the shard: its tokens
//
// with digests in 32 bytes and numbers as unsigned varints (LEB128). The manifest
// has the histogram of lengths, and for each part that samples came from the blob
// of its token counts, whose sums [TokenCounts] returns:
//
//	the 8 bytes "spectok1"
//	the number of tokens that occur
//	for each, rising: its id less the one before (the first: its id), and how
//	  often it occurs
//
// likewise as varints. A part's shards and counts do not depend on other parts:
// a data set that grows keeps what it had.
//
// # Integrity
//
// The manifest holds the digests of each shard and of its index, the index those
// of each row group's bytes and the footer's. A reader fetches whole row groups
// and checks the digest of what it fetched before it parses a byte, then schema,
// row and token counts after. The digest of a manifest therefore vouches for
// every token read under it: truncation, rot, or another file in a shard's place
// is an error that names the shard, never wrong tokens. Pages carry CRC-32
// checksums besides, for other readers.
//
// # Local cache
//
// With [DatasetOptions].CacheDir row groups are fetched and decoded once a
// machine and kept as Arrow IPC files, which all its processes map into memory:
// batches of consecutive rows are the mapped memory itself, without a copy, and
// batches of rows from here and there are copied once. A file is checked whole
// (XXH3-128) whenever it is mapped, and one that is damaged is made anew. The
// folder keeps to a bound; a file that is evicted stays readable for those who
// have mapped it. Arrow readers open the files as streams: behind the stream's
// end lies a trailer with the checksum, for us. The files must not be changed in
// place: that would change, or end, the processes that have mapped them. Systems
// other than Unix read the files into memory instead.
//
// # Order
//
// See [Order]: a permutation of the rows for each epoch, a function of the
// manifest's digest and the seed alone. A training run's place in it is one
// integer, whatever the number of workers; [OrderState] is that place with all
// that it depends on, and is refused where any of it differs.
package shard
