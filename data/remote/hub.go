package remote

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/specstream/specstream"
	"github.com/specstream/specstream/data"
)

const hubScheme = "hf://"

// hubFile is a file, or a pattern of files, of a dataset repository.
type hubFile struct {
	owner, name string
	revision    string // "main" when none is named
	named       string // "@REVISION" as it was written, or empty
	path        string
}

// parseHub parses hf://datasets/OWNER/NAME[@REVISION]/PATH. A revision with
// slashes is escaped (refs%2Fconvert%2Fparquet) or one of the hub's own, which
// begin with refs/.
func parseHub(uri string) (hubFile, error) {
	bad := func(reason string) (hubFile, error) {
		return hubFile{}, &specstream.InputError{File: uri, Reason: reason, Hint: "want hf://datasets/OWNER/NAME[@REVISION]/PATH"}
	}
	rest, ok := strings.CutPrefix(uri, hubScheme+"datasets/")
	if !ok {
		return bad("is not a file of a dataset repository")
	}
	f := hubFile{revision: "main"}
	f.owner, rest, _ = strings.Cut(rest, "/")
	repo, file, _ := strings.Cut(rest, "/")
	name, revision, pinned := strings.Cut(repo, "@")
	if pinned {
		if revision == "refs" { // refs/convert/parquet, refs/pr/7
			kind, after, _ := strings.Cut(file, "/")
			number, after, _ := strings.Cut(after, "/")
			revision, file = "refs/"+kind+"/"+number, after
		}
		f.named = "@" + revision
		var err error
		if f.revision, err = url.PathUnescape(revision); err != nil || f.revision == "" {
			return bad("names a revision that is not well-formed")
		}
	}
	f.name, f.path = name, file
	switch {
	case f.owner == "" || f.name == "":
		return bad("names no repository")
	case f.path == "":
		return bad("names no file of the repository")
	}
	return f, nil
}

// resolve is the address of the file's content.
func (f hubFile) resolve(endpoint string) string {
	return fmt.Sprintf("%s/datasets/%s/%s/resolve/%s/%s", endpoint, url.PathEscape(f.owner), url.PathEscape(f.name), url.PathEscape(f.revision), escapePath(f.path))
}

func escapePath(p string) string {
	parts := strings.Split(p, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// Lister lists the files that an hf:// pattern matches; a wildcard stands for
// anything but a slash. The client and options are those of [Opener].
func Lister(httpClient *http.Client, o Options) data.Lister {
	c := newClient(httpClient, o)
	return func(ctx context.Context, pattern string) ([]string, error) {
		if !strings.HasPrefix(pattern, hubScheme) {
			return nil, &specstream.InputError{File: pattern, Reason: "a pattern of such inputs can't be listed", Hint: "name the files"}
		}
		f, err := parseHub(pattern)
		if err != nil {
			return nil, err
		}
		if _, err := path.Match(f.path, ""); err != nil {
			return nil, &specstream.InputError{File: pattern, Reason: "bad pattern", Err: err}
		}
		return c.list(ctx, pattern, f)
	}
}

// maxList is how many files of a repository are looked at.
const maxList = 1_000_000

func (c *client) list(ctx context.Context, pattern string, f hubFile) (found []string, err error) {
	folder := ""
	if i := strings.LastIndexByte(f.path[:strings.IndexAny(f.path+"*", `*?[\`)], '/'); i >= 0 {
		folder = "/" + escapePath(f.path[:i])
	}
	next := fmt.Sprintf("%s/api/datasets/%s/%s/tree/%s%s?recursive=true", c.o.Endpoint, url.PathEscape(f.owner), url.PathEscape(f.name), url.PathEscape(f.revision), folder)
	for seen := 0; next != ""; {
		var entries []struct {
			Type string `json:"type"`
			Path string `json:"path"`
		}
		link, err := c.getJSON(ctx, pattern, next, &entries)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if ok, _ := path.Match(f.path, e.Path); ok && e.Type == "file" { // the pattern is good, as seen above
				found = append(found, fmt.Sprintf("%sdatasets/%s/%s%s/%s", hubScheme, f.owner, f.name, f.named, e.Path))
			}
		}
		if seen += len(entries); seen > maxList {
			return nil, &specstream.InputError{File: pattern, Reason: fmt.Sprintf("the repository has more than %d files", maxList), Hint: "name a folder before the wildcard"}
		}
		if next, err = nextPage(next, link); err != nil {
			return nil, fmt.Errorf("list %s: %w", pattern, err)
		}
	}
	return found, nil
}

// nextPage returns the address of rel="next" in a Link header, if it is of the
// same host: the token goes with it.
func nextPage(from, link string) (string, error) {
	for _, l := range strings.Split(link, ",") {
		target, params, _ := strings.Cut(strings.TrimSpace(l), ";")
		if !strings.Contains(params, `rel="next"`) {
			continue
		}
		base, err := url.Parse(from)
		if err != nil {
			return "", err
		}
		to, err := base.Parse(strings.Trim(target, "<>"))
		if err != nil {
			return "", err
		}
		if to.Scheme != base.Scheme || to.Host != base.Host {
			return "", fmt.Errorf("the next page is on another host, %s", to.Host)
		}
		return to.String(), nil
	}
	return "", nil
}

// getJSON fetches a small document, with retries, and returns its Link header.
func (c *client) getJSON(ctx context.Context, uri, address string, v any) (link string, err error) {
	o := &object{client: c, ctx: ctx, uri: uri, url: address, token: c.o.Token, size: -1}
	defer o.Close()
	if err := o.connect(); err != nil {
		return "", err
	}
	d := json.NewDecoder(io.LimitReader(o, 64<<20))
	if err := d.Decode(v); err != nil {
		return "", fmt.Errorf("list %s: the answer is not what was expected: %w", uri, err)
	}
	return o.link, nil
}
