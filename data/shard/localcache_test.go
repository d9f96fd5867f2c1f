package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/ipc"
	"github.com/apache/arrow/go/v17/arrow/memory"
	"github.com/stretchr/testify/require"
	"github.com/zeebo/xxh3"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// cacheFiles lists the row groups' files of a cache folder.
func cacheFiles(t testing.TB, dir string) (paths []string, bytes int64) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(filepath.Join(dir, cacheLayout), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && strings.Contains(e.Name(), "-") {
			paths = append(paths, path)
			st, err := e.Info()
			require.NoError(t, err)
			bytes += st.Size()
		}
		return err
	}))
	return paths, bytes
}

func TestLocalCache(t *testing.T) {
	for name, without := range map[string]bool{"with text": false, "without text": true} {
		t.Run(name, func(t *testing.T) {
			before := mappings.Load()
			blobs := newMemBlobs()
			samples := randomSamples(12, 300, 50)
			m := write(t, Options{Blobs: blobs, ShardTokens: 5000, RowGroupTokens: 1000}, samples)
			want := clone(t, m)
			dir := t.TempDir()
			o := DatasetOptions{CacheDir: dir, CacheBytes: 1, WithoutText: without}
			if without {
				for i := range samples {
					samples[i].Prompt, samples[i].Reference, samples[i].Alternatives = "", "", nil
				}
			}
			read := func(d *Dataset) {
				t.Helper()
				n := 0
				for rec, err := range d.All(t.Context()) { // copied while mapped
					require.NoError(t, err)
					got := copySamples(t, rec)
					requireSamples(t, samples[n:n+len(got)], got)
					n += len(got)
				}
				require.Equal(t, len(samples), n)
			}
			groups := 0
			for _, s := range want.Shards {
				groups += len(s.Groups)
			}
			first := open(t, blobs, m, o)
			read(first)
			require.Equal(t, groups+2*len(m.Shards), blobs.opens, "each row group is fetched once")
			opens := blobs.opens
			read(first)
			second := open(t, blobs, m, o)
			read(second)
			require.Equal(t, opens, blobs.opens, "another process finds it fetched, and needs neither index nor footer")
			paths, _ := cacheFiles(t, dir)
			require.Len(t, paths, groups)

			// Damage to a file is mended, in the middle of use and before it.
			path := first.local.path(cacheKey{m.Shards[1].Digest, 0, m.Shards[1].Groups[0]})
			damage := map[string]func(b []byte) error{
				"flipped byte":  func(b []byte) error { b[len(b)/2] ^= 1; return os.WriteFile(path, b, 0o644) },
				"cut off":       func(b []byte) error { return os.WriteFile(path, b[:len(b)/2], 0o644) },
				"empty":         func([]byte) error { return os.WriteFile(path, nil, 0o644) },
				"removed":       func([]byte) error { return os.Remove(path) },
				"another group": func([]byte) error { return copyFile(second.local.path(cacheKey{m.Shards[1].Digest, 1, 0}), path) },
			}
			for name, spoil := range damage {
				b, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NoError(t, spoil(bytes.Clone(b)))
				read(second)
				again, err := os.ReadFile(path)
				require.NoError(t, err)
				require.Equal(t, b, again, "%s: the file is made anew, the same", name)
			}
			first.Close()
			second.Close()
			require.Equal(t, before, mappings.Load(), "nothing stays mapped")
		})
	}
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// Every byte of a file that differs is found out when the file is mapped.
func TestLocalCacheEveryByte(t *testing.T) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs}, randomSamples(3, 8, 20))
	d := open(t, blobs, m, DatasetOptions{CacheDir: t.TempDir()})
	k := cacheKey{m.Shards[0].Digest, 0, m.Shards[0].Groups[0]}
	rec, err := d.Batch(t.Context(), []int64{0})
	require.NoError(t, err)
	rec.Release()
	path := d.local.path(k)
	good, err := os.ReadFile(path)
	require.NoError(t, err)
	bad := filepath.Join(t.TempDir(), "bad")
	check := func(b []byte) {
		t.Helper()
		require.NoError(t, os.WriteFile(bad, b, 0o644))
		rec, err := d.local.open(bad, k)
		require.Nil(t, rec)
		require.ErrorIs(t, err, ErrCorrupt)
		require.ErrorContains(t, err, bad)
	}
	each := 1
	if testing.Short() {
		each = 5
	}
	for i := 0; i < len(good); i += each {
		b := bytes.Clone(good)
		b[i] ^= 1 << (i % 8)
		check(b)
	}
	for n := 0; n < len(good); n += 37 {
		check(good[:n])
	}
	check(append(bytes.Clone(good), 0))
	for _, other := range []cacheKey{{specstream.DigestBytes(nil), 0, k.rows}, {k.shard, 1, k.rows}, {k.shard, 0, k.rows + 1}} {
		_, err := d.local.open(path, other)
		require.ErrorIs(t, err, ErrCorrupt)
	}
	require.Zero(t, mappings.Load()-1, "the data set's own mapping is left")
}

// A file that is cut while it is mapped is an error when it is verified.
func TestLocalCacheCutWhileMapped(t *testing.T) {
	c, err := newLocalCache(t.TempDir(), 1<<20, false)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "f")
	require.NoError(t, os.WriteFile(path, make([]byte, 1<<20), 0o644))
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	b, err := mapFile(f, 1<<20)
	require.NoError(t, err)
	require.NoError(t, f.Truncate(4096))
	m := newMapping(b)
	defer m.Free(nil)
	_, err = c.verify(b, cacheKey{shard: specstream.DigestBytes(nil)}, m)
	require.Error(t, err)
}

// Rows that follow one another are the mapped file's own memory, and stay so
// when the file is evicted and the data set is closed.
func TestLocalCacheZeroCopy(t *testing.T) {
	blobs := newMemBlobs()
	samples := randomSamples(1, 200, 100)
	m := write(t, Options{Blobs: blobs}, samples)
	mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
	defer mem.AssertSize(t, 0)
	before := mappings.Load()
	dir := t.TempDir()
	d, err := OpenDataset(t.Context(), blobs, m, DatasetOptions{CacheDir: dir, Allocator: mem})
	require.NoError(t, err)
	a, err := d.Batch(t.Context(), []int64{5, 6, 7})
	require.NoError(t, err)
	b, err := d.Batch(t.Context(), []int64{6, 7, 8})
	require.NoError(t, err)
	require.Zero(t, mem.CurrentAlloc(), "no batch has memory of its own")
	sa, err := Samples(a)
	require.NoError(t, err)
	sb, err := Samples(b)
	require.NoError(t, err)
	require.Same(t, &sa[1].Tokens[0], &sb[0].Tokens[0])
	_, err = d.local.evict(0)
	require.NoError(t, err)
	paths, _ := cacheFiles(t, dir)
	require.Empty(t, paths)
	d.Close()
	requireSamples(t, samples[5:8], copySamples(t, a))
	requireSamples(t, samples[6:9], copySamples(t, b))
	a.Release()
	require.Equal(t, before+1, mappings.Load())
	b.Release()
	require.Equal(t, before, mappings.Load())
}

// The folder keeps to its bound, whoever writes to it, and what was used last
// stays.
func TestLocalCacheBound(t *testing.T) {
	blobs := newMemBlobs()
	const rows = 200
	samples := randomSamples(5, rows, 60)
	m := write(t, Options{Blobs: blobs, ShardTokens: 4000, RowGroupTokens: 1000}, samples)
	dir := t.TempDir()
	const limit = 30_000
	for round := range 3 { // data sets, as if in processes of their own
		d := open(t, blobs, m, DatasetOptions{CacheDir: dir, CacheLimit: limit, CacheBytes: 1})
		for i := range rows {
			row := int64(i*7+round) % rows
			rec, err := d.Batch(t.Context(), []int64{row})
			require.NoError(t, err)
			requireSamples(t, samples[row:row+1], copySamples(t, rec))
			rec.Release()
			if i%20 == 0 {
				_, size := cacheFiles(t, dir)
				require.LessOrEqual(t, size, int64(limit))
			}
		}
	}
	d := open(t, blobs, m, DatasetOptions{CacheDir: dir, CacheLimit: limit, CacheBytes: 1})
	kept := d.local.path(cacheKey{m.Shards[0].Digest, 0, 0})
	for i := range int64(rows) {
		for _, row := range []int64{0, i} {
			rec, err := d.Batch(t.Context(), []int64{row})
			require.NoError(t, err)
			rec.Release()
		}
		require.FileExists(t, kept)
		time.Sleep(50 * time.Microsecond) // so that times of use differ
	}

	// A lost count, an old unfinished file and a row group larger than the bound
	// do no harm.
	require.NoError(t, os.Remove(filepath.Join(dir, cacheLayout, "usage")))
	stale := filepath.Join(filepath.Dir(kept), ".1.tmp")
	require.NoError(t, os.WriteFile(stale, make([]byte, limit), 0o644))
	old := time.Now().Add(-2 * staleTemp)
	require.NoError(t, os.Chtimes(stale, old, old))
	tiny := open(t, blobs, m, DatasetOptions{CacheDir: dir, CacheLimit: 1, CacheBytes: 1})
	for i := range int64(rows) {
		rec, err := tiny.Batch(t.Context(), []int64{i})
		require.NoError(t, err)
		requireSamples(t, samples[i:i+1], copySamples(t, rec))
		rec.Release()
	}
	require.NoFileExists(t, stale)
	paths, _ := cacheFiles(t, dir)
	require.Len(t, paths, 1, "the newest")
	_, err := OpenDataset(t.Context(), blobs, m, DatasetOptions{CacheDir: dir, CacheLimit: -1})
	require.True(t, specstream.BadInput(err))
}

// Processes that share a folder each get every row, whatever the others do to
// the files meanwhile.
func TestLocalCacheProcesses(t *testing.T) {
	samples := randomSamples(6, 400, 60)
	const env = "SHARD_TEST_CACHE"
	if dir := os.Getenv(env); dir != "" {
		s := DirBlobs{filepath.Join(dir, "data")}
		m, err := s.Manifest()
		require.NoError(t, err)
		d := open(t, s, m, DatasetOptions{CacheDir: filepath.Join(dir, "cache"), CacheLimit: 100_000, CacheBytes: 20_000})
		for k := range int64(300) {
			rows := []int64{k * 31 % 400, k * 17 % 400, (k*17 + 1) % 400}
			rec, err := d.Batch(t.Context(), rows)
			require.NoError(t, err)
			requireSamples(t, []data.Sample{samples[rows[0]], samples[rows[1]], samples[rows[2]]}, copySamples(t, rec))
			rec.Release()
		}
		return
	}
	dir := t.TempDir()
	s := DirBlobs{filepath.Join(dir, "data")}
	require.NoError(t, s.PutManifest(write(t, Options{Blobs: s, ShardTokens: 5000, RowGroupTokens: 1000}, samples)))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestLocalCacheProcesses$")
			cmd.Env = append(os.Environ(), env+"="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	// A fourth that is killed again and again.
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestLocalCacheProcesses$")
		cmd.Env = append(os.Environ(), env+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil && ctx.Err() == nil {
			t.Errorf("%v: %s", err, out)
		}
		cancel()
	}
	wg.Wait()
	_, size := cacheFiles(t, filepath.Join(dir, "cache"))
	require.Positive(t, size)
	require.LessOrEqual(t, size, int64(100_000))
}

// A wait for another process's lock ends with the context.
func TestLocalCacheLockWait(t *testing.T) {
	c, err := newLocalCache(t.TempDir(), 1<<20, false)
	require.NoError(t, err)
	unlock, err := c.lock(t.Context(), "usage.lock")
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = c.lock(ctx, "usage.lock")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	unlock()
	unlock, err = c.lock(t.Context(), "usage.lock")
	require.NoError(t, err)
	unlock()
}

// testGroup is a decoded row group and its cache file.
func testGroup(t testing.TB, text bool) (rec arrow.Record, k cacheKey, file []byte) {
	blobs := newMemBlobs()
	m := write(t, Options{Blobs: blobs}, randomSamples(21, 20, 15))
	d := open(t, blobs, m, DatasetOptions{WithoutText: !text})
	rec, err := d.readGroup(t.Context(), 0)
	require.NoError(t, err)
	t.Cleanup(rec.Release)
	k = cacheKey{m.Shards[0].Digest, 0, m.Shards[0].Groups[0]}
	file, err = encodeIPC(k, text, rec)
	require.NoError(t, err)
	return rec, k, file
}

// The file is an Arrow IPC stream to Arrow's own reader.
func TestCacheFileIsArrow(t *testing.T) {
	for _, text := range []bool{false, true} {
		rec, _, file := testGroup(t, text)
		r, err := ipc.NewReader(bytes.NewReader(file))
		require.NoError(t, err)
		defer r.Release()
		require.True(t, r.Schema().Equal(rec.Schema()))
		require.True(t, r.Next())
		requireSamples(t, copySamples(t, rec), copySamples(t, r.Record()))
		require.False(t, r.Next())
		require.NoError(t, r.Err())
	}
}

// parse reads a stream whose checksum is taken to be right.
func parse(t testing.TB, stream []byte, text bool, rows int64) (arrow.Record, error) {
	prefix, err := ipcSchema(Schema(text))
	require.NoError(t, err)
	m := newMapping(stream)
	// The memory is Go's: only the references are counted.
	rec, err := parseIPC(stream, prefix, readColumns(text), Schema(text), rows, func(b []byte) *memory.Buffer {
		m.refs.Add(1)
		return memory.NewBufferWithAllocator(b, m)
	})
	mappings.Add(-1)
	if err != nil {
		require.EqualValues(t, 1, m.refs.Load(), "an error keeps nothing")
		return nil, err
	}
	m.refs.Add(1 << 30) // never unmapped
	return rec, nil
}

// Files of any content whose checksum is right are an error or a sound record,
// never a crash and never rows that reach outside. Files whose checksum is wrong
// are an error always.
func FuzzCacheFile(f *testing.F) {
	_, k, file := testGroup(f, true)
	stream := file[:len(file)-trailerBytes]
	prefix, err := ipcSchema(Schema(true))
	require.NoError(f, err)
	f.Add(stream[len(prefix):])
	for i := range 60 {
		bad := bytes.Clone(stream[len(prefix):])
		bad[i*len(bad)/60] ^= 1 << (i % 8)
		f.Add(bad)
	}
	for i := range 40 { // the message's own numbers
		bad := bytes.Clone(stream[len(prefix):])
		binary.LittleEndian.PutUint32(bad[8+4*i:], uint32(1)<<(i%32))
		f.Add(bad)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, err := checkIPC(append(bytes.Clone(file[:len(prefix)]), b...), k, true)
		require.Error(t, err)
		s := make([]byte, 0, len(prefix)+len(b)) // at an address that is a multiple of 8
		s = append(append(s, prefix...), b...)
		rec, err := parse(t, s, true, k.rows)
		if err != nil {
			return
		}
		defer rec.Release()
		got, err := Samples(rec)
		require.NoError(t, err)
		require.Len(t, got, int(k.rows))
		for _, x := range got {
			_ = fmt.Sprint(x.ID, x.Prompt, x.Reference, x.Alternatives)
			for _, sp := range x.Spans {
				require.True(t, 0 <= sp.Start && sp.Start < sp.End && sp.End <= len(x.Tokens))
			}
		}
	})
}

// A forged file of a sound checksum is refused for what it says.
func TestCacheFileForged(t *testing.T) {
	_, k, file := testGroup(t, false)
	stream := file[:len(file)-trailerBytes]
	seal := func(stream []byte) []byte {
		out := appendTrailer(bytes.Clone(stream), k, false)
		h := xxh3.Hash128(out).Bytes()
		return append(out, h[:]...)
	}
	require.Equal(t, file, seal(stream))
	_, _, other := testGroup(t, true)
	for name, b := range map[string][]byte{
		"no record":        stream[:len(stream)/2],
		"other schema":     other[:len(other)-trailerBytes],
		"trailing bytes":   append(bytes.Clone(stream), 0, 0, 0, 0, 0, 0, 0, 0),
		"nothing":          nil,
		"without the mark": stream[:len(stream)-8],
	} {
		got, err := checkIPC(seal(b), k, false)
		require.NoError(t, err, name)
		_, err = parse(t, got, false, k.rows)
		require.Error(t, err, name)
	}
}
