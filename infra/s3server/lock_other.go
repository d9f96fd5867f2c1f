//go:build !unix

package s3server

import (
	"errors"
	"fmt"
)

// lockFile fails: without a lock that dies with its process, two servers could
// share a folder.
func lockFile(path string) (func(), error) {
	return nil, fmt.Errorf("lock %s: %w on this platform; use an S3 server of your own", path, errors.ErrUnsupported)
}
