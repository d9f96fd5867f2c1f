package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// planSchema is the version of the plan's format and of the stages' code. What
// other versions remember is not used.
const planSchema = 1

// Plan says completely what is to be done. Its digest names it.
type Plan struct {
	Schema int `json:"schema"`
	// Spec is the completed specification.
	Spec specstream.DataSpec `json:"spec"`
	// Tokenizer and VocabSize describe the tokenizer.
	Tokenizer specstream.Digest `json:"tokenizer"`
	VocabSize int               `json:"vocab_size"`
	// Template and Clean name the template and the rules of cleaning, with
	// their versions.
	Template string `json:"template"`
	Clean    string `json:"clean"`
	// Inputs are the inputs in order.
	Inputs []data.Input `json:"inputs"`
	// Parts are the parts of all inputs in order.
	Parts []PlanPart `json:"parts"`
}

// PlanPart is a part of the input with the index Input.
type PlanPart struct {
	Input int `json:"input"`
	data.Part
}

// Bytes is the number of stored bytes of all parts.
func (p *Plan) Bytes() (n int64) {
	for _, part := range p.Parts {
		n += part.Bytes
	}
	return n
}

// Records is the number of records of all parts.
func (p *Plan) Records() (n int64) {
	for _, part := range p.Parts {
		n += part.Records
	}
	return n
}

// fits reports what of j differs from what the plan was made with.
func (p *Plan) fits(j *Job) error {
	if p.Schema != planSchema {
		return &specstream.InputError{Field: "plan", Reason: fmt.Sprintf("is of version %d, this program has %d", p.Schema, planSchema), Hint: "start the ingestion again"}
	}
	for _, f := range []struct{ field, planned, here string }{
		{"tokenizer", string(p.Tokenizer), string(j.o.Tokenizer.Digest())},
		{"template", p.Template, j.template.ID()},
		{"clean", p.Clean, j.cleaner.Version()},
	} {
		if f.planned != f.here {
			return &specstream.InputError{Field: f.field, Reason: fmt.Sprintf("the plan was made with %s, here is %s", f.planned, f.here),
				Hint: "all workers need the same files and the same program; start the ingestion again"}
		}
	}
	return nil
}

// makePlan scans the inputs. Those behind a limit are not looked at.
func (j *Job) makePlan(ctx context.Context, spec specstream.DataSpec) (p Plan, err error) {
	p = Plan{Schema: planSchema, Spec: spec, Tokenizer: j.o.Tokenizer.Digest(), VocabSize: j.o.Tokenizer.VocabSize(),
		Template: j.template.ID(), Clean: j.cleaner.Version()}
	uris, err := data.Expand(ctx, spec.Inputs, j.o.List)
	if err != nil {
		return p, err
	}
	for _, pinned := range slices.Sorted(maps.Keys(spec.SHA256)) {
		if !slices.Contains(uris, pinned) {
			return p, &specstream.InputError{Field: "sha256", Reason: fmt.Sprintf("%s is not among the inputs", pinned), Hint: "pin inputs by the names they have after wildcards are expanded"}
		}
	}
	j.tracker.start(StagePlan, sizes(uris), len(uris))
	defer func() { j.tracker.end(err) }()
	take := func(s data.Scanned) {
		for _, part := range s.Parts {
			p.Parts = append(p.Parts, PlanPart{Input: len(p.Inputs), Part: part})
		}
		p.Inputs = append(p.Inputs, s.Input)
		j.tracker.skip(data.Part{})
	}
	scan := func(ctx context.Context, i int, limit int64) (data.Scanned, error) {
		var before int64
		return data.Scan(ctx, data.ScanOptions{Format: j.format, URI: uris[i], Open: j.o.Open, PartBytes: spec.PartitionBytes, Limit: limit,
			Pin: spec.SHA256[uris[i]], MaxExpansion: spec.MaxExpansion,
			Progress: func(bytes int64) {
				j.tracker.add(Progress{Bytes: bytes - atomic.SwapInt64(&before, bytes)})
			}})
	}
	if spec.Limit == 0 {
		return p, inOrder(ctx, len(uris), min(j.o.Workers, maxParts), func(ctx context.Context, i int) (data.Scanned, error) {
			return scan(ctx, i, 0)
		}, func(_ int, s data.Scanned) error {
			take(s)
			return nil
		})
	}
	left := int64(spec.Limit)
	for i := 0; i < len(uris) && left > 0; i++ {
		s, err := scan(ctx, i, left)
		if err != nil {
			return p, err
		}
		take(s)
		left -= s.Input.Records
	}
	return p, nil
}

// sizes is the sum of local files' sizes, to measure progress by; 0 when one is
// not local or can't be told.
func sizes(uris []string) (n int64) {
	for _, uri := range uris {
		if strings.Contains(uri, "://") {
			return 0
		}
		st, err := os.Stat(uri)
		if err != nil {
			return 0 // opening it tells
		}
		n += st.Size()
	}
	return n
}

// partKey is all that the result of working on one part depends on. Neither the
// input's name nor the part's place in it is: a file that is moved, or grown at
// its end, keeps what is done of it.
type partKey struct {
	Stage     string                  `json:"stage"`
	Schema    int                     `json:"schema"`
	Part      string                  `json:"part"`
	Container string                  `json:"container"`
	Header    []string                `json:"header,omitempty"`
	First     int64                   `json:"first"`
	Records   int64                   `json:"records"`
	Format    string                  `json:"format"`
	Mapping   *specstream.MappingSpec `json:"mapping,omitempty"`
	Clean     specstream.CleanSpec    `json:"clean"`
	Rules     string                  `json:"rules"` // the version of cleaning

	// Of Process alone.
	Shards        int               `json:"shards,omitempty"` // the version of shards
	Tokenizer     specstream.Digest `json:"tokenizer,omitempty"`
	Template      string            `json:"template,omitempty"`
	SpecialTokens string            `json:"special_tokens,omitempty"`
	Turns         string            `json:"turns,omitempty"`
	MaxLength     int               `json:"max_length,omitempty"`
	Overlong      string            `json:"overlong,omitempty"`
	ShardTokens   int               `json:"shard_tokens,omitempty"`
	Drops         specstream.Digest `json:"drops,omitempty"`
}

func (j *Job) partKey(stage string, part int) partKey {
	p, s := j.plan.Parts[part], j.plan.Spec
	return partKey{Stage: stage, Schema: planSchema, Part: p.Digest, Container: p.Container, Header: p.Header, First: p.First, Records: p.Records,
		Format: s.Format, Mapping: s.Mapping, Clean: *s.Clean, Rules: j.plan.Clean}
}

// Pending returns the parts on which a stage ([StageSign] or [StageProcess]) is
// not done yet, in order.
func (j *Job) Pending(ctx context.Context, stage string) ([]int, error) {
	var pending []int
	err := inOrder(ctx, len(j.plan.Parts), 16, func(ctx context.Context, i int) (done bool, err error) {
		switch stage {
		case StageSign:
			_, done, err = j.signed(ctx, i)
		case StageProcess:
			_, done, err = j.processed(ctx, i)
		default:
			err = errors.New("ingest: " + stage + " is not a stage of parts")
		}
		return done, err
	}, func(i int, done bool) error {
		if !done {
			pending = append(pending, i)
		}
		return nil
	})
	return pending, err
}

// checkPart reports a part that the plan does not have.
func (j *Job) checkPart(i int) error {
	if i < 0 || i >= len(j.plan.Parts) {
		return &specstream.InputError{Field: "part", Reason: fmt.Sprintf("%d is outside 0..%d", i, len(j.plan.Parts)-1)}
	}
	return nil
}
