package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// HTTPFault is what goes wrong with one HTTP request.
type HTTPFault int

// Faults of a request. Those that do not fit it do nothing.
const (
	NoFault        HTTPFault = iota
	Unsent                   // the connection fails before the request is sent
	ReplyLost                // the server has done it, the reply does not arrive
	Busy                     // 503 SlowDown, nothing done
	ConflictRetry            // 409 ConditionalRequestConflict, nothing done
	UploadFlipped            // one bit of the body is wrong on its way up
	UploadCut                // the connection fails half way through the body
	ReplyFlipped             // one bit of an object is wrong on its way down
	ReplyCut                 // the connection fails half way through an object
	ReplyTruncated           // an object ends half way, as if that were all
)

var errInjected = errors.New("injected: connection reset by peer")

// Transport is an [http.RoundTripper] on which requests fail as planned.
type Transport struct {
	Base http.RoundTripper
	// Plan says what goes wrong with the n-th request, from 0. It may be called concurrently.
	Plan func(n int64, req *http.Request) HTTPFault

	n        atomic.Int64
	Injected atomic.Int64 // faults so far
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	fault := t.Plan(t.n.Add(1)-1, req)
	if fault == NoFault {
		return t.Base.RoundTrip(req)
	}
	t.Injected.Add(1)
	switch fault {
	case Unsent, Busy, ConflictRetry:
		if req.Body != nil {
			req.Body.Close()
		}
		switch fault {
		case Busy:
			return answer(req, http.StatusServiceUnavailable, "SlowDown"), nil
		case ConflictRetry:
			return answer(req, http.StatusConflict, "ConditionalRequestConflict"), nil
		}
		return nil, errInjected
	case UploadFlipped, UploadCut:
		if req.Body != nil && req.ContentLength > 0 {
			req = req.Clone(req.Context())
			req.Body = &spoiltUpload{ReadCloser: req.Body, at: req.ContentLength / 2, cut: fault == UploadCut}
		}
	}
	resp, err := t.Base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	object := req.Method == http.MethodGet && !strings.Contains(req.URL.RawQuery, "list-type") && resp.StatusCode < 300 && resp.ContentLength > 0
	switch {
	case fault == ReplyLost:
		_, err := io.Copy(io.Discard, resp.Body)
		return nil, errors.Join(errInjected, err, resp.Body.Close())
	case object && fault == ReplyFlipped:
		resp.Body = &spoilt{ReadCloser: resp.Body, at: resp.ContentLength / 2}
	case object && fault == ReplyCut:
		resp.Body = &spoilt{ReadCloser: resp.Body, at: resp.ContentLength / 2, cut: true, key: req.URL.Path}
	case object && fault == ReplyTruncated:
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, resp.ContentLength/2), resp.Body}
	}
	return resp, nil
}

func answer(req *http.Request, status int, code string) *http.Response {
	body := fmt.Sprintf("<?xml version=\"1.0\"?><Error><Code>%s</Code><Message>injected</Message></Error>", code)
	return &http.Response{
		StatusCode: status, Status: http.StatusText(status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/xml"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(bytes.NewReader([]byte(body))), Request: req,
	}
}

// spoiltUpload damages a request's body.
type spoiltUpload struct {
	io.ReadCloser
	at  int64
	cut bool
}

func (s *spoiltUpload) Read(p []byte) (int, error) {
	if s.cut && s.at <= 0 {
		return 0, errInjected
	}
	if s.cut {
		p = p[:min(int64(len(p)), s.at)]
	}
	n, err := s.ReadCloser.Read(p)
	if !s.cut && s.at >= 0 && s.at < int64(n) {
		p[s.at] ^= 0x10
	}
	s.at -= int64(n)
	return n, err
}
