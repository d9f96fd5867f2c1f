package data

import (
	"fmt"

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
// prompt, and one assistant turn.
type Record struct {
	// ID is the source's own id of the record, else "<file name>#<number>".
	ID string
	// Source is the path or URI the record was read from.
	Source string
	// Number is the 1-based number of the record in Source.
	Number int64
	// Turns are the normalised turns.
	Turns []Turn
	// Fields are the raw fields a template may want, under their source names:
	// "dialogue", "topic"; "question", "context"; "mr". Nil for conversations.
	Fields map[string]string
	// Alternatives are further references for the last turn (DialogSum's test
	// records have three summaries; the first is the reference).
	Alternatives []string
	// Changed lists what normalisation altered, by the Changed… codes.
	Changed []string
}

// Codes of alterations in Record.Changed.
const (
	// ChangedLeadingTurns: assistant turns before the first user turn were left out.
	ChangedLeadingTurns = "leading_assistant_turns_removed"
	// ChangedTrailingTurns: user turns behind the last assistant turn were left out.
	ChangedTrailingTurns = "trailing_user_turns_removed"
	// ChangedToolRoles: function calls became assistant turns and their results
	// user turns.
	ChangedToolRoles = "tool_roles_mapped"
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
