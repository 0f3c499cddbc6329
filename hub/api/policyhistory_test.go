package api_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

const policyHistoryPath = settingsPath + "/rbac/history"

type policyVersion struct {
	Number, Reverts int64
	At              time.Time
	By              string
	Changed         []string
}

func (w *world) policyVersions(secret, query string) (all []policyVersion, more bool) {
	w.t.Helper()
	var out struct {
		Items []policyVersion
		More  bool
	}
	w.call(secret, http.MethodGet, policyHistoryPath+query, nil).ok(200).into(&out)
	return out.Items, out.More
}

func TestPolicyHistory(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, stranger := w.Admin("acme"), w.Admin("bolt")
	reader, nobody := w.User("acme", "reader", hub.RoleReadOnly), w.User("acme", "nobody")
	const (
		gets  = "p, role:dev, applications, get, shop/*, allow\ng, nobody, role:dev\n"
		syncs = "p, role:dev, applications, get, shop/*, allow\np, role:dev, applications, sync, shop/*, allow\ng, nobody, role:dev\n"
		tests = "t, nobody, applications, sync, shop/web, allow\n"
	)
	revert := func(secret, number, query string, options ...option) answer {
		return w.call(secret, http.MethodPost, policyHistoryPath+"/"+number+"/revert"+query, nil, options...)
	}
	may := func() bool { return w.why(nobody, "sync", "applications", "shop/web").Allowed }
	t.Run("UX-ACC-1 RBAC-08 each change of the policy is kept with who, when and what", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.csv": gets, "policy.default": ""}).ok(200)
		w.setPolicy(admin, map[string]any{"policy.csv": gets}).ok(200) // changes nothing
		w.setPolicy(admin, map[string]any{"policy.csv": syncs, "policy.tests": tests}).ok(200)
		w.call(admin, http.MethodPatch, settingsPath, map[string]any{"values": map[string]any{"argocd-cm": map[string]any{"url": "https://cd.example.com"}}}).ok(200)
		all, more := w.policyVersions(admin, "")
		if more || len(all) != 2 || all[0].Number != 2 || all[0].By != "admin" || all[0].At.IsZero() || !slices.Equal(all[0].Changed, []string{"policy.csv", "policy.tests"}) || all[0].Reverts != 0 {
			t.Fatalf("%+v", all)
		}
		if page, more := w.policyVersions(admin, "?limit=1"); !more || len(page) != 1 || page[0].Number != 2 {
			t.Errorf("%+v", page)
		}
		if page, more := w.policyVersions(admin, "?before=2"); more || len(page) != 1 || page[0].Number != 1 {
			t.Errorf("%+v", page)
		}
	})
	t.Run("UX-ACC-1 a version says what it has changed, and what differs from it now", func(t *testing.T) {
		var v struct {
			Values         map[string]string
			Changes, Since []struct{ Key, Before, After string }
		}
		w.call(admin, http.MethodGet, policyHistoryPath+"/2", nil).ok(200).into(&v)
		if v.Values["policy.csv"] != syncs || len(v.Changes) != 2 || v.Changes[0].Before != gets || v.Changes[0].After != syncs || v.Changes[1].Before != "" || len(v.Since) != 0 {
			t.Errorf("%+v", v)
		}
		w.call(admin, http.MethodGet, policyHistoryPath+"/1", nil).ok(200).into(&v)
		if len(v.Since) != 2 || v.Since[0].Before != gets || v.Since[0].After != syncs {
			t.Errorf("%+v", v.Since)
		}
	})
	t.Run("UX-ACC-1 a change is taken back, which is a change itself", func(t *testing.T) {
		if !may() {
			t.Fatal("the policy does not hold")
		}
		revert(admin, "1", "?dryRun=true").ok(200)
		if all, _ := w.policyVersions(admin, ""); !may() || len(all) != 2 {
			t.Error("a dry run has changed something")
		}
		revert(admin, "1", "", header("If-Match", `"1"`)).fails(412)
		revert(admin, "1", "").ok(200)
		all, _ := w.policyVersions(admin, "")
		if may() || len(all) != 3 || all[0].Reverts != 1 || all[0].Number != 3 {
			t.Errorf("%t %+v", may(), all)
		}
		var audit struct {
			Items []struct{ Object, Actor string }
		}
		w.call(admin, http.MethodGet, "/api/v1/audit?resource=settings", nil).ok(200).into(&audit)
		if len(audit.Items) == 0 || !strings.HasPrefix(audit.Items[0].Object, "argocd-rbac-cm/") {
			t.Errorf("%+v", audit.Items)
		}
		revert(admin, "3", "").ok(200)
		if all, _ := w.policyVersions(admin, ""); len(all) != 3 {
			t.Errorf("taking up what holds is a change: %+v", all)
		}
	})
	t.Run("UX-ACC-1 SEC-D8 a version that fails its own tests by now, or locks its writer out, is refused", func(t *testing.T) {
		w.setPolicy(admin, map[string]any{"policy.tests": "t, reader, applications, get, shop/web, allow\n"}).ok(200) // 4, by the role of the account
		w.setPolicy(admin, map[string]any{"policy.tests": nil}).ok(200)
		w.call(admin, http.MethodPut, "/api/v1/users/reader", map[string]any{"roles": []string{}}).ok(200)
		if p := revert(admin, "4", "").fails(400); !strings.Contains(p.Message+p.Cause, "fails 1 of its tests") {
			t.Errorf("%+v", p)
		}
		w.call(admin, http.MethodPut, "/api/v1/users/reader", map[string]any{"roles": []string{hub.RoleReadOnly}}).ok(200)
		owner := w.User("acme", "owner")
		w.setPolicy(admin, map[string]any{"policy.csv": "p, owner, settings, *, *, allow\n"}).ok(200)
		if p := revert(owner, "1", "").fails(400); !strings.Contains(p.Message+p.Cause, "lose the right") {
			t.Errorf("%+v", p)
		}
		if all, _ := w.policyVersions(admin, ""); len(all) != 6 {
			t.Errorf("%+v", all)
		}
	})
	t.Run("UX-ACC-1 who may read the policy reads it, who may change it takes it back, and nobody else", func(t *testing.T) {
		auditor := w.User("acme", "auditor")
		w.setPolicy(admin, map[string]any{"policy.csv": "p, auditor, settings, get, *, allow\n"}).ok(200)
		w.policyVersions(auditor, "")
		revert(auditor, "1", "").fails(403)
		w.call(reader, http.MethodGet, policyHistoryPath, nil).fails(403)
		w.call(nobody, http.MethodGet, policyHistoryPath, nil).fails(403)
		w.call(nobody, http.MethodGet, policyHistoryPath+"/1", nil).fails(403)
		revert(nobody, "1", "").fails(403)
		if all, _ := w.policyVersions(stranger, ""); len(all) != 0 {
			t.Errorf("%+v", all)
		}
		revert(stranger, "1", "").fails(404)
		w.call(stranger, http.MethodGet, policyHistoryPath+"/1", nil).fails(404)
		for _, number := range []string{"0", "-1", "x", "1e3", strings.Repeat("9", 19)} {
			if a := w.call(admin, http.MethodGet, policyHistoryPath+"/"+number, nil); a.status != 400 && a.status != 404 {
				t.Errorf("%s: %d", number, a.status)
			}
		}
	})
}
