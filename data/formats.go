package data

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// sql-create-context: {question, context, answer}.
func decodeSQL(raw Raw) (Record, error) {
	var v struct {
		Question *string `json:"question"`
		Context  *string `json:"context"`
		Answer   *string `json:"answer"`
	}
	if err := decodeJSON(raw, &v, checkStrings("question", "context", "answer")); err != nil {
		return Record{}, err
	}
	question, err := required("question", v.Question)
	if err != nil {
		return Record{}, err
	}
	schema, err := required("context", v.Context)
	if err != nil {
		return Record{}, err
	}
	answer, err := completion("answer", v.Answer)
	if err != nil {
		return Record{}, err
	}
	r := Record{
		Turns:  []Turn{{User, schema + "\n\nQuestion: " + question + "\nSQL: "}, {Assistant, answer}},
		Fields: map[string]string{"question": question, "context": schema},
	}
	r.finish(raw)
	return r, nil
}

// DialogSum: {fname, dialogue, summary, topic}; test records have summary1..3
// and topic1..3 in their place.
func decodeDialogSum(raw Raw) (Record, error) {
	var v struct {
		Name     *string `json:"fname"`
		Dialogue *string `json:"dialogue"`
		Topic    *string `json:"topic"`
		Topic1   *string `json:"topic1"`
		Summary  *string `json:"summary"`
		Summary1 *string `json:"summary1"`
		Summary2 *string `json:"summary2"`
		Summary3 *string `json:"summary3"`
	}
	if err := decodeJSON(raw, &v, checkStrings("fname", "dialogue", "topic", "topic1", "summary", "summary1", "summary2", "summary3")); err != nil {
		return Record{}, err
	}
	dialogue, err := required("dialogue", v.Dialogue)
	if err != nil {
		return Record{}, err
	}
	type named struct {
		name string
		text *string
	}
	all := []named{{"summary", v.Summary}, {"summary1", v.Summary1}, {"summary2", v.Summary2}, {"summary3", v.Summary3}}
	var summaries []string
	for _, s := range all {
		if s.text == nil {
			continue
		}
		text, err := completion(s.name, s.text)
		if err != nil {
			return Record{}, err
		}
		summaries = append(summaries, text)
	}
	if len(summaries) == 0 {
		return Record{}, bad(BadMissing, "summary", "is missing")
	}
	r := Record{
		Turns:        []Turn{{User, "Summarize the following conversation.\n\n" + dialogue + "\n\nSummary: "}, {Assistant, summaries[0]}},
		Fields:       map[string]string{"dialogue": dialogue},
		Alternatives: summaries[1:len(summaries):len(summaries)],
	}
	if v.Name != nil {
		r.ID = *v.Name
	}
	if v.Topic == nil {
		v.Topic = v.Topic1
	}
	if v.Topic != nil {
		r.Fields["topic"] = *v.Topic
	}
	r.finish(raw)
	return r, nil
}

// E2E challenge: a row of a meaning representation (mr) and its text (ref).
func decodeE2E(raw Raw) (Record, error) {
	if raw.Bad != nil {
		return Record{}, raw.Bad
	}
	mr, ref := raw.Cells[0], raw.Cells[1]
	for _, c := range []struct{ name, text string }{{"mr", mr}, {"ref", ref}} {
		if !utf8.ValidString(c.text) {
			return Record{}, bad(BadUTF8, c.name, "is not valid UTF-8")
		}
	}
	if _, err := required("mr", &mr); err != nil {
		return Record{}, err
	}
	attrs, err := parseMR(mr)
	if err != nil {
		return Record{}, err
	}
	if ref, err = completion("ref", &ref); err != nil {
		return Record{}, err
	}
	var b strings.Builder
	for i, a := range attrs {
		if i > 0 {
			b.WriteString(" | ")
		}
		b.WriteString(a.name + " : " + a.value)
	}
	b.WriteString("\nText: ")
	return Record{
		Turns:  []Turn{{User, b.String()}, {Assistant, ref}},
		Fields: map[string]string{"mr": mr},
	}, nil
}

type attribute struct{ name, value string }

// mrNames are the attribute names in the field's usual rendering of E2E.
var mrNames = map[string]string{
	"eatType":        "Type",
	"priceRange":     "price",
	"familyFriendly": "family friendly",
}

// parseMR parses "name[The Vaults], eatType[pub]".
func parseMR(mr string) ([]attribute, error) {
	var out []attribute
	rest := strings.TrimSpace(mr)
	for {
		name, after, ok := strings.Cut(rest, "[")
		name = strings.TrimSpace(name)
		if !ok || name == "" || strings.ContainsAny(name, "],") {
			return nil, bad(BadSyntax, "mr", "want attribute[value], got %q", clip(rest))
		}
		value, after, ok := strings.Cut(after, "]")
		if !ok || strings.Contains(value, "[") {
			return nil, bad(BadSyntax, "mr", "the value of %q has no closing bracket", name)
		}
		if n, ok := mrNames[name]; ok {
			name = n
		}
		out = append(out, attribute{name, value})
		rest = strings.TrimSpace(after)
		if rest == "" {
			return out, nil
		}
		if rest, ok = strings.CutPrefix(rest, ","); !ok {
			return nil, bad(BadSyntax, "mr", "want a comma behind %s[…], got %q", name, clip(rest))
		}
		rest = strings.TrimSpace(rest)
	}
}

// clip shortens text for a message.
func clip(s string) string {
	const most = 40
	if r := []rune(s); len(r) > most {
		return fmt.Sprintf("%s…", string(r[:most]))
	}
	return s
}
