package devserver

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
)

// Kind says where a server program comes from.
type Kind string

const (
	// External is a server that already runs; Path is its address.
	External Kind = "external"
	// CLI is the `temporal` command.
	CLI Kind = "cli"
	// Devstack is this project's infra/devstack.
	Devstack Kind = "devstack"
)

// Program is how a Temporal server is had.
type Program struct {
	Kind Kind
	// Path is the executable, or the address of an external server.
	Path string
}

// Find returns the program to use, building infra/devstack if it must, which
// takes minutes the first time.
func Find(ctx context.Context, o Options) (Program, error) {
	o = o.withDefaults()
	if a := os.Getenv(AddressEnv); a != "" {
		return Program{External, a}, nil
	}
	cli, cliErr := exec.LookPath("temporal")
	owner, err := databaseOwner(o.DataDir)
	if err != nil {
		return Program{}, err
	}
	switch {
	case owner == CLI && cliErr != nil:
		return Program{}, fmt.Errorf("the workflows in %s were kept by the `temporal` command, which is not on the PATH any more: "+
			"install it again, or move that folder away to start afresh", databaseDir(o.DataDir))
	case cliErr == nil && owner != Devstack:
		return Program{CLI, cli}, nil
	}
	path, err := build(ctx, o)
	if err != nil {
		return Program{}, fmt.Errorf("build the Temporal development server: %w", err)
	}
	return Program{Devstack, path}, nil
}

func databaseDir(dataDir string) string { return filepath.Join(dataDir, "temporal") }

// databaseFile is named after the program that makes it.
func databaseFile(dataDir string, k Kind) string {
	return filepath.Join(databaseDir(dataDir), string(k)+".db")
}

// databaseOwner returns the kind of program that made the database of a data
// folder, empty for a new folder.
func databaseOwner(dataDir string) (Kind, error) {
	if dataDir == "" {
		return "", nil
	}
	for _, k := range []Kind{Devstack, CLI} {
		switch _, err := os.Stat(databaseFile(dataDir, k)); {
		case err == nil:
			return k, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", fmt.Errorf("data folder: %w", err)
		}
	}
	return "", nil
}

// args returns the arguments of `server start-dev`, which both programs take.
func (p Program) args(o Options, port, uiPort int) []string {
	args := []string{"server", "start-dev", "--ip", o.IP, "--port", strconv.Itoa(port), "--namespace", o.Namespace, "--log-level", "error"}
	if o.Headless {
		args = append(args, "--headless")
	} else {
		args = append(args, "--ui-port", strconv.Itoa(uiPort))
	}
	if o.DataDir != "" {
		args = append(args, "--db-filename", databaseFile(o.DataDir, p.Kind))
	}
	var names []string
	for name := range o.SearchAttributes {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		args = append(args, "--search-attribute", name+"="+o.SearchAttributes[name].String())
	}
	if p.Kind == Devstack {
		return append(args, "--parent-pid", strconv.Itoa(os.Getpid()))
	}
	// What devstack does by itself: durable commits, and queues that are polled
	// more often than every 50 ms.
	for _, queue := range []string{"transfer", "timer", "visibility"} {
		args = append(args, "--dynamic-config-value", "history."+queue+"ProcessorMaxPollRPS=1000")
	}
	if o.DataDir != "" {
		args = append(args, "--sqlite-pragma", "journal_mode=wal", "--sqlite-pragma", "synchronous=full")
	}
	return args
}
