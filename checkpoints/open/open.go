// Package open opens stores by URI. It is apart from package checkpoints so that
// the protocol does not depend on its drivers.
package open

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/file"
	"github.com/specstream/specstream/checkpoints/mem"
	"github.com/specstream/specstream/checkpoints/s3"
)

// Store opens the store that uri names:
//
//	s3://bucket/prefix     a bucket of an S3-compatible server
//	file:///dir or a path  a folder, made if need be
//	mem: or mem:name       this process's memory; the name shares it
//
// For s3 the environment gives the server (SPECSTREAM_S3_ENDPOINT, else
// AWS_ENDPOINT_URL_S3, else AWS_ENDPOINT_URL, else Amazon's), AWS_REGION (or
// AWS_DEFAULT_REGION), AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
// AWS_SESSION_TOKEN. Nothing is sent yet. A malformed URI is an
// [specstream.InputError].
func Store(ctx context.Context, uri string) (checkpoints.Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	scheme, rest, ok := strings.Cut(uri, ":")
	if !ok || strings.ContainsAny(scheme, `/\.`) || len(scheme) == 1 || filepath.VolumeName(uri) != "" {
		if uri == "" {
			return nil, bad(uri, "no store is named")
		}
		return file.Open(uri)
	}
	switch scheme {
	case "mem":
		if rest == "" {
			return mem.New(), nil
		}
		return mem.Shared(rest), nil
	case "file":
		u, err := url.Parse(uri)
		if err != nil || u.Host != "" && u.Host != "localhost" || u.Path == "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, bad(uri, "want file:///absolute/path")
		}
		return file.Open(filepath.FromSlash(u.Path))
	case "s3":
		u, err := url.Parse(uri)
		if err != nil || u.Host == "" || u.User != nil || u.Port() != "" || u.RawQuery != "" || u.Fragment != "" {
			return nil, bad(uri, "want s3://bucket/prefix")
		}
		cfg := S3Config()
		cfg.Bucket, cfg.Prefix = u.Host, strings.Trim(u.Path, "/")
		s, err := s3.Open(cfg)
		if err != nil {
			return nil, &specstream.InputError{File: uri, Reason: "the store cannot be opened", Err: err}
		}
		return s, nil
	}
	return nil, bad(uri, fmt.Sprintf("scheme %q is not one of s3, file, mem", scheme))
}

// S3Config returns what the environment says about S3, without a bucket.
func S3Config() s3.Config {
	return s3.Config{
		Endpoint:     cmp.Or(os.Getenv("SPECSTREAM_S3_ENDPOINT"), os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL")),
		Region:       cmp.Or(os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION")),
		AccessKey:    os.Getenv("AWS_ACCESS_KEY_ID"),
		SecretKey:    os.Getenv("AWS_SECRET_ACCESS_KEY"),
		SessionToken: os.Getenv("AWS_SESSION_TOKEN"),
	}
}

func bad(uri, reason string) error {
	return &specstream.InputError{File: uri, Field: "store", Reason: reason, Hint: "name a store as s3://bucket/prefix, file:///dir, a path, or mem:"}
}
