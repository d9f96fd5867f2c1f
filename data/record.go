package data

import (
	"fmt"
	"slices"

	"github.com/specstream/specstream"
)

// Role says who speaks in a turn.
type Role string

// The roles of a normalised record.
const (
	System    Role = "system"
	User      Role = "user"
	Assistant Role = "assistant"
)

// Turn is one utterance.
type Turn struct {
	Role Role
	Text string
}

// Record is one normalised record: an optional system turn, then user and
// assistant turns that alternate, ending with an assistant turn. Records of the
// task formats (DialogSum, SQL, E2E) have one user turn, the task's usual
// prompt, and one assistant turn. Only a record of the format "specbench" may end
// with a user turn: a question for evaluation that has no reference.
type Record struct {
	// ID is the source's own id of the record, else "<file name>#<number>", or in a
	// part of an input "<12 digits of the part's digest>#<number>".
	ID string
	// Source is the path or URI the record was read from.
	Source string
	// Number is the 1-based number of the record in Source.
	Number int64
	// Turns are the normalised turns.
	Turns []Turn
	// Fields are the raw fields a template may want, under their source names:
	// "dialogue", "topic"; "question", "context"; "mr"; "instruction", "input".
	// Nil for conversations, questions for evaluation and mappings.
	Fields map[string]string
	// Alternatives are further references for the last turn (DialogSum's test
	// records have three summaries; the first is the reference).
	Alternatives []string
	// Category is the kind of a question for evaluation, such as "translation".
	Category string
	// Followups are the user turns that a question for evaluation goes on with,
	// once its first turn, the last of Turns but for the reference, is answered.
	Followups []string
	// FollowupReferences are the references of each of Followups, which may have
	// none. Nil, or as long as Followups.
	FollowupReferences [][]string
	// Changed lists what normalisation altered, by the Changed… codes.
	Changed []string
}

// Codes of alterations in Record.Changed.
const (
	// ChangedLeadingTurns: assistant turns before the first user turn were left out.
	ChangedLeadingTurns = "leading_assistant_turns_removed"
	// ChangedTrailingTurns: user turns behind the last assistant turn were left out.
	ChangedTrailingTurns = "trailing_user_turns_removed"
	// ChangedToolRoles: tool calls became assistant turns and their results user
	// turns.
	ChangedToolRoles = "tool_roles_mapped"
	// ChangedToolCalls: a structured tool call ("tool_calls", "function_call") was
	// written out as the JSON text {"name": …, "arguments": …}.
	ChangedToolCalls = "tool_calls_written_out"
	// ChangedParts: several text parts of one turn were joined by line breaks.
	ChangedParts = "content_parts_joined"
	// ChangedRepeated: turns of one speaker that follow each other were joined by
	// blank lines.
	ChangedRepeated = "repeated_turns_merged"
	// ChangedToolsIgnored: the record describes tools ("tools"), which no
	// template renders.
	ChangedToolsIgnored = "tool_descriptions_ignored"
	// ChangedEmptySystem: an empty system turn was left out.
	ChangedEmptySystem = "empty_system_turn_removed"
	// ChangedSurrogates: escaped halves of surrogate pairs became U+FFFD.
	ChangedSurrogates = "lone_surrogates_replaced"
)

// Codes of bad records (BadRecordError.Code) and skipped ones (SkipError.Reason).
const (
	BadType            = "wrong_type"
	BadMissing         = "missing_field"
	BadEmpty           = "empty_field"
	BadEmptyRecord     = "empty_conversation"
	BadEmptyCompletion = "empty_completion"
	BadRole            = "unknown_role"
	BadUTF8            = "invalid_utf8"
	BadColumns         = "wrong_number_of_columns"
	BadSyntax          = "malformed_field"
	// BadDuplicate: an object has a key twice that the format reads.
	BadDuplicate = "duplicate_key"
	// BadAmbiguous: two fields of the same meaning differ.
	BadAmbiguous = "ambiguous_fields"
	// BadDepth: objects and arrays are nested too deeply.
	BadDepth = "nested_too_deep"

	SkipTurnOrder    = "turns_do_not_alternate"
	SkipSystemInside = "system_turn_inside"
	SkipNoPair       = "no_user_assistant_pair"
	SkipTooLong      = "too_long"
)

// BadRecordError reports a well-formed element that is not a record of its
// format: a field is missing, empty or of the wrong type. The container is
// sound, so reading can go on; the caller quarantines the record or fails.
type BadRecordError struct {
	// Code is one of the Bad… codes.
	Code string
	// Input names file, record and field.
	Input *specstream.InputError
}

// Error renders the wrapped error.
func (e *BadRecordError) Error() string { return e.Input.Error() }

// Unwrap returns the InputError.
func (e *BadRecordError) Unwrap() error { return e.Input }

// SkipError reports a record that is sound but gives no sample, with the reason
// to count it by. Reading can go on.
type SkipError struct {
	// Reason is one of the Skip… codes.
	Reason string
	// Input names file, record and field.
	Input *specstream.InputError
}

// Error renders the wrapped error.
func (e *SkipError) Error() string { return e.Input.Error() }

// Unwrap returns the InputError.
func (e *SkipError) Unwrap() error { return e.Input }

// change notes an alteration, once.
func (r *Record) change(code string) {
	if !slices.Contains(r.Changed, code) {
		r.Changed = append(r.Changed, code)
	}
}

func bad(code, field, format string, args ...any) error {
	return &BadRecordError{Code: code, Input: &specstream.InputError{Field: field, Reason: fmt.Sprintf(format, args...)}}
}

func skip(reason, field, format string, args ...any) error {
	return &SkipError{Reason: reason, Input: &specstream.InputError{Field: field, Reason: fmt.Sprintf(format, args...)}}
}

// located fills in file and record number of an error from decoding.
func located(err error, source string, number int64) error {
	switch e := err.(type) {
	case *BadRecordError:
		e.Input.File, e.Input.Record = source, number
	case *SkipError:
		e.Input.File, e.Input.Record = source, number
	case *specstream.InputError:
		e.File, e.Record = source, number
	}
	return err
}
