package data

import (
	"encoding/json"
	"fmt"
)

var specBenchKeys = keysOf(false, "question_id", "category", "turns", "reference")

// Spec-Bench and MT-Bench: {question_id, category, turns, reference}, questions
// for evaluation. The first of the turns is the record's; those that follow once
// it is answered are Followups. reference, if there, has an entry for each turn:
// a text, several texts, or nothing (null or ""). Of a question of one turn, every
// text of reference is a reference of that turn.
//
// A record whose first turn has a reference ends with it, as an assistant turn,
// further ones being Alternatives; one without ends with the user turn.
func decodeSpecBench(raw Raw) (Record, error) {
	var v struct {
		ID        json.RawMessage `json:"question_id"`
		Category  *string         `json:"category"`
		Turns     *[]*string      `json:"turns"`
		Reference json.RawMessage `json:"reference"`
	}
	var r Record
	if err := decodeJSON(&r, raw, &v, specBenchKeys, checkSpecBench); err != nil {
		return Record{}, err
	}
	var err error
	if r.ID, err = idText("question_id", v.ID); err != nil {
		return Record{}, err
	}
	switch {
	case v.Turns == nil:
		return Record{}, bad(BadMissing, "turns", "is missing")
	case len(*v.Turns) == 0:
		return Record{}, bad(BadEmptyRecord, "turns", "the question has no turn")
	}
	if v.Category != nil {
		r.Category = *v.Category
	}
	for i, t := range *v.Turns {
		text, err := required(fmt.Sprintf("turns[%d]", i), t)
		if err != nil {
			return Record{}, err
		}
		if i == 0 {
			r.Turns = []Turn{{User, text}}
			continue
		}
		r.Followups = append(r.Followups, text)
	}
	refs, err := references(v.Reference, len(*v.Turns))
	if err != nil {
		return Record{}, err
	}
	if len(refs) > 1 {
		r.FollowupReferences = refs[1:]
	}
	if len(refs) > 0 && len(refs[0]) > 0 {
		r.Turns = append(r.Turns, Turn{Assistant, refs[0][0]})
		r.Alternatives = refs[0][1:]
	}
	return r, nil
}

// references returns the references of each of n turns; nil if there are none.
func references(raw json.RawMessage, n int) ([][]string, error) {
	if emptyJSON(raw) {
		return nil, nil
	}
	v, err := anyValue(raw)
	if err != nil {
		return nil, bad(BadType, "reference", "is not valid JSON: %v", err)
	}
	if s, ok := v.(string); ok {
		v = []any{s}
	}
	list, ok := v.([]any)
	if !ok {
		return nil, bad(BadType, "reference", "want a string or an array, got %s", jsonKind(v))
	}
	if n > 1 && len(list) > n {
		return nil, bad(BadType, "reference", "has %d entries for %d turns", len(list), n)
	}
	out := make([][]string, n)
	for i, entry := range list {
		at := fmt.Sprintf("reference[%d]", i)
		several, ok := entry.([]any)
		if !ok {
			several = []any{entry}
		}
		for j, one := range several {
			text, ok := one.(string)
			switch {
			case one == nil, ok && blank(text):
				continue // nothing
			case !ok && len(several) > 1:
				return nil, bad(BadType, fmt.Sprintf("%s[%d]", at, j), "want a string, got %s", jsonKind(one))
			case !ok:
				return nil, bad(BadType, at, "want a string or strings, got %s", jsonKind(one))
			}
			turn := min(i, n-1)
			out[turn] = append(out[turn], text)
		}
	}
	return out, nil
}

// checkSpecBench names the field of the wrong type.
func checkSpecBench(value any) error {
	if err := stringFields(value, "", "category"); err != nil {
		return err
	}
	turns := value.(map[string]any)["turns"]
	list, ok := turns.([]any)
	if !ok && turns != nil {
		return bad(BadType, "turns", "want an array of texts, got %s", jsonKind(turns))
	}
	for i, t := range list {
		if _, ok := t.(string); !ok && t != nil {
			return bad(BadType, fmt.Sprintf("turns[%d]", i), "want a string, got %s", jsonKind(t))
		}
	}
	return nil
}
