package daemon

import (
	"cmp"
	"context"
	"net/netip"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/hub/source/helmrepo"
	"github.com/capstan-cd/capstan/hub/source/oci"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
)

// indexFresh is how long an index answers what readers need without a question
// to its server.
const indexFresh = 10 * time.Second

// addArchives builds the sources of charts and OCI artifacts.
func (p *parts) addArchives(networks []netip.Prefix) error {
	p.charts = charts.New(charts.Config{AllowedNetworks: networks, Proxies: p.cfg.Sources.proxies(), Observe: p.instruments.OCI}, chartRepositories{p.db, p.tokens})
	limit := p.cfg.Sources.maxExtracted()
	p.archives = map[hub.RepositoryKind]*archives.Source{}
	for kind, origin := range map[hub.RepositoryKind]archives.Origin{
		hub.HelmRepository: helmrepo.New(p.charts, indexFresh, p.clock.Now),
		hub.OCIRepository:  oci.New(p.charts, p.cfg.Sources.OCILayerMediaTypes, cmp.Or(limit, 1<<30)),
	} {
		made, err := archives.New(archives.Config{
			Dir: filepath.Join(p.cfg.StateDir, "archives", string(kind)), Limits: archives.Limits{Bytes: limit}, Tokens: p.tokens,
		}, origin, credentials{p.db})
		if err != nil {
			return err
		}
		p.archives[kind] = made
	}
	return nil
}

// chartRepositories tells the client of chart repositories what tenants have
// registered.
type chartRepositories struct {
	db     *store.DB
	tokens archives.Tokens
}

// ChartAccess returns what opens a chart repository for applications of a project.
func (c chartRepositories) ChartAccess(ctx context.Context, tenant hub.TenantID, project, address string) (out charts.Access, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return out, fault.New(fault.Invalid, "the address of the chart repository cannot be parsed")
	}
	err = c.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		values, err := t.SettingValues(ctx, hub.CertificatesMap, []string{u.Hostname()})
		if err != nil {
			return err
		}
		out.Authorities = values[u.Hostname()]
		out.Credential, out.Insecure, err = t.AccessTo(ctx, address, project)
		if err != nil || !strings.HasPrefix(address, "oci://") {
			return err
		}
		registered, err := t.RepositoryFor(ctx, address, project)
		if out.PlainHTTP = err == nil && registered.PlainHTTP; fault.KindOf(err) == fault.Missing {
			return nil
		}
		return err
	})
	if err != nil {
		return out, err
	}
	repo := hub.Repository{URL: address, Type: hub.HelmRepository, Insecure: out.Insecure, PlainHTTP: out.PlainHTTP}
	out.Credential, err = c.tokens.Exchange(ctx, tenant, repo, out.Credential)
	return out, err
}

// ChartRepository returns the address of the chart repository that is registered
// under a name, for a project before one for all.
func (c chartRepositories) ChartRepository(ctx context.Context, tenant hub.TenantID, project, name string) (address string, err error) {
	var all []hub.Repository
	err = c.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		all, err = t.Repositories(ctx)
		return err
	})
	for _, r := range all {
		usable := r.Registered && r.Name == name && r.Type.Charts() && (r.Project == "" || r.Project == project)
		if usable && (address == "" || r.Project != "") {
			address = r.URL
		}
	}
	if err == nil && address == "" {
		err = fault.New(fault.Missing, "there is no chart repository %q", name)
	}
	return address, err
}
