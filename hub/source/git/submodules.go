package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/config"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/git/packstore"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxModulesFile = 256 << 10
	maxModuleDepth = 8  // submodules within submodules
	maxModules     = 64 // mirrors of submodules that one repository may have
)

// A submodule is the repository that a directory of a tree comes from. It has a
// mirror of its own, beside that of the repository, with the same owner. It is
// fetched when something in it is read.
//
// The credential of the repository is sent to the repository's own server and to
// no other. What the project does not permit is not read.

// Permitting returns the tree with a rule about the repositories of its
// submodules. Without one, all are permitted.
func (t *tree) Permitting(permit func(url string) error) hub.Tree {
	out := *t
	out.permit = permit
	return &out
}

// WithoutSubmodules returns the tree with an empty directory in the place of
// each submodule, as git leaves it where they are not fetched.
func (t *tree) WithoutSubmodules() hub.Tree {
	out := *t
	out.plain = true
	return &out
}

// empty reports whether a place is a submodule that is not read.
func (p place) empty() bool { return p.Mode == filemode.Submodule && p.t.plain }

// emptyInput is what a recorder notes of a submodule that is not read.
func emptyInput(kind hub.InputKind, name string) hub.Input {
	const nothing = "no submodules"
	switch kind {
	case hub.InputTree, hub.InputList:
		return hub.Input{Kind: kind, Path: name, Hash: nothing}
	}
	return hub.Input{Kind: hub.InputDir, Path: name}
}

// submodule opens the tree of the commit that a directory stands for.
func (t *tree) submodule(at string, commit plumbing.Hash) (*tree, error) {
	if t.depth >= maxModuleDepth {
		return nil, fault.With(fault.New(fault.Exceeded, "submodules are nested more than %d deep", maxModuleDepth), at, "use the innermost repository as a source of its own")
	}
	address, err := t.moduleURL(at)
	if err != nil {
		return nil, fault.With(err, at, "")
	}
	if t.permit != nil {
		if err := t.permit(address); err != nil {
			return nil, fault.With(fault.New(fault.KindOf(err), "it is a submodule, and %s", fault.Sentence(err)), at, "")
		}
	}
	m, repo, err := t.m.module(t.repo, address)
	if err != nil {
		return nil, fault.With(err, at, "")
	}
	ctx, cancel := t.deadline()
	defer cancel()
	c, err := m.have(ctx, repo, commit.String())
	if err != nil {
		return nil, fault.With(about(repo, err), at, "")
	}
	return &tree{m: m, repo: repo, commit: c, depth: t.depth + 1, permit: t.permit}, nil
}

// deadline bounds what a reader of a file may wait for. A file system has no
// context.
func (t *tree) deadline() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), t.m.cfg.ListTimeout+t.m.cfg.FetchTimeout)
}

// moduleURL is the normalised URL of the submodule at a directory.
func (t *tree) moduleURL(at string) (string, error) {
	root := packstore.Node{Name: ".", Mode: filemode.Dir, Hash: t.commit.Tree}
	d, err := t.m.objects.Directory(root.Hash)
	if err != nil {
		return "", t.wrong(".gitmodules", err)
	}
	n, ok := d.Find(".gitmodules")
	if !ok || n.IsDir() || n.IsLink() || n.Mode == filemode.Submodule {
		return "", fault.With(fault.New(fault.Invalid, "it is a submodule, and the repository has no file .gitmodules"), "", "add it with `git submodule add`")
	}
	obj, err := t.m.objects.Read(n.Hash, maxModulesFile)
	if errors.As(err, new(packstore.TooLargeError)) {
		return "", fault.New(fault.Exceeded, "the file .gitmodules has more than %d bytes", maxModulesFile)
	}
	if err != nil {
		return "", t.wrong(".gitmodules", err)
	}
	modules := config.NewModules()
	if err := modules.Unmarshal(obj.Data); err != nil {
		return "", fault.New(fault.Invalid, "the file .gitmodules cannot be read")
	}
	for _, s := range modules.Submodules {
		if path.Clean(s.Path) == at {
			return moduleAddress(t.repo.URL, s.URL)
		}
	}
	return "", fault.With(fault.New(fault.Invalid, "it is a submodule that the file .gitmodules does not name"), "", "add it with `git submodule add`")
}

// moduleAddress normalises the URL of a submodule, which may be relative to that
// of the repository. Only URLs of servers are accepted: a path or a helper of
// git would lead to the hub's own machine.
func moduleAddress(parent, raw string) (string, error) {
	invalid := fault.With(fault.New(fault.Invalid, "the URL of the submodule is none of a Git server over HTTPS or SSH"), "",
		"write an https:// or ssh:// URL, or one that is relative to that of the repository, into .gitmodules")
	if strings.HasPrefix(raw, "./") || strings.HasPrefix(raw, "../") {
		u, err := url.Parse(parent)
		if err != nil {
			return "", invalid
		}
		joined := path.Clean(strings.TrimPrefix(u.Path, "/") + "/" + raw)
		if joined == "." || joined == ".." || strings.HasPrefix(joined, "../") {
			return "", fault.With(fault.New(fault.Invalid, "the relative URL of the submodule leads above its server"), "", "correct it in .gitmodules")
		}
		u.Path, u.RawPath = "/"+joined, ""
		raw = u.String()
	}
	if strings.Contains(raw, "::") && !strings.Contains(raw, "[") || strings.HasPrefix(raw, "-") {
		return "", invalid
	}
	address, err := repourl.Normalize(raw)
	if err != nil {
		return "", invalid
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" && u.Scheme != "ssh" {
		return "", invalid
	}
	return address, nil
}

// module returns the mirror of a submodule, and its repository as the hub would
// know it.
func (m *mirror) module(parent hub.Repository, address string) (*mirror, hub.Repository, error) {
	repo := hub.Repository{ID: parent.ID, Tenant: parent.Tenant, URL: address, Type: hub.GitRepository, GitOptions: parent.GitOptions}
	if sameServer(parent.URL, address) {
		repo.Insecure, repo.Username = parent.Insecure, parent.Username
	}
	sum := sha256.Sum256([]byte(address))
	name := hex.EncodeToString(sum[:16])
	all := m.Mirrors
	all.mu.Lock()
	defer all.mu.Unlock()
	key := mirrorKey{m.tenant, parent.ID, name}
	got := all.all[key]
	if got == nil {
		if all.modulesOf(key) >= maxModules {
			return nil, repo, fault.With(fault.New(fault.Exceeded, "the repository has more than %d submodules", maxModules), "", "use them as sources of their own")
		}
		got = newMirror(all, m.tenant, filepath.Join(all.modules(m.tenant, parent.ID), name))
		got.parent = parent.URL
		all.all[key] = got
	}
	got.used.Store(all.clock.Now().UnixNano())
	return got, repo, nil
}

// modules is the folder of the mirrors of a repository's submodules.
func (m *Mirrors) modules(tenant hub.TenantID, repo hub.RepositoryID) string {
	return filepath.Join(m.cfg.Dir, string(tenant), string(repo)+".modules")
}

// removeModules deletes the mirrors of a repository's submodules.
func (m *Mirrors) removeModules(ctx context.Context, tenant hub.TenantID, repo hub.RepositoryID) error {
	m.mu.Lock()
	var found []*mirror
	for k, mir := range m.all {
		if k.tenant == tenant && k.repo == repo && k.module != "" {
			found = append(found, mir)
			delete(m.all, k)
		}
	}
	m.mu.Unlock()
	for _, mir := range found {
		if err := mir.enter(ctx); err != nil {
			return err
		}
		mir.disconnect()
		err := mir.wipe()
		mir.leave()
		if err != nil {
			return err
		}
	}
	return removeAll(m.modules(tenant, repo))
}

// reaches is what of a credential may be sent to a repository: everything to the
// repository that it is stored for, and nothing but the proxy is used for a
// submodule on another server.
func (m *mirror) reaches(repo hub.Repository, cred hub.Credential) hub.Credential {
	if m.parent == "" || sameServer(m.parent, repo.URL) {
		return cred
	}
	return cred.Way()
}

// sameServer reports whether two URLs lead to one server by one protocol.
func sameServer(a, b string) bool {
	x, err := url.Parse(a)
	y, err2 := url.Parse(b)
	return err == nil && err2 == nil && x.Scheme == y.Scheme && strings.EqualFold(x.Host, y.Host)
}

var _ fs.FS = (*tree)(nil)
