package s3server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/s3response"
)

// durable makes acknowledged writes survive a loss of power: an object's bytes
// are flushed before it gets its name, the directories of the name before the
// client is told.
//
// Contexts are detached: the gateway's is cancelled as soon as the server is
// asked to stop, which would fail the very requests that an orderly stop waits for.
type durable struct {
	*posix.Posix
	root string // absolute
}

// PutObject implements the gateway's backend.
func (d durable) PutObject(ctx context.Context, in s3response.PutObjectInput) (s3response.PutObjectOutput, error) {
	out, err := d.Posix.PutObjectWithPostFunc(context.WithoutCancel(ctx), in, (*os.File).Sync)
	if err == nil {
		err = d.syncDirs(*in.Bucket, *in.Key)
	}
	return out, err
}

// UploadPart implements the gateway's backend.
func (d durable) UploadPart(ctx context.Context, in *s3.UploadPartInput) (*s3.UploadPartOutput, error) {
	return d.Posix.UploadPartWithPostFunc(context.WithoutCancel(ctx), in, (*os.File).Sync)
}

// CompleteMultipartUpload implements the gateway's backend.
func (d durable) CompleteMultipartUpload(ctx context.Context, in *s3.CompleteMultipartUploadInput) (s3response.CompleteMultipartUploadResult, string, error) {
	res, version, err := d.Posix.CompleteMultipartUploadWithCopy(context.WithoutCancel(ctx), in, func(part, object *os.File) (bool, error) {
		if _, err := io.Copy(object, part); err != nil {
			return true, err
		}
		return true, object.Sync()
	})
	if err == nil {
		err = d.syncDirs(*in.Bucket, *in.Key)
	}
	return res, version, err
}

// syncDirs flushes the directories from the key's up to the root: any of them
// may be new.
func (d durable) syncDirs(bucket, key string) error {
	for p := filepath.Join(d.root, bucket, filepath.Dir(filepath.FromSlash(key))); ; p = filepath.Dir(p) {
		// A concurrent delete removes directories that it empties.
		if err := syncDir(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if len(p) <= len(d.root) {
			return nil
		}
	}
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
