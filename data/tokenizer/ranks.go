package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/specstream/specstream"
)

// isRanks reports whether the first line is that of a file of ranks.
func isRanks(b []byte) bool {
	line, _, _ := bytes.Cut(b[:min(len(b), 1<<12)], []byte("\n"))
	_, _, err := parseRank(strings.TrimSuffix(string(line), "\r"))
	return err == nil
}

// parseRank reads "<base64 of the token's bytes> <rank>".
func parseRank(line string) (token string, rank int32, err error) {
	left, right, ok := strings.Cut(line, " ")
	if !ok || left == "" {
		return "", 0, fmt.Errorf("want a token in base64, a space and its rank")
	}
	raw, err := base64.StdEncoding.DecodeString(left)
	if err != nil {
		return "", 0, err
	}
	n, err := strconv.ParseInt(right, 10, 31)
	if err != nil {
		return "", 0, err
	}
	if n < 0 {
		return "", 0, fmt.Errorf("rank %d", n)
	}
	return string(raw), int32(n), nil
}

// ranksFile makes a tokenizer.json of a file of tiktoken ranks, as transformers
// converts such files.
func ranksFile(name string, b []byte, c *config) ([]byte, *family, error) {
	vocab, merges, err := readRanks(name, b)
	if err != nil {
		return nil, nil, err
	}
	f, err := familyOf(name, vocab, c)
	if err != nil {
		return nil, nil, err
	}
	b, err = f.file(name, vocab, merges, true, c)
	return b, f, err
}

// readRanks reads a file of ranks: a token's rank is its id, and every way to
// put it together from two others is a merge. (A piece that is a token is to be
// taken before any merges.)
func readRanks(name string, b []byte) (map[string]int32, [][2]string, error) {
	ranks := make(map[string]int32)
	number := int64(0)
	for line := range strings.Lines(string(b)) {
		number++
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			continue
		}
		token, rank, err := parseRank(line)
		if err == nil && token == "" {
			err = fmt.Errorf("the token is empty")
		}
		if _, twice := ranks[token]; err == nil && twice {
			err = fmt.Errorf("the token %q is there twice", token)
		}
		if err != nil {
			return nil, nil, &specstream.InputError{File: name, Record: number, Reason: "line is no rank", Err: err}
		}
		ranks[token] = rank
	}
	type ranked struct {
		token string
		rank  int32
	}
	tokens := make([]ranked, 0, len(ranks))
	vocab := make(map[string]int32, len(ranks))
	for token, rank := range ranks {
		tokens = append(tokens, ranked{token, rank})
		vocab[toByteLevel(token)] = rank
	}
	slices.SortFunc(tokens, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.token, b.token))
	})
	var merges [][2]string
	var ways [][2]int32
	for _, t := range tokens {
		ways = ways[:0]
		for i := 1; i < len(t.token); i++ {
			left, ok1 := ranks[t.token[:i]]
			_, ok2 := ranks[t.token[i:]]
			if ok1 && ok2 {
				ways = append(ways, [2]int32{left, int32(i)})
			}
		}
		// In order of the left part's rank; two ways never share it.
		slices.SortFunc(ways, func(a, b [2]int32) int { return cmp.Compare(a[0], b[0]) })
		for _, w := range ways {
			merges = append(merges, [2]string{toByteLevel(t.token[:w[1]]), toByteLevel(t.token[w[1]:])})
		}
	}
	return vocab, merges, nil
}

// file writes the tokenizer.json of a family's vocabulary and merges.
func (f *family) file(name string, vocab map[string]int32, merges [][2]string, ignoreMerges bool, c *config) ([]byte, error) {
	bl := byteLevelJSON{Type: "ByteLevel", TrimOffsets: true}
	special := f.special
	if c != nil {
		bl.AddPrefixSpace = c.prefixSpace
		if len(c.added) > 0 {
			special = c.added
		}
	}
	var pre any
	if bl.UseRegex = f.pattern == patternGPT2; bl.UseRegex {
		pre = bl
	} else {
		s := splitJSON{Type: "Split", Behavior: "Isolated"}
		s.Pattern.Regex = f.pattern
		pre = sequenceJSON{Type: "Sequence", PreTokenizers: []any{s, bl}}
	}
	if merges == nil {
		merges = [][2]string{} // a list, if an empty one
	}
	out := fileJSON{
		Version: "1.0", AddedTokens: []addedJSON{}, PreTokenizer: pre,
		Decoder: byteLevelJSON{Type: "ByteLevel", AddPrefixSpace: true, TrimOffsets: true, UseRegex: true},
		Model:   modelJSON{Type: "BPE", IgnoreMerges: ignoreMerges, Merges: merges},
	}
	if f.nfc {
		out.Normalizer = map[string]string{"type": "NFC"}
	}
	byID := make(map[int32]string, len(vocab))
	for token, id := range vocab {
		if other, ok := byID[id]; ok {
			return nil, &specstream.InputError{File: name, Reason: fmt.Sprintf("%q and %q both have id %d", min(token, other), max(token, other), id)}
		}
		byID[id] = token
	}
	for _, a := range special {
		id := a.id
		if have, ok := vocab[a.content]; ok {
			if id >= 0 && id != have {
				return nil, &specstream.InputError{File: name, Reason: fmt.Sprintf("%q has id %d, but %d is wanted", a.content, have, id)}
			}
			id = have
		} else if id < 0 {
			continue // not in this vocabulary
		}
		if other, ok := byID[id]; ok && other != a.content {
			return nil, &specstream.InputError{File: name, Reason: fmt.Sprintf("the special token %q has the id %d of %q", a.content, id, other)}
		}
		byID[id] = a.content
		out.AddedTokens = append(out.AddedTokens, addedJSON{
			ID: id, Content: a.content, SingleWord: a.singleWord, Lstrip: a.lstrip, Rstrip: a.rstrip, Normalized: a.normalized, Special: a.special,
		})
	}
	highest := int32(-1)
	for id := range byID {
		highest = max(highest, id)
	}
	if int(highest) > 4*len(byID)+1<<16 {
		return nil, &specstream.InputError{File: name, Reason: fmt.Sprintf("the highest id is %d with %d tokens", highest, len(byID))}
	}
	out.Model.Vocab = make(vocabJSON, highest+1)
	gaps := len(byID) != len(out.Model.Vocab)
	for id, token := range byID {
		// Tokens that are not in the vocabulary get the ids after it. Where
		// those leave gaps, the special tokens must be in it too.
		if _, ok := vocab[token]; ok || gaps {
			out.Model.Vocab[id] = token
		}
	}
	slices.SortFunc(out.AddedTokens, func(a, b addedJSON) int { return cmp.Compare(a.ID, b.ID) })
	b, err := marshalPlain(out)
	if err != nil {
		return nil, fmt.Errorf("write tokenizer of %s: %w", name, err)
	}
	return append(b, '\n'), nil
}
