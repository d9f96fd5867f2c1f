package tokenizer

import (
	"encoding/json"
	"fmt"

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

// readConfig takes BOS and EOS from a tokenizer_config.json. A token that is
// null there is absent; one that is not mentioned keeps its conventional name.
func (t *Tokenizer) readConfig(name string, b []byte) error {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(b, &config); err != nil {
		return &specstream.InputError{File: name, Reason: "invalid JSON", Err: err}
	}
	for _, it := range []struct {
		field string
		id    *int32
	}{{"bos_token", &t.bos}, {"eos_token", &t.eos}} {
		v, ok := config[it.field]
		if !ok {
			continue
		}
		if isNull(v) {
			*it.id = -1
			continue
		}
		var token string
		if json.Unmarshal(v, &token) != nil {
			var object struct{ Content *string }
			if err := json.Unmarshal(v, &object); err != nil || object.Content == nil {
				return &specstream.InputError{File: name, Field: it.field, Reason: "want a string or an object with a content"}
			}
			token = *object.Content
		}
		id, ok := t.ids[token]
		if !ok {
			return &specstream.InputError{
				File: name, Field: it.field, Reason: fmt.Sprintf("%q is not a token of the tokenizer", token),
				Hint: "the two files may belong to different models",
			}
		}
		*it.id = id
	}
	return nil
}
