package specstream

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Formats are the record formats DataSpec.Format accepts.
var Formats = []string{"sharegpt", "dialogsum", "sql", "e2e", "alpaca", "specbench", "mapping"}

// Turns choices for multi-turn samples.
const (
	TurnsExpand = "expand" // one sample an assistant turn, history as plain prompt
	TurnsInline = "inline" // all assistant turns of a conversation in one sample
)

// Policies for what is longer than DataSpec.MaxLength. None ever cuts a sample
// without counting it.
const (
	// OverlongDrop leaves samples that are too long out.
	OverlongDrop = "drop"
	// OverlongSplit cuts a conversation between turn pairs into several, each
	// beginning with the system turn; a single pair that is too long is left out.
	OverlongSplit = "split"
	// OverlongHistory drops the oldest turn pairs of a sample's history until
	// it fits.
	OverlongHistory = "history"
	// OverlongCut cuts the last completion, which then has no end token.
	OverlongCut = "cut"
)

// Policies for the strings of special tokens inside the text of records.
const (
	// SpecialAsText encodes them like any other text: data never becomes control.
	SpecialAsText = "text"
	// SpecialAsControl lets them become control tokens, as Hugging Face does.
	SpecialAsControl = "control"
)

// Dedupe choices of a CleanSpec.
const (
	DedupeNone  = "none"
	DedupeExact = "exact" // equal up to case, white space and Unicode compatibility
	DedupeNear  = "near"  // exact, and MinHash similarity of at least NearThreshold
)

// DataSpec says which records become a dataset and how.
type DataSpec struct {
	// Format is one of [Formats].
	Format string `json:"format"`
	// Mapping names the fields of a record; format "mapping" needs it and no
	// other takes it.
	Mapping *MappingSpec `json:"mapping,omitempty"`
	// Inputs are read in this order: local paths, s3:// objects, either of
	// them with the wildcards * ? [, https:// addresses, and
	// hf://datasets/OWNER/NAME[@REVISION]/PATH.
	Inputs []string `json:"inputs"`
	// SHA256 pins the digests of inputs, by their place after wildcards are
	// expanded. An input of another digest fails the job.
	SHA256 map[string]Digest `json:"sha256,omitempty"`
	// Tokenizer is a Hugging Face tokenizer.json, a SentencePiece .model or a
	// tiktoken rank file. Default: the base's own tokenizer.json.
	Tokenizer string `json:"tokenizer,omitempty"`
	// SpecialTokens is "text" (default) or "control".
	SpecialTokens string `json:"special_tokens,omitempty"`
	// Template names the prompt template: "plain" (default, the format's own),
	// "vicuna", "llama2", "llama3", "mistral", "phi3", "chatml", "model" (the
	// chat_template of the tokenizer_config.json beside the tokenizer), or the
	// path of a .jinja file.
	Template string `json:"template,omitempty"`
	// Turns is "expand" (default) or "inline".
	Turns string `json:"turns,omitempty"`
	// MaxLength is the most tokens of a sample. Default 2048.
	MaxLength int `json:"max_length,omitempty"`
	// Overlong says what becomes of longer ones: "drop" (default), "split",
	// "history" or "cut".
	Overlong string `json:"overlong,omitempty"`
	// Clean says which records are mended or left out. Default: for format
	// "sharegpt" HTML to Markdown, blocked phrases and near duplicates, for the
	// others nothing.
	Clean *CleanSpec `json:"clean,omitempty"`
	// MaxBad is how many bad records are quarantined before the job fails: a
	// count ("5") or a share ("0.5%"). Default "0".
	MaxBad string `json:"max_bad,omitempty"`
	// Limit keeps only the first records read; 0 keeps all.
	Limit int `json:"limit,omitempty"`
	// MaxExpansion is the most bytes a compressed input may expand to for each
	// stored byte, once it has passed 64 MiB. Default 200.
	MaxExpansion int `json:"max_expansion,omitempty"`
	// PartitionBytes is about how many bytes of uncompressed input one
	// partition, the unit of distribution, has. Default 64 MiB.
	PartitionBytes int64 `json:"partition_bytes,omitempty"`
	// ShardTokens is about how many tokens a shard holds. Default 16 Mi.
	ShardTokens int `json:"shard_tokens,omitempty"`
}

// MappingSpec names the fields of records of any other make. A field is a path
// of keys and array indices, such as "turns.0.text"; a text may be a single
// field's name or hold fields in braces, such as "{instruction}\n\n{input}".
type MappingSpec struct {
	// Container is "json" (an array or lines, told by the content), "csv" or
	// "parquet". Default: by the input's name, else "json".
	Container string `json:"container,omitempty"`
	// Prompt and Completion make a record of one turn each.
	Prompt     string `json:"prompt,omitempty"`
	Completion string `json:"completion,omitempty"`
	// System is the system turn, if any.
	System string `json:"system,omitempty"`
	// Messages is the field of an array of turns, in place of Prompt and
	// Completion; Role and Content name the keys of a turn. Default "role" and
	// "content".
	Messages string `json:"messages,omitempty"`
	Role     string `json:"role,omitempty"`
	Content  string `json:"content,omitempty"`
	// Roles maps further role names to "system", "user" or "assistant".
	Roles map[string]string `json:"roles,omitempty"`
	// ID is the field of the record's id.
	ID string `json:"id,omitempty"`
	// References are fields of further references for evaluation.
	References []string `json:"references,omitempty"`
}

// CleanSpec says which records are mended and which left out. Every one that is
// gets counted by reason, and its place and reason written to the quarantine.
type CleanSpec struct {
	// HTML turns HTML in assistant turns into Markdown, and removes what the
	// user interface of a chat service left in the text.
	HTML bool `json:"html,omitempty"`
	// Languages keeps only records in these languages (ISO 639-1 codes), and
	// SkipLanguages leaves those in these out. Empty: every language.
	Languages     []string `json:"languages,omitempty"`
	SkipLanguages []string `json:"skip_languages,omitempty"`
	// BlockedPhrases leaves out records whose assistant turns hold one of these,
	// whatever the case. "default" stands for the built-in list of refusals and
	// self-descriptions.
	BlockedPhrases []string `json:"blocked_phrases,omitempty"`
	// RepeatedTurns says what becomes of a conversation in which a speaker
	// follows himself: "drop" (default) or "merge".
	RepeatedTurns string `json:"repeated_turns,omitempty"`
	// Dedupe is "none" (default), "exact" or "near". Of duplicates the first is kept.
	Dedupe string `json:"dedupe,omitempty"`
	// NearThreshold is the least Jaccard similarity of two records' word
	// 5-grams, as MinHash estimates it, that makes them duplicates. Default 0.85.
	NearThreshold float64 `json:"near_threshold,omitempty"`
}

// WithDefaults returns a copy with every unset field at its default.
func (s CleanSpec) WithDefaults() CleanSpec {
	setString(&s.RepeatedTurns, "drop")
	setString(&s.Dedupe, DedupeNone)
	if s.Dedupe == DedupeNear {
		setFloat(&s.NearThreshold, 0.85)
	}
	return s
}

// Validate checks a completed spec and names the first bad field.
func (s CleanSpec) Validate() error {
	if s.RepeatedTurns != "drop" && s.RepeatedTurns != "merge" {
		return Invalid("clean.repeated_turns", "%q is neither \"drop\" nor \"merge\"", s.RepeatedTurns)
	}
	if err := oneOf("clean.dedupe", s.Dedupe, DedupeNone, DedupeExact, DedupeNear); err != nil {
		return err
	}
	if s.Dedupe == DedupeNear && !(s.NearThreshold > 0 && s.NearThreshold <= 1) {
		return Invalid("clean.near_threshold", "%v is outside 0..1", s.NearThreshold)
	}
	if len(s.Languages) > 0 && len(s.SkipLanguages) > 0 {
		return Invalid("clean.skip_languages", "languages says already which are kept")
	}
	for _, f := range []struct {
		name  string
		codes []string
	}{{"languages", s.Languages}, {"skip_languages", s.SkipLanguages}} {
		for _, c := range f.codes {
			if len(c) != 2 || strings.ToLower(c) != c {
				return Invalid("clean."+f.name, "%q is not an ISO 639-1 code such as \"en\"", c)
			}
		}
	}
	for _, p := range s.BlockedPhrases {
		if strings.TrimSpace(p) == "" {
			return Invalid("clean.blocked_phrases", "an empty phrase is in every record")
		}
	}
	return nil
}

// WithDefaults returns a copy with every unset field at its default.
func (s DataSpec) WithDefaults() DataSpec {
	setInt(&s.MaxLength, 2048)
	setInt(&s.MaxExpansion, 200)
	setInt(&s.ShardTokens, 16<<20)
	if s.PartitionBytes == 0 {
		s.PartitionBytes = 64 << 20
	}
	setString(&s.Turns, TurnsExpand)
	setString(&s.Template, "plain")
	setString(&s.MaxBad, "0")
	setString(&s.Overlong, OverlongDrop)
	setString(&s.SpecialTokens, SpecialAsText)
	clean := CleanSpec{}
	switch {
	case s.Clean != nil:
		clean = *s.Clean
	case s.Format == "sharegpt":
		clean = CleanSpec{HTML: true, BlockedPhrases: []string{"default"}, Dedupe: DedupeNear}
	}
	clean = clean.WithDefaults()
	s.Clean = &clean
	return s
}

// Validate checks a completed spec and names the first bad field.
func (s DataSpec) Validate() error {
	if err := oneOf("format", s.Format, Formats...); err != nil {
		return err
	}
	if (s.Mapping != nil) != (s.Format == "mapping") {
		return Invalid("mapping", "goes with the format \"mapping\", and that format needs it")
	}
	if s.Mapping != nil {
		if err := s.Mapping.validate(); err != nil {
			return err
		}
	}
	if len(s.Inputs) == 0 {
		return Invalid("inputs", "no input is named")
	}
	for _, in := range slices.Sorted(maps.Keys(s.SHA256)) {
		if err := s.SHA256[in].Validate(); err != nil {
			return Invalid("sha256", "%s: %v", in, err)
		}
	}
	for _, f := range []struct {
		name, v string
		choices []string
	}{
		{"turns", s.Turns, []string{TurnsExpand, TurnsInline}},
		{"overlong", s.Overlong, []string{OverlongDrop, OverlongSplit, OverlongHistory, OverlongCut}},
		{"special_tokens", s.SpecialTokens, []string{SpecialAsText, SpecialAsControl}},
	} {
		if err := oneOf(f.name, f.v, f.choices...); err != nil {
			return err
		}
	}
	if s.MaxLength < 2 {
		return Invalid("max_length", "%d tokens hold no prompt and completion", s.MaxLength)
	}
	if s.Limit < 0 {
		return Invalid("limit", "%d is negative", s.Limit)
	}
	if s.MaxExpansion < 1 {
		return Invalid("max_expansion", "%d is not positive", s.MaxExpansion)
	}
	if s.PartitionBytes < 1 {
		return Invalid("partition_bytes", "%d is not positive", s.PartitionBytes)
	}
	if s.ShardTokens < 1 {
		return Invalid("shard_tokens", "%d is not positive", s.ShardTokens)
	}
	if s.Clean != nil {
		if err := s.Clean.Validate(); err != nil {
			return err
		}
	}
	_, err := ParseTolerance(s.MaxBad)
	return err
}

func (m MappingSpec) validate() error {
	if m.Container != "" {
		if err := oneOf("mapping.container", m.Container, "json", "csv", "parquet"); err != nil {
			return err
		}
	}
	switch {
	case m.Messages == "" && m.Prompt == "":
		return Invalid("mapping.prompt", "name the fields of the prompt and the completion, or that of the messages")
	case m.Messages == "" && m.Completion == "":
		return Invalid("mapping.completion", "names no field")
	case m.Messages != "" && (m.Prompt != "" || m.Completion != ""):
		return Invalid("mapping.messages", "takes the place of prompt and completion: name one or the other")
	case m.Messages == "" && (m.Role != "" || m.Content != "" || len(m.Roles) > 0):
		return Invalid("mapping.role", "role, content and roles describe the turns of messages, which is not named")
	}
	for _, name := range slices.Sorted(maps.Keys(m.Roles)) {
		if err := oneOf("mapping.roles."+name, m.Roles[name], "system", "user", "assistant"); err != nil {
			return err
		}
	}
	return nil
}

func oneOf(field, v string, choices ...string) error {
	if !slices.Contains(choices, v) {
		return Invalid(field, "%q is not one of %s", v, strings.Join(choices, ", "))
	}
	return nil
}

func setString(v *string, to string) {
	if *v == "" {
		*v = to
	}
}

// Tolerance is how much bad input a job accepts: a count, or a share of the
// records read.
type Tolerance struct {
	Count int64
	Share float64 // 0..1; used when IsShare
	// IsShare says that the tolerance is a share.
	IsShare bool
}

// ParseTolerance parses "N" or "P%".
func ParseTolerance(s string) (Tolerance, error) {
	if p, ok := strings.CutSuffix(s, "%"); ok {
		v, err := strconv.ParseFloat(p, 64)
		if err != nil || !(v >= 0 && v <= 100) {
			return Tolerance{}, Invalid("max_bad", "%q is not a share between 0%% and 100%%", s)
		}
		return Tolerance{Share: v / 100, IsShare: true}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return Tolerance{}, Invalid("max_bad", "%q is neither a count nor a share such as 0.5%%", s)
	}
	return Tolerance{Count: n}, nil
}

// Exceeded reports whether bad of read records is too many. A share is judged
// only at the end of the input, when read is the whole.
func (t Tolerance) Exceeded(bad, read int64, end bool) bool {
	if t.IsShare {
		return end && float64(bad) > t.Share*float64(read)
	}
	return bad > t.Count
}
