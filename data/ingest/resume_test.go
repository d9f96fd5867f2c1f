package ingest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/clean"
	"github.com/specstream/specstream/data/shard"
)

// errKilled is how a killed worker's stores answer it.
var errKilled = errors.New("killed")

// mortal are stores as a worker sees them that may be killed at any call, before
// or after the call took effect.
type mortal struct {
	blobs Blobs
	memo  Memo
	mu    sync.Mutex
	rng   *rand.Rand
	odds  float64
}

func (m *mortal) dies() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.rng.Float64() < m.odds
}

func (m *mortal) PutBlob(ctx context.Context, b []byte) (specstream.Digest, error) {
	if m.dies() {
		return "", errKilled
	}
	d, err := m.blobs.PutBlob(ctx, b)
	if err == nil && m.dies() {
		return "", errKilled
	}
	return d, err
}

func (m *mortal) OpenBlob(ctx context.Context, d specstream.Digest) (shard.BlobReader, error) {
	if m.dies() {
		return nil, errKilled
	}
	return m.blobs.OpenBlob(ctx, d)
}

func (m *mortal) Get(ctx context.Context, key string) ([]byte, bool, error) {
	if m.dies() {
		return nil, false, errKilled
	}
	return m.memo.Get(ctx, key)
}

func (m *mortal) Put(ctx context.Context, key string, b []byte) error {
	if m.dies() {
		return errKilled
	}
	err := m.memo.Put(ctx, key, b)
	if err == nil && m.dies() {
		return errKilled
	}
	return err
}

// chat makes conversations of which some are equal to others, some blocked and
// some changed by cleaning.
func chat(from, to int) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		text := fmt.Sprintf("The answer to question %d is the number %d, as everybody knows.", i%170, i%170)
		switch {
		case i%31 == 5:
			text = "As an AI language model I cannot say. " + text
		case i%13 == 4:
			text = fmt.Sprintf("<p>It is <b>%d</b>.</p>", i)
		}
		fmt.Fprintf(&b, `{"id":"r%d","conversations":[{"from":"human","value":"What is the answer to question %d?"},{"from":"gpt","value":%q}]}`+"\n", i, i%170, text)
	}
	return b.String()
}

func chatSpec(inputs ...string) specstream.DataSpec {
	return specstream.DataSpec{Format: "sharegpt", Inputs: inputs, PartitionBytes: 6000, ShardTokens: 20_000, MaxBad: "3",
		Clean: &specstream.CleanSpec{HTML: true, BlockedPhrases: []string{"As an AI language model"}, Dedupe: specstream.DedupeExact}}
}

// retry calls f again until no store has killed it.
func retry(t testing.TB, f func() error) {
	t.Helper()
	for try := 0; ; try++ {
		err := f()
		if err == nil {
			return
		}
		if try > 10_000 || !errors.Is(err, errKilled) && !errors.Is(err, context.DeadlineExceeded) {
			require.NoError(t, err)
		}
	}
}

// TestWorkersAndKills: the data set is the same for 1, 3 and 8 workers that are
// killed at random moments, and the same as that of one run.
func TestWorkersAndKills(t *testing.T) {
	files := map[string]string{"a": chat(0, 250), "b": chat(250, 300) + `{"conversations":3}` + "\n" + chat(300, 400), "c": chat(100, 220)}
	spec := chatSpec("a", "b", "c")
	want, err := Run(t.Context(), spec, with(files, nil))
	require.NoError(t, err)
	require.Greater(t, len(want.Dataset.Lineage.Parts), 10)
	require.Positive(t, want.Changed[clean.ChangedHTML])
	require.Greater(t, len(want.Dropped), 2)

	for _, workers := range []int{1, 3, 8} {
		t.Run(fmt.Sprint(workers), func(t *testing.T) {
			blobs, memo := &memBlobs{}, &MemMemo{}
			var kills atomic.Int64
			open := func(worker int, seed uint64) Options {
				m := &mortal{blobs: blobs, memo: memo, rng: rand.New(rand.NewPCG(uint64(worker), seed)), odds: 0.03}
				return with(files, func(o *Options) { o.Blobs, o.Memo, o.Workers = m, m, 1+worker%3 })
			}
			var plan, resolution specstream.Digest
			var parts int
			seed := uint64(0)
			retry(t, func() error {
				seed++
				j, err := NewJob(t.Context(), spec, open(0, seed))
				if err == nil {
					plan, parts = j.Digest(), len(j.Plan().Parts)
				}
				return err
			})
			// attempt is one attempt at a piece of work by a new process, which
			// may also be killed by time.
			attempt := func(worker int, do func(ctx context.Context, j *Job) error) {
				rng := rand.New(rand.NewPCG(uint64(worker), 7))
				retry(t, func() error {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rng.IntN(40))*time.Millisecond)
					if rng.IntN(3) > 0 {
						cancel()
						ctx, cancel = context.WithCancel(t.Context())
					}
					defer cancel()
					j, err := OpenJob(ctx, plan, open(worker, rng.Uint64()))
					if err == nil && resolution != "" {
						err = j.Use(ctx, resolution)
					}
					if err == nil {
						err = do(ctx, j)
					}
					if err != nil {
						kills.Add(1)
					}
					return err
				})
			}
			all := func(do func(ctx context.Context, j *Job, part int) error) {
				var next atomic.Int64
				var wg sync.WaitGroup
				order := rand.New(rand.NewPCG(1, uint64(workers))).Perm(parts)
				for w := range workers {
					wg.Go(func() {
						for i := int(next.Add(1)) - 1; i < parts; i = int(next.Add(1)) - 1 {
							attempt(w+1, func(ctx context.Context, j *Job) error { return do(ctx, j, order[i]) })
						}
					})
				}
				wg.Wait()
			}
			all(func(ctx context.Context, j *Job, part int) error { return j.Sign(ctx, part) })
			attempt(0, func(ctx context.Context, j *Job) (err error) {
				d, err := j.Resolve(ctx)
				if err == nil {
					resolution = d
				}
				return err
			})
			all(func(ctx context.Context, j *Job, part int) error {
				_, err := j.Process(ctx, part)
				return err
			})
			var got Account
			attempt(0, func(ctx context.Context, j *Job) (err error) {
				got, err = j.Finish(ctx)
				return err
			})
			require.Equal(t, want, got)
			require.Positive(t, kills.Load())
			require.Len(t, samples(t, blobs, got.Dataset), int(want.Samples))
		})
	}
}

// counting counts the openings of inputs.
func counting(open data.Opener, n *atomic.Int64) data.Opener {
	return func(ctx context.Context, uri string) (io.ReadCloser, error) {
		n.Add(1)
		return open(ctx, uri)
	}
}

// TestDoneIsNotDoneAgain: a second run only scans.
func TestDoneIsNotDoneAgain(t *testing.T) {
	files := map[string]string{"a": chat(0, 200), "b": chat(150, 300)}
	dir := t.TempDir()
	o := with(files, func(o *Options) { o.Blobs, o.Memo = shard.DirBlobs{Dir: dir}, DirMemo{filepath.Join(dir, "memo")} })
	var first, second []Quarantined
	o.Quarantine = collect(&first)
	want, err := Run(t.Context(), chatSpec("a", "b"), o)
	require.NoError(t, err)
	require.NotEmpty(t, first)

	var opened atomic.Int64
	o.Open = counting(memory(files), &opened)
	o.Quarantine = collect(&second)
	got, err := Run(t.Context(), chatSpec("a", "b"), o)
	require.NoError(t, err)
	require.Equal(t, want, got)
	require.Equal(t, first, second, "what is remembered of a part has its quarantine")
	var stored []Quarantined
	require.NoError(t, Quarantine(t.Context(), o.Blobs, got.Dataset, collect(&stored)))
	require.Equal(t, first, stored, "the data set tells it later too")
	require.Equal(t, int64(2), opened.Load(), "one scan of each input")

	t.Run("lost blobs are made again", func(t *testing.T) {
		require.NoError(t, os.RemoveAll(filepath.Join(dir, "blobs")))
		got, err := Run(t.Context(), chatSpec("a", "b"), o)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Len(t, samples(t, o.Blobs, got.Dataset), int(want.Samples))
	})
	t.Run("damaged memos are made again", func(t *testing.T) {
		memos, err := filepath.Glob(filepath.Join(dir, "memo", "*", "*.json"))
		require.NoError(t, err)
		require.NotEmpty(t, memos)
		for i, path := range memos {
			b, err := os.ReadFile(path)
			require.NoError(t, err)
			if i%2 == 0 {
				b = b[:len(b)/2]
			} else {
				b[len(b)/2] ^= 1
			}
			require.NoError(t, os.WriteFile(path, b, 0o644))
		}
		got, err := Run(t.Context(), chatSpec("a", "b"), o)
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
	t.Run("a moved file is not processed again", func(t *testing.T) {
		moved := map[string]string{"elsewhere/a2": files["a"], "b": files["b"]}
		opened.Store(0)
		o := o
		o.Open = counting(memory(moved), &opened)
		var q []Quarantined
		o.Quarantine = collect(&q)
		got, err := Run(t.Context(), chatSpec("elsewhere/a2", "b"), o)
		require.NoError(t, err)
		require.Equal(t, int64(2), opened.Load())
		require.Equal(t, want.Dataset.Shards, got.Dataset.Shards)
		require.Equal(t, "elsewhere/a2", got.Dataset.Lineage.Sources[0].URI)
		require.Equal(t, "elsewhere/a2", q[0].File)
	})
}

// TestGrown: a data set grown by new inputs has the shards of the old one, and
// only what is new is processed.
func TestGrown(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []string
		after  []string
		files  map[string]string // afterwards
	}{
		{"by an input", []string{"a"}, []string{"a", "b"}, map[string]string{"a": chat(0, 200), "b": chat(100, 300)}},
		{"by lines", []string{"a"}, []string{"a"}, map[string]string{"a": chat(0, 200) + chat(200, 300)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := with(map[string]string{"a": chat(0, 200)}, func(o *Options) { o.Memo = &MemMemo{} })
			old, err := Run(t.Context(), chatSpec(c.before...), before)
			require.NoError(t, err)

			o := before
			o.Open = memory(c.files)
			j, err := NewJob(t.Context(), chatSpec(c.after...), o)
			require.NoError(t, err)
			_, err = j.Resolve(t.Context())
			require.NoError(t, err)
			pending, err := j.Pending(t.Context(), StageProcess)
			require.NoError(t, err)
			require.NotEmpty(t, pending)
			whole := len(old.Dataset.Lineage.Parts)
			if c.name == "by lines" {
				whole-- // its last part has grown
			}
			require.Equal(t, whole, pending[0], "old parts are done")
			grown, err := j.Finish(t.Context())
			require.NoError(t, err)
			last := old.Dataset.Lineage.Parts[whole-1].Shards[1]
			require.Equal(t, old.Dataset.Shards[:last], grown.Dataset.Shards[:last])
			require.NotEqual(t, old.Manifest, grown.Manifest)
			require.Greater(t, grown.Dropped[clean.ReasonExact], old.Dropped[clean.ReasonExact])

			fresh, err := Run(t.Context(), chatSpec(c.after...), with(c.files, nil))
			require.NoError(t, err)
			require.Equal(t, fresh, grown, "as if it had been made at once")
		})
	}
}

// TestDiscard: a run that writes nothing tells the same.
func TestDiscard(t *testing.T) {
	files := map[string]string{"a": chat(0, 300)}
	want, err := Run(t.Context(), chatSpec("a"), with(files, nil))
	require.NoError(t, err)
	got, err := Run(t.Context(), chatSpec("a"), with(files, func(o *Options) { o.Shards = Discard{} }))
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestOpenJobRefusesWhatDoesNotFit(t *testing.T) {
	files := map[string]string{"a": chat(0, 50)}
	o := with(files, nil)
	j, err := NewJob(t.Context(), chatSpec("a"), o)
	require.NoError(t, err)
	d, err := j.Resolve(t.Context())
	require.NoError(t, err)
	other := chatSpec("a")
	other.MaxLength = 99
	j2, err := NewJob(t.Context(), other, o)
	require.NoError(t, err)
	require.ErrorContains(t, j2.Use(t.Context(), d), "is not that of the plan")
	require.ErrorContains(t, j2.Sign(t.Context(), 99), "part")
	_, err = j2.Process(t.Context(), 0)
	require.ErrorContains(t, err, "not resolved")

	o.Tokenizer = otherTokenizer{}
	_, err = OpenJob(t.Context(), j.Digest(), o)
	require.ErrorContains(t, err, `field "tokenizer"`)
	require.True(t, specstream.BadInput(err))
	_, err = OpenJob(t.Context(), specstream.DigestBytes([]byte("?")), o)
	require.ErrorIs(t, err, os.ErrNotExist)
}

type otherTokenizer struct{ byteTokenizer }

func (otherTokenizer) Digest() specstream.Digest { return specstream.DigestBytes([]byte("other")) }
