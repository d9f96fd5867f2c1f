package data

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bytedance/sonic"

	"github.com/specstream/specstream"
)

// mappingJSON decodes values of any make as encoding/json does, and keeps
// numbers as they are spelled.
var mappingJSON = sonic.Config{UseNumber: true, CopyString: true, ValidateString: true}.Froze()

// mapping is a compiled [specstream.MappingSpec].
type mapping struct {
	prompt, completion fieldText // unless there are messages
	system             *fieldText
	messages           *fieldPath
	role, content      fieldPath
	roles              map[string]Role // by names in lower case
	id                 *fieldPath
	references         []fieldPath
	repeated           string
	columns            []string // the first key of every path
	keys               *keySet  // all of their keys
}

// mappingFormat compiles a mapping. Its errors name the spec's field.
func mappingFormat(spec specstream.MappingSpec, repeated string) (Format, error) {
	m := &mapping{repeated: repeated}
	var paths []fieldPath
	var err error
	path := func(name, text string) fieldPath {
		p, perr := parsePath(text)
		if perr != nil && err == nil {
			err = specstream.Invalid("mapping."+name, "%v", perr)
		}
		return p
	}
	text := func(name, text string) fieldText {
		t, terr := parseText(text)
		if terr != nil && err == nil {
			err = specstream.Invalid("mapping."+name, "%v", terr)
		}
		paths = append(paths, t.paths()...)
		return t
	}
	if spec.Messages != "" {
		p := path("messages", spec.Messages)
		m.messages, paths = &p, append(paths, p)
		m.role, m.content = path("role", orElse(spec.Role, "role")), path("content", orElse(spec.Content, "content"))
		m.roles = map[string]Role{}
		for name, role := range spec.Roles {
			m.roles[strings.ToLower(strings.TrimSpace(name))] = Role(role)
		}
	} else {
		m.prompt, m.completion = text("prompt", spec.Prompt), text("completion", spec.Completion)
		if err == nil && len(m.completion.paths()) == 0 {
			err = specstream.Invalid("mapping.completion", "names no field: every record would have the same")
		}
	}
	if spec.System != "" {
		t := text("system", spec.System)
		m.system = &t
	}
	if spec.ID != "" {
		p := path("id", spec.ID)
		m.id, paths = &p, append(paths, p)
	}
	for i, r := range spec.References {
		p := path(fmt.Sprintf("references[%d]", i), r)
		m.references, paths = append(m.references, p), append(paths, p)
	}
	if err != nil {
		return Format{}, err
	}

	keys := slices.Concat(m.role.keys, m.content.keys)
	for _, p := range paths {
		keys = append(keys, p.keys...)
		if !slices.Contains(m.columns, p.keys[0]) {
			m.columns = append(m.columns, p.keys[0])
		}
	}
	if m.keys = keysOf(true, keys...); m.keys == nil {
		return Format{}, specstream.Invalid("mapping", "names more than %d keys", maxKeys)
	}
	return Format{name: "mapping", version: 1, container: spec.Container, columns: m.columns, exact: true, decode: m.decode}, nil
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

func (m *mapping) decode(raw Raw) (Record, error) {
	var r Record
	v, err := m.value(&r, raw)
	if err != nil {
		return Record{}, err
	}
	if m.id != nil {
		id, err := m.id.of(v)
		if err != nil {
			return Record{}, err
		}
		if r.ID, err = idValue(m.id.text, id); err != nil {
			return Record{}, err
		}
	}
	if m.messages != nil {
		err = m.conversation(&r, v)
	} else {
		err = m.exchange(&r, v)
	}
	if err != nil {
		return Record{}, err
	}
	for _, p := range m.references {
		if err := m.reference(&r, p, v); err != nil {
			return Record{}, err
		}
	}
	return r, nil
}

// value is the record as an object, of JSON or of a row's cells.
func (m *mapping) value(r *Record, raw Raw) (any, error) {
	if raw.Bad != nil {
		return nil, raw.Bad
	}
	if raw.JSON != nil {
		var v any
		err := decodeWith(mappingJSON, r, raw, &v, m.keys, func(any) error { return nil })
		return v, err
	}
	row := make(map[string]any, len(m.columns))
	for i, name := range m.columns {
		if _, err := validText(name, &raw.Cells[i]); err != nil {
			return nil, err
		}
		row[name] = raw.Cells[i]
	}
	return row, nil
}

// systemText is the text of the system turn; empty for none.
func (m *mapping) systemText(r *Record, v any) (string, error) {
	if m.system == nil {
		return "", nil
	}
	if p := m.system.parts[0].path; len(m.system.parts) == 1 && p.keys != nil {
		if field, err := p.of(v); err == nil && field == nil {
			return "", nil // null: none
		}
	}
	s, err := m.system.of(v)
	if err == nil && blank(s) {
		r.change(ChangedEmptySystem)
		return "", nil
	}
	return s, err
}

// exchange makes the two turns of prompt and completion.
func (m *mapping) exchange(r *Record, v any) error {
	system, err := m.systemText(r, v)
	if err != nil {
		return err
	}
	if system != "" {
		r.Turns = append(r.Turns, Turn{System, system})
	}
	prompt, err := m.prompt.of(v)
	if err != nil {
		return err
	}
	if _, err := required(clip(m.prompt.text), &prompt); err != nil {
		return err
	}
	answer, err := m.completion.of(v)
	if err != nil {
		return err
	}
	if _, err := completion(clip(m.completion.text), &answer); err != nil {
		return err
	}
	r.Turns = append(r.Turns, Turn{User, prompt}, Turn{Assistant, answer})
	return nil
}

// conversation makes the turns of messages.
func (m *mapping) conversation(r *Record, v any) error {
	system, err := m.systemText(r, v)
	if err != nil {
		return err
	}
	messages, err := m.messages.of(v)
	if err != nil {
		return err
	}
	list, ok := messages.([]any)
	switch {
	case messages == nil:
		return bad(BadMissing, m.messages.text, "is null")
	case !ok:
		return bad(BadType, m.messages.text, "want an array of turns, got %s", jsonKind(messages))
	case len(list) == 0:
		return bad(BadEmptyRecord, m.messages.text, "the conversation is empty")
	}
	d := dialogue{field: m.messages.text, turns: make([]Turn, 0, len(list)+1), index: make([]int, 0, len(list)+1)}
	for i, turn := range list {
		if err := m.turn(r, &d, i, turn); err != nil {
			return err
		}
	}
	if err := d.system(&system); err != nil {
		return err
	}
	return d.normalise(r, m.repeated)
}

// turn adds the i-th of the messages.
func (m *mapping) turn(r *Record, d *dialogue, i int, turn any) error {
	if _, ok := turn.(map[string]any); !ok {
		return bad(BadType, d.at(i), "want an object, got %s", jsonKind(turn))
	}
	role, err := m.role.of(turn)
	if err != nil {
		return inside(d.at(i), err)
	}
	name, ok := role.(string)
	if !ok {
		return bad(BadType, d.at(i)+"."+m.role.text, "want a string, got %s", jsonKind(role))
	}
	who, ok := speakerOf(name, m.roles)
	if !ok {
		return bad(BadRole, d.at(i)+"."+m.role.text, "%q is not a role that is known: mapping.roles may name it", clip(name))
	}
	content, err := m.content.of(turn)
	if err != nil {
		return inside(d.at(i), err)
	}
	text, err := textOf(r, d.at(i)+"."+m.content.text, content)
	if err != nil {
		return err
	}
	return d.add(r, i, m.content.text, who, text)
}

// inside puts the place of a turn before the field that an error names.
func inside(at string, err error) error {
	var b *BadRecordError
	if errors.As(err, &b) {
		b.Input.Field = at + "." + b.Input.Field
	}
	return err
}

// reference adds the further references of a field: a text, several, or none
// where it is null or blank.
func (m *mapping) reference(r *Record, p fieldPath, v any) error {
	field, err := p.of(v)
	if err != nil {
		return err
	}
	list, ok := field.([]any)
	if !ok {
		list = []any{field}
	}
	for _, one := range list {
		if one == nil {
			continue
		}
		text, err := spelled(p.text, one)
		if err != nil {
			return err
		}
		if !blank(text) {
			r.Alternatives = append(r.Alternatives, text)
		}
	}
	return nil
}
