package synth

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

var update = flag.Bool("update", false, "write the golden digests anew")

func generated(t testing.TB, format string, seed uint64, n int, split Split) []byte {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, Write(&b, format, seed, n, split))
	return b.Bytes()
}

func eachFormat(t *testing.T, f func(t *testing.T, format string, split Split)) {
	for _, format := range Formats {
		for _, split := range []Split{Train, HeldOut} {
			t.Run(format+"/"+string(split), func(t *testing.T) { f(t, format, split) })
		}
	}
}

func TestDeterminism(t *testing.T) {
	eachFormat(t, func(t *testing.T, format string, split Split) {
		a := generated(t, format, 7, 200, split)
		require.Equal(t, a, generated(t, format, 7, 200, split), "the same seed gives the same bytes")
		require.NotEqual(t, a, generated(t, format, 8, 200, split), "another seed gives others")
		prefix := bytes.TrimRight(generated(t, format, 7, 50, split), "\n]")
		require.True(t, bytes.HasPrefix(a, prefix), "the first records do not depend on n")
	})
}

// TestFrozen: changing the generator changes every result that was measured on
// it, so it takes the digests here along.
func TestFrozen(t *testing.T) {
	path := filepath.Join("testdata", "digests.json")
	got := map[string]string{}
	for _, format := range Formats {
		for _, split := range []Split{Train, HeldOut} {
			got[format+"/"+string(split)] = specstream.DigestBytes(generated(t, format, 1, 500, split)).Short()
		}
	}
	if *update {
		b, err := json.MarshalIndent(got, "", "  ")
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, append(b, '\n'), 0o644))
	}
	want := map[string]string{}
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &want))
	require.Equal(t, want, got)
}

// TestReaders: the readers of package data take every record as it is, and no
// slot is left unfilled.
func TestReaders(t *testing.T) {
	eachFormat(t, func(t *testing.T, format string, split Split) {
		const n = 2000
		text := generated(t, format, 3, n, split)
		require.NotContains(t, strings.ReplaceAll(strings.ReplaceAll(string(text), `{"`, ""), `}`, ""), "{", "a slot without a value")
		f, err := data.FormatOf(format)
		require.NoError(t, err)
		r, err := data.OpenWith(context.Background(), f, "synth", func(context.Context, string) (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(text)), nil
		})
		require.NoError(t, err)
		seen, count, ascii := map[string]bool{}, 0, true
		for {
			rec, err := r.Next()
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			require.Empty(t, rec.Changed)
			count++
			key := ""
			for _, turn := range rec.Turns {
				key += turn.Text + "\x00"
			}
			seen[key] = true
			for _, c := range key {
				ascii = ascii && (c < 128 || c == '\u00a3' && format == "e2e")
			}
			if format == "dialogsum" && split == HeldOut {
				require.Len(t, rec.Alternatives, 2)
			}
		}
		require.NoError(t, r.Close())
		require.Equal(t, n, count)
		require.True(t, ascii, "text outside ASCII")
		require.Greater(t, float64(len(seen))/n, 0.9, "share of different records")
		t.Logf("%d of %d records differ", len(seen), n)
	})
}

func TestZeroRecords(t *testing.T) {
	for format, want := range map[string]string{"sql": "[\n]\n", "sharegpt": "[\n]\n", "dialogsum": "", "e2e": "mr,ref\r\n"} {
		require.Equal(t, want, string(generated(t, format, 1, 0, Train)), format)
	}
}

func TestBadArguments(t *testing.T) {
	for name, err := range map[string]error{
		"format":   Write(io.Discard, "xml", 1, 1, Train),
		"split":    SQL(io.Discard, 1, 1, "test"),
		"negative": E2E(io.Discard, 1, -1, Train),
	} {
		require.True(t, specstream.BadInput(err), "%s: %v", name, err)
	}
}

type brokenWriter struct{ err error }

func (w brokenWriter) Write([]byte) (int, error) { return 0, w.err }

func TestWriteErrors(t *testing.T) {
	full := errors.New("disk full")
	eachFormat(t, func(t *testing.T, format string, split Split) {
		require.ErrorIs(t, Write(brokenWriter{full}, format, 1, 3, split), full)
	})
}

func sqlRecords(t testing.TB, n int, split Split) []sqlJSON {
	t.Helper()
	var out []sqlJSON
	require.NoError(t, json.Unmarshal(generated(t, "sql", 5, n, split), &out))
	require.Len(t, out, n)
	return out
}

var (
	createTable = regexp.MustCompile(`CREATE TABLE (\w+) \(([^)]*)\)`)
	sqlToken    = regexp.MustCompile(`"[^"]*"|[A-Za-z_][A-Za-z_0-9]*|\d+`)
	keywords    = map[string]bool{}
)

func init() {
	for _, k := range strings.Fields("SELECT FROM WHERE AND OR LIKE BETWEEN IN COUNT AVG SUM MIN MAX DISTINCT ORDER GROUP BY HAVING ASC DESC LIMIT AS JOIN ON T1 T2") {
		keywords[k] = true
	}
}

// TestSQLNamesOnlyItsTables: an answer uses nothing but SQL's words and the
// tables and columns of its context, and the question names every column and
// value the answer uses.
func TestSQLNamesOnlyItsTables(t *testing.T) {
	for _, split := range []Split{Train, HeldOut} {
		for _, r := range sqlRecords(t, 5000, split) {
			known := map[string]bool{}
			tables := createTable.FindAllStringSubmatch(r.Context, -1)
			require.NotEmpty(t, tables)
			for _, m := range tables {
				known[m[1]] = true
				cols := strings.Split(m[2], ", ")
				require.GreaterOrEqual(t, len(cols), 2, r.Context)
				require.LessOrEqual(t, len(cols), 7, r.Context)
				for _, c := range cols {
					name, typ, ok := strings.Cut(c, " ")
					require.True(t, ok)
					require.Contains(t, []string{"VARCHAR", "INTEGER", "DATE"}, typ)
					known[name] = true
				}
			}
			question := strings.ToLower(r.Question)
			for _, tok := range sqlToken.FindAllString(r.Answer, -1) {
				if v, ok := strings.CutPrefix(tok, `"`); ok {
					require.Contains(t, question, strings.ToLower(strings.Trim(v, `"%`)), r.Answer)
					continue
				}
				if keywords[tok] || tok[0] >= '0' && tok[0] <= '9' && (tok == "1" || strings.Contains(question, tok)) {
					continue
				}
				require.True(t, known[tok], "%s in %s is not in %s", tok, r.Answer, r.Context)
				if !strings.HasSuffix(tok, "_id") && tok != "id" && !strings.Contains(r.Context, "TABLE "+tok+" ") {
					require.Contains(t, question, strings.ReplaceAll(tok, "_", " "), r.Answer)
				}
			}
		}
	}
}

// TestSQLHoldsOut: no table and no form of SQL of one split is in the other.
func TestSQLHoldsOut(t *testing.T) {
	tables := map[Split]map[string]bool{Train: {}, HeldOut: {}}
	forms := map[Split]map[string]bool{Train: {}, HeldOut: {}}
	asked := map[Split]map[string]bool{Train: {}, HeldOut: {}}
	for split := range tables {
		for _, r := range sqlRecords(t, 20000, split) {
			for _, m := range createTable.FindAllStringSubmatch(r.Context, -1) {
				tables[split][m[1]] = true
			}
			forms[split][formOf(r)] = true
		}
		for _, q := range needs()[split] {
			for _, a := range q.asked {
				require.False(t, asked[split][a], "paraphrase twice: %s", a)
				asked[split][a] = true
			}
		}
	}
	for name, m := range map[string]map[Split]map[string]bool{"table": tables, "form": forms, "paraphrase": asked} {
		for v := range m[HeldOut] {
			require.False(t, m[Train][v], "%s %q is in both splits", name, v)
		}
	}
	require.Len(t, tables[Train], len(pools()[Train].tables))
	require.Len(t, tables[HeldOut], len(pools()[HeldOut].tables))
	require.GreaterOrEqual(t, len(tables[Train]), 60)
	require.Len(t, forms[Train], len(trainQuestions))
	require.Len(t, forms[HeldOut], len(heldOutQuestions))
	t.Logf("tables %d + %d, question templates %d + %d, paraphrases %d + %d", len(tables[Train]), len(tables[HeldOut]),
		len(trainQuestions), len(heldOutQuestions), len(asked[Train]), len(asked[HeldOut]))
}

// TestSQLSharesWords: held-out columns have names of their own, made mostly of
// words that training knows.
func TestSQLSharesWords(t *testing.T) {
	names, parts := map[Split]map[string]bool{}, map[Split]map[string]bool{}
	for _, split := range []Split{Train, HeldOut} {
		names[split], parts[split] = map[string]bool{}, map[string]bool{}
		for _, tab := range pools()[split].tables {
			for _, c := range tab.columns {
				names[split][c.name] = true
				for w := range strings.SplitSeq(c.name, "_") {
					parts[split][w] = true
				}
			}
		}
	}
	share := func(of map[Split]map[string]bool) float64 {
		n := 0
		for x := range of[HeldOut] {
			if of[Train][x] {
				n++
			}
		}
		return float64(n) / float64(len(of[HeldOut]))
	}
	require.Less(t, share(names), 0.3, "share of held-out columns that training has")
	require.InDelta(t, 0.8, share(parts), 0.02, "share of the words in held-out columns that training has")
	t.Logf("columns %.2f, words %.2f", share(names), share(parts))
}

// formOf is the SQL with its names and values blanked, by kind of value.
func formOf(r sqlJSON) string {
	columns := map[string]string{}
	first, top := strings.CutSuffix(r.Answer, " LIMIT 1")
	if top {
		first += " LIMIT one"
	}
	return sqlToken.ReplaceAllStringFunc(first, func(tok string) string {
		switch {
		case tok[0] == '"':
			switch {
			case strings.HasPrefix(tok, `"%`):
				return "contains"
			case strings.HasSuffix(tok, `%"`):
				return "begins"
			case regexp.MustCompile(`^"\d{4}-`).MatchString(tok):
				return "date"
			}
			return "text"
		case keywords[tok] || tok == "one":
			return tok
		case tok[0] >= '0' && tok[0] <= '9':
			return "n"
		case strings.HasSuffix(tok, "_id") || tok == "id":
			return "key"
		}
		if columns[tok] == "" {
			columns[tok] = "name" + string(rune('a'+len(columns)))
		}
		return columns[tok]
	})
}

// TestOtherFormatsHoldOut: scenarios, topics and places of one split are not in
// the other.
func TestOtherFormatsHoldOut(t *testing.T) {
	lines := func(split Split) map[string]bool {
		m := map[string]bool{}
		scenarios, topics, places := trainScenarios, trainTopics, append(trainPlaces, trainNear...)
		if split == HeldOut {
			scenarios, topics, places = heldOutScenarios, heldOutTopics, append(heldOutPlaces, heldOutNear...)
		}
		for _, s := range scenarios {
			require.GreaterOrEqual(t, len(s.summaries), 3, s.topic)
			m[s.topic] = true
			for _, x := range s.summaries {
				m[x] = true
			}
		}
		for _, s := range topics {
			for _, x := range append(s.open.asked, s.open.answered...) {
				m[x] = true
			}
		}
		for _, p := range places {
			m[p] = true
		}
		return m
	}
	train := lines(Train)
	for x := range lines(HeldOut) {
		require.False(t, train[x], "%q is in both splits", x)
	}
}

// TestE2ETextSaysItsAttributes: every value of the meaning representation that
// has a word of its own is in the text.
func TestE2ETextSaysItsAttributes(t *testing.T) {
	for _, split := range []Split{Train, HeldOut} {
		rows, err := csv.NewReader(bytes.NewReader(generated(t, "e2e", 2, 3000, split))).ReadAll()
		require.NoError(t, err)
		require.Equal(t, []string{"mr", "ref"}, rows[0])
		for _, row := range rows[1:] {
			attrs := regexp.MustCompile(`([^,\[]+)\[([^\]]*)\]`).FindAllStringSubmatch(row[0], -1)
			require.GreaterOrEqual(t, len(attrs), 3)
			require.LessOrEqual(t, len(attrs), 8)
			for _, a := range attrs {
				switch strings.TrimSpace(a[1]) {
				case "name", "food", "near", "eatType":
					require.Contains(t, strings.ToLower(row[1]), strings.ToLower(a[2]), row[0])
				}
			}
		}
	}
}

func BenchmarkSQL(b *testing.B) {
	var n int64
	for b.Loop() {
		var buf bytes.Buffer
		require.NoError(b, SQL(&buf, 1, 1000, Train))
		n = int64(buf.Len())
	}
	b.SetBytes(n)
}

func TestSentence(t *testing.T) {
	for in, want := range map[string]string{
		"give a average":            "Give an average",
		"a user with a hourly wage": "A user with an hourly wage",
		"a orange umbrella":         "An orange umbrella",
		"vitamin A is a vitamin":    "Vitamin A is a vitamin",
		"ends with a":               "Ends with a",
		"":                          "",
	} {
		require.Equal(t, want, sentence(in))
	}
}
