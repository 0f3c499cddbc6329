package oci_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/hub/source/oci"
	"github.com/capstan-cd/capstan/hub/source/sourcetest"
	"github.com/capstan-cd/capstan/integration/rigs/registry"
)

// The registry is a real one; what it requires and whether it answers is decided
// in front of it.
func TestSource(t *testing.T) {
	t.Parallel()
	sourcetest.Run(t, sourcetest.Kind{
		New: func(tb testing.TB, dir string, creds func(hub.TenantID) hub.Credential) source.Source {
			tb.Helper()
			return newSource(tb, archives.Config{Dir: dir}, creds)
		},
		Origin: func(tb testing.TB) sourcetest.Origin {
			tb.Helper()
			return newOrigin(tb)
		},
		Unknown: "sha256:" + strings.Repeat("0", 64),
	})
}

func newOrigin(tb testing.TB) *origin {
	tb.Helper()
	s := chartstest.NewFront(registry.New(tb, registry.Options{Plain: true}).Host)
	tb.Cleanup(s.Close)
	return &origin{s, tb}
}

func loopback() []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} }

func newSource(tb testing.TB, cfg archives.Config, creds func(hub.TenantID) hub.Credential) *archives.Source {
	tb.Helper()
	client := charts.New(charts.Config{AllowedNetworks: loopback()}, nil)
	made, err := archives.New(cfg, oci.New(client, nil, 64<<20), secrets(creds))
	if err != nil {
		tb.Fatal(err)
	}
	return made
}

// secrets has one credential for each tenant.
type secrets func(hub.TenantID) hub.Credential

func (s secrets) Credential(_ context.Context, tenant hub.TenantID, _ hub.RepositoryID) (hub.Credential, error) {
	return s(tenant), nil
}

func (s secrets) Authorities(context.Context, hub.TenantID, string) (string, error) {
	return chartstest.Authority(), nil
}

const name = "team/app"

// An origin is a registry with the versions of one artifact.
type origin struct {
	*chartstest.Server
	testing.TB
}

func (o *origin) Hub() hub.Repository {
	repo := hub.Repository{ID: hub.NewID[hub.RepositoryID](), URL: o.OCI(name), Type: hub.OCIRepository}
	repo.Use.Targets = []hub.Target{{Revision: "1.0.0"}, {Revision: "1.1.0"}}
	return repo
}

func (o *origin) Publish(version string, files map[string]string) {
	o.Helper()
	o.push(version, chartstest.Files(files))
}

func (o *origin) push(tag string, a chartstest.Artifact) (digest string) {
	o.Helper()
	digest, err := o.Registry().Push(o.Context(), name, tag, a)
	if err != nil {
		o.Fatal(err)
	}
	return digest
}

func (o *origin) Protect() hub.Credential {
	o.Server.Protect("bob", sourcetest.Secret)
	return hub.Credential{Username: "bob", Password: sourcetest.Secret}
}
