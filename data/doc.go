// Package data turns instruction data into token samples with a loss mask.
//
// The way of one record:
//
//	files, patterns, remote objects    (Expand, Opener; package remote)
//	  → parts, by one pass with digests  (Scan)
//	  → raw elements, in bounded memory  (OpenPart, Reader.NextRaw)
//	  → Record of turns                  (Reader.Decode)
//	  → pieces of rendered text          (Template.Render)
//	  → Samples of tokens with spans     (Encoder.Samples)
//
// # Containers
//
// Records come as one JSON array, as JSON objects each beginning on a line of its
// own, as CSV with a header, or as Parquet; of Parquet and of most CSV, a row is a
// JSON object of its columns. Text may be compressed with gzip or zstd, in several
// members too, and may begin with a UTF-8 byte-order mark. [Scan] cuts an input
// into parts, runs of whole records that can be read by themselves, anywhere, and
// whose digests say whether they still are what was scanned.
//
// An input of any size takes the memory of one element. What is hostile is
// bounded: an element or row has 64 MiB at most; brackets are nested 1,000 deep at
// most, of which decoders take fewer; a compressed input that is past 64 MiB
// expands to MaxExpansion times its stored bytes at most, as does a column of
// Parquet; zstd takes windows up to 128 MiB; a page of Parquet has 128 MiB and
// 16 Mi values at most, its metadata 64 MiB.
//
// # Failures
//
// Two kinds are kept apart. Bytes that are not what their container has damage
// it: a file that is cut or followed by something else, broken compression, NULs
// or text between records, quotes or brackets that don't match, UTF-16, a page of
// Parquet with another checksum, columns that don't go with the format. The
// boundaries of records can't be trusted any more, so reading ends with a
// [specstream.InputError]. Well-formed elements that are not records of the
// format are a [BadRecordError]: invalid UTF-8, duplicate keys, ragged rows of
// CSV; reading goes on behind them, and the caller decides how many it puts up
// with. A record that is sound but of no use for training is a [SkipError]. Text
// is taken as it is: no record or turn is left out, and none is altered, without
// an error or an entry in [Record.Changed]. Two things are the formats' own: keys
// and columns that a format does not have are ignored, and line breaks inside a
// CSV cell are read as \n. TestHostileContainers and TestHostileElements are the
// tables of what becomes of what.
//
// # Loss mask
//
// Only assistant text and the end token behind it are trained on
// ([Sample.Spans]). The tokens of a sample are those of the whole rendered text,
// so they are what Hugging Face's apply_chat_template gives; a completion begins
// where they part from the tokens of its prompt alone. Decoding starts from the
// prompt's tokens, so a model meets at inference what it was trained on; see
// [Encoder] for the one exception. Strings of special tokens inside a record's
// text are text, unless the specification says otherwise: only the template's
// own become control tokens.
package data
