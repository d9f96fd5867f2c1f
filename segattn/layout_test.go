package segattn

import (
	"slices"
	"strings"
	"testing"
)

func TestStreamPositionsAndTargets(t *testing.T) {
	s := Sequence{Length: 12, Spans: []Span{{3, 5}, {9, 12}}}
	if got, want := s.StreamPositions(), []int{2, 3, 8, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("stream positions %v, want %v", got, want)
	}
	for _, c := range []struct{ t, j, want int }{
		{2, 0, 3}, {2, 1, 4}, {2, 2, -1}, {3, 0, 4}, {3, 1, -1}, // never into the next turn
		{8, 0, 9}, {8, 2, 11}, {8, 3, -1}, {10, 0, 11}, {10, 1, -1}, {5, 0, -1},
	} {
		if got := s.Target(c.t, c.j); got != c.want {
			t.Errorf("stream %d of position %d predicts position %d, want %d", c.j, c.t, got, c.want)
		}
	}
}

func TestSplitCoversEveryRowOnce(t *testing.T) {
	for _, s := range []Sequence{
		{Length: 2, Spans: []Span{{1, 2}}},
		{Length: 30, Spans: []Span{{1, 30}}},
		{Length: 30, Spans: []Span{{29, 30}}},
		{Length: 40, Spans: []Span{{4, 9}, {20, 33}}},
		{Length: 9},
	} {
		for g := 1; g < 40; g++ {
			at := 0
			var streams []int
			for i, seg := range Split(s, g, false) {
				if seg.Lo != at {
					t.Fatalf("%+v in %d: segment %d begins at %d, want %d", s, g, i, seg.Lo, at)
				}
				if i == 0 && len(seg.Streams) > 0 {
					t.Fatalf("%+v in %d: the prompt carries streams", s, g)
				}
				for _, p := range seg.Streams {
					if p < seg.Lo || p >= seg.Hi {
						t.Fatalf("%+v in %d: stream position %d is outside segment %d", s, g, p, i)
					}
				}
				streams = append(streams, seg.Streams...)
				at = seg.Hi
			}
			if at != s.Length-1 {
				t.Fatalf("%+v in %d: segments end at %d, want %d", s, g, at, s.Length-1)
			}
			if !slices.Equal(streams, s.StreamPositions()) {
				t.Fatalf("%+v in %d: streams %v, want %v", s, g, streams, s.StreamPositions())
			}
		}
	}
}

func TestSplitKeepsThePromptOfOneSegment(t *testing.T) {
	s := Sequence{Length: 40, Spans: []Span{{4, 9}, {20, 33}}}
	if got := Split(s, 1, true); len(got) != 1 || got[0].Lo != 0 || got[0].Hi != 39 || !slices.Equal(got[0].Streams, s.StreamPositions()) {
		t.Errorf("one segment with its prompt is %+v", got)
	}
	if got := Split(s, 2, true); len(got) != 3 {
		t.Errorf("two segments and the prompt are %d", len(got))
	}
}

func TestSequenceValidate(t *testing.T) {
	for name, s := range map[string]Sequence{
		"one token": {Length: 1}, "from position 0": {Length: 5, Spans: []Span{{0, 3}}}, "empty span": {Length: 5, Spans: []Span{{2, 2}}},
		"overlap": {Length: 9, Spans: []Span{{2, 5}, {4, 8}}}, "past the end": {Length: 5, Spans: []Span{{2, 6}}},
	} {
		if s.Validate() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if err := (Sequence{Length: 9, Spans: []Span{{2, 5}, {7, 9}}}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestChoose(t *testing.T) {
	shape := Shape{Hidden: 64, FF: 128, Vocab: 500, Heads: Heads{Query: 4, KV: 2, Dim: 16}, Layers: 3, Gamma: 4, Shared: true, Rank: 8, ValueBytes: 4, HeadChunk: 128}
	pack := []Sequence{{Length: 120, Spans: []Span{{40, 120}}}, {Length: 70, Spans: []Span{{10, 60}}}}
	whole := shape.Predict(pack, 1)
	last := whole
	for g := 2; g <= 80; g *= 2 {
		p := shape.Predict(pack, g)
		if p.StreamRows >= last.StreamRows || p.Total() > last.Total() {
			t.Errorf("%d segments: %d stream rows and %d bytes, fewer segments had %d and %d", g, p.StreamRows, p.Total(), last.StreamRows, last.Total())
		}
		last = p
	}
	for _, budget := range []int64{0, whole.Total(), whole.Total() * 2 / 3, whole.Total() / 2} {
		p, err := shape.Choose(pack, budget)
		if err != nil {
			t.Fatal(err)
		}
		if budget > 0 && p.Total() > budget {
			t.Errorf("a budget of %d got a plan of %d bytes", budget, p.Total())
		}
		if p.Segments > 1 && shape.Predict(pack, p.Segments-1).Total() <= budget {
			t.Errorf("a budget of %d got %d segments although fewer fit", budget, p.Segments)
		}
	}
	if _, err := shape.Choose(pack, 1000); err == nil || !strings.Contains(err.Error(), "at least that") {
		t.Errorf("an impossible budget gave %v", err)
	}
}
