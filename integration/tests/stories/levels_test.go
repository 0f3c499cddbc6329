package stories_test

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// An observedApp is what the API says of when an application was looked at.
type observedApp struct {
	Status struct {
		ReconciledAt time.Time
		Sync         struct{ Status string }
		Capstan      struct{ RefreshedAt time.Time }
	}
}

func observed(t *testing.T, name string) (x observedApp) {
	t.Helper()
	if err := s.API.Do(within(t, waitLimit), "GET", "/api/v1/applications/argocd/"+name, nil, &x); err != nil {
		t.Fatal(err)
	}
	return x
}

// await reads the application until it is as it should be.
func await(t *testing.T, name, what string, holds func(observedApp) bool) observedApp {
	t.Helper()
	ctx := within(t, waitLimit)
	for {
		x := observed(t, name)
		if holds(x) {
			return x
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: it is %+v", what, x)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// What happens in the cluster is compared by the agent with what was rendered
// last; only a refresh asks the Git server.
func TestLevelsOfComparison(t *testing.T) {
	const name = "levels"
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	cluster := s.Clusters["in-cluster"]
	repo := repository(t, name, map[string]string{"app/a.yaml": configMap("a", "one"), "app/web.yaml": `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: registry.example.com/web:1}]}
`})
	deployByHand(t, name, repo.URL(), "app")
	settled(t, name)
	patch := func(r schema.GroupVersionResource, object, text string) {
		t.Helper()
		if _, err := cluster.Dynamic().Resource(r).Namespace(name).Patch(t.Context(), object, types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	asked := func(before gitserver.RequestCount) int {
		now := repo.Requests()
		return now.Listings + now.Fetches - before.Listings - before.Fetches
	}
	t.Run("CMPR-02 CMPR-09 a managed object's event compares it with the last revision, resolves nothing, and sets the time", func(t *testing.T) {
		before, was := repo.Requests(), observed(t, name)
		patch(configMaps, "a", `{"data":{"v":"drifted"}}`)
		now := await(t, name, "the drift", func(x observedApp) bool { return x.Status.Sync.Status == "OutOfSync" })
		if !now.Status.ReconciledAt.After(was.Status.ReconciledAt) {
			t.Errorf("reconciledAt was %s and is %s", was.Status.ReconciledAt, now.Status.ReconciledAt)
		}
		patch(configMaps, "a", `{"data":{"v":"one"}}`)
		after := await(t, name, "the drift is over", func(x observedApp) bool { return x.Status.Sync.Status == "Synced" })
		if !after.Status.ReconciledAt.After(now.Status.ReconciledAt) {
			t.Errorf("reconciledAt was %s and is %s", now.Status.ReconciledAt, after.Status.ReconciledAt)
		}
		if n := asked(before); n != 0 || !after.Status.Capstan.RefreshedAt.Equal(was.Status.Capstan.RefreshedAt) {
			t.Errorf("%d requests to the Git server; refreshed at %s, before at %s", n, after.Status.Capstan.RefreshedAt, was.Status.Capstan.RefreshedAt)
		}
	})
	t.Run("CMPR-02 CMPR-09 a child's event changes the tree, and is no comparison", func(t *testing.T) {
		before, was := repo.Requests(), observed(t, name)
		list, err := cluster.Dynamic().Resource(pods).Namespace(name).List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%d pods, %v", len(list.Items), err)
		}
		pod := list.Items[0].GetName()
		if err := cluster.Dynamic().Resource(pods).Namespace(name).Delete(t.Context(), pod, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx := within(t, waitLimit)
		for {
			nodes := tree(t, name)
			_, old := nodeOf(nodes, "Pod", pod)
			pods := 0
			for _, n := range nodes {
				if n.Kind == "Pod" {
					pods++
				}
			}
			if !old && pods == 1 {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatalf("the tree still has %v", nodes)
			case <-time.After(50 * time.Millisecond):
			}
		}
		now := settledAgain(t, name)
		if n := asked(before); n != 0 || !now.Status.Capstan.RefreshedAt.Equal(was.Status.Capstan.RefreshedAt) {
			t.Errorf("%d requests to the Git server; refreshed at %s, before at %s", n, now.Status.Capstan.RefreshedAt, was.Status.Capstan.RefreshedAt)
		}
	})
	t.Run("CMPR-02 an annotation that only the tree shows is no comparison with the sources", func(t *testing.T) {
		before, was := repo.Requests(), observed(t, name)
		patch(deployments, "web", `{"metadata":{"annotations":{"example.com/note":"seen"}}}`)
		now := settledAgain(t, name)
		if n := asked(before); n != 0 || !now.Status.Capstan.RefreshedAt.Equal(was.Status.Capstan.RefreshedAt) {
			t.Errorf("%d requests to the Git server", n)
		}
	})
	t.Run("CMPR-02 a refresh resolves the revision again: one listing, and the new commit", func(t *testing.T) {
		repo.SetWebhook(gitserver.Webhook{})
		if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
			t.Fatal(err)
		}
		before, was := repo.Requests(), observed(t, name)
		cli(t, "app", "refresh", name)
		now := await(t, name, "what is new", func(x observedApp) bool { return x.Status.Sync.Status == "OutOfSync" })
		after := repo.Requests()
		if after.Listings-before.Listings != 1 || after.Fetches-before.Fetches != 1 || !now.Status.Capstan.RefreshedAt.After(was.Status.Capstan.RefreshedAt) {
			t.Errorf("%+v, before %+v; refreshed at %s, before at %s", after, before, now.Status.Capstan.RefreshedAt, was.Status.Capstan.RefreshedAt)
		}
	})
}

// settledAgain is the application once it is Synced and Healthy.
func settledAgain(t *testing.T, name string) observedApp {
	t.Helper()
	settled(t, name)
	return observed(t, name)
}
