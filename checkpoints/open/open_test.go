package open_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/checkpoints/file"
	"github.com/specstream/specstream/checkpoints/mem"
	"github.com/specstream/specstream/checkpoints/open"
	"github.com/specstream/specstream/checkpoints/s3"
)

func TestStore(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, v := range []string{"SPECSTREAM_S3_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"} {
		t.Setenv(v, "")
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	for _, c := range []struct{ uri, dir string }{
		{"file://" + filepath.Join(here, "a b"), "a b"}, {"file:" + filepath.Join(here, "c"), "c"}, {"file://localhost" + filepath.Join(here, "d%20e"), "d e"},
		{"rel/ative", "rel/ative"}, {filepath.Join(here, "abs"), "abs"}, {"./with:colon", "with:colon"},
	} {
		t.Run(c.uri, func(t *testing.T) {
			s, err := open.Store(t.Context(), c.uri)
			require.NoError(t, err)
			require.Equal(t, filepath.Join(here, c.dir), s.(*file.Store).Dir())
		})
	}
	t.Run("mem", func(t *testing.T) {
		a, err := open.Store(t.Context(), "mem:")
		require.NoError(t, err)
		b, err := open.Store(t.Context(), "mem:")
		require.NoError(t, err)
		require.NotSame(t, a, b)
		c, err := open.Store(t.Context(), "mem:name")
		require.NoError(t, err)
		require.Same(t, mem.Shared("name"), c)
	})
	t.Run("s3", func(t *testing.T) {
		s, err := open.Store(t.Context(), "s3://bucket/some/prefix/")
		require.NoError(t, err)
		require.Equal(t, "s3://bucket/some/prefix", s.(*s3.Store).URI())
		s, err = open.Store(t.Context(), "s3://bucket")
		require.NoError(t, err)
		require.Equal(t, "s3://bucket", s.(*s3.Store).URI())
	})
	for _, uri := range []string{"", "s3:", "s3://", "s3://user:pw@bucket/x", "s3://bucket/a?x=1", "s3://bucket/../up", "s3://bucket:80/x",
		"file://host/dir", "file:", "gs://bucket", "http://host/", "s4:x"} {
		t.Run("refuses "+uri, func(t *testing.T) {
			_, err := open.Store(t.Context(), uri)
			require.True(t, specstream.BadInput(err), "%v", err)
		})
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("AWS_ENDPOINT_URL", "http://generic")
	t.Setenv("AWS_ENDPOINT_URL_S3", "")
	t.Setenv("SPECSTREAM_S3_ENDPOINT", "")
	t.Setenv("AWS_REGION", "eu-north-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_SESSION_TOKEN", "token")
	require.Equal(t, s3.Config{Endpoint: "http://generic", Region: "eu-north-1", AccessKey: "key", SecretKey: "secret", SessionToken: "token"}, open.S3Config())
	t.Setenv("AWS_ENDPOINT_URL_S3", "http://s3")
	require.Equal(t, "http://s3", open.S3Config().Endpoint)
	t.Setenv("SPECSTREAM_S3_ENDPOINT", "http://ours")
	require.Equal(t, "http://ours", open.S3Config().Endpoint)
	t.Setenv("SPECSTREAM_S3_ENDPOINT", "not a url")
	_, err := open.Store(t.Context(), "s3://bucket")
	require.True(t, specstream.BadInput(err), "%v", err)
}
