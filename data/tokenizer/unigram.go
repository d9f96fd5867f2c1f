package tokenizer

import (
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"unicode/utf8"
)

// unigramSpec is a Unigram model (Kudo, 2018): pieces with log-probabilities,
// of which the likeliest sequence spells a text.
type unigramSpec struct {
	pieces   []unigramPiece // by id
	vocab    map[string]int32
	unk      int32 // -1: none
	fallback bool
	spm      bool    // SentencePiece's own arithmetic and treatment of unknown characters
	least    float64 // the least score; worked out when spm is not set
}

// unigramPiece is a piece and its score. A hidden piece spells no text: a
// control, unused, byte or unknown piece of a SentencePiece model.
type unigramPiece struct {
	text   string
	score  float64
	hidden bool
}

// unkPenalty is what an unknown character costs beyond the unlikeliest piece.
const unkPenalty = 10

func (l *loader) parseUnigram(m map[string]json.RawMessage, byteLevel bool) (modelSpec, error) {
	if byteLevel {
		return nil, l.unsupported("model.type", "Unigram after ByteLevel")
	}
	var (
		unk   *int32
		items [][]json.RawMessage
		s     = &unigramSpec{unk: -1}
	)
	if err := l.settings("Unigram", m, map[string]any{"type": nil, "unk_id": &unk, "vocab": &items, "byte_fallback": &s.fallback}); err != nil {
		return nil, err
	}
	s.pieces, s.vocab = make([]unigramPiece, len(items)), make(map[string]int32, len(items))
	for id, it := range items {
		field := fmt.Sprintf("model.vocab[%d]", id)
		if len(it) != 2 {
			return nil, l.bad(field, "has %d parts, want a piece and its score", len(it))
		}
		p := &s.pieces[id]
		if err := l.value(field, it[0], &p.text); err != nil {
			return nil, err
		}
		if err := l.value(field, it[1], &p.score); err != nil {
			return nil, err
		}
		if _, twice := s.vocab[p.text]; twice || p.text == "" {
			return nil, l.bad(field, "piece %q is empty or there twice", p.text)
		}
		s.vocab[p.text] = int32(id)
	}
	switch {
	case len(items) == 0:
		return nil, l.bad("model.vocab", "missing or empty")
	case unk == nil:
		return nil, l.bad("model.unk_id", "missing: texts with unknown characters could not be encoded")
	case *unk < 0 || int(*unk) >= len(items):
		return nil, l.bad("model.unk_id", "is %d with %d pieces", *unk, len(items))
	}
	s.unk = *unk
	return s, nil
}

func (s *unigramSpec) vocabulary() map[string]int32 { return s.vocab }

// makes: any piece that is not hidden can be spelt.
func (s *unigramSpec) makes(ids map[int32]bool) bool {
	for id, p := range s.pieces {
		if ids[int32(id)] && !p.hidden {
			return true
		}
	}
	return false
}

func (s *unigramSpec) build(forbidden func(id int32) bool) model {
	m := &unigram{scores: make([]float64, len(s.pieces)), unk: s.unk, spm: s.spm, whole: make(map[string]int32)}
	for b := range m.bytes {
		m.bytes[b] = -1
		if id, ok := s.vocab[fmt.Sprintf("<0x%02X>", b)]; ok && s.fallback {
			m.bytes[b] = id
		}
	}
	least := s.least
	if !s.spm {
		least = math.Inf(1)
	}
	b := newTrieBuilder()
	for id, p := range s.pieces {
		m.scores[id] = p.score
		if !s.spm {
			least = min(least, p.score)
		}
		if p.hidden || forbidden != nil && forbidden(int32(id)) {
			continue
		}
		b.add(p.text, int32(id))
		if !s.spm {
			m.whole[p.text] = int32(id)
		}
	}
	m.trie = b.build()
	m.unkScore = least - unkPenalty
	if s.spm {
		m.unkScore = float64(float32(least) - unkPenalty)
	}
	return m
}

// unigram is a Unigram model.
type unigram struct {
	trie     trie
	scores   []float64 // by id
	unkScore float64
	unk      int32
	bytes    [256]int32       // byte fallback; -1: none
	whole    map[string]int32 // pieces: a run of unknown characters may spell one
	spm      bool
	encoders sync.Pool // of *encoder
}

func (m *unigram) get() *encoder  { return getEncoder(&m.encoders) }
func (m *unigram) put(e *encoder) { putEncoder(&m.encoders, e) }

// bestNode is the best way to spell a text up to some byte.
type bestNode struct {
	score float64
	start int32 // of its last piece; -1: none known
	id    int32
}

func (m *unigram) piece(e *encoder, dst []int32, s string) []int32 {
	if len(s) > cacheMaxPiece {
		return m.viterbi(e, dst, s)
	}
	if v, ok := e.cache[s]; ok {
		return append(dst, e.arena[v.start:v.start+v.len]...)
	}
	n := len(dst)
	dst = m.viterbi(e, dst, s)
	e.remember(s, dst[n:])
	return dst
}

// viterbi appends the ids of the likeliest pieces that spell s; of equally
// likely ways it takes the one found first, as Hugging Face and SentencePiece
// do. SentencePiece keeps scores in single precision, so that where a text is
// cut can tell on the result: s must be all that it would see.
func (m *unigram) viterbi(e *encoder, dst []int32, s string) []int32 {
	e.best = grow(e.best, len(s)+1)
	best := e.best
	for i := range best {
		best[i] = bestNode{start: -1}
	}
	better := func(end int, score float64, start int, id int32) {
		if m.spm {
			score = float64(float32(score)) // the sum of two that are exact in single precision
		}
		if b := &best[end]; b.start < 0 || score > b.score {
			*b = bestNode{score, int32(start), id}
		}
	}
	for i := 0; i < len(s); {
		n := 1
		if s[i] >= utf8.RuneSelf {
			_, n = utf8.DecodeRuneInString(s[i:])
		}
		here, single := best[i].score, false
		node := int32(0)
		for k := i; k < len(s); {
			if node = m.trie.step(node, s[k]); node < 0 {
				break
			}
			k++
			if id := m.trie.id[node]; id >= 0 {
				better(k, m.scores[id]+here, i, id)
				single = single || k == i+n
			}
		}
		if !single {
			better(i+n, m.unkScore+here, i, m.unk)
		}
		i += n
	}
	// Backwards from the end; the ids are put in order afterwards.
	first := len(dst)
	for end := len(s); end > 0; {
		b := best[end]
		start := int(b.start)
		if b.id != m.unk {
			dst = append(dst, b.id)
			end = start
			continue
		}
		for start > 0 && best[start].id == m.unk {
			start = int(best[start].start)
		}
		dst = m.unknown(dst, s[start:end])
		end = start
	}
	for i, j := first, len(dst)-1; i < j; i, j = i+1, j-1 {
		dst[i], dst[j] = dst[j], dst[i]
	}
	return dst
}

// unknown appends, last first, the ids of a run of unknown characters.
func (m *unigram) unknown(dst []int32, s string) []int32 {
	if id, ok := m.whole[s]; ok {
		return append(dst, id)
	}
	for i := range len(s) {
		if m.bytes[s[i]] < 0 {
			return append(dst, m.unk)
		}
	}
	for i := len(s) - 1; i >= 0; i-- {
		dst = append(dst, m.bytes[s[i]])
	}
	return dst
}
