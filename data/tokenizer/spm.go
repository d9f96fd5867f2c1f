package tokenizer

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// loadSPM builds a tokenizer from a SentencePiece model file. It encodes and
// decodes as SentencePiece does, not as Hugging Face's conversion of the file.
//
// Control pieces (<s>, [INST]) are the special tokens: EncodeSpecial takes them
// out of the text first, and each stretch between them is encoded as
// SentencePiece would encode it alone, prefix included. User-defined pieces are
// recognised by EncodeSpecial too; Encode recognises those of one character or
// of white space alone, which are text, and treats the others as absent.
func (l *loader) loadSPM(b []byte, extra []*addedToken) error {
	p, err := parseSPMProto(b)
	if err != nil {
		return l.bad("", "no SentencePiece model: %v", err)
	}
	if err := l.checkSPM(p); err != nil {
		return err
	}
	t := l.t
	n := spmNormalizer{dummyPrefix: p.dummyPrefix, removeExtra: p.removeExtra, escape: p.escape, suffix: p.suffix}
	if len(p.charsmap) > 0 {
		if n.chars, err = parseCharsmap(p.charsmap); err != nil {
			return l.bad("normalizer_spec.precompiled_charsmap", "%v", err)
		}
	}
	t.spm = &spmModel{kinds: make([]pieceKind, len(p.pieces)), unkSurface: p.unkSurface, strip: p.dummyPrefix || p.removeExtra, stripAll: p.removeExtra}
	vocab := make(map[string]int32, len(p.pieces))
	var control, user, text []*addedToken // text: user-defined pieces that are text
	hidden := make(map[int32]bool)        // what Encode must not make
	for id, piece := range p.pieces {
		vocab[piece.text] = int32(id)
		t.spm.kinds[id] = piece.kind
		a := &addedToken{id: int32(id), content: piece.text, pattern: piece.text}
		switch piece.kind {
		case pieceControl:
			a.special = true
			control = append(control, a)
		case pieceUser:
			user = append(user, a)
			if isOneRune(piece.text) || (&addedToken{content: strings.ReplaceAll(piece.text, metaSymbol, " ")}).onlySpace(t.uni) {
				text = append(text, a)
			} else {
				hidden[int32(id)] = true
			}
		}
	}
	for _, a := range extra {
		if id, ok := vocab[a.content]; ok {
			if id != a.id {
				return l.bad("pieces", "%q has id %d, but %d in %s", a.content, id, a.id, configName)
			}
			continue // the model says itself what it is
		}
		if want := int32(len(p.pieces) + len(t.extra)); a.id != want {
			return l.bad("pieces", "%q of %s has id %d, want %d, the next one free", a.content, configName, a.id, want)
		}
		t.extra = append(t.extra, a)
		control = append(control, a)
	}
	l.added = control
	var spec modelSpec
	if p.kind == spmUnigram {
		spec = newSPMUnigram(p, vocab)
	} else {
		spec = &spmBPESpec{p: p, vocab: vocab}
	}
	if err := l.index(spec); err != nil {
		return err
	}
	mode := func(user []*addedToken, m model) mode {
		n := n
		n.user = newMatcher(user)
		md := mode{raw: newMatcher(control), normalizers: []normalizer{{kind: normSentencePiece, spm: &n}}, model: m}
		if p.kind == spmBPE {
			md.normalized = n.user
		} else {
			md.forced = n.user
		}
		return md
	}
	t.special = mode(user, spec.build(nil))
	plainModel := t.special.model
	if len(hidden) > 0 {
		plainModel = spec.build(func(id int32) bool { return hidden[id] })
	}
	t.plain = mode(text, plainModel)
	t.plain.raw = nil
	t.bos, t.eos = l.controlPiece(p, p.bos), l.controlPiece(p, p.eos)
	return nil
}

// controlPiece returns id when it is a control piece, else -1.
func (l *loader) controlPiece(p *spmProto, id int32) int32 {
	if id >= 0 && int(id) < len(p.pieces) && p.pieces[id].kind == pieceControl {
		return id
	}
	return -1
}

// checkSPM refuses what SentencePiece refuses and what is not supported.
func (l *loader) checkSPM(p *spmProto) error {
	switch {
	case p.kind != spmUnigram && p.kind != spmBPE:
		return l.unsupported("trainer_spec.model_type", "model type %d (1 is Unigram, 2 is BPE)", p.kind)
	case p.denormalize:
		return l.unsupported("denormalizer_spec", "a denormalizer")
	}
	seen := make(map[string]bool, len(p.pieces))
	unknown, bytes := 0, 0
	for i, piece := range p.pieces {
		field := fmt.Sprintf("pieces[%d]", i)
		switch {
		case piece.text == "" || !utf8.ValidString(piece.text) || strings.ContainsRune(piece.text, 0):
			return l.bad(field+".piece", "%q is empty or not valid text", piece.text)
		case seen[piece.text]:
			return l.bad(field+".piece", "%q is there twice", piece.text)
		case math.IsNaN(float64(piece.score)) || math.IsInf(float64(piece.score), 0):
			return l.bad(field+".score", "is %v", piece.score)
		}
		seen[piece.text] = true
		switch piece.kind {
		case pieceNormal, pieceUser, pieceUnused:
		case pieceUnknown:
			unknown++
		case pieceControl:
			if isOneRune(piece.text) {
				return l.unsupported(field, "a control piece of one character (%q)", piece.text)
			}
		case pieceByte:
			if b, ok := byteToken(piece.text); !ok || piece.text != fmt.Sprintf("<0x%02X>", b) || !p.fallback {
				return l.bad(field, "byte piece %q is malformed, or byte_fallback is off", piece.text)
			}
			bytes++
		default:
			return l.unsupported(field+".type", "piece type %d", piece.kind)
		}
	}
	switch {
	case unknown != 1:
		return l.bad("pieces", "%d unknown pieces, want 1", unknown)
	case p.fallback && bytes != 256:
		return l.bad("pieces", "%d byte pieces with byte_fallback, want 256", bytes)
	}
	return nil
}

// spmNormalizer is SentencePiece's normalisation of a text.
type spmNormalizer struct {
	chars                                    *charsmap // nil: none
	user                                     *matcher  // user-defined pieces stay as they are
	dummyPrefix, removeExtra, escape, suffix bool
}

func (n *spmNormalizer) normalize(s string) string {
	space := " "
	if n.escape {
		space = metaSymbol
	}
	if n.chars == nil && n.user == nil && !n.removeExtra && !n.suffix {
		// Llama and Mistral.
		if n.dummyPrefix && s != "" {
			s = " " + s
		}
		if n.escape {
			s = strings.ReplaceAll(s, " ", metaSymbol)
		}
		return s
	}
	if n.removeExtra {
		for s != "" {
			to, k := n.prefix(s)
			if to != " " {
				break
			}
			s = s[k:]
		}
	}
	if s == "" {
		return ""
	}
	var b strings.Builder
	b.Grow(len(s) + len(s)/4 + 8)
	if n.dummyPrefix && !n.suffix {
		b.WriteString(space)
	}
	afterSpace := n.removeExtra
	for s != "" {
		to, k := n.prefix(s)
		if afterSpace {
			to = strings.TrimLeft(to, " ")
		}
		if to != "" {
			if n.escape {
				b.WriteString(strings.ReplaceAll(to, " ", metaSymbol))
			} else {
				b.WriteString(to)
			}
			afterSpace = n.removeExtra && strings.HasSuffix(to, " ")
		}
		s = s[k:]
	}
	out := b.String()
	if n.removeExtra {
		for strings.HasSuffix(out, space) {
			out = out[:len(out)-len(space)]
		}
	}
	if n.dummyPrefix && n.suffix {
		out += space
	}
	return out
}

// prefix returns what the beginning of s becomes, and its length: a
// user-defined piece, the longest key of the character map, or one character.
func (n *spmNormalizer) prefix(s string) (string, int) {
	if n.user != nil {
		if a := n.user.longest(s); a != nil {
			return s[:len(a.pattern)], len(a.pattern)
		}
	}
	if n.chars != nil {
		if k, to := n.chars.lookup(s, true); k > 0 {
			return to, k
		}
	}
	_, k := utf8.DecodeRuneInString(s)
	return s[:k], k
}

// newSPMUnigram returns the Unigram model of a file.
func newSPMUnigram(p *spmProto, vocab map[string]int32) *unigramSpec {
	s := &unigramSpec{pieces: make([]unigramPiece, len(p.pieces)), vocab: vocab, fallback: p.fallback, spm: true}
	least, most := float32(math.MaxFloat32), float32(0x1p-126)
	for _, piece := range p.pieces {
		if piece.kind == pieceNormal {
			least, most = min(least, piece.score), max(most, piece.score)
		}
	}
	s.least = float64(least)
	for id, piece := range p.pieces {
		u := unigramPiece{text: piece.text, score: float64(piece.score)}
		switch piece.kind {
		case pieceUser: // always better than other ways to spell it
			u.score = float64(float32(float64(float32(len(piece.text))*most) - 0.1))
		case pieceUnknown:
			s.unk = int32(id)
			u.hidden = true
		case pieceControl, pieceUnused, pieceByte:
			u.hidden = true
		}
		s.pieces[id] = u
	}
	return s
}

// spmBPESpec is the BPE model of a file: two neighbours merge when their text
// is a piece, the piece of the highest score first.
type spmBPESpec struct {
	p     *spmProto
	vocab map[string]int32
}

func (s *spmBPESpec) vocabulary() map[string]int32 { return s.vocab }

// makes is not asked: loadSPM knows what Encode must not make.
func (s *spmBPESpec) makes(map[int32]bool) bool { return true }

func (s *spmBPESpec) build(forbidden func(id int32) bool) model {
	m := &bpe{fallback: s.p.fallback, chars: newRuneTable(), spm: true, cutMeta: true, fuseUnk: true}
	for i := range m.ascii {
		m.ascii[i] = -1
	}
	scores := make([]float32, 0, len(s.p.pieces))
	spells := make(map[string]int32, len(s.p.pieces)) // what text can become
	for id, piece := range s.p.pieces {
		switch piece.kind {
		case pieceUnknown:
			m.unk = int32(id)
			continue
		case pieceByte:
			b, _ := byteToken(piece.text)
			m.bytes[b] = int32(id)
			continue
		case pieceControl:
			continue
		case pieceUnused:
			if m.unused == nil {
				m.unused = make(map[int32]bool)
			}
			m.unused[int32(id)] = true
			m.cutMeta = false // what becomes of one depends on all of the text
		}
		if forbidden != nil && forbidden(int32(id)) {
			continue
		}
		spells[piece.text] = int32(id)
		scores = append(scores, piece.score)
		if isOneRune(piece.text) {
			r, _ := utf8.DecodeRuneInString(piece.text)
			if r < utf8.RuneSelf {
				m.ascii[r] = int32(id)
			} else {
				m.chars.put(r, int32(id))
			}
		} else if crossesMeta(piece.text) {
			m.cutMeta = false
		}
	}
	if m.chars.id('▁') < 0 {
		m.cutMeta = false // runs of unknown characters may reach across
	}
	// Pieces of one score are equals: the leftmost merges first.
	slices.SortFunc(scores, func(a, b float32) int { return cmp.Compare(b, a) })
	scores = slices.Compact(scores)
	rank := func(score float32) int32 {
		i, _ := slices.BinarySearchFunc(scores, score, func(e, t float32) int { return cmp.Compare(t, e) })
		return int32(i)
	}
	symbol := func(part string) (int32, bool) {
		if id, ok := spells[part]; ok {
			return id, true
		}
		if isOneRune(part) {
			r, _ := utf8.DecodeRuneInString(part)
			return unknownSymbol(r), true
		}
		return 0, false
	}
	type merge struct {
		pair     uint64
		rank, id int32
	}
	var merges []merge
	for text, id := range spells {
		for i := 1; i < len(text); i++ {
			if !utf8.RuneStart(text[i]) {
				continue
			}
			left, ok1 := symbol(text[:i])
			right, ok2 := symbol(text[i:])
			if ok1 && ok2 {
				merges = append(merges, merge{pairOf(left, right), rank(s.p.pieces[id].score), id})
			}
		}
	}
	m.merges = newMergeTable(len(merges))
	for _, x := range merges {
		m.merges.put(x.pair, x.rank, x.id)
	}
	return m
}

// unknownSymbol is the symbol of a character that is no piece, though it may be
// part of some. It is below -1.
func unknownSymbol(r rune) int32 { return -r - 2 }
