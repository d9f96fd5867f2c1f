package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/specstream/specstream"
)

// Opener opens an input by its path or URI. The stream ends when ctx does. An
// input that isn't there is an error that wraps fs.ErrNotExist. A stream that is
// also an [io.Seeker] is read by parts without what lies before them, and
// Parquet needs one; an [io.ReaderAt] beside it is used where there is one.
type Opener func(ctx context.Context, uri string) (io.ReadCloser, error)

// Lister lists the inputs that match a remote pattern such as
// s3://bucket/chats/*.jsonl; [Expand] sorts them.
type Lister func(ctx context.Context, pattern string) ([]string, error)

// OpenFile opens files of the local disk.
func OpenFile(ctx context.Context, uri string) (io.ReadCloser, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if i := strings.Index(uri, "://"); i > 0 {
		return nil, noStore(uri)
	}
	f, err := os.Open(uri)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && st.IsDir() {
		err = &specstream.InputError{File: uri, Reason: "is a folder", Hint: "name its files, or use a pattern such as " + filepath.Join(uri, "*.jsonl")}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func noStore(uri string) error {
	scheme, _, _ := strings.Cut(uri, "://")
	return &specstream.InputError{File: uri, Reason: fmt.Sprintf("no store for %s:// inputs is configured", scheme)}
}

// Input describes one input as it was scanned, for a dataset's lineage.
type Input struct {
	// URI is the path or URI as it was named.
	URI string `json:"uri"`
	// Bytes is the number of stored (compressed) bytes.
	Bytes int64 `json:"bytes"`
	// SHA256 is the digest of those bytes.
	SHA256 specstream.Digest `json:"sha256"`
	// Records is the number of records within the limit, numbered 1 to Records.
	Records int64 `json:"records"`
	// Container is one of the Container… constants; empty for a JSON array or
	// a JSON Lines file of no record at all.
	Container string `json:"container,omitempty"`
	// Compression is "gzip", "zstd", or empty.
	Compression string `json:"compression,omitempty"`
}

// Expand resolves wildcards (* ? [): those of local paths by the file system,
// those of s3://, hf:// and other URIs by list. http:// and https:// addresses
// are never patterns. Each pattern's inputs come sorted by name, patterns in the
// order given; a local path that exists is taken as it is. An input that is named
// twice, or a pattern that matches nothing, is an InputError.
func Expand(ctx context.Context, inputs []string, list Lister) ([]string, error) {
	var out []string
	seen := map[string]bool{}
	for _, in := range inputs {
		found, err := expand(ctx, in, list)
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			if seen[f] {
				return nil, &specstream.InputError{File: f, Reason: "is named twice among the inputs", Hint: "its records would be counted twice; name it once"}
			}
			seen[f] = true
			out = append(out, f)
		}
	}
	return out, nil
}

func expand(ctx context.Context, in string, list Lister) (found []string, err error) {
	scheme, _, remote := strings.Cut(in, "://")
	switch {
	case !strings.ContainsAny(in, "*?["), remote && (scheme == "http" || scheme == "https"):
		return []string{in}, nil
	case remote && list == nil:
		return nil, noStore(in)
	case remote:
		if found, err = list(ctx, in); err != nil {
			return nil, err
		}
		found = slices.Sorted(slices.Values(found))
	default:
		if _, err := os.Lstat(in); !errors.Is(err, fs.ErrNotExist) {
			return []string{in}, nil
		}
		if found, err = filepath.Glob(in); err != nil {
			return nil, &specstream.InputError{File: in, Reason: "bad pattern", Err: err}
		}
	}
	if len(found) == 0 {
		return nil, &specstream.InputError{File: in, Reason: "the pattern matches no file"}
	}
	return found, nil
}
