package shard_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
)

// A data set is written to a folder, and two workers read one step of training
// from it.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "dataset")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	store := shard.DirBlobs{Dir: dir}

	w, err := shard.NewWriter(shard.Options{Blobs: store})
	if err != nil {
		log.Fatal(err)
	}
	for i := range int32(10) {
		s := data.Sample{ID: fmt.Sprintf("q%d/1", i), Tokens: []int32{i, 100, 101}, Spans: []data.Span{{Start: 1, End: 3}}}
		if err := w.Write(ctx, s); err != nil {
			log.Fatal(err)
		}
	}
	m, err := w.Commit(ctx, shard.Lineage{
		Spec:      specstream.DataSpec{Format: "sql", Inputs: []string{"questions.json"}},
		Template:  "plain/1",
		Tokenizer: specstream.DigestBytes([]byte("tokenizer.json")),
		VocabSize: 102,
		Sources:   []shard.Source{{URI: "questions.json", SHA256: specstream.DigestBytes(nil), Records: 10}},
		Account:   shard.Account{Read: 10, Kept: 10},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.PutManifest(m); err != nil {
		log.Fatal(err)
	}

	d, err := shard.OpenDataset(ctx, store, m, shard.DatasetOptions{WithoutText: true})
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	order, err := shard.NewOrder(m, shard.OrderOptions{Seed: 1, GlobalBatch: 5})
	if err != nil {
		log.Fatal(err)
	}
	step, err := order.Step(ctx, 0)
	if err != nil {
		log.Fatal(err)
	}
	for rank := range 2 {
		rec, err := d.Batch(ctx, shard.Slice(step, rank, 2))
		if err != nil {
			log.Fatal(err)
		}
		samples, err := shard.Samples(rec)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("worker", rank, "has", len(samples), "samples of", len(samples[0].Tokens), "tokens")
		rec.Release()
	}
	// Output:
	// worker 0 has 3 samples of 3 tokens
	// worker 1 has 2 samples of 3 tokens
}
