package api_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// deployTo makes a cluster and an application that it has, with its finalizer.
func deployTo(t *testing.T, w *world, cluster, app string) hub.Cluster {
	t.Helper()
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": cluster}).ok(201)
	body := application(app, func(spec map[string]any) {
		spec["destination"] = map[string]any{"name": cluster, "namespace": "web"}
	})
	body["metadata"].(map[string]any)["finalizers"] = []any{"resources-finalizer.argocd.argoproj.io"}
	w.call(admin, "POST", "/api/v1/applications", body).ok(201)
	went(t, w, app, nil, []string{"c0ffee"})
	w.call(admin, "POST", "/api/v1/applications/argocd/"+app+"/sync", map[string]any{}).ok(202)
	var on hub.Cluster
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) (err error) {
		on, err = tx.Cluster(ctx, cluster)
		return err
	})
	return on
}

func TestUnreachableCluster(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	type condition struct{ Type, Message string }
	conditions := func(app string) []condition {
		t.Helper()
		var x struct {
			Status struct{ Conditions []condition }
		}
		w.call(admin, "GET", "/api/v1/applications/argocd/"+app, nil).ok(200).into(&x)
		return x.Status.Conditions
	}
	attach := func(c hub.Cluster) {
		t.Helper()
		at := hub.Attachment{Tenant: w.Tenant("acme"), Cluster: c.ID, Session: "s-" + c.Name, Replica: "r", Epoch: "e", Instance: "one", Leader: true, At: time.Now()}
		if err := w.DB.System().Connected(t.Context(), at); err != nil {
			t.Fatal(err)
		}
	}
	prod := deployTo(t, w, "prod", "web")
	attach(prod)
	t.Run("DEL-05 while the cluster is there, a deletion has no such condition", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/applications/argocd/web", nil).ok(202)
		if got := conditions("web"); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("DEL-05 once it is disconnected, the deletion waits and shows the cluster and what to do", func(t *testing.T) {
		if err := w.DB.System().Disconnected(t.Context(), w.Tenant("acme"), prod.ID, "s-prod"); err != nil {
			t.Fatal(err)
		}
		got := conditions("web")
		if len(got) != 1 || got[0].Type != "DeletionError" || !strings.Contains(got[0].Message, "prod") || !strings.Contains(got[0].Message, "abandon") {
			t.Errorf("%+v", got)
		}
	})
	t.Run("DEL-05 it stays so: another request to delete it changes nothing", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/applications/argocd/web", nil).ok(202)
		if got := conditions("web"); len(got) != 1 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("DEL-05 the condition ends when the cluster is back", func(t *testing.T) {
		attach(prod)
		if got := conditions("web"); len(got) != 0 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("DEL-06 when the cluster is deleted from the hub, an application deletion that waits for it ends", func(t *testing.T) {
		w.call(admin, "DELETE", "/api/v1/clusters/prod", nil).ok(204)
		w.call(admin, "GET", "/api/v1/applications/argocd/web", nil).fails(404)
	})
	t.Run("DEL-06 an application of a deleted cluster is deleted at once", func(t *testing.T) {
		deployTo(t, w, "stage", "shop")
		w.call(admin, "DELETE", "/api/v1/clusters/stage", nil).ok(204)
		w.call(admin, "GET", "/api/v1/applications/argocd/shop", nil).ok(200)
		w.call(admin, "DELETE", "/api/v1/applications/argocd/shop", nil)
		w.call(admin, "GET", "/api/v1/applications/argocd/shop", nil).fails(404)
	})
	t.Run("DEL-06 the audit log lists what was left in the cluster", func(t *testing.T) {
		var list struct{ Items []json.RawMessage }
		w.call(admin, "GET", "/api/v1/audit?limit=50", nil).ok(200).into(&list)
		if all := string(mustJSON(t, list)); !strings.Contains(all, "default/web") || !strings.Contains(all, "its cluster prod was deleted") {
			t.Errorf("%s", all)
		}
	})
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
