package apitest

import (
	"context"
	"net/netip"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/inputs"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/hub/generate/scmaccess"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/shared/fault"
)

// generators are those of the product, without repositories.
func (h *Hub) generators() *inputs.Generator {
	known := setInputs{h.DB}
	ways := guard.Ways{Allowed: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	hosts := scmaccess.New(scmaccess.Config{Ways: ways}, known, nil, scm.NewCache(scm.Config{Now: h.now}))
	return inputs.New(known, nil, nil, func(tenant hub.TenantID, s hub.ApplicationSet, settings map[string]string, fresh bool) scm.Access {
		return hosts.Access(scm.Reader{Tenant: tenant, Namespace: s.Namespace, Set: s.Name, Fresh: fresh}, s.Project, settings)
	}, h.now)
}

// setInputs is the store as generators see it.
type setInputs struct{ db *store.DB }

func (s setInputs) View(ctx context.Context, tenant hub.TenantID, project string) (v inputs.View, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		v = inputs.View{}
		if project != hub.AnyProject {
			p, err := t.EffectiveProject(ctx, project)
			if err != nil {
				return err
			}
			v.Project = &p
		}
		if v.Clusters, err = t.Clusters(ctx); err != nil {
			return err
		}
		v.Settings, err = t.SettingValues(ctx, hub.ParamsMap, inputs.Settings())
		return err
	})
	return v, err
}

func (setInputs) Repository(context.Context, hub.TenantID, string, string) (hub.Repository, []hub.Ref, error) {
	return hub.Repository{}, nil, fault.New(fault.Missing, "there are no repositories")
}

func (s setInputs) GeneratorSecret(ctx context.Context, tenant hub.TenantID, name string) (values map[string]string, err error) {
	err = s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		values, err = t.GeneratorSecret(ctx, name)
		return err
	})
	return values, err
}

func (s setInputs) Authorities(ctx context.Context, tenant hub.TenantID, host string) (string, error) {
	values, err := s.db.SettingValues(ctx, tenant, hub.CertificatesMap, []string{host})
	return values[host], err
}
