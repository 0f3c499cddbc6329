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
	conn    *connection
	tenant  hub.TenantID
	project string
}

func (r *httpRepository) choose(ctx context.Context, ref hub.ChartRef) (choice, error) {
	i, err := r.index(ctx, ref.Repository)
	if err != nil {
		return choice{}, err
	}
	all, err := i.versions(ref.Name)
	switch {
	case errors.Is(err, errNoEntry):
		return choice{}, fault.With(fault.New(fault.Invalid, "the chart repository %s has no chart %q", ref.Repository, ref.Name), "", "correct the chart's name or the repository")
	case err != nil:
		return choice{}, explain("the index of "+ref.Repository, err)
	}
	var served []published
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
	what := fmt.Sprintf("the chart %s %s at %s", ref.Name, pick.version, repourl.Redact(pick.address))
	res, err := r.get(ctx, pick.address, nil)
	if err != nil {
		return nil, explain(what, err)
	}
	defer func() { _ = res.Body.Close() }() // nothing was written
	if res.StatusCode != http.StatusOK {
		return nil, answered(what, res.StatusCode)
	}
	return readAtMost(ctx, what, res.Body, r.cfg.ArchiveBytes)
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

func (r *httpRepository) get(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fault.New(fault.Invalid, "the address cannot be parsed")
	}
	for name, values := range header {
		req.Header[name] = values
	}
	r.conn.authorize(req)
	return r.conn.http.Do(req)
}

// index returns the repository's index; one that is known is requested
// conditionally.
func (r *httpRepository) index(ctx context.Context, repository string) (index, error) {
	k := key{r.tenant, r.project, repository}
	old, known := r.indices.Get(k)
	if known && r.cfg.Now().Sub(old.checked) < r.cfg.Fresh {
		return old, nil
	}
	select {
	case r.loading <- struct{}{}:
		defer func() { <-r.loading }()
	case <-ctx.Done():
		return index{}, explain("the index of "+repository, ctx.Err())
	}
	// Another one may have read it meanwhile.
	if old, known = r.indices.Get(k); known && r.cfg.Now().Sub(old.checked) < r.cfg.Fresh {
		return old, nil
	}
	got, err := r.readIndex(ctx, repository, old, known)
	if err != nil {
		return index{}, err
	}
	got.checked = r.cfg.Now()
	r.indices.Put(k, got, int64(len(got.packed)))
	return got, nil
}

func (r *httpRepository) readIndex(ctx context.Context, repository string, old index, known bool) (index, error) {
	what := "the index of " + repository
	header := http.Header{}
	if known && old.etag != "" {
		header.Set("If-None-Match", old.etag)
	}
	if known && old.modified != "" {
		header.Set("If-Modified-Since", old.modified)
	}
	res, err := r.get(ctx, strings.TrimSuffix(repository, "/")+"/index.yaml", header)
	if err != nil {
		return index{}, explain(what, err)
	}
	defer func() { _ = res.Body.Close() }() // nothing was written
	switch {
	case res.StatusCode == http.StatusNotModified && known:
		return old, nil
	case res.StatusCode != http.StatusOK:
		return index{}, answered(what, res.StatusCode)
	}
	text, err := readAtMost(ctx, what, res.Body, r.cfg.IndexBytes)
	if err != nil {
		return index{}, err
	}
	packed, err := packIndex(text)
	return index{packed: packed, etag: res.Header.Get("ETag"), modified: res.Header.Get("Last-Modified")}, err
}
