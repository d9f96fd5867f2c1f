// Package s3server is the S3-compatible server that ships with specstream, for
// one machine: versitygw on a folder, made durable and safe to kill.
//
// The gateway changes its process's working directory and only one of it runs a
// process, so it lives in a child process of our own binary: [Start] and
// [Supervise] spawn the binary again with the argument [ChildArg], and the
// binary's main (or a test's TestMain) begins with [RunIfChild].
//
// What this package adds to the gateway: objects and the directories that name
// them are flushed to the disk before a write is acknowledged; multipart uploads
// that a crash caught in mid-completion are given back at start; a lock keeps a
// second server off the folder; file systems without extended attributes are
// served through sidecar files.
package s3server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/versity/versitygw/auth"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
	"github.com/versity/versitygw/s3api"
)

// Config says what to serve and where.
type Config struct {
	// Dir holds everything the server keeps; it is made if need be. Objects are
	// plain files under <Dir>/data/<bucket>/<key>.
	Dir string `json:"dir"`
	// Addr is the address to listen on, "127.0.0.1:9000". Default "127.0.0.1:0",
	// a free port.
	Addr string `json:"addr,omitempty"`
	// AccessKey and SecretKey are the only account's credentials.
	AccessKey string `json:"access_key"`
	SecretKey string `json:"secret_key"`
	// Region is the region the server answers for. Default "us-east-1".
	Region string `json:"region,omitempty"`
	// Buckets are made at start if they do not exist.
	Buckets []string `json:"buckets,omitempty"`
	// Metadata is "xattr" (extended attributes), "sidecar" (files beside the
	// objects' folder) or "" for what the folder was made with and else what its
	// file system allows.
	Metadata string `json:"metadata,omitempty"`
	// Ready, if set, is called with the address once the server accepts requests.
	Ready func(addr string) `json:"-"`
}

// Metadata modes.
const (
	Xattr   = "xattr"
	Sidecar = "sidecar"
)

// formatVersion is the version of the layout under Config.Dir.
const formatVersion = 1

// format is <Dir>/format.json: how the folder is written, chosen when it is made.
type format struct {
	Version  int    `json:"version"`
	Metadata string `json:"metadata"`
}

var bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$`)

// Run serves until ctx is done, then finishes the uploads it has begun, for at
// most 10 seconds, and returns nil; other requests may meet an error that clients
// retry. It changes the working directory of the process, and a process can run
// it once at a time: see [Start] for how to use it from a program.
func Run(ctx context.Context, cfg Config) error {
	if cfg.AccessKey == "" || cfg.SecretKey == "" {
		return errors.New("S3 server: no access key and secret key are given")
	}
	for _, b := range cfg.Buckets {
		if !bucketName.MatchString(b) {
			return fmt.Errorf("S3 server: bucket name %q: want 3 to 63 lower-case letters, digits and dashes", b)
		}
	}
	root, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return fmt.Errorf("S3 server: %w", err)
	}
	data, side := filepath.Join(root, "data"), filepath.Join(root, "meta")
	if err := os.MkdirAll(data, 0o777); err != nil {
		return fmt.Errorf("S3 server: %w", err)
	}
	unlock, err := lockFile(filepath.Join(root, "lock"))
	if err != nil {
		return fmt.Errorf("S3 server: folder %s: %w", root, err)
	}
	defer unlock()

	mode, err := metadataMode(root, data, cfg.Metadata)
	if err != nil {
		return fmt.Errorf("S3 server: %w", err)
	}
	var store meta.MetadataStorer = meta.XattrMeta{}
	opts := posix.PosixOpts{CopyObjectThreshold: 5 << 30}
	if mode == Sidecar {
		if err := os.MkdirAll(side, 0o777); err != nil {
			return fmt.Errorf("S3 server: %w", err)
		}
		if store, err = meta.NewSideCar(side); err != nil {
			return fmt.Errorf("S3 server: %w", err)
		}
		opts.SideCarDir = side
	}
	if err := recoverCrash(data, side, mode); err != nil {
		return fmt.Errorf("S3 server: recover from an earlier stop: %w", err)
	}
	for _, b := range cfg.Buckets {
		if err := os.MkdirAll(filepath.Join(data, b), 0o777); err != nil {
			return fmt.Errorf("S3 server: make bucket: %w", err)
		}
	}
	if err := syncDir(data); err != nil {
		return fmt.Errorf("S3 server: %w", err)
	}

	addr, err := resolveAddr(cfg.Addr)
	if err != nil {
		return fmt.Errorf("S3 server: %w", err)
	}
	be, err := posix.New(data, store, opts)
	if err != nil {
		return fmt.Errorf("S3 server: %w", err)
	}
	err = embedgw.RunVersityGW(ctx, durable{Posix: be, root: data}, &embedgw.Config{
		RootUserAccess:    cfg.AccessKey,
		RootUserSecret:    cfg.SecretKey,
		Region:            cfg.Region,
		Ports:             []string{addr},
		MaxConnections:    4096,
		MaxRequests:       1024,
		MultipartMaxParts: 10_000,
		Quiet:             true,
		KeepAlive:         true,
		DisableACLs:       true,
		IAMService:        oneAccount{auth.NewIAMServiceSingle(auth.Account{Access: cfg.AccessKey, Secret: cfg.SecretKey, Role: auth.RoleAdmin}), cfg.AccessKey},
		S3Options: []s3api.Option{s3api.WithOnListen(func() {
			if cfg.Ready != nil {
				cfg.Ready(addr)
			}
		})},
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("S3 server on %s: %w", addr, err)
	}
	return nil
}

// oneAccount knows the root account only. The gateway's own service of that kind
// answers unknown keys with status 404, which to a client asking for an object's
// head is indistinguishable from an object that is not there.
type oneAccount struct {
	auth.IAMService
	access string
}

// GetUserAccount implements the gateway's account service.
func (a oneAccount) GetUserAccount(access string) (auth.Account, error) {
	if access != a.access {
		return auth.Account{}, auth.ErrNoSuchUser
	}
	return a.IAMService.GetUserAccount(access)
}

// resolveAddr replaces port 0, which the gateway would not report back, by a
// free port. Another process may take it before the gateway does; Run then
// fails and its caller tries again.
func resolveAddr(addr string) (string, error) {
	l, err := net.Listen("tcp", cmp.Or(addr, "127.0.0.1:0"))
	if err != nil {
		return "", fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// metadataMode returns the mode the folder is written in, choosing it for a new
// one, and checks that the file system can serve it.
func metadataMode(root, data, want string) (string, error) {
	path := filepath.Join(root, "format.json")
	var f format
	b, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(b, &f); err != nil || f.Metadata != Xattr && f.Metadata != Sidecar {
			return "", fmt.Errorf("%s is damaged: %q", path, b)
		}
		if f.Version != formatVersion {
			return "", fmt.Errorf("%s says version %d, this program writes %d: use the program that made the folder", path, f.Version, formatVersion)
		}
		if want != "" && want != f.Metadata {
			return "", fmt.Errorf("folder %s keeps metadata as %q and cannot be served as %q", root, f.Metadata, want)
		}
	case errors.Is(err, fs.ErrNotExist):
		f = format{Version: formatVersion, Metadata: want}
	default:
		return "", err
	}
	switch f.Metadata {
	case Xattr:
		if err := testXattr(data); err != nil {
			return "", fmt.Errorf("folder %s needs extended attributes (user.*), which its file system refuses: %w; "+
				"mount it with user_xattr, or start anew in another folder", root, err)
		}
	case "":
		f.Metadata = Xattr
		if testXattr(data) != nil {
			f.Metadata = Sidecar
		}
	case Sidecar:
	default:
		return "", fmt.Errorf("metadata mode %q is neither %q nor %q", f.Metadata, Xattr, Sidecar)
	}
	if err != nil { // a new folder
		b, err := json.Marshal(f)
		if err != nil {
			return "", err
		}
		if err := writeFile(path, append(b, '\n')); err != nil {
			return "", err
		}
	}
	return f.Metadata, nil
}

// testXattr tries a file and its directory, as file systems may allow one only.
// It gives a value as large as the gateway's largest of the objects we store.
func testXattr(dir string) error {
	f, err := os.CreateTemp(dir, ".xattr-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	value := []byte(strings.Repeat("v", 1024))
	if err := (meta.XattrMeta{}).StoreAttribute(f, "", "", "specstream-test", value); err != nil {
		return err
	}
	return meta.XattrMeta{}.Test(dir)
}

// recoverCrash mends what a killed server may leave: multipart uploads claimed
// by a completion that did not finish (the gateway would answer a repeated
// completion with success for an object that is not there) and, in sidecar mode,
// metadata of objects that were never published, which would make creating them
// fail for ever.
func recoverCrash(data, side, mode string) error {
	claims, err := filepath.Glob(filepath.Join(data, "*", posix.MetaTmpMultipartDir, "*", "*.inprogress"))
	if err != nil {
		return err
	}
	for _, claim := range claims {
		id, _, _ := strings.Cut(filepath.Base(claim), ".")
		to := filepath.Join(filepath.Dir(claim), id)
		if _, err := os.Lstat(to); err == nil {
			continue // given back already, or the upload was begun anew
		}
		if err := os.Rename(claim, to); err != nil {
			return err
		}
	}
	if mode != Sidecar {
		return nil
	}
	return filepath.WalkDir(side, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || d.Name() != "meta" {
			return err
		}
		if _, err := os.Lstat(filepath.Join(path, "etag")); err != nil {
			return nil // not an object's attributes
		}
		rel, err := filepath.Rel(side, filepath.Dir(path))
		if err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(data, rel)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return fs.SkipDir
	})
}

// writeFile writes a small file whole or not at all.
func writeFile(path string, b []byte) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close(), os.Remove(f.Name()))
		}
	}()
	if _, err := f.Write(b); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// shutdownGrace is how long a stopping server may finish the requests it has.
const shutdownGrace = 10 * time.Second
