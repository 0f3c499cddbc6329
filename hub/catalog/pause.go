package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
)

// Pauses lists the pauses of automation that hold now and concern the caller:
// those of the tenant, of clusters that they see, and of clusters on which an
// application is that they see.
func (c *Catalog) Pauses(ctx context.Context, by hub.Caller) ([]hub.AutomationPause, error) {
	var out []hub.AutomationPause
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		values, err := r.SettingValues(ctx, hub.SettingsMap, []string{hub.PausesKey})
		if err != nil {
			return err
		}
		for _, p := range hub.ActivePauses(values[hub.PausesKey], c.parts.Service.Now()) {
			concerned, err := r.concerned(ctx, p)
			if err != nil {
				return err
			}
			if concerned {
				out = append(out, p)
			}
		}
		return nil
	})
	return out, err
}

// concerned reports whether the caller may know of a pause.
func (r *reader) concerned(ctx context.Context, p hub.AutomationPause) (bool, error) {
	if p.Cluster == "" {
		return true, nil
	}
	all, err := r.ClusterNames(ctx)
	if err != nil {
		return false, err
	}
	for _, cl := range all {
		if cl.Name != p.Cluster {
			continue
		}
		if r.seesCluster(cl) {
			return true, nil
		}
		return r.seesApplicationOf(ctx, cl.ID)
	}
	return false, nil
}

// seesApplicationOf reports whether the caller may see an application of a cluster.
func (r *reader) seesApplicationOf(ctx context.Context, cluster hub.ClusterID) (bool, error) {
	f := hub.ApplicationFilter{Clusters: []hub.ClusterID{cluster}, Limit: 100}
	f.All, f.Allowed = r.Rights.AllowedProjects(access.Applications, access.Get)
	for {
		apps, err := r.Tx.Applications(ctx, f)
		if err != nil {
			return false, err
		}
		for _, a := range apps {
			if r.Rights.Check(access.Applications, access.Get, objectOf(a)) {
				return true, nil
			}
			f.After = hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}
		}
		if len(apps) < f.Limit {
			return false, nil
		}
	}
}
