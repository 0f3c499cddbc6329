package catalog

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Lifetimes of join tokens.
const (
	joinLifetime    = time.Hour
	maxJoinLifetime = 7 * 24 * time.Hour
)

func (r *reader) seesCluster(c hub.Cluster) bool {
	return r.Rights.CheckAny(access.Clusters, access.Get, validation.ClusterNames(c)...)
}

// Clusters lists the clusters that the caller may see.
func (c *Catalog) Clusters(ctx context.Context, by hub.Caller) ([]hub.Cluster, string, error) {
	var out []hub.Cluster
	var cursor string
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Clusters, access.Get); err != nil {
			return err
		}
		var err error
		if cursor, err = r.cursor(ctx); err != nil {
			return err
		}
		all, err := r.Tx.Clusters(ctx)
		for _, cl := range all {
			if r.seesCluster(cl) {
				out = append(out, cl)
			}
		}
		return err
	})
	return out, cursor, err
}

// Cluster returns one cluster with its enrolments, newest first.
func (c *Catalog) Cluster(ctx context.Context, by hub.Caller, name string) (hub.Cluster, []hub.Enrolment, error) {
	var cl hub.Cluster
	var invitations []hub.Enrolment
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		var err error
		if cl, err = r.Tx.Cluster(ctx, name); err != nil {
			return transact.Hide(err, access.Clusters, validation.Shorten(name))
		}
		if !r.seesCluster(cl) {
			return transact.Missing(access.Clusters, validation.Shorten(name))
		}
		invitations, err = r.Enrolments(ctx, cl.ID)
		return err
	})
	return cl, invitations, err
}

// ClusterCounts returns numbers about these clusters, which the caller may see,
// or about all of those.
func (c *Catalog) ClusterCounts(ctx context.Context, by hub.Caller, want []hub.ClusterID) (map[hub.ClusterID]hub.ClusterCounts, error) {
	var out map[hub.ClusterID]hub.ClusterCounts
	err := c.read(ctx, by, func(ctx context.Context, r *reader) (err error) {
		if err := r.May(access.Clusters, access.Get); err != nil {
			return err
		}
		out, err = r.Tx.ClusterCounts(ctx, want)
		return err
	})
	return out, err
}

// ClustersByID returns those of the clusters that the caller may see.
func (c *Catalog) ClustersByID(ctx context.Context, by hub.Caller, ids []hub.ClusterID) (map[hub.ClusterID]hub.Cluster, error) {
	out := map[hub.ClusterID]hub.Cluster{}
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		found, err := r.Tx.ClustersByID(ctx, unique(ids))
		for id, cl := range found {
			if r.seesCluster(cl) {
				out[id] = cl
			}
		}
		return err
	})
	return out, err
}

// An Invitation is a cluster with the token that lets its agent in, once.
type Invitation struct {
	Cluster   hub.Cluster
	Token     string
	ExpiresAt time.Time
}

// Enroll makes a cluster, or takes an existing one, and a join token for its
// agent. Labels and server nil leave an existing cluster's as they are, and so
// does scope.
func (c *Catalog) Enroll(ctx context.Context, by hub.Caller, cl hub.Cluster, scope *hub.ClusterScope, lifetime string) (Invitation, error) {
	if scope != nil {
		cl.ClusterScope = *scope
	}
	if err := validation.CheckCluster(cl); err != nil {
		return Invitation{}, err
	}
	lasts, err := validation.BoundedDuration(lifetime, joinLifetime, maxJoinLifetime)
	if err != nil {
		return Invitation{}, err
	}
	token, prefix, hash, err := c.parts.Inviter.Invite()
	if err != nil {
		return Invitation{}, err
	}
	out := Invitation{Token: token}
	err = c.write(ctx, by, func(ctx context.Context, w *writer) error {
		made, _, err := w.putCluster(ctx, cl, clusterPut{enroll: true, keepScope: scope == nil})
		if err != nil {
			return err
		}
		out.Cluster, out.ExpiresAt = made, w.Now.Add(lasts)
		_, err = w.CreateEnrolment(ctx, hub.Enrolment{Cluster: made.ID, Prefix: prefix, ExpiresAt: out.ExpiresAt, CreatedBy: by.Username}, hash)
		w.Note("enroll", access.Clusters, made.Name, "", nil, map[string]any{"prefix": prefix, "expiresAt": out.ExpiresAt})
		return err
	})
	return out, err
}

// A clusterPut says how a cluster is put.
type clusterPut struct {
	enroll    bool // with a join token
	keepScope bool // an existing cluster keeps its scope
}

// putCluster makes a cluster or merges what is given into the one of that
// name.
func (w *writer) putCluster(ctx context.Context, cl hub.Cluster, o clusterPut) (hub.Cluster, transact.Outcome, error) {
	old, err := w.Tx.Cluster(ctx, cl.Name)
	if fault.KindOf(err) == fault.Missing {
		if err := w.Need(access.Clusters, access.Create, validation.ClusterNames(cl)...); err != nil {
			return cl, "", err
		}
		made, err := w.CreateCluster(ctx, cl)
		if err != nil {
			return cl, "", err
		}
		w.Note(access.Create, access.Clusters, cl.Name, "", nil, clusterText(made))
		if err := tenancy.Redeliver(ctx, w.Reader, w.Changes, func(all []hub.Cluster) []hub.Cluster { return validation.WithoutCluster(all, made.ID) }); err != nil {
			return cl, "", err
		}
		return made, transact.Created, w.resettle(ctx, made)
	}
	if err != nil {
		return cl, "", err
	}
	if !w.seesCluster(old) {
		return cl, "", w.Refuse(access.Clusters, access.Create, cl.Name, transact.Denied(access.Rule{Resource: access.Clusters, Action: access.Create, Object: cl.Name}))
	}
	action := access.Update
	if o.enroll {
		action = access.Create // a join token takes the place of the present agent
	}
	if err := w.Need(access.Clusters, action, validation.ClusterNames(old)...); err != nil {
		return cl, "", err
	}
	if cl.Server == "" {
		cl.Server = old.Server
	}
	if cl.Labels == nil {
		cl.Labels = old.Labels
	}
	if cl.Annotations == nil {
		cl.Annotations = old.Annotations
	}
	if o.keepScope {
		cl.ClusterScope = old.ClusterScope
	}
	return w.changeCluster(ctx, old, cl, 0)
}

func (w *writer) changeCluster(ctx context.Context, old, cl hub.Cluster, expect int64) (hub.Cluster, transact.Outcome, error) {
	if old.Project != cl.Project { // it is to be called otherwise
		if err := w.Need(access.Clusters, access.Update, validation.ClusterNames(cl)...); err != nil {
			return cl, "", err
		}
	}
	if old.Server == cl.Server && old.ClusterScope.Same(cl.ClusterScope) && validation.SameMap(old.Labels, cl.Labels) && validation.SameMap(old.Annotations, cl.Annotations) {
		return old, transact.Unchanged, nil
	}
	now := old
	now.Server, now.Labels, now.Annotations, now.ClusterScope = cl.Server, cl.Labels, cl.Annotations, cl.ClusterScope
	stored, err := w.UpdateCluster(ctx, now, expect)
	if err != nil {
		return cl, "", err
	}
	w.Note(access.Update, access.Clusters, old.Name, "", clusterText(old), clusterText(stored))
	if old.Skips() != stored.Skips() || !old.Limits(stored.ClusterScope) {
		if err := w.refreshCluster(ctx, stored.ID); err != nil {
			return cl, "", err
		}
	}
	if old.Server == stored.Server {
		return stored, transact.Configured, nil
	}
	if err := tenancy.Redeliver(ctx, w.Reader, w.Changes, func(all []hub.Cluster) []hub.Cluster { return validation.WithCluster(all, old) }); err != nil {
		return cl, "", err
	}
	return stored, transact.Configured, w.resettle(ctx, stored, old.Server)
}

// refreshCluster has all applications on a cluster looked at anew.
func (w *writer) refreshCluster(ctx context.Context, cluster hub.ClusterID) error {
	f := hub.ApplicationFilter{All: true, Clusters: []hub.ClusterID{cluster}, Limit: 500}
	w.Due = append(w.Due, hub.WorkRefresh)
	for {
		apps, err := w.Tx.Applications(ctx, f)
		if err != nil {
			return err
		}
		for _, a := range apps {
			f.After = hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}
			if err := w.Enqueue(ctx, hub.WorkRefresh, string(a.ID), w.Now, false); err != nil {
				return err
			}
		}
		if len(apps) < f.Limit {
			return nil
		}
	}
}

// clusterText is what a person wrote of a cluster.
func clusterText(c hub.Cluster) any {
	text := map[string]any{"server": c.Server, "labels": c.Labels, "annotations": c.Annotations}
	if !c.Same(hub.ClusterScope{}) {
		text["scope"] = c.ClusterScope
	}
	return text
}

// UpdateCluster changes what people wrote of a cluster; a scope of nil leaves
// that as it is.
func (c *Catalog) UpdateCluster(ctx context.Context, by hub.Caller, cl hub.Cluster, scope *hub.ClusterScope, expect int64) (hub.Cluster, error) {
	if scope != nil {
		cl.ClusterScope = *scope
	}
	if err := validation.CheckCluster(cl); err != nil {
		return cl, err
	}
	var out hub.Cluster
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		old, err := w.clusterForWrite(ctx, cl.Name, access.Update)
		if err != nil {
			return err
		}
		if scope == nil {
			cl.ClusterScope = old.ClusterScope
		}
		if expect != 0 && expect != old.Version {
			return transact.ErrStale("cluster " + cl.Name)
		}
		out, _, err = w.changeCluster(ctx, old, cl, expect)
		return err
	})
	return out, err
}

// PutCluster registers a cluster by name, without an agent yet.
func (c *Catalog) PutCluster(ctx context.Context, by hub.Caller, cl hub.Cluster, dryRun bool) (hub.Cluster, transact.Outcome, error) {
	if err := validation.CheckCluster(cl); err != nil {
		return cl, "", err
	}
	var out hub.Cluster
	var outcome transact.Outcome
	err := c.writeOr(ctx, by, dryRun, func(ctx context.Context, w *writer) error {
		var err error
		out, outcome, err = w.putCluster(ctx, cl, clusterPut{})
		return err
	})
	return out, outcome, err
}

// DeleteCluster removes a cluster and revokes its agent. Nothing in the
// cluster is deleted; applications on it stay and say that their destination
// is gone (CLU-19).
func (c *Catalog) DeleteCluster(ctx context.Context, by hub.Caller, name string) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		cl, err := w.clusterForWrite(ctx, name, access.Delete)
		if err != nil {
			return err
		}
		deleting, err := w.leave(ctx, cl.ID)
		if err != nil {
			return err
		}
		w.Note(access.Delete, access.Clusters, name, "", clusterText(cl), nil)
		w.Wakes = append(w.Wakes, cl.ID)
		w.Due = append(w.Due, hub.WorkRefresh)
		w.Revoked = true
		// Applications that lost it wait for a person, even if one cluster is
		// left that their destination could stand for now.
		if err := w.Tx.DeleteCluster(ctx, cl.ID); err != nil {
			return err
		}
		for _, a := range deleting {
			if err := c.endDeletion(ctx, w, a, cl.Name); err != nil {
				return err
			}
		}
		return tenancy.Redeliver(ctx, w.Reader, w.Changes, func(all []hub.Cluster) []hub.Cluster { return validation.WithCluster(all, cl) })
	})
}

// endDeletion removes an application whose deletion waited for a cluster that
// the hub does not know any more (DEL-06).
func (c *Catalog) endDeletion(ctx context.Context, w *writer, a hub.Application, cluster string) error {
	left, wakes, err := w.Deploy.Abandon(ctx, a.ID)
	if err != nil {
		return fault.With(err, "application "+title(a.Namespace, a.Name), "")
	}
	w.Wakes = append(w.Wakes, wakes...)
	w.Note(access.Delete, access.Applications, objectOf(a), "its cluster "+cluster+" was deleted", validation.Written(a.Meta, a.Spec), map[string]any{"leftBehind": named(left)})
	return nil
}

// leave takes all applications off a cluster. Those that are being deleted are
// returned.
func (w *writer) leave(ctx context.Context, cluster hub.ClusterID) (deleting []hub.Application, err error) {
	f := hub.ApplicationFilter{All: true, Clusters: []hub.ClusterID{cluster}, Limit: 500}
	for {
		apps, err := w.Tx.Applications(ctx, f)
		if err != nil {
			return nil, err
		}
		for _, a := range apps {
			f.After = hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}
			a.Cluster = ""
			if a.DeletingAt != nil {
				deleting = append(deleting, a)
			}
			if _, err := w.UpdateApplication(ctx, a, 0); err != nil {
				return nil, err
			}
		}
		if len(apps) < f.Limit {
			return deleting, nil
		}
	}
}

func (w *writer) clusterForWrite(ctx context.Context, name, action string) (hub.Cluster, error) {
	cl, err := w.Tx.Cluster(ctx, name)
	if err != nil {
		return cl, transact.Hide(err, access.Clusters, validation.Shorten(name))
	}
	if !w.seesCluster(cl) {
		return cl, w.Refuse(access.Clusters, action, cl.Name, transact.Missing(access.Clusters, validation.Shorten(name)))
	}
	if err := w.Need(access.Clusters, action, validation.ClusterNames(cl)...); err != nil {
		return cl, err
	}
	return cl, w.expects("cluster "+cl.Name, cl.Version)
}
