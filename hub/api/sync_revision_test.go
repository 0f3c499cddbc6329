package api_test

import (
	"context"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

func TestSyncToAnotherRevision(t *testing.T) {
	t.Parallel()
	const commit = "c0ffee0123456789012345678901234567890123"
	w := newWorld(t)
	admin, dev, lead := w.Admin("acme"), w.User("acme", "dev"), w.User("acme", "lead")
	storetest.In(t, w.DB, w.Tenant("acme"), func(ctx context.Context, tx *store.Tenant) error {
		return tx.SetPolicy(ctx, "p, role:dev, applications, get, */*, allow\np, role:dev, applications, sync, */*, allow\n"+
			"p, role:lead, applications, override, */*, allow\ng, role:lead, role:dev\ng, dev, role:dev\ng, lead, role:lead\n")
	})
	w.call(admin, "POST", "/api/v1/clusters/enroll", map[string]any{"name": "prod"}).ok(201)
	for _, name := range []string{"dev", "lead"} {
		w.call(admin, "POST", "/api/v1/applications", application(name, func(spec map[string]any) {
			spec["destination"] = map[string]any{"name": "prod", "namespace": "web"}
			spec["source"].(map[string]any)["targetRevision"] = "main"
		})).ok(201)
		went(t, w, name, nil, []string{commit})
	}
	set := func(value any) {
		t.Helper()
		key := "application.sync.requireOverridePrivilegeForRevisionSync"
		w.call(admin, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{hub.SettingsMap: map[string]any{key: value}}}).ok(200)
	}
	// An operation that is in progress is the next question after rights.
	permitted := func(a answer) {
		t.Helper()
		if a.status != 202 {
			if p := a.fails(409); !strings.Contains(p.Message, "is in progress") {
				t.Errorf("%+v", p)
			}
		}
	}
	sync := func(secret, app, revision string) answer {
		t.Helper()
		body := map[string]any{"dryRun": true}
		if revision != "" {
			body["revision"] = revision
		}
		return w.call(secret, "POST", "/api/v1/applications/argocd/"+app+"/sync", body)
	}
	t.Run("SYNC-06 a user with the right to sync may choose the revision if the settings do not require more", func(t *testing.T) {
		for _, value := range []any{nil, "false"} {
			set(value)
			permitted(sync(dev, "dev", "v2"))
		}
	})
	t.Run("SYNC-06 if the settings require the right to override, another revision is refused without it", func(t *testing.T) {
		set("true")
		p := sync(dev, "dev", "v2").fails(403)
		if !strings.Contains(p.Message, "requireOverridePrivilegeForRevisionSync") || !strings.Contains(p.Message, "revision v2") || !strings.HasSuffix(p.Fix, "applications, override, default/dev") {
			t.Errorf("%+v", p)
		}
	})
	t.Run("DIFF-17 SYNC-06 a preview of another revision takes the same right, and one of its own does not", func(t *testing.T) {
		preview := func(secret, app, query string) answer {
			t.Helper()
			return w.call(secret, "GET", "/api/v1/applications/argocd/"+app+"/diff?"+query, nil)
		}
		if p := preview(dev, "dev", "revision=v2").fails(403); !strings.Contains(p.Message, "requireOverridePrivilegeForRevisionSync") || !strings.Contains(p.Message, "revision v2") {
			t.Errorf("%+v", p)
		}
		// There is no repository to render, which is the next question.
		for _, query := range []string{"revision=main", "revision=" + commit, "revisions=main&sourcePositions=1"} {
			preview(dev, "dev", query).fails(503)
		}
		preview(lead, "lead", "revision=v2").fails(503)
		if p := preview(lead, "lead", "revisions=a&revisions=b").fails(400); !strings.Contains(p.Message, "has 1 source") {
			t.Errorf("%+v", p)
		}
		if p := preview(lead, "lead", "revision=v2&kind=ConfigMap&resourceName=a").fails(400); !strings.Contains(p.Message, "all objects") {
			t.Errorf("%+v", p)
		}
	})
	t.Run("SYNC-05 SYNC-06 the refusal is in the audit log", func(t *testing.T) {
		var list struct {
			Items []struct{ Action, Object, Result string }
		}
		w.call(admin, "GET", "/api/v1/audit?limit=1", nil).ok(200).into(&list)
		if len(list.Items) != 1 || list.Items[0].Action != "override" || list.Items[0].Object != "default/dev" || list.Items[0].Result != "denied" {
			t.Errorf("%+v", list)
		}
	})
	t.Run("SYNC-06 the right to override is enough", func(t *testing.T) {
		permitted(sync(lead, "lead", "v2"))
	})
	t.Run("SYNC-06 its own revision by name, and its commit, need only the right to sync", func(t *testing.T) {
		for _, revision := range []string{"", "main", commit, commit[:7]} {
			permitted(sync(dev, "dev", revision))
		}
		for _, revision := range []string{"c0ffee1", commit[:6]} {
			sync(dev, "dev", revision).fails(403)
		}
	})
	t.Run("SYNC-06 so it is for one source of several", func(t *testing.T) {
		w.call(admin, "POST", "/api/v1/applications", application("several", func(spec map[string]any) {
			delete(spec, "source")
			spec["destination"] = map[string]any{"name": "prod", "namespace": "web"}
			spec["sources"] = []any{
				map[string]any{"repoURL": "https://git.example.com/a.git", "path": "a", "targetRevision": "main"},
				map[string]any{"repoURL": "https://git.example.com/b.git", "path": "b"},
			}
		})).ok(201)
		went(t, w, "several", nil, []string{commit, commit})
		body := func(revision string) map[string]any {
			return map[string]any{"dryRun": true, "revisions": []any{revision}, "sourcePositions": []any{2}}
		}
		w.call(dev, "POST", "/api/v1/applications/argocd/several/sync", body("v2")).fails(403)
		permitted(w.call(dev, "POST", "/api/v1/applications/argocd/several/sync", body("HEAD")))
	})
}
