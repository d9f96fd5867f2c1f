package data

import (
	"fmt"
	"strings"
)

// What becomes of a conversation in which a speaker follows himself, as a
// CleanSpec names it.
const (
	repeatedDrop  = "drop"
	repeatedMerge = "merge"
)

// speaker is what a role name in a source stands for.
type speaker struct {
	role Role
	// tool marks the roles of tool use: the model writes a call, and is given its
	// result.
	tool bool
}

// speakers are the names that chat services, their dumps and the tools around
// them give to those who speak.
var speakers = map[string]speaker{
	"human": {role: User}, "user": {role: User}, "prompter": {role: User},
	"gpt": {role: Assistant}, "assistant": {role: Assistant}, "chatgpt": {role: Assistant},
	"bing": {role: Assistant}, "bard": {role: Assistant}, "model": {role: Assistant}, "bot": {role: Assistant},
	"system": {role: System}, "developer": {role: System},

	"function_call": {Assistant, true}, "tool_call": {Assistant, true}, "tool_calls": {Assistant, true},
	"observation": {User, true}, "tool": {User, true}, "function": {User, true}, "ipython": {User, true},
	"tool_response": {User, true}, "function_response": {User, true},
}

// speakerOf knows the speaker by the role's name, whatever its case. Names of
// further, which are in lower case, come first.
func speakerOf(name string, further map[string]Role) (s speaker, ok bool) {
	if s, ok = speakers[name]; ok && further == nil { // no copy for the common spelling
		return s, true
	}
	key := strings.ToLower(strings.TrimSpace(name))
	if role, ok := further[key]; ok {
		return speaker{role: role}, true
	}
	s, ok = speakers[key]
	return s, ok
}

// dialogue collects the turns of a source's conversation on the way to a
// Record's.
type dialogue struct {
	field string // the list's name, for messages
	turns []Turn
	index []int // of turns in the list
}

// add appends a turn, the i-th of the list. key names the field of its text.
func (d *dialogue) add(r *Record, i int, key string, s speaker, text *string) error {
	if text == nil || s.role != System && blank(*text) {
		return d.silent(i, key, s.role, text)
	}
	if s.tool {
		r.change(ChangedToolRoles)
	}
	if s.role == System && blank(*text) {
		r.change(ChangedEmptySystem)
		return nil
	}
	d.turns, d.index = append(d.turns, Turn{s.role, *text}), append(d.index, i)
	return nil
}

// silent is the error of a turn that has no text.
func (d *dialogue) silent(i int, key string, role Role, text *string) error {
	judge := required
	if role == Assistant {
		judge = completion
	}
	_, err := judge(d.at(i)+"."+key, text)
	return err
}

func (d *dialogue) at(i int) string { return fmt.Sprintf("%s[%d]", d.field, i) }

// normalise checks the order of the turns and brings them into a Record's: what
// no user turn asks for and what no assistant turn answers is left out at the
// ends; inside, repeated says what becomes of turns that don't alternate.
func (d *dialogue) normalise(r *Record, repeated string) error {
	turns, index := d.turns, d.index
	out := turns[:0] // never ahead of what is read
	if len(turns) > 0 && turns[0].Role == System {
		out, turns, index = turns[:1], turns[1:], index[1:]
	}
	for i, t := range turns {
		if t.Role == System {
			return skip(SkipSystemInside, d.at(index[i]), "a system turn inside the conversation has no place in the templates")
		}
	}
	for len(turns) > 0 && turns[0].Role == Assistant {
		turns, index = turns[1:], index[1:]
		r.change(ChangedLeadingTurns)
	}
	for len(turns) > 0 && turns[len(turns)-1].Role == User {
		turns = turns[:len(turns)-1]
		r.change(ChangedTrailingTurns)
	}
	if len(turns) == 0 {
		return skip(SkipNoPair, d.field, "has no user turn that an assistant turn answers")
	}
	for i := 0; i < len(turns); {
		j := i + 1
		for j < len(turns) && turns[j].Role == turns[i].Role {
			j++
		}
		t := turns[i]
		if j > i+1 {
			if repeated != repeatedMerge {
				return skip(SkipTurnOrder, d.at(index[i+1]), "two %s turns follow each other", t.Role)
			}
			texts := make([]string, 0, j-i)
			for _, t := range turns[i:j] {
				texts = append(texts, t.Text)
			}
			t.Text = strings.Join(texts, "\n\n")
			r.change(ChangedRepeated)
		}
		out = append(out, t)
		i = j
	}
	r.Turns = out
	return nil
}
