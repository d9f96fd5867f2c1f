// Package s3 keeps objects in a bucket of an S3-compatible server that has
// conditional writes (If-None-Match): Amazon S3, MinIO, R2, the embedded server.
//
// The client library retries nothing here: it would turn a lost reply into a
// "precondition failed" and report our own write as somebody else's. The driver
// retries itself, for Config.RetryFor, and knows which answers leave the outcome
// of a write open. Every upload is one PUT, never multipart (the library drops
// conditions there), and carries a CRC-32C that the server checks, so that a bit
// flipped on the way is refused and sent again.
package s3

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/specstream/specstream/checkpoints"
)

// Config says which bucket and how to reach it.
type Config struct {
	// Endpoint is the server's URL, "http://127.0.0.1:9000". Default: Amazon S3.
	Endpoint string
	// Region is the bucket's region. Default "us-east-1".
	Region string
	// Bucket must exist.
	Bucket string
	// Prefix is put before every key, with a slash between. May be empty.
	Prefix string
	// AccessKey, SecretKey and SessionToken sign requests. Without AccessKey
	// the shared credentials file (~/.aws/credentials) is read and, inside AWS,
	// the role of the container or of the web identity is taken.
	AccessKey, SecretKey, SessionToken string
	// RetryFor is how long one operation is tried while the server does not
	// answer or asks to slow down, so that a server's restart goes unnoticed.
	// It is tried four times in any case. Default 45 s; negative: four times only.
	RetryFor time.Duration
	// Stall ends an attempt in which the server has sent or taken nothing for
	// that long. Default 1 minute.
	Stall time.Duration
	// WrapTransport, if set, wraps the HTTP transport: for tracing and fault injection.
	WrapTransport func(http.RoundTripper) http.RoundTripper
}

// Store is a [checkpoints.Store] in a bucket.
type Store struct {
	client *minio.Core
	http   *http.Transport
	cfg    Config
	prefix string // "" or ends in a slash
}

var (
	_ checkpoints.Store  = (*Store)(nil)
	_ checkpoints.Prober = (*Store)(nil)
)

// Open prepares a client. It sends nothing.
func Open(cfg Config) (*Store, error) {
	cfg.Region = cmp.Or(cfg.Region, "us-east-1")
	cfg.RetryFor = cmp.Or(cfg.RetryFor, 45*time.Second)
	cfg.Stall = cmp.Or(cfg.Stall, time.Minute)
	host, secure, lookup := "s3."+cfg.Region+".amazonaws.com", true, minio.BucketLookupAuto
	if cfg.Endpoint != "" {
		u, err := url.Parse(cfg.Endpoint)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
			return nil, fmt.Errorf("open S3 store: endpoint %q is not a URL such as http://127.0.0.1:9000", cfg.Endpoint)
		}
		host, secure = u.Host, u.Scheme == "https"
		if !strings.HasSuffix(u.Hostname(), ".amazonaws.com") {
			lookup = minio.BucketLookupPath
		}
	}
	prefix := strings.Trim(cfg.Prefix, "/")
	if prefix != "" {
		if err := checkpoints.ValidateKey(prefix); err != nil {
			return nil, fmt.Errorf("open S3 store: prefix: %w", err)
		}
		prefix += "/"
	}
	if cfg.Bucket == "" {
		return nil, errors.New("open S3 store: no bucket is named")
	}
	tr, err := minio.DefaultTransport(secure)
	if err != nil {
		return nil, fmt.Errorf("open S3 store: %w", err)
	}
	tr.MaxIdleConnsPerHost = 64
	tr.WriteBufferSize, tr.ReadBufferSize = 256<<10, 256<<10 // a quarter fewer system calls at large bodies
	tr.ResponseHeaderTimeout = 2 * time.Minute               // the server flushes a large body to its disk first
	var rt http.RoundTripper = tr
	if cfg.WrapTransport != nil {
		rt = cfg.WrapTransport(tr)
	}
	client, err := minio.NewCore(host, &minio.Options{
		Creds:        creds(cfg),
		Secure:       secure,
		Region:       cfg.Region,
		BucketLookup: lookup,
		Transport:    rt,
		// Of the library's checksum modes only a header computed beforehand works
		// with every server, and it demands this option.
		TrailingHeaders: true,
		MaxRetries:      1,
	})
	if err != nil {
		return nil, fmt.Errorf("open S3 store: %w", err)
	}
	return &Store{client: client, http: tr, cfg: cfg, prefix: prefix}, nil
}

func creds(cfg Config) *credentials.Credentials {
	if cfg.AccessKey != "" {
		return credentials.NewStaticV4(cfg.AccessKey, cfg.SecretKey, cfg.SessionToken)
	}
	return credentials.NewChainCredentials(fallbackCredentials())
}

// Close closes idle connections.
func (s *Store) Close() error {
	s.http.CloseIdleConnections()
	return nil
}

// URI returns "s3://bucket/prefix".
func (s *Store) URI() string { return strings.TrimSuffix("s3://"+s.cfg.Bucket+"/"+s.prefix, "/") }

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(crc uint32) string {
	return base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc))
}

func (s *Store) put(ctx context.Context, key string, body io.Reader, size int64, crc string, condition func(*minio.PutObjectOptions)) error {
	o := minio.PutObjectOptions{
		DisableMultipart:     true, // multipart drops conditions silently
		DisableContentSha256: true, // one checksum a body: the CRC
		UserMetadata:         map[string]string{"x-amz-checksum-crc32c": crc},
	}
	if condition != nil {
		condition(&o)
	}
	ctx, cancel := s.limit(ctx, size)
	defer cancel()
	_, err := s.client.Client.PutObject(ctx, s.cfg.Bucket, s.prefix+key, body, size, o)
	return cause(ctx, err)
}

// Put implements [checkpoints.Store].
func (s *Store) Put(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	if err := checkpoints.ValidateKey(key); err != nil {
		return fmt.Errorf("put: %w", err)
	}
	if _, err := body.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	crc := crc32.New(castagnoli)
	switch n, err := io.Copy(crc, contextReader{ctx, body}); {
	case err != nil:
		return fmt.Errorf("put %s: read the body: %w", key, err)
	case n != size:
		return fmt.Errorf("put %s: the body has %d bytes, not %d", key, n, size)
	}
	src := &source{r: body}
	defer src.retire()
	return s.retry(ctx, "put", key, func(ctx context.Context, _ int) error {
		r, err := src.attempt()
		if err != nil {
			return permanent{err}
		}
		return s.put(ctx, key, r, size, checksum(crc.Sum32()), nil)
	})
}

// PutIfAbsent implements [checkpoints.Store].
func (s *Store) PutIfAbsent(ctx context.Context, key string, body []byte) error {
	if err := checkpoints.ValidateKey(key); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	crc := checksum(crc32.Checksum(body, castagnoli))
	unclear := false // an attempt ended without saying whether it wrote
	return s.retry(ctx, "create", key, func(ctx context.Context, attempt int) error {
		err := s.put(ctx, key, bytes.NewReader(body), int64(len(body)), crc, func(o *minio.PutObjectOptions) { o.SetMatchETagExcept("*") })
		if !isPreconditionFailed(err) {
			unclear = unclear || err != nil
			return err
		}
		if unclear {
			held, err := s.read(ctx, key, int64(len(body)))
			if err != nil {
				return err // try all of it again: objects of this kind are never replaced
			}
			if bytes.Equal(held, body) {
				return nil // our own write, whose reply was lost
			}
		}
		return permanent{checkpoints.ErrExists}
	})
}

// read returns the object's bytes, or no more than one byte past most.
func (s *Store) read(ctx context.Context, key string, most int64) ([]byte, error) {
	ctx, cancel := s.limit(ctx, most)
	defer cancel()
	rc, _, _, err := s.client.GetObject(ctx, s.cfg.Bucket, s.prefix+key, minio.GetObjectOptions{})
	if err != nil {
		return nil, cause(ctx, err)
	}
	defer rc.Close()
	return io.ReadAll(io.LimitReader(rc, most+1))
}

// Get implements [checkpoints.Store].
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, checkpoints.Info, error) {
	return s.get(ctx, key, minio.GetObjectOptions{})
}

// GetRange implements [checkpoints.Store].
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := checkpoints.ValidateRange(off, n); err != nil {
		return nil, fmt.Errorf("get %s: %w", key, err)
	}
	var o minio.GetObjectOptions
	end := off + n - 1
	if end < off { // overflow
		end = 1<<63 - 1
	}
	// Not o.SetRange: it would make of bytes 0 to 0 the whole object.
	o.Set("Range", fmt.Sprintf("bytes=%d-%d", off, end))
	rc, _, err := s.get(ctx, key, o)
	return rc, err
}

func (s *Store) get(ctx context.Context, key string, o minio.GetObjectOptions) (io.ReadCloser, checkpoints.Info, error) {
	if err := checkpoints.ValidateKey(key); err != nil {
		return nil, checkpoints.Info{}, fmt.Errorf("get: %w", err)
	}
	var b *body
	var info minio.ObjectInfo
	err := s.retry(ctx, "get", key, func(ctx context.Context, _ int) error {
		// The body outlives this attempt, so it has a context of its own.
		bctx, cancel := context.WithCancelCause(ctx)
		stop := time.AfterFunc(s.cfg.Stall, func() { cancel(errStalled) })
		rc, i, _, err := s.client.GetObject(bctx, s.cfg.Bucket, s.prefix+key, o)
		if err != nil {
			stop.Stop()
			err = cause(bctx, err)
			cancel(nil)
			return err
		}
		b, info = &body{rc: rc, ctx: bctx, cancel: cancel, timer: stop, stall: s.cfg.Stall, key: key}, i
		return nil
	})
	if err != nil {
		return nil, checkpoints.Info{}, err
	}
	return b, checkpoints.Info{Key: key, Size: info.Size, ModTime: info.LastModified}, nil
}

// Stat implements [checkpoints.Store].
func (s *Store) Stat(ctx context.Context, key string) (checkpoints.Info, error) {
	if err := checkpoints.ValidateKey(key); err != nil {
		return checkpoints.Info{}, fmt.Errorf("stat: %w", err)
	}
	var info minio.ObjectInfo
	err := s.retry(ctx, "stat", key, func(ctx context.Context, _ int) (err error) {
		ctx, cancel := s.limit(ctx, 0)
		defer cancel()
		info, err = s.client.Client.StatObject(ctx, s.cfg.Bucket, s.prefix+key, minio.StatObjectOptions{})
		return cause(ctx, err)
	})
	if err != nil {
		return checkpoints.Info{}, err
	}
	return checkpoints.Info{Key: key, Size: info.Size, ModTime: info.LastModified}, nil
}

// Delete implements [checkpoints.Store].
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := checkpoints.ValidateKey(key); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	err := s.retry(ctx, "delete", key, func(ctx context.Context, _ int) error {
		ctx, cancel := s.limit(ctx, 0)
		defer cancel()
		return cause(ctx, s.client.RemoveObject(ctx, s.cfg.Bucket, s.prefix+key, minio.RemoveObjectOptions{}))
	})
	if errors.Is(err, checkpoints.ErrNotFound) {
		return nil // S3 says so of absent keys; some servers answer 404
	}
	return err
}

// List implements [checkpoints.Store]. A page that fails is asked for again
// from the last key yielded.
func (s *Store) List(ctx context.Context, prefix, startAfter string) iter.Seq2[checkpoints.Info, error] {
	return func(yield func(checkpoints.Info, error) bool) {
		if strings.HasPrefix(prefix, ".") || strings.HasPrefix(prefix, "/") || strings.Contains(prefix, "/.") || strings.Contains(prefix, "//") {
			return // no valid key begins so
		}
		after := startAfter
		for {
			var page []checkpoints.Info
			var next string
			err := s.retry(ctx, "list", prefix, func(ctx context.Context, _ int) (err error) {
				page, next, err = s.page(ctx, prefix, after)
				return err
			})
			if err != nil {
				yield(checkpoints.Info{}, err)
				return
			}
			for _, info := range page {
				if !yield(info, nil) {
					return
				}
			}
			if next == "" {
				return
			}
			after = next
		}
	}
}

// pageKeys is how many keys one list request asks for; S3 gives no more.
const pageKeys = 1000

// page returns up to pageKeys objects after a key, and the key to go on from,
// empty at the end.
func (s *Store) page(ctx context.Context, prefix, after string) (page []checkpoints.Info, next string, err error) {
	ctx, cancel := s.limit(ctx, 0)
	defer cancel()
	o := minio.ListObjectsOptions{Prefix: s.prefix + prefix, Recursive: true, MaxKeys: pageKeys}
	if after != "" {
		o.StartAfter = s.prefix + after
	}
	n := 0
	for obj := range s.client.ListObjectsIter(ctx, s.cfg.Bucket, o) {
		if obj.Err != nil {
			return nil, "", cause(ctx, obj.Err)
		}
		key, ok := strings.CutPrefix(obj.Key, s.prefix)
		if ok && key > after && checkpoints.ValidateKey(key) == nil {
			page = append(page, checkpoints.Info{Key: key, Size: obj.Size, ModTime: obj.LastModified})
		}
		if n++; n == pageKeys {
			return page, key, nil
		}
	}
	// The library's iterator ends without a word when its context does.
	return page, "", cause(ctx, ctx.Err())
}

// limit bounds an attempt whose progress cannot be watched: Stall, and a second
// for each MiB that goes up.
func (s *Store) limit(ctx context.Context, size int64) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.cfg.Stall+time.Duration(size>>20)*time.Second, errStalled)
}
