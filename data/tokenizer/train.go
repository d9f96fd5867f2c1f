package tokenizer

import (
	"container/heap"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/specstream/specstream"
)

// Split names a pre-tokenisation for [Train].
type Split string

// The splits of the families supported. They differ in how words, punctuation
// and line ends hang together, and in numerals: GPT-2 keeps a whole number as
// one piece, Llama-3 cuts it into threes, Qwen into single digits. Single
// digits make small vocabularies spell numbers regularly.
const (
	SplitGPT2   Split = "gpt2"
	SplitLlama3 Split = "llama3"
	SplitQwen   Split = "qwen"
)

var splits = map[Split]string{SplitGPT2: patternGPT2, SplitLlama3: patternLlama3, SplitQwen: patternQwen}

// TrainOptions are the settings of [Train].
type TrainOptions struct {
	// VocabSize is the size wanted, special tokens and the 256 byte symbols
	// included. Training stops early when no pair is frequent enough.
	VocabSize int
	// MinFrequency is how often a pair must occur to be merged; 0 means 1.
	MinFrequency int
	// SpecialTokens get ids 0, 1, … in order. They are recognised by
	// EncodeSpecial only and never made by Encode.
	SpecialTokens []string
	// BOS and EOS name the special tokens that begin and end a sequence; ""
	// leaves it to the conventional names. SaveConfig records them.
	BOS, EOS string
	// Split is the pre-tokenisation; "" means [SplitQwen].
	Split Split
	// Progress, when not nil, is called now and then from the goroutine of
	// Train with the size of the vocabulary so far and the size wanted.
	Progress func(done, total int)
}

func (o *TrainOptions) validate() error {
	if o.Split == "" {
		o.Split = SplitQwen
	}
	if _, ok := splits[o.Split]; !ok {
		return specstream.Invalid("split", "unknown split %q: want gpt2, llama3 or qwen", o.Split)
	}
	if o.MinFrequency < 0 {
		return specstream.Invalid("min_frequency", "is %d, want 0 or more", o.MinFrequency)
	}
	seen := make(map[string]bool)
	for _, s := range o.SpecialTokens {
		switch {
		case s == "" || strings.TrimSpace(s) == "":
			return specstream.Invalid("special_tokens", "a special token is empty or white space")
		case !utf8.ValidString(s):
			return specstream.Invalid("special_tokens", "%q is not valid UTF-8", s)
		case utf8.RuneCountInString(s) == 1:
			return specstream.Invalid("special_tokens", "%q has one character: text would be full of it", s)
		case seen[s]:
			return specstream.Invalid("special_tokens", "%q is there twice", s)
		}
		seen[s] = true
	}
	for _, it := range []struct{ field, token string }{{"bos", o.BOS}, {"eos", o.EOS}} {
		if it.token != "" && !seen[it.token] {
			return specstream.Invalid(it.field, "%q is not among the special tokens", it.token)
		}
	}
	if least := len(o.SpecialTokens) + 256; o.VocabSize < least || o.VocabSize > 1<<22 {
		return specstream.Invalid("vocab_size", "is %d, want at least %d (256 bytes and the special tokens) and at most %d", o.VocabSize, least, 1<<22)
	}
	return nil
}

// Train learns a byte-level BPE tokenizer from texts (Sennrich et al., 2016, on
// the bytes of pieces cut by o.Split). Vocabulary and merges are those of
// Hugging Face's BpeTrainer with initial_alphabet=ByteLevel.alphabet(): the
// most frequent pair is merged first, and of equally frequent ones the one
// with the lower left, then the lower right id. The result depends on texts and
// options alone, not on the order of texts.
//
// Pair counts are updated where a merge took place, and a heap finds the most
// frequent pair, so the cost grows with the occurrences merged, not with
// vocabulary × text. Memory grows with the number of distinct pieces.
// Cancelling ctx returns its error.
func Train(ctx context.Context, texts iter.Seq[string], o TrainOptions) (*Tokenizer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	words, err := countPieces(ctx, texts, splitters[splits[o.Split]])
	if err != nil {
		return nil, err
	}
	tr := newTrainer(o, words)
	if err := tr.run(ctx, o); err != nil {
		return nil, err
	}
	b, err := tr.marshal(o)
	if err != nil {
		return nil, err
	}
	t, err := Parse("trained tokenizer", strings.NewReader(string(b)))
	if err != nil {
		return nil, fmt.Errorf("train tokenizer: %w", err)
	}
	for _, it := range []struct {
		token string
		id    *int32
	}{{o.BOS, &t.bos}, {o.EOS, &t.eos}} {
		if it.token != "" {
			*it.id = t.ids[it.token]
		}
	}
	return t, nil
}

// trainWord is a distinct piece of the texts.
type trainWord struct {
	sym   []int32
	count int64
}

// countPieces returns the distinct pieces and how often each occurs.
func countPieces(ctx context.Context, texts iter.Seq[string], split splitter) (map[string]int64, error) {
	u := tables()
	counts := make(map[string]int64)
	for s := range texts {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("train tokenizer: %w", err)
		}
		if !utf8.ValidString(s) {
			s = toValidUTF8(s)
		}
		for i := 0; i < len(s); {
			j := split(u, s, i)
			if _, ok := counts[s[i:j]]; ok {
				counts[s[i:j]]++
			} else {
				counts[strings.Clone(s[i:j])] = 1
			}
			i = j
		}
	}
	return counts, nil
}

// pairStats is a queued pair: its count when queued, and the words in which it
// arose then.
type pairStats struct {
	left, right int32
	count       int64
	born        int // merges made before it was queued
	words       []int32
}

// pairQueue is a heap of pairs, the most frequent first.
type pairQueue []*pairStats

func (q pairQueue) Len() int      { return len(q) }
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *pairQueue) Push(x any)   { *q = append(*q, x.(*pairStats)) }
func (q *pairQueue) Pop() any {
	old := *q
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return x
}

func (q pairQueue) Less(i, j int) bool {
	a, b := q[i], q[j]
	switch {
	case a.count != b.count:
		return a.count > b.count
	case a.left != b.left:
		return a.left < b.left
	case a.right != b.right:
		return a.right < b.right
	default: // one pair queued twice: see trainer.run
		return a.born < b.born
	}
}

// trainer holds the state of one training.
type trainer struct {
	tokens []string // by id, in GPT-2's byte alphabet
	ids    map[string]int32
	words  []trainWord
	counts map[uint64]int64 // by pair
	queue  pairQueue
	merges []mergeSpec
}

func newTrainer(o TrainOptions, counts map[string]int64) *trainer {
	tr := &trainer{ids: make(map[string]int32, o.VocabSize), counts: make(map[uint64]int64)}
	for _, s := range o.SpecialTokens {
		tr.add(s)
	}
	alphabet := byteRunes
	slices.Sort(alphabet[:])
	for _, r := range alphabet {
		tr.add(string(r))
	}
	var symbol [256]int32
	for b, r := range byteRunes {
		symbol[b] = tr.ids[string(r)]
	}
	tr.words = make([]trainWord, 0, len(counts))
	for s, n := range counts {
		if len(s) < 2 {
			continue // no pairs
		}
		w := trainWord{sym: make([]int32, len(s)), count: n}
		for i := range len(s) {
			w.sym[i] = symbol[s[i]]
		}
		tr.words = append(tr.words, w)
	}
	where := make(map[uint64][]int32)
	for i, w := range tr.words {
		for k := 1; k < len(w.sym); k++ {
			p := pairOf(w.sym[k-1], w.sym[k])
			tr.counts[p] += w.count
			where[p] = appendNew(where[p], int32(i))
		}
	}
	tr.enqueue(where)
	return tr
}

// add gives a token the next id, or returns the one it has.
func (tr *trainer) add(token string) int32 {
	if id, ok := tr.ids[token]; ok {
		return id
	}
	id := int32(len(tr.tokens))
	tr.tokens = append(tr.tokens, token)
	tr.ids[token] = id
	return id
}

// appendNew appends i unless it was appended last: words come in runs.
func appendNew(s []int32, i int32) []int32 {
	if n := len(s); n > 0 && s[n-1] == i {
		return s
	}
	return append(s, i)
}

// enqueue queues the pairs that just arose in the words given.
func (tr *trainer) enqueue(where map[uint64][]int32) {
	for p, words := range where {
		if n := tr.counts[p]; n > 0 {
			heap.Push(&tr.queue, &pairStats{left: int32(p >> 32), right: int32(uint32(p)), count: n, born: len(tr.merges), words: words})
		}
	}
	clear(where)
}

// progressEvery is how many merges pass between calls of Progress.
const progressEvery = 64

// run merges until the vocabulary is full or no pair is frequent enough.
func (tr *trainer) run(ctx context.Context, o TrainOptions) error {
	least := max(int64(o.MinFrequency), 1)
	report := func() {
		if o.Progress != nil {
			o.Progress(len(tr.tokens), o.VocabSize)
		}
	}
	report()
	where := make(map[uint64][]int32)
	for len(tr.tokens) < o.VocabSize && len(tr.queue) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("train tokenizer: %w", err)
		}
		top := tr.queue[0]
		// Counts only reach the queue when a pair comes up.
		if n := tr.counts[pairOf(top.left, top.right)]; n != top.count {
			top.count = n
			heap.Fix(&tr.queue, 0)
			continue
		}
		if top.count < least {
			break
		}
		heap.Pop(&tr.queue)
		// Two pairs can spell one token ("ab"+"c", "a"+"bc"). The second adds no
		// token, but pairs with the token may arise anew: they are queued again,
		// with the words in which they did. Hugging Face does the same and so
		// may merge a pair twice.
		m := mergeSpec{top.left, top.right, tr.add(tr.tokens[top.left] + tr.tokens[top.right])}
		tr.merges = append(tr.merges, m)
		for _, i := range top.words {
			tr.mergeIn(i, m, where)
		}
		tr.enqueue(where)
		if len(tr.merges)%progressEvery == 0 {
			report()
		}
	}
	report()
	return nil
}

// mergeIn applies a merge to one word, updating counts and noting in where the
// pairs that arise.
func (tr *trainer) mergeIn(i int32, m mergeSpec, where map[uint64][]int32) {
	w := &tr.words[i]
	change := func(left, right int32, by int64) {
		p := pairOf(left, right)
		tr.counts[p] += by * w.count
		if by > 0 {
			where[p] = appendNew(where[p], i)
		}
	}
	out := w.sym[:0]
	for k := 0; k < len(w.sym); k++ {
		if k+1 == len(w.sym) || w.sym[k] != m.left || w.sym[k+1] != m.right {
			out = append(out, w.sym[k])
			continue
		}
		if n := len(out); n > 0 {
			change(out[n-1], m.left, -1)
			change(out[n-1], m.product, 1)
		}
		if k+2 < len(w.sym) {
			change(m.right, w.sym[k+2], -1)
			change(m.product, w.sym[k+2], 1)
		}
		out = append(out, m.product)
		k++
	}
	w.sym = out
}
