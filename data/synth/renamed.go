package synth

import (
	"slices"
	"strings"
	"sync"
)

// schemaWords are the words that the training tables' names are made of.
var schemaWords = sync.OnceValue(func() []string {
	var out []string
	for _, t := range pools()[Train].tables {
		out = append(out, t.one)
		for _, c := range t.columns {
			out = append(out, strings.Split(c.name, "_")...)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
})

// word returns a word of the training schemas or, as often, a made-up one.
func (r *rng) word() string {
	if r.IntN(2) == 0 {
		return pick(r, schemaWords())
	}
	var b strings.Builder
	for range 2 + r.IntN(2) {
		b.WriteByte("bcdfghjklmnprstvwz"[r.IntN(18)])
		b.WriteByte("aeiou"[r.IntN(5)])
		if r.IntN(3) == 0 {
			b.WriteByte("lmnrst"[r.IntN(6)])
		}
	}
	return b.String()
}

// renamed returns the table under a name that is drawn anew, and so for its columns.
func (r *rng) renamed(t table) table {
	t.one = r.word()
	t.many = t.one + "s"
	t.name = t.many
	if r.IntN(4) == 0 {
		t.name = r.word() + "_" + t.many
	}
	seen := map[string]bool{t.name: true}
	t.columns = slices.Clone(t.columns)
	for i := range t.columns {
		for {
			name := r.word()
			if r.IntN(5) > 0 {
				name += "_" + r.word()
			}
			if !seen[name] {
				seen[name] = true
				t.columns[i].name = name
				break
			}
		}
	}
	return t
}
