package api_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// listed is what tests of lists read of an application, and everything else
// that it carries.
type listed struct {
	Metadata struct{ Name, Namespace, ResourceVersion string }
	Spec     map[string]any
	Status   struct {
		Sync           struct{ Status, Revision string }
		Health         struct{ Status string }
		OperationState *struct{ Phase string }
		Capstan        struct {
			ID, Cluster, Target string
			Headline            struct{ State string }
		}
	}
}

// deployed makes n applications of one cluster, each with a target.
func deployed(t *testing.T, w *world, admin string, n int) {
	t.Helper()
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	var all strings.Builder
	for i := range n {
		fmt.Fprintf(&all, `---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: app-%03d, namespace: argocd, labels: {team: shop}, annotations: {owner.example.com/mail: shop@example.com}, finalizers: [resources-finalizer.argocd.argoproj.io]}
spec:
  project: default
  source: {repoURL: "https://git.example.com/%s.git", path: apps/shop, targetRevision: main, helm: {valueFiles: [values.yaml, values-production.yaml]}}
  destination: {name: prod, namespace: shop}
  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}
`, i, []string{"a", "b"}[i%2])
	}
	var made applied
	w.call(admin, "POST", "/api/v1/apply", all.String()).ok(200).into(&made)
	if made.Failed != 0 {
		t.Fatalf("%+v", made)
	}
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		apps, err := tx.Applications(ctx, hub.ApplicationFilter{All: true, Limit: n})
		if err != nil {
			return err
		}
		var snaps []hub.Snapshot
		var targets []hub.TargetChange
		const revision = "0123456789012345678901234567890123456789"
		for _, a := range apps {
			s := hub.Snapshot{ID: hub.NewID[hub.SnapshotID](), Tenant: a.Tenant, Application: a.ID, Revision: revision, SourceType: "Helm", CreatedAt: time.Now()}
			snaps = append(snaps, s)
			targets = append(targets, hub.TargetChange{
				Application: a.ID, Target: s.ID, Accepted: s.ID, Revision: revision, Revisions: []string{revision}, SourceType: "Helm", Resources: 12, Generation: a.Generation, Refreshed: true,
			})
		}
		if err := tx.PutSnapshots(ctx, snaps); err != nil {
			return err
		}
		return tx.SetTargets(ctx, targets)
	})
	// Every application of a real list has had an operation.
	for i := range n {
		w.call(admin, "POST", fmt.Sprintf("/api/v1/applications/argocd/app-%03d/sync", i), map[string]any{"reason": "release 42", "prune": true}).ok(202)
	}
}

func TestCompactList(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	const n = 200 // even
	deployed(t, w, admin, n)
	read := func(query string) ([]byte, []listed) {
		t.Helper()
		a := w.call(admin, "GET", "/api/v1/applications?limit=500"+query, nil).ok(200)
		var l struct{ Items []listed }
		a.into(&l)
		return a.body, l.Items
	}
	full, all := read("")
	compact, few := read("&view=compact")
	t.Run("API-03 a compact list has of each application what a list shows", func(t *testing.T) {
		if len(all) != n || len(few) != n {
			t.Fatalf("%d and %d items", len(all), len(few))
		}
		for i := range all {
			a, b := all[i], few[i]
			if got := b.Spec["source"].(map[string]any); got["repoURL"] == "" || got["helm"] != nil || b.Spec["syncPolicy"] != nil {
				t.Fatalf("its spec is %v", b.Spec)
			}
			a.Spec, b.Spec, a.Status.Capstan.Target = nil, nil, ""
			if diff := cmp.Diff(a, b); diff != "" {
				t.Fatalf("what a list shows differs (-full +compact):\n%s", diff)
			}
		}
	})
	t.Run("API-03 it is much smaller", func(t *testing.T) {
		t.Logf("%d applications: %d bytes, %d packed; compact %d, %d packed", n, len(full), packed(t, full), len(compact), packed(t, compact))
		if len(compact)*10 > len(full)*6 {
			t.Errorf("compact %d bytes of %d", len(compact), len(full))
		}
	})
	t.Run("API-03 the stream has the same form, so that an event replaces an item", func(t *testing.T) {
		var l struct{ Cursor string }
		w.call(admin, "GET", "/api/v1/applications?limit=1&view=compact", nil).ok(200).into(&l)
		w.call(admin, "POST", "/api/v1/apply", strings.NewReplacer("%03d", "007", "%s", "b").Replace(changed)).ok(200)
		e := until(t, w.listen(t, admin, "?view=compact&cursor="+l.Cursor), "the changed application", func(e event) bool { return e.Name == "application" && e.Data.Name == "app-007" })
		_, now := read("&view=compact&q=app-007")
		if len(now) != 1 {
			t.Fatalf("%d items", len(now))
		}
		if diff := cmp.Diff(now[0], e.Data.Application); diff != "" {
			t.Errorf("an event is not what the list has (-list +event):\n%s", diff)
		}
	})
	t.Run("API-03 a list can be of some repositories", func(t *testing.T) {
		_, got := read("&view=compact&repo=https://git.example.com/b")
		if len(got) != n/2 || slices.ContainsFunc(got, func(x listed) bool {
			return x.Spec["source"].(map[string]any)["repoURL"] != "https://git.example.com/b.git"
		}) {
			t.Errorf("%d applications", len(got))
		}
		if _, got := read("&repo=https://git.example.com/none"); len(got) != 0 {
			t.Errorf("%d applications of a repository that none has", len(got))
		}
	})
	t.Run("an unknown view is refused", func(t *testing.T) {
		w.call(admin, "GET", "/api/v1/applications?view=tiny", nil).fails(400)
	})
}

const changed = `apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: app-%03d, namespace: argocd, labels: {team: other}}
spec:
  project: default
  source: {repoURL: "https://git.example.com/%s.git", path: apps/other, targetRevision: main}
  destination: {name: prod, namespace: shop}
`

func packed(t *testing.T, text []byte) int {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Len()
}
