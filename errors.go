package specstream

import (
	"errors"
	"fmt"
	"strings"
)

// InputError reports input the user must mend: a file, a record, a field of a
// specification. It is never worth retrying.
type InputError struct {
	File   string // path or URI; empty when the input has no name
	Record int64  // 1-based record number inside File; 0 when it concerns the whole file
	Field  string // field or tensor name; empty when it concerns the whole record
	Reason string // what is wrong
	Hint   string // what to do about it; may be empty
	Err    error  // underlying cause; may be nil
}

// Error renders "file: record N: field "x": reason (hint)" on one line.
func (e *InputError) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File)
		b.WriteString(": ")
	}
	if e.Record > 0 {
		fmt.Fprintf(&b, "record %d: ", e.Record)
	}
	if e.Field != "" {
		fmt.Fprintf(&b, "field %q: ", e.Field)
	}
	b.WriteString(e.Reason)
	if e.Err != nil {
		if e.Reason != "" {
			b.WriteString(": ")
		}
		b.WriteString(e.Err.Error())
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, " (%s)", e.Hint)
	}
	return strings.ReplaceAll(b.String(), "\n", " ")
}

// Unwrap returns the underlying cause.
func (e *InputError) Unwrap() error { return e.Err }

// BadInput reports whether err is, or wraps, an [InputError]: the caller must
// not retry.
func BadInput(err error) bool {
	var in *InputError
	return errors.As(err, &in)
}

// Invalid returns an [InputError] about one field of a specification.
func Invalid(field, format string, args ...any) error {
	return &InputError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// ErrDrained means that a worker stopped because it was told to, with its
// progress committed. The work is to be retried elsewhere.
var ErrDrained = errors.New("worker drained: progress is committed, retry elsewhere")
