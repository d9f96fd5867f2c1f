package tokenizer

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Types of the tokenizer.json that Train writes, in the order in which Hugging
// Face's library writes their members.
type (
	fileJSON struct {
		Version       string      `json:"version"`
		Truncation    any         `json:"truncation"`
		Padding       any         `json:"padding"`
		AddedTokens   []addedJSON `json:"added_tokens"`
		Normalizer    any         `json:"normalizer"`
		PreTokenizer  any         `json:"pre_tokenizer"`
		PostProcessor any         `json:"post_processor"`
		Decoder       any         `json:"decoder"`
		Model         modelJSON   `json:"model"`
	}
	addedJSON struct {
		ID         int32  `json:"id"`
		Content    string `json:"content"`
		SingleWord bool   `json:"single_word"`
		Lstrip     bool   `json:"lstrip"`
		Rstrip     bool   `json:"rstrip"`
		Normalized bool   `json:"normalized"`
		Special    bool   `json:"special"`
	}
	byteLevelJSON struct {
		Type           string `json:"type"`
		AddPrefixSpace bool   `json:"add_prefix_space"`
		TrimOffsets    bool   `json:"trim_offsets"`
		UseRegex       bool   `json:"use_regex"`
	}
	splitJSON struct {
		Type    string `json:"type"`
		Pattern struct {
			Regex string
		} `json:"pattern"`
		Behavior string `json:"behavior"`
		Invert   bool   `json:"invert"`
	}
	sequenceJSON struct {
		Type          string `json:"type"`
		PreTokenizers []any  `json:"pretokenizers"`
	}
	modelJSON struct {
		Type                    string      `json:"type"`
		Dropout                 any         `json:"dropout"`
		UnkToken                any         `json:"unk_token"`
		ContinuingSubwordPrefix any         `json:"continuing_subword_prefix"`
		EndOfWordSuffix         any         `json:"end_of_word_suffix"`
		FuseUnk                 bool        `json:"fuse_unk"`
		ByteFallback            bool        `json:"byte_fallback"`
		IgnoreMerges            bool        `json:"ignore_merges"`
		Vocab                   vocabJSON   `json:"vocab"`
		Merges                  [][2]string `json:"merges"`
	}
)

// vocabJSON writes tokens in order of id, as people expect to read them; an
// empty one is an id that is not used.
type vocabJSON []string

func (v vocabJSON) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for id, s := range v {
		if s == "" {
			continue
		}
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		key, err := marshalPlain(s)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		fmt.Fprintf(&b, ":%d", id)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// marshalPlain encodes without escaping <, > and &, which vocabularies are full
// of.
func marshalPlain(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// marshal writes the trained tokenizer as tokenizer.json.
func (tr *trainer) marshal(o TrainOptions) ([]byte, error) {
	bl := byteLevelJSON{Type: "ByteLevel", TrimOffsets: true, UseRegex: o.Split == SplitGPT2}
	f := fileJSON{
		Version:       "1.0",
		AddedTokens:   make([]addedJSON, len(o.SpecialTokens)),
		PreTokenizer:  bl,
		PostProcessor: byteLevelJSON{Type: "ByteLevel", AddPrefixSpace: true, UseRegex: true},
		Decoder:       byteLevelJSON{Type: "ByteLevel", AddPrefixSpace: true, TrimOffsets: true, UseRegex: true},
		Model:         modelJSON{Type: "BPE", Vocab: tr.tokens, Merges: make([][2]string, 0, len(tr.merges))},
	}
	for i, s := range o.SpecialTokens {
		f.AddedTokens[i] = addedJSON{ID: int32(i), Content: s, Special: true}
	}
	if !bl.UseRegex {
		s := splitJSON{Type: "Split", Behavior: "Isolated"}
		s.Pattern.Regex = splits[o.Split]
		f.PreTokenizer = sequenceJSON{Type: "Sequence", PreTokenizers: []any{s, bl}}
	}
	// A pair that was merged twice counts at its last place.
	last := make(map[uint64]int, len(tr.merges))
	for i, m := range tr.merges {
		last[pairOf(m.left, m.right)] = i
	}
	for i, m := range tr.merges {
		if last[pairOf(m.left, m.right)] == i {
			f.Model.Merges = append(f.Model.Merges, [2]string{tr.tokens[m.left], tr.tokens[m.right]})
		}
	}
	b, err := marshalPlain(f)
	if err != nil {
		return nil, fmt.Errorf("train tokenizer: %w", err)
	}
	return append(b, '\n'), nil
}

// Save writes the tokenizer's file: for one that was loaded from a
// tokenizer.json or SentencePiece model the bytes it was read from,
// uncompressed, else a tokenizer.json that Hugging Face's library loads. The
// file appears whole or not at all.
func (t *Tokenizer) Save(path string) error {
	if err := writeFile(path, t.raw); err != nil {
		return fmt.Errorf("save tokenizer: %w", err)
	}
	return nil
}

// SaveConfig writes a tokenizer_config.json to path: what [Load] reads BOS and
// EOS from and what Hugging Face's transformers needs to load the folder.
func (t *Tokenizer) SaveConfig(path string) error {
	token := func(id int32) any {
		if id < 0 {
			return nil
		}
		return t.Token(id)
	}
	members := map[string]any{
		"add_bos_token":                false,
		"add_eos_token":                false,
		"bos_token":                    token(t.bos),
		"clean_up_tokenization_spaces": false,
		"eos_token":                    token(t.eos),
		"tokenizer_class":              "PreTrainedTokenizerFast",
	}
	if len(t.extra) > 0 {
		added := make(map[string]addedJSON, len(t.extra))
		for _, a := range t.extra {
			added[strconv.Itoa(int(a.id))] = addedJSON{
				ID: a.id, Content: a.content, SingleWord: a.singleWord, Lstrip: a.lstrip, Rstrip: a.rstrip, Normalized: a.normalized, Special: a.special,
			}
		}
		members["added_tokens_decoder"] = added
	}
	b, err := json.MarshalIndent(members, "", "  ")
	if err != nil {
		return fmt.Errorf("save tokenizer config: %w", err)
	}
	if err := writeFile(path, append(b, '\n')); err != nil {
		return fmt.Errorf("save tokenizer config: %w", err)
	}
	return nil
}

// SaveDir writes the tokenizer's file (tokenizer.json, or tokenizer.model for a
// SentencePiece model) and tokenizer_config.json into a folder, which must
// exist. Loading the folder gives an equal tokenizer.
func (t *Tokenizer) SaveDir(dir string) error {
	if err := t.Save(filepath.Join(dir, t.file)); err != nil {
		return err
	}
	return t.SaveConfig(filepath.Join(dir, configName))
}

// writeFile writes a file through a temporary one beside it.
func writeFile(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	if _, err = f.Write(b); err != nil {
		return err
	}
	if err = f.Chmod(0o644); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
