package workflows

import (
	"bytes"
	"errors"
	"fmt"

	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"

	"github.com/specstream/specstream"
)

// decode reads an input strictly. Workflows and update handlers take their
// input as it came: the SDK's own decoding ignores unknown fields, and a
// workflow whose input it cannot decode hangs instead of failing.
func decode(raw converter.RawValue, v any) error {
	p := raw.Payload()
	if p == nil || len(bytes.TrimSpace(p.GetData())) == 0 {
		return badInput(&specstream.InputError{File: "input", Reason: "there is none", Hint: "pass one JSON object, with --input or --input-file"})
	}
	if enc := string(p.GetMetadata()[converter.MetadataEncoding]); enc != converter.MetadataEncodingJSON {
		return badInput(&specstream.InputError{File: "input", Reason: fmt.Sprintf("encoding %q is not %q", enc, converter.MetadataEncodingJSON)})
	}
	if err := specstream.DecodeStrict("input", bytes.NewReader(p.GetData()), v); err != nil {
		return badInput(err)
	}
	return nil
}

// needRefs reports the first reference, by field name, that does not name an artefact.
func needRefs(fields []string, refs ...specstream.Ref) error {
	for i, r := range refs {
		if _, err := specstream.ParseRef(r.String()); err != nil {
			return badInput(specstream.Invalid(fields[i], "%v", err))
		}
	}
	return nil
}

// badInput returns err as a failure that is never retried.
func badInput(err error) error {
	return temporal.NewNonRetryableApplicationError(err.Error(), BadInput, nil)
}

// explain names the step that failed. A failure the user must mend stays one,
// with its message in front instead of at the end of a chain of causes.
func explain(step string, err error) error {
	if err == nil || temporal.IsCanceledError(err) {
		return err
	}
	var app *temporal.ApplicationError
	if errors.As(err, &app) && (app.Type() == BadInput || app.Type() == Crashed) {
		return temporal.NewNonRetryableApplicationError(step+": "+app.Message(), app.Type(), nil)
	}
	// Not fmt.Errorf: Temporal would repeat the whole chain at every level.
	return temporal.NewApplicationErrorWithCause(step, StepFailed, err)
}
