package api_test

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"
)

func project(name string, spec map[string]any) map[string]any {
	return map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": name, "namespace": "argocd"}, "spec": spec}
}

// open permits everything, and what is given besides.
func open(more map[string]any) map[string]any {
	spec := map[string]any{
		"sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}, map[string]any{"name": "*", "namespace": "*"}},
	}
	maps.Copy(spec, more)
	return spec
}

func of(project string) func(map[string]any) {
	return func(spec map[string]any) { spec["project"] = project }
}

// Fields that restrict and are not enforced must not look as if they were.
func TestProjectsThatAreNotEnforced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	for name, value := range map[string]any{
		"somethingNewer": map[string]any{"deny": "all"},
	} {
		t.Run(name+" is stored, said, and permits no application", func(t *testing.T) {
			p := strings.ToLower(name)
			var stored struct {
				Spec     map[string]json.RawMessage
				Warnings []string
			}
			w.call(admin, "POST", "/api/v1/projects", project(p, open(map[string]any{name: value}))).ok(201).into(&stored)
			if stored.Spec[name] == nil || !strings.Contains(strings.Join(stored.Warnings, "\n"), "spec."+name) {
				t.Errorf("stored %s, warnings %q", stored.Spec[name], stored.Warnings)
			}
			why := w.call(admin, "POST", "/api/v1/applications", application("of-"+p, of(p))).fails(400)
			for _, word := range []string{`"` + p + `"`, "spec." + name, "not enforced"} {
				if !strings.Contains(why.Message, word) {
					t.Errorf("the refusal does not say %q: %s", word, why.Message)
				}
			}
			if why.Fix == "" {
				t.Error("it names no fix")
			}
			var applied struct{ Failed int }
			text, err := json.Marshal(application("applied-"+p, of(p)))
			if err != nil {
				t.Fatal(err)
			}
			w.call(admin, "POST", "/api/v1/apply", string(text)).ok(200).into(&applied)
			if applied.Failed != 1 {
				t.Error("apply takes the application")
			}
		})
	}
	t.Run("empty fields restrict nothing", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/projects", project("quiet", open(map[string]any{
			"signatureKeys": []any{}, "permitOnlyProjectScopedClusters": false, "sourceIntegrity": nil, "destinationServiceAccounts": nil, "newer": []any{},
		}))).ok(201)
		w.call(admin, "POST", "/api/v1/applications", application("quiet", of("quiet"))).ok(201)
	})
	t.Run("an application stays when its project gains such a field, and is not changed", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/projects", project("later", open(nil))).ok(201)
		w.call(admin, "POST", "/api/v1/applications", application("later", of("later"))).ok(201)
		w.call(admin, "PUT", "/api/v1/projects/later", project("later", open(map[string]any{"somethingNewer": map[string]any{"deny": "all"}}))).ok(200)
		changed := application("later", of("later"), func(spec map[string]any) { spec["info"] = []any{map[string]any{"name": "a", "value": "b"}} })
		w.call(admin, "PUT", "/api/v1/applications/argocd/later", changed).fails(400)
		w.call(admin, "PUT", "/api/v1/applications/argocd/later", application("later", of("later"))).ok(200)
		w.call(admin, "PUT", "/api/v1/applications/argocd/later", application("later", of("default"))).ok(200)
	})
	t.Run("ANY-01(refused) an application in a namespace that is not enabled is not created", func(t *testing.T) {
		a := application("elsewhere")
		a["metadata"].(map[string]any)["namespace"] = "team-a"
		if why := w.call(admin, "POST", "/api/v1/applications", a).fails(400); !strings.Contains(why.Message+why.Fix, "application.namespaces") {
			t.Errorf("%+v", why)
		}
	})
	namespaces := func(value string) map[string]any {
		return map[string]any{"values": map[string]any{"argocd-cmd-params-cm": map[string]any{"application.namespaces": value}}}
	}
	w.call(admin, "PATCH", "/api/v1/settings", namespaces("team-*, /^(blue|blues|other)$/")).ok(200)
	t.Run("ANY-01 PROJ-02 ANY-02 a project without sourceNamespaces is argocd's alone", func(t *testing.T) {
		a := application("elsewhere")
		a["metadata"].(map[string]any)["namespace"] = "team-a"
		var made struct{ Warnings []string }
		w.call(admin, "POST", "/api/v1/applications", a).ok(201).into(&made)
		if !strings.Contains(strings.Join(made.Warnings, "\n"), "does not permit applications in namespace") {
			t.Errorf("%q", made.Warnings)
		}
	})
	t.Run("ANY-01(refused) patterns that cannot be read", func(t *testing.T) {
		for _, bad := range []string{"{a", "/(/"} {
			w.call(admin, "PATCH", "/api/v1/settings", namespaces(bad)).fails(400)
		}
	})
	t.Run("PROJ-02 ANY-02 only the listed namespaces' applications may use the project", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/projects", project("homes", open(map[string]any{"sourceNamespaces": []any{"team-*", "/^blue$/"}}))).ok(201)
		for namespace, permitted := range map[string]bool{"argocd": true, "team-a": true, "blue": true, "blues": false, "other": false} {
			a := application("in-"+namespace, of("homes"))
			a["metadata"].(map[string]any)["namespace"] = namespace
			var made struct{ Warnings []string }
			w.call(admin, "POST", "/api/v1/applications", a).ok(201).into(&made)
			if refused := strings.Contains(strings.Join(made.Warnings, "\n"), "does not permit applications in namespace"); refused == permitted {
				t.Errorf("%s: %q", namespace, made.Warnings)
			}
		}
	})
}

func TestProjectUpdates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	w.call(admin, "POST", "/api/v1/projects", project("shop", open(nil))).ok(201)
	for _, name := range []string{"web", "api"} {
		w.call(admin, "POST", "/api/v1/applications", application(name, of("shop"))).ok(201)
	}
	w.call(admin, "POST", "/api/v1/applications", application("broken", of("shop"), func(spec map[string]any) {
		spec["destination"] = map[string]any{"name": "nowhere", "namespace": "web"}
	})).ok(201)
	narrow := func(namespace string) map[string]any {
		return open(map[string]any{"destinations": []any{map[string]any{"server": "*", "namespace": namespace}}})
	}
	t.Run("PROJ-21 an update that invalidates existing applications is refused, and lists them", func(t *testing.T) {
		why := w.call(admin, "PUT", "/api/v1/projects/shop", project("shop", narrow("web"))).fails(409)
		if !strings.Contains(why.Message, "api (") || strings.Contains(why.Message, "web (") || strings.Contains(why.Message, "broken") || why.Fix == "" {
			t.Errorf("%+v", why)
		}
		why = w.call(admin, "PUT", "/api/v1/projects/shop", project("shop", open(map[string]any{"sourceRepos": []any{"https://elsewhere.example.com/*"}}))).fails(409)
		if !strings.Contains(why.Message, "api (") || !strings.Contains(why.Message, "web (") {
			t.Errorf("%+v", why)
		}
	})
	t.Run("PROJ-21 apply is refused alike", func(t *testing.T) {
		text, err := json.Marshal(project("shop", narrow("web")))
		if err != nil {
			t.Fatal(err)
		}
		var applied struct{ Failed int }
		w.call(admin, "POST", "/api/v1/apply", string(text)).ok(200).into(&applied)
		if applied.Failed != 1 {
			t.Error("it is taken")
		}
	})
	t.Run("PROJ-21 a change that invalidates none is accepted, and so is any once they are deleted", func(t *testing.T) {
		w.call(admin, "PUT", "/api/v1/projects/shop", project("shop", narrow("*"))).ok(200)
		w.call(admin, "DELETE", "/api/v1/applications/argocd/api", nil)
		w.call(admin, "PUT", "/api/v1/projects/shop", project("shop", narrow("web"))).ok(200)
	})
}
