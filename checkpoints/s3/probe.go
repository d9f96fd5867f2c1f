package s3

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/specstream/specstream/checkpoints"
)

// Probe implements [checkpoints.Prober]: what a server that only seems to know
// conditions and checksums gives away. The protocol itself uses neither If-Match
// nor the answer to a wrong checksum, but a server that fails here silently drops
// what it does not know.
func (s *Store) Probe(ctx context.Context, prefix string) []checkpoints.Check {
	var checks []checkpoints.Check
	try := func(name string, f func(key string) error) {
		start := time.Now()
		key := prefix + strings.ReplaceAll(name, " ", "-")
		err := f(key)
		checks = append(checks, checkpoints.Check{Name: name, Took: time.Since(start), Err: errors.Join(err, s.Delete(ctx, key))})
	}
	const text = "probe"
	sum := checksum(crc32.Checksum([]byte(text), castagnoli))
	try("If-Match on an absent key is refused", func(key string) error {
		err := s.refused(ctx, key, text, sum, func(o *minio.PutObjectOptions) { o.SetMatchETag("0123456789abcdef0123456789abcdef") })
		if err != nil {
			return fmt.Errorf("%w: the server ignores If-Match", err)
		}
		return nil
	})
	try("a damaged upload is refused", func(key string) error {
		wrong := checksum(crc32.Checksum([]byte("other"), castagnoli))
		if err := s.refused(ctx, key, text, wrong, nil); err != nil {
			return fmt.Errorf("%w: the server ignores checksums, so damage on the way shows only at the next read", err)
		}
		return nil
	})
	return checks
}

// refused sends one PUT and returns nil if the server refuses it.
func (s *Store) refused(ctx context.Context, key, text, crc string, condition func(*minio.PutObjectOptions)) error {
	accepted := false
	err := s.retry(ctx, "put", key, func(ctx context.Context, _ int) error {
		err := s.put(ctx, key, strings.NewReader(text), int64(len(text)), crc, condition)
		var resp minio.ErrorResponse
		switch {
		case err == nil:
			accepted = true
			return nil
		case errors.As(err, &resp) && resp.StatusCode >= 400 && resp.StatusCode < 500 &&
			resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusTooManyRequests:
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	if accepted {
		return errors.New("the server accepted it")
	}
	return nil
}
