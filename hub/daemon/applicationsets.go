package daemon

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/inputs"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/hub/generate/scmaccess"
	"github.com/capstan-cd/capstan/hub/metrics"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/hub/store"
)

// setInputs is the store as the generators of application sets see it.
type setInputs struct {
	credentials

	db *store.DB
}

// View returns what generators of a project may see.
func (s setInputs) View(ctx context.Context, tenant hub.TenantID, project string) (v inputs.View, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		v = inputs.View{}
		if project != hub.AnyProject {
			p, err := t.EffectiveProject(ctx, project)
			if err != nil {
				return err
			}
			v.Project = &p
			if v.PublicKeys, err = publicKeys(ctx, t, []hub.Refresh{{Project: &p}}); err != nil {
				return err
			}
		}
		if v.Clusters, err = t.Clusters(ctx); err != nil {
			return err
		}
		v.Settings, err = t.SettingValues(ctx, hub.ParamsMap, inputs.Settings())
		return err
	})
	return v, err
}

// Repository returns what sets of a project use for a URL.
func (s setInputs) Repository(ctx context.Context, tenant hub.TenantID, url, project string) (repo hub.Repository, refs []hub.Ref, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		if repo, err = t.RepositoryFor(ctx, url, project); err != nil {
			return err
		}
		refs, err = t.Refs(ctx, repo.ID)
		return err
	})
	return repo, refs, err
}

// GeneratorSecret returns the values of a Secret of generators.
func (s setInputs) GeneratorSecret(ctx context.Context, tenant hub.TenantID, name string) (values map[string]string, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		values, err = t.GeneratorSecret(ctx, name)
		return err
	})
	return values, err
}

// addGenerators builds what generates application sets.
func (p *parts) addGenerators() error {
	networks, err := p.allowedNetworks()
	if err != nil {
		return err
	}
	known := setInputs{credentials{p.db}, p.db}
	hosts := scmaccess.New(scmaccess.Config{Ways: guard.Ways{Allowed: networks}}, known, p.tokens, scm.NewCache(scm.Config{Observer: hostCalls{p.instruments}}))
	p.generators = inputs.New(known, p.sources, p.mirrors, func(tenant hub.TenantID, s hub.ApplicationSet, settings map[string]string, fresh bool) scm.Access {
		return hosts.Access(scm.Reader{Tenant: tenant, Namespace: s.Namespace, Set: s.Name, Fresh: fresh}, s.Project, settings)
	}, time.Now)
	return nil
}

// hostCalls shows requests of generators to Git hosts in the metrics (AGEN-18).
type hostCalls struct{ to *metrics.Metrics }

// SCMCall counts a request.
func (h hostCalls) SCMCall(c scm.Call) {
	h.to.HostCall(metrics.HostCall{
		Tenant: string(c.Tenant), Namespace: c.Namespace, Set: c.Set, Kind: c.Kind, Method: c.Method, Endpoint: c.Endpoint, Status: c.Status, Took: c.Took,
		Limited: c.Limit.Known, Limit: c.Limit.Limit, Remaining: c.Limit.Remaining, Used: c.Limit.Used, Reset: c.Limit.Reset, Resource: c.Limit.Resource,
	})
}
