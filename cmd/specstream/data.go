package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/inspect"
	"github.com/specstream/specstream/data/shard"
	"github.com/specstream/specstream/data/tokenizer"
)

func newData(o *options) *cobra.Command {
	c := &cobra.Command{
		Use:   "data",
		Short: "Look into data sets",
		Args:  cobra.NoArgs,
	}
	c.AddCommand(newDataInspect(o), newDataQuarantine())
	return c
}

// inspection is what `data inspect` was asked for.
type inspection struct {
	spec     specstream.DataSpec
	id       string
	limit    int
	position int
	gamma    int
	noColor  bool
}

func newDataInspect(o *options) *cobra.Command {
	var in inspection
	c := &cobra.Command{
		Use:   "inspect --tokenizer FILE DATASET | inspect --format FORMAT --tokenizer FILE INPUT...",
		Short: "Print samples with their loss mask and what each stream has to predict",
		Long: `Print samples token by token: the prompt dim, completions green, their end tokens
red, other special tokens blue. Without colours completions stand in ⟦⟧, and · parts
tokens. DATASET is the folder of an ingest, or its dataset.json. With --format the
samples are made from inputs, as an ingest without cleaning would make them.

Behind each sample stands what the main stream and --gamma further streams of one
position have to predict: stream j the token j further on than the next. Beyond the
completion there is nothing to learn: it is masked.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := required("tokenizer", in.spec.Tokenizer); err != nil {
				return err
			}
			switch {
			case len(args) == 0:
				return usageError{errors.New("name a data set or, with --format, inputs")}
			case in.spec.Format == "" && len(args) > 1:
				return usageError{errors.New("name one data set; inputs want --format")}
			case in.limit < 0 || in.gamma < 0:
				return usageError{errors.New("--limit and --gamma can't be negative")}
			}
			in.spec.Inputs = args
			return in.run(cmd.Context(), o, cmd.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&in.spec.Format, "format", "", "format of the inputs: "+strings.Join(specstream.Formats, ", "))
	f.StringVar(&in.spec.Template, "template", "plain", "prompt template: "+strings.Join(data.Templates, ", ")+", model, or a .jinja file")
	f.StringVar(&in.spec.Turns, "turns", specstream.TurnsExpand, "multi-turn samples: expand (one a turn) or inline (one a conversation)")
	f.IntVar(&in.spec.MaxLength, "max-length", 2048, "most tokens of a sample")
	f.StringVar(&in.spec.Overlong, "overlong", specstream.OverlongDrop, "what becomes of longer ones: drop, split, history or cut")
	f.StringVar(&in.spec.SpecialTokens, "special-tokens", specstream.SpecialAsText, "strings of special tokens in records: text or control")
	f.StringVar(&in.spec.Tokenizer, "tokenizer", "", "the tokenizer: tokenizer.json, SentencePiece .model or tiktoken ranks")
	f.StringVar(&in.id, "id", "", "only samples of this id, or of the record of this id")
	f.IntVar(&in.limit, "limit", 5, "print at most this many samples (0: all)")
	f.IntVar(&in.position, "position", -1, "position whose streams are shown (-1: the last before the first completion)")
	f.IntVar(&in.gamma, "gamma", 4, "streams shown besides the main one; 0 shows none")
	f.BoolVar(&in.noColor, "no-color", false, "no colours (also when NO_COLOR is set or the output is no terminal)")
	return c
}

// run prints the samples asked for.
func (in inspection) run(ctx context.Context, o *options, w io.Writer) error {
	tok, err := tokenizer.Load(in.spec.Tokenizer)
	if err != nil {
		return err
	}
	p := samplePrinter{w: w, json: o.json, color: in.colors(w)}
	shown, err := 0, error(nil)
	yield := func(it inspect.Item) bool {
		if it.Sample == nil {
			if in.id == "" {
				err = p.note(it.Note)
			}
			return err == nil
		}
		if id := it.Sample.ID; in.id != "" && id != in.id && id[:strings.LastIndexByte(id, '/')] != in.id {
			return true
		}
		s := inspect.New(*it.Sample, tok)
		if in.gamma > 0 && len(s.Tokens) > 0 {
			s.LookAhead(in.at(s), in.gamma)
		}
		err = p.sample(s)
		shown++
		return err == nil && (in.limit == 0 || shown < in.limit)
	}
	readErr := in.read(ctx, tok, yield)
	if err = errors.Join(err, readErr); err != nil {
		return err
	}
	if shown == 0 && in.id != "" {
		return &specstream.InputError{File: in.spec.Inputs[0], Reason: fmt.Sprintf("has no sample %q", in.id)}
	}
	return p.end()
}

// at is the position whose streams are shown.
func (in inspection) at(s inspect.Sample) int {
	if in.position < 0 && len(s.Spans) > 0 {
		return s.Spans[0].Start - 1
	}
	return max(in.position, 0)
}

// read yields the samples of the data set or the inputs.
func (in inspection) read(ctx context.Context, tok *tokenizer.Tokenizer, yield func(inspect.Item) bool) error {
	if in.spec.Format == "" {
		dir := in.spec.Inputs[0]
		if filepath.Base(dir) == shard.ManifestFile {
			dir = filepath.Dir(dir)
		}
		blobs := shard.DirBlobs{Dir: dir}
		m, err := blobs.Manifest()
		if err != nil {
			return err
		}
		if m.Lineage.Tokenizer != tok.Digest() {
			return &specstream.InputError{File: in.spec.Tokenizer, Field: "tokenizer",
				Reason: fmt.Sprintf("is %s, and the data set was made with %s", tok.Digest().Short(), m.Lineage.Tokenizer.Short()), Hint: "its tokens would be spelled wrongly"}
		}
		return inspect.Dataset(ctx, blobs, m, yield)
	}
	spec := in.spec.WithDefaults()
	if err := spec.Validate(); err != nil {
		return err
	}
	format, err := data.FormatOf(spec.Format)
	if err != nil {
		return err
	}
	tmpl, err := data.TemplateFor(spec, format, filepath.Dir(spec.Tokenizer))
	if err != nil {
		return err
	}
	e, err := data.NewEncoder(data.EncoderOptions{Tokenizer: tok, Template: tmpl, Turns: spec.Turns, MaxLength: spec.MaxLength,
		Overlong: spec.Overlong, SpecialTokens: spec.SpecialTokens, AllowUnanswered: true})
	if err != nil {
		return err
	}
	return inspect.Inputs(ctx, spec, data.OpenFile, e, yield)
}

// colors reports whether the output takes colours.
func (in inspection) colors(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isTerminal(f) && !in.noColor && os.Getenv("NO_COLOR") == ""
}

// samplePrinter prints samples and notes, as text or as one JSON object.
type samplePrinter struct {
	w           io.Writer
	json, color bool
	notes       []string
	samples     int
}

func (p *samplePrinter) note(text string) error {
	if p.json {
		p.notes = append(p.notes, text)
		return nil
	}
	_, err := fmt.Fprintf(p.w, "# %s\n\n", inspect.Escape(text))
	return err
}

func (p *samplePrinter) sample(s inspect.Sample) error {
	if !p.json {
		return inspect.Write(p.w, s, inspect.Options{Color: p.color})
	}
	lead := `{"samples":[` + "\n"
	if p.samples > 0 {
		lead = ",\n"
	}
	p.samples++
	b, err := json.Marshal(s)
	if err == nil {
		_, err = p.w.Write(append([]byte(lead), b...))
	}
	return err
}

func (p *samplePrinter) end() error {
	if !p.json {
		return nil
	}
	lead := ""
	if p.samples == 0 {
		lead = `{"samples":[`
	}
	notes, err := json.Marshal(append([]string{}, p.notes...))
	if err == nil {
		_, err = fmt.Fprintf(p.w, "%s\n],\"notes\":%s}\n", lead, notes)
	}
	return err
}
