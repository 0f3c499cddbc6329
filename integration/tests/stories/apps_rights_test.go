package stories_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

func TestAppOfAppsRights(t *testing.T) {
	repo := repository(t, "apps-rights", map[string]string{
		"app/cm.yaml":       configMap("a", "one"),
		"wide/wide.yaml":    child("wide-child", "default", "https://example.com/x", "app", ""),
		"project/p.yaml":    "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: gained, namespace: argocd}\nspec: {sourceRepos: ['*'], destinations: [{server: '*', namespace: '*'}]}\n",
		"outside/o.yaml":    child("outside-child", "team", "https://example.com/x", "app", ""),
		"set/set.yaml":      renderedSet("many", "team"),
		"wide-set/set.yaml": renderedSet("many-wide", "default") + "---\n" + renderedSet("many-any", "'{{.project}}'"),
		"hook/hook.yaml":    child("hook-child", "team", "https://example.com/x", "app", "  annotations: {argocd.argoproj.io/hook: PreSync}\n"),
		"version/v.yaml":    strings.ReplaceAll(child("version-child", "team", "https://example.com/x", "app", ""), "v1alpha1", "v1beta1"),
		"takeover/own.yaml": child("not-yours", "default", "https://example.com/x", "app", ""),
	})
	if _, err := repo.Commit(t.Context(), "inside", map[string]string{"inside/i.yaml": child("inside-child", "team", repo.URL(), "app", "")}); err != nil {
		t.Fatal(err)
	}
	project := func(destinations, kinds string) {
		t.Helper()
		text := "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: team, namespace: argocd}\nspec:\n  sourceRepos: ['*']\n  clusterResourceWhitelist: [{group: '', kind: Namespace}]\n  destinations: [" + destinations + "]\n"
		if kinds != "" {
			text += "  namespaceResourceWhitelist: [" + kinds + "]\n"
		}
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
	}
	const children = "{name: in-cluster, namespace: argocd}, {name: in-cluster, namespace: inside-child}"
	project(children, "")
	t.Run("APP-31 a restricted project's application has children in its own project", func(t *testing.T) {
		parentApp(t, "team-inside", "team", repo.URL(), "inside")
		settled(t, "team-inside")
		settled(t, "inside-child")
	})
	t.Run("APP-31 SEC-D11 SEC-D16 it has none in a wider project", func(t *testing.T) {
		parentApp(t, "team-wide", "team", repo.URL(), "wide")
		refused(t, "team-wide", "Application", "wide-child", "may not write applications of project default")
		absent(t, "wide-child")
	})
	t.Run("APP-31 it adopts none of a wider project, and no reply reveals it", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), child("not-yours", "default", repo.URL(), "nowhere", "")); err != nil {
			t.Fatal(err)
		}
		parentApp(t, "team-takeover", "team", repo.URL(), "takeover")
		refused(t, "team-takeover", "Application", "not-yours", "may not write applications of project default")
		if got := applied(t, "not-yours"); !strings.Contains(got, "path: nowhere") {
			t.Errorf("%s", got)
		}
		if n, _ := nodeOf(tree(t, "team-takeover"), "Application", "not-yours"); len(n.Info) > 0 || n.UID != "" {
			t.Errorf("%+v", n)
		}
	})
	t.Run("APP-31 SEC-D16 it makes no project", func(t *testing.T) {
		parentApp(t, "team-project", "team", repo.URL(), "project")
		refused(t, "team-project", "AppProject", "gained", "may not write projects")
		if _, err := s.API.CLI(t.Context(), "", "project", "get", "gained"); err == nil {
			t.Error("the project is there")
		}
	})
	t.Run("APP-31 the refused write is in the audit log", func(t *testing.T) {
		if out := cli(t, "audit", "list", "-o", "json"); !strings.Contains(out, `"application team-project"`) || !strings.Contains(out, `"denied"`) {
			t.Errorf("%s", out)
		}
	})
	t.Run("APP-31 a project that names the kind AppProject may write projects", func(t *testing.T) {
		project(children, "{group: argoproj.io, kind: AppProject}, {group: argoproj.io, kind: Application}, {group: '', kind: ConfigMap}")
		settled(t, "team-project")
		cli(t, "project", "get", "gained")
		project(children, "")
	})
	t.Run("APP-31 ASET-12 an application renders an ApplicationSet, and its deletion deletes both", func(t *testing.T) {
		parentApp(t, "team-set", "team", repo.URL(), "set")
		settled(t, "team-set")
		setUntil(t, "many", healthySet(1))
		cli(t, "app", "delete", "team-set", "--yes")
		absent(t, "many-app")
		absent(t, "team-set")
	})
	t.Run("APP-31 SEC-D11 SEC-D16 a set of another project, or of any, is refused", func(t *testing.T) {
		parentApp(t, "team-set", "team", repo.URL(), "wide-set")
		refused(t, "team-set", "ApplicationSet", "many-wide", "may not write applications of project default")
		refused(t, "team-set", "ApplicationSet", "many-any", "may not write applications of project *")
	})
	t.Run("APP-31 another version and a hook are refused clearly", func(t *testing.T) {
		parentApp(t, "team-hook", "team", repo.URL(), "hook")
		refused(t, "team-hook", "Application", "hook-child", "cannot be a hook")
		parentApp(t, "team-version", "team", repo.URL(), "version")
		refused(t, "team-version", "Application", "version-child", "v1beta1")
	})
	t.Run("APP-31 a project for other namespaces renders nothing in the hub", func(t *testing.T) {
		// A project does not give up what its applications need.
		for _, name := range []string{"team-inside", "team-wide", "team-takeover", "team-project", "team-set", "team-hook", "team-version"} {
			cli(t, "app", "delete", name, "--yes")
		}
		project("{name: in-cluster, namespace: inside-child}", "")
		text := strings.ReplaceAll(child("team-outside", "team", repo.URL(), "outside", ""), "namespace: team-outside", "namespace: inside-child")
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		refused(t, "team-outside", "Application", "outside-child", "does not permit objects of the hub in namespace argocd")
		absent(t, "outside-child")
		project(children, "")
	})
	for _, name := range []string{"team-outside", "not-yours"} {
		cli(t, "app", "delete", name, "--yes")
	}
}

// renderedSet is an application set of one application, without a cluster that it
// could change.
func renderedSet(name, project string) string {
	return "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: " + name + ", namespace: argocd}\nspec:\n  goTemplate: true\n" +
		"  generators: [{list: {elements: [{name: app, project: team}]}}]\n  template:\n    metadata: {name: '" + name + "-{{.name}}'}\n" +
		"    spec: {project: " + project + ", source: {repoURL: 'https://example.com/x', path: app}, destination: {name: in-cluster, namespace: inside-child}}\n"
}

func TestAppOfItself(t *testing.T) {
	repo := repository(t, "itself", map[string]string{"apps/cm.yaml": configMap("a", "one")})
	self := func(path string) string {
		return fmt.Sprintf("apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: itself, namespace: argocd, finalizers: [resources-finalizer.argocd.argoproj.io]}\n"+
			"spec:\n  project: default\n  source: {repoURL: %q, path: %q, targetRevision: main}\n  destination: {name: in-cluster, namespace: itself}\n"+
			"  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}\n", repo.URL(), path)
	}
	if _, err := repo.Commit(t.Context(), "itself", map[string]string{"apps/self.yaml": self("apps"), "other/self.yaml": self("other"), "other/cm.yaml": configMap("b", "two")}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(t.Context(), self("apps")); err != nil {
		t.Fatal(err)
	}
	cluster := s.Clusters["in-cluster"]
	t.Run("APP-32 an application that lists itself settles", func(t *testing.T) {
		settled(t, "itself")
		condition(t, "itself", func(stack.App) error {
			if n, ok := nodeOf(tree(t, "itself"), "Application", "itself"); !ok || n.Status != "Synced" || n.Health != "" {
				return fmt.Errorf("%v %+v", ok, n)
			}
			return nil
		})
	})
	t.Run("APP-32 its own manifest can change its destination", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "move", map[string]string{"apps/self.yaml": self("other")}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "itself", "b", value("two")); err != nil {
			t.Fatal(err)
		}
		settled(t, "itself")
	})
	t.Run("APP-32 FT-O2 it does not prune itself when it no longer lists itself", func(t *testing.T) {
		if _, err := repo.Push(t.Context(), gitserver.Change{Message: "not itself", Remove: []string{"other/self.yaml"}, Write: map[string]string{"other/cm.yaml": configMap("b", "three")}}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "itself", "b", value("three")); err != nil {
			t.Fatal(err)
		}
		settled(t, "itself")
		condition(t, "itself", func(stack.App) error {
			if _, there := nodeOf(tree(t, "itself"), "Application", "itself"); there {
				return errors.New("it still lists itself")
			}
			return nil
		})
	})
	t.Run("APP-32 its cascade does not wait for itself", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "again", map[string]string{"other/self.yaml": self("other")}); err != nil {
			t.Fatal(err)
		}
		condition(t, "itself", func(stack.App) error {
			if n, ok := nodeOf(tree(t, "itself"), "Application", "itself"); !ok || n.Status != "Synced" {
				return fmt.Errorf("%v %+v", ok, n)
			}
			return nil
		})
		settled(t, "itself")
		cli(t, "app", "delete", "itself", "--yes")
		absent(t, "itself")
	})
	t.Run("APP-31 applications that render one another are refused", func(t *testing.T) {
		ring, err := repo.Commit(t.Context(), "ring", map[string]string{
			"ring-a/b.yaml": strings.ReplaceAll(child("ring-b", "default", repo.URL(), "ring-b", ""), "namespace: ring-b", "namespace: argocd"),
			"ring-b/a.yaml": strings.ReplaceAll(child("ring-a", "default", repo.URL(), "ring-a", ""), "namespace: ring-a", "namespace: argocd"),
		})
		if err != nil {
			t.Fatal(ring, err)
		}
		parentApp(t, "ring-a", "default", repo.URL(), "ring-a")
		refused(t, "ring-b", "Application", "ring-a", "it would stand above itself")
		cli(t, "app", "delete", "ring-a", "--yes")
		absent(t, "ring-b")
	})
}

// The hub compares what agents follow every tenth of a second. A child that is
// made and deleted in between never appears there, and its agent must not wait
// for it for ever.
func TestParentThatIsDeletedWhileItMakesItsChild(t *testing.T) {
	t.Run("DEL-02 APP-31 the deletion of a parent ends, whenever its child came", func(t *testing.T) {
		for i := range 10 {
			name := fmt.Sprintf("brief-%d", i)
			repo := repository(t, name, map[string]string{"app/cm.yaml": configMap("a", "one"), "parent/child.yaml": child(name+"-child", name, "https://example.com/x", "app", "")})
			project := func(destinations string) {
				t.Helper()
				text := "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: " + name + ", namespace: argocd}\nspec: {sourceRepos: ['*'], destinations: [" + destinations + "]}\n"
				if _, err := s.API.Apply(t.Context(), text); err != nil {
					t.Fatal(err)
				}
			}
			own := "{name: in-cluster, namespace: " + name + "}"
			project(own)
			if _, err := s.API.Apply(t.Context(), strings.ReplaceAll(child(name+"-parent", name, repo.URL(), "parent", ""), "namespace: "+name+"-parent", "namespace: "+name)); err != nil {
				t.Fatal(err)
			}
			refused(t, name+"-parent", "Application", name+"-child", "does not permit objects of the hub in namespace argocd")
			project("{name: in-cluster, namespace: argocd}, " + own) // the sync is tried again, and makes the child
			cli(t, "app", "delete", name+"-parent", "--yes")
		}
	})
}
