package tokenizer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/specstream/specstream"
)

// mergesNames are the names of the merges beside a vocabulary.
var mergesNames = []string{"merges.txt", "vocab.bpe", "gpt2-merges.txt"}

// mergesText is the merges beside a vocabulary.
type mergesText struct{ name, text string }

func findMerges(vocab string) (mergesText, error) {
	dir := filepath.Dir(vocab)
	for _, name := range mergesNames {
		for _, suffix := range []string{"", ".gz"} {
			path := filepath.Join(dir, name+suffix)
			b, err := openFile(path)
			switch {
			case err == nil:
				return mergesText{path, string(b)}, nil
			case !errors.Is(err, fs.ErrNotExist):
				return mergesText{}, err
			}
		}
	}
	return mergesText{}, &specstream.InputError{File: vocab, Reason: "a vocabulary without merges", Hint: "put merges.txt beside it"}
}

// vocabFile makes a tokenizer.json of GPT-2's vocab.json and merges.txt.
func vocabFile(name string, b []byte, merges mergesText, c *config) ([]byte, *family, error) {
	bad := func(reason string, err error) error {
		return &specstream.InputError{File: name, Reason: reason, Err: err}
	}
	if !utf8.Valid(b) || loneSurrogate(b) >= 0 {
		return nil, nil, bad("not valid UTF-8", nil)
	}
	var vocab map[string]int32
	if err := json.Unmarshal(b, &vocab); err != nil {
		return nil, nil, bad("want an object of ids by token", err)
	}
	for token, id := range vocab {
		if id < 0 || token == "" {
			return nil, nil, bad(fmt.Sprintf("token %q has id %d", token, id), nil)
		}
	}
	f, err := familyOf(name, vocab, c)
	if err != nil {
		return nil, nil, err
	}
	s := &bpeSpec{vocab: vocab}
	var pairs [][2]string
	number := int64(0)
	for line := range strings.Lines(merges.text) {
		number++
		line = strings.TrimRight(line, "\r\n")
		if line == "" || number == 1 && strings.HasPrefix(line, "#version") {
			continue
		}
		left, right, err := s.cutMerge(line)
		for _, token := range []string{left, right, left + right} {
			if _, ok := vocab[token]; err == nil && !ok {
				err = fmt.Errorf("needs the token %q, which is not in %s", token, filepath.Base(name))
			}
		}
		if err != nil {
			return nil, nil, &specstream.InputError{File: merges.name, Record: number, Reason: fmt.Sprintf("merge %q", line), Err: err}
		}
		pairs = append(pairs, [2]string{left, right})
	}
	// Llama-3's tokens were made without merges, from ranks.
	b, err = f.file(name, vocab, pairs, f.name == "llama3", c)
	return b, f, err
}
