package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"go.temporal.io/sdk/client"
	temporallog "go.temporal.io/sdk/log"

	"github.com/specstream/specstream/infra/devserver"
	"github.com/specstream/specstream/jobs"
)

// storeEnv names the store when no flag does.
const storeEnv = "SPECSTREAM_STORE"

// dataDirEnv names the embedded stack's folder when no flag does.
const dataDirEnv = "SPECSTREAM_DATA_DIR"

// connection says which Temporal server and store a command talks to.
type connection struct {
	dataDir, address, namespace, store string
}

func (c *connection) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.dataDir, "data-dir", "", "folder of the embedded servers (default: $"+dataDirEnv+", else ~/.local/share/specstream)")
	f.StringVar(&c.address, "temporal-address", "", "Temporal server, host:port (default: $TEMPORAL_ADDRESS, else the embedded one)")
	f.StringVar(&c.namespace, "temporal-namespace", "", "Temporal namespace (default: $TEMPORAL_NAMESPACE, else default)")
	f.StringVar(&c.store, "store", "", "store: s3://BUCKET/PREFIX or a folder (default: $"+storeEnv+", else the embedded one)")
}

// dir is the embedded stack's folder.
func (c *connection) dir() (string, error) {
	if c.dataDir != "" {
		return c.dataDir, nil
	}
	if d := os.Getenv(dataDirEnv); d != "" {
		return d, nil
	}
	if d := os.Getenv("XDG_DATA_HOME"); d != "" {
		return filepath.Join(d, "specstream"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find a data folder (give --data-dir): %w", err)
	}
	return filepath.Join(home, ".local", "share", "specstream"), nil
}

// resolve fills in what no flag gave from the environment and then from the
// embedded stack that last ran in the data folder.
func (c *connection) resolve() error {
	set := func(p *string, vs ...string) {
		for _, v := range vs {
			if *p == "" {
				*p = v
			}
		}
	}
	set(&c.address, os.Getenv(devserver.AddressEnv))
	set(&c.namespace, os.Getenv(devserver.NamespaceEnv))
	set(&c.store, os.Getenv(storeEnv))
	dir, err := c.dir()
	if err != nil {
		return err
	}
	s, found, err := readStack(dir)
	if err != nil {
		return err
	}
	if found {
		if c.store == "" {
			s.exportS3()
		}
		set(&c.address, s.TemporalAddress)
		set(&c.namespace, s.Namespace)
		set(&c.store, s.store())
	}
	set(&c.address, client.DefaultHostPort)
	set(&c.namespace, client.DefaultNamespace)
	return nil
}

// exportS3 lets this process reach the embedded S3 server.
func (c stackConfig) exportS3() {
	for k, v := range c.environment() {
		if k != devserver.AddressEnv && k != devserver.NamespaceEnv && k != storeEnv {
			os.Setenv(k, v)
		}
	}
}

// temporal connects to the Temporal server. One that an `up` is starting again
// is waited for.
func (c *connection) temporal(ctx context.Context, logs io.Writer) (client.Client, error) {
	if err := c.resolve(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		cl, err := client.DialContext(ctx, client.Options{HostPort: c.address, Namespace: c.namespace, Logger: logger(logs)})
		if err == nil {
			return cl, nil
		}
		if !c.embeddedRuns() || sleep(ctx, 200*time.Millisecond) != nil {
			return nil, fmt.Errorf("reach the Temporal server at %s (start one with `specstream up`): %w", c.address, err)
		}
	}
}

// embeddedRuns reports whether the address is that of an embedded stack whose
// `up` is running.
func (c *connection) embeddedRuns() bool {
	dir, err := c.dir()
	if err != nil {
		return false
	}
	s, found, err := readStack(dir)
	return err == nil && found && s.TemporalAddress == c.address && folderLocked(dir)
}

// logger logs warnings and errors of the Temporal SDK.
func logger(w io.Writer) temporallog.Logger {
	return temporallog.NewStructuredLogger(slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelWarn})))
}

// env opens the store with the user's cache as work folder.
func (c *connection) env(ctx context.Context, work string) (*jobs.Env, error) {
	if err := c.resolve(); err != nil {
		return nil, err
	}
	if c.store == "" {
		return nil, usageError{errors.New("no store is named: give --store, set $" + storeEnv + ", or start one with `specstream up`")}
	}
	if work == "" {
		d, err := cacheDir()
		if err != nil {
			return nil, err
		}
		work = filepath.Join(d, "work")
	}
	return jobs.OpenEnv(ctx, c.store, work)
}
