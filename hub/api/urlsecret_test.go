package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// Specs are read by more people than credentials.
func TestPasswordsInURLs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	const canary = "CANARYURLPW"
	const url = "http://user:" + canary + "@127.0.0.1:9/x.git"
	in := func(where string) func(map[string]any) {
		return func(spec map[string]any) {
			source := map[string]any{"repoURL": url, "path": "."}
			good := map[string]any{"repoURL": "https://git.example.com/team/repo.git", "path": "."}
			switch where {
			case "source":
				spec["source"] = source
			case "sources":
				delete(spec, "source")
				spec["sources"] = []any{good, source}
			case "ref":
				delete(spec, "source")
				spec["sources"] = []any{good, map[string]any{"repoURL": url, "ref": "values"}}
			case "values":
				good["helm"] = map[string]any{"valueFiles": []any{url}}
				spec["source"] = good
			}
		}
	}
	quiet := func(t *testing.T, a answer) {
		t.Helper()
		if strings.Contains(string(a.body), canary) {
			t.Errorf("%s repeats it: %s", a.what, a.body)
		}
	}
	w.call(admin, "POST", "/api/v1/applications", application("there")).ok(201)
	w.call(admin, "POST", "/api/v1/projects", project("there", open(nil))).ok(201)
	for _, where := range []string{"source", "sources", "ref", "values"} {
		t.Run("SEC-C1 an application is refused with a password in "+where, func(t *testing.T) {
			a := w.call(admin, "POST", "/api/v1/applications", application("new-"+where, in(where)))
			quiet(t, a)
			if why := a.fails(400); !strings.Contains(why.Fix, "capstan repo add") {
				t.Errorf("the fix is %q", why.Fix)
			}
			a = w.call(admin, "PUT", "/api/v1/applications/argocd/there", application("there", in(where)))
			quiet(t, a)
			a.fails(400)
			text, err := json.Marshal(application("applied-"+where, in(where)))
			if err != nil {
				t.Fatal(err)
			}
			var applied struct{ Failed int }
			a = w.call(admin, "POST", "/api/v1/apply", string(text)).ok(200).into(&applied)
			quiet(t, a)
			if applied.Failed != 1 {
				t.Error("apply takes it")
			}
		})
	}
	t.Run("SEC-C1 a project is refused with one in sourceRepos", func(t *testing.T) {
		for _, pattern := range []string{url, "!" + url} {
			spec := open(map[string]any{"sourceRepos": []any{"*", pattern}})
			for _, a := range []answer{
				w.call(admin, "POST", "/api/v1/projects", project("new", spec)), w.call(admin, "PUT", "/api/v1/projects/there", project("there", spec)),
			} {
				quiet(t, a)
				a.fails(400)
			}
		}
	})
	t.Run("SEC-C1 what an earlier release stored is shown without it", func(t *testing.T) {
		spec := fmt.Appendf(nil, `{"project":"default","source":{"repoURL":%q,"path":"."},"destination":{"name":"prod","namespace":"x"}}`, url)
		storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
			meta := hub.Meta{Name: "old", Namespace: "argocd"}
			if _, err := tx.CreateApplication(ctx, hub.Application{ID: hub.NewID[hub.ApplicationID](), Project: "default", Meta: meta, Spec: spec}); err != nil {
				return err
			}
			meta.Namespace = ""
			if _, err := tx.CreateProject(ctx, hub.Project{Meta: meta, Spec: fmt.Appendf(nil, `{"sourceRepos":[%q]}`, url)}); err != nil {
				return err
			}
			detail := fmt.Appendf(nil, `{"after":{"spec":%s}}`, spec)
			return tx.AppendAudit(ctx, hub.AuditRecord{At: time.Now(), Actor: "ada", Action: "create", Resource: "applications", Object: "default/old", Result: "allowed", Detail: detail})
		})
		for _, path := range []string{
			"/api/v1/applications", "/api/v1/applications/argocd/old", "/api/v1/projects", "/api/v1/projects/old", "/api/v1/audit?limit=500",
		} {
			a := w.call(admin, "GET", path, nil).ok(200)
			quiet(t, a)
			if !strings.Contains(string(a.body), "http://127.0.0.1:9/x.git") {
				t.Errorf("%s does not show the rest: %s", path, a.body)
			}
		}
	})
	t.Run("SEC-C3 it is in no log", func(t *testing.T) {
		if strings.Contains(w.Log.String(), canary) {
			t.Error("the log has it")
		}
	})
}
