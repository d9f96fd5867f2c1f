package devserver_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	"go.temporal.io/api/operatorservice/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"

	"github.com/specstream/specstream/infra/devserver"
	"github.com/specstream/specstream/infra/devserver/devservertest"
)

func dial(t *testing.T, s *devserver.Server) client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{HostPort: s.Address, Namespace: s.Namespace})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func port(t *testing.T, address string) int {
	t.Helper()
	_, p, err := net.SplitHostPort(address)
	require.NoError(t, err)
	n, err := strconv.Atoi(p)
	require.NoError(t, err)
	return n
}

func TestServerKeepsWorkflowsOverKill(t *testing.T) {
	ctx := t.Context()
	o := devserver.Options{DataDir: t.TempDir(), SearchAttributes: map[string]enumspb.IndexedValueType{"SpecstreamJob": enumspb.INDEXED_VALUE_TYPE_KEYWORD}}
	s := devservertest.Start(t, o)
	if s.Program.Kind == devserver.External {
		t.Skip("a server that TEMPORAL_ADDRESS names is not ours to kill")
	}
	c := dial(t, s)
	ns, err := c.WorkflowService().DescribeNamespace(ctx, &workflowservice.DescribeNamespaceRequest{Namespace: "default"})
	require.NoError(t, err)
	require.GreaterOrEqual(t, ns.GetConfig().GetWorkflowExecutionRetentionTtl().AsDuration(), 30*24*time.Hour)
	run, err := c.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: "kept", TaskQueue: "nobody"}, "Anything")
	require.NoError(t, err)

	// A second server on the same data must not come up.
	second := o
	second.StartTimeout = 20 * time.Second
	_, err = devserver.Start(ctx, second)
	require.ErrorContains(t, err, "another Temporal server is using it")

	require.NoError(t, syscall.Kill(s.PID(), syscall.SIGKILL))
	select {
	case <-s.Wait():
	case <-time.After(10 * time.Second):
		t.Fatal("the end of the process was not reported")
	}
	require.ErrorContains(t, s.Err(), "killed")

	// The same port, so that clients find it again, and one more attribute.
	o.Port = port(t, s.Address)
	o.SearchAttributes["SpecstreamStage"] = enumspb.INDEXED_VALUE_TYPE_KEYWORD
	began := time.Now()
	s2 := devservertest.Start(t, o)
	t.Logf("restart to first answer: %s", time.Since(began).Round(time.Millisecond))
	require.Equal(t, s.Address, s2.Address)
	d, err := c.DescribeWorkflowExecution(ctx, "kept", run.GetRunID())
	require.NoError(t, err)
	require.Equal(t, enumspb.WORKFLOW_EXECUTION_STATUS_RUNNING, d.GetWorkflowExecutionInfo().GetStatus())
	attrs, err := c.OperatorService().ListSearchAttributes(ctx, &operatorservice.ListSearchAttributesRequest{Namespace: "default"})
	require.NoError(t, err)
	require.Contains(t, attrs.GetCustomAttributes(), "SpecstreamJob")
	require.Contains(t, attrs.GetCustomAttributes(), "SpecstreamStage")

	stop, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	require.NoError(t, s2.Stop(stop))
	<-s2.Wait()
	require.NoError(t, s2.Err())
	require.NoError(t, s2.Stop(stop), "stopping twice is harmless")
}

func TestServerInMemoryWithUI(t *testing.T) {
	if !devserver.Ready(devserver.Options{}) || os.Getenv(devserver.AddressEnv) != "" || testing.Short() {
		t.Skip("needs a Temporal server of our own, built: go run ./infra/devserver/prebuild")
	}
	s, err := devserver.Start(t.Context(), devserver.Options{Namespace: "elsewhere"})
	require.NoError(t, err)
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, s.Stop(ctx))
	}()
	require.Equal(t, "elsewhere", s.Namespace)
	require.Eventually(t, func() bool {
		r, err := http.Get("http://" + s.UIAddress + "/")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return err == nil && r.StatusCode == http.StatusOK && len(b) > 0
	}, 10*time.Second, 50*time.Millisecond)

	// Whoever names it by TEMPORAL_ADDRESS gets it, and starts and stops nothing.
	t.Setenv(devserver.AddressEnv, s.Address)
	t.Setenv(devserver.NamespaceEnv, "elsewhere")
	ext, err := devserver.Start(t.Context(), devserver.Options{})
	require.NoError(t, err)
	require.Equal(t, devserver.External, ext.Program.Kind)
	require.Zero(t, ext.PID())
	require.NoError(t, ext.Stop(t.Context()))
	dial(t, ext)
	t.Setenv(devserver.NamespaceEnv, "nowhere")
	_, err = devserver.Start(t.Context(), devserver.Options{})
	require.ErrorContains(t, err, `namespace "nowhere" does not exist`)
}

func TestStartReportsAnAddressWhereNothingAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	t.Setenv(devserver.AddressEnv, l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = devserver.Start(ctx, devserver.Options{})
	require.ErrorContains(t, err, devserver.AddressEnv)
	require.ErrorContains(t, err, "does not answer")
}

func TestStartReportsATakenPort(t *testing.T) {
	fakeCLI(t, "sleep 60")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, err = devserver.Start(t.Context(), devserver.Options{Port: port(t, l.Addr().String())})
	require.ErrorContains(t, err, "is taken")
}

// fakeCLI puts a `temporal` command of our own first on the PATH.
func fakeCLI(t *testing.T, script string) string {
	t.Helper()
	t.Setenv(devserver.AddressEnv, "")
	dir := t.TempDir()
	path := filepath.Join(dir, "temporal")
	require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return path
}

func TestFindPrefersTheCommandAndStaysWithTheData(t *testing.T) {
	cli := fakeCLI(t, "exit 3")
	data := t.TempDir()
	p, err := devserver.Find(t.Context(), devserver.Options{DataDir: data})
	require.NoError(t, err)
	require.Equal(t, devserver.Program{Kind: devserver.CLI, Path: cli}, p)

	require.NoError(t, os.Mkdir(filepath.Join(data, "temporal"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(data, "temporal", "cli.db"), nil, 0o644))
	t.Setenv("PATH", t.TempDir())
	_, err = devserver.Find(t.Context(), devserver.Options{DataDir: data})
	require.ErrorContains(t, err, "not on the PATH any more")
}

func TestStartReportsWhyTheServerEnded(t *testing.T) {
	fakeCLI(t, "echo 'disk is full' >&2; exit 3")
	for _, dir := range []string{"", t.TempDir()} {
		_, err := devserver.Start(t.Context(), devserver.Options{DataDir: dir})
		require.ErrorContains(t, err, "exit status 3")
		require.ErrorContains(t, err, "disk is full")
	}
}

func TestStartLeavesNothingBehindWhenCancelled(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "pid")
	fakeCLI(t, "echo $$ > "+marker+"; exec sleep 60")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := devserver.Start(ctx, devserver.Options{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	b, err := os.ReadFile(marker)
	require.NoError(t, err)
	pid, err := strconv.Atoi(string(b[:len(b)-1]))
	require.NoError(t, err)
	require.True(t, errors.Is(syscall.Kill(pid, 0), syscall.ESRCH), "process %d still runs", pid)
}

func TestFindNeedsSources(t *testing.T) {
	t.Setenv(devserver.AddressEnv, "")
	t.Setenv("PATH", t.TempDir())
	t.Setenv(devserver.SourceEnv, t.TempDir())
	_, err := devserver.Find(t.Context(), devserver.Options{})
	require.ErrorContains(t, err, "is no checkout")
	require.False(t, devserver.Ready(devserver.Options{}))
}

func TestBuildNeedsGo(t *testing.T) {
	t.Setenv(devserver.AddressEnv, "")
	t.Setenv("PATH", t.TempDir())
	_, err := devserver.Find(t.Context(), devserver.Options{CacheDir: t.TempDir()})
	require.ErrorContains(t, err, "no `go` command")
}

// fakeGo stands in for the Go tool chain and writes the executable it is asked for.
func fakeGo(t *testing.T, build string) {
	t.Helper()
	t.Setenv(devserver.AddressEnv, "")
	dir := t.TempDir()
	script := `#!/bin/sh
if [ "$1" = list ]; then printf 'a\nb\nc\n'; exit; fi
while [ "$1" != -o ]; do shift; done
` + build + "\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), []byte(script), 0o755))
	t.Setenv("PATH", dir+":/usr/bin:/bin")
}

func TestBuildIsDoneOnceAndKept(t *testing.T) {
	builds := filepath.Join(t.TempDir(), "builds")
	fakeGo(t, `echo example.com/pkg >&2; echo x >> `+builds+`; sleep 0.3; echo built > "$2"`)
	o := devserver.Options{CacheDir: t.TempDir()}
	require.False(t, devserver.Ready(o))
	type found struct {
		p   devserver.Program
		err error
	}
	results := make(chan found)
	for range 2 {
		go func() {
			p, err := devserver.Find(context.Background(), o)
			results <- found{p, err}
		}()
	}
	for range 2 {
		r := <-results
		require.NoError(t, r.err)
		require.Equal(t, devserver.Devstack, r.p.Kind)
		require.FileExists(t, r.p.Path)
	}
	b, err := os.ReadFile(builds)
	require.NoError(t, err)
	require.Equal(t, "x\n", string(b), "two processes that ask at once build once")
	require.True(t, devserver.Ready(o))
}

func TestBuildReportsWhatTheCompilerSaid(t *testing.T) {
	fakeGo(t, `echo '# example.com/pkg' >&2; echo './main.go:3:1: syntax error' >&2; exit 1`)
	o := devserver.Options{CacheDir: t.TempDir()}
	_, err := devserver.Find(t.Context(), o)
	require.ErrorContains(t, err, "main.go:3:1: syntax error")
	require.False(t, devserver.Ready(o))
}
