package shard

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

func TestRoundTrip(t *testing.T) {
	tests := []struct {
		name    string
		o       Options
		samples []data.Sample
		shards  int // at least
		groups  int // at least, in the first shard
	}{
		{"defaults", Options{}, randomSamples(1, 500, 100), 1, 1},
		{"many row groups", Options{RowGroupTokens: 4000}, randomSamples(2, 500, 100), 1, 10},
		{"many shards", Options{ShardTokens: 9000, RowGroupTokens: 3000}, randomSamples(3, 500, 100), 5, 2},
		{"pages of a few rows", Options{RowGroupTokens: 20000, PageBytes: 512}, randomSamples(4, 500, 100), 1, 2},
		{"pages smaller than a row", Options{PageBytes: 1}, randomSamples(5, 300, 50), 1, 1},
		{"a row group a sample", Options{RowGroupTokens: 1}, randomSamples(6, 60, 50), 1, 30},
		{"a shard a sample", Options{ShardTokens: 1, RowGroupTokens: 1}, randomSamples(7, 60, 50), 30, 1},
		{"one empty sample", Options{}, []data.Sample{{}}, 1, 1},
		{"empty samples alone", Options{PageBytes: 1}, make([]data.Sample, 100), 1, 1},
		{"texts without tokens", Options{}, []data.Sample{{ID: "a"}, {Prompt: "b"}, {Reference: "c"}, {Alternatives: []string{"", "d"}}}, 1, 1},
		{"one long sample", Options{}, []data.Sample{{ID: "l", Tokens: make([]int32, 300_000), Spans: []data.Span{{Start: 1, End: 300_000}}}}, 1, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
			defer mem.AssertSize(t, 0)
			blobs := newMemBlobs()
			tt.o.Blobs = blobs
			m := write(t, tt.o, tt.samples)
			require.GreaterOrEqual(t, len(m.Shards), tt.shards)
			require.GreaterOrEqual(t, len(m.Shards[0].Groups), tt.groups)
			requireCounts(t, tt.samples, m)

			d, err := OpenDataset(t.Context(), blobs, m, DatasetOptions{Allocator: mem, CacheBytes: 1 << 20})
			require.NoError(t, err)
			defer d.Close()
			require.NoError(t, d.Verify(t.Context()))

			var all []data.Sample
			for rec, err := range d.All(t.Context()) {
				require.NoError(t, err)
				all = append(all, copySamples(t, rec)...)
			}
			requireSamples(t, tt.samples, all)

			r := rand.New(rand.NewPCG(9, 9))
			n := len(tt.samples)
			for range 20 {
				positions := make([]int64, r.IntN(40))
				want := make([]data.Sample, len(positions))
				for i := range positions {
					positions[i] = r.Int64N(int64(n))
					want[i] = tt.samples[positions[i]]
				}
				rec, err := d.Batch(t.Context(), positions)
				require.NoError(t, err)
				requireSamples(t, want, copySamples(t, rec))
				rec.Release()

				from := r.IntN(n)
				to := from + r.IntN(min(n-from, 30)+1)
				positions = positions[:0]
				for p := from; p < to; p++ {
					positions = append(positions, int64(p))
				}
				rec, err = d.Batch(t.Context(), positions)
				require.NoError(t, err)
				requireSamples(t, tt.samples[from:to], copySamples(t, rec))
				rec.Release()
			}
		})
	}
}

func requireCounts(t *testing.T, samples []data.Sample, m Manifest) {
	t.Helper()
	var want Counts
	for _, s := range samples {
		want.Samples++
		want.Tokens += int64(len(s.Tokens))
		want.CompletionTokens += int64(s.CompletionTokens())
		want.MaxLength = max(want.MaxLength, int64(len(s.Tokens)))
	}
	require.Equal(t, want, m.Counts)
	require.NoError(t, m.Validate())
}

func TestSharding(t *testing.T) {
	blobs := newMemBlobs()
	samples := randomSamples(3, 2000, 100)
	m := write(t, Options{Blobs: blobs, ShardTokens: 40000, RowGroupTokens: 5000}, samples)
	for i, s := range m.Shards {
		require.LessOrEqual(t, s.Tokens, int64(40000), "shard %d", i)
		require.Equal(t, int64(len(blobs.blobs[s.Digest])), s.Bytes)
		for j, g := range testIndex(t, blobs, s).groups {
			require.Equal(t, s.Groups[j], g.rows)
			if g.rows > 1 {
				require.LessOrEqual(t, g.tokens, int64(5000), "shard %d row group %d", i, j)
			}
		}
	}
}

func testIndex(t testing.TB, blobs Blobs, s Shard) *shardIndex {
	t.Helper()
	x, err := readIndex(t.Context(), blobs, s)
	require.NoError(t, err)
	return x
}

// A group that lies in one page and a batch that follows the rows' order are
// handed on without copying.
func TestZeroCopy(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs}, randomSamples(1, 200, 100))
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	d, err := OpenDataset(t.Context(), blobs, m, DatasetOptions{Allocator: mem})
	require.NoError(t, err)
	defer d.Close()
	a, err := d.Batch(t.Context(), []int64{5, 6, 7})
	require.NoError(t, err)
	defer a.Release()
	before := mem.CurrentAlloc()
	b, err := d.Batch(t.Context(), []int64{6, 7, 8})
	require.NoError(t, err)
	defer b.Release()
	require.Equal(t, before, mem.CurrentAlloc(), "a batch in order allocates nothing")
	sa, err := Samples(a)
	require.NoError(t, err)
	sb, err := Samples(b)
	require.NoError(t, err)
	require.Same(t, &sa[1].Tokens[0], &sb[0].Tokens[0])
	// Only the offsets of three list columns come from the allocator: the
	// tokens are the Parquet page's memory.
	require.Less(t, mem.CurrentAlloc(), 3*4*(200+64))
}

func TestWithoutText(t *testing.T) {
	blobs := newMemBlobs()
	samples := randomSamples(1, 50, 20)
	m := write(t, Options{Blobs: blobs}, samples)
	d := open(t, blobs, m, DatasetOptions{WithoutText: true})
	rec, err := d.Batch(t.Context(), []int64{3, 1, 2})
	require.NoError(t, err)
	defer rec.Release()
	require.EqualValues(t, 3, rec.NumCols())
	require.True(t, rec.Schema().Equal(d.Schema()))
	var want []data.Sample
	for _, i := range []int{3, 1, 2} {
		s := samples[i]
		want = append(want, data.Sample{ID: s.ID, Tokens: s.Tokens, Spans: s.Spans})
	}
	requireSamples(t, want, copySamples(t, rec))
}

// The bytes of a data set are pinned: a change here, by us or by a library,
// makes every ingested data set another one.
func TestDeterminism(t *testing.T) {
	o := Options{ShardTokens: 20000, RowGroupTokens: 5000}
	samples := randomSamples(42, 800, 60)
	o.Blobs = newMemBlobs()
	first := write(t, o, samples)
	for range 3 {
		o.Blobs = newMemBlobs()
		require.Equal(t, first, write(t, o, samples))
	}
	o.Blobs = DirBlobs{t.TempDir()}
	require.Equal(t, first, write(t, o, samples))

	got, err := first.Encode()
	require.NoError(t, err)
	golden := filepath.Join("testdata", "manifest.golden.json")
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))

	m, err := ReadManifest(golden, bytes.NewReader(want))
	require.NoError(t, err)
	require.Equal(t, first, m)
	d, err := m.Digest()
	require.NoError(t, err)
	require.Equal(t, specstream.DigestBytes(want), d, "the digest is that of the file")
}

// The file is what the package promises to other Parquet readers.
func TestParquetFile(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs, RowGroupTokens: 8000, PageBytes: 4096}, randomSamples(1, 300, 100))
	b := blobs.blobs[m.Shards[0].Digest]
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	require.NoError(t, err)
	require.NoError(t, checkParquetSchema(f))
	require.Equal(t, "specstream version 1(build shard)", f.Metadata().CreatedBy)
	x := testIndex(t, blobs, m.Shards[0])
	off := int64(4)
	for i, g := range f.Metadata().RowGroups {
		require.Equal(t, m.Shards[0].Groups[i], g.NumRows)
		require.Equal(t, off, x.groups[i].off)
		end := off + x.groups[i].bytes
		for _, c := range g.Columns {
			md := c.MetaData
			require.Equal(t, format.Zstd, md.Codec)
			require.NotContains(t, md.Encoding, format.RLEDictionary)
			if md.PathInSchema[0] == ColumnTokens {
				require.Contains(t, md.Encoding, format.Plain)
			}
			require.GreaterOrEqual(t, md.DataPageOffset, off, "row group %d", i)
			require.LessOrEqual(t, md.DataPageOffset+md.TotalCompressedSize, end, "row group %d", i)
		}
		off = end
	}
	require.Equal(t, x.footerOffset(), off)

	// A reader without the manifest is guarded by the pages' checksums: each
	// flipped byte inside a page's data is noticed.
	flips, noticed := 0, 0
	for i := 200; int64(i) < x.footerOffset(); i += 997 {
		bad := bytes.Clone(b)
		bad[i] ^= 0x10
		flips++
		if err := readAllRows(bad); err != nil {
			noticed++
		}
	}
	require.Greater(t, flips, 20)
	require.GreaterOrEqual(t, noticed, flips*9/10, "page checksums are written and checked")
}

func readAllRows(b []byte) error {
	f, err := parquet.OpenFile(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		return err
	}
	r := parquet.NewGenericReader[row](f)
	_, err = r.Read(make([]row, f.NumRows()))
	return err
}

func TestConcurrentBatches(t *testing.T) {
	blobs := newMemBlobs()
	samples := randomSamples(8, 1000, 50)
	m := write(t, Options{Blobs: blobs, ShardTokens: 20000, RowGroupTokens: 2000}, samples)
	for name, o := range map[string]DatasetOptions{
		"small cache": {CacheBytes: 40 << 10},
		"large cache": {},
		"no cache":    {CacheBytes: 1},
		"cache dir":   {CacheDir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, blobs, m, o)
			var wg sync.WaitGroup
			for w := range 8 {
				wg.Go(func() {
					r := rand.New(rand.NewPCG(uint64(w), 0))
					for range 20 {
						positions := make([]int64, 16)
						want := make([]data.Sample, 16)
						for i := range positions {
							positions[i] = r.Int64N(1000)
							want[i] = samples[positions[i]]
						}
						ctx, cancel := context.WithCancel(t.Context())
						if r.IntN(4) == 0 { // a caller that gives up must not fail the others
							go cancel()
							if rec, err := d.Batch(ctx, positions); err == nil {
								rec.Release()
							}
							continue
						}
						rec, err := d.Batch(ctx, positions)
						cancel()
						if err != nil {
							t.Error(err)
							return
						}
						got, err := Samples(rec)
						if err != nil {
							t.Error(err)
							return
						}
						requireSamples(t, want, got)
						rec.Release()
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, d.cache.total, d.cache.limit)
		})
	}
}

// A row group read once is not read again while it fits.
func TestCacheSparesReads(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs, RowGroupTokens: 2000}, randomSamples(8, 400, 50))
	d := open(t, blobs, m, DatasetOptions{})
	for range 5 {
		for p := range int64(400) {
			rec, err := d.Batch(t.Context(), []int64{p})
			require.NoError(t, err)
			rec.Release()
		}
	}
	require.Equal(t, len(m.Shards[0].Groups)+2, blobs.opens, "each row group, the index and the footer once")
}

func TestRecordOutlivesDataset(t *testing.T) {
	blobs := newMemBlobs()
	samples := randomSamples(8, 10, 50)
	m := write(t, Options{Blobs: blobs}, samples)
	d := open(t, blobs, m, DatasetOptions{})
	rec, err := d.Batch(t.Context(), []int64{4, 5})
	require.NoError(t, err)
	d.Close()
	requireSamples(t, samples[4:6], copySamples(t, rec))
	rec.Release()
}

func TestBatchErrors(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs}, randomSamples(8, 10, 50))
	d := open(t, blobs, m, DatasetOptions{})
	for _, p := range []int64{-1, 10, 1 << 60} {
		_, err := d.Batch(t.Context(), []int64{0, p})
		require.ErrorContains(t, err, "outside the data set's 10 rows")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Batch(ctx, []int64{0})
	require.ErrorIs(t, err, context.Canceled)
	for rec, err := range d.All(ctx) {
		require.Nil(t, rec)
		require.ErrorIs(t, err, context.Canceled)
	}
	_, err = OpenDataset(ctx, blobs, m, DatasetOptions{})
	require.ErrorIs(t, err, context.Canceled)
	empty, err := d.Batch(t.Context(), nil)
	require.NoError(t, err)
	require.EqualValues(t, 0, empty.NumRows())
	empty.Release()
}

func TestAllStopsEarly(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs, RowGroupTokens: 500}, randomSamples(8, 100, 50))
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	d := open(t, blobs, m, DatasetOptions{Allocator: mem})
	n := 0
	for _, err := range d.All(t.Context()) {
		require.NoError(t, err)
		if n++; n == 2 {
			break
		}
	}
	require.Equal(t, 2, n)
}

func TestSamplesRefusesOtherRecords(t *testing.T) {
	i32 := arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int32)
	tests := []struct {
		name   string
		fields []arrow.Field
		want   string
	}{
		{"no tokens", []arrow.Field{{Name: ColumnID, Type: arrow.BinaryTypes.String}}, `no column "tokens"`},
		{"wide tokens", []arrow.Field{{Name: ColumnID, Type: arrow.BinaryTypes.String},
			{Name: ColumnTokens, Type: arrow.ListOfNonNullable(arrow.PrimitiveTypes.Int64)}}, `column "tokens" is list`},
		{"number as prompt", []arrow.Field{{Name: ColumnID, Type: arrow.BinaryTypes.String}, {Name: ColumnTokens, Type: i32},
			{Name: ColumnSpans, Type: i32}, {Name: ColumnPrompt, Type: arrow.PrimitiveTypes.Int32}}, `column "prompt" is int32`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema(tt.fields, nil))
			defer b.Release()
			rec := b.NewRecord()
			defer rec.Release()
			_, err := Samples(rec)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
