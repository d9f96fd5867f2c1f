package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/parquet-go/parquet-go"
	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// readAll reads every row of a data set.
func readAll(ctx context.Context, d *Dataset) ([]data.Sample, error) {
	var out []data.Sample
	for rec, err := range d.All(ctx) {
		if err != nil {
			return nil, err
		}
		s, err := Samples(rec)
		if err != nil {
			return nil, err
		}
		out = append(out, s...)
	}
	return out, nil
}

// Every single byte, flipped, is an error that names the shard; but for the
// magic number in front, which range reads never touch.
func TestFlippedBytes(t *testing.T) {
	blobs := newMemBlobs()
	samples := randomSamples(11, 30, 20)
	m := write(t, Options{Blobs: blobs, RowGroupTokens: 400}, samples)
	s := m.Shards[0]
	good := blobs.blobs[s.Digest]
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		blobs.set(s.Digest, bad)
		d, err := OpenDataset(t.Context(), blobs, m, DatasetOptions{Allocator: mem})
		require.NoError(t, err)
		got, err := readAll(t.Context(), d)
		if i < len(parquetMagic) {
			require.NoError(t, err)
			requireSamples(t, samples, got)
			err = d.Verify(t.Context())
		}
		require.ErrorIs(t, err, ErrCorrupt, "byte %d", i)
		require.ErrorContains(t, err, string(s.Digest), "byte %d", i)
		d.Close()
	}
}

func TestTruncated(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs, RowGroupTokens: 400}, randomSamples(11, 30, 20))
	s := m.Shards[0]
	good := blobs.blobs[s.Digest]
	for n := 0; n < len(good); n += 13 {
		for _, b := range [][]byte{good[:n], append(bytes.Clone(good[:n]), make([]byte, len(good)-n)...), append(bytes.Clone(good), good[:n+1]...)} {
			blobs.set(s.Digest, b)
			for _, o := range []DatasetOptions{{}, {CacheDir: t.TempDir()}} {
				_, err := readAll(t.Context(), open(t, blobs, m, o))
				require.ErrorIs(t, err, ErrCorrupt, "%d bytes", n)
				require.ErrorContains(t, err, string(s.Digest))
			}
		}
	}
}

func TestAbsentShard(t *testing.T) {
	for name, b := range map[string]Blobs{"memory": newMemBlobs(), "folder": DirBlobs{t.TempDir()}} {
		t.Run(name, func(t *testing.T) {
			m := write(t, Options{Blobs: newMemBlobs()}, randomSamples(11, 3, 20))
			_, err := open(t, b, m, DatasetOptions{}).Batch(t.Context(), []int64{0})
			require.ErrorIs(t, err, fs.ErrNotExist)
			require.ErrorContains(t, err, string(m.Shards[0].Digest))
		})
	}
}

// forge makes a manifest that vouches for a file of somebody else's making: as
// far as digests go, all is well.
func forge(t *testing.T, blobs *memBlobs, b []byte, rows, tokens int64) Manifest {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	d, err := blobs.PutBlob(t.Context(), b)
	require.NoError(t, err)
	s := Shard{Digest: d, Bytes: int64(len(b)), Rows: rows, Tokens: tokens}
	end := int64(4)
	for _, c := range f.Metadata().RowGroups[0].Columns {
		start := c.MetaData.DataPageOffset
		if o := c.MetaData.DictionaryPageOffset; o > 0 {
			start = o
		}
		end = max(end, start+c.MetaData.TotalCompressedSize)
	}
	s.Groups = []int64{rows}
	x := shardIndex{groups: []rowGroup{{rows: rows, tokens: tokens, off: 4, bytes: end - 4, digest: specstream.DigestBytes(b[4:end])}},
		footer: specstream.DigestBytes(b[end:]), lengths: make([]int32, rows)}
	x.lengths[0] = int32(tokens)
	index := x.encode()
	s.Index = Blob{specstream.DigestBytes(index), int64(len(index))}
	blobs.set(s.Index.Digest, index)
	c := Counts{Samples: rows, Tokens: tokens, MaxLength: tokens}
	var h Histogram
	for _, n := range x.lengths {
		h.observe(int(n))
	}
	m := Manifest{Schema: ManifestVersion, Lineage: testLineage(), Shards: []Shard{s}, Counts: c, Lengths: h}
	require.NoError(t, m.Validate())
	return m
}

func encode[T any](t *testing.T, rows []T, o ...parquet.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquet.NewGenericWriter[T](&b, o...)
	_, err := w.Write(rows)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return b.Bytes()
}

// A file whose digests are right but whose content isn't a shard's: the
// Parquet library alone would read several of these as empty rows.
func TestWrongFile(t *testing.T) {
	type other struct {
		Text string `parquet:"text"`
	}
	type wide struct {
		ID           string   `parquet:"id"`
		Tokens       []int64  `parquet:"tokens,list"`
		Spans        []int32  `parquet:"spans,list"`
		Prompt       string   `parquet:"prompt"`
		Reference    string   `parquet:"reference"`
		Alternatives []string `parquet:"alternatives,list"`
	}
	type nullable struct {
		ID           *string  `parquet:"id"`
		Tokens       []int32  `parquet:"tokens,list"`
		Spans        []int32  `parquet:"spans,list"`
		Prompt       string   `parquet:"prompt"`
		Reference    string   `parquet:"reference"`
		Alternatives []string `parquet:"alternatives,list"`
	}
	type dictionary struct {
		ID           string   `parquet:"id,dict"`
		Tokens       []int32  `parquet:"tokens,list"`
		Spans        []int32  `parquet:"spans,list"`
		Prompt       string   `parquet:"prompt"`
		Reference    string   `parquet:"reference"`
		Alternatives []string `parquet:"alternatives,list"`
	}
	mark := parquet.KeyValueMetadata(schemaKey, schemaVersion)
	good := []row{{ID: "a", Tokens: []int32{1, 2, 3}, Spans: []int32{1, 3}}}
	tests := []struct {
		name   string
		file   []byte
		rows   int64
		tokens int64
		want   string // empty: readable
	}{
		{"sound", encode(t, good, mark), 1, 3, ""},
		{"no version", encode(t, good), 1, 3, "the Parquet metadata lack"},
		{"later version", encode(t, good, parquet.KeyValueMetadata(schemaKey, "2")), 1, 3, `specstream.schema is "2", want "1"`},
		{"other columns", encode(t, []other{{"x"}}, mark), 1, 3, "the columns are not those"},
		{"wide tokens", encode(t, []wide{{Tokens: []int64{1}}}, mark), 1, 1, "the columns are not those"},
		{"nullable column", encode(t, []nullable{{Tokens: []int32{1}}}, mark), 1, 1, "the columns are not those"},
		{"dictionary", encode(t, []dictionary{{ID: "a", Tokens: []int32{1}}}, mark), 1, 1, "dictionary encoding"},
		{"fewer rows", encode(t, good, mark), 2, 3, "row group 0 has 1 rows, the manifest says 2"},
		{"fewer tokens", encode(t, good, mark), 1, 4, "it has 3 tokens, the manifest says 4"},
		{"half a span", encode(t, []row{{Tokens: []int32{1}, Spans: []int32{0}}}, mark), 1, 1, "half a span"},
		{"span past the end", encode(t, []row{{Tokens: []int32{1}, Spans: []int32{0, 2}}}, mark), 1, 1, "span [0, 2) of 1 tokens"},
		{"two row groups", encode(t, []row{{Tokens: []int32{1}}, {Tokens: []int32{2}}}, mark, parquet.MaxRowsPerRowGroup(1)), 1, 1,
			"the file has 2 row groups, the manifest 1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			blobs := newMemBlobs()
			m := forge(t, blobs, tt.file, tt.rows, tt.tokens)
			d, err := OpenDataset(t.Context(), blobs, m, DatasetOptions{Allocator: mem})
			require.NoError(t, err)
			defer d.Close()
			rec, err := d.Batch(t.Context(), []int64{0})
			if tt.want == "" {
				require.NoError(t, err)
				requireSamples(t, []data.Sample{{ID: "a", Tokens: []int32{1, 2, 3}, Spans: []data.Span{{Start: 1, End: 3}}}}, copySamples(t, rec))
				rec.Release()
				return
			}
			require.ErrorIs(t, err, ErrCorrupt)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, string(m.Shards[0].Digest))
		})
	}
}

func TestShardsSwapped(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs, ShardTokens: 500}, randomSamples(11, 60, 20))
	a, b := m.Shards[0].Digest, m.Shards[1].Digest
	blobs.blobs[a], blobs.blobs[b] = blobs.blobs[b], blobs.blobs[a]
	_, err := readAll(t.Context(), open(t, blobs, m, DatasetOptions{}))
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, string(a))
}

// faultyBlobs fails its reads after some number of them.
type faultyBlobs struct {
	*memBlobs
	ok int
}

var errStore = errors.New("the store is away")

func (s *faultyBlobs) OpenBlob(ctx context.Context, d specstream.Digest) (BlobReader, error) {
	if s.ok--; s.ok < 0 {
		return nil, fmt.Errorf("open %s: %w", d.Short(), errStore)
	}
	return s.memBlobs.OpenBlob(ctx, d)
}

func (s *faultyBlobs) PutBlob(ctx context.Context, b []byte) (specstream.Digest, error) {
	if s.ok--; s.ok < 0 {
		return "", errStore
	}
	return s.memBlobs.PutBlob(ctx, b)
}

// A store that fails for a while is an error then, and none later.
func TestStoreFails(t *testing.T) {
	mem := newMemBlobs()
	samples := randomSamples(12, 100, 50)
	m := write(t, Options{Blobs: mem, RowGroupTokens: 1000}, samples)
	s := &faultyBlobs{memBlobs: mem}
	d := open(t, s, m, DatasetOptions{})
	for ok := range 6 {
		s.ok = ok
		_, err := readAll(t.Context(), d)
		require.ErrorIs(t, err, errStore)
		require.NotErrorIs(t, err, ErrCorrupt)
	}
	s.ok = 1 << 20
	got, err := readAll(t.Context(), d)
	require.NoError(t, err)
	requireSamples(t, samples, got)

	// A writer that lost a shard never commits without it.
	w, err := NewWriter(Options{Blobs: &faultyBlobs{memBlobs: newMemBlobs(), ok: 1}, ShardTokens: 1000})
	require.NoError(t, err)
	for _, x := range samples {
		err = errors.Join(err, w.Write(t.Context(), x))
	}
	require.ErrorIs(t, err, errStore)
	_, err = w.Commit(t.Context(), testLineage())
	require.ErrorIs(t, err, errStore)
}

// Row groups that are damaged and vouched for all the same, as by a manifest
// made from damaged bytes, are an error or a sound record, never a crash or an
// allocation of whatever size a header states. (The footer has no such second
// guard: its digest is the only one.)
func FuzzDecode(f *testing.F) {
	blobs := newMemBlobs()
	m := write(f, Options{Blobs: blobs, PageBytes: 256}, randomSamples(11, 30, 20))
	s := m.Shards[0]
	x := testIndex(f, blobs, s)
	file, off := blobs.blobs[s.Digest], x.footerOffset()
	good := file[len(parquetMagic):off]
	footer, err := openFooter(s, x, file[off:])
	require.NoError(f, err)
	f.Add(good)
	for i := range 40 {
		bad := bytes.Clone(good)
		bad[i*len(bad)/40] ^= 1 << (i % 8)
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		defer mem.AssertSize(t, 0)
		rec, err := decodeGroup(footer, 0, x.groups[0], b, columns, Schema(true), mem)
		if err != nil {
			return
		}
		defer rec.Release()
		got, err := Samples(rec)
		require.NoError(t, err)
		require.Len(t, got, int(s.Rows))
		for _, x := range got {
			for _, sp := range x.Spans {
				require.True(t, 0 <= sp.Start && sp.Start < sp.End && sp.End <= len(x.Tokens))
			}
		}
	})
}
