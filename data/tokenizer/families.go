package tokenizer

import (
	"fmt"
	"slices"

	"github.com/specstream/specstream"
)

// family is what files of ranks, or of a vocabulary and merges, leave out.
type family struct {
	name    string
	size    int      // ranks or vocabulary entries that tell the family; 0: only the class does
	classes []string // tokenizer_class in tokenizer_config.json, without "Fast"
	pattern string   // of pre-tokenisation
	nfc     bool
	special []*addedToken // unless tokenizer_config.json names them; without id: in the vocabulary
	bos     *string       // nil: by conventional names; "": none
	eos     *string
}

// patternCL100K is that of tiktoken 0.14 in Oniguruma's syntax. It differs from
// Llama-3's in white space at the end of a text.
const patternCL100K = `'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++\z|\s*[\r\n]|\s+(?!\S)|\s`

const patternO200K = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// families in the order in which they are tried.
var families = []*family{
	{
		name: "llama3", size: 128000, classes: []string{"TikToken"}, pattern: patternLlama3,
		special: slices.Concat(numbered(128000,
			"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
			"<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
			"<|eot_id|>", "<|python_tag|>", "<|image|>"), sequence(128012, 244, "<|reserved_special_token_%d|>", 2)),
	},
	{
		name: "qwen", size: 151643, classes: []string{"QWenTokenizer", "Qwen2Tokenizer"}, pattern: patternQwen, nfc: true,
		special: slices.Concat(numbered(151643, "<|endoftext|>", "<|im_start|>", "<|im_end|>"), sequence(151646, 205, "<|extra_%d|>", 0)),
		bos:     new(""), eos: new("<|endoftext|>"),
	},
	{name: "r50k", size: 50256, pattern: patternGPT2, special: numbered(50256, "<|endoftext|>")},
	{name: "p50k", size: 50280, pattern: patternGPT2, special: numbered(50256, "<|endoftext|>")},
	{
		name: "cl100k", size: 100256, pattern: patternCL100K,
		special: append(numbered(100257, "<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"), numbered(100276, "<|endofprompt|>")...),
	},
	{
		name: "o200k", size: 199998, pattern: patternO200K,
		special: append(numbered(199999, "<|endoftext|>"), numbered(200018, "<|endofprompt|>")...),
	},
	{
		name: "roberta", classes: []string{"RobertaTokenizer", "BartTokenizer", "LongformerTokenizer"},
		pattern: patternGPT2, special: append(inVocabulary("<s>", "<pad>", "</s>", "<unk>"), &addedToken{id: -1, content: "<mask>", lstrip: true, special: true}),
	},
	{
		name: "opt", size: 50265, pattern: patternGPT2,
		special: inVocabulary("<pad>", "</s>"), bos: new("</s>"), eos: new("</s>"),
	},
	{
		name: "gpt2", size: 50257, classes: []string{"GPT2Tokenizer", "CodeGenTokenizer"},
		pattern: patternGPT2, special: inVocabulary("<|endoftext|>"),
	},
}

func numbered(id int32, contents ...string) []*addedToken {
	var out []*addedToken
	for i, s := range contents {
		out = append(out, &addedToken{id: id + int32(i), content: s, special: true})
	}
	return out
}

// sequence names n tokens by numbers from first on.
func sequence(id int32, n int, format string, first int) []*addedToken {
	var out []*addedToken
	for i := range n {
		out = append(out, &addedToken{id: id + int32(i), content: fmt.Sprintf(format, first+i), special: true})
	}
	return out
}

func inVocabulary(contents ...string) []*addedToken {
	out := numbered(0, contents...)
	for _, a := range out {
		a.id = -1
	}
	return out
}

// familyOf finds the family of a vocabulary: by its size, or by the class that
// the configuration names.
func familyOf(name string, vocab map[string]int32, c *config) (*family, error) {
	class := ""
	if c != nil {
		class = c.class
	}
	// RoBERTa's vocabulary is OPT's, so the class goes before the size there.
	for _, f := range families {
		if f.size == 0 && slices.Contains(f.classes, class) {
			return f, nil
		}
	}
	for _, f := range families {
		if f.size == len(vocab) {
			return f, nil
		}
	}
	for _, f := range families {
		if slices.Contains(f.classes, class) {
			return f, nil
		}
	}
	reason := fmt.Sprintf("%d tokens are no family known, so that how it cuts text to words is not either", len(vocab))
	if class != "" {
		reason += fmt.Sprintf(" (tokenizer_class is %q)", class)
	}
	return nil, &specstream.InputError{
		File: name, Reason: reason,
		Hint: "use the model's tokenizer.json; without one, name a class such as GPT2Tokenizer or Qwen2Tokenizer in " + configName,
	}
}

// useFamily takes BOS and EOS from the family, if it has them.
func (t *Tokenizer) useFamily(f *family) {
	if f == nil {
		return
	}
	for _, it := range []struct {
		name *string
		id   *int32
	}{{f.bos, &t.bos}, {f.eos, &t.eos}} {
		if it.name == nil {
			continue
		}
		*it.id = -1
		if id, ok := t.ids[*it.name]; ok {
			*it.id = id
		}
	}
}
