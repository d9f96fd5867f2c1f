package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/server/common/headers"
)

func TestFlags(t *testing.T) {
	o, err := parseFlags(strings.Fields("server start-dev --ip 127.0.0.2 --port 7300 --namespace a -n b --db-filename x.db "+
		"--search-attribute Job=Keyword --dynamic-config-value frontend.x=false --dynamic-config-value history.y=1000 "+
		"--dynamic-config-value z=1.5 --log-level warn --metrics-port 9000 --parent-pid 3"), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if o.ip != "127.0.0.2" || o.uiIP != "127.0.0.2" || o.port != 7300 || o.uiPort != 8300 || o.dbFile != "x.db" || o.metricsPort != 9000 || o.parentPID != 3 {
		t.Errorf("got %+v", o)
	}
	if len(o.namespaces) != 2 || o.namespaces[1] != "b" {
		t.Errorf("namespaces %v", o.namespaces)
	}
	if o.searchAttributes["Job"] != enums.INDEXED_VALUE_TYPE_KEYWORD {
		t.Errorf("search attributes %v", o.searchAttributes)
	}
	// The server's integer settings refuse a float64, its float settings an int64.
	for k, want := range map[string]any{"frontend.x": false, "history.y": 1000, "z": 1.5} {
		if o.dynamic[k] != want {
			t.Errorf("dynamic %s = %#v, want %#v", k, o.dynamic[k], want)
		}
	}
}

func TestFlagsRefuse(t *testing.T) {
	for _, args := range []string{
		"--port 0", "--port 70000", "--ui-port -1", "--search-attribute Job", "--search-attribute Job=Colour",
		"--dynamic-config-value a=text", "--dynamic-config-value a=1}", "--log-level loud", "--log-format xml", "--colour", "stray",
		"--sqlite-pragma x",
	} {
		var stderr bytes.Buffer
		if _, err := parseFlags(strings.Fields(args), &stderr); err == nil {
			t.Errorf("%s: accepted", args)
		}
		if stderr.Len() == 0 {
			t.Errorf("%s: refused without a word", args)
		}
	}
}

func TestDatabaseIsNotShared(t *testing.T) {
	o := options{dbFile: filepath.Join(t.TempDir(), "odd #1?.db")}
	d, err := openDatabase(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openDatabase(o); err == nil || !strings.Contains(err.Error(), "another Temporal server") {
		t.Fatalf("second open: %v", err)
	}
	d.close()
	again, err := openDatabase(o)
	if err != nil {
		t.Fatal(err)
	}
	defer again.close()
	if again.clusterID != d.clusterID || d.clusterID == "" {
		t.Errorf("the cluster's identity changed from %q to %q", d.clusterID, again.clusterID)
	}
	if _, err := os.Stat(o.dbFile); err != nil {
		t.Errorf("the database is not where it was asked for: %v", err)
	}
}

func TestDatabaseOfAnotherVersionIsRefused(t *testing.T) {
	for _, c := range []struct{ name, stamp, want string }{
		{"older server", `{"server_version":"1.0.0","cluster_id":"x"}`, "made by Temporal server 1.0.0"},
		{"no stamp", "", "was not made by this program"},
		{"damaged stamp", "{", "database version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "t.db")
			if err := os.WriteFile(path, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if c.stamp != "" {
				if err := os.WriteFile(stampPath(path), []byte(c.stamp), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := openDatabase(options{dbFile: path})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v, want %q", err, c.want)
			}
			if b, err := os.ReadFile(path); err != nil || len(b) != 0 {
				t.Errorf("the refused database was touched: %d bytes, %v", len(b), err)
			}
		})
	}
}

func TestHalfMadeDatabaseIsMadeAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "t.db")
	// As after a kill in the middle of the schema, with the stamp of an attempt before.
	if err := os.WriteFile(path+".new", []byte("SQLite format 3\x00 torn"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stampPath(path), []byte(`{"server_version":"`+headers.ServerVersion+`","cluster_id":"old"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := openDatabase(options{dbFile: path})
	if err != nil {
		t.Fatal(err)
	}
	d.close()
}

func TestParentGone(t *testing.T) {
	select {
	case <-parentGone(os.Getppid()+1<<20, time.Millisecond): // never our parent
	case <-time.After(5 * time.Second):
		t.Fatal("a parent that is not there was not noticed")
	}
	for _, pid := range []int{0, os.Getppid()} {
		select {
		case <-parentGone(pid, time.Millisecond):
			t.Errorf("parent %d was reported gone", pid)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestMain lets the test binary stand in for the program.
func TestMain(m *testing.M) {
	if os.Getenv("DEVSTACK_TEST_MAIN") == "1" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

func TestServerStartsAndStops(t *testing.T) {
	port, err := freePort("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(t.TempDir(), "t.db")
	for range 2 { // the second time on the database of the first
		cmd := exec.Command(os.Args[0], "server", "start-dev", "--port", strconv.Itoa(port), "--headless", "--db-filename", db)
		cmd.Env = append(os.Environ(), "DEVSTACK_TEST_MAIN=1")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line := make([]byte, 64)
		n, err := out.Read(line)
		if err != nil || !strings.Contains(string(line[:n]), "Temporal Server:") {
			t.Errorf("first output %q, %v", line[:n], err)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("stop: %v\n%s", err, stderr.String())
		}
	}
}
