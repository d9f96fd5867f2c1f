package shard

import (
	"bytes"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

func TestHistogram(t *testing.T) {
	var h Histogram
	for _, n := range []int{0, 1, 2, 3, 4, 7, 8, 255, 256} {
		h.observe(n)
	}
	require.Equal(t, Histogram{1, 1, 2, 2, 1, 0, 0, 0, 1, 1}, h)
	require.Equal(t, Histogram{2, 1, 2, 2, 1, 0, 0, 0, 1, 1}, h.Add(Histogram{1}))
	require.Equal(t, h.Add(Histogram{1}), Histogram{1}.Add(h))
	require.Equal(t, Histogram{1, 1, 2, 2, 1, 0, 0, 0, 1, 1}, h, "adding changes neither")
}

// Counts and lengths are those of the samples, however they are cut into parts.
func TestTokenCounts(t *testing.T) {
	samples := randomSamples(31, 200, 40)
	samples[100].Tokens = append(samples[100].Tokens, denseTokens-1, denseTokens, denseTokens+5, math.MaxInt32-1)
	want := map[int32]int64{}
	var lengths Histogram
	for _, s := range samples {
		for _, x := range s.Tokens {
			want[x]++
		}
		lengths.observe(len(s.Tokens))
	}
	l := testLineage()
	l.VocabSize = math.MaxInt32
	for _, cuts := range [][]int{{200}, {100, 200}, {0, 1, 1, 150, 200}} {
		blobs := newMemBlobs()
		var parts []Written
		from := 0
		for _, to := range cuts {
			w, err := NewWriter(Options{Blobs: blobs})
			require.NoError(t, err)
			for _, s := range samples[from:to] {
				require.NoError(t, w.Write(t.Context(), s))
			}
			p, err := w.Finish(t.Context())
			require.NoError(t, err)
			require.Equal(t, from == to, len(p.Shards) == 0)
			parts = append(parts, p)
			from = to
		}
		m, err := NewManifest(l, parts)
		require.NoError(t, err)
		require.Equal(t, lengths, m.Lengths)
		got, err := TokenCounts(t.Context(), blobs, m)
		require.NoError(t, err)
		require.Equal(t, want, got)

		held := map[specstream.Digest]int64{}
		for _, b := range m.Blobs() {
			held[b.Digest] = b.Bytes
		}
		require.Len(t, held, len(blobs.blobs), "the manifest names every blob that was written")
		for d, b := range blobs.blobs {
			require.EqualValues(t, len(b), held[d])
		}
	}
}

// Whatever is not the counts of this data set is an error.
func TestTokenCountsDamaged(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs}, []data.Sample{{Tokens: []int32{3, 3, 9}}})
	good := blobs.blobs[m.TokenCounts[0].Digest]
	require.Equal(t, tokenCountsMagic+"\x02\x03\x02\x06\x01", string(good))
	for name, bad := range map[string]string{
		"another magic":          "spectok2\x02\x03\x02\x06\x01",
		"cut off":                "spectok1\x02\x03\x02\x06",
		"left over":              "spectok1\x02\x03\x02\x06\x01\x00",
		"twice the same":         "spectok1\x02\x03\x02\x00\x01",
		"a count of none":        "spectok1\x02\x03\x02\x06\x00",
		"too few":                "spectok1\x01\x03\x02",
		"too many":               "spectok1\x02\x03\x02\x06\x02",
		"outside the vocabulary": "spectok1\x02\x03\x02\xfd\xf9\x01\x01",
		"more entries than fit":  "spectok1\xff\xff\xff\xff\x0f\x03\x02",
		"an endless number":      "spectok1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
	} {
		forged := clone(t, m)
		forged.TokenCounts = []Blob{{specstream.DigestBytes([]byte(bad)), int64(len(bad))}}
		blobs.set(forged.TokenCounts[0].Digest, []byte(bad))
		_, err := TokenCounts(t.Context(), blobs, forged)
		require.ErrorIs(t, err, ErrCorrupt, name)
		blobs.set(m.TokenCounts[0].Digest, []byte(bad))
		_, err = TokenCounts(t.Context(), blobs, m)
		require.ErrorIs(t, err, ErrCorrupt, name)
		require.ErrorContains(t, err, string(m.TokenCounts[0].Digest), name)
	}
}

func FuzzTokenCounts(f *testing.F) {
	var c tokenCounter
	c.add([]int32{1, 1, 5, 70000, denseTokens + 9})
	f.Add(c.encode())
	f.Add([]byte(tokenCountsMagic + "\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		sums := map[int32]int64{}
		if decodeTokenCounts(b, sums) != nil {
			return
		}
		// What is accepted says the same when it is written again.
		again := tokenCounter{sparse: sums}
		twice := map[int32]int64{}
		require.NoError(t, decodeTokenCounts(again.encode(), twice))
		require.Equal(t, sums, twice)
		for id, n := range sums {
			require.True(t, id >= 0 && n > 0)
		}
	})
}

func TestIndex(t *testing.T) {
	blobs := newMemBlobs()
	samples := randomSamples(32, 120, 40)
	m := write(t, Options{Blobs: blobs, ShardTokens: 4000, RowGroupTokens: 700}, samples)
	row := 0
	for _, s := range m.Shards {
		x := testIndex(t, blobs, s)
		require.Equal(t, blobs.blobs[s.Index.Digest], x.encode())
		for _, n := range x.lengths {
			require.Len(t, samples[row].Tokens, int(n))
			row++
		}
	}
	require.Equal(t, len(samples), row)

	// A changed byte in the store is damage, named by its shard.
	s := m.Shards[1]
	good := blobs.blobs[s.Index.Digest]
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1 << (i % 8)
		blobs.set(s.Index.Digest, bad)
		d := open(t, blobs, m, DatasetOptions{})
		_, err := d.Batch(t.Context(), []int64{m.Shards[0].Rows})
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, string(s.Digest))
	}
	blobs.set(s.Index.Digest, good[:len(good)-1])
	_, err := readIndex(t.Context(), blobs, s)
	require.ErrorIs(t, err, ErrCorrupt)
}

// Indexes that are damaged and vouched for all the same agree with the manifest
// in every sum, or are refused.
func FuzzIndex(f *testing.F) {
	blobs := newMemBlobs()
	s := write(f, Options{Blobs: blobs, RowGroupTokens: 200}, randomSamples(33, 20, 20)).Shards[0]
	good := blobs.blobs[s.Index.Digest]
	f.Add(good)
	for i := range 30 {
		bad := bytes.Clone(good)
		bad[i*len(bad)/30] ^= 1 << (i % 8)
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := decodeIndex(s, b)
		if err != nil {
			return
		}
		require.Len(t, x.lengths, int(s.Rows))
		require.Len(t, x.groups, len(s.Groups))
		tokens, at, off := int64(0), 0, int64(4)
		for i, g := range x.groups {
			require.Equal(t, s.Groups[i], g.rows)
			require.Equal(t, off, g.off)
			off += g.bytes
			sum := int64(0)
			for _, n := range x.lengths[at : at+int(g.rows)] {
				require.GreaterOrEqual(t, n, int32(0))
				sum += int64(n)
			}
			require.Equal(t, g.tokens, sum)
			at += int(g.rows)
			tokens += sum
		}
		require.Equal(t, s.Tokens, tokens)
		require.Less(t, x.footerOffset(), s.Bytes)
		require.NoError(t, x.footer.Validate())
		require.False(t, slices.ContainsFunc(x.groups, func(g rowGroup) bool { return g.digest.Validate() != nil }))
	})
}

// A writer's parts are refused when they don't fit the lineage, and what is
// written for one part does not depend on the others: a data set that grows by a
// part keeps the shards it had.
func TestNewManifest(t *testing.T) {
	first, second := randomSamples(1, 60, 30), randomSamples(2, 30, 30)
	blobs := newMemBlobs()
	small := writeParts(t, blobs, first)
	grown := writeParts(t, blobs, first, nil, second)
	require.Equal(t, small.Shards, grown.Shards[:len(small.Shards)])
	require.Equal(t, small.TokenCounts, grown.TokenCounts[:1])
	n := len(small.Shards)
	var ranges [][2]int
	for _, p := range grown.Lineage.Parts {
		ranges = append(ranges, p.Shards)
	}
	require.Equal(t, [][2]int{{0, n}, {n, n}, {n, len(grown.Shards)}}, ranges)
	rows, err := readAll(t.Context(), open(t, blobs, grown, DatasetOptions{}))
	require.NoError(t, err)
	requireSamples(t, append(slices.Clone(first), second...), rows)

	l := testLineage()
	_, err = NewManifest(l, nil)
	require.ErrorContains(t, err, "no sample is left")
	l.Parts = make([]Part, 2)
	_, err = NewManifest(l, []Written{{}})
	require.ErrorContains(t, err, "1 parts were written, the lineage names 2")
	_, err = NewManifest(l, []Written{{MaxToken: -1}, {Counts: Counts{Samples: 1}, MaxToken: 32000, MaxSample: 7}})
	require.EqualError(t, err, `field "tokens": sample 7 of part 1: token 32000 is outside the vocabulary of 32000`)
	require.True(t, specstream.BadInput(err))
}

// A manifest of 10,000 shards of 64 row groups stays small and quick.
func TestManyShards(t *testing.T) {
	m := Manifest{Schema: ManifestVersion, Lineage: testLineage(), TokenCounts: []Blob{}}
	const shards = 10_000
	for i := range shards {
		d := specstream.DigestBytes([]byte{byte(i), byte(i >> 8)})
		s := Shard{Digest: d, Bytes: 26 << 20, Index: Blob{d, 110_000}, Tokens: 16 << 20}
		for g := range 64 {
			s.Groups = append(s.Groups, int64(800+(i+g)%150))
			s.Rows += s.Groups[g]
		}
		m.Shards = append(m.Shards, s)
		m.Lineage.Parts = append(m.Lineage.Parts, Part{Container: "json-lines", Start: int64(i) << 26, End: int64(i+1) << 26, First: int64(i)*60_000 + 1,
			Records: 60_000, Digest: "xxh3:0123456789abcdef0123456789abcdef", Shards: [2]int{i, i + 1}})
		m.Counts.Samples += s.Rows
		m.Counts.Tokens += s.Tokens
	}
	m.Counts.MaxLength = 511
	m.Lengths = Histogram{0, 0, 0, 0, 0, 0, 0, 0, 0, m.Counts.Samples}
	b, err := m.Encode()
	require.NoError(t, err)
	t.Logf("%d shards, %d rows: %d bytes of JSON", shards, m.Counts.Samples, len(b))
	require.Less(t, len(b), 8<<20)
	got, err := ReadManifest("big.json", bytes.NewReader(b))
	require.NoError(t, err)
	require.Equal(t, m.Shards[shards-1], got.Shards[shards-1])

	o := newOrder(t, got, OrderOptions{Seed: 1, GlobalBatch: 256})
	require.Len(t, step(t, o, 0), 256)
	require.Len(t, step(t, o, 1<<30), 256)
	held := 8 * (len(o.starts) + len(o.groups) + len(o.epoch.starts))
	held += 4 * len(o.epoch.blocks)
	for _, w := range o.recent {
		held += 8 * cap(w.rows)
	}
	require.LessOrEqual(t, held, 21*64*shards+8*2*DefaultWindow*950, "20 bytes a row group, 8 a row of two windows")
	d := open(t, newMemBlobs(), got, DatasetOptions{})
	require.EqualValues(t, got.Counts.Samples, d.Rows())
}

// Verify finds what no digest can: a manifest that was made of other rows than
// the shards have.
func TestVerifyCompares(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs}, []data.Sample{{Tokens: []int32{3, 3, 9}}, {Tokens: []int32{5, 6}, Spans: []data.Span{{Start: 1, End: 2}}}})
	require.NoError(t, open(t, blobs, m, DatasetOptions{CacheDir: t.TempDir()}).Verify(t.Context()))
	put := func(b []byte) Blob {
		d, err := blobs.PutBlob(t.Context(), b)
		require.NoError(t, err)
		return Blob{d, int64(len(b))}
	}
	for name, tt := range map[string]struct {
		spoil func(m *Manifest)
		want  string
	}{
		"lengths in the index": {func(m *Manifest) {
			x := testIndex(t, blobs, m.Shards[0])
			x.lengths[0], x.lengths[1] = 2, 3
			m.Shards[0].Index = put(x.encode())
		}, "row 0 has 3 tokens, the index says 2"},
		"completion tokens": {func(m *Manifest) { m.Counts.CompletionTokens = 2 }, "the manifest says"},
		"histogram":         {func(m *Manifest) { m.Lengths, m.Counts.MaxLength = Histogram{0, 1, 0, 1}, 4 }, "the lengths [0 0 2]"},
		"token counts": {func(m *Manifest) {
			var c tokenCounter
			c.add([]int32{3, 3, 9, 5, 7})
			m.TokenCounts[0] = put(c.encode())
		}, "the token counts are not those of the shards"},
	} {
		bad := clone(t, m)
		tt.spoil(&bad)
		err := open(t, blobs, bad, DatasetOptions{}).Verify(t.Context())
		require.ErrorIs(t, err, ErrCorrupt, name)
		require.ErrorContains(t, err, tt.want, name)
	}
}
