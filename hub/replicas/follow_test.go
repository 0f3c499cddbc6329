package replicas

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
)

// reading is a database; meanwhile happens after all placements were read and
// before they arrive.
type reading struct {
	places    []hub.AgentHome
	now       hub.AgentHome // what is asked for by itself
	meanwhile func()
}

func (reading) Beat(context.Context, hub.Replica, time.Duration) ([]hub.Replica, error) {
	return nil, nil
}
func (reading) Leave(context.Context, string) error { return nil }
func (r reading) Attachment(context.Context, hub.TenantID, hub.ClusterID) (hub.AgentHome, error) {
	return r.now, nil
}
func (r reading) Attachments(context.Context, int64) ([]hub.AgentHome, error) {
	r.meanwhile()
	return r.places, nil
}

// Holds says that no agent is attached here.
func (reading) Holds(hub.ClusterID) (grpc.ClientConnInterface, hub.TenantID, string, bool) {
	return nil, "", "", false
}

func TestFollow(t *testing.T) {
	t.Parallel()
	old := hub.AgentHome{Tenant: "t", Cluster: "removed", Replica: "b", Session: "s1", Fence: 5}
	kept := hub.AgentHome{Tenant: "t", Cluster: "kept", Replica: "b", Session: "s2", Fence: 4}
	homes := hub.AgentHome{Tenant: "t", Cluster: "new", Replica: "b", Session: "s3", Fence: 6}
	store := reading{places: []hub.AgentHome{kept}, now: homes}
	var r *Replicas
	store.meanwhile = func() {
		if _, err := (&route{r: r, tenant: "t", cluster: "new"}).readHome(t.Context()); err != nil {
			t.Error(err)
		}
	}
	r = New(Config{Self: hub.Replica{ID: "a"}, Store: store, Agents: store})
	r.others["b"] = &other{Replica: hub.Replica{ID: "b"}}
	r.storeHome(old)
	if err := r.follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	for cluster, want := range map[hub.ClusterID]bool{"removed": false, "kept": true, "new": true} {
		if _, ok := r.homeOf(cluster); ok != want {
			t.Errorf("where the agent of cluster %s is: known %v, want %v", cluster, ok, want)
		}
	}
}
