package git

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxPointer      = 1024 // bytes; a longer file is none
	maxBatchAnswer  = 1 << 20
	maxLFSRedirects = 3
	maxLFSHeaders   = 20
	lfsMedia        = "application/vnd.git-lfs+json"
)

// LFSWarning reports whether a file is a Git LFS pointer, and the sentence to
// warn with. Pointers of a repository without enableLfs are served as they are.
func LFSWarning(name string, data []byte) (warning string, pointer bool) {
	if _, ok := readPointer(data); !ok {
		return "", false
	}
	return fmt.Sprintf("%s is a Git LFS pointer; its content is fetched only if the repository has enableLfs", name), true
}

// A pointer stands for a file that is stored by an LFS server.
type pointer struct {
	oid  string // SHA-256, 64 hexadecimal digits
	size int64
}

// readPointer reads a pointer in the form of the specification of Git LFS.
func readPointer(data []byte) (p pointer, ok bool) {
	if len(data) > maxPointer || !bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/")) {
		return p, false
	}
	for line := range strings.Lines(string(data)) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "oid":
			p.oid = strings.TrimPrefix(value, "sha256:")
		case "size":
			n, err := strconv.ParseInt(value, 10, 63)
			if err != nil || n < 0 {
				return p, false
			}
			p.size = n
		}
	}
	return p, len(p.oid) == 64 && isHex(p.oid)
}

// large returns the content that a pointer stands for.
func (t *tree) large(p pointer, name string) ([]byte, error) {
	if p.size > t.m.cfg.MaxFile {
		return nil, fault.With(fault.New(fault.Exceeded, "the file has %d bytes in LFS, and at most %d are read", p.size, t.m.cfg.MaxFile), name, "keep large files out of the source's path")
	}
	if data, ok := t.m.storedLarge(p); ok {
		return data, nil
	}
	if err := t.m.refused.find(p.oid, t.m.clock.Now()); err != nil {
		return nil, fault.With(err, name, "")
	}
	ctx, cancel := t.deadline()
	defer cancel()
	if err := t.m.enter(ctx); err != nil {
		return nil, err
	}
	defer t.m.leave()
	if data, ok := t.m.storedLarge(p); ok {
		return data, nil // somebody else was faster
	}
	data, err := t.m.fetchLarge(ctx, t.repo, p)
	if err == nil {
		err = t.m.storeLarge(p, data)
	}
	if err != nil {
		err = about(t.repo, err)
		t.m.refused.add(p.oid, t.m.clock.Now(), err)
		return nil, fault.With(err, name, "")
	}
	return data, nil
}

func (m *mirror) largeFile(p pointer) string {
	return filepath.Join(m.dir, "lfs", p.oid[:2], p.oid)
}

// storedLarge reads a file that was fetched before. One that was damaged is as
// good as none.
func (m *mirror) storedLarge(p pointer) ([]byte, bool) {
	data, err := os.ReadFile(m.largeFile(p))
	if err != nil || !p.matches(data) {
		return nil, false
	}
	return data, true
}

func (p pointer) matches(data []byte) bool {
	sum := sha256.Sum256(data)
	return int64(len(data)) == p.size && hex.EncodeToString(sum[:]) == strings.ToLower(p.oid)
}

// storeLarge writes a file beside the mirror's objects, whole or not at all.
func (m *mirror) storeLarge(p pointer, data []byte) error {
	packs, err := m.objects.Bytes()
	if err != nil {
		return fmt.Errorf("measure the mirror: %w", err)
	}
	used := packs + int64(len(data))
	err = filepath.WalkDir(filepath.Join(m.dir, "lfs"), func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			used += info.Size()
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("measure files of LFS: %w", err)
	}
	if used > m.cfg.MaxBytes {
		return failure{err: packstore.LimitError{What: "the repository with its files in LFS is too large", Limit: m.cfg.MaxBytes}}.classify()
	}
	at := m.largeFile(p)
	if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
		return failure{err: fmt.Errorf("store a file of LFS: %w", err)}.classify()
	}
	err = os.WriteFile(at+".tmp", data, 0o600)
	if err == nil {
		err = os.Rename(at+".tmp", at)
	}
	if err != nil {
		return errors.Join(failure{err: fmt.Errorf("store a file of LFS: %w", err)}.classify(), removeAll(at+".tmp"))
	}
	return nil
}

// A batch is the answer of an LFS server (Git LFS, "Batch API").
type batch struct {
	Objects []struct {
		OID     string `json:"oid"`
		Actions struct {
			Download *download `json:"download"`
		} `json:"actions"`
		Error *struct {
			Code int `json:"code"`
		} `json:"error"`
	} `json:"objects"`
}

// A download is where a file is.
type download struct {
	Href   string            `json:"href"`
	Header map[string]string `json:"header"`
}

// fetchLarge fetches one file. The server of the repository says where it is.
func (m *mirror) fetchLarge(ctx context.Context, repo hub.Repository, p pointer) ([]byte, error) {
	cred, err := m.credential(ctx, repo)
	if err != nil {
		return nil, err
	}
	if cred.Username == "" && cred.Password != "" {
		cred.Username = repo.Username
	}
	shown, err := m.exchange(ctx, repo, cred)
	if err != nil {
		return nil, err
	}
	l := &largeFetch{mirror: m, repo: repo, cred: cred, batch: strings.TrimSuffix(repo.URL, ".git") + ".git/info/lfs"}
	if repourl.IsSSH(repo.URL) {
		if err := l.authenticate(ctx); err != nil {
			return nil, l.explain(err)
		}
	} else {
		l.auth = auth(shown)
	}
	where, err := l.locate(ctx, p)
	if err != nil {
		return nil, l.explain(err)
	}
	data, err := l.download(ctx, where, p)
	if err != nil {
		return nil, l.explain(err)
	}
	if !p.matches(data) {
		return nil, fault.With(fault.New(fault.Invalid, "the LFS server sent another content than the one that was committed"), "", "check the LFS server: size or SHA-256 differ from the pointer")
	}
	return data, nil
}

// A largeFetch is the conversation about one file.
type largeFetch struct {
	*mirror
	repo   hub.Repository
	cred   hub.Credential
	auth   any
	batch  string            // address of the LFS server
	header map[string]string // that it is sent, of a server that was asked over SSH
}

func (l *largeFetch) explain(err error) error {
	return failure{repo: l.repo, cred: l.cred, timeout: l.cfg.FetchTimeout, err: err}.classify()
}

// send makes one request without following redirects. Settings of the
// repository count for its own server only.
func (l *largeFetch) send(ctx context.Context, method string, to *url.URL, header map[string]string, body []byte) (*http.Response, error) {
	repo, cred := hub.Repository{URL: to.String()}, l.cred.Way()
	if sameServer(l.repo.URL, to.String()) {
		repo, cred = l.repo, l.cred
	}
	trust, err := l.trust(ctx, repo, cred)
	if err != nil {
		return nil, err
	}
	r, err := newRemote(l.cfg, trust, nil)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, to.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request to the LFS server: %w", err)
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	req.Header.Set("User-Agent", "git-lfs/capstan")
	if a, ok := l.auth.(githttp.AuthMethod); ok && req.Header.Get("Authorization") == "" && sameServer(l.repo.URL, to.String()) {
		a.SetAuth(req)
	}
	res, err := r.http.RoundTrip(req)
	if err != nil {
		r.http.CloseIdleConnections()
		return nil, err
	}
	res.Body = &closing{res.Body, r.http.CloseIdleConnections}
	return res, nil
}

// closing is a body after which its connection ends.
type closing struct {
	io.ReadCloser
	end func()
}

func (c *closing) Close() error {
	err := c.ReadCloser.Close()
	c.end()
	return err
}

// locate asks the server of the repository where a file is.
func (l *largeFetch) locate(ctx context.Context, p pointer) (download, error) {
	u, err := url.Parse(l.batch + "/objects/batch")
	if err != nil {
		return download{}, fmt.Errorf("address of the LFS server: %w", err)
	}
	question, err := json.Marshal(map[string]any{
		"operation": "download", "transfers": []string{"basic"}, "hash_algo": "sha256", "objects": []map[string]any{{"oid": p.oid, "size": p.size}},
	})
	if err != nil {
		return download{}, fmt.Errorf("question to the LFS server: %w", err)
	}
	header := map[string]string{}
	maps.Copy(header, l.header)
	header["Accept"], header["Content-Type"] = lfsMedia, lfsMedia
	res, err := l.send(ctx, http.MethodPost, u, header, question)
	if err != nil {
		return download{}, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxBatchAnswer+1))
	var answer batch
	switch {
	case res.StatusCode != http.StatusOK:
		return download{}, lfsStatus(res.StatusCode)
	case err != nil:
		return download{}, err
	case len(body) > maxBatchAnswer || json.Unmarshal(body, &answer) != nil:
		return download{}, errLFSGarbled()
	}
	for _, o := range answer.Objects {
		switch {
		case !strings.EqualFold(o.OID, p.oid):
		case o.Error != nil:
			return download{}, lfsStatus(o.Error.Code)
		case o.Actions.Download != nil && len(o.Actions.Download.Header) <= maxLFSHeaders:
			return *o.Actions.Download, nil
		}
	}
	return download{}, errLFSGarbled()
}

func errLFSGarbled() error {
	return fault.With(fault.New(fault.Offline, "the LFS server sent an answer that cannot be understood"), "", "check the LFS server and the proxies before it")
}

// lfsStatus explains an error of an LFS server, without its text.
func lfsStatus(status int) error {
	switch {
	case status == http.StatusNotFound || status == http.StatusGone:
		return fault.With(fault.New(fault.Missing, "the LFS server does not have the file, or the Git server has no LFS (status %d)", status), "", "push it with `git lfs push --all`")
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return fault.With(fault.New(fault.Invalid, "the LFS server does not accept the credentials (status %d)", status), "", "give the account or token the right to read files of LFS")
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return fault.With(fault.New(fault.Offline, "the LFS server answers with status %d", status), "", "it is retried automatically")
	}
	return fault.With(fault.New(fault.Invalid, "the LFS server answers with status %d", status), "", "check the LFS server")
}

// download reads the file. What the server has said to send goes to the host
// that it has named, and not to another one that this redirects to.
func (l *largeFetch) download(ctx context.Context, where download, p pointer) ([]byte, error) {
	u, err := url.Parse(where.Href)
	if err != nil {
		return nil, errLFSGarbled()
	}
	header := where.Header
	for range maxLFSRedirects + 1 {
		if u.Host == "" || u.User != nil || u.Scheme != "https" && (u.Scheme != "http" || strings.HasPrefix(l.batch, "https://")) {
			return nil, fault.With(fault.New(fault.Invalid, "the LFS server names an address that is not fetched from"), "", "it must be of HTTPS, without a user name")
		}
		res, err := l.send(ctx, http.MethodGet, u, header, nil)
		if err != nil {
			return nil, err
		}
		if res.StatusCode >= 300 && res.StatusCode < 400 {
			next, err := res.Location()
			if closed := res.Body.Close(); err != nil {
				return nil, errors.Join(errLFSGarbled(), closed)
			}
			if !sameServer(u.String(), next.String()) {
				header = nil
			}
			u = next
			continue
		}
		return l.read(res, p)
	}
	return nil, fault.With(fault.New(fault.Invalid, "the LFS server redirects more than %d times", maxLFSRedirects), "", "check the LFS server")
}

func (l *largeFetch) read(res *http.Response, p pointer) ([]byte, error) {
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, lfsStatus(res.StatusCode)
	}
	data, err := io.ReadAll(io.LimitReader(res.Body, p.size+1))
	if err != nil {
		return nil, fmt.Errorf("read a file of LFS: %w", err)
	}
	return data, nil
}
