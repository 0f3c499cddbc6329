package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// gitChild is the word with which this program starts itself for one step of
// the hub's way.
const gitChild = "git-child"

// A gitOrder says what a child does.
type gitOrder struct{ Step, URL, Dir, Key, KnownHosts string }

const (
	gitTenant = hub.TenantID("018f3c6e-0000-7000-8000-000000000001")
	gitRepo   = hub.RepositoryID("018f3c6e-0000-7000-8000-000000000002")
)

// orderCredentials are those of an order.
type orderCredentials struct{ order gitOrder }

func (c orderCredentials) Credential(context.Context, hub.TenantID, hub.RepositoryID) (hub.Credential, error) {
	return hub.Credential{}, nil
}

func (c orderCredentials) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return "", nil
}

func (c orderCredentials) HostKeys(context.Context, hub.TenantID) ([]hub.HostKey, error) {
	return hub.ParseKnownHosts(c.order.KnownHosts)
}

// runGitChild does one step and prints what it took. The mirror is on disk;
// everything else begins anew, as after a restart of the hub.
func runGitChild(ctx context.Context, in io.Reader, out io.Writer) error {
	var o gitOrder
	if err := json.NewDecoder(in).Decode(&o); err != nil {
		return err
	}
	m, err := git.New(git.Config{Dir: o.Dir, AllowedNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		orderCredentials{o}, lifecycle.System{}, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	url, err := repourl.Normalize(o.URL)
	if err != nil {
		return err
	}
	repo := hub.Repository{ID: gitRepo, Tenant: gitTenant, URL: url, Type: "git", Username: repourl.SSHUser(o.URL)}
	cred := hub.Credential{}
	if repourl.IsSSH(url) {
		cred.SSHPrivateKey = o.Key
	}
	fetch := func() ([]hub.Ref, error) { return m.Fetch(ctx, gitTenant, repo, cred) }
	tree := func() (hub.Tree, error) {
		refs, err := fetch()
		if err != nil {
			return nil, err
		}
		for _, r := range refs {
			if r.Name == "refs/heads/main" {
				return m.Tree(ctx, gitTenant, repo, r.Commit)
			}
		}
		return nil, errors.New("there is no main")
	}
	var work func() error
	switch o.Step {
	case "first", "push":
		work = func() error { _, err := fetch(); return err }
	case "unchanged":
		if _, err := fetch(); err != nil {
			return err
		}
		work = func() error { _, err := fetch(); return err }
	case "tree":
		t, err := tree()
		if err != nil {
			return err
		}
		work = func() error { return walkAll(t) }
	case "files":
		t, err := tree()
		if err != nil {
			return err
		}
		work = func() error { return readSome(t) }
	default:
		return fmt.Errorf("there is no step %q", o.Step)
	}
	before, begin := usage(), time.Now()
	if err := work(); err != nil {
		return err
	}
	c := cost{Wall: time.Since(begin), CPU: usage() - before}
	stop, cancel := context.WithCancel(ctx)
	cancel()
	if err := m.Run(stop); err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(c)
}

func usage() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// walkAll lists every name with its hash, as git ls-tree -r does.
func walkAll(t hub.Tree) error {
	return fs.WalkDir(t, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		_, err = t.Input(hub.InputFile, name)
		return err
	})
}

// readSome reads the files of one application.
func readSome(t hub.Tree) error {
	for _, repo := range []string{"files", "history"} {
		read := 0
		for _, name := range someFiles(repo) {
			if _, err := t.ReadFile(name); err == nil {
				read++
			}
		}
		if read == filesPerApp {
			return nil
		}
	}
	return errors.New("the files are not there")
}
