package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bytedance/sonic"
)

// chatRecord is a conversation in one of the dialects of ShareGPT:
//
//	{"id", "conversations": [{"from": "human", "value"}, …]}    ShareGPT; LLaMA-Factory adds "system" and "tools"
//	{"id", "items": [{"from", "value"}, …]}                     its raw crawl
//	{"messages": [{"role": "user", "content"}, …]}              OpenAI; content may be parts, turns may have tool calls
//	{"conversation_id", "conversation": [{"human", "assistant"}, …]}
//
// The name of the list and the make of its turns go together in any combination.
// Further keys are ignored.
type chatRecord[T any] struct {
	ID             json.RawMessage `json:"id"`
	ConversationID json.RawMessage `json:"conversation_id"`
	Conversations  []T             `json:"conversations"`
	Messages       []T             `json:"messages"`
	Conversation   []T             `json:"conversation"`
	Items          []T             `json:"items"`
	System         *string         `json:"system"`
	Tools          json.RawMessage `json:"tools"`
}

// chatTurn is a turn, or a pair of turns with the keys human and assistant.
type chatTurn struct {
	From         *string         `json:"from"`
	Value        *string         `json:"value"`
	Role         *string         `json:"role"`
	Content      *string         `json:"content"`
	Human        *string         `json:"human"`
	Assistant    *string         `json:"assistant"`
	ToolCalls    json.RawMessage `json:"tool_calls"`
	FunctionCall json.RawMessage `json:"function_call"`
}

// partsTurn is a chatTurn whose content is made of parts.
type partsTurn struct {
	chatTurn
	Content json.RawMessage `json:"content"`
}

var chatLists = []string{"conversations", "messages", "conversation", "items"}

var chatKeys = keysOf(false, append(chatLists, "id", "conversation_id", "system", "tools",
	"from", "value", "role", "content", "human", "assistant", "tool_calls", "function_call", "type", "text")...)

// chatFormat is the format "sharegpt" with what becomes of repeated turns.
func chatFormat(repeated string) Format {
	return Format{name: "sharegpt", version: 2, oneOf: [][]string{chatLists}, decode: func(raw Raw) (Record, error) {
		if r, ok, err := decodePlainChat(raw, repeated); ok {
			return r, err
		}
		return decodeShareGPT(raw, repeated)
	}}
}

func decodeShareGPT(raw Raw, repeated string) (Record, error) {
	var v chatRecord[chatTurn]
	var r Record
	if err := decodeJSON(&r, raw, &v, chatKeys, checkChat); err != nil {
		// Content in parts is too rare for every turn to pay for it.
		var p chatRecord[partsTurn]
		var b *BadRecordError
		if !errors.As(err, &b) || b.Code != BadType || sonic.ConfigStd.Unmarshal(raw.JSON, &p) != nil {
			return Record{}, err
		}
		if v, err = wholeTurns(&r, p); err != nil {
			return Record{}, err
		}
	}
	field, list, err := v.list()
	if err != nil {
		return Record{}, err
	}
	if r.ID, err = idText("id", v.ID); err == nil && r.ID == "" {
		r.ID, err = idText("conversation_id", v.ConversationID)
	}
	if err != nil {
		return Record{}, err
	}
	d := dialogue{field: field, turns: make([]Turn, 0, len(list)+1), index: make([]int, 0, len(list)+1)}
	for i := range list {
		if err := d.addChat(&r, i, &list[i]); err != nil {
			return Record{}, err
		}
	}
	if err := d.system(v.System); err != nil {
		return Record{}, err
	}
	if err := d.normalise(&r, repeated); err != nil {
		return Record{}, err
	}
	if !emptyJSON(v.Tools) {
		r.change(ChangedToolsIgnored)
	}
	return r, nil
}

// list is the one list of turns that has any.
func (v *chatRecord[T]) list() (field string, list []T, err error) {
	for i, l := range [][]T{v.Conversations, v.Messages, v.Conversation, v.Items} {
		switch {
		case l == nil || field != "" && len(l) == 0:
		case len(list) > 0:
			return "", nil, bad(BadAmbiguous, field, "holds turns, and so does %q: which of them is the conversation is undefined", chatLists[i])
		default:
			field, list = chatLists[i], l
		}
	}
	if field == "" {
		return "", nil, bad(BadMissing, chatLists[0], "is missing, and so is any in its place (%s)", strings.Join(chatLists[1:], ", "))
	}
	if len(list) == 0 {
		return "", nil, bad(BadEmptyRecord, field, "the conversation is empty")
	}
	return field, list, nil
}

// addChat takes in the i-th turn, or pair of turns, of the list.
func (d *dialogue) addChat(r *Record, i int, t *chatTurn) error {
	if t.From == nil && t.Role == nil {
		if t.Human == nil && t.Assistant == nil {
			key := "from"
			if t.Value == nil && t.Content != nil {
				key = "role"
			}
			return bad(BadMissing, d.at(i)+"."+key, "is missing")
		}
		if err := d.add(r, i, "human", speaker{role: User}, t.Human); err != nil {
			return err
		}
		return d.add(r, i, "assistant", speaker{role: Assistant}, t.Assistant)
	}
	roleKey, name := "from", t.From
	if name == nil {
		roleKey, name = "role", t.Role
	}
	who, ok := speakerOf(*name, nil)
	if ok && t.From != nil && t.Role != nil {
		var other speaker
		roleKey, name = "role", t.Role
		if other, ok = speakerOf(*name, nil); ok && other != who {
			return bad(BadAmbiguous, d.at(i)+".from", "is %q, but \"role\" is %q: which of them spoke is undefined", clip(*t.From), clip(*t.Role))
		}
	}
	if !ok {
		return bad(BadRole, d.at(i)+"."+roleKey, "%q is not a role that is known", clip(*name))
	}
	textKey, text := "value", t.Value
	switch {
	case text == nil && (t.Content != nil || t.From == nil):
		textKey, text = "content", t.Content
	case text != nil && t.Content != nil && *text != *t.Content:
		return bad(BadAmbiguous, d.at(i)+".value", "differs from \"content\": which of them was said is undefined")
	}
	if who.role == Assistant && !(emptyJSON(t.ToolCalls) && emptyJSON(t.FunctionCall)) {
		var err error
		if text, err = t.calls(d.at(i), text); err != nil {
			return err
		}
		who.tool = true
		r.change(ChangedToolCalls)
	}
	return d.add(r, i, textKey, who, text)
}

// system puts a record's own system text before its turns.
func (d *dialogue) system(text *string) error {
	if text == nil || blank(*text) {
		return nil
	}
	if len(d.turns) > 0 && d.turns[0].Role == System {
		if d.turns[0].Text != *text {
			return bad(BadAmbiguous, "system", "differs from the system turn of %q: which of them counts is undefined", d.field)
		}
		return nil
	}
	d.turns = append([]Turn{{System, *text}}, d.turns...)
	d.index = append([]int{-1}, d.index...)
	return nil
}

// emptyJSON reports whether a raw value says nothing.
func emptyJSON(raw json.RawMessage) bool {
	switch string(bytes.TrimSpace(raw)) {
	case "", "null", `""`, "[]", "{}":
		return true
	}
	return false
}

// toolCall is OpenAI's {"function": {"name", "arguments"}}, or the inner object
// by itself.
type toolCall struct {
	Function  *toolCall       `json:"function"`
	Name      *string         `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// calls writes the turn's tool calls behind its text, in the form that ShareGPT's
// function_call turns have: {"name": …, "arguments": …}, several as an array.
func (t *chatTurn) calls(at string, text *string) (*string, error) {
	var err error
	key, list := "tool_calls", make([]toolCall, 1)
	switch {
	case emptyJSON(t.FunctionCall):
		err = json.Unmarshal(t.ToolCalls, &list)
	case emptyJSON(t.ToolCalls):
		key = "function_call"
		err = json.Unmarshal(t.FunctionCall, &list[0])
	default:
		return nil, bad(BadAmbiguous, at+".tool_calls", "stands beside \"function_call\": which of them counts is undefined")
	}
	if err != nil {
		return nil, bad(BadType, at+"."+key, "is not a list of calls with name and arguments: %v", err)
	}
	var out []string
	for i, c := range list {
		if c.Function != nil {
			c = *c.Function
		}
		if c.Name == nil || blank(*c.Name) {
			return nil, bad(BadMissing, fmt.Sprintf("%s.%s[%d].name", at, key, i), "is missing")
		}
		args := string(c.Arguments)
		var inner string
		if json.Unmarshal(c.Arguments, &inner) == nil && json.Valid([]byte(inner)) {
			args = inner // arguments as the text of an object
		}
		if args == "" {
			args = "{}"
		}
		out = append(out, fmt.Sprintf(`{"name": %s, "arguments": %s}`, jsonString(*c.Name), args))
	}
	call := strings.Join(out, ", ")
	if len(out) > 1 {
		call = "[" + call + "]"
	}
	if text != nil && !blank(*text) {
		call = *text + "\n" + call
	}
	return &call, nil
}

// jsonString is s as JSON, without the escapes for HTML.
func jsonString(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string always encodes
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// wholeTurns makes one text of the parts of each turn's content.
func wholeTurns(r *Record, p chatRecord[partsTurn]) (v chatRecord[chatTurn], err error) {
	v = chatRecord[chatTurn]{ID: p.ID, ConversationID: p.ConversationID, System: p.System, Tools: p.Tools}
	field, list, err := p.list()
	if err != nil {
		return v, err
	}
	turns := make([]chatTurn, len(list))
	for i, t := range list {
		turns[i] = t.chatTurn
		if len(t.Content) == 0 {
			continue
		}
		content, err := anyValue(t.Content)
		if err != nil {
			return v, bad(BadType, fmt.Sprintf("%s[%d].content", field, i), "is not valid JSON: %v", err)
		}
		if turns[i].Content, err = textOf(r, fmt.Sprintf("%s[%d].content", field, i), content); err != nil {
			return v, err
		}
	}
	switch field {
	case "conversations":
		v.Conversations = turns
	case "messages":
		v.Messages = turns
	case "conversation":
		v.Conversation = turns
	case "items":
		v.Items = turns
	}
	return v, nil
}

// textOf returns the text of a turn's content: a string, or parts such as
// {"type": "text", "text": …} and strings. Nil stands for null.
func textOf(r *Record, at string, content any) (*string, error) {
	switch content := content.(type) {
	case nil:
		return nil, nil
	case string:
		return &content, nil
	case []any:
		texts := make([]string, 0, len(content))
		for i, c := range content {
			part, isPart := c.(map[string]any)
			if kind, typed := part["type"]; isPart && typed && kind != "text" && kind != "input_text" && kind != "output_text" {
				return nil, bad(BadType, fmt.Sprintf("%s[%d]", at, i), "is a part of type %s: only text can be trained on", clip(fmt.Sprintf("%q", fmt.Sprint(kind))))
			}
			at := fmt.Sprintf("%s[%d]", at, i)
			if isPart {
				c, at = part["text"], at+".text"
			}
			text, ok := c.(string)
			switch {
			case isPart && c == nil:
				return nil, bad(BadMissing, at, "is missing")
			case !ok:
				return nil, bad(BadType, at, "want a string, got %s", jsonKind(c))
			}
			texts = append(texts, text)
		}
		if len(texts) > 1 {
			r.change(ChangedParts)
		}
		text := strings.Join(texts, "\n")
		return &text, nil
	}
	return nil, bad(BadType, at, "want a string or parts of text, got %s", jsonKind(content))
}

// checkChat names the field of the wrong type in a conversation.
func checkChat(value any) error {
	obj := value.(map[string]any)
	if err := stringFields(value, "", "system"); err != nil {
		return err
	}
	for _, field := range chatLists {
		v, ok := obj[field]
		if !ok || v == nil {
			continue
		}
		list, ok := v.([]any)
		if !ok {
			return bad(BadType, field, "want an array of turns, got %s", jsonKind(v))
		}
		for i, t := range list {
			names := []string{"from", "value", "role", "content", "human", "assistant"}
			if turn, ok := t.(map[string]any); ok {
				if _, parts := turn["content"].([]any); parts {
					names = slices.Delete(names, 3, 4) // see textOf
				}
			}
			if err := stringFields(t, fmt.Sprintf("%s[%d].", field, i), names...); err != nil {
				return err
			}
		}
	}
	return nil
}
