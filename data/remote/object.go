package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/specstream/specstream"
)

// object is an open input. It is for one goroutine, except for ReadAt.
type object struct {
	client *client
	ctx    context.Context
	uri    string // as it is named, for messages
	url    string
	token  string

	off  int64 // where the next Read reads
	body *body // open at off; nil: none

	// What the first answer told.
	known    bool
	size     int64 // -1: not told
	ranges   bool  // the server answers range requests
	etag     string
	modified string
	linked   string // the hub's own entity tag of the content
	link     string // Link, of listings
}

var (
	_ io.ReadSeekCloser = (*object)(nil)
	_ io.ReaderAt       = (*object)(nil)
)

// body is the content of one answer.
type body struct {
	io.ReadCloser
	timer  *time.Timer
	stall  time.Duration
	cancel context.CancelCauseFunc
	ctx    context.Context
}

// Read implements [io.Reader]. Waiting for longer than the stall time ends it.
func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.ReadCloser.Read(p)
	b.timer.Stop()
	if err != nil && err != io.EOF {
		if cause := context.Cause(b.ctx); errors.Is(cause, errStalled) {
			err = cause
		}
	}
	return n, err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.timer.Stop()
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// get asks for bytes [off, end); end -1 is the end of the object.
func (o *object) get(off, end int64) (*http.Response, *body, error) {
	ctx, cancel := context.WithCancelCause(o.ctx)
	stall := o.client.o.Stall
	b := &body{stall: stall, cancel: cancel, ctx: ctx, timer: time.AfterFunc(stall, func() { cancel(fmt.Errorf("%w for %v", errStalled, stall)) })}
	fail := func(err error) (*http.Response, *body, error) {
		b.timer.Stop()
		cancel(nil)
		return nil, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, o.url, nil)
	if err != nil {
		return fail(&specstream.InputError{File: o.uri, Reason: "is not an address"})
	}
	// What is stored is wanted, not what the transport would make of it.
	req.Header.Set("Accept-Encoding", "identity")
	req.Header.Set("User-Agent", "specstream")
	if o.token != "" {
		req.Header.Set("Authorization", "Bearer "+o.token)
	}
	rng := fmt.Sprintf("bytes=%d-", off)
	if end >= 0 {
		rng += strconv.FormatInt(end-1, 10)
	}
	req.Header.Set("Range", rng)
	switch {
	case o.etag != "" && !strings.HasPrefix(o.etag, "W/"):
		req.Header.Set("If-Range", o.etag)
	case o.modified != "":
		req.Header.Set("If-Range", o.modified)
	}
	resp, err := o.client.http.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fail(o.failedRequest(err))
	}
	b.timer.Stop()
	b.ReadCloser = resp.Body
	if err := o.judge(resp); err != nil {
		_ = b.Close() // the answer is not wanted
		return nil, nil, err
	}
	return resp, b, nil
}

// connect opens the body at o.off, trying as often as is allowed.
func (o *object) connect() error {
	for try := 1; ; try++ {
		err := o.connectOnce()
		if err == nil {
			return nil
		}
		if err := o.client.wait(o.ctx, o.uri, try, err); err != nil {
			return err
		}
	}
}

func (o *object) connectOnce() error {
	resp, b, err := o.get(o.off, -1)
	if err != nil {
		return err
	}
	from, err := o.check(resp, o.off)
	if err == nil && from < o.off { // a server without ranges
		if _, err = io.CopyN(io.Discard, b, o.off-from); err != nil {
			err = &temporary{err: fmt.Errorf("broke off before byte %d: %w", o.off, err)}
		}
	}
	if err != nil {
		_ = b.Close() // the answer is not wanted
		return err
	}
	o.body = b
	return nil
}

// check compares an answer to a request from byte off on with the object that
// was opened, and returns where its content begins.
func (o *object) check(resp *http.Response, off int64) (from int64, err error) {
	h := resp.Header
	if e := h.Get("Content-Encoding"); e != "" && e != "identity" && e != "gzip" && e != "x-gzip" && e != "zstd" {
		return 0, &specstream.InputError{File: o.uri, Reason: fmt.Sprintf("is served with the content encoding %q, which is not supported", e)}
	}
	size, ranged := resp.ContentLength, false
	switch resp.StatusCode {
	case http.StatusPartialContent:
		ranged = true
		if from, size, err = parseContentRange(h.Get("Content-Range")); err != nil || from != off {
			return 0, fmt.Errorf("get %s: asked for bytes from %d on, the server answers with %q", o.uri, off, h.Get("Content-Range"))
		}
	case http.StatusRequestedRangeNotSatisfiable: // off is at the end, or behind it
		ranged, from = true, off
		total, ok := strings.CutPrefix(h.Get("Content-Range"), "bytes */")
		if size, err = strconv.ParseInt(total, 10, 64); !ok || err != nil {
			return 0, fmt.Errorf("get %s: the server refuses bytes from %d on: %s", o.uri, off, resp.Status)
		}
		if off < size {
			return 0, fmt.Errorf("get %s: the server has %d bytes and refuses those from %d on", o.uri, size, off)
		}
	}
	linked := linkedTag(resp)
	if !o.known {
		o.known, o.size, o.ranges = true, size, ranged
		o.etag, o.modified, o.linked, o.link = h.Get("ETag"), h.Get("Last-Modified"), linked, h.Get("Link")
		return from, nil
	}
	for _, v := range []struct{ what, was, is string }{
		{"its entity tag", o.linked, linked},
		{"its entity tag", strings.TrimPrefix(o.etag, "W/"), strings.TrimPrefix(h.Get("ETag"), "W/")},
		{"its date", o.modified, h.Get("Last-Modified")},
	} {
		if v.was == "" || v.is == "" {
			continue
		}
		if v.was != v.is {
			return 0, o.changed(fmt.Sprintf("%s was %s and is %s", v.what, v.was, v.is))
		}
		break // the surest that both have decides
	}
	if o.size >= 0 && size >= 0 && size != o.size {
		return 0, o.changed(fmt.Sprintf("it had %d bytes and has %d", o.size, size))
	}
	return from, nil
}

func (o *object) changed(how string) error {
	return &specstream.InputError{File: o.uri, Reason: "the input changed while it was read: " + how, Hint: "start again, and name a fixed version of it"}
}

// linkedTag is the entity tag of the content that the hub sends along with its
// redirection to where the content is.
func linkedTag(resp *http.Response) string {
	for r := resp; r != nil; r = r.Request.Response {
		if tag := r.Header.Get("X-Linked-Etag"); tag != "" {
			return tag
		}
	}
	return ""
}

// parseContentRange parses "bytes 3-9/10"; the size is -1 for "*".
func parseContentRange(s string) (from, size int64, err error) {
	span, total, ok := strings.Cut(strings.TrimPrefix(s, "bytes "), "/")
	first, _, ok2 := strings.Cut(span, "-")
	if !ok || !ok2 {
		return 0, 0, errors.New("malformed Content-Range")
	}
	if from, err = strconv.ParseInt(first, 10, 64); err != nil {
		return 0, 0, err
	}
	if total == "*" {
		return from, -1, nil
	}
	size, err = strconv.ParseInt(total, 10, 64)
	return from, size, err
}

// Read implements [io.Reader]. What breaks off is taken up again.
func (o *object) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for try := 1; ; try++ {
		if err := context.Cause(o.ctx); err != nil {
			return 0, err
		}
		if o.size >= 0 && o.off >= o.size {
			return 0, io.EOF
		}
		if o.body == nil {
			if err := o.connect(); err != nil {
				return 0, err
			}
		}
		if o.size >= 0 {
			p = p[:min(int64(len(p)), o.size-o.off)]
		}
		n, err := o.body.Read(p)
		o.off += int64(n)
		if err == io.EOF && o.size < 0 {
			o.size = o.off // the end of what has no stated length
		}
		switch {
		case err == nil && n == 0:
			continue
		case err == nil, err == io.EOF && o.off == o.size && n > 0:
			return n, nil
		case err == io.EOF && o.off == o.size:
			return 0, io.EOF
		}
		o.drop()
		if n > 0 {
			return n, nil // the next Read takes it up again
		}
		err = &temporary{err: fmt.Errorf("broke off at byte %d of %d: %w", o.off, o.size, err)}
		if err := o.client.wait(o.ctx, o.uri, try, err); err != nil {
			return 0, err
		}
	}
}

// ReadAt implements [io.ReaderAt] by one range request a call.
func (o *object) ReadAt(p []byte, off int64) (n int, err error) {
	if !o.ranges {
		return 0, &specstream.InputError{File: o.uri, Reason: "its server answers no range requests, and Parquet is read from its end", Hint: "fetch the file and name the copy"}
	}
	short := error(nil)
	if end := o.size; end >= 0 && off+int64(len(p)) > end {
		if off >= end {
			return 0, io.EOF
		}
		p, short = p[:end-off], io.EOF
	}
	for try := 1; n < len(p); {
		got, err := o.readRange(p[n:], off+int64(n))
		n += got
		if err == nil {
			continue
		}
		if got > 0 {
			try = 1
		}
		if err := o.client.wait(o.ctx, o.uri, try, err); err != nil {
			return n, err
		}
		try++
	}
	return n, short
}

func (o *object) readRange(p []byte, off int64) (int, error) {
	resp, b, err := o.get(off, off+int64(len(p)))
	if err != nil {
		return 0, err
	}
	defer b.Close()
	same := *o // check only compares: what is known doesn't change any more
	from, err := same.check(resp, off)
	if err != nil {
		return 0, err
	}
	if from != off {
		return 0, fmt.Errorf("get %s: the server stopped answering range requests", o.uri)
	}
	n, err := io.ReadFull(b, p)
	if err != nil {
		err = &temporary{err: fmt.Errorf("broke off at byte %d: %w", off+int64(n), err)}
	}
	return n, err
}

// Seek implements [io.Seeker]. It asks nothing of the server.
func (o *object) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += o.off
	case io.SeekEnd:
		if o.size < 0 {
			return 0, fmt.Errorf("seek in %s: the server doesn't tell its length", o.uri)
		}
		off += o.size
	}
	if off < 0 {
		return 0, fmt.Errorf("seek in %s: negative offset %d", o.uri, off)
	}
	if off != o.off {
		o.drop()
		o.off = off
	}
	return off, nil
}

// drop ends the open answer.
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
