package remote

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/specstream/specstream/data"
)

// hub is a Hugging Face hub whose content lies on another host.
func hub(t *testing.T, cdn *server) (*httptest.Server, *[]string) {
	var mu sync.Mutex
	seen := new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		*seen = append(*seen, r.URL.EscapedPath()+"?"+r.URL.RawQuery+" "+r.Header.Get("Authorization"))
		switch {
		case r.Header.Get("Authorization") != "Bearer secret":
			w.WriteHeader(401)
		case strings.Contains(r.URL.Path, "/resolve/"):
			w.Header().Set("X-Linked-Etag", `"linked"`)
			http.Redirect(w, r, cdn.URL+"/blob?signature=s", http.StatusFound)
		case r.URL.Query().Get("cursor") == "":
			w.Header().Set("Link", `<`+"http://"+r.Host+r.URL.Path+`?recursive=true&cursor=2>; rel="next"`)
			fmt.Fprint(w, `[{"type":"directory","path":"data/deep"},{"type":"file","path":"data/b.jsonl","size":3},{"type":"file","path":"data/deep/c.jsonl"}]`)
		default:
			fmt.Fprint(w, `[{"type":"file","path":"data/a.jsonl"},{"type":"file","path":"data/README.md"}]`)
		}
	}))
	t.Cleanup(s.Close)
	return s, seen
}

func TestHub(t *testing.T) {
	cdn := serve(t, random(50_000))
	leaked := false
	cdn.fault = func(n int, _ http.ResponseWriter, r *http.Request) bool {
		leaked = leaked || r.Header.Get("Authorization") != "" || r.Header.Get("Referer") != ""
		cdn.cut = 20_000 * n
		cdn.etag = fmt.Sprintf(`"of host %d"`, n) // the hub's own tag says that it is the same
		return false
	}
	s, seen := hub(t, cdn)
	o := Options{Endpoint: s.URL + "/", Token: "secret", Backoff: time.Millisecond}
	got, err := read(t, Opener(nil, o), "hf://datasets/own er/na.me@refs/convert/parquet/data/a b.jsonl")
	require.NoError(t, err)
	require.True(t, bytes.Equal(cdn.content, got))
	require.False(t, leaked, "the token went to another host")
	require.Equal(t, "/datasets/own%20er/na.me/resolve/refs%2Fconvert%2Fparquet/data/a%20b.jsonl? Bearer secret", (*seen)[0])

	list := func(pattern string) ([]string, error) {
		return data.Expand(t.Context(), []string{pattern}, Lister(nil, o))
	}
	files, err := list("hf://datasets/o/n/data/*.jsonl")
	require.NoError(t, err)
	require.Equal(t, []string{"hf://datasets/o/n/data/a.jsonl", "hf://datasets/o/n/data/b.jsonl"}, files)
	require.Contains(t, *seen, "/api/datasets/o/n/tree/main/data?recursive=true Bearer secret")
	files, err = list("hf://datasets/o/n@v1/*/*/c.jsonl")
	require.NoError(t, err)
	require.Equal(t, []string{"hf://datasets/o/n@v1/data/deep/c.jsonl"}, files)
	_, err = list("hf://datasets/o/n/*.csv")
	require.ErrorContains(t, err, "matches no file")
	_, err = list("hf://datasets/o/n/[a")
	require.ErrorContains(t, err, "bad pattern")
	_, err = list("ftp://host/*")
	require.ErrorContains(t, err, "can't be listed")

	o.Token = "other"
	_, err = read(t, Opener(nil, o), "hf://datasets/o/n/data/a.jsonl")
	require.ErrorContains(t, err, "set HF_TOKEN")
	http.DefaultClient.CloseIdleConnections()
}

func TestEnvironment(t *testing.T) {
	cdn := serve(t, []byte("content"))
	s, _ := hub(t, cdn)
	t.Setenv("HF_ENDPOINT", s.URL)
	t.Setenv("HF_TOKEN", "secret")
	got, err := read(t, Opener(nil, Options{}), "hf://datasets/o/n/f")
	require.NoError(t, err)
	require.Equal(t, "content", string(got))
	// A plain address gets no token, whatever its host.
	_, err = read(t, Opener(nil, Options{}), s.URL+"/datasets/o/n/resolve/main/f")
	require.ErrorContains(t, err, "access is refused")
	http.DefaultClient.CloseIdleConnections()
}

func TestNextPage(t *testing.T) {
	for _, c := range []struct{ link, want, err string }{
		{"", "", ""},
		{`<https://h/b?c=1>; rel="next"`, "https://h/b?c=1", ""},
		{`<https://h/z>; rel="prev", </b>; rel="next"`, "https://h/b", ""},
		{`<https://other/b>; rel="next"`, "", "another host"},
		{`<http://h/b>; rel="next"`, "", "another host"},
	} {
		got, err := nextPage("https://h/a", c.link)
		require.Equal(t, c.want, got)
		if c.err != "" {
			require.ErrorContains(t, err, c.err)
		} else {
			require.NoError(t, err)
		}
	}
}
