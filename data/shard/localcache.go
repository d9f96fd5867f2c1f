package shard

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/specstream/specstream"
)

// cacheLayout names the folder of this layout of files below a cache folder.
const cacheLayout = "arrow1"

// cacheLocks is how many locks the builders of files share. Two that build
// files of one lock wait for one another without need, which is rare.
const cacheLocks = 64

// staleTemp is the age after which a file that was never completed is removed.
const staleTemp = time.Hour

// localCache is a folder of decoded row groups that processes share:
//
//	DIR/arrow1/ab/<shard's hex>-<row group>-tokens|text   the files, mapped for reading
//	DIR/arrow1/locks/NN                                   held by who builds a file
//	DIR/arrow1/usage                                      the bytes of all files
//	DIR/arrow1/usage.lock                                 held by who changes the usage
//
// A file appears whole under its name and is never changed. It is verified
// whenever it is mapped, so that nothing depends on the disk or on a crash.
type localCache struct {
	dir    string
	limit  int64
	text   bool
	cols   []column
	schema *arrow.Schema
	prefix []byte // every stream's beginning
}

// cacheKey names a row group of so many rows.
type cacheKey struct {
	shard specstream.Digest
	group int
	rows  int64
}

func newLocalCache(dir string, limit int64, text bool) (*localCache, error) {
	if limit < 1 {
		return nil, specstream.Invalid("cache_limit", "%d bytes is not positive", limit)
	}
	schema := Schema(text)
	prefix, err := ipcSchema(schema)
	if err != nil {
		return nil, err
	}
	c := &localCache{dir: filepath.Join(dir, cacheLayout), limit: limit, text: text, cols: readColumns(text), schema: schema, prefix: prefix}
	if err := os.MkdirAll(filepath.Join(c.dir, "locks"), 0o755); err != nil {
		return nil, fmt.Errorf("local cache: %w", err)
	}
	return c, nil
}

func (c *localCache) path(k cacheKey) string {
	kind := "tokens"
	if c.text {
		kind = "text"
	}
	h := k.shard.Hex()
	return filepath.Join(c.dir, h[:2], fmt.Sprintf("%s-%d-%s", h, k.group, kind))
}

// get returns a row group mapped from its file, which it makes of what load
// returns if it is absent or damaged. The caller releases the record.
func (c *localCache) get(ctx context.Context, k cacheKey, load func() (arrow.Record, error)) (arrow.Record, error) {
	path := c.path(k)
	rec, err := c.open(path, k)
	if !missing(err) {
		return rec, err
	}
	unlock, err := c.lock(ctx, filepath.Join("locks", fmt.Sprintf("%02d", lockOf(k))))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if rec, err = c.open(path, k); !missing(err) { // another has just made it
		return rec, err
	}
	built, err := load()
	if err != nil {
		return nil, err
	}
	defer built.Release()
	b, err := encodeIPC(k, c.text, built)
	if err != nil {
		return nil, err
	}
	if err := c.install(ctx, path, b); err != nil {
		return nil, err
	}
	rec, err = c.open(path, k)
	if errors.Is(err, fs.ErrNotExist) { // evicted already: others fill the cache faster than it is read
		built.Retain()
		return built, nil
	}
	return rec, err
}

// missing reports whether a file is to be made anew.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrCorrupt) }

// lockOf spreads keys over the locks.
func lockOf(k cacheKey) int { return (int(digestBytes(k.shard)[0]) + k.group) % cacheLocks }

// open maps and verifies a file. An absent one is fs.ErrNotExist, any other than
// the row group's is ErrCorrupt.
func (c *localCache) open(path string, k cacheKey) (rec arrow.Record, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() < trailerBytes {
		return nil, fmt.Errorf("%s: %w: it has only %d bytes", path, ErrCorrupt, st.Size())
	}
	b, err := mapFile(f, st.Size())
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	m := newMapping(b)
	defer m.Free(nil)
	rec, err = c.verify(b, k, m)
	if err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrCorrupt, err)
	}
	// The time of use is a hint to eviction and no more: the file may be evicted
	// already, or another user's.
	now := time.Now()
	_ = os.Chtimes(path, now, now)
	return rec, nil
}

// verify checks a mapped file and returns its record. Pages that can't be read,
// because the disk fails or the file was cut while it was mapped, are an error
// here, and not the end of the process as they would be later.
func (c *localCache) verify(b []byte, k cacheKey, m *mapping) (rec arrow.Record, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			rec, err = nil, fmt.Errorf("its pages can't be read: %v", p)
		}
	}()
	stream, err := checkIPC(b, k, c.text)
	if err != nil {
		return nil, err
	}
	return parseIPC(stream, c.prefix, c.cols, c.schema, k.rows, m.buffer)
}

// install writes a file after making room for it.
func (c *localCache) install(ctx context.Context, path string, b []byte) (err error) {
	if err := c.reserve(ctx, int64(len(b))); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".*.tmp")
	if err != nil {
		return err
	}
	// No sync: a file that a crash leaves incomplete is found out by its checksum.
	_, err = f.Write(b)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", path, err), os.Remove(f.Name()))
	}
	return nil
}

// reserve adds n bytes to the usage, after removing the least recently used
// files if the limit asks for it. Files that are mapped stay readable for those
// who have mapped them. The usage is never below what the files take: if a
// process ends before it has written what it reserved, or somebody removes
// files, it is too high until the next eviction counts them.
func (c *localCache) reserve(ctx context.Context, n int64) (err error) {
	unlock, err := c.lock(ctx, "usage.lock")
	if err != nil {
		return err
	}
	defer unlock()
	path := filepath.Join(c.dir, "usage")
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	used := int64(-1) // unknown: count
	if len(b) == 8 {
		used = int64(binary.LittleEndian.Uint64(b))
	}
	if used < 0 || used > c.limit-n {
		if used, err = c.evict(c.limit - c.limit/8 - n); err != nil {
			return err
		}
	}
	return os.WriteFile(path, binary.LittleEndian.AppendUint64(nil, uint64(used+n)), 0o644)
}

// evict removes the least recently used files until the others take at most most
// bytes, and returns what they take.
func (c *localCache) evict(most int64) (used int64, err error) {
	type file struct {
		path string
		size int64
		used time.Time
	}
	var files []file
	err = filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || e.IsDir() || !strings.Contains(e.Name(), "-") && !strings.HasSuffix(e.Name(), ".tmp") {
			return err
		}
		st, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if !strings.HasSuffix(path, ".tmp") || time.Since(st.ModTime()) > staleTemp {
			files = append(files, file{path, st.Size(), st.ModTime()})
		}
		used += st.Size()
		return nil
	})
	if err != nil {
		return 0, err
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Or(a.used.Compare(b.used), cmp.Compare(a.path, b.path)) })
	for _, f := range files {
		if used <= most && !strings.HasSuffix(f.path, ".tmp") {
			continue
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("evict: %w", err)
		}
		used -= f.size
	}
	return used, nil
}

// lock takes a lock of the folder, waiting for it.
func (c *localCache) lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(c.dir, name), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		ok, err := tryLock(f)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
		}
		if ok {
			return func() { f.Close() }, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		case <-time.After(wait):
		}
	}
}

// mapping is a mapped file, unmapped when its last buffer is released. It is the
// allocator of those buffers, for the sake of Free.
type mapping struct {
	b    []byte
	refs atomic.Int64
}

// mappings counts the files that are mapped.
var mappings atomic.Int64

// newMapping returns a mapping with one reference.
func newMapping(b []byte) *mapping {
	m := &mapping{b: b}
	m.refs.Store(1)
	mappings.Add(1)
	return m
}

// buffer returns a part of the file as an Arrow buffer that holds a reference.
func (m *mapping) buffer(b []byte) *memory.Buffer {
	m.refs.Add(1)
	return memory.NewBufferWithAllocator(b, m)
}

// Free implements [memory.Allocator]: it gives one reference up.
func (m *mapping) Free([]byte) {
	if m.refs.Add(-1) == 0 {
		unmapFile(m.b)
		mappings.Add(-1)
	}
}

// Allocate and Reallocate are never called: the buffers can't be changed.
func (m *mapping) Allocate(int) []byte           { panic("shard: a mapped file is read only") }
func (m *mapping) Reallocate(int, []byte) []byte { panic("shard: a mapped file is read only") }
