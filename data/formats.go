package data

import "encoding/json"

var sqlKeys = keysOf(false, "question", "context", "answer", "query")

// sql-create-context: {question, context, answer}. Spider calls the answer
// "query"; its own files lack the context, which must have been added.
func decodeSQL(raw Raw) (Record, error) {
	var v struct {
		Question *string `json:"question"`
		Context  *string `json:"context"`
		Answer   *string `json:"answer"`
		Query    *string `json:"query"`
	}
	var r Record
	if err := decodeJSON(&r, raw, &v, sqlKeys, checkStrings(sqlKeys.names...)); err != nil {
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
	field, text, err := either("answer", v.Answer, "query", v.Query)
	if err != nil {
		return Record{}, err
	}
	answer, err := completion(field, text)
	if err != nil {
		return Record{}, err
	}
	r.Turns = []Turn{{User, schema + "\n\nQuestion: " + question + "\nSQL: "}, {Assistant, answer}}
	r.Fields = map[string]string{"question": question, "context": schema}
	return r, nil
}

var dialogSumKeys = keysOf(false, "fname", "id", "dialogue", "topic", "topic1", "topic2", "topic3", "summary", "summary1", "summary2", "summary3")

// DialogSum: {fname, dialogue, summary, topic}, where Hugging Face's copy has
// "id" for fname; test records have summary1..3 and topic1..3 in their place.
func decodeDialogSum(raw Raw) (Record, error) {
	var v struct {
		Name     *string         `json:"fname"`
		ID       json.RawMessage `json:"id"`
		Dialogue *string         `json:"dialogue"`
		Topic    *string         `json:"topic"`
		Topic1   *string         `json:"topic1"`
		Topic2   *string         `json:"topic2"`
		Topic3   *string         `json:"topic3"`
		Summary  *string         `json:"summary"`
		Summary1 *string         `json:"summary1"`
		Summary2 *string         `json:"summary2"`
		Summary3 *string         `json:"summary3"`
	}
	var r Record
	if err := decodeJSON(&r, raw, &v, dialogSumKeys, checkStrings("fname", "dialogue", "topic", "topic1", "topic2", "topic3", "summary", "summary1", "summary2", "summary3")); err != nil {
		return Record{}, err
	}
	dialogue, err := required("dialogue", v.Dialogue)
	if err != nil {
		return Record{}, err
	}
	var summaries []string
	for _, s := range []struct {
		name string
		text *string
	}{{"summary", v.Summary}, {"summary1", v.Summary1}, {"summary2", v.Summary2}, {"summary3", v.Summary3}} {
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
	r.Turns = []Turn{{User, "Summarize the following conversation.\n\n" + dialogue + "\n\nSummary: "}, {Assistant, summaries[0]}}
	r.Fields = map[string]string{"dialogue": dialogue}
	r.Alternatives = summaries[1:len(summaries):len(summaries)]
	if v.Name != nil {
		r.ID = *v.Name
	} else if r.ID, err = idText("id", v.ID); err != nil {
		return Record{}, err
	}
	if v.Topic == nil {
		v.Topic = v.Topic1
	}
	for _, t := range []struct {
		name string
		text *string
	}{{"topic", v.Topic}, {"topic2", v.Topic2}, {"topic3", v.Topic3}} {
		if t.text != nil {
			r.Fields[t.name] = *t.text
		}
	}
	return r, nil
}
