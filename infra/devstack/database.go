package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.temporal.io/server/common/config"
	"go.temporal.io/server/common/headers"
	sqliteplugin "go.temporal.io/server/common/persistence/sql/sqlplugin/sqlite"
	sqliteschema "go.temporal.io/server/schema/sqlite"
	"google.golang.org/protobuf/types/known/durationpb"
)

// clusterName names the one cluster there is.
const clusterName = "active"

// retention is how long closed workflows stay visible. The server's own default
// of a day loses a pipeline's history before anyone has asked about it.
const retention = 30 * 24 * time.Hour

// stamp is written beside the database when its schema is made. The server
// neither checks nor migrates a SQLite schema, so another version of it would
// fail in the middle of a workflow instead of at start.
type stamp struct {
	Server    string `json:"server_version"`
	ClusterID string `json:"cluster_id"`
}

// database is an open development database: its lock, settings and identity.
type database struct {
	sql       *config.SQL
	clusterID string
	lock      *os.File // nil for a database in memory
}

// openDatabase locks the file, makes its schema if it is new, and creates the
// namespaces that are missing. An empty file name means a database in memory.
func openDatabase(o options) (*database, error) {
	d := &database{sql: &config.SQL{PluginName: sqliteplugin.PluginName, ConnectAttributes: map[string]string{}}}
	if o.dbFile == "" {
		id, err := newUUID()
		if err != nil {
			return nil, err
		}
		d.clusterID = id
		d.sql.DatabaseName = "devstack" + strconv.Itoa(os.Getpid())
		d.sql.ConnectAttributes["mode"], d.sql.ConnectAttributes["cache"] = "memory", "shared"
		return d, d.createNamespaces(o)
	}
	path, err := filepath.Abs(o.dbFile)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", o.dbFile, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	if d.lock, err = lockFile(path + ".lock"); err != nil {
		return nil, fmt.Errorf("database %s: %w", path, err)
	}
	if err := d.open(path, o); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *database) open(path string, o options) error {
	st, err := readStamp(path)
	if err != nil {
		return err
	}
	switch _, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist):
		if st, err = createDatabase(path); err != nil {
			return fmt.Errorf("create database %s: %w", path, err)
		}
	case err != nil:
		return fmt.Errorf("database %s: %w", path, err)
	case st.Server == "":
		return fmt.Errorf("database %s was not made by this program (%s is missing): name another with --db-filename", path, stampPath(path))
	case st.Server != headers.ServerVersion:
		return fmt.Errorf("database %s was made by Temporal server %s and this is %s, which cannot read it safely: "+
			"let its workflows end under the old version, or move the file away to start afresh", path, st.Server, headers.ServerVersion)
	}
	d.clusterID = st.ClusterID
	d.sql.DatabaseName = escapePath(path)
	d.sql.ConnectAttributes["mode"] = "rwc"
	d.sql.ConnectAttributes["journal_mode"] = "wal"
	d.sql.ConnectAttributes["synchronous"] = "full"
	for k, v := range o.pragmas {
		d.sql.ConnectAttributes[k] = v
	}
	return d.createNamespaces(o)
}

// close releases the lock.
func (d *database) close() {
	if d.lock != nil {
		d.lock.Close() // an flock ends with its descriptor; nothing was written through it
	}
}

func (d *database) createNamespaces(o options) error {
	made := map[string]bool{}
	for _, name := range append([]string{"default"}, o.namespaces...) {
		if made[name] {
			continue
		}
		made[name] = true
		ns, err := sqliteschema.NewNamespaceConfig(clusterName, name, false, o.searchAttributes)
		if err != nil {
			return fmt.Errorf("namespace %q: %w", name, err)
		}
		ns.Detail.Config.Retention = durationpb.New(retention)
		if err := sqliteschema.CreateNamespaces(d.sql, ns); err != nil {
			return fmt.Errorf("namespace %q: %w", name, err)
		}
	}
	return nil
}

// createDatabase makes the schema in a temporary file and renames it, so that a
// kill half way through leaves no database that looks whole. The stamp comes
// first: a database without one is somebody else's.
func createDatabase(path string) (stamp, error) {
	id, err := newUUID()
	if err != nil {
		return stamp{}, err
	}
	st := stamp{Server: headers.ServerVersion, ClusterID: id}
	tmp := path + ".new"
	for _, f := range []string{tmp, tmp + "-journal"} {
		if err := os.Remove(f); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return stamp{}, err
		}
	}
	if err := sqliteschema.SetupSchema(&config.SQL{
		PluginName:        sqliteplugin.PluginName,
		DatabaseName:      escapePath(tmp),
		ConnectAttributes: map[string]string{"mode": "rwc", "synchronous": "full"},
	}); err != nil {
		return stamp{}, fmt.Errorf("schema: %w", err)
	}
	b, err := json.Marshal(st)
	if err != nil {
		return stamp{}, err
	}
	if err := writeSynced(stampPath(path), append(b, '\n')); err != nil {
		return stamp{}, err
	}
	if err := os.Rename(tmp, path); err != nil {
		return stamp{}, err
	}
	return st, syncDir(filepath.Dir(path))
}

func stampPath(db string) string { return db + ".version" }

// readStamp returns the database's stamp, empty when there is none.
func readStamp(db string) (stamp, error) {
	var st stamp
	b, err := os.ReadFile(stampPath(db))
	if errors.Is(err, fs.ErrNotExist) {
		return st, nil
	}
	if err != nil {
		return st, fmt.Errorf("database version: %w", err)
	}
	if err := json.Unmarshal(b, &st); err != nil {
		return st, fmt.Errorf("database version %s: %w", stampPath(db), err)
	}
	return st, nil
}

// lockFile takes an exclusive lock that the kernel drops when the process ends,
// however it ends. SQLite itself lets two servers open one file, and they then
// overwrite each other's shard ownership.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.New("another Temporal server is using it: stop that one or name another file with --db-filename")
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// escapePath quotes a path for SQLite's file: URIs, which the server builds
// without quoting.
func escapePath(p string) string {
	return strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(p)
}

func writeSynced(path string, b []byte) error {
	tmp := path + ".tmp"
	f, err := os.Create(tmp)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// newUUID returns a random version 4 UUID.
func newUUID() (string, error) {
	var b [16]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("random identifier: %w", err)
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]), nil
}
