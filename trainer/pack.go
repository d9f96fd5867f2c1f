package trainer

import (
	"cmp"
	"context"
	"slices"
)

// Pack assigns sequences of the given lengths to packs of at most capacity
// tokens each; a sequence that is longer has one of its own, since none is ever
// cut. It returns the indices of each pack's sequences. The longest come first
// and go to the fullest pack that has room (best fit, decreasing; of equals the
// earlier), which leaves little room over and depends on the lengths alone.
//
// A pack says what goes through the model together and nothing more: backends
// keep its sequences apart, in attention, in positions and in the loss.
func Pack(lengths []int, capacity int) [][]int {
	longest := make([]int, len(lengths))
	for i := range longest {
		longest[i] = i
	}
	slices.SortStableFunc(longest, func(a, b int) int { return cmp.Compare(lengths[b], lengths[a]) })
	var packs [][]int
	var room []int
	for _, i := range longest {
		best := -1
		for p, r := range room {
			if r >= lengths[i] && (best < 0 || r < room[best]) {
				best = p
			}
		}
		if best < 0 {
			best = len(packs)
			packs, room = append(packs, nil), append(room, capacity)
		}
		packs[best] = append(packs[best], i)
		room[best] -= lengths[i]
	}
	return packs
}

// Packed puts the sequences of each batch in the order of their packs of at most
// Tokens tokens. A backend that cuts a batch into runs of whole sequences that
// fit, as the CPU backend does, then finds full packs: no pack's first sequence
// fits into the pack before it. A batch holds the same samples as without, and
// its gradient is the same up to rounding.
type Packed struct {
	Batches
	Tokens int
}

// Batch returns the batch in the order of its packs.
func (p Packed) Batch(ctx context.Context, step, size int) ([]Sequence, error) {
	batch, err := p.Batches.Batch(ctx, step, size)
	if err != nil {
		return nil, err
	}
	lengths := make([]int, len(batch))
	for i, s := range batch {
		lengths[i] = len(s.Tokens)
	}
	out := make([]Sequence, 0, len(batch))
	for _, pack := range Pack(lengths, p.Tokens) {
		for _, i := range pack {
			out = append(out, batch[i])
		}
	}
	return out, nil
}

// Unwrap returns the batches it was made of.
func (p Packed) Unwrap() Batches { return p.Batches }
