package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/open"
	"github.com/specstream/specstream/data"
	"github.com/specstream/specstream/data/remote"
)

// inputs opens and lists the inputs of an ingestion: objects of s3:// stores, and
// what package remote opens and lists.
type inputs struct {
	store     func(ctx context.Context, uri string) (checkpoints.Store, error)
	other     data.Opener
	listOther data.Lister
}

func newInputs() inputs {
	return inputs{store: open.Store, other: remote.Opener(nil, remote.Options{}), listOther: remote.Lister(nil, remote.Options{})}
}

// open implements [data.Opener].
func (in inputs) open(ctx context.Context, uri string) (io.ReadCloser, error) {
	if !strings.HasPrefix(uri, "s3://") {
		return in.other(ctx, uri)
	}
	s, key, err := in.bucket(ctx, uri)
	if err != nil {
		return nil, err
	}
	info, err := s.Stat(ctx, key)
	if errors.Is(err, checkpoints.ErrNotFound) {
		return nil, &specstream.InputError{File: uri, Reason: "no such object"}
	}
	if err != nil {
		return nil, err
	}
	return &object{ctx: ctx, store: s, key: key, size: info.Size}, nil
}

// bucket opens the bucket of an s3:// URI, and returns the rest as the key.
func (in inputs) bucket(ctx context.Context, uri string) (checkpoints.Store, string, error) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(uri, "s3://"), "/")
	if bucket == "" || key == "" {
		return nil, "", &specstream.InputError{File: uri, Reason: "names no object", Hint: "want s3://BUCKET/KEY"}
	}
	s, err := in.store(ctx, "s3://"+bucket)
	return s, key, err
}

// list implements [data.Lister]. A wildcard stands for anything but a slash.
func (in inputs) list(ctx context.Context, pattern string) ([]string, error) {
	if !strings.HasPrefix(pattern, "s3://") {
		return in.listOther(ctx, pattern)
	}
	s, key, err := in.bucket(ctx, pattern)
	if err != nil {
		return nil, err
	}
	if _, err := path.Match(key, ""); err != nil {
		return nil, &specstream.InputError{File: pattern, Reason: "bad pattern", Err: err}
	}
	prefix := key
	if i := strings.IndexAny(key, `*?[\`); i >= 0 {
		prefix = key[:i]
	}
	root := strings.TrimSuffix(pattern, key)
	var found []string
	for info, err := range s.List(ctx, prefix, "") {
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", pattern, err)
		}
		if ok, _ := path.Match(key, info.Key); ok { // the pattern is good, as seen above
			found = append(found, root+info.Key)
		}
	}
	return found, nil
}

// Retries of a read that broke off.
const (
	readTries = 5
	readDelay = 50 * time.Millisecond
)

// object reads a stored object from any place. It opens a request on the first
// read behind a Seek, and another when one breaks off. It is for one goroutine,
// except for ReadAt.
type object struct {
	ctx   context.Context
	store checkpoints.Store
	key   string
	size  int64
	off   int64
	body  io.ReadCloser
}

var (
	_ io.ReadSeekCloser = (*object)(nil)
	_ io.ReaderAt       = (*object)(nil)
)

// Size is the object's length in bytes.
func (o *object) Size() int64 { return o.size }

// Read implements [io.Reader].
func (o *object) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for try := 1; ; try++ {
		if o.off >= o.size {
			return 0, io.EOF
		}
		n, err := o.read(p)
		o.off += int64(n)
		if err == io.EOF && o.off < o.size {
			err = fmt.Errorf("%w: %s broke off at byte %d of %d", checkpoints.ErrUnavailable, o.key, o.off, o.size)
		}
		if err != nil {
			o.drop()
		}
		if n > 0 {
			return n, nil // what is wrong, if anything, is found by the next read
		}
		if err == nil || !errors.Is(err, checkpoints.ErrUnavailable) || try == readTries {
			return 0, err
		}
		select {
		case <-o.ctx.Done():
			return 0, context.Cause(o.ctx)
		case <-time.After(readDelay << try):
		}
	}
}

func (o *object) read(p []byte) (int, error) {
	if o.body == nil {
		body, err := o.store.GetRange(o.ctx, o.key, o.off, o.size-o.off)
		if err != nil {
			return 0, err
		}
		o.body = body
	}
	return o.body.Read(p)
}

// ReadAt implements [io.ReaderAt] with one request a call.
func (o *object) ReadAt(p []byte, off int64) (int, error) {
	r := &object{ctx: o.ctx, store: o.store, key: o.key, size: min(o.size, off+int64(len(p))), off: off}
	n, err := io.ReadFull(r, p)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, errors.Join(err, r.Close())
}

// Seek implements [io.Seeker].
func (o *object) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += o.off
	case io.SeekEnd:
		off += o.size
	}
	if off < 0 {
		return 0, fmt.Errorf("seek %s: negative offset %d", o.key, off)
	}
	if off != o.off {
		o.drop()
		o.off = off
	}
	return off, nil
}

// drop ends the open request.
func (o *object) drop() {
	if o.body != nil {
		_ = o.body.Close() // no more of it is wanted
		o.body = nil
	}
}

// Close implements [io.Closer].
func (o *object) Close() error {
	o.drop()
	return nil
}
