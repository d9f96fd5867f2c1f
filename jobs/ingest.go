package jobs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/data/ingest"
	"github.com/specstream/specstream/data/shard"
)

// IngestOptions say how an ingestion is run; they change no result.
type IngestOptions struct {
	// Out is a folder or, as s3:// or file:// URI, a store. A dry run has none.
	Out string
	// DryRun ingests without keeping anything.
	DryRun bool
	// Show is how many samples the result is to show.
	Show int
	// Workers is how many records are worked on at once. Default: as many as CPUs.
	Workers int
	// Quarantine takes a JSON line for each record that was not kept as it was.
	// May be nil.
	Quarantine io.Writer
	// Progress is told how far the work is. May be nil.
	Progress func(ingest.Progress)
}

// IngestResult is the account of an ingest and, in a store, its reference.
type IngestResult struct {
	ingest.Account
	Ref string `json:"ref,omitempty"`
	// Shown are the first samples, as many as were asked for.
	Shown []ShownSample `json:"shown,omitempty"`
}

// ShownSample is a sample for people to look at.
type ShownSample struct {
	ID               string `json:"id"`
	Prompt           string `json:"prompt"`
	Reference        string `json:"reference"`
	Tokens           int    `json:"tokens"`
	CompletionTokens int    `json:"completion_tokens"`
}

// IngestTo ingests into a folder or a store. Run again, it goes on where it was
// stopped.
func IngestTo(ctx context.Context, spec specstream.DataSpec, o IngestOptions) (res IngestResult, err error) {
	opts, err := ingestOptions(spec.Tokenizer, o)
	if err != nil {
		return res, err
	}
	work := workDir()
	if err := os.MkdirAll(work, 0o755); err != nil {
		return res, fmt.Errorf("work folder: %w", err)
	}
	var remove func() error
	if opts.Scratch, remove, err = (&Env{Work: work}).scratch(); err != nil {
		return res, err
	}
	defer func() {
		res.show()
		err = errors.Join(err, remove())
	}()
	switch {
	case o.DryRun:
		opts.Blobs, opts.Shards = shard.DirBlobs{Dir: opts.Scratch}, ingest.Discard{}
		res.Account, err = ingest.Run(ctx, spec, opts)
		return res, err
	case strings.Contains(o.Out, "://"):
		e, err := OpenEnv(ctx, o.Out, work)
		if err != nil {
			return res, err
		}
		e.place(&opts)
		if res.Account, err = ingest.Run(ctx, spec, opts); err != nil {
			return res, err
		}
		info, err := e.commitDataset(ctx, res.Account)
		res.Ref = info.Ref.String()
		return res, err
	}
	blobs := shard.DirBlobs{Dir: o.Out}
	opts.Blobs, opts.Memo = blobs, ingest.DirMemo{Dir: filepath.Join(o.Out, "memo")}
	if res.Account, err = ingest.Run(ctx, spec, opts); err != nil {
		return res, err
	}
	return res, blobs.PutManifest(res.Dataset)
}

func (r *IngestResult) show() {
	for _, s := range r.Account.Shown {
		r.Shown = append(r.Shown, ShownSample{ID: s.ID, Prompt: s.Prompt, Reference: s.Reference, Tokens: len(s.Tokens), CompletionTokens: s.CompletionTokens()})
	}
}

// ingestOptions completes what the stages need but the places to write to.
func ingestOptions(tokenizerPath string, o IngestOptions) (ingest.Options, error) {
	tok, err := loadTokenizer(tokenizerPath)
	if err != nil {
		return ingest.Options{}, err
	}
	in := newInputs()
	opts := ingest.Options{Tokenizer: tok, TokenizerDir: filepath.Dir(tokenizerPath), Open: in.open, List: in.list, Workers: o.Workers, Show: o.Show, Progress: o.Progress}
	if o.Quarantine != nil {
		opts.Quarantine = quarantineLines(o.Quarantine)
	}
	return opts, nil
}

// quarantineLines writes a JSON line for each record.
func quarantineLines(w io.Writer) func(ingest.Quarantined) error {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	return func(q ingest.Quarantined) error { return lines.Encode(q) }
}

// Quarantine writes a JSON line for each record that a dataset, the folder or the
// reference in a store, did not keep as it was.
func Quarantine(ctx context.Context, store, dataset string, w io.Writer) error {
	if store == "" {
		blobs := shard.DirBlobs{Dir: strings.TrimSuffix(dataset, shard.ManifestFile)}
		m, err := blobs.Manifest()
		if err != nil {
			return err
		}
		return ingest.Quarantine(ctx, blobs, m, quarantineLines(w))
	}
	ref, err := specstream.ParseRef(dataset)
	if err != nil {
		return specstream.Invalid("dataset", "%v", err)
	}
	e, err := OpenEnv(ctx, store, workDir())
	if err != nil {
		return err
	}
	d, err := e.openDataset(ctx, ref)
	if err != nil {
		return err
	}
	return ingest.Quarantine(ctx, repoBlobs{e.Repo}, d.manifest, quarantineLines(w))
}

// workDir is for the scratch of what is run by hand.
func workDir() string {
	return filepath.Join(os.TempDir(), fmt.Sprintf("specstream-ingest-%d", os.Getuid()))
}

// place makes the stages work against the store.
func (e *Env) place(o *ingest.Options) {
	o.Blobs, o.Memo = repoBlobs{e.Repo}, storeMemo{e.Repo.Store}
}

// DatasetInfo describes a committed dataset.
type DatasetInfo struct {
	Ref     specstream.Ref    `json:"ref"`
	Digest  specstream.Digest `json:"digest"`
	Account ingest.Account    `json:"account"`
}

// commitDataset commits the dataset: its manifest, its shards and what else the
// manifest names.
// Equal records, template and tokenizer are one commit.
func (e *Env) commitDataset(ctx context.Context, account ingest.Account) (DatasetInfo, error) {
	b, err := account.Dataset.Encode()
	if err != nil {
		return DatasetInfo{}, err
	}
	d, err := e.Repo.PutBlob(ctx, b)
	if err != nil {
		return DatasetInfo{}, fmt.Errorf("store dataset manifest: %w", err)
	}
	m := checkpoints.Manifest{Kind: checkpoints.KindDataset, Spec: rawJSON(account.Dataset.Lineage.Spec),
		Files: []checkpoints.File{{Name: shard.ManifestFile, Digest: d, Size: int64(len(b))}}}
	shards := map[specstream.Digest]bool{}
	for _, s := range account.Dataset.Shards {
		shards[s.Digest] = true
	}
	for _, b := range account.Dataset.Blobs() {
		name := "blobs/" + b.Digest.Hex()
		if shards[b.Digest] {
			name = "shards/" + b.Digest.Hex() + ".parquet"
		}
		m.Files = append(m.Files, checkpoints.File{Name: name, Digest: b.Digest, Size: b.Bytes})
	}
	m.Run = runName("dataset", m.ContentDigest())
	ref, err := e.Repo.Commit(ctx, m)
	if err != nil {
		return DatasetInfo{}, err
	}
	m, err = e.Repo.ReadManifest(ctx, ref)
	return DatasetInfo{Ref: ref, Digest: m.Content, Account: account}, err
}
