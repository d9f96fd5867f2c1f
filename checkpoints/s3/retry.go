package s3

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/specstream/specstream/checkpoints"
)

// fallbackCredentials are asked in turn when none are configured. The metadata
// service is asked only where the environment says that it is there: anywhere
// else it would only hang.
func fallbackCredentials() []credentials.Provider {
	p := []credentials.Provider{&credentials.FileAWSCredentials{}}
	for _, v := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		if os.Getenv(v) != "" {
			return append(p, &credentials.IAM{Client: &http.Client{Timeout: 10 * time.Second}})
		}
	}
	return p
}

var errStalled = errors.New("the server neither sent nor took anything for too long")

// permanent marks an error that trying again cannot mend.
type permanent struct{ error }

func (p permanent) Unwrap() error { return p.error }

// cause replaces a context's error by why an attempt's own context ended, so
// that a stall is told from a cancelled caller.
func cause(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errStalled) {
		return errStalled
	}
	return err
}

// Retry schedule: full jitter under a doubling ceiling.
const (
	leastTries   = 4
	firstBackoff = 50 * time.Millisecond
	maxBackoff   = 2 * time.Second
)

// retry runs op until it succeeds, fails for good, or RetryFor has passed.
func (s *Store) retry(ctx context.Context, verb, key string, op func(ctx context.Context, attempt int) error) error {
	start := time.Now()
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%s %s: %w", verb, key, err)
		}
		err := op(ctx, attempt)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s %s: %w", verb, key, ctx.Err())
		}
		err, again := s.classify(err)
		if !again {
			return fmt.Errorf("%s %s: %w", verb, key, err)
		}
		if attempt+1 >= leastTries && time.Since(start) >= s.cfg.RetryFor {
			return fmt.Errorf("%s %s: gave up after %d attempts in %s: %w: %w", verb, key, attempt+1,
				time.Since(start).Round(time.Second), checkpoints.ErrUnavailable, err)
		}
		ceiling := min(maxBackoff, firstBackoff<<min(attempt, 10))
		select {
		case <-time.After(rand.N(ceiling)):
		case <-ctx.Done():
		}
	}
}

// notRetried are codes that come with a status that would be retried.
var notRetried = map[string]bool{
	"NotImplemented": true, "NoSpaceLeftOnDevice": true, "QuotaExceeded": true, "XMinioStorageFull": true, "InsufficientStorage": true,
}

// retried are codes that come with a status that would not be: damage in
// transit, and conflicts that S3 asks to try again.
var retried = map[string]bool{
	"BadDigest": true, "InvalidDigest": true, "XAmzContentChecksumMismatch": true, "XAmzContentSHA256Mismatch": true,
	"IncompleteBody": true, "RequestTimeout": true, "ConditionalRequestConflict": true, "OperationAborted": true,
	"SlowDown": true, "Throttling": true, "ThrottlingException": true, "RequestThrottled": true, "RequestLimitExceeded": true,
	"InternalError": true, "ServiceUnavailable": true,
}

// badCredentials are codes of requests that were not accepted as ours.
var badCredentials = map[string]bool{
	"InvalidAccessKeyId": true, "SignatureDoesNotMatch": true, "AccessDenied": true, "RequestTimeTooSkewed": true,
	"InvalidTokenId": true, "InvalidToken": true, "ExpiredToken": true,
}

// classify gives a library error its place in the contract and says whether to
// try again.
func (s *Store) classify(err error) (error, bool) {
	var final permanent
	if errors.As(err, &final) {
		return final.error, false
	}
	var resp minio.ErrorResponse
	if !errors.As(err, &resp) {
		var unknownCA x509.UnknownAuthorityError
		var wrongHost x509.HostnameError
		if errors.As(err, &unknownCA) || errors.As(err, &wrongHost) || strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") {
			return fmt.Errorf("%w (endpoint %s)", err, s.client.EndpointURL()), false
		}
		return err, true // the network: anything may have happened
	}
	if notRetried[resp.Code] {
		return fmt.Errorf("%s: %w", resp.Code, resp), false
	}
	if retried[resp.Code] {
		return fmt.Errorf("%s: %w", resp.Code, resp), true
	}
	if badCredentials[resp.Code] { // some servers say so with status 404
		resp.StatusCode = http.StatusForbidden
	}
	switch resp.StatusCode {
	case http.StatusNotFound:
		if resp.Code == "NoSuchBucket" {
			return fmt.Errorf("bucket %q does not exist at %s: create it, or name another in the store's URI", s.cfg.Bucket, s.client.EndpointURL()), false
		}
		if resp.Code == "NoSuchKey" || resp.Code == "NotFound" {
			return checkpoints.ErrNotFound, false
		}
	case http.StatusRequestedRangeNotSatisfiable:
		return checkpoints.ErrRange, false
	case http.StatusForbidden, http.StatusUnauthorized:
		return fmt.Errorf("%s refused the request (%s: %w): check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and their rights on bucket %q, and this machine's clock",
			s.client.EndpointURL(), resp.Code, resp, s.cfg.Bucket), false
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return resp, true
	}
	if resp.StatusCode >= 500 {
		return fmt.Errorf("%s: %w", resp.Code, resp), true
	}
	return fmt.Errorf("HTTP %d %s: %w", resp.StatusCode, resp.Code, resp), false
}

func isPreconditionFailed(err error) bool {
	var resp minio.ErrorResponse
	return errors.As(err, &resp) && resp.StatusCode == http.StatusPreconditionFailed
}

// source gives each attempt at an upload a reader of its own on the caller's
// body. net/http may go on reading an attempt's body in the background after it
// gave up on it, so an attempt's reader fails once the next one has begun, or
// the operation is over.
type source struct {
	mu      sync.Mutex
	r       io.ReadSeeker
	current *attemptReader
}

// attempt rewinds the body and returns a new reader on it.
func (s *source) attempt() (io.ReadSeeker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.r.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	s.current = &attemptReader{source: s}
	return s.current, nil
}

// retire ends the last attempt: the caller owns the body again.
func (s *source) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
}

type attemptReader struct{ source *source }

var errSuperseded = errors.New("this attempt at the upload is over")

func (a *attemptReader) Read(p []byte) (int, error) {
	a.source.mu.Lock()
	defer a.source.mu.Unlock()
	if a.source.current != a {
		return 0, errSuperseded
	}
	return a.source.r.Read(p)
}

// Seek lets the client library rewind; it is what makes it treat the body as repeatable.
func (a *attemptReader) Seek(off int64, whence int) (int64, error) {
	a.source.mu.Lock()
	defer a.source.mu.Unlock()
	if a.source.current != a {
		return 0, errSuperseded
	}
	return a.source.r.Seek(off, whence)
}

// contextReader fails once its context is done.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (r contextReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// body is an object being read. It ends with an error if nothing comes for Stall.
type body struct {
	rc     io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
	stall  time.Duration
	key    string
}

func (b *body) Read(p []byte) (int, error) {
	b.timer.Reset(b.stall)
	n, err := b.rc.Read(p)
	b.timer.Stop() // the caller's own pauses are no stall
	if err == nil || errors.Is(err, io.EOF) {
		return n, err
	}
	if cause := context.Cause(b.ctx); cause != nil && !errors.Is(cause, errStalled) {
		return n, fmt.Errorf("read %s: %w", b.key, cause)
	}
	return n, fmt.Errorf("read %s: %w: %w", b.key, checkpoints.ErrUnavailable, cause(b.ctx, err))
}

func (b *body) Close() error {
	b.timer.Stop()
	err := b.rc.Close()
	b.cancel(nil)
	return err
}
