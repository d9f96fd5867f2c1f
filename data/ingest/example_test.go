package ingest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

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
	blobs := shard.DirBlobs{Dir: dir}
	spec := specstream.DataSpec{Format: "sql", Inputs: []string{"mem://questions.json"}}
	options := ingest.Options{
		Tokenizer: bytesTokenizer{},
		Blobs:     blobs,
		Memo:      ingest.DirMemo{Dir: filepath.Join(dir, "memo")},
		Open: func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(file.Bytes())), nil
		},
	}
	account, err := ingest.Run(context.Background(), spec, options)
	if err != nil {
		fmt.Println(err)
		return
	}
	// The data set exists once its manifest is stored.
	if err := blobs.PutManifest(account.Dataset); err != nil {
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

// EncodeMarked encodes each text by itself.
func (t bytesTokenizer) EncodeMarked(dst []int32, texts []string, literal []bool) (ids []int32, marks []int) {
	n := len(dst)
	for i, s := range texts {
		switch {
		case s == "</s>" && !literal[i]:
			dst = append(dst, 256)
		default:
			dst = t.Encode(dst, s)
		}
		marks = append(marks, len(dst)-n)
	}
	return dst, marks
}

func (bytesTokenizer) Token(id int32) string { return map[int32]string{256: "</s>"}[id] }

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
