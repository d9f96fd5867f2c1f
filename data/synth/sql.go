package synth

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

type sqlJSON struct {
	Question string `json:"question"`
	Context  string `json:"context"`
	Answer   string `json:"answer"`
}

// need is what a question asks of the tables, found from its slots.
type need struct {
	question
	texts, numbers, dates, any int
	parent                     bool
	pText, pNumber, pAny       bool
}

var needs = sync.OnceValue(func() map[Split][]need {
	of := func(list []question) (out []need) {
		for _, q := range list {
			n := need{question: q, parent: strings.Contains(q.sql, "{P}")}
			has := func(slot string) bool { return strings.Contains(q.sql, "{"+slot+"}") }
			for slot, counter := range map[string]*int{
				"A": &n.any, "B": &n.any, "F": &n.any, "C": &n.texts, "D": &n.texts,
				"N": &n.numbers, "M": &n.numbers, "Y": &n.dates,
			} {
				if has(slot) {
					*counter++
				}
			}
			n.pText, n.pNumber, n.pAny = has("pC"), has("pN"), has("pA")
			out = append(out, n)
		}
		return out
	}
	train := of(trainQuestions)
	return map[Split][]need{Train: train, HeldOut: of(heldOutQuestions), Renamed: train}
})

// sqlRecord makes one question with its table and SQL.
func sqlRecord(r *rng, split Split) sqlJSON {
	side := pools()[split]
	n := pick(r, needs()[split])
	tables := side.tables
	if n.parent {
		tables = side.joining
	}
	t := pick(r, tables)
	for n.dates > 0 && !slices.ContainsFunc(t.columns, func(c column) bool { return c.kind == date }) {
		t = pick(r, tables)
	}

	parent := side.byName[t.parent]
	if split == Renamed {
		t, parent = r.renamed(t), r.renamed(parent)
	}
	b := &binder{r: r, ask: map[string]string{}, sql: map[string]string{}}
	b.both("T", t.name)
	b.both("E", t.many)
	b.both("e", t.one)
	used := b.columns(t, n)
	var context string
	if n.parent {
		p := parent
		b.both("P", p.name)
		b.both("Q", p.many)
		b.both("q", p.one)
		pUsed := b.parentColumns(p, n)
		key := column{name: p.one + "_id", kind: number}
		context = b.create(t, append(used, key), max(0, 1-len(used))+r.IntN(2)) + "; " +
			b.create(p, append(pUsed, column{name: "id", kind: number}), r.IntN(2))
	} else {
		context = b.create(t, used, max(0, 3-len(used))+r.IntN(3))
	}
	b.both("k", fmt.Sprint(r.between(2, 12, 1)))
	return sqlJSON{
		Question: sentence(fill(pick(r, n.asked), b.ask)),
		Context:  context,
		Answer:   fill(n.question.sql, b.sql),
	}
}

// binder binds slots to columns and values, as the question says them and as
// SQL writes them.
type binder struct {
	r        *rng
	ask, sql map[string]string
}

func (b *binder) both(slot, v string) { b.ask[slot], b.sql[slot] = v, v }

func (b *binder) column(slot string, c column) {
	b.ask[slot], b.sql[slot] = c.words(), c.name
}

// columns binds the slots of the main table and returns the columns used.
func (b *binder) columns(t table, n need) []column {
	pool := shuffled(b.r, t.columns)
	var used []column
	take := func(fits func(column) bool) column {
		for i, c := range pool {
			if fits(c) {
				pool = slices.Delete(pool, i, i+1)
				used = append(used, c)
				return c
			}
		}
		panic(fmt.Sprintf("table %s has too few columns for %q", t.name, n.question.sql))
	}
	of := func(k kind) func(column) bool { return func(c column) bool { return c.kind == k } }
	for _, slot := range []string{"C", "D"}[:n.texts] {
		c := take(of(text))
		b.column(slot, c)
		v := b.r.value(c.vocabulary)
		b.both(strings.ToLower(slot), v)
		if slot == "C" {
			b.both("c2", b.another(c, v))
			b.both("p", v[:min(len(v), 1+b.r.IntN(3))])
		}
	}
	for _, slot := range []string{"N", "M"}[:n.numbers] {
		c := take(of(number))
		b.column(slot, c)
		lo, hi := b.ordered(func() int { return b.r.between(c.lo, c.hi, c.st) })
		b.both(strings.ToLower(slot), fmt.Sprint(b.r.between(c.lo, c.hi, c.st)))
		if slot == "N" {
			b.both("lo", fmt.Sprint(lo))
			b.both("hi", fmt.Sprint(hi))
		}
	}
	if n.dates > 0 {
		c := take(of(date))
		b.column("Y", c)
		lo, hi := b.ordered(func() int { return b.r.IntN((c.hi - c.lo + 1) * 12 * 28) })
		b.both("y", dayOf(c.lo, lo))
		b.both("y2", dayOf(c.lo, hi))
	}
	for _, slot := range []string{"A", "B", "F"}[:n.any] {
		b.column(slot, take(func(column) bool { return true }))
	}
	return used
}

// parentColumns binds the slots of the parent table.
func (b *binder) parentColumns(p table, n need) []column {
	var used []column
	for _, c := range shuffled(b.r, p.columns) {
		switch {
		case n.pText && c.kind == text && b.sql["pC"] == "":
			b.column("pC", c)
			b.both("pc", b.r.value(c.vocabulary))
		case n.pNumber && c.kind == number && b.sql["pN"] == "":
			b.column("pN", c)
			b.both("pn", fmt.Sprint(b.r.between(c.lo, c.hi, c.st)))
		case n.pAny && b.sql["pA"] == "":
			b.column("pA", c)
		default:
			continue
		}
		used = append(used, c)
	}
	return used
}

// another draws a second value of a column, different from v.
func (b *binder) another(c column, v string) string {
	for {
		if w := b.r.value(c.vocabulary); w != v {
			return w
		}
	}
}

// ordered draws two different numbers, the smaller first.
func (b *binder) ordered(draw func() int) (lo, hi int) {
	for lo == hi {
		lo, hi = draw(), draw()
	}
	return min(lo, hi), max(lo, hi)
}

// dayOf is day n counted from a year's start, in months of 28 days.
func dayOf(year, n int) string {
	return fmt.Sprintf("%04d-%02d-%02d", year+n/(12*28), n/28%12+1, n%28+1)
}

// create renders CREATE TABLE with the columns used and up to more others of
// the table's pool, in random order, at most seven.
func (b *binder) create(t table, used []column, more int) string {
	cols := slices.Clone(used)
	for _, c := range shuffled(b.r, t.columns) {
		if more == 0 || len(cols) == 7 {
			break
		}
		if !slices.Contains(used, c) {
			cols = append(cols, c)
			more--
		}
	}
	var defs []string
	for _, c := range shuffled(b.r, cols) {
		defs = append(defs, c.name+" "+c.kind.String())
	}
	return "CREATE TABLE " + t.name + " (" + strings.Join(defs, ", ") + ")"
}
