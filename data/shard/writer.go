package shard

import (
	"context"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// Default sizes of [Options].
const (
	DefaultShardTokens    = 16 << 20
	DefaultRowGroupTokens = 256 << 10
)

// Options configures a [Writer]. Everything but Blobs is part of the bytes'
// identity: the same samples written with other sizes are another data set.
type Options struct {
	// Blobs is where shards go.
	Blobs Blobs
	// ShardTokens is about how many tokens a shard holds. Default 16 Mi.
	ShardTokens int
	// RowGroupTokens is the most tokens a row group holds, unless one sample
	// has more. It is the unit of range reads and of shuffling. Default 256 Ki,
	// which is about 0.4 MB in the file.
	RowGroupTokens int
	// PageBytes is about how large a page gets, in bytes of one column before
	// compression. Default: all of a row group's column is one page, which
	// readers take over without copying.
	PageBytes int
}

// WithDefaults returns a copy with every unset field at its default.
func (o Options) WithDefaults() Options {
	if o.ShardTokens == 0 {
		o.ShardTokens = DefaultShardTokens
	}
	if o.RowGroupTokens == 0 {
		o.RowGroupTokens = DefaultRowGroupTokens
	}
	if o.PageBytes == 0 {
		o.PageBytes = o.groupBytes()
	}
	return o
}

// groupBytes caps a row group's size before compression: tokens are 4 bytes
// each, their text about as much again in each of two columns.
func (o Options) groupBytes() int { return min(max(16*o.RowGroupTokens, 4<<20), maxSampleBytes) }

// Validate checks completed options and names the first bad field.
func (o Options) Validate() error {
	if o.Blobs == nil {
		return errors.New("shard options: no blob store is given")
	}
	if o.ShardTokens < 1 {
		return specstream.Invalid("shard_tokens", "%d is not positive", o.ShardTokens)
	}
	if o.RowGroupTokens < 1 || o.RowGroupTokens > maxGroupTokens {
		return specstream.Invalid("row_group_tokens", "%d is outside 1..%d", o.RowGroupTokens, maxGroupTokens)
	}
	if o.PageBytes < 1 || o.PageBytes > 1<<30 {
		return specstream.Invalid("page_bytes", "%d is outside 1..%d", o.PageBytes, 1<<30)
	}
	return nil
}

// Writer turns samples into shards in a store. It holds one encoded shard
// (twice while it is being stored) and one row group in memory, and nothing on
// disk. It is for one goroutine; an abandoned Writer needs no closing, and leaves
// blobs that no manifest names.
type Writer struct {
	o      Options
	counts Counts
	shards []Shard
	err    error // the first failure that is not the sample's fault

	file      chunkBuffer // the encoded shard so far
	pq        *parquet.GenericWriter[row]
	groups    []rowGroup
	lengths   []int32  // of the open shard's rows
	group     rowGroup // the open row group
	groupRaw  int      // its size before compression
	tokens    int64    // of the open shard
	histogram Histogram
	seen      tokenCounter
	maxToken  int32
	maxSample int64 // where maxToken was met first, 1-based
	spans     []int32
	one       [1]row
}

var _ data.SampleWriter = (*Writer)(nil)

// NewWriter returns a writer with the options' defaults filled in.
func NewWriter(o Options) (*Writer, error) {
	o = o.WithDefaults()
	if err := o.Validate(); err != nil {
		return nil, err
	}
	return &Writer{o: o, maxToken: -1}, nil
}

// Counts returns the sizes of what has been written so far.
func (w *Writer) Counts() Counts { return w.counts }

// Write appends one sample. A sample that can't be stored is a
// [specstream.InputError] that names its place (1-based) and field, and leaves
// the writer as it was. Any other error is final. Write keeps nothing of s.
func (w *Writer) Write(ctx context.Context, s data.Sample) error {
	if w.err != nil {
		return w.err
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write sample: %w", err)
	}
	record := w.counts.Samples + 1
	completion, err := checkSample(s)
	if err != nil {
		var in *specstream.InputError
		if errors.As(err, &in) {
			in.Record = record
		}
		return err
	}
	w.err = w.write(ctx, s, completion, record)
	return w.err
}

func (w *Writer) write(ctx context.Context, s data.Sample, completion, record int64) error {
	n, raw := int64(len(s.Tokens)), rawSize(s)
	if w.group.rows > 0 && (w.group.tokens+n > int64(w.o.RowGroupTokens) || w.groupRaw+raw > w.o.groupBytes()) {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	if len(w.lengths) > 0 && (w.tokens+n > int64(w.o.ShardTokens) || w.encodedBound()+raw > MaxShardBytes) {
		if err := w.endShard(ctx); err != nil {
			return err
		}
	}
	if w.pq == nil {
		w.beginShard()
	}
	w.spans = w.spans[:0]
	for _, sp := range s.Spans {
		w.spans = append(w.spans, int32(sp.Start), int32(sp.End))
	}
	w.one[0] = row{ID: s.ID, Tokens: s.Tokens, Spans: w.spans, Prompt: s.Prompt, Reference: s.Reference, Alternatives: s.Alternatives}
	if _, err := w.pq.Write(w.one[:]); err != nil {
		return fmt.Errorf("write sample %d: %w", record, err)
	}
	w.one[0] = row{}
	for _, t := range s.Tokens {
		if t > w.maxToken {
			w.maxToken, w.maxSample = t, record
		}
	}
	w.seen.add(s.Tokens)
	w.histogram.observe(len(s.Tokens))
	w.group.rows++
	w.group.tokens += n
	w.groupRaw += raw
	w.lengths = append(w.lengths, int32(n))
	w.tokens += n
	w.counts.Samples++
	w.counts.Tokens += n
	w.counts.CompletionTokens += completion
	w.counts.MaxLength = max(w.counts.MaxLength, n)
	return nil
}

// encodedBound is a size that the shard's file can't pass if it is closed now.
// zstd never expands by more than a fraction of a percent; levels take at most a
// byte a value, which rawSize counts; metadata a few KB a row group.
func (w *Writer) encodedBound() int {
	return w.file.n + w.groupRaw + w.groupRaw/64 + (len(w.groups)+1)<<13 + 1<<20
}

// rawSize is a sample's size before compression, in bytes.
func rawSize(s data.Sample) int {
	n := 64 + 5*len(s.Tokens) + 10*len(s.Spans) + len(s.ID) + len(s.Prompt) + len(s.Reference)
	for _, a := range s.Alternatives {
		n += 5 + len(a)
	}
	return n
}

// checkSample checks what the format and training rely on, and counts the
// completion tokens.
func checkSample(s data.Sample) (completion int64, err error) {
	if n := rawSize(s); n > maxSampleBytes {
		return 0, specstream.Invalid(ColumnTokens, "the sample takes %d bytes, the most is %d", n, maxSampleBytes)
	}
	for i, t := range s.Tokens {
		if t < 0 {
			return 0, specstream.Invalid(ColumnTokens, "token %d is negative: %d", i, t)
		}
	}
	end := 0
	for i, sp := range s.Spans {
		if sp.Start < end || sp.End <= sp.Start || sp.End > len(s.Tokens) {
			return 0, specstream.Invalid(ColumnSpans, "span %d is [%d, %d): want a non-empty range behind %d and within %d tokens",
				i, sp.Start, sp.End, end, len(s.Tokens))
		}
		end = sp.End
		completion += int64(sp.Len())
	}
	for _, f := range []struct{ name, text string }{{ColumnID, s.ID}, {ColumnPrompt, s.Prompt}, {ColumnReference, s.Reference}} {
		if !utf8.ValidString(f.text) {
			return 0, specstream.Invalid(f.name, "the text is not valid UTF-8")
		}
	}
	for i, a := range s.Alternatives {
		if !utf8.ValidString(a) {
			return 0, specstream.Invalid(ColumnAlternatives, "text %d is not valid UTF-8", i)
		}
	}
	return completion, nil
}

func (w *Writer) beginShard() {
	// A fresh library writer for each shard: its bytes then depend on nothing
	// but the shard's samples.
	o := []parquet.WriterOption{
		parquetSchema,
		parquet.Compression(codec),
		parquet.PageBufferSize(w.o.PageBytes),
		parquet.WriteBufferSize(0), // straight into the buffer, so that its length is the offset
		parquet.MaxRowsPerRowGroup(math.MaxInt64),
		parquet.KeyValueMetadata(schemaKey, schemaVersion),
		// The default names the build, which would make bytes depend on it.
		parquet.CreatedBy("specstream", schemaVersion, "shard"),
		// Statistics hold the least and greatest value in full, several times
		// over and uncompressed: whole prompts. Nobody searches shards by value.
		parquet.DataPageStatistics(false),
	}
	for _, c := range columns {
		o = append(o, parquet.SkipPageBounds(c.path...))
	}
	w.pq = parquet.NewGenericWriter[row](&w.file, o...)
	w.groups, w.lengths, w.tokens = nil, w.lengths[:0], 0
}

// endGroup encodes the open row group into the file.
func (w *Writer) endGroup() error {
	start := max(w.file.n, len(parquetMagic)) // the library writes it with the first row group
	if err := w.pq.Flush(); err != nil {
		return fmt.Errorf("encode row group: %w", err)
	}
	w.group.off, w.group.bytes = int64(start), int64(w.file.n-start)
	w.groups = append(w.groups, w.group)
	w.group, w.groupRaw = rowGroup{}, 0
	return nil
}

// endShard closes the file and stores it.
func (w *Writer) endShard(ctx context.Context) error {
	if w.group.rows > 0 {
		if err := w.endGroup(); err != nil {
			return err
		}
	}
	if err := w.pq.Close(); err != nil {
		return fmt.Errorf("close shard %d: %w", len(w.shards), err)
	}
	b := w.file.take()
	if len(b) > MaxShardBytes {
		return fmt.Errorf("close shard %d: it has %d bytes, the most is %d", len(w.shards), len(b), MaxShardBytes)
	}
	s := Shard{Bytes: int64(len(b)), Rows: int64(len(w.lengths)), Tokens: w.tokens}
	x := shardIndex{groups: w.groups, lengths: w.lengths}
	for i := range x.groups {
		g := &x.groups[i]
		g.digest = specstream.DigestBytes(b[g.off : g.off+g.bytes])
		s.Groups = append(s.Groups, g.rows)
	}
	x.footer = specstream.DigestBytes(b[x.footerOffset():])
	var err error
	if s.Digest, err = w.o.Blobs.PutBlob(ctx, b); err != nil {
		return fmt.Errorf("store shard %d: %w", len(w.shards), err)
	}
	if s.Index, err = w.put(ctx, x.encode()); err != nil {
		return fmt.Errorf("store index of shard %d: %w", len(w.shards), err)
	}
	w.shards = append(w.shards, s)
	w.pq, w.groups, w.lengths, w.tokens = nil, nil, w.lengths[:0], 0
	return nil
}

// put stores a blob.
func (w *Writer) put(ctx context.Context, b []byte) (Blob, error) {
	d, err := w.o.Blobs.PutBlob(ctx, b)
	return Blob{d, int64(len(b))}, err
}

// chunkBuffer collects a file in chunks that are used again for the next one,
// so that memory neither doubles in growing nor is left to the collector.
type chunkBuffer struct {
	chunks [][]byte
	n      int // bytes written
}

const chunkBytes = 1 << 20

// Write implements [io.Writer].
func (c *chunkBuffer) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		i, at := c.n/chunkBytes, c.n%chunkBytes
		if i == len(c.chunks) {
			c.chunks = append(c.chunks, make([]byte, chunkBytes))
		}
		k := copy(c.chunks[i][at:], rest)
		rest = rest[k:]
		c.n += k
	}
	return len(p), nil
}

// take returns what was written, in one piece that is the caller's, and empties
// the buffer.
func (c *chunkBuffer) take() []byte {
	out := make([]byte, c.n)
	for i, at := 0, 0; at < c.n; i++ {
		at += copy(out[at:], c.chunks[i])
	}
	c.n = 0
	return out
}

// Finish stores the last shard and returns what was written, for [NewManifest].
// No sample at all is fine: there are no shards then. The writer is spent
// afterwards.
func (w *Writer) Finish(ctx context.Context) (Written, error) {
	if w.err != nil {
		return Written{}, w.err
	}
	if len(w.lengths) > 0 {
		if w.err = w.endShard(ctx); w.err != nil {
			return Written{}, w.err
		}
	}
	p := Written{Shards: w.shards, Counts: w.counts, Lengths: w.histogram, MaxToken: w.maxToken, MaxSample: w.maxSample}
	if w.counts.Samples > 0 {
		b, err := w.put(ctx, w.seen.encode())
		if err != nil {
			w.err = fmt.Errorf("store token counts: %w", err)
			return Written{}, w.err
		}
		p.TokenCounts, p.TokenCountsBytes = b.Digest, b.Bytes
	}
	w.err = errors.New("the writer has finished its data set")
	return p, nil
}

// Commit is [Writer.Finish] and [NewManifest] for a data set of one part. The
// writer is spent afterwards.
func (w *Writer) Commit(ctx context.Context, l Lineage) (Manifest, error) {
	p, err := w.Finish(ctx)
	if err != nil {
		return Manifest{}, err
	}
	return NewManifest(l, []Written{p})
}
