// Package data turns instruction data into token samples with a loss mask.
//
// The way of one record:
//
//	files, patterns, s3:// objects     (Expand, Opener)
//	  → bytes, gzip/zstd/BOM removed     (Open)
//	  → raw elements, in bounded memory  (Reader.NextRaw)
//	  → Record of turns                  (Reader.Decode)
//	  → pieces of rendered text          (Template.Render)
//	  → Samples of tokens with spans     (Encoder.Samples)
//
// Four formats are read: ShareGPT conversations, DialogSum, sql-create-context
// and the E2E challenge. Two kinds of failure are kept apart. Bytes that are
// not well-formed JSON or CSV damage the container: the boundaries of records
// can't be trusted any more, so reading ends with a [specstream.InputError].
// Well-formed elements that are not records of the format are a
// [BadRecordError]; reading goes on behind them, and the caller decides how many
// it puts up with. A record that is sound but of no use for training is a
// [SkipError]. Text is taken as it is: no record or turn is left out, and none is
// altered, without an error or an entry in [Record.Changed]. Two things are the
// formats' own: keys and columns that a format does not have are ignored, and
// line breaks inside a CSV cell are read as \n.
//
// # Loss mask
//
// Only assistant text and the end token behind it are trained on
// ([Sample.Spans]). The mask is exact because the rendered text is tokenised
// piece by piece: a prompt is tokenised apart from its completion, so no token
// ever straddles the boundary. Decoding starts from a prompt that was tokenised
// apart in just the same way, by [Encoder.Prompt], so the tokens a model meets
// at inference are those it was trained on. See [Encoder] for the one rule about
// the space between the two.
package data
