package shard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// testManifest is that of a data set of three parts, the second of them empty.
func testManifest(t testing.TB) Manifest {
	return writeParts(t, newMemBlobs(), randomSamples(1, 60, 30), nil, randomSamples(2, 30, 30))
}

// writeParts stores a data set of parts.
func writeParts(t testing.TB, blobs Blobs, parts ...[]data.Sample) Manifest {
	t.Helper()
	l := testLineage()
	var written []Written
	for i, samples := range parts {
		w, err := NewWriter(Options{Blobs: blobs, ShardTokens: 1000, RowGroupTokens: 300})
		require.NoError(t, err)
		for _, s := range samples {
			require.NoError(t, w.Write(t.Context(), s))
		}
		p, err := w.Finish(t.Context())
		require.NoError(t, err)
		written = append(written, p)
		l.Parts = append(l.Parts, Part{Container: "json-array", Start: int64(4 * i), End: int64(4*i + 4), First: int64(1 + i), Records: 1,
			Digest: fmt.Sprintf("xxh3:%032x", i)})
	}
	m, err := NewManifest(l, written)
	require.NoError(t, err)
	return m
}

// clone makes a deep copy through JSON.
func clone(t testing.TB, m Manifest) Manifest {
	t.Helper()
	b, err := m.Encode()
	require.NoError(t, err)
	var c Manifest
	require.NoError(t, json.Unmarshal(b, &c))
	return c
}

func TestManifestValidate(t *testing.T) {
	good := testManifest(t)
	tests := []struct {
		name  string
		spoil func(m *Manifest)
		field string
	}{
		{"schema", func(m *Manifest) { m.Schema = 1 }, "schema"},
		{"no shards", func(m *Manifest) { m.Shards = nil }, "shards"},
		{"samples", func(m *Manifest) { m.Counts.Samples++ }, "counts.samples"},
		{"tokens", func(m *Manifest) { m.Counts.Tokens-- }, "counts.tokens"},
		{"completion tokens", func(m *Manifest) { m.Counts.CompletionTokens = m.Counts.Tokens + 1 }, "counts.completion_tokens"},
		{"negative completion tokens", func(m *Manifest) { m.Counts.CompletionTokens = -1 }, "counts.completion_tokens"},
		{"max length", func(m *Manifest) { m.Counts.MaxLength = m.Counts.Tokens + 1 }, "counts.max_length"},
		{"no max length", func(m *Manifest) { m.Counts.MaxLength = 0 }, "counts.max_length"},
		{"shard digest", func(m *Manifest) { m.Shards[1].Digest = "sha256:12" }, "shards[1].digest"},
		{"upper-case digest", func(m *Manifest) { m.Shards[0].Digest = specstream.Digest(strings.ToUpper(string(m.Shards[0].Digest))) }, "shards[0].digest"},
		{"shard too large", func(m *Manifest) { m.Shards[0].Bytes = MaxShardBytes + 1 }, "shards[0].bytes"},
		{"shard rows", func(m *Manifest) { m.Shards[0].Rows++ }, "shards[0].rows"},
		{"negative shard tokens", func(m *Manifest) { m.Shards[0].Tokens = -1 }, "shards[0].tokens"},
		{"huge shard tokens", func(m *Manifest) { m.Shards[0].Tokens = 1 << 62 }, "shards[0].tokens"},
		{"no row groups", func(m *Manifest) { m.Shards[0].Groups = nil }, "shards[0].groups"},
		{"empty row group", func(m *Manifest) { m.Shards[0].Groups[1] = 0 }, "shards[0].groups[1]"},
		{"huge row group", func(m *Manifest) { m.Shards[0].Groups[1] = 1 << 62 }, "shards[0].groups[1]"},
		{"index digest", func(m *Manifest) { m.Shards[0].Index.Digest = "" }, "shards[0].index.digest"},
		{"index bytes", func(m *Manifest) { m.Shards[0].Index.Bytes = 1 << 40 }, "shards[0].index.bytes"},
		{"length bucket", func(m *Manifest) { m.Lengths[2] = -1 }, "lengths"},
		{"lengths of other samples", func(m *Manifest) { m.Lengths[2]++ }, "lengths"},
		{"lengths too short", func(m *Manifest) { m.Lengths = m.Lengths[:3] }, "lengths"},
		{"lengths of too few tokens", func(m *Manifest) {
			n := len(m.Lengths)
			m.Lengths = make(Histogram, n)
			m.Lengths[0], m.Lengths[n-1] = m.Counts.Samples-1, 1
		}, "lengths"},
		{"lengths of too many tokens", func(m *Manifest) {
			n := len(m.Lengths)
			m.Lengths = make(Histogram, n)
			m.Lengths[n-1] = m.Counts.Samples
		}, "lengths"},
		{"token counts digest", func(m *Manifest) { m.TokenCounts[0].Digest = "x" }, "token_counts[0].digest"},
		{"token counts bytes", func(m *Manifest) { m.TokenCounts[0].Bytes = 0 }, "token_counts[0].bytes"},
		{"spec", func(m *Manifest) { m.Lineage.Spec.Format = "csv" }, "lineage.spec.format"},
		{"template", func(m *Manifest) { m.Lineage.Template = "" }, "lineage.template"},
		{"tokenizer", func(m *Manifest) { m.Lineage.Tokenizer = "gpt2" }, "lineage.tokenizer"},
		{"vocabulary", func(m *Manifest) { m.Lineage.VocabSize = 0 }, "lineage.vocab_size"},
		{"no source", func(m *Manifest) { m.Lineage.Sources = nil }, "lineage.sources"},
		{"source name", func(m *Manifest) { m.Lineage.Sources[0].URI = "" }, "lineage.sources[0].uri"},
		{"source size", func(m *Manifest) { m.Lineage.Sources[0].Bytes = -1 }, "lineage.sources[0].bytes"},
		{"source records", func(m *Manifest) { m.Lineage.Sources[0].Records = -1 }, "lineage.sources[0].records"},
		{"source digest", func(m *Manifest) { m.Lineage.Sources[0].SHA256 = "" }, "lineage.sources[0].sha256"},
		{"part's source", func(m *Manifest) { m.Lineage.Parts[1].Source = 1 }, "lineage.parts[1].source"},
		{"part's end", func(m *Manifest) { m.Lineage.Parts[1].End = 3 }, "lineage.parts[1].end"},
		{"part's first record", func(m *Manifest) { m.Lineage.Parts[1].First = 0 }, "lineage.parts[1].first"},
		{"part's records", func(m *Manifest) { m.Lineage.Parts[1].Records = -1 }, "lineage.parts[1].records"},
		{"part's container", func(m *Manifest) { m.Lineage.Parts[1].Container = "" }, "lineage.parts[1].container"},
		{"part's digest", func(m *Manifest) { m.Lineage.Parts[1].Digest = "" }, "lineage.parts[1].digest"},
		{"part's shards", func(m *Manifest) { m.Lineage.Parts[1].Shards[0]++ }, "lineage.parts[1].shards"},
		{"shards of no part", func(m *Manifest) { m.Lineage.Parts = m.Lineage.Parts[:1] }, "lineage.parts"},
		{"part's quarantine", func(m *Manifest) { m.Lineage.Parts[1].Quarantine = "x" }, "lineage.parts[1].quarantine"},
		{"quarantined", func(m *Manifest) { m.Lineage.Account.Quarantined = 2 }, "lineage.account.quarantined"},
		{"samples dropped", func(m *Manifest) { m.Lineage.Account.SamplesDropped = map[string]int64{"x": -1} }, "lineage.account.samples_dropped"},
		{"read", func(m *Manifest) { m.Lineage.Account.Read = -1 }, "lineage.account.read"},
		{"kept", func(m *Manifest) { m.Lineage.Account.Kept = m.Lineage.Account.Read + 1 }, "lineage.account.kept"},
		{"dropped", func(m *Manifest) { m.Lineage.Account.Dropped["too long"] = -1 }, "lineage.account.dropped"},
		{"one more read", func(m *Manifest) { m.Lineage.Account.Read++ }, "lineage.account"},
		{"changed", func(m *Manifest) { m.Lineage.Account.Changed["html"] = 1 << 40 }, "lineage.account.changed"},
	}
	require.NoError(t, good.Validate())
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := clone(t, good)
			tt.spoil(&m)
			err := m.Validate()
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, tt.field, in.Field)
			_, err = OpenDataset(t.Context(), newMemBlobs(), m, DatasetOptions{})
			require.Error(t, err)

			b, err := m.Encode()
			require.NoError(t, err)
			_, err = ReadManifest("dir/dataset.json", bytes.NewReader(b))
			require.ErrorAs(t, err, &in)
			require.Equal(t, "dir/dataset.json", in.File)
			require.Equal(t, tt.field, in.Field)
		})
	}
}

func TestReadManifestStrict(t *testing.T) {
	b, err := testManifest(t).Encode()
	require.NoError(t, err)
	for name, bad := range map[string][]byte{
		"empty":          {},
		"cut off":        b[:len(b)/2],
		"unknown field":  bytes.Replace(b, []byte(`"counts"`), []byte(`"sums"`), 1),
		"trailing value": append(bytes.Clone(b), '1'),
		"wrong type":     bytes.Replace(b, []byte(`"schema":2`), []byte(`"schema":"2"`), 1),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ReadManifest("m.json", bytes.NewReader(bad))
			require.True(t, specstream.BadInput(err), "%v", err)
			require.ErrorContains(t, err, "m.json")
		})
	}
	m, err := ReadManifest("m.json", bytes.NewReader(b))
	require.NoError(t, err)
	again, err := m.Encode()
	require.NoError(t, err)
	require.Equal(t, string(b), string(again))
}

func FuzzReadManifest(f *testing.F) {
	b, err := testManifest(f).Encode()
	require.NoError(f, err)
	f.Add(b)
	f.Add([]byte(`{"schema":2,"shards":[{"groups":[1]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadManifest("fuzz.json", bytes.NewReader(b))
		if err != nil {
			if !specstream.BadInput(err) {
				t.Fatalf("not an InputError: %v", err)
			}
			return
		}
		// What is accepted is stable, and fit to be opened and ordered.
		enc, err := m.Encode()
		require.NoError(t, err)
		again, err := ReadManifest("again.json", bytes.NewReader(enc))
		require.NoError(t, err)
		d1, err := m.Digest()
		require.NoError(t, err)
		d2, err := again.Digest()
		require.NoError(t, err)
		require.Equal(t, d1, d2)
		_, err = OpenDataset(t.Context(), newMemBlobs(), m, DatasetOptions{})
		require.NoError(t, err)
		_, err = NewOrder(m, OrderOptions{GlobalBatch: 1})
		require.NoError(t, err)
	})
}

func TestDirBlobs(t *testing.T) {
	s := DirBlobs{t.TempDir()}
	_, err := s.Manifest()
	require.True(t, specstream.BadInput(err), "%v", err)
	samples := randomSamples(1, 60, 30)
	m := write(t, Options{Blobs: s, ShardTokens: 1000}, samples)
	require.NoError(t, s.PutManifest(m))
	require.NoError(t, s.PutManifest(m), "again")
	require.Equal(t, m, write(t, Options{Blobs: s, ShardTokens: 1000}, samples), "again, into the same folder")
	got, err := s.Manifest()
	require.NoError(t, err)
	require.Equal(t, m, got)
	for _, x := range m.Shards {
		h := x.Digest.Hex()
		require.FileExists(t, s.Dir+"/blobs/sha256/"+h[:2]+"/"+h)
	}
	d := open(t, s, got, DatasetOptions{})
	require.NoError(t, d.Verify(t.Context()))
	rows, err := readAll(t.Context(), d)
	require.NoError(t, err)
	requireSamples(t, samples, rows)

	_, err = s.OpenBlob(t.Context(), "sha256:zz")
	require.ErrorContains(t, err, "digest")
}
