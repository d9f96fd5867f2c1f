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

// Load reads a tokenizer: a tokenizer.json, a SentencePiece model
// (tokenizer.model), a file of tiktoken ranks (*.tiktoken, Llama-3's
// tokenizer.model), GPT-2's vocab.json, which needs merges.txt beside it, or a
// folder with one of these; all but folders may be gzip-compressed. What a file
// is shows in its content, not in its name. The tokenizer_config.json beside it,
// when there is one, names BOS and EOS and, for files that lack them, special
// tokens and the family. What is malformed or not supported is a
// [specstream.InputError].
func Load(path string) (*Tokenizer, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if path, err = findTokenizer(path); err != nil {
			return nil, err
		}
	}
	b, err := openFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &specstream.InputError{
			File: path, Reason: "no such tokenizer file",
			Hint: "give the path of a tokenizer.json, a SentencePiece model, a file of tiktoken ranks or their folder",
		}
	}
	if err != nil {
		return nil, err
	}
	dir := filepath.Dir(path)
	c, err := loadConfig(filepath.Join(dir, configName))
	if err != nil {
		return nil, err
	}
	var f *family
	if contentOf(b) == contentVocab {
		merges, err := findMerges(path)
		if err != nil {
			return nil, err
		}
		if b, f, err = vocabFile(path, b, merges, c); err != nil {
			return nil, err
		}
	}
	return parse(path, b, c, f)
}

// tokenizerFiles are the names that Load looks for in a folder, in this order,
// each plain or with .gz.
var tokenizerFiles = []string{"tokenizer.json", "tokenizer.model", "*.tiktoken", "*.model", "vocab.json", "encoder.json", "gpt2-vocab.json"}

func findTokenizer(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("look for a tokenizer: %w", err)
	}
	for _, pattern := range tokenizerFiles {
		var found []string
		for _, e := range entries {
			ok, err := filepath.Match(pattern, strings.TrimSuffix(e.Name(), ".gz"))
			if err != nil {
				return "", fmt.Errorf("look for a tokenizer: %w", err)
			}
			if ok && !e.IsDir() {
				found = append(found, e.Name())
			}
		}
		switch {
		case len(found) == 1, len(found) > 1 && !strings.Contains(pattern, "*"):
			return filepath.Join(dir, found[0]), nil
		case len(found) > 1:
			return "", &specstream.InputError{File: dir, Reason: fmt.Sprintf("has %d tokenizers: %s", len(found), strings.Join(found, ", ")), Hint: "name one of the files"}
		}
	}
	return "", &specstream.InputError{File: dir, Reason: "has no tokenizer", Hint: "want one of " + strings.Join(tokenizerFiles, ", ")}
}

// Parse reads a tokenizer from r as [Load] does from one file, without anything
// beside it. The name stands for it in errors.
func Parse(name string, r io.Reader) (*Tokenizer, error) {
	b, err := readFile(name, r)
	if err != nil {
		return nil, err
	}
	return parse(name, b, nil, nil)
}

// content is what a file holds.
type content uint8

const (
	contentJSON  content = iota // tokenizer.json
	contentVocab                // vocab.json
	contentRanks                // tiktoken ranks
	contentSPM                  // SentencePiece model
)

func contentOf(b []byte) content {
	trimmed := bytes.TrimLeft(b, " \t\r\n")
	if len(trimmed) == 0 {
		return contentJSON
	}
	if trimmed[0] == '{' {
		// A SentencePiece model can begin with "\n{", but not like an object.
		switch next := bytes.TrimLeft(trimmed[1:], " \t\r\n"); {
		case len(next) > 0 && next[0] != '"' && next[0] != '}':
			if b[0] == '\n' {
				return contentSPM
			}
		case isVocab(trimmed):
			return contentVocab
		}
		return contentJSON
	}
	if b[0] == 0x0A && (len(b) < 2 || trimmed[0] != '[') {
		return contentSPM
	}
	if isRanks(b) {
		return contentRanks
	}
	return contentJSON
}

// isVocab reports whether an object's first value is a number: vocab.json maps
// tokens to ids.
func isVocab(b []byte) bool {
	d := json.NewDecoder(bytes.NewReader(b))
	for range 2 { // the brace and the first key
		if _, err := d.Token(); err != nil {
			return false
		}
	}
	v, err := d.Token()
	_, number := v.(float64)
	return err == nil && number
}

// parse builds the tokenizer that b holds; c is the configuration beside it and
// f the family that b was made for, both nil when there is none.
func parse(name string, b []byte, c *config, f *family) (*Tokenizer, error) {
	l := &loader{name: name, t: &Tokenizer{uni: tables()}}
	var extra []*addedToken
	switch contentOf(b) {
	case contentVocab:
		return nil, &specstream.InputError{File: name, Reason: "a vocabulary without merges", Hint: "load it from a folder that has merges.txt beside it"}
	case contentSPM:
		if c != nil {
			extra = c.added
		}
		if err := l.loadSPM(b, extra); err != nil {
			return nil, err
		}
		l.t.file = "tokenizer.model"
	case contentRanks:
		var err error
		if b, f, err = ranksFile(name, b, c); err != nil {
			return nil, err
		}
		fallthrough
	default:
		if err := l.load(b); err != nil {
			return nil, err
		}
		l.t.file = "tokenizer.json"
	}
	l.t.raw = b
	l.t.setDigest()
	l.t.useFamily(f)
	if c != nil {
		if err := l.t.useConfig(c); err != nil {
			return nil, err
		}
	}
	return l.t, nil
}

func openFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open tokenizer: %w", err)
	}
	defer f.Close()
	return readFile(path, f)
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

	normalizers []normalizer
}

// bad returns an InputError about one field.
func (l *loader) bad(field, format string, args ...any) error {
	return &specstream.InputError{File: l.name, Field: field, Reason: fmt.Sprintf(format, args...)}
}

// unsupported is bad for what is well formed but not implemented.
func (l *loader) unsupported(field, format string, args ...any) error {
	return &specstream.InputError{
		File: l.name, Field: field, Reason: fmt.Sprintf(format, args...) + " is not supported",
		Hint: "BPE and Unigram models with the usual normalizers, pre-tokenizers and decoders are",
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
	l.buildModes(spec)
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
func (l *loader) index(spec modelSpec) error {
	t := l.t
	highest := int32(-1)
	vocab := spec.vocabulary()
	count := len(vocab)
	for _, id := range vocab {
		highest = max(highest, id)
	}
	for _, a := range l.added {
		if _, ok := vocab[a.content]; !ok {
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
	for s, id := range vocab {
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
