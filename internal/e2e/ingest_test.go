package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
)

// ingested is more of what `ingest --json` prints.
type ingested struct {
	account
	Samples int64 `json:"samples"`
	Shown   []struct {
		Prompt    string `json:"prompt"`
		Reference string `json:"reference"`
	} `json:"shown"`
}

func ingestArgs(f fixture, args ...string) []string {
	return append([]string{"ingest", "--format", "sql", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--json"}, args...)
}

// TestKilledIngestGoesOn: an ingestion that is killed at several moments and run
// again is the one that was left alone.
func TestKilledIngestGoesOn(t *testing.T) {
	f := setup(t)
	dir := t.TempDir()
	big := filepath.Join(dir, "big.json")
	good(t, "generate", "--format", "sql", "--records", "20000", "--out", big)
	args := func(out string, more ...string) []string {
		return ingestArgs(f, append([]string{"--partition-bytes", "200000", "--shard-tokens", "20000", "--dedupe", "near", "--out", filepath.Join(dir, out), "--progress", "jsonl", big}, more...)...)
	}
	var want, got account
	good(t, args("alone", "--workers", "1")...).decode(t, &want)
	killed := 0
	for _, s := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		if code := interruptIngest(t, s, args("killed")...); code != 0 {
			killed++
			require.Equal(t, map[syscall.Signal]int{syscall.SIGKILL: -1, syscall.SIGTERM: 75, syscall.SIGINT: 130}[s], code)
			require.NoFileExists(t, filepath.Join(dir, "killed", "dataset.json"))
		}
	}
	require.Positive(t, killed)
	good(t, args("killed", "--workers", "3")...).decode(t, &got)
	require.Equal(t, want, got)
}

// interruptIngest starts an ingestion, sends it a signal some parts on, and
// returns its exit code, -1 for one that a signal ended.
func interruptIngest(t testing.TB, s syscall.Signal, args ...string) int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := command(ctx, args...)
	stderr, err := c.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		var e struct {
			Type  string `json:"type"`
			Stage string `json:"stage"`
		}
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Type == "progress" && e.Stage == "ingest process" {
			break
		}
	}
	time.Sleep(100 * time.Millisecond)
	_ = c.Process.Signal(s) // it may have finished
	for lines.Scan() {
	}
	_ = c.Wait()
	return c.ProcessState.ExitCode()
}

// TestGrownDataset: with further inputs, the old ones are not ingested again.
func TestGrownDataset(t *testing.T) {
	t.Parallel()
	f := setup(t)
	out := filepath.Join(t.TempDir(), "data")
	var first, second account
	good(t, ingestArgs(f, "--out", out, "--partition-bytes", "10000", f.train)...).decode(t, &first)
	good(t, ingestArgs(f, "--out", out, "--partition-bytes", "10000", f.train, f.held)...).decode(t, &second)
	require.EqualValues(t, *first.Read+60, *second.Read)
	shards := func(b []byte) (digests []specstream.Digest) {
		var m struct {
			Shards []struct{ Digest specstream.Digest }
		}
		require.NoError(t, json.Unmarshal(b, &m))
		for _, s := range m.Shards {
			digests = append(digests, s.Digest)
		}
		return digests
	}
	grown, err := os.ReadFile(filepath.Join(out, "dataset.json"))
	require.NoError(t, err)
	good(t, ingestArgs(f, "--out", out, "--partition-bytes", "10000", f.train)...).decode(t, &second)
	require.Equal(t, first, second)
	old, err := os.ReadFile(filepath.Join(out, "dataset.json"))
	require.NoError(t, err)
	require.Equal(t, shards(old), shards(grown)[:len(shards(old))])
	require.Greater(t, len(shards(grown)), len(shards(old)))
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	f := setup(t)
	dir := t.TempDir()
	var real, dry ingested
	good(t, ingestArgs(f, "--out", filepath.Join(dir, "out"), f.train)...).decode(t, &real)
	good(t, ingestArgs(f, "--dry-run", f.train)...).decode(t, &dry)
	require.Equal(t, real.account, dry.account)
	require.Len(t, dry.Shown, 3)
	require.Contains(t, dry.Shown[0].Reference, "SELECT")
	text := good(t, "ingest", "--format", "sql", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--dry-run", f.train).stdout
	require.Contains(t, text, "read 300 records, kept 300")
	require.Contains(t, text, "SELECT")
}

// TestDataFlags: a specification in a file and the same in flags are one dataset.
func TestDataFlags(t *testing.T) {
	t.Parallel()
	f := setup(t)
	dir := t.TempDir()
	chat := write(t, filepath.Join(dir, "chat.jsonl"), strings.Join([]string{
		`{"q":"What is one and one?","a":"Two it is, as far as I know."}`,
		`{"q":"What is one and one?","a":"two  it is, as far as I know."}`,
		`{"q":"What else?","a":"As a parrot, I say no."}`,
		`{"q":"And then?","a":"<|end|> is no token here."}`,
	}, "\n"))
	digest := specstream.DigestBytes(must(os.ReadFile(chat)))
	spec := write(t, filepath.Join(dir, "spec.json"), `{"format":"mapping","mapping":{"prompt":"{q}\n","completion":"a","container":"json"},"inputs":["`+chat+`"],
		"sha256":{"`+chat+`":"`+string(digest)+`"},"max_length":99,"overlong":"cut","partition_bytes":1000,
		"clean":{"dedupe":"exact","blocked_phrases":["as a parrot"]},"tokenizer":"`+filepath.Join(f.base, "tokenizer.json")+`"}`)
	var a, b account
	good(t, "ingest", "--spec", spec, "--out", filepath.Join(dir, "a"), "--json").decode(t, &a)
	require.EqualValues(t, 4, *a.Read)
	require.EqualValues(t, 2, *a.Kept)
	require.Equal(t, map[string]int64{"duplicate": 1, "blocked_phrase": 1}, a.Dropped)
	flags := []string{"ingest", "--mapping", `{"prompt":"{q}\n","completion":"a","container":"json"}`, "--sha256", chat + "=" + string(digest), "--max-length", "99", "--overlong", "cut",
		"--partition-bytes", "1000", "--dedupe", "exact", "--block-phrase", "as a parrot", "--tokenizer", filepath.Join(f.base, "tokenizer.json"), "--json", "--progress", "none", chat}
	good(t, append(flags, "--out", filepath.Join(dir, "b"), "--quarantine", filepath.Join(dir, "q.jsonl"))...).decode(t, &b)
	require.Equal(t, a, b)
	lines := strings.Split(strings.TrimSpace(string(must(os.ReadFile(filepath.Join(dir, "q.jsonl"))))), "\n")
	require.Len(t, lines, 2)
	require.Contains(t, lines[0], `"record":2`)
	require.Contains(t, lines[0], `"of_record":1`)
	require.Contains(t, lines[1], `"code":"blocked_phrase"`)
	require.Equal(t, strings.Join(lines, "\n")+"\n", good(t, "data", "quarantine", filepath.Join(dir, "b")).stdout)
	store := "file://" + filepath.Join(dir, "store")
	var ref struct{ Ref string }
	good(t, append(flags, "--out", store)...).decode(t, &ref)
	require.Equal(t, strings.Join(lines, "\n")+"\n", good(t, "data", "quarantine", "--store", store, ref.Ref).stdout)

	run(t, append(flags, "--out", dir, "--sha256", chat+"="+strings.Repeat("0", 64))...).refused(t, 1, "chat.jsonl", `"sha256"`)
	run(t, append(flags, "--out", dir, "--sha256", "nothing")...).refused(t, 2, "INPUT=DIGEST")
	run(t, append(flags, "--out", dir, "--overlong", "shorten")...).refused(t, 1, `"overlong"`, "shorten")
	run(t, append(flags, "--out", dir, "--languages", "english")...).refused(t, 1, `"clean.languages"`, "english")
	run(t, "ingest", "--spec", write(t, filepath.Join(dir, "bad.json"), `{"formt":"sql"}`), "--out", dir).refused(t, 1, "bad.json", `"formt"`)
	run(t, "ingest", "--spec", filepath.Join(dir, "absent.json"), "--out", dir).refused(t, 1, "absent.json")
	run(t, ingestArgs(f, "--dry-run")...).refused(t, 2, "input")
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}
