package data

import (
	"strings"
	"unicode/utf8"
)

var e2eKeys = keysOf(false, "mr", "ref")

// E2E challenge: a row of a meaning representation (mr) and its text (ref), from
// CSV, or from Parquet as an object.
func decodeE2E(raw Raw) (Record, error) {
	if raw.Bad != nil {
		return Record{}, raw.Bad
	}
	var v struct {
		MR  *string `json:"mr"`
		Ref *string `json:"ref"`
	}
	var r Record
	if raw.JSON != nil {
		if err := decodeJSON(&r, raw, &v, e2eKeys, checkStrings("mr", "ref")); err != nil {
			return Record{}, err
		}
	} else {
		v.MR, v.Ref = &raw.Cells[0], &raw.Cells[1]
	}
	mr, err := validText("mr", v.MR)
	if err != nil {
		return Record{}, err
	}
	ref, err := validText("ref", v.Ref)
	if err != nil {
		return Record{}, err
	}
	if _, err := required("mr", mr); err != nil {
		return Record{}, err
	}
	attrs, err := parseMR(*mr)
	if err != nil {
		return Record{}, err
	}
	text, err := completion("ref", ref)
	if err != nil {
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
	r.Turns = []Turn{{User, b.String()}, {Assistant, text}}
	r.Fields = map[string]string{"mr": *mr}
	return r, nil
}

// validText refuses a cell that is not UTF-8.
func validText(field string, s *string) (*string, error) {
	if s != nil && !utf8.ValidString(*s) {
		return nil, bad(BadUTF8, field, "is not valid UTF-8")
	}
	return s, nil
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
