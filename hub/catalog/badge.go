package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxBadge is how many applications of projects one badge sums up. Projects with
// more have the status Unknown, because strangers may ask.
const maxBadge = 500

// A BadgeQuestion names what a badge is about: an application, or projects.
type BadgeQuestion struct {
	hub.ApplicationKey
	Projects []string // with a name: one of those that the application is in
}

// A Badge is what everybody may know where a tenant permits it (UI-24).
type Badge struct {
	Name     string // of the application; empty: there is none, or projects were asked for
	Health   hub.HealthStatus
	Sync     hub.SyncStatus
	Revision string
}

// Badge answers the status of an application, or the worst ones of projects.
// What is not there has an unknown status, like what nobody knows.
func (c *Catalog) Badge(ctx context.Context, tenant hub.Tenant, q BadgeQuestion) (Badge, error) {
	var out Badge
	by := hub.Caller{Tenant: tenant.ID, TenantName: tenant.Name, Via: hub.ViaAnonymous, Credential: hub.ViaAnonymous}
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		apps, err := r.badgeApplications(ctx, q)
		if err != nil || len(apps) == 0 {
			return err
		}
		views, err := r.views(ctx, apps)
		if err != nil {
			return err
		}
		out = badgeOf(views, c.parts.Service.Now())
		if q.Name != "" {
			out.Name, out.Revision = apps[0].Name, apps[0].Status.Revision
		}
		return nil
	})
	return out, err
}

func (r *reader) badgeApplications(ctx context.Context, q BadgeQuestion) ([]hub.Application, error) {
	if q.Name == "" {
		if len(q.Projects) == 0 {
			return nil, nil
		}
		apps, err := r.Tx.Applications(ctx, hub.ApplicationFilter{All: true, Projects: q.Projects, Limit: maxBadge + 1})
		if err != nil || len(apps) > maxBadge {
			return nil, err
		}
		return apps, nil
	}
	a, err := r.Application(ctx, q.Namespace, q.Name)
	if fault.KindOf(err) == fault.Missing || err == nil && len(q.Projects) > 0 && !slices.Contains(q.Projects, a.Project) {
		return nil, nil
	}
	return []hub.Application{a}, err
}

// badgeOf is the worst of what applications have. What is not current is unknown.
func badgeOf(views []View, now time.Time) Badge {
	out := Badge{Health: hub.Healthy, Sync: hub.Synced}
	for _, v := range views {
		shown := v.Status.Show(v.On, now)
		if shown.Sync == hub.OutOfSync || shown.Sync != hub.Synced && out.Sync == hub.Synced {
			out.Sync = shown.Sync
		}
		if badness(shown.Health) > badness(out.Health) {
			out.Health = shown.Health
		}
	}
	return out
}

// badness orders healths; the worst of applications has the largest number.
func badness(h hub.HealthStatus) int {
	return slices.Index([]hub.HealthStatus{hub.Healthy, hub.Suspended, hub.Progressing, hub.MissingHealth, hub.HealthUnknown, hub.Degraded}, h)
}
