package data

import (
	"encoding/json"
	"fmt"
	"strings"
)

// chatRecord is a ShareGPT conversation, or the "messages" dialect of it.
type chatRecord struct {
	ID            json.RawMessage `json:"id"`
	Conversations *[]chatTurn     `json:"conversations"`
	Messages      *[]chatTurn     `json:"messages"`
	Tools         json.RawMessage `json:"tools"`
}

type chatTurn struct {
	From    *string `json:"from"`
	Value   *string `json:"value"`
	Role    *string `json:"role"`
	Content *string `json:"content"`
}

// chatRoles are the names that dumps of chat services give the speakers. Tool
// roles are what later tools made of ShareGPT: the model writes a call, and is
// given its result.
var chatRoles = map[string]Role{
	"human": User, "user": User,
	"gpt": Assistant, "assistant": Assistant, "chatgpt": Assistant, "bing": Assistant, "bard": Assistant,
	"system":        System,
	"function_call": Assistant, "observation": User,
}

func decodeShareGPT(raw Raw) (Record, error) {
	var v chatRecord
	if err := decodeJSON(raw, &v, checkChat); err != nil {
		return Record{}, err
	}
	field, list := "conversations", v.Conversations
	if list == nil {
		field, list = "messages", v.Messages
	}
	if list == nil {
		return Record{}, bad(BadMissing, "conversations", "is missing, and so is \"messages\"")
	}
	if len(*list) == 0 {
		return Record{}, bad(BadEmptyRecord, field, "the conversation is empty")
	}
	id, err := chatID(v.ID)
	if err != nil {
		return Record{}, err
	}
	r := Record{ID: id}
	if err := r.normalise(field, *list); err != nil {
		return Record{}, err
	}
	if t := strings.TrimSpace(string(v.Tools)); t != "" && t != "null" && t != `""` && t != "[]" {
		r.change(ChangedToolsIgnored)
	}
	r.finish(raw)
	return r, nil
}

// chatID accepts a string or a number.
func chatID(raw json.RawMessage) (string, error) {
	var v any
	if len(raw) == 0 {
		return "", nil
	}
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return "", bad(BadType, "id", "is not valid JSON: %v", err)
	}
	switch v := v.(type) {
	case nil:
		return "", nil
	case string:
		return v, nil
	case json.Number:
		return v.String(), nil
	}
	return "", bad(BadType, "id", "want a string or a number, got %s", jsonKind(v))
}

// normalise checks the turns and brings them into a Record's order.
func (r *Record) normalise(field string, list []chatTurn) error {
	turns := make([]Turn, 0, len(list))
	index := make([]int, 0, len(list)) // of turns in list, for messages
	for i, t := range list {
		role, text, err := t.parse(fmt.Sprintf("%s[%d]", field, i))
		if err != nil {
			return err
		}
		if name := t.speaker(); name == "function_call" || name == "observation" {
			r.change(ChangedToolRoles)
		}
		if role == System && blank(text) {
			r.change(ChangedEmptySystem)
			continue
		}
		turns, index = append(turns, Turn{role, text}), append(index, i)
	}

	start := 0
	if len(turns) > 0 && turns[0].Role == System {
		r.Turns = append(r.Turns, turns[0])
		start = 1
	}
	for i := start; i < len(turns); i++ {
		if turns[i].Role == System {
			return skip(SkipSystemInside, fmt.Sprintf("%s[%d]", field, index[i]), "a system turn inside the conversation has no place in the templates")
		}
	}
	end := len(turns)
	for start < end && turns[start].Role == Assistant {
		start++
		r.change(ChangedLeadingTurns)
	}
	for end > start && turns[end-1].Role == User {
		end--
		r.change(ChangedTrailingTurns)
	}
	if start == end {
		return skip(SkipNoPair, field, "has no user turn that an assistant turn answers")
	}
	for i := start; i < end; i++ {
		want := User
		if (i-start)%2 == 1 {
			want = Assistant
		}
		if turns[i].Role != want {
			return skip(SkipTurnOrder, fmt.Sprintf("%s[%d]", field, index[i]), "two %s turns follow each other", turns[i].Role)
		}
	}
	r.Turns = append(r.Turns, turns[start:end]...)
	return nil
}

// speaker is the turn's lower-case role name; empty when missing.
func (t chatTurn) speaker() string {
	name := t.From
	if name == nil {
		name = t.Role
	}
	if name == nil {
		return ""
	}
	return strings.ToLower(strings.TrimSpace(*name))
}

// parse checks one turn; at names it.
func (t chatTurn) parse(at string) (Role, string, error) {
	roleKey, textKey, text := "from", "value", t.Value
	if t.From == nil && t.Role != nil {
		roleKey = "role"
	}
	if text == nil && (t.Content != nil || roleKey == "role") {
		textKey, text = "content", t.Content
	}
	if t.From == nil && t.Role == nil {
		return "", "", bad(BadMissing, at+"."+roleKey, "is missing")
	}
	role, ok := chatRoles[t.speaker()]
	if !ok {
		return "", "", bad(BadRole, at+"."+roleKey, "%q is not a role that is known", clip(t.speaker()))
	}
	if text == nil {
		return "", "", bad(BadMissing, at+"."+textKey, "is missing")
	}
	var err error
	switch role {
	case Assistant:
		_, err = completion(at+"."+textKey, text)
	case User:
		_, err = required(at+"."+textKey, text)
	}
	return role, *text, err
}

func (r *Record) change(code string) {
	for _, c := range r.Changed {
		if c == code {
			return
		}
	}
	r.Changed = append(r.Changed, code)
}

// checkChat names the field of the wrong type in a conversation.
func checkChat(value any) error {
	obj := value.(map[string]any)
	for _, field := range []string{"conversations", "messages"} {
		v, ok := obj[field]
		if !ok || v == nil {
			continue
		}
		list, ok := v.([]any)
		if !ok {
			return bad(BadType, field, "want an array of turns, got %s", jsonKind(v))
		}
		for i, t := range list {
			if err := stringFields(t, fmt.Sprintf("%s[%d].", field, i), "from", "value", "role", "content"); err != nil {
				return err
			}
		}
	}
	return nil
}
