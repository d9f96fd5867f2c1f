package jinja

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

type golden struct {
	Text      *string
	Error     string
	Generated [][2]int
}

// ordered decodes JSON to what Render takes, keeping the order of keys.
func ordered(t testing.TB, d *json.Decoder) any {
	t.Helper()
	tok, err := d.Token()
	require.NoError(t, err)
	switch tok := tok.(type) {
	case json.Delim:
		if tok == '[' {
			out := []any{}
			for d.More() {
				out = append(out, ordered(t, d))
			}
			_, err = d.Token()
			require.NoError(t, err)
			return out
		}
		out := Map{}
		for d.More() {
			k, err := d.Token()
			require.NoError(t, err)
			out = append(out, Entry{k.(string), ordered(t, d)})
		}
		_, err = d.Token()
		require.NoError(t, err)
		return out
	case json.Number:
		if i, err := tok.Int64(); err == nil {
			return i
		}
		f, err := tok.Float64()
		require.NoError(t, err)
		return f
	}
	return tok
}

func values(t testing.TB, raw json.RawMessage) any {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	return ordered(t, d)
}

// unsupported are templates that Jinja2 renders and this package refuses.
var unsupported = map[string]bool{
	"[{{ range(0) }}]":        true,
	`[{{ "%s" % 1 }}]`:        true,
	"[{{ self is defined }}]": true,
	"[{{ {1: 2} }}]":          true,
	"{% for x in xs recursive %}{{ x }}{% endfor %}": true,
	"{% block a %}{% endblock %}":                    true,
}

func render(template string, vars Map) (Output, error) {
	t, err := Parse("test", template)
	if err != nil {
		return Output{}, err
	}
	return t.Render(vars, Limits{})
}

func (g golden) check(t *testing.T, what string, out Output, err error) {
	t.Helper()
	switch {
	case g.Text == nil:
		if err == nil {
			t.Errorf("%s: got %q, Jinja2 refuses it: %s", what, out.Text, g.Error)
		}
	case unsupported[what]:
		if err == nil {
			t.Errorf("%s: is supported now", what)
		}
	case err != nil:
		t.Errorf("%s: %v, want %q", what, err, *g.Text)
	case out.Text != *g.Text:
		t.Errorf("%s:\n got %q\nwant %q", what, out.Text, *g.Text)
	default:
		var marks [][2]int
		for _, r := range out.Generated {
			marks = append(marks, [2]int{r.Start, r.End})
		}
		require.Equal(t, g.Generated, marks, what)
	}
}

// TestAgainstJinja2 compares with what testdata/make_golden.py made.
func TestAgainstJinja2(t *testing.T) {
	b, err := os.ReadFile("testdata/golden.json")
	require.NoError(t, err)
	var file struct {
		Vars  json.RawMessage
		Cases []struct {
			Template string
			golden
		}
		Templates map[string]string
		Models    []struct {
			Model    string
			Messages json.RawMessage
			Prompt   bool
			golden
		}
	}
	require.NoError(t, json.Unmarshal(b, &file))
	vars := values(t, file.Vars).(Map)
	require.Greater(t, len(file.Cases), 350)
	for _, c := range file.Cases {
		out, err := render(c.Template, vars)
		c.check(t, c.Template, out, err)
	}
	require.Greater(t, len(file.Models), 100)
	for _, c := range file.Models {
		out, err := render(file.Templates[c.Model], Map{
			{"messages", values(t, c.Messages)}, {"tools", nil}, {"documents", nil},
			{"add_generation_prompt", c.Prompt}, {"bos_token", "<s>"}, {"eos_token", "</s>"},
		})
		c.check(t, c.Model+" "+strings.TrimSpace(string(c.Messages)), out, err)
	}
}

// TestOrigins: what comes from the conversation is known through everything a
// template does to it.
func TestOrigins(t *testing.T) {
	vars := Map{{"a", Text{" <b>é</b> ", 1}}, {"c", Text{"x,y", 2}}, {"m", []any{Map{{"content", Text{"q", 3}}}}}}
	for _, c := range []struct{ template, want string }{
		{"<{{ a }}>", "<[1: <b>é</b> ]>"},
		{"{{ '<' + a.strip() ~ c }}", "<[1:<b>é</b>][2:x,y]"},
		{"{{ a|trim|upper }}", "[1:<B>É</B>]"},
		{"{{ c.split(',')|join('/') }}", "[2:x]/[2:y]"},
		{"{{ ('1' + c)[1:] }}|{{ c[::-1] }}", "[2:x,y]|[2:y,x]"},
		{"{{ c.replace(',', ';') }}", "[2:x];[2:y]"},
		{"{{ ('<u>' + c)|upper }}", "<U>[2:X,Y]"},
		{"{{ c|tojson }}{{ [c, '\\n']|tojson }}", "\"[2:x,y]\"[\"[2:x,y]\", \"\\n\"]"},
		{"{% set z %}-{{ c }}-{% endset %}{{ z ~ z }}", "-[2:x,y]--[2:x,y]-"},
		{"{% macro f(x) %}({{ x }}){% endmacro %}{{ f(c) }}", "([2:x,y])"},
		{"{% for x in m %}{{ x.content * 2 }}{% endfor %}{% for k in c %}{{ k }}.{% endfor %}", "[3:qq][2:x].[2:,].[2:y]."},
		{"{{ m }}", "[{'content': '[3:q]'}]"},
		{"{{ 'yes' if a else c }}{{ a|length }}", "yes10"},
	} {
		out, err := render(c.template, vars)
		require.NoError(t, err, c.template)
		var b strings.Builder
		at := 0
		for _, r := range out.Runs {
			require.Less(t, r.Start, r.End)
			require.GreaterOrEqual(t, r.Start, at)
			b.WriteString(out.Text[at:r.Start] + "[" + string(rune('0'+r.Origin)) + ":" + out.Text[r.Start:r.End] + "]")
			at = r.End
		}
		require.Equal(t, c.want, b.String()+out.Text[at:], c.template)
	}
	_, err := render("{{ ('é' + c)|upper }}", vars)
	require.ErrorContains(t, err, "can't tell which part")
}

// TestBounded: whatever a template says, rendering ends soon and with little
// memory.
func TestBounded(t *testing.T) {
	deep := strings.Repeat("(", 5000) + strings.Repeat(")", 5000)
	for _, c := range []struct{ name, template, want string }{
		{"loops", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}", "more steps"},
		{"recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "more than 100 deep"},
		{"wide recursion", "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}", "more steps"},
		{"repetition", "{{ 'abc' * 1000000000000 }}", "more text"},
		{"doubling", "{% set ns = namespace(x='0123456789') %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "more text"},
		{"power", "{{ 10 ** 1000000000 }}", "64 bits"},
		{"alternating power", "{{ (-1) ** 1000000000000 }}", "more steps"},
		{"range", "{{ range(10 ** 12)|length }}", "more than 100000"},
		{"lists", "{% set ns = namespace(x=[1]) %}{% for i in range(100) %}{% set ns.x = ns.x + ns.x %}{% endfor %}", "more steps"},
		{"nested values", "{% set ns = namespace(x=[]) %}{% for i in range(1000) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}", "nested more than"},
		{"nested comparison", "{% set n = namespace(x=[], y=[]) %}{% for i in range(1000) %}{% set n.x = [n.x] %}{% set n.y = [n.y] %}{% endfor %}{{ n.x == n.y }}", "nested more than"},
		{"nested expression", "{{ " + deep + " }}", "nested more than"},
		{"nested not", "{{ " + strings.Repeat("not ", 5000) + "1 }}", "nested more than"},
		{"nested minus", "{{ " + strings.Repeat("-", 5000) + "1 }}", "nested more than"},
		{"nested tags", strings.Repeat("{% if 1 %}", 5000), "nested more than"},
		{"else if", "{% if 0 %}" + strings.Repeat("{% elif 0 %}", 5000) + "{% endif %}", "nested more than"},
		{"indent", "{{ ('a\n' * 100000)|indent(10000) }}", "more text"},
		{"json", "{{ range(99999)|list|tojson(indent='" + strings.Repeat(" ", 5000) + "') }}", "more text"},
		{"source", strings.Repeat("x", 1<<20+1), "larger than"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := render(c.template, nil)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, "test: ", "names the template")
		})
	}
}

func TestErrors(t *testing.T) {
	_, err := render("a\n{{ raise_exception('no ' ~ 'way') }}", nil)
	var e *Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, Error{Name: "test", Line: 2, Reason: "no way", Raised: true}, *e)
	_, err = render("{{ x.y.z }}", Map{{"x", Map{}}})
	require.EqualError(t, err, "test: line 1: y is undefined and has no \"z\"")
	_, err = render("{{ x }}", Map{{"x", struct{}{}}})
	require.ErrorContains(t, err, "no value of a template")
	_, err = render("{% macro f() %}{% generation %}{% endgeneration %}{% endmacro %}{{ f() }}", nil)
	require.ErrorContains(t, err, "inside a macro")
}

// FuzzRender: no template crashes, and the runs of what it renders are sound.
func FuzzRender(f *testing.F) {
	b, err := os.ReadFile("testdata/golden.json")
	require.NoError(f, err)
	var file struct {
		Cases     []struct{ Template string }
		Templates map[string]string
	}
	require.NoError(f, json.Unmarshal(b, &file))
	for _, c := range file.Cases {
		f.Add(c.Template, "hi")
	}
	for _, t := range file.Templates {
		f.Add(t, " <s>é ")
	}
	f.Fuzz(func(t *testing.T, source, content string) {
		tmpl, err := Parse("fuzz", source)
		if err != nil {
			require.IsType(t, (*Error)(nil), err)
			return
		}
		msgs := []any{Map{{"role", "user"}, {"content", Text{content, 1}}}, Map{{"role", "assistant"}, {"content", Text{content, 2}}}}
		out, err := tmpl.Render(Map{{"messages", msgs}, {"s", Text{content, 3}}, {"n", 7}, {"xs", []any{3, 1}}, {"add_generation_prompt", true}}, Limits{Steps: 20_000, Bytes: 1 << 20})
		if err != nil {
			require.IsType(t, (*Error)(nil), err)
			return
		}
		require.LessOrEqual(t, len(out.Text), 1<<20)
		at := 0
		for _, r := range out.Runs {
			require.True(t, r.Start >= at && r.Start < r.End && r.End <= len(out.Text) && r.Origin > 0, "%+v", r)
			at = r.End
		}
		at = 0
		for _, g := range out.Generated {
			require.True(t, g.Start >= at && g.Start <= g.End && g.End <= len(out.Text), "%+v", g)
			at = g.End
		}
	})
}
