package checkpoints

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"time"
	"unicode/utf8"
)

// Store is the small contract between the commit protocol and an object store.
// Implementations: checkpoints/s3, checkpoints/file, checkpoints/mem; the suite
// in checkpoints/storetest holds them to it.
//
// Keys satisfy [ValidateKey]; every method refuses others with [ErrKey]. A key
// must not be the directory of another ("a" and "a/b"): stores built on file
// systems cannot hold both and refuse the second.
//
// Visibility: when a write returns nil, every later read and list of every
// client sees it. A reader sees an object whole, old or new, never a mixture.
//
// Errors: [ErrNotFound], [ErrExists] and [ErrRange] mean what they say. An error
// that wraps [ErrUnavailable] is transient and leaves the outcome of a write
// open: it may have landed, or may yet. All other errors are permanent: the
// write did not happen. A cancelled context returns its error promptly and
// leaves the outcome of a write open too.
//
// All methods are safe for concurrent use.
type Store interface {
	// Put writes size bytes of body, read from its start, under key and replaces
	// what was there: whole or not at all, durable when it returns. It may read
	// body several times, but not after it returned. A Put that failed may land
	// later, so writers give it only keys whose content never changes.
	Put(ctx context.Context, key string, body io.ReadSeeker, size int64) error

	// PutIfAbsent writes body under key, or returns ErrExists and writes nothing
	// if the key exists. Of racing writers exactly one gets nil, if their bodies
	// differ: after an unclear answer of its own, a driver takes equal bytes under
	// the key for its own write. Callers make bodies unique with a nonce.
	PutIfAbsent(ctx context.Context, key string, body []byte) error

	// Get opens the object. The body may break off with an error that wraps
	// ErrUnavailable; what was read until then is valid, and the caller resumes
	// with GetRange.
	Get(ctx context.Context, key string) (io.ReadCloser, Info, error)

	// GetRange opens at most n bytes from off, fewer if the object ends before.
	// ErrRange if off is at or past the end, if off < 0, or if n < 1.
	GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error)

	// Stat returns the object's size and time.
	Stat(ctx context.Context, key string) (Info, error)

	// List yields the objects whose keys begin with prefix and are greater than
	// startAfter, in ascending order of the keys' bytes. An error is yielded last,
	// with a zero Info. Objects whose keys are not valid are left out.
	List(ctx context.Context, prefix, startAfter string) iter.Seq2[Info, error]

	// Delete removes the object; removing an absent one is no error.
	Delete(ctx context.Context, key string) error
}

// Info describes one object.
type Info struct {
	Key     string
	Size    int64     // bytes
	ModTime time.Time // the store's clock
}

// Errors of stores.
var (
	// ErrNotFound means that no object has the key.
	ErrNotFound = errors.New("no such object")
	// ErrExists means that an object has the key already.
	ErrExists = errors.New("object exists")
	// ErrRange means that a range does not begin inside the object.
	ErrRange = errors.New("range is outside the object")
	// ErrKey means that the key is malformed.
	ErrKey = errors.New("malformed key")
	// ErrUnavailable means that the store did not answer, or asked to come back
	// later. Retrying is sensible; a write may or may not have happened.
	ErrUnavailable = errors.New("store unavailable")
)

// Limits of keys. They are what the narrowest store accepts: S3 allows 1,024
// bytes, file systems 255 a segment, and servers on file systems append to names.
const (
	MaxKey     = 900 // bytes
	MaxSegment = 200 // bytes between two slashes
)

// ValidateKey reports whether key is one to [MaxKey] bytes of UTF-8 without
// control characters and backslashes, made of segments that are not empty, have
// at most [MaxSegment] bytes and do not begin with a dot (which would name a
// directory's parent, or a store's own files).
func ValidateKey(key string) error {
	bad := func(why string) error { return fmt.Errorf("%w %.120q: %s", ErrKey, key, why) }
	if key == "" || len(key) > MaxKey {
		return bad(fmt.Sprintf("want 1 to %d bytes, got %d", MaxKey, len(key)))
	}
	if !utf8.ValidString(key) {
		return bad("not UTF-8")
	}
	for _, r := range key {
		if r < 0x20 || r == 0x7f || r == '\\' {
			return bad(fmt.Sprintf("character %q", r))
		}
	}
	for seg := range strings.SplitSeq(key, "/") {
		switch {
		case seg == "":
			return bad("empty segment")
		case seg[0] == '.':
			return bad("a segment begins with a dot")
		case len(seg) > MaxSegment:
			return bad(fmt.Sprintf("a segment has more than %d bytes", MaxSegment))
		}
	}
	return nil
}

// ValidateRange checks the arguments of [Store.GetRange] that do not depend on
// the object.
func ValidateRange(off, n int64) error {
	if off < 0 || n < 1 {
		return fmt.Errorf("%w: offset %d, length %d", ErrRange, off, n)
	}
	return nil
}
