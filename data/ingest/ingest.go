// Package ingest makes a data set of instruction records: it reads inputs,
// decodes, renders and tokenises their records in parallel, and writes the
// samples as shards in the order of the inputs. The same inputs, specification
// and tokenizer give the same data set, byte for byte, however many workers
// take part.
//
// Memory is bounded by the number of workers, the longest record (64 MiB at
// most) and what the writer holds; inputs may be of any size.
package ingest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/shard"
)

// Writer takes the samples and commits them as one data set; [shard.Writer] is
// one.
type Writer interface {
	data.SampleWriter
	// Commit completes the shards and returns the manifest that names them.
	// Until the caller stores it, there is no data set.
	Commit(ctx context.Context, l shard.Lineage) (shard.Manifest, error)
}

// Options configures [Run].
type Options struct {
	// Spec says what is read and how; it is completed with its defaults. Its
	// Tokenizer field is not followed: Tokenizer below is used.
	Spec specstream.DataSpec
	// Tokenizer encodes the text.
	Tokenizer data.Tokenizer
	// Opener opens the inputs. Default: files of the local disk.
	Opener data.Opener
	// Writer takes the samples.
	Writer Writer
	// Quarantine takes a JSON line for each bad record ([Quarantined]); nil
	// keeps none, but they are counted all the same.
	Quarantine io.Writer
	// Progress is told how far the work is, a few times a second and at the
	// end, by the goroutine that called Run. May be nil.
	Progress func(Progress)
	// Workers is the number of records decoded and tokenised at once. Default:
	// the number of CPUs Go uses.
	Workers int
}

// Progress is how far an ingest is.
type Progress struct {
	// File is the input being read.
	File string `json:"file"`
	// Bytes is the number of stored bytes read, over all inputs.
	Bytes int64 `json:"bytes"`
	// Read, Kept and Quarantined count records; Samples and Tokens what they gave.
	Read        int64 `json:"read"`
	Kept        int64 `json:"kept"`
	Quarantined int64 `json:"quarantined"`
	Samples     int64 `json:"samples"`
	Tokens      int64 `json:"tokens"`
}

// Account says what became of the records. Read = Kept + the sum of Dropped.
type Account struct {
	// Read counts the records read.
	Read int64 `json:"read"`
	// Kept counts the records that gave at least one sample.
	Kept int64 `json:"kept"`
	// Dropped counts the records that gave none, by reason: the codes of bad
	// records and of skipped ones in package data.
	Dropped map[string]int64 `json:"dropped"`
	// Changed counts the kept records that normalisation altered, by reason; a
	// record may have several.
	Changed map[string]int64 `json:"changed"`
	// Quarantined counts the bad records among the dropped.
	Quarantined int64 `json:"quarantined"`
	// Samples counts the samples written.
	Samples int64 `json:"samples"`
	// SamplesDropped counts samples left out, by reason: of dropped records
	// and of kept ones, the long turns of a conversation.
	SamplesDropped map[string]int64 `json:"samples_dropped"`
	// Tokens counts all tokens written, CompletionTokens those that carry loss.
	Tokens           int64 `json:"tokens"`
	CompletionTokens int64 `json:"completion_tokens"`
	// Shards is the number of shards.
	Shards int `json:"shards"`
	// Manifest is the digest of the data set's manifest.
	Manifest specstream.Digest `json:"manifest"`

	// Dataset is the manifest, for the caller to store.
	Dataset shard.Manifest `json:"-"`
}

// Quarantined is one line of the quarantine file.
type Quarantined struct {
	File   string `json:"file"`
	Record int64  `json:"record"`
	Field  string `json:"field,omitempty"`
	// Code is the reason's code, as in Account.Dropped.
	Code string `json:"code"`
	// Reason is the reason in words.
	Reason string `json:"reason"`
}

// Run ingests the inputs of o.Spec and commits the data set. The account is
// valid up to the failure when there is one. A damaged input, more bad records
// than Spec.MaxBad allows, or no sample at all is a [specstream.InputError];
// other errors come from the inputs' store, the writer or the context.
func Run(ctx context.Context, o Options) (Account, error) {
	j, err := newJob(o)
	if err != nil {
		return Account{}, err
	}
	if err := j.run(ctx); err != nil {
		return j.account, err
	}
	return j.account, j.commit(ctx)
}

// job is one run of an ingest.
type job struct {
	Options
	inputs    []string
	template  data.Template
	encoder   *data.Encoder
	tolerance specstream.Tolerance

	account  Account
	sources  []shard.Source
	firstBad *specstream.InputError
	progress Progress
	told     time.Time
}

func newJob(o Options) (*job, error) {
	if o.Tokenizer == nil || o.Writer == nil {
		return nil, errors.New("ingest: a tokenizer and a writer are needed")
	}
	o.Spec = o.Spec.WithDefaults()
	if err := o.Spec.Validate(); err != nil {
		return nil, err
	}
	if o.Opener == nil {
		o.Opener = data.OpenFile
	}
	if o.Workers < 1 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	j := &job{Options: o}
	var err error
	if j.tolerance, err = specstream.ParseTolerance(o.Spec.MaxBad); err != nil {
		return nil, err
	}
	if j.inputs, err = data.Expand(o.Spec.Inputs); err != nil {
		return nil, err
	}
	if j.template, err = data.TemplateFor(o.Spec.Format, o.Spec.Template); err != nil {
		return nil, err
	}
	if j.encoder, err = data.NewEncoder(o.Tokenizer, j.template, o.Spec.Turns, o.Spec.MaxLength); err != nil {
		return nil, err
	}
	j.account.Dropped = map[string]int64{}
	j.account.Changed = map[string]int64{}
	j.account.SamplesDropped = map[string]int64{}
	return j, nil
}

// run reads, encodes and writes all records.
func (j *job) run(ctx context.Context) error {
	p := startPipeline(ctx, j)
	defer p.stop()
	for {
		b, err := p.next(ctx)
		if err != nil {
			if err == io.EOF {
				break
			}
			return fmt.Errorf("ingest: %w", err)
		}
		for _, out := range b.out {
			if err := j.take(ctx, out); err != nil {
				return err
			}
		}
		if b.err != nil {
			return b.err
		}
		if b.source != nil {
			j.sources = append(j.sources, *b.source)
		}
		j.progress.File, j.progress.Bytes = b.file, b.bytes
		j.tell(false)
	}
	if j.tolerance.Exceeded(j.account.Quarantined, j.account.Read, true) {
		return j.tooManyBad()
	}
	return nil
}

// take accounts for one record and writes its samples.
func (j *job) take(ctx context.Context, out outcome) error {
	a := &j.account
	if out.err != nil && !out.isRecord() {
		return out.err // damage: what follows can't be trusted
	}
	a.Read++
	var bad *data.BadRecordError
	var skipped *data.SkipError
	switch {
	case errors.As(out.err, &bad):
		a.Dropped[bad.Code]++
		a.Quarantined++
		if j.firstBad == nil {
			j.firstBad = bad.Input
		}
		if err := j.quarantine(bad); err != nil {
			return err
		}
		if j.tolerance.Exceeded(a.Quarantined, a.Read, false) {
			return j.tooManyBad()
		}
		return nil
	case errors.As(out.err, &skipped):
		a.Dropped[skipped.Reason]++
		return nil
	}
	if out.tooLong > 0 {
		a.SamplesDropped[data.SkipTooLong] += int64(out.tooLong)
	}
	if len(out.samples) == 0 {
		a.Dropped[data.SkipTooLong]++
		return nil
	}
	a.Kept++
	for _, c := range out.changed {
		a.Changed[c]++
	}
	for _, s := range out.samples {
		if err := j.Writer.Write(ctx, s); err != nil {
			return fmt.Errorf("write sample %s: %w", s.ID, err)
		}
		a.Samples++
		a.Tokens += int64(len(s.Tokens))
		a.CompletionTokens += int64(s.CompletionTokens())
	}
	return nil
}

func (j *job) quarantine(bad *data.BadRecordError) error {
	if j.Quarantine == nil {
		return nil
	}
	reason := bad.Input.Reason
	if bad.Input.Err != nil {
		reason += ": " + bad.Input.Err.Error()
	}
	line, err := json.Marshal(Quarantined{File: bad.Input.File, Record: bad.Input.Record, Field: bad.Input.Field, Code: bad.Code, Reason: reason})
	if err == nil {
		_, err = j.Quarantine.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write quarantine: %w", err)
	}
	return nil
}

// tooManyBad names the first bad record.
func (j *job) tooManyBad() error {
	in := *j.firstBad
	in.Hint = fmt.Sprintf("bad records: %d of the %d read, and max_bad is %q; mend them or raise max_bad", j.account.Quarantined, j.account.Read, j.Spec.MaxBad)
	return &in
}

// commit completes the data set.
func (j *job) commit(ctx context.Context) error {
	j.tell(true)
	a := &j.account
	if a.Samples == 0 {
		return &specstream.InputError{Field: "inputs", Reason: fmt.Sprintf("none of the %d records read gave a sample", a.Read), Hint: fmt.Sprintf("dropped: %v", a.Dropped)}
	}
	m, err := j.Writer.Commit(ctx, shard.Lineage{
		Spec:      j.Spec,
		Template:  j.template.ID(),
		Tokenizer: j.Tokenizer.Digest(),
		VocabSize: j.Tokenizer.VocabSize(),
		Sources:   j.sources,
		Account:   shard.Account{Read: a.Read, Kept: a.Kept, Dropped: a.Dropped, Changed: a.Changed},
	})
	if err != nil {
		return fmt.Errorf("commit data set: %w", err)
	}
	d, err := m.Digest()
	if err != nil {
		return fmt.Errorf("commit data set: %w", err)
	}
	a.Shards, a.Manifest, a.Dataset = len(m.Shards), d, m
	return nil
}

// tellEvery is how often progress is told.
const tellEvery = 200 * time.Millisecond

func (j *job) tell(end bool) {
	if j.Progress == nil || !end && time.Since(j.told) < tellEvery {
		return
	}
	j.told = time.Now()
	a := &j.account
	p := j.progress
	p.Read, p.Kept, p.Quarantined, p.Samples, p.Tokens = a.Read, a.Kept, a.Quarantined, a.Samples, a.Tokens
	j.Progress(p)
}
