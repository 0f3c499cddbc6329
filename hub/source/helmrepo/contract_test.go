package helmrepo_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/hub/source/helmrepo"
	"github.com/capstan-cd/capstan/hub/source/sourcetest"
	"github.com/capstan-cd/capstan/integration/rigs/registry"
)

func TestSource(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Kind{
		New: func(tb testing.TB, dir string, creds func(hub.TenantID) hub.Credential) source.Source {
			tb.Helper()
			return newSource(tb, dir, secrets{creds})
		},
		Origin: func(tb testing.TB) sourcetest.Origin {
			tb.Helper()
			s := chartstest.NewRepository()
			tb.Cleanup(s.Close)
			return &origin{s}
		},
		Unknown: "9.9.9",
	})
}

// The registry is a real one; what it requires and whether it answers is decided
// in front of it.
func TestSourceOfARegistry(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Kind{
		New: func(tb testing.TB, dir string, creds func(hub.TenantID) hub.Credential) source.Source {
			tb.Helper()
			return newSource(tb, dir, secrets{creds})
		},
		Origin: func(tb testing.TB) sourcetest.Origin {
			tb.Helper()
			s := chartstest.NewFront(registry.New(tb, registry.Options{Plain: true}).Host)
			tb.Cleanup(s.Close)
			return &registryOrigin{origin{s}, tb}
		},
		Unknown: "9.9.9",
	})
}

// A registryOrigin is a registry with the versions of one chart.
type registryOrigin struct {
	origin
	testing.TB
}

func (o *registryOrigin) Hub() hub.Repository {
	repo := o.origin.Hub()
	repo.URL = o.OCI("team/charts")
	return repo
}

func (o *registryOrigin) Publish(version string, files map[string]string) {
	o.Helper()
	if _, err := o.Server.Push(o.Context(), "team/charts", name, version, files); err != nil {
		o.Fatal(err)
	}
}

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

func newSource(tb testing.TB, dir string, s archives.Secrets) *archives.Source {
	tb.Helper()
	client := charts.New(charts.Config{AllowedNetworks: loopback()}, nil)
	made, err := archives.New(archives.Config{Dir: dir}, helmrepo.New(client, 10*time.Second, time.Now), s)
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

// secrets has one credential for each tenant. The servers of a test share one
// authority, as the test library makes it.
type secrets struct {
	of func(hub.TenantID) hub.Credential
}

func (s secrets) Credential(_ context.Context, tenant hub.TenantID, _ hub.RepositoryID) (hub.Credential, error) {
	return s.of(tenant), nil
}

func (s secrets) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return chartstest.Authority(), nil
}

// name is that of the chart in the tests of the contract.
const name = "app"

// An origin is a chart repository whose versions are those of one chart.
type origin struct{ *chartstest.Server }

func (o *origin) Hub() hub.Repository {
	repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: o.URL, Type: hub.HelmRepository}
	repo.Use.Target.Chart = name
	for _, v := range []string{"1.0.0", "1.1.0"} {
		repo.Use.Targets = append(repo.Use.Targets, hub.Target{Chart: name, Revision: v})
	}
	return repo
}

func (o *origin) Publish(version string, files map[string]string) {
	o.Server.Publish(name, version, files)
}

func (o *origin) Protect() hub.Credential {
	o.Server.Protect("bob", sourcetest.Secret)
	return hub.Credential{Username: "bob", Password: sourcetest.Secret}
}
