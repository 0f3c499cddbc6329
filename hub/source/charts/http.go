package charts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// An httpRepository is a chart repository: an index.yaml and archives that it
// names.
type httpRepository struct {
	*Client
	conn    *Connection
	tenant  hub.TenantID
	project string
}

func (r *httpRepository) choose(ctx context.Context, ref hub.ChartRef) (choice, error) {
	i, err := r.index(ctx, ref.Repository)
	if err != nil {
		return choice{}, err
	}
	all, err := i.Versions(ref.Name)
	if err != nil {
		return choice{}, noEntry(ref, err)
	}
	return r.conn.choose(ref, all)
}

// noEntry explains why an index does not say what versions a chart has.
func noEntry(ref hub.ChartRef, err error) error {
	if errors.Is(err, errNoEntry) {
		return fault.With(fault.Wrap(fault.Invalid, ErrNone, "the chart repository %s has no chart %q", ref.Repository, ref.Name), "", "correct the chart's name or the repository")
	}
	return explain("the index of "+ref.Repository, err)
}

// choose finds the version of a ref among those that an index has.
func (c *Connection) choose(ref hub.ChartRef, all []Published) (choice, error) {
	var served []Published
	var versions []string
	for _, p := range all {
		if len(p.URLs) > 0 {
			served, versions = append(served, p), append(versions, p.Version)
		}
	}
	place, err := pick(ref, versions)
	if err != nil {
		return choice{}, err
	}
	found := served[place]
	address, err := archiveAddress(ref.Repository, found.URLs[0])
	if err != nil {
		return choice{}, err
	}
	out := choice{version: found.Version, address: address}
	if digest := strings.ToLower(strings.TrimPrefix(found.Digest, "sha256:")); len(digest) == 64 {
		out.digest = "sha256:" + digest
	}
	return out, nil
}

// archiveAddress is the address of an archive, which an index may write
// relative to itself.
func archiveAddress(repository, written string) (string, error) {
	base, err := url.Parse(strings.TrimSuffix(repository, "/") + "/")
	if err != nil {
		return "", fault.New(fault.Invalid, "the address %q cannot be parsed", repourl.Redact(repository))
	}
	at, err := base.Parse(written)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.User != nil {
		return "", fault.With(fault.New(fault.Invalid, "the index of %s names the archive %q, which is no address of one", repository, repourl.Redact(short(written))), "", "correct the index")
	}
	if base.Scheme == "https" && at.Scheme != "https" {
		return "", fault.With(fault.New(fault.Invalid, "the index of %s leads from https to http", repository), "", "correct the index")
	}
	return at.String(), nil
}

func (r *httpRepository) fetch(ctx context.Context, ref hub.ChartRef, pick choice) ([]byte, error) {
	return r.conn.archive(ctx, ref, pick, false)
}

// archive reads an archive that an index names. Anywhere sends the credential
// also to another host.
func (c *Connection) archive(ctx context.Context, ref hub.ChartRef, pick choice, anywhere bool) ([]byte, error) {
	what := fmt.Sprintf("the chart %s %s at %s", ref.Name, pick.version, repourl.Redact(pick.address))
	res, err := c.get(ctx, pick.address, nil, anywhere)
	if err != nil {
		return nil, explain(what, err)
	}
	defer func() { _ = res.Body.Close() }() // nothing was written
	if res.StatusCode != http.StatusOK {
		return nil, c.answered(what, res.StatusCode)
	}
	return readAtMost(ctx, what, res.Body, c.cfg.ArchiveBytes)
}

// readAtMost reads an answer of a bounded size. A server that notices the
// timeout may end its answer regularly, so its end does not prove that it is
// complete.
func readAtMost(ctx context.Context, what string, from io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, most+1))
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, explain(what, err)
	}
	if int64(len(data)) > most {
		return nil, fault.New(fault.Exceeded, "%s has more than %d bytes", what, most)
	}
	return data, nil
}

func (c *Connection) get(ctx context.Context, address string, header http.Header, anywhere bool) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address cannot be parsed")
	}
	for name, values := range header {
		req.Header[name] = values
	}
	c.authorize(req, anywhere)
	return c.http.Do(req)
}

// index returns the repository's index; one that is known is requested
// conditionally.
func (r *httpRepository) index(ctx context.Context, repository string) (Index, error) {
	k := key{r.tenant, r.project, repository}
	old, known := r.indices.Get(k)
	if known && r.cfg.Now().Sub(old.checked) < r.cfg.Fresh {
		return old, nil
	}
	select {
	case r.loading <- struct{}{}:
		defer func() { <-r.loading }()
	case <-ctx.Done():
		return Index{}, explain("the index of "+repository, ctx.Err())
	}
	// Another one may have read it meanwhile.
	if old, known = r.indices.Get(k); known && r.cfg.Now().Sub(old.checked) < r.cfg.Fresh {
		return old, nil
	}
	got, err := r.conn.Index(ctx, old)
	if err != nil {
		return Index{}, err
	}
	got.checked = r.cfg.Now()
	r.indices.Put(k, got, int64(len(got.Packed)))
	return got, nil
}

// Index reads the repository's index. One that is known, and has not changed,
// is returned as it is.
func (c *Connection) Index(ctx context.Context, old Index) (Index, error) {
	what := "the index of " + c.address
	header := http.Header{}
	if old.ETag != "" {
		header.Set("If-None-Match", old.ETag)
	}
	if old.Modified != "" {
		header.Set("If-Modified-Since", old.Modified)
	}
	res, err := c.get(ctx, strings.TrimSuffix(c.address, "/")+"/index.yaml", header, false)
	if err != nil {
		return Index{}, explain(what, err)
	}
	defer func() { _ = res.Body.Close() }() // nothing was written
	switch {
	case res.StatusCode == http.StatusNotModified && len(old.Packed) > 0:
		return old, nil
	case res.StatusCode != http.StatusOK:
		return Index{}, c.answered(what, res.StatusCode)
	}
	text, err := readAtMost(ctx, what, res.Body, c.cfg.IndexBytes)
	if err != nil {
		return Index{}, err
	}
	packed, err := packIndex(text)
	return Index{Packed: packed, ETag: res.Header.Get("ETag"), Modified: res.Header.Get("Last-Modified")}, err
}
