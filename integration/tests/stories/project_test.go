package stories_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

var clusterRoles = schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}

// officeHours reports whether the window of guide/15 is open: every hour from 6 to
// 22 of Monday to Friday, in Tokyo, opens it for 16 hours.
func officeHours(t *testing.T, now time.Time) bool {
	t.Helper()
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	for at := now.In(tokyo).Truncate(time.Hour); now.Sub(at) < 16*time.Hour; at = at.Add(-time.Hour) {
		if day := at.Weekday(); day != time.Saturday && day != time.Sunday && at.Hour() >= 6 && at.Hour() <= 22 {
			return true
		}
	}
	return false
}

func TestGuideProject(t *testing.T) {
	cluster := s.Clusters["in-cluster"]
	repo := repository(t, "backend-api", map[string]string{
		"app/a.yaml": configMap("a", "one"), "wide/role.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: guide-15}\n",
	})
	foreign := repository(t, "frontend", map[string]string{"app/a.yaml": configMap("a", "one")})
	base, _, _ := strings.Cut(repo.URL(), "backend-api")
	text := strings.ReplaceAll(guideFile(t, "15-appproject.yaml"), "https://github.com/my-org/", base)
	put := func(text string) {
		t.Helper()
		if _, err := s.API.Apply(within(t, waitLimit), text); err != nil {
			t.Fatal(err)
		}
	}
	application := func(name, url, path, namespace, policy string) {
		t.Helper()
		put(fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: %s, namespace: argocd}\nspec:\n  project: team-backend\n"+
			"  source: {repoURL: %q, path: %s, targetRevision: main}\n  destination: {server: https://kubernetes.default.svc, namespace: %s}\n  syncPolicy: {%s}\n", name, url, path, namespace, policy))
	}
	put(text)
	t.Run("WIN-01 PROJ-17 guide/15 is accepted as written, and its window is listed", func(t *testing.T) {
		out := cli(t, "project", "windows", "list", "team-backend")
		if !strings.Contains(out, "0 6-22 * * 1-5") || !strings.Contains(out, "JST") {
			t.Fatal(out)
		}
		var got map[string]any
		if err := json.Unmarshal([]byte(cli(t, "project", "get", "team-backend", "-o", "json")), &got); err != nil {
			t.Fatal(err)
		}
		_, object := guide(t, "15-appproject.yaml", "")
		want, _, _ := unstructured.NestedSlice(normal(t, object).(map[string]any), "spec", "syncWindows")
		windows, _, _ := unstructured.NestedSlice(got, "spec", "syncWindows")
		if fmt.Sprint(windows) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", windows, want)
		}
	})
	t.Run("APP-06 guide/15 keeps its applications to its repositories and namespaces", func(t *testing.T) {
		for name, want := range map[string]string{"elsewhere": "does not permit the destination", "stranger": "does not permit the repository"} {
			url, namespace := repo.URL(), "frontend"
			if name == "stranger" {
				url, namespace = foreign.URL(), "backend-x"
			}
			application("guide-15-"+name, url, "app", namespace, "")
			says(t, "guide-15-"+name, want)
		}
	})
	long := `syncOptions: [CreateNamespace=true]`
	application("guide-15", repo.URL(), "app", "backend-api", long)
	application("guide-15-wide", repo.URL(), "wide", "backend-api", long)
	for _, name := range []string{"guide-15", "guide-15-wide"} {
		condition(t, name, func(x stack.App) error {
			if x.Status.Capstan.Target == "" {
				return fmt.Errorf("%s is not rendered", name)
			}
			return nil
		})
	}
	sync := func(name string) (string, error) {
		out, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", name)
		if err != nil {
			out += err.Error()
		}
		return out, err
	}
	opened := func(t *testing.T) {
		t.Helper()
		if out, err := sync("guide-15"); err != nil {
			t.Fatal(out)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "backend-api", "a", value("one")); err != nil {
			t.Fatal(err)
		}
		if out, err := sync("guide-15-wide"); err == nil || !strings.Contains(out, "does not permit") {
			t.Errorf("a ClusterRole: %v\n%s", err, out)
		}
		if _, err := cluster.Dynamic().Resource(clusterRoles).Get(t.Context(), "guide-15", metav1.GetOptions{}); err == nil {
			t.Error("the ClusterRole is in the cluster")
		}
	}
	closed := func(t *testing.T, want string) {
		t.Helper()
		if out, err := sync("guide-15"); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v\n%s", err, out)
		}
	}
	// Not in the minutes in which it opens or closes.
	if err := poll.Until(within(t, 10*time.Minute), func(context.Context) error {
		if now := time.Now(); officeHours(t, now) != officeHours(t, now.Add(5*time.Minute)) {
			return errors.New("the window is about to open or to close")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	t.Run("WIN-02 WIN-09 guide/15 as written lets syncs through in its hours, and refuses them otherwise", func(t *testing.T) {
		if officeHours(t, time.Now()) {
			opened(t)
		} else {
			closed(t, "next opening")
		}
	})
	t.Run("WIN-02 WIN-09 with the other hours it is the other way round", func(t *testing.T) {
		if officeHours(t, time.Now()) {
			put(strings.Replace(text, "kind: allow", "kind: deny", 1))
			closed(t, "closed by the deny window")
			return
		}
		put(strings.Replace(text, "'0 6-22 * * 1-5'", "'0 * * * *'", 1))
		opened(t)
	})
}
