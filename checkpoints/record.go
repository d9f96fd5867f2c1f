package checkpoints

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/specstream/specstream"
)

// Records are the small JSON objects of the protocol: manifests, leases,
// promotions. Each ends in a field "sum", the SHA-256 of the record's own bytes
// with the sum's digits as zeros. A record found by listing has no digest that
// somebody remembers, and damage to one bit of a number is still valid JSON.
const (
	maxRecord  = 16 << 20 // bytes
	recordTail = "\"\n}\n"
)

var zeroSum = specstream.Digest("sha256:" + strings.Repeat("0", 2*sha256.Size))

// How often a damaged record or file is read before the damage is taken to be at
// rest and not in transit. Reading a record again costs next to nothing.
const (
	damagedRecords = 6
	damagedFiles   = 3
)

// seal encodes a record whose last field, "sum", is zeroSum, and fills that in.
func seal(v any) ([]byte, error) {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	b = append(b, '\n')
	if len(b) > maxRecord {
		return nil, fmt.Errorf("encode: a record of %d bytes, want at most %d", len(b), maxRecord)
	}
	at := len(b) - len(recordTail) - len(zeroSum)
	if at < 0 || string(b[at:]) != string(zeroSum)+recordTail {
		return nil, fmt.Errorf("encode: a record of type %T does not end in its sum", v)
	}
	copy(b[at:], specstream.DigestBytes(b))
	return b, nil
}

// checkSum returns [ErrCorrupt] unless b is as seal made it.
func checkSum(name string, b []byte) error {
	at := len(b) - len(recordTail) - len(zeroSum)
	if at < 0 || string(b[at+len(zeroSum):]) != recordTail {
		return fmt.Errorf("%w: %s does not end as a record does", ErrCorrupt, name)
	}
	held := specstream.Digest(b[at : at+len(zeroSum)])
	blank := append(append(bytes.Clone(b[:at]), zeroSum...), recordTail...)
	if want := specstream.DigestBytes(blank); held != want {
		return fmt.Errorf("%w: %s has the sum %.80q, its bytes have %s", ErrCorrupt, name, held, want)
	}
	return nil
}

// unseal verifies and strictly decodes a record. Damage is [ErrCorrupt]. A
// record that is whole but not what this program reads is an
// [specstream.InputError]: a newer program's, by its version.
func unseal(name string, b []byte, version int, v any) error {
	if err := checkSum(name, b); err != nil {
		return err
	}
	var head struct {
		Version int `json:"version"`
	}
	if err := json.Unmarshal(b, &head); err == nil && head.Version > version {
		return &specstream.InputError{File: name, Field: "version",
			Reason: fmt.Sprintf("written as version %d, this program reads %d", head.Version, version), Hint: "use a newer specstream"}
	}
	err := specstream.DecodeStrict(name, bytes.NewReader(b), v)
	var in *specstream.InputError
	if errors.As(err, &in) {
		c := *in
		c.Hint = "" // it speaks of a job's fields
		return &c
	}
	return err
}

// record reads a record and verifies its sum.
func (r *Repo) record(ctx context.Context, key string) ([]byte, error) {
	for read := 1; ; read++ {
		var b []byte
		err := again(ctx, func() (err error) {
			b, err = readObject(ctx, r.Store, key, maxRecord)
			return err
		})
		if err != nil {
			return nil, err
		}
		err = checkSum(key, b)
		if err == nil {
			return b, nil
		}
		if read == damagedRecords {
			return nil, err
		}
	}
}

// create writes a record under key unless something is there, and returns what
// is there afterwards; mine says that it is body. An unclear answer is resolved
// by reading the key back: records are never replaced, so what it holds is
// final. Bodies carry a nonce where it matters whose write it was.
func (r *Repo) create(ctx context.Context, key string, body []byte) (held []byte, mine bool, err error) {
	for try := 1; ; try++ {
		err := r.Store.PutIfAbsent(ctx, key, body)
		switch {
		case err == nil:
			return body, true, nil
		case errors.Is(err, ErrExists), errors.Is(err, ErrUnavailable):
			held, e := r.record(ctx, key)
			if e == nil {
				return held, bytes.Equal(held, body), nil
			}
			if !errors.Is(e, ErrNotFound) {
				return nil, false, e
			}
			// Not there: our write did not land. Should it land yet, it meets its
			// own repetition and one of the two is refused.
		default:
			return nil, false, err
		}
		if try == tries {
			return nil, false, err
		}
		if e := pause(ctx, try); e != nil {
			return nil, false, e
		}
	}
}
