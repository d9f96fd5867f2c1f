package gorgonia

import (
	"testing"

	"github.com/specstream/specstream/trainer"
)

func TestSplitFillsPacks(t *testing.T) {
	rows := func(s trainer.Sequence) int { return len(s.Tokens) }
	for _, c := range []struct {
		name    string
		lengths []int
		packs   []int // sequences of each
	}{
		{"nothing", nil, nil},
		{"all in one", []int{400, 600}, []int{2}},
		{"exactly full", []int{packRows, packRows}, []int{1, 1}},
		{"one more than fits", []int{packRows - 1, 1, 1}, []int{2, 1}},
		{"a sequence longer than a pack", []int{5, 3 * packRows, 5, 5}, []int{1, 1, 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var batch []trainer.Sequence
			for _, n := range c.lengths {
				batch = append(batch, trainer.Sequence{Tokens: make([]int32, n)})
			}
			packs := split(batch, rows)
			if len(packs) != len(c.packs) {
				t.Fatalf("%d packs, want %d", len(packs), len(c.packs))
			}
			at := 0
			for i, p := range packs {
				if len(p) != c.packs[i] || &p[0] != &batch[at] {
					t.Errorf("pack %d has %d sequences, want %d from %d on", i, len(p), c.packs[i], at)
				}
				at += len(p)
			}
		})
	}
}

func TestCapacityHoldsItsRows(t *testing.T) {
	for n := 1; n <= 3*packRows; n++ {
		c := capacity(n)
		if c < n {
			t.Fatalf("capacity %d for %d rows", c, n)
		}
		if n <= packRows && c > packRows {
			t.Fatalf("capacity %d for %d rows is more than a pack's", c, n)
		}
	}
}
