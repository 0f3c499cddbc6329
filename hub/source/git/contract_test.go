package git_test

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/hub/source/sourcetest"
	"github.com/capstan-cd/capstan/integration/rigs/gittest"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

func TestSource(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Kind{New: newSource, Origin: newOrigin, Unknown: "0123456789abcdef0123456789abcdef01234567"})
}

func newSource(tb testing.TB, dir string, creds func(hub.TenantID) hub.Credential) source.Source {
	tb.Helper()
	cfg := git.Config{Dir: dir, AllowedNetworks: gittest.Loopback(), ListTimeout: gittest.AnswerTimeout}
	m, err := git.New(cfg, stored{of: creds}, lifecycle.System{}, slog.New(slog.DiscardHandler))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { gittest.CloseMirrors(tb, m) })
	return m
}

// stored returns a tenant's credential for all its repositories.
type stored struct {
	gittest.NoCredentials
	of func(hub.TenantID) hub.Credential
}

func (s stored) Credential(_ context.Context, tenant hub.TenantID, _ hub.RepositoryID) (hub.Credential, error) {
	return s.of(tenant), nil
}

// origin is a repository whose versions are tags, and of which main is the
// newest.
type origin struct{ *gittest.Repo }

func newOrigin(tb testing.TB) sourcetest.Origin {
	tb.Helper()
	return origin{gittest.New(tb).Repo("app")}
}

func (o origin) Publish(version string, files map[string]string) {
	commit := o.CommitOn("refs/heads/main", "none", version, files)
	o.Git("", "tag", "--annotate", "--message", version, version, commit)
}

func (o origin) Protect() hub.Credential {
	o.Set(sourcetest.Secret, nil)
	return hub.Credential{Username: "bob", Password: sourcetest.Secret}
}

func (o origin) Stall() (requests <-chan struct{}, release func()) {
	arrived, released := make(chan struct{}, 100), make(chan struct{})
	o.Set("", func(_ http.ResponseWriter, r *http.Request) bool {
		arrived <- struct{}{}
		select {
		case <-released:
		case <-r.Context().Done():
		}
		return false
	})
	return arrived, sync.OnceFunc(func() { close(released) })
}

func (o origin) Break() {
	o.Set("", func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
}
