package checkpoints_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func digest(s string) specstream.Digest { return specstream.DigestBytes([]byte(s)) }

// sample is a valid manifest with every field set.
func sample() checkpoints.Manifest {
	m := checkpoints.Manifest{
		Version: checkpoints.ManifestVersion, Kind: checkpoints.KindAdapter, Run: "train-1", Step: 120, Generation: 2,
		Files: []checkpoints.File{
			{Name: "adapter_config.json", Digest: digest("config"), Size: 6},
			{Name: "adapter_model.safetensors", Digest: digest("whole"), Size: 9, Blobs: []checkpoints.Blob{{digest("first"), 5}, {digest("rest"), 4}}},
			{Name: "deep/er", Digest: digest(""), Size: 0},
		},
		Parents: []specstream.Ref{{Key: "manifests/train-1/00000100-00000001.json", Digest: digest("parent")}},
		Base:    digest("base"), Dataset: digest("dataset"), Spec: json.RawMessage(`{"mode": "lossless"}`), Seed: 1 << 60,
		Metrics: map[string]float64{"loss": 1.25}, Code: "v0.1.0", Writer: "host:12", Created: time.Date(2026, 11, 20, 1, 2, 3, 4, time.UTC),
		Sum: checkpoints.ZeroSum,
	}
	m.Content = m.ContentDigest()
	return m
}

// TestManifestGolden holds the stored form still: old manifests stay readable and
// content digests stay what they are.
func TestManifestGolden(t *testing.T) {
	path := filepath.Join("testdata", "manifest.golden.json")
	b, err := checkpoints.Seal(sample())
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o777))
		require.NoError(t, os.WriteFile(path, b, 0o666))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(b))
	got, err := checkpoints.ParseManifest("golden", want)
	require.NoError(t, err)
	s := sample()
	require.JSONEq(t, string(s.Spec), string(got.Spec))
	got.Spec, s.Spec, s.Sum = nil, nil, got.Sum
	require.Equal(t, s, got)
	require.Equal(t, specstream.Digest("sha256:b9fad520e7e8d56aa0ed7027fc01269b0407548855a664eb72b6579128d58831"), got.Content)
}

func TestContentDigest(t *testing.T) {
	base := sample().ContentDigest()
	for _, c := range []struct {
		name string
		edit func(*checkpoints.Manifest)
		same bool
	}{
		{"run, step, generation", func(m *checkpoints.Manifest) { m.Run, m.Step, m.Generation = "other", 1, 9 }, true},
		{"who, when, from what", func(m *checkpoints.Manifest) {
			m.Writer, m.Created, m.Parents, m.Metrics = "x", time.Now(), nil, nil
		}, true},
		{"order of files", func(m *checkpoints.Manifest) { m.Files[0], m.Files[2] = m.Files[2], m.Files[0] }, true},
		{"how a file is cut", func(m *checkpoints.Manifest) { m.Files[1].Blobs = nil }, true},
		{"kind", func(m *checkpoints.Manifest) { m.Kind = checkpoints.KindState }, false},
		{"a name", func(m *checkpoints.Manifest) { m.Files[0].Name = "a" }, false},
		{"a digest", func(m *checkpoints.Manifest) { m.Files[0].Digest = digest("x") }, false},
		{"a file more", func(m *checkpoints.Manifest) {
			m.Files = append(m.Files, checkpoints.File{Name: "z", Digest: digest("z"), Size: 1})
		}, false},
		{"names that spell another list", func(m *checkpoints.Manifest) {
			m.Files = []checkpoints.File{{Name: "a\" " + string(digest("x")) + "\n\"b", Digest: digest("y")}}
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sample()
			c.edit(&m)
			require.Equal(t, c.same, m.ContentDigest() == base)
		})
	}
}

func TestManifestValidate(t *testing.T) {
	require.NoError(t, sample().Validate())
	for _, c := range []struct {
		name  string
		field string
		edit  func(*checkpoints.Manifest)
	}{
		{"version", "version", func(m *checkpoints.Manifest) { m.Version = 0 }},
		{"kind", "kind", func(m *checkpoints.Manifest) { m.Kind = "other" }},
		{"empty run", "run", func(m *checkpoints.Manifest) { m.Run = "" }},
		{"run with a slash", "run", func(m *checkpoints.Manifest) { m.Run = "a/b" }},
		{"run that climbs", "run", func(m *checkpoints.Manifest) { m.Run = ".." }},
		{"negative step", "step", func(m *checkpoints.Manifest) { m.Step = -1 }},
		{"step of 9 digits", "step", func(m *checkpoints.Manifest) { m.Step = 100_000_000 }},
		{"negative generation", "generation", func(m *checkpoints.Manifest) { m.Generation = -1 }},
		{"no files", "files", func(m *checkpoints.Manifest) { m.Files = nil }},
		{"unsorted files", "files", func(m *checkpoints.Manifest) { m.Files[0], m.Files[1] = m.Files[1], m.Files[0] }},
		{"a file twice", "files", func(m *checkpoints.Manifest) { m.Files[1] = m.Files[0] }},
		{"a file under a file", "files", func(m *checkpoints.Manifest) {
			m.Files = []checkpoints.File{{Name: "a", Digest: digest("")}, {Name: "a-b", Digest: digest("")}, {Name: "a/c", Digest: digest("")}}
		}},
		{"absolute name", "files[0].name", func(m *checkpoints.Manifest) { m.Files[0].Name = "/etc/passwd" }},
		{"name that climbs", "files[0].name", func(m *checkpoints.Manifest) { m.Files[0].Name = "a/../../b" }},
		{"name with a backslash", "files[0].name", func(m *checkpoints.Manifest) { m.Files[0].Name = `a\b` }},
		{"hidden name", "files[0].name", func(m *checkpoints.Manifest) { m.Files[0].Name = ".specstream.json" }},
		{"file digest", "files[2].digest", func(m *checkpoints.Manifest) { m.Files[2].Digest = "sha256:12" }},
		{"upper-case digest", "files[2].digest", func(m *checkpoints.Manifest) {
			m.Files[2].Digest = specstream.Digest("sha256:" + strings.ToUpper(digest("x").Hex()))
		}},
		{"negative size", "files[2].size", func(m *checkpoints.Manifest) { m.Files[2].Size = -1 }},
		{"blob sizes", "files[1].blobs", func(m *checkpoints.Manifest) { m.Files[1].Size = 10 }},
		{"blob digest", "files[1].blobs", func(m *checkpoints.Manifest) { m.Files[1].Blobs[0].Digest = "md5:1" }},
		{"blob too large", "files[0].blobs", func(m *checkpoints.Manifest) { m.Files[0].Size = checkpoints.MaxBlob + 1 }},
		{"parent", "parents", func(m *checkpoints.Manifest) { m.Parents[0].Digest = "" }},
		{"base", "base", func(m *checkpoints.Manifest) { m.Base = "x" }},
		{"dataset", "dataset", func(m *checkpoints.Manifest) { m.Dataset = "x" }},
		{"not a number", "metrics", func(m *checkpoints.Manifest) { m.Metrics["loss"] = math.NaN() }},
		{"infinite", "metrics", func(m *checkpoints.Manifest) { m.Metrics["loss"] = math.Inf(-1) }},
		{"another content", "content", func(m *checkpoints.Manifest) { m.Content = digest("x") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := sample()
			c.edit(&m)
			if c.field != "content" {
				m.Content = m.ContentDigest()
			}
			err := m.Validate()
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, c.field, in.Field)
		})
	}
}

// reseal gives edited bytes the sum they should have.
func reseal(t testing.TB, b []byte, old, new string) []byte {
	t.Helper()
	require.Contains(t, string(b), old)
	b = []byte(strings.Replace(string(b), old, new, 1))
	at := bytes.LastIndex(b, []byte("sha256:"))
	copy(b[at:], checkpoints.ZeroSum)
	copy(b[at:], specstream.DigestBytes(b))
	return b
}

func TestParseManifestRefuses(t *testing.T) {
	good, err := checkpoints.Seal(sample())
	require.NoError(t, err)
	_, err = checkpoints.ParseManifest("m", reseal(t, good, "train-1", "train-2"))
	require.NoError(t, err, "resealing works, so what follows fails for its own reason")
	for _, c := range []struct{ name, old, new, field, reason string }{
		{"unknown field", `"kind"`, `"kine"`, "kine", "unknown field"},
		{"wrong type", `"step": 120`, `"step": "120"`, "step", "want int64"},
		{"a newer version", `"version": 1`, `"version": 2`, "version", "written as version 2"},
		{"bad value", `"kind": "adapter"`, `"kind": "adopter"`, "kind", "not one of"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := checkpoints.ParseManifest("the-name", reseal(t, good, c.old, c.new))
			var in *specstream.InputError
			require.ErrorAs(t, err, &in)
			require.Equal(t, "the-name", in.File)
			require.Equal(t, c.field, in.Field)
			require.ErrorContains(t, err, c.reason)
			require.NotErrorIs(t, err, checkpoints.ErrCorrupt)
		})
	}
	for name, b := range map[string][]byte{
		"empty": nil, "truncated": good[:len(good)-5], "half": good[:len(good)/2], "trailing": append(bytes.Clone(good), ' '),
		"one bit": func() []byte { b := bytes.Clone(good); b[30] ^= 1; return b }(), "not JSON": []byte("hello"),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := checkpoints.ParseManifest("m", b)
			require.ErrorIs(t, err, checkpoints.ErrCorrupt)
			require.False(t, specstream.BadInput(err), "damage is not the user's mistake")
		})
	}
}

// Every single flipped bit of a record is noticed.
func TestEveryBitIsSummed(t *testing.T) {
	good, err := checkpoints.Seal(sample())
	require.NoError(t, err)
	for i := range good {
		for bit := range 8 {
			good[i] ^= 1 << bit
			_, err := checkpoints.ParseManifest("m", good)
			require.ErrorIs(t, err, checkpoints.ErrCorrupt, "byte %d bit %d", i, bit)
			good[i] ^= 1 << bit
		}
	}
}

func FuzzParseManifest(f *testing.F) {
	good, err := checkpoints.Seal(sample())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, false)
	f.Add([]byte("{}\n"), true)
	f.Add(bytes.Replace(good, []byte("120"), []byte("-1"), 1), true)
	f.Add(bytes.Replace(good, []byte(`"size": 9`), []byte(`"size": 9223372036854775807`), 1), true)
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		if at := bytes.LastIndex(b, []byte("sha256:")); sum && at >= 0 && len(b) >= at+len(checkpoints.ZeroSum) {
			copy(b[at:], checkpoints.ZeroSum) // or nothing but the sum would ever be tried
			copy(b[at:], specstream.DigestBytes(b))
		}
		m, err := checkpoints.ParseManifest("fuzz", b)
		if err != nil {
			return
		}
		if err := m.Validate(); err != nil {
			t.Fatalf("parsed, yet invalid: %v", err)
		}
		for _, file := range m.Files {
			if !filepath.IsLocal(filepath.FromSlash(file.Name)) {
				t.Fatalf("name %q leaves the folder", file.Name)
			}
		}
		if err := checkpoints.ValidateKey(m.Key()); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzValidateKey(f *testing.F) {
	for _, key := range []string{"a/b", "../a", "a//b", ".a", "a/.b", "é/ž", "a\\b", strings.Repeat("x", 300)} {
		f.Add(key)
	}
	f.Fuzz(func(t *testing.T, key string) {
		if checkpoints.ValidateKey(key) == nil && (!filepath.IsLocal(filepath.FromSlash(key)) || filepath.ToSlash(filepath.Clean(filepath.FromSlash(key))) != key) {
			t.Fatalf("%q is not a clean local path", key)
		}
	})
}
