package remote

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

// Options configures [Opener]. The zero value is ready to use.
type Options struct {
	// Endpoint is the address of the hub. Default: $HF_ENDPOINT, else
	// https://huggingface.co.
	Endpoint string
	// Token is sent to the hub, for private and gated repositories. Default:
	// $HF_TOKEN.
	Token string
	// Tries is how often an answer is asked for, and how often reading is taken
	// up again without a byte of progress, before it fails. Default 6.
	Tries int
	// Backoff is the wait before the second try; it doubles up to 30 s. An
	// answer's Retry-After goes before. Default 500 ms.
	Backoff time.Duration
	// Stall is how long an answer, or its next byte, may take. Default 60 s.
	Stall time.Duration
}

const (
	maxBackoff    = 30 * time.Second
	maxRetryAfter = 5 * time.Minute
	maxRedirects  = 10
)

type client struct {
	http *http.Client
	o    Options
}

func newClient(c *http.Client, o Options) *client {
	if c == nil {
		c = http.DefaultClient
	}
	own := *c
	own.Timeout = 0 // it would end long reads; Stall bounds waiting
	own.CheckRedirect = checkRedirect
	if o.Endpoint == "" {
		o.Endpoint = os.Getenv("HF_ENDPOINT")
	}
	if o.Endpoint == "" {
		o.Endpoint = "https://huggingface.co"
	}
	o.Endpoint = strings.TrimRight(o.Endpoint, "/")
	if o.Token == "" {
		o.Token = os.Getenv("HF_TOKEN")
	}
	if o.Tries < 1 {
		o.Tries = 6
	}
	if o.Backoff <= 0 {
		o.Backoff = 500 * time.Millisecond
	}
	if o.Stall <= 0 {
		o.Stall = time.Minute
	}
	return &client{http: &own, o: o}
}

// checkRedirect keeps credentials from every host and port but the first, and
// from an address that is less secure.
func checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return fmt.Errorf("more than %d redirects", maxRedirects)
	}
	first := via[0].URL
	if req.URL.Host != first.Host || first.Scheme == "https" && req.URL.Scheme != "https" {
		req.Header.Del("Authorization")
		req.Header.Del("Cookie")
	}
	req.Header.Del("Referer") // an address may hold secrets
	return nil
}

// Handles reports whether [Opener] opens an input itself.
func Handles(uri string) bool {
	scheme, _, ok := strings.Cut(uri, "://")
	return ok && (scheme == "https" || scheme == "http" || scheme == "hf")
}

// Opener opens https://, http:// and hf:// inputs, which can seek, and local
// files. client may be nil for http.DefaultClient; its timeout is not used.
func Opener(httpClient *http.Client, o Options) data.Opener {
	c := newClient(httpClient, o)
	return func(ctx context.Context, uri string) (io.ReadCloser, error) {
		if !Handles(uri) {
			return data.OpenFile(ctx, uri)
		}
		obj := &object{client: c, ctx: ctx, uri: uri, url: uri, size: -1}
		if strings.HasPrefix(uri, hubScheme) {
			f, err := parseHub(uri)
			if err != nil {
				return nil, err
			}
			obj.url, obj.token = f.resolve(c.o.Endpoint), c.o.Token
		}
		if u, err := url.Parse(obj.url); err != nil || u.Host == "" {
			return nil, &specstream.InputError{File: uri, Reason: "is not an address"}
		} else if u.User != nil {
			obj.uri = u.Redacted() // for messages
		}
		if err := obj.connect(); err != nil {
			return nil, errors.Join(err, obj.Close())
		}
		return obj, nil
	}
}

// errStalled is why a connection that gives nothing is ended.
var errStalled = errors.New("the server sends nothing")

// temporary is a failure that is worth another try, at once or after a wait.
type temporary struct {
	err   error
	after time.Duration // as the server asks; 0: it doesn't
}

func (t *temporary) Error() string { return t.err.Error() }
func (t *temporary) Unwrap() error { return t.err }

// wait waits before try number try+1, or returns why there is none.
func (c *client) wait(ctx context.Context, uri string, try int, err error) error {
	var t *temporary
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if !errors.As(err, &t) {
		return err
	}
	if try >= c.o.Tries {
		return fmt.Errorf("get %s: gave up after %d tries: %w", uri, try, t.err)
	}
	delay := min(maxBackoff, c.o.Backoff<<min(try-1, 16))
	delay = delay/2 + rand.N(delay/2+1) // so that many workers don't come back at once
	if t.after > 0 {
		delay = min(t.after, maxRetryAfter)
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// judge returns what an answer's status says, nil for one that has content.
func (o *object) judge(resp *http.Response) error {
	code := resp.StatusCode
	status := fmt.Errorf("%s answers %s", resp.Request.URL.Host, resp.Status)
	switch {
	case code == http.StatusOK, code == http.StatusPartialContent, code == http.StatusRequestedRangeNotSatisfiable:
		return nil
	case code == http.StatusRequestTimeout, code == http.StatusTooManyRequests, code >= 500:
		return &temporary{err: status, after: retryAfter(resp.Header.Get("Retry-After"))}
	case code == http.StatusNotFound, code == http.StatusGone:
		return &specstream.InputError{File: o.uri, Reason: "there is no such input", Err: errors.Join(status, fs.ErrNotExist)}
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		hint := ""
		if strings.HasPrefix(o.uri, hubScheme) {
			hint = "the repository may be private, gated or missing: set HF_TOKEN to a token that may read it"
		}
		return &specstream.InputError{File: o.uri, Reason: "access is refused", Err: status, Hint: hint}
	}
	return &specstream.InputError{File: o.uri, Reason: "can't be fetched", Err: status}
}

// retryAfter parses a number of seconds or a date.
func retryAfter(s string) time.Duration {
	if n, err := strconv.Atoi(strings.TrimSpace(s)); err == nil && n >= 0 {
		return time.Duration(min(n, 1<<20)) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, time.Until(t))
	}
	return 0
}

// failedRequest classifies an error of the network.
func (o *object) failedRequest(err error) error {
	var dns *net.DNSError
	if errors.As(err, &dns) && dns.IsNotFound {
		return &specstream.InputError{File: o.uri, Reason: "there is no such host", Err: dns}
	}
	var in *url.Error
	if errors.As(err, &in) {
		err = in.Err // without the address: it is named, and may hold secrets
	}
	var cert *tls.CertificateVerificationError
	if errors.As(err, &cert) {
		return fmt.Errorf("get %s: %w", o.uri, err)
	}
	return &temporary{err: err}
}
