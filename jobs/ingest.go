package jobs

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/ingest"
	"github.com/specstream/specstream/data/shard"
)

// IngestResult is the account of an ingest and, in a store, its reference.
type IngestResult struct {
	ingest.Account
	Ref string `json:"ref,omitempty"`
}

// IngestTo ingests into a folder or, for an s3:// or file:// URI, a store.
func IngestTo(ctx context.Context, spec specstream.DataSpec, out string, quarantine io.Writer, progress func(ingest.Progress)) (IngestResult, error) {
	tok, err := loadTokenizer(spec.Tokenizer)
	if err != nil {
		return IngestResult{}, err
	}
	if strings.Contains(out, "://") {
		e, err := OpenEnv(ctx, out, filepath.Join(os.TempDir(), "specstream-ingest"))
		if err != nil {
			return IngestResult{}, err
		}
		account, ref, err := e.ingest(ctx, spec, tok, quarantine, progress)
		return IngestResult{Account: account, Ref: ref.String()}, err
	}
	blobs := shard.DirBlobs{Dir: out}
	account, err := runIngest(ctx, spec, tok, blobs, quarantine, progress)
	if err != nil {
		return IngestResult{Account: account}, err
	}
	return IngestResult{Account: account}, blobs.PutManifest(account.Dataset)
}

func runIngest(ctx context.Context, spec specstream.DataSpec, tok data.Tokenizer, blobs shard.Blobs, quarantine io.Writer, progress func(ingest.Progress)) (ingest.Account, error) {
	spec = spec.WithDefaults()
	w, err := shard.NewWriter(shard.Options{Blobs: blobs, ShardTokens: spec.ShardTokens})
	if err != nil {
		return ingest.Account{}, err
	}
	return ingest.Run(ctx, ingest.Options{Spec: spec, Tokenizer: tok, Opener: opener, Writer: w, Quarantine: quarantine, Progress: progress})
}

// ingest ingests into the store and commits the dataset: its shards and its
// manifest. Equal records, template and tokenizer are one commit.
func (e *Env) ingest(ctx context.Context, spec specstream.DataSpec, tok data.Tokenizer, quarantine io.Writer, progress func(ingest.Progress)) (ingest.Account, specstream.Ref, error) {
	account, err := runIngest(ctx, spec, tok, repoBlobs{e.Repo}, quarantine, progress)
	if err != nil {
		return account, specstream.Ref{}, err
	}
	b, err := account.Dataset.Encode()
	if err != nil {
		return account, specstream.Ref{}, err
	}
	d, err := e.Repo.PutBlob(ctx, b)
	if err != nil {
		return account, specstream.Ref{}, fmt.Errorf("store dataset manifest: %w", err)
	}
	m := checkpoints.Manifest{Kind: checkpoints.KindDataset, Spec: rawJSON(account.Dataset.Lineage.Spec),
		Files: []checkpoints.File{{Name: shard.ManifestFile, Digest: d, Size: int64(len(b))}}}
	for _, s := range account.Dataset.Shards {
		m.Files = append(m.Files, checkpoints.File{Name: "shards/" + s.Digest.Hex() + ".parquet", Digest: s.Digest, Size: s.Bytes})
	}
	m.Run = runName("dataset", m.ContentDigest())
	ref, err := e.Repo.Commit(ctx, m)
	return account, ref, err
}

// DatasetInfo describes a committed dataset.
type DatasetInfo struct {
	Ref     specstream.Ref    `json:"ref"`
	Digest  specstream.Digest `json:"digest"`
	Account ingest.Account    `json:"account"`
}

// Ingest ingests into the store with the tokenizer the spec names, or the base's.
func (e *Env) Ingest(ctx context.Context, spec specstream.DataSpec, base specstream.Ref, progress func(ingest.Progress)) (DatasetInfo, error) {
	path := spec.Tokenizer
	if path == "" {
		_, dir, err := e.fetch(ctx, base, checkpoints.KindBase)
		if err != nil {
			return DatasetInfo{}, err
		}
		path = filepath.Join(dir, "tokenizer.json")
	}
	tok, err := loadTokenizer(path)
	if err != nil {
		return DatasetInfo{}, err
	}
	account, ref, err := e.ingest(ctx, spec, tok, nil, progress)
	if err != nil {
		return DatasetInfo{}, err
	}
	m, err := e.Repo.ReadManifest(ctx, ref)
	return DatasetInfo{Ref: ref, Digest: m.Content, Account: account}, err
}
