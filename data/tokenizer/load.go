package tokenizer

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/specstream/specstream"
)

// maxFile bounds the uncompressed size of a tokenizer file. The largest in use
// (256,000 tokens) have 35 MB.
const maxFile = 256 << 20

// Load reads a tokenizer.json, gzip-compressed or not, and the
// tokenizer_config.json beside it when there is one (for BOS and EOS only).
// What is malformed or not supported is a [specstream.InputError].
func Load(path string) (*Tokenizer, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &specstream.InputError{File: path, Reason: "no such tokenizer file", Hint: "give the path of a Hugging Face tokenizer.json"}
	}
	if err != nil {
		return nil, fmt.Errorf("open tokenizer: %w", err)
	}
	defer f.Close()
	t, err := Parse(path, f)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(filepath.Dir(path), configName)
	b, err := os.ReadFile(config)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("read tokenizer config: %w", err)
	default:
		if err := t.readConfig(config, b); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Parse reads a tokenizer.json, gzip-compressed or not, from r. The name stands
// for it in errors.
func Parse(name string, r io.Reader) (*Tokenizer, error) {
	b, err := readFile(name, r)
	if err != nil {
		return nil, err
	}
	l := &loader{name: name, t: &Tokenizer{
		uni:    tables(),
		digest: specstream.DigestBytes(b),
		raw:    b,
	}}
	if err := l.load(b); err != nil {
		return nil, err
	}
	return l.t, nil
}

func readFile(name string, r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read tokenizer %s: %w", name, err)
	}
	if len(b) >= 2 && b[0] == 0x1f && b[1] == 0x8b {
		bad := func(err error) error {
			return &specstream.InputError{File: name, Reason: "damaged gzip data", Err: err}
		}
		z, err := gzip.NewReader(bytes.NewReader(b))
		if err != nil {
			return nil, bad(err)
		}
		if b, err = io.ReadAll(io.LimitReader(z, maxFile+1)); err != nil {
			return nil, bad(err)
		}
	}
	if len(b) > maxFile {
		return nil, &specstream.InputError{File: name, Reason: fmt.Sprintf("larger than %d MiB", maxFile>>20), Hint: "is it a tokenizer.json?"}
	}
	return b, nil
}

// loader builds a Tokenizer from one file.
type loader struct {
	name  string
	t     *Tokenizer
	added []*addedToken
}

// bad returns an InputError about one field.
func (l *loader) bad(field, format string, args ...any) error {
	return &specstream.InputError{File: l.name, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// unsupported is bad for what is well formed but not implemented.
func (l *loader) unsupported(field, format string, args ...any) error {
	return &specstream.InputError{
		File: l.name, Field: field, Reason: fmt.Sprintf(format, args...) + " is not supported",
		Hint: "byte-level BPE (GPT-2, Llama-3, Qwen) and SentencePiece-style BPE with byte fallback (Llama-2, Phi-3) are",
	}
}

func (l *loader) load(b []byte) error {
	if !utf8.Valid(b) {
		return l.bad("", "not valid UTF-8")
	}
	if at := loneSurrogate(b); at >= 0 {
		return l.bad("", "half a surrogate pair at byte %d", at)
	}
	top, err := l.object("", b)
	if err != nil {
		return err
	}
	// Checked first: everything else hangs on it.
	modelJSON, ok := top["model"]
	if !ok {
		return l.bad("model", "missing")
	}
	if v, ok := top["version"]; ok {
		var version string
		if err := l.value("version", v, &version); err != nil {
			return err
		}
		if version != "1.0" {
			return l.unsupported("version", "version %q", version)
		}
	}
	if err := l.loadNormalizer(top["normalizer"]); err != nil {
		return err
	}
	byteLevel, err := l.loadPreTokenizer(top["pre_tokenizer"])
	if err != nil {
		return err
	}
	if err := l.loadDecoder(top["decoder"]); err != nil {
		return err
	}
	spec, err := l.parseModel(modelJSON, byteLevel)
	if err != nil {
		return err
	}
	if err := l.loadAdded(top["added_tokens"], spec); err != nil {
		return err
	}
	if err := l.index(spec); err != nil {
		return err
	}
	if err := l.buildModes(spec); err != nil {
		return err
	}
	l.t.bos = l.t.conventional(conventionalBOS)
	l.t.eos = l.t.conventional(conventionalEOS)
	return nil
}

// object decodes a JSON object to its members. Unlike decoding to a struct it
// matches names exactly.
func (l *loader) object(field string, b []byte) (map[string]json.RawMessage, error) {
	var m map[string]json.RawMessage
	if err := l.value(field, b, &m); err != nil {
		return nil, err
	}
	if m == nil {
		return nil, l.bad(field, "want an object, got null")
	}
	return m, nil
}

// value decodes b into v, whose type the JSON must have.
func (l *loader) value(field string, b []byte, v any) error {
	err := json.Unmarshal(b, v)
	if err == nil {
		return nil
	}
	if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
		where := field
		if wrong.Field != "" {
			where = strings.TrimPrefix(field+"."+wrong.Field, ".")
		}
		return l.bad(where, "want %s, got JSON %s", specstream.JSONKind(wrong.Type), wrong.Value)
	}
	return &specstream.InputError{File: l.name, Field: field, Reason: "invalid JSON", Err: err, Hint: "the file may be cut short"}
}

// component decodes an object with a "type", whose other members must be among
// those known. It returns the type; fields are pointers to what known members
// decode into (absent or null ones are left alone).
func (l *loader) component(field string, b []byte, known func(kind string) map[string]any) (string, error) {
	m, err := l.object(field, b)
	if err != nil {
		return "", err
	}
	var kind string
	if v, ok := m["type"]; !ok {
		return "", l.bad(field+".type", "missing")
	} else if err := l.value(field+".type", v, &kind); err != nil {
		return "", err
	}
	into := known(kind)
	if into == nil {
		return "", l.unsupported(field+".type", "type %q", kind)
	}
	for name, v := range m {
		if name == "type" {
			continue
		}
		p, ok := into[name]
		if !ok {
			return "", l.unsupported(field+"."+name, "this setting of %s", kind)
		}
		if p == nil || string(v) == "null" {
			continue // understood and without effect on ids
		}
		if err := l.value(field+"."+name, v, p); err != nil {
			return "", err
		}
	}
	return kind, nil
}

// isNull reports whether a member is absent or null.
func isNull(b json.RawMessage) bool { return len(b) == 0 || string(b) == "null" }

// loneSurrogate returns the index of the first \uD800–\uDFFF escape that is no
// half of a pair, -1 if there is none. encoding/json would read it as U+FFFD
// and two tokens could become one.
func loneSurrogate(b []byte) int {
	for i := 0; i < len(b); {
		k := bytes.IndexByte(b[i:], '\\')
		if k < 0 || i+k+1 >= len(b) {
			return -1
		}
		i += k
		if b[i+1] != 'u' {
			i += 2
			continue
		}
		r := escaped(b[i:])
		switch {
		case r >= 0xD800 && r < 0xDC00:
			if low := escaped(b[i+6:]); low < 0xDC00 || low > 0xDFFF {
				return i
			}
			i += 12
		case r >= 0xDC00 && r <= 0xDFFF:
			return i
		default:
			i += 2
		}
	}
	return -1
}

// escaped returns the value of a \uXXXX escape at the start of b, -1 if none.
func escaped(b []byte) int {
	if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
		return -1
	}
	r := 0
	for _, c := range b[2:6] {
		d, ok := hexDigit(c)
		if !ok {
			return -1
		}
		r = r<<4 | int(d)
	}
	return r
}

// index builds the tables by id: tokens, how they decode, which are special.
func (l *loader) index(spec *modelSpec) error {
	t := l.t
	highest := int32(-1)
	count := len(spec.vocab)
	for _, id := range spec.vocab {
		highest = max(highest, id)
	}
	for _, a := range l.added {
		if _, ok := spec.vocab[a.content]; !ok {
			count++
		}
		highest = max(highest, a.id)
	}
	if int(highest) > 4*count+1<<16 {
		return l.bad("model.vocab", "highest id is %d with %d tokens", highest, count)
	}
	n := int(highest) + 1
	t.tokens, t.decodeAs = make([]string, n), make([]string, n)
	t.present, t.skip = make([]bool, n), make([]bool, n)
	t.ids = make(map[string]int32, count)
	for s, id := range spec.vocab {
		if t.present[id] {
			return l.bad("model.vocab", "%q and %q both have id %d", min(s, t.tokens[id]), max(s, t.tokens[id]), id)
		}
		t.tokens[id], t.decodeAs[id], t.present[id], t.ids[s] = s, s, true, id
	}
	for _, a := range l.added {
		if t.present[a.id] && t.tokens[a.id] != a.content {
			return l.bad("added_tokens", "%q has the id %d of %q", a.content, a.id, t.tokens[a.id])
		}
		t.tokens[a.id], t.decodeAs[a.id], t.present[a.id], t.ids[a.content] = a.content, a.pattern, true, a.id
		t.skip[a.id] = a.special
	}
	if len(t.decoders) == 1 && t.decoders[0].kind == decByteLevel {
		t.text = make([]string, n)
		for id, s := range t.decodeAs {
			t.text[id] = fromByteLevel(s)
		}
	}
	return nil
}
