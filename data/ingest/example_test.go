package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data/ingest"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/data/synth"
)

// Ingest a hundred generated SQL questions into a folder. Inputs may come from
// anywhere; here they are held in memory.
func Example() {
	var file bytes.Buffer
	if err := synth.SQL(&file, 1, 100, synth.Train); err != nil {
		fmt.Println(err)
		return
	}
	dir, err := os.MkdirTemp("", "dataset")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	w, err := shard.NewWriter(shard.Options{Blobs: shard.DirBlobs{Dir: dir}})
	if err != nil {
		fmt.Println(err)
		return
	}
	account, err := ingest.Run(context.Background(), ingest.Options{
		Spec:      specstream.DataSpec{Format: "sql", Inputs: []string{"mem://questions.json"}},
		Tokenizer: bytesTokenizer{},
		Writer:    w,
		Opener: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(file.Bytes())), nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// The data set exists once its manifest is stored.
	if err := (shard.DirBlobs{Dir: dir}).PutManifest(account.Dataset); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(account.Read, account.Kept, account.Samples, account.Shards)
	// Output: 100 100 100 1
}

// bytesTokenizer has a token for each byte; 256 ends a sequence.
type bytesTokenizer struct{}

func (bytesTokenizer) Encode(dst []int32, text string) []int32 {
	for _, b := range []byte(text) {
		dst = append(dst, int32(b))
	}
	return dst
}

func (bytesTokenizer) Decode(ids []int32) string {
	var b []byte
	for _, id := range ids {
		if id < 256 {
			b = append(b, byte(id))
		}
	}
	return string(b)
}
func (bytesTokenizer) BOS() (int32, bool)        { return 0, false }
func (bytesTokenizer) EOS() (int32, bool)        { return 256, true }
func (bytesTokenizer) VocabSize() int            { return 257 }
func (bytesTokenizer) Digest() specstream.Digest { return specstream.DigestBytes([]byte("bytes")) }
