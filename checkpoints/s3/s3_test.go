package s3_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/specstream/specstream/checkpoints"
	"github.com/specstream/specstream/checkpoints/s3"
	"github.com/specstream/specstream/checkpoints/storetest"
	"github.com/specstream/specstream/infra/s3server"
)

func TestMain(m *testing.M) {
	s3server.RunIfChild()
	goleak.VerifyTestMain(m)
}

const bucket = "test"

// server starts an embedded server for the test.
func server(t testing.TB, metadata string) *s3server.Child {
	t.Helper()
	c, err := s3server.Start(t.Context(), s3server.ChildConfig{Config: s3server.Config{
		Dir: t.TempDir(), AccessKey: "testkey", SecretKey: "testsecret", Buckets: []string{bucket}, Metadata: metadata,
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		require.NoError(t, c.Stop(ctx))
	})
	return c
}

func config(endpoint string) s3.Config {
	return s3.Config{Endpoint: endpoint, Bucket: bucket, AccessKey: "testkey", SecretKey: "testsecret"}
}

func open(t testing.TB, cfg s3.Config) *s3.Store {
	t.Helper()
	s, err := s3.Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// stores gives each test a prefix of its own on one server.
func stores(endpoint string) storetest.Open {
	prefixes := map[testing.TB]string{}
	return func(t testing.TB) checkpoints.Store {
		if prefixes[t] == "" {
			prefixes[t] = fmt.Sprintf("t%d", len(prefixes))
		}
		cfg := config(endpoint)
		cfg.Prefix = prefixes[t]
		return open(t, cfg)
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{s3server.Xattr, s3server.Sidecar} {
		t.Run(mode, func(t *testing.T) { storetest.Run(t, stores(server(t, mode).Endpoint())) })
	}
}

func BenchmarkStore(b *testing.B) { storetest.Bench(b, stores(server(b, "").Endpoint())) }

func TestProtocol(t *testing.T) {
	t.Parallel()
	storetest.RunProtocol(t, stores(server(t, "").Endpoint()))
}

// TestAnotherServer runs the suites against a server of the user's choice.
func TestAnotherServer(t *testing.T) {
	bucket, endpoint := os.Getenv("SPECSTREAM_TEST_S3_BUCKET"), os.Getenv("SPECSTREAM_TEST_S3_ENDPOINT")
	if bucket == "" {
		t.Skip("set SPECSTREAM_TEST_S3_BUCKET (an existing bucket to write test objects to), SPECSTREAM_TEST_S3_ENDPOINT and AWS credentials to try another server")
	}
	n := 0
	prefixes := map[testing.TB]string{}
	run := time.Now().UTC().Format("20060102-150405")
	another := func(t testing.TB) checkpoints.Store {
		if prefixes[t] == "" {
			n++
			prefixes[t] = fmt.Sprintf("specstream-test/%s/%d", run, n)
		}
		return open(t, s3.Config{Endpoint: endpoint, Region: os.Getenv("AWS_REGION"), Bucket: bucket, Prefix: prefixes[t],
			AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), SessionToken: os.Getenv("AWS_SESSION_TOKEN")})
	}
	t.Run("Store", func(t *testing.T) { storetest.Run(t, another) })
	t.Run("Protocol", func(t *testing.T) { storetest.RunProtocol(t, another) })
}
