package shard

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream/data"
)

// peersPython returns a Python that has the modules of check_peers.py: that of
// SPECSTREAM_PYTHON, which must, or python3 if it does.
func peersPython(t *testing.T) string {
	t.Helper()
	modules := []string{"-c", "import duckdb, pyarrow"}
	if p := os.Getenv("SPECSTREAM_PYTHON"); p != "" {
		out, err := exec.CommandContext(t.Context(), p, modules...).CombinedOutput()
		require.NoError(t, err, "SPECSTREAM_PYTHON=%s: %s", p, out)
		return p
	}
	if err := exec.CommandContext(t.Context(), "python3", modules...).Run(); err != nil {
		t.Skip("no python3 with duckdb and pyarrow: install testdata/requirements.txt and name its interpreter in SPECSTREAM_PYTHON")
	}
	return "python3"
}

// contentDigest hashes rows as check_peers.py describes.
type contentDigest struct{ hash.Hash }

func (h contentDigest) number(n int) { h.Write(binary.LittleEndian.AppendUint32(nil, uint32(n))) }

func (h contentDigest) text(s string) {
	h.number(len(s))
	h.Write([]byte(s))
}

func (h contentDigest) row(s data.Sample, text bool) {
	h.text(s.ID)
	h.number(len(s.Tokens))
	for _, x := range s.Tokens {
		h.number(int(x))
	}
	h.number(2 * len(s.Spans))
	for _, sp := range s.Spans {
		h.number(sp.Start)
		h.number(sp.End)
	}
	if !text {
		return
	}
	h.text(s.Prompt)
	h.text(s.Reference)
	h.number(len(s.Alternatives))
	for _, a := range s.Alternatives {
		h.text(a)
	}
}

func sumOf(samples []data.Sample, text bool) string {
	h := contentDigest{sha256.New()}
	for _, s := range samples {
		h.row(s, text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// DuckDB and pyarrow read the documented schema and the same content out of
// shards and cache files.
func TestPeers(t *testing.T) {
	python := peersPython(t)
	type file struct {
		Path    string   `json:"path"`
		SHA256  string   `json:"sha256"`
		Groups  []int64  `json:"groups,omitempty"`
		Tokens  int64    `json:"tokens"`
		Columns []string `json:"columns,omitempty"`
	}
	var dump struct {
		Parquet []file `json:"parquet"`
		IPC     []file `json:"ipc"`
	}
	samples := randomSamples(8, 600, 60)
	samples[3].Prompt = "emoji 🙂, a quote \" and\nlines\r\n\x00 and tabs\t"
	samples[4].Alternatives = []string{"", "", "x"}
	for i, o := range []Options{{}, {ShardTokens: 9000, RowGroupTokens: 2500}, {RowGroupTokens: 5000, PageBytes: 700}} {
		dir := t.TempDir()
		s := DirBlobs{dir}
		o.Blobs = s
		m := write(t, o, samples)
		row := 0
		for _, x := range m.Shards {
			dump.Parquet = append(dump.Parquet, file{Path: s.path(x.Digest), SHA256: sumOf(samples[row:row+int(x.Rows)], true), Groups: x.Groups, Tokens: x.Tokens})
			row += int(x.Rows)
		}
		if i != 1 {
			continue
		}
		for _, text := range []bool{true, false} {
			d := open(t, s, m, DatasetOptions{CacheDir: filepath.Join(dir, "cache"), WithoutText: !text})
			for _, err := range d.All(t.Context()) {
				require.NoError(t, err)
			}
			row = 0
			for _, x := range m.Shards {
				for g, n := range x.Groups {
					f := file{Path: d.local.path(cacheKey{x.Digest, g, n}), SHA256: sumOf(samples[row:row+int(n)], text)}
					for _, c := range readColumns(text) {
						f.Columns = append(f.Columns, c.name)
					}
					dump.IPC = append(dump.IPC, f)
					row += int(n)
				}
			}
		}
	}
	b, err := json.Marshal(dump)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "dump.json")
	require.NoError(t, os.WriteFile(path, b, 0o644))
	check := func(path string) (string, error) {
		out, err := exec.CommandContext(t.Context(), python, filepath.Join("testdata", "check_peers.py"), path).CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	out, err := check(path)
	require.NoError(t, err, "%s", out)
	require.Equal(t, fmt.Sprint("ok ", len(dump.Parquet)+len(dump.IPC)), out)

	// The check can fail: other content is noticed.
	dump.Parquet[0].SHA256 = sumOf(samples[1:], true)
	b, err = json.Marshal(dump)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, b, 0o644))
	out, err = check(path)
	require.Error(t, err)
	require.Contains(t, out, "content in pyarrow is")
}
