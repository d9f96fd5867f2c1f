package segattn

import "fmt"

// Span is a range [Start, End) of completion token positions.
type Span struct{ Start, End int }

// Sequence is one sample as segment attention sees it.
type Sequence struct {
	// Length is the number of tokens, L. Main rows are positions 0..L-2.
	Length int
	// Spans are the completions, in order and disjoint. Start ≥ 1.
	Spans []Span
}

// Validate checks that the spans are ordered, disjoint and inside the sequence.
func (s Sequence) Validate() error {
	if s.Length < 2 {
		return fmt.Errorf("a sequence of %d tokens has nothing to predict", s.Length)
	}
	end := 1
	for _, p := range s.Spans {
		if p.Start < end || p.End <= p.Start || p.End > s.Length {
			return fmt.Errorf("completion span [%d, %d) does not fit a sequence of %d tokens after position %d", p.Start, p.End, s.Length, end-1)
		}
		end = p.End
	}
	return nil
}

// StreamPositions returns the positions that carry streams, in order: for each
// span the last prompt position Start-1 and every completion position that still
// has a next-token target, up to End-2.
func (s Sequence) StreamPositions() []int {
	var out []int
	for _, p := range s.Spans {
		for t := p.Start - 1; t <= p.End-2; t++ {
			out = append(out, t)
		}
	}
	return out
}

// Target returns the position of the token that stream j (0 is the main stream)
// of position t predicts, or -1 when that token lies beyond t's completion.
func (s Sequence) Target(t, j int) int {
	for _, p := range s.Spans {
		if t >= p.Start-1 && t <= p.End-2 {
			if t+1+j < p.End {
				return t + 1 + j
			}
			return -1
		}
	}
	return -1
}

// Segment is a contiguous range [Lo, Hi) of a sequence's main rows with the
// positions among them that carry streams.
type Segment struct {
	Lo, Hi  int
	Streams []int
}

// Split cuts a sequence into its prompt (element 0, which carries no streams and
// may be empty) and g completion segments with nearly equal numbers of stream
// positions. It yields fewer segments when there are fewer stream positions than g.
// With withPrompt and g = 1 the prompt is part of the one segment: where main
// rows train as well, running it apart would only compute its forward twice.
func Split(s Sequence, g int, withPrompt bool) []Segment {
	if g <= 1 && withPrompt {
		return []Segment{Whole(s)}
	}
	pos := s.StreamPositions()
	rows := s.Length - 1
	if len(pos) == 0 {
		return []Segment{{Lo: 0, Hi: rows}}
	}
	g = max(1, min(g, len(pos)))
	out := []Segment{{Lo: 0, Hi: pos[0]}}
	for i := range g {
		a, b := i*len(pos)/g, (i+1)*len(pos)/g
		hi := rows
		if b < len(pos) {
			hi = pos[b]
		}
		out = append(out, Segment{Lo: pos[a], Hi: hi, Streams: pos[a:b]})
	}
	return out
}

// Block is the rows of one segment of one sequence inside a [Rows].
type Block struct {
	// Seq is the index of the sequence in the pack.
	Seq int
	// Lo, Hi are the main positions [Lo, Hi) of the segment.
	Lo, Hi int
	// MainRow is the row of position Lo; -1 when main rows are left out.
	MainRow int
	// Streams are the positions that carry streams; nil when streams are left out.
	Streams []int
	// StreamRow is the row of stream 1 of Streams[0]; stream j of Streams[i] is
	// row StreamRow + i·γ + j-1.
	StreamRow int

	tiles []tile
}

// Rows is the row layout of one pass over a pack: first the main rows of every
// block, then the stream rows of every block.
type Rows struct {
	// Gamma is the number of streams a position, γ.
	Gamma int
	// MainSeesStreams is true in shared mode (Eq. 3).
	MainSeesStreams bool
	Blocks          []Block
	// Main and Stream count the rows of each kind.
	Main, Stream int
	// Pos is the rotary position of every row: t for the main row of position t,
	// t+j for its stream j.
	Pos []int
}

// Total is the number of rows.
func (r *Rows) Total() int { return r.Main + r.Stream }

// Parts selects the rows of a pass.
type Parts int

const (
	// MainOnly lays out main rows without streams.
	MainOnly Parts = 1 << iota
	// StreamsOnly lays out stream rows whose main keys and values are in the store.
	StreamsOnly
	// Both lays out main and stream rows.
	Both = MainOnly | StreamsOnly
)

// Lay lays out one segment of each sequence of a pack. segments[i] belongs to
// sequence i; a nil entry leaves the sequence out of the pass. With streams,
// main rows see them exactly when mainSeesStreams.
func Lay(segments []*Segment, parts Parts, gamma int, mainSeesStreams bool) *Rows {
	r := &Rows{Gamma: gamma, MainSeesStreams: mainSeesStreams && parts == Both}
	for i, s := range segments {
		if s == nil || (parts&MainOnly == 0 && len(s.Streams) == 0) || s.Hi <= s.Lo {
			continue
		}
		b := Block{Seq: i, Lo: s.Lo, Hi: s.Hi, MainRow: -1}
		if parts&MainOnly != 0 {
			b.MainRow = r.Main
			for t := s.Lo; t < s.Hi; t++ {
				r.Pos = append(r.Pos, t)
			}
			r.Main += s.Hi - s.Lo
		}
		if parts&StreamsOnly != 0 {
			b.Streams = s.Streams
		}
		r.Blocks = append(r.Blocks, b)
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		b.StreamRow = r.Main + r.Stream
		for _, t := range b.Streams {
			for j := 1; j <= gamma; j++ {
				r.Pos = append(r.Pos, t+j)
			}
		}
		r.Stream += len(b.Streams) * gamma
		b.cut(r)
	}
	return r
}

// Whole returns the segment that covers every main row of a sequence, with all
// its stream positions.
func Whole(s Sequence) Segment {
	return Segment{Lo: 0, Hi: s.Length - 1, Streams: s.StreamPositions()}
}
