package specstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Digest is the SHA-256 of some bytes, written "sha256:<64 hex digits>".
type Digest string

// DigestBytes returns the digest of b.
func DigestBytes(b []byte) Digest {
	s := sha256.Sum256(b)
	return Digest("sha256:" + hex.EncodeToString(s[:]))
}

// DigestJSON returns the digest of v's JSON encoding. encoding/json writes
// struct fields in order and map keys sorted, so equal values have equal
// digests.
func DigestJSON(v any) (Digest, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", fmt.Errorf("digest: %w", err)
	}
	return DigestBytes(b), nil
}

// Hex returns the 64 hex digits without the algorithm's name.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), "sha256:") }

// Short returns the first 12 hex digits, enough to name things for people.
func (d Digest) Short() string {
	h := d.Hex()
	if len(h) > 12 {
		h = h[:12]
	}
	return h
}

// Validate reports whether d is well formed.
func (d Digest) Validate() error {
	h, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok || len(h) != 64 {
		return fmt.Errorf("digest %q: want sha256: and 64 hex digits", string(d))
	}
	if _, err := hex.DecodeString(h); err != nil || strings.ToLower(h) != h {
		return fmt.Errorf("digest %q: want lower-case hex digits", string(d))
	}
	return nil
}

// Ref names one committed artefact: the key of its manifest in a store and the
// digest of the manifest's bytes.
type Ref struct {
	// Key is the manifest's key in the store, "manifests/<run>/<step>-<generation>.json".
	Key string `json:"key"`
	// Digest is the SHA-256 of the manifest's bytes.
	Digest Digest `json:"digest"`
}

// String renders the reference as "<key>@<digest>".
func (r Ref) String() string {
	if r.Key == "" {
		return ""
	}
	return r.Key + "@" + string(r.Digest)
}

// ParseRef parses what [Ref.String] renders.
func ParseRef(s string) (Ref, error) {
	key, digest, ok := strings.Cut(s, "@")
	if !ok || key == "" {
		return Ref{}, fmt.Errorf("reference %q: want KEY@sha256:HEX", s)
	}
	r := Ref{Key: key, Digest: Digest(digest)}
	if err := r.Digest.Validate(); err != nil {
		return Ref{}, fmt.Errorf("reference %q: %w", s, err)
	}
	return r, nil
}

// DecodeStrict decodes exactly one JSON value from r into v. Unknown fields,
// wrong types and trailing data are an [InputError] that names the file and
// the field.
func DecodeStrict(name string, r io.Reader, v any) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read %s: %w", name, err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		in := &InputError{File: name, Reason: "invalid JSON", Err: err}
		var wrongType *json.UnmarshalTypeError
		if errors.As(err, &wrongType) {
			in.Field, in.Reason, in.Err = wrongType.Field, fmt.Sprintf("want %s, got JSON %s", JSONKind(wrongType.Type), wrongType.Value), nil
		} else if f, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			in.Field, in.Reason, in.Err = strings.Trim(f, `"`), "unknown field", nil
			if path, known := unknownField(b, reflect.TypeOf(v), ""); path != "" {
				in.Field, in.Hint = path, "the fields there are "+strings.Join(known, ", ")
			}
		} else if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
			in.Reason, in.Err = "the JSON ends too early", nil
		}
		return in
	}
	if _, err := d.Token(); err != io.EOF {
		return &InputError{File: name, Reason: "data after the JSON value"}
	}
	return nil
}

// unknownField finds the first member of well-formed JSON that its type lacks:
// its path, such as "train.stepz", and the names it might have had.
func unknownField(b []byte, t reflect.Type, path string) (string, []string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return "", nil // decodes itself
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		var list []json.RawMessage
		if json.Unmarshal(b, &list) == nil {
			for i, e := range list {
				if at, known := unknownField(e, t.Elem(), fmt.Sprintf("%s[%d]", path, i)); at != "" {
					return at, known
				}
			}
		}
	case reflect.Struct:
		var members map[string]json.RawMessage
		if json.Unmarshal(b, &members) != nil {
			return "", nil
		}
		fields := map[string]reflect.Type{}
		var known []string
		for _, f := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.IsExported() && name != "" && name != "-" {
				fields[strings.ToLower(name)] = f.Type
				known = append(known, name)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(members)) {
			at := strings.TrimPrefix(path+"."+name, ".")
			ft, ok := fields[strings.ToLower(name)]
			if !ok {
				return at, known
			}
			if below, names := unknownField(members[name], ft, at); below != "" {
				return below, names
			}
		}
	}
	return "", nil
}

// JSONKind names, for messages, the JSON that a Go type is decoded from:
// "object", "array", or the name of a scalar type, such as "int64".
func JSONKind(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice, reflect.Array:
		return "array"
	}
	return t.String()
}
