package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/specstream/specstream"
)

// dataFlags are the flags that say which records are read and how: a file with a
// whole specification, and a flag for each of its fields.
type dataFlags struct {
	file    string
	spec    specstream.DataSpec
	clean   specstream.CleanSpec
	mapping string
	sha256  []string
}

func (d *dataFlags) register(c *cobra.Command) {
	f, s := c.Flags(), &d.spec
	def := specstream.DataSpec{}.WithDefaults()
	f.StringVar(&d.file, "spec", "", "file with a data specification as JSON; the flags given besides take precedence")
	f.StringVar(&s.Format, "format", "", strings.Join(specstream.Formats, ", "))
	f.StringVar(&d.mapping, "mapping", "", "for records of any other make, the names of their fields: JSON or a file of it")
	f.StringArrayVar(&d.sha256, "sha256", nil, "INPUT=DIGEST: the SHA-256 an input must have; may be repeated")
	f.StringVar(&s.Template, "template", def.Template, "prompt template: plain (the format's own), vicuna, llama2, llama3, mistral, phi3, chatml, model (the tokenizer's own), or a .jinja file")
	f.StringVar(&s.Turns, "turns", def.Turns, "multi-turn samples: expand (one a turn) or inline (one a conversation)")
	f.StringVar(&s.SpecialTokens, "special-tokens", def.SpecialTokens, "special tokens inside the text of records: text (never control) or control")
	f.IntVar(&s.MaxLength, "max-length", def.MaxLength, "the most tokens of a sample")
	f.StringVar(&s.Overlong, "overlong", def.Overlong, "longer samples: drop, split (between turn pairs), history (drop the oldest pairs) or cut (the completion)")
	f.BoolVar(&d.clean.HTML, "html", false, "turn HTML in answers into Markdown (default for sharegpt: true)")
	f.StringSliceVar(&d.clean.Languages, "languages", nil, "keep only records in these languages (ISO 639-1)")
	f.StringSliceVar(&d.clean.SkipLanguages, "skip-languages", nil, "leave records in these languages out")
	f.StringArrayVar(&d.clean.BlockedPhrases, "block-phrase", nil, "leave out records whose answers hold the phrase; \"default\" is the built-in list, \"\" none; may be repeated (default for sharegpt: default)")
	f.StringVar(&d.clean.RepeatedTurns, "repeated-turns", "drop", "conversations in which a speaker follows himself: drop or merge")
	f.StringVar(&d.clean.Dedupe, "dedupe", "none", "duplicates left out: none, exact or near (default for sharegpt: near)")
	f.Float64Var(&d.clean.NearThreshold, "near-threshold", 0.85, "least similarity of near duplicates (0..1)")
	f.StringVar(&s.MaxBad, "max-bad", def.MaxBad, "bad records tolerated: a count or a share such as 0.5%")
	f.IntVar(&s.Limit, "limit", 0, "read only the first records (0: all)")
	f.IntVar(&s.MaxExpansion, "max-expansion", def.MaxExpansion, "the most bytes a compressed input may expand to for each stored byte")
	f.Int64Var(&s.PartitionBytes, "partition-bytes", def.PartitionBytes, "about how many bytes of uncompressed input are worked on as one part")
	f.IntVar(&s.ShardTokens, "shard-tokens", def.ShardTokens, "about how many tokens a shard holds")
}

// complete returns the specification: the file's, if there is one, with the
// flags that were given and the inputs that were named.
func (d *dataFlags) complete(c *cobra.Command, inputs []string) (specstream.DataSpec, error) {
	var s specstream.DataSpec
	if d.file != "" {
		if err := decodeFile(d.file, &s); err != nil {
			return s, err
		}
	}
	if len(inputs) > 0 {
		s.Inputs = inputs
	}
	changed := c.Flags().Changed
	given, g := func(name string, set func()) {
		if changed(name) {
			set()
		}
	}, d.spec
	given("format", func() { s.Format = g.Format })
	given("template", func() { s.Template = g.Template })
	given("turns", func() { s.Turns = g.Turns })
	given("special-tokens", func() { s.SpecialTokens = g.SpecialTokens })
	given("max-length", func() { s.MaxLength = g.MaxLength })
	given("overlong", func() { s.Overlong = g.Overlong })
	given("max-bad", func() { s.MaxBad = g.MaxBad })
	given("limit", func() { s.Limit = g.Limit })
	given("max-expansion", func() { s.MaxExpansion = g.MaxExpansion })
	given("partition-bytes", func() { s.PartitionBytes = g.PartitionBytes })
	given("shard-tokens", func() { s.ShardTokens = g.ShardTokens })
	if err := d.completeMapping(&s); err != nil {
		return s, err
	}
	for _, pin := range d.sha256 {
		i := strings.LastIndexByte(pin, '=')
		if i < 0 {
			return s, usageError{specstream.Invalid("sha256", "%q is not INPUT=DIGEST", pin)}
		}
		if s.SHA256 == nil {
			s.SHA256 = map[string]specstream.Digest{}
		}
		s.SHA256[pin[:i]] = specstream.Digest("sha256:" + strings.TrimPrefix(pin[i+1:], "sha256:"))
	}
	d.completeClean(&s, given)
	return s, nil
}

func (d *dataFlags) completeMapping(s *specstream.DataSpec) error {
	if d.mapping == "" {
		return nil
	}
	s.Mapping = &specstream.MappingSpec{}
	if s.Format == "" {
		s.Format = "mapping"
	}
	if strings.HasPrefix(strings.TrimSpace(d.mapping), "{") {
		return specstream.DecodeStrict("--mapping", strings.NewReader(d.mapping), s.Mapping)
	}
	return decodeFile(d.mapping, s.Mapping)
}

// completeClean applies the flags of cleaning to what the file says, or else to
// the format's defaults.
func (d *dataFlags) completeClean(s *specstream.DataSpec, given func(name string, set func())) {
	g, any := d.clean, false
	clean := *s.WithDefaults().Clean
	for _, f := range []struct {
		name string
		set  func()
	}{
		{"html", func() { clean.HTML = g.HTML }},
		{"languages", func() { clean.Languages = g.Languages }},
		{"skip-languages", func() { clean.SkipLanguages = g.SkipLanguages }},
		{"block-phrase", func() {
			clean.BlockedPhrases = nil
			for _, p := range g.BlockedPhrases {
				if p != "" {
					clean.BlockedPhrases = append(clean.BlockedPhrases, p)
				}
			}
		}},
		{"repeated-turns", func() { clean.RepeatedTurns = g.RepeatedTurns }},
		{"dedupe", func() {
			clean.Dedupe = g.Dedupe
			if g.Dedupe != specstream.DedupeNear {
				clean.NearThreshold = 0
			}
		}},
		{"near-threshold", func() { clean.NearThreshold = g.NearThreshold }},
	} {
		given(f.name, func() { any = true; f.set() })
	}
	if any {
		s.Clean = &clean
	}
}

// decodeFile decodes a JSON file strictly.
func decodeFile(path string, v any) error {
	f, err := os.Open(path)
	if err != nil {
		if os.IsNotExist(err) {
			return &specstream.InputError{File: path, Reason: "no such file"}
		}
		return err
	}
	defer f.Close()
	return specstream.DecodeStrict(path, f, v)
}
