package tokenizer

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/specstream/specstream"
)

// configName is the file beside tokenizer.json that names BOS and EOS.
const configName = "tokenizer_config.json"

// Names that BOS and EOS go by in the families supported, the likeliest first.
var (
	conventionalBOS = []string{"<|begin_of_text|>", "<s>", "<bos>", "<|bos|>", "<|endoftext|>"}
	conventionalEOS = []string{"<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "<|endoftext|>"}
)

func (t *Tokenizer) conventional(names []string) int32 {
	for _, s := range names {
		if id, ok := t.ids[s]; ok {
			return id
		}
	}
	return -1
}

// config is what tokenizer_config.json says that the tokenizer's own file may
// not.
type config struct {
	name        string
	class       string // tokenizer_class, without "Fast"
	prefixSpace bool   // add_prefix_space
	added       []*addedToken
	tokens      map[string]configToken // bos_token and eos_token, where mentioned
}

// configToken is a token named in a configuration; absent when it is null.
type configToken struct {
	absent  bool
	content string
}

// loadConfig reads a tokenizer_config.json and the added_tokens.json beside it;
// nil when there is neither.
func loadConfig(name string) (*config, error) {
	c := &config{name: name, tokens: make(map[string]configToken)}
	b, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.name = filepath.Join(filepath.Dir(name), addedName)
	case err != nil:
		return nil, fmt.Errorf("read tokenizer config: %w", err)
	default:
		if err := c.parse(b); err != nil {
			return nil, err
		}
	}
	if len(c.added) == 0 {
		if err := c.readAdded(filepath.Join(filepath.Dir(name), addedName)); err != nil {
			return nil, err
		}
	}
	if b == nil && len(c.added) == 0 {
		return nil, nil
	}
	return c, nil
}

func (c *config) parse(b []byte) error {
	bad := func(field, reason string, err error) error {
		return &specstream.InputError{File: c.name, Field: field, Reason: reason, Err: err}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return bad("", "invalid JSON", err)
	}
	if v := members["tokenizer_class"]; !isNull(v) {
		if err := json.Unmarshal(v, &c.class); err != nil {
			return bad("tokenizer_class", "want a string", err)
		}
		c.class = strings.TrimSuffix(c.class, "Fast")
	}
	if v := members["add_prefix_space"]; !isNull(v) {
		if err := json.Unmarshal(v, &c.prefixSpace); err != nil {
			return bad("add_prefix_space", "want true or false", err)
		}
	}
	for _, field := range []string{"bos_token", "eos_token"} {
		v, ok := members[field]
		if !ok {
			continue
		}
		token := configToken{absent: isNull(v)}
		if !token.absent && json.Unmarshal(v, &token.content) != nil {
			var object struct{ Content *string }
			if err := json.Unmarshal(v, &object); err != nil || object.Content == nil {
				return bad(field, "want a string or an object with a content", nil)
			}
			token.content = *object.Content
		}
		c.tokens[field] = token
	}
	v := members["added_tokens_decoder"]
	if isNull(v) {
		return nil
	}
	var added map[string]addedJSON
	if err := json.Unmarshal(v, &added); err != nil {
		return bad("added_tokens_decoder", "want an object of tokens by id", err)
	}
	for key, a := range added {
		id, err := strconv.ParseInt(key, 10, 32)
		if err != nil || id < 0 || a.Content == "" {
			return bad("added_tokens_decoder."+key, "want an id and a token with a content", err)
		}
		c.added = append(c.added, &addedToken{
			id: int32(id), content: a.Content, pattern: a.Content, singleWord: a.SingleWord,
			lstrip: a.Lstrip, rstrip: a.Rstrip, normalized: a.Normalized, special: a.Special,
		})
	}
	c.sort()
	return nil
}

// addedName is the file in which older folders keep added tokens.
const addedName = "added_tokens.json"

// readAdded reads an added_tokens.json: tokens and their ids.
func (c *config) readAdded(name string) error {
	b, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read added tokens: %w", err)
	}
	var ids map[string]int32
	if err := json.Unmarshal(b, &ids); err != nil {
		return &specstream.InputError{File: name, Reason: "want an object of ids by token", Err: err}
	}
	for content, id := range ids {
		if content == "" || id < 0 {
			return &specstream.InputError{File: name, Reason: fmt.Sprintf("token %q has id %d", content, id)}
		}
		// The file does not say which are special; names in brackets are.
		special := strings.HasPrefix(content, "<") && strings.HasSuffix(content, ">")
		c.added = append(c.added, &addedToken{id: id, content: content, pattern: content, special: special})
	}
	c.sort()
	return nil
}

func (c *config) sort() {
	slices.SortFunc(c.added, func(a, b *addedToken) int { return cmp.Compare(a.id, b.id) })
}

// useConfig takes BOS and EOS from the configuration. A token that is null
// there is absent; one that is not mentioned keeps its conventional name.
func (t *Tokenizer) useConfig(c *config) error {
	for _, it := range []struct {
		field string
		id    *int32
	}{{"bos_token", &t.bos}, {"eos_token", &t.eos}} {
		token, ok := c.tokens[it.field]
		switch {
		case !ok:
			continue
		case token.absent:
			*it.id = -1
			continue
		}
		id, ok := t.ids[token.content]
		if !ok {
			return &specstream.InputError{
				File: c.name, Field: it.field, Reason: fmt.Sprintf("%q is not a token of the tokenizer", token.content),
				Hint: "the two files may belong to different models",
			}
		}
		*it.id = id
	}
	return nil
}
