package catalog

import (
	"context"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
)

// AcceptHub accepts the hub's state for a cluster whose agent has another log.
// It deletes nothing: objects that the hub does not know stay in the cluster.
func (c *Catalog) AcceptHub(ctx context.Context, by hub.Caller, name string) (hub.Cluster, error) {
	return c.decide(ctx, by, name, access.Override, func(ctx context.Context, w *writer, cl hub.Cluster) error {
		r, err := w.Tx.AcceptHub(ctx, cl.ID, by.Username, w.Now)
		w.Note("accept-hub", access.Clusters, name, "", r, nil)
		return err
	})
}

// KeepCluster ends a quarantine: the Kubernetes cluster of that fingerprint has
// the identity, the other one is refused.
func (c *Catalog) KeepCluster(ctx context.Context, by hub.Caller, name, fingerprint string) (hub.Cluster, error) {
	return c.decide(ctx, by, name, access.Override, func(ctx context.Context, w *writer, cl hub.Cluster) error {
		w.Revoked = true
		q, err := w.Tx.KeepCluster(ctx, cl.ID, fingerprint)
		w.Note("keep", access.Clusters, name, "", q, map[string]any{"fingerprint": fingerprint})
		return err
	})
}

// RevokeAgent ends a cluster's agent with all its certificates. The cluster
// and what is in it stay.
func (c *Catalog) RevokeAgent(ctx context.Context, by hub.Caller, name string) (hub.Cluster, error) {
	return c.decide(ctx, by, name, access.Delete, func(ctx context.Context, w *writer, cl hub.Cluster) error {
		w.Note("revoke", access.Clusters, name, "", map[string]any{"agent": cl.AgentID}, nil)
		w.Revoked = true
		return w.Tx.RevokeAgent(ctx, cl.ID)
	})
}

// decide runs an admin's decision about a cluster and returns the cluster
// afterwards.
func (c *Catalog) decide(ctx context.Context, by hub.Caller, name, action string, do func(context.Context, *writer, hub.Cluster) error) (hub.Cluster, error) {
	var out hub.Cluster
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		cl, err := w.clusterForWrite(ctx, name, action)
		if err != nil {
			return err
		}
		if err := do(ctx, w, cl); err != nil {
			return fault.With(err, "cluster "+name, "")
		}
		w.Wakes = append(w.Wakes, cl.ID)
		out, err = w.Tx.Cluster(ctx, name)
		return err
	})
	return out, err
}
