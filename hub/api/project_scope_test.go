package api_test

import (
	"slices"
	"strings"
	"testing"
)

// clusterSecret declares a cluster as Argo CD does.
func clusterSecret(name string, keys string) string {
	return "apiVersion: v1\nkind: Secret\nmetadata: {name: " + name + ", labels: {argocd.argoproj.io/secret-type: cluster}}\nstringData:\n  name: " + name +
		"\n  server: https://" + name + ".example.com\n" + keys
}

type scopedCluster struct {
	Name  string
	Scope struct {
		Project          string
		Namespaces       []string
		ClusterResources bool
		Shard            *int64
	}
}

func TestClusterScopes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	apply := func(text string, failed int) (message string) {
		t.Helper()
		var applied struct {
			Failed  int
			Results []struct{ Error struct{ Message string } }
		}
		w.call(admin, "POST", "/api/v1/apply", text).ok(200).into(&applied)
		if applied.Failed != failed {
			t.Fatalf("%+v", applied)
		}
		return applied.Results[0].Error.Message
	}
	warnings := func(name, cluster, namespace, project string) string {
		t.Helper()
		var made struct{ Warnings []string }
		w.call(admin, "POST", "/api/v1/applications", application(name, of(project), func(spec map[string]any) {
			spec["destination"] = map[string]any{"name": cluster, "namespace": namespace}
		})).ok(201).into(&made)
		return strings.Join(made.Warnings, "\n")
	}
	t.Run("CLU-01 a Secret's project, namespaces, clusterResources and shard are stored and returned", func(t *testing.T) {
		apply(clusterSecret("own", "  project: shop\n  namespaces: 'a, b'\n  clusterResources: 'true'\n  shard: '2'\n"), 0)
		var got scopedCluster
		w.call(admin, "GET", "/api/v1/clusters/own", nil).ok(200).into(&got)
		if s := got.Scope; s.Project != "shop" || !slices.Equal(s.Namespaces, []string{"a", "b"}) || !s.ClusterResources || s.Shard == nil || *s.Shard != 2 {
			t.Errorf("%+v", got)
		}
	})
	t.Run("CLU-01(refused) a key that is not what it should be", func(t *testing.T) {
		for key, value := range map[string]string{"namespaces": "'team-*'", "clusterResources": "perhaps", "shard": "first", "project": "A B"} {
			if why := apply(clusterSecret("bad", "  "+key+": "+value+"\n"), 1); why == "" {
				t.Errorf("%s: no message", key)
			}
		}
	})
	t.Run("CLU-07 PROJ-04 a cluster of a project is its destination without an entry, and may be the only one", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/projects", project("shop", map[string]any{"sourceRepos": []any{"*"}})).ok(201)
		w.call(admin, "POST", "/api/v1/projects", project("bank", open(map[string]any{"permitOnlyProjectScopedClusters": true}))).ok(201)
		if why := warnings("in-shop", "own", "a", "shop"); why != "" {
			t.Error(why)
		}
		if why := warnings("outside", "own", "c", "shop"); !strings.Contains(why, "is not managed") {
			t.Errorf("a namespace that is not managed: %q", why)
		}
		if why := warnings("in-bank", "own", "a", "bank"); !strings.Contains(why, "only clusters that belong to it") {
			t.Errorf("another project's cluster: %q", why)
		}
	})
	t.Run("CLU-07 PROJ-21 a cluster that is taken from its project is refused to its applications", func(t *testing.T) {
		w.call(admin, "PUT", "/api/v1/clusters/own", map[string]any{"server": "https://own.example.com", "scope": map[string]any{"project": "bank"}}).ok(200)
		if why := warnings("late", "own", "a", "shop"); !strings.Contains(why, "does not permit the destination") {
			t.Error(why)
		}
		if why := warnings("in-bank-now", "own", "c", "bank"); why != "" {
			t.Error(why)
		}
	})
	t.Run("CLU-01 a request without scope leaves it as it is", func(t *testing.T) {
		w.call(admin, "PUT", "/api/v1/clusters/own", map[string]any{"server": "https://own.example.com", "labels": map[string]any{"a": "b"}}).ok(200)
		var got scopedCluster
		w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "own"}).ok(201)
		w.call(admin, "GET", "/api/v1/clusters/own", nil).ok(200).into(&got)
		if got.Scope.Project != "bank" {
			t.Errorf("%+v", got)
		}
	})
}

func TestGlobalProjects(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	labelled := func(name string, labels, spec map[string]any) map[string]any {
		p := project(name, spec)
		p["metadata"].(map[string]any)["labels"] = labels
		return p
	}
	blue := map[string]any{"team": "blue"}
	w.call(admin, "POST", "/api/v1/projects", project("base", open(nil))).ok(201)
	w.call(admin, "POST", "/api/v1/projects", labelled("heir", blue, map[string]any{})).ok(201)
	w.call(admin, "POST", "/api/v1/projects", labelled("stranger", map[string]any{"team": "red"}, map[string]any{})).ok(201)
	set := func(value string) map[string]any {
		return map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"globalProjects": value}}}
	}
	w.call(admin, "PATCH", "/api/v1/settings", set("- labelSelector: {matchLabels: {team: blue}}\n  projectName: base\n")).ok(200)
	warnings := func(name, project string) string {
		t.Helper()
		var made struct{ Warnings []string }
		w.call(admin, "POST", "/api/v1/applications", application(name, of(project))).ok(201).into(&made)
		return strings.Join(made.Warnings, "\n")
	}
	t.Run("PROJ-18 projects inherit by their labels", func(t *testing.T) {
		if why := warnings("heir", "heir"); why != "" {
			t.Error(why)
		}
		if why := warnings("stranger", "stranger"); !strings.Contains(why, "does not permit") {
			t.Errorf("%q", why)
		}
	})
	t.Run("PROJ-18 a project is stored and returned as it was written", func(t *testing.T) {
		var got struct{ Spec map[string]any }
		w.call(admin, "GET", "/api/v1/projects/heir", nil).ok(200).into(&got)
		if len(got.Spec) != 0 {
			t.Errorf("%v", got.Spec)
		}
	})
	t.Run("PROJ-18 PROJ-21 a change of the global project that would invalidate an heir's application is refused, and lists it", func(t *testing.T) {
		why := w.call(admin, "PUT", "/api/v1/projects/base", project("base", open(map[string]any{"sourceRepos": []any{"https://elsewhere/**"}}))).fails(409)
		if !strings.Contains(why.Message, "heir (") || strings.Contains(why.Message, "stranger") {
			t.Errorf("%+v", why)
		}
	})
	t.Run("PROJ-18 PROJ-21 so is a change of labels that ends the inheritance", func(t *testing.T) {
		why := w.call(admin, "PUT", "/api/v1/projects/heir", labelled("heir", map[string]any{}, map[string]any{})).fails(409)
		if !strings.Contains(why.Message, "heir (") {
			t.Errorf("%+v", why)
		}
	})
	t.Run("PROJ-18 PROJ-20 a project from which others inherit cannot be deleted", func(t *testing.T) {
		if why := w.call(admin, "DELETE", "/api/v1/projects/base", nil).fails(409); !strings.Contains(why.Message, "heir") || why.Fix == "" {
			t.Errorf("%+v", why)
		}
	})
	t.Run("PROJ-18(refused) a list that cannot be read", func(t *testing.T) {
		if why := w.call(admin, "PATCH", "/api/v1/settings", set("- labelSelector: {}\n")).fails(400); !strings.Contains(why.Message, "projectName") {
			t.Errorf("%+v", why)
		}
	})
}
