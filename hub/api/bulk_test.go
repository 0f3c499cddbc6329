package api_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
)

const bulkPath = "/api/v1/bulk"

// A bulk is a bulk request as it is answered.
type bulk struct {
	ID, Action, Cancelled, FinishedAt string
	Total, Next                       int
	Counts                            struct{ Pending, Done, Refused, Failed, Cancelled int }
	Items                             []struct{ Namespace, Name, State, Message, Operation string }
}

func (b bulk) named(state string) (out []string) {
	for _, i := range b.Items {
		if i.State == state {
			out = append(out, i.Name)
		}
	}
	slices.Sort(out)
	return out
}

// advance does all that is left of a request, as the stages of two replicas do.
func (w *world) advance(tenant hub.TenantID, id string) {
	w.t.Helper()
	for range 20 {
		var over [2]bool
		var both sync.WaitGroup
		for i := range over {
			both.Go(func() {
				var err error
				if over[i], err = w.Catalog.AdvanceBulk(w.t.Context(), tenant, hub.BulkID(id)); err != nil {
					w.t.Error(err)
				}
			})
		}
		both.Wait()
		if over[0] || over[1] {
			return
		}
	}
	w.t.Fatal("the request does not end")
}

// audited counts the audit records of an action.
func (w *world) audited(secret, action, result string) (objects []string) {
	w.t.Helper()
	var page struct {
		Items []struct{ Action, Object, Result, Actor string }
	}
	w.call(secret, http.MethodGet, "/api/v1/audit?limit=500", nil).ok(200).into(&page)
	for _, r := range page.Items {
		if r.Action == action && r.Result == result {
			objects = append(objects, r.Object)
		}
	}
	slices.Sort(objects)
	return objects
}

// Requests about many applications.
func TestBulk(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, stranger := w.Admin("acme"), w.Admin("bolt")
	dora := w.User("acme", "dora")
	tenant := w.Tenant("acme")
	for _, p := range []string{"shop", "ops"} {
		w.call(admin, http.MethodPost, "/api/v1/projects", map[string]any{
			"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": p},
			"spec": map[string]any{"sourceRepos": []string{"*"}, "destinations": []any{map[string]any{"server": "*", "namespace": "*"}}},
		}).ok(201)
	}
	for i := range 6 {
		a := application(fmt.Sprintf("app-%d", i))
		spec := a["spec"].(map[string]any)
		spec["project"] = []string{"shop", "ops"}[i%2]
		if i < 4 {
			spec["syncPolicy"] = map[string]any{"automated": map[string]any{"prune": true}}
		}
		w.call(admin, http.MethodPost, appsPath, a).ok(201)
	}
	w.setPolicy(admin, map[string]any{"policy.csv": "p, dora, applications, get, */*, allow\np, dora, applications, update, shop/*, allow\np, dora, applications, delete, shop/app-4, allow\n"}).ok(200)
	start := func(secret string, status int, body map[string]any) (b bulk) {
		t.Helper()
		w.call(secret, http.MethodPost, bulkPath, body).ok(status).into(&b)
		return b
	}
	read := func(secret, id string) (b bulk) {
		t.Helper()
		w.call(secret, http.MethodGet, bulkPath+"/"+id, nil).ok(200).into(&b)
		return b
	}
	automation := func() (paused []string) {
		t.Helper()
		for _, r := range w.rows(admin).Rows {
			if r.Automation == "manual" {
				paused = append(paused, r.Name)
			}
		}
		return paused
	}
	t.Run("UI-03 UX-NAV-11(part) a dry run counts what would be touched, and names what the caller may not", func(t *testing.T) {
		b := start(dora, 200, map[string]any{"action": "pause", "query": "app-", "dryRun": true})
		if b.ID != "" || b.Total != 6 || b.Counts.Pending != 3 || b.Counts.Refused != 3 || !slices.Equal(b.named("refused"), []string{"app-1", "app-3", "app-5"}) {
			t.Errorf("%+v", b)
		}
		if b.Items[0].State != "refused" || !strings.Contains(b.Items[0].Message, "no right to update") {
			t.Errorf("the refusals do not come first, with their reason: %+v", b.Items[0])
		}
		if got := automation(); !slices.Equal(got, []string{"app-4", "app-5"}) {
			t.Errorf("a dry run has paused %v", got)
		}
	})
	t.Run("UI-03 UX-NAV-11(part) what a query has is paused, each with the caller's rights on it and an audit record", func(t *testing.T) {
		b := start(dora, 202, map[string]any{"action": "pause", "query": "project:shop,ops auto:auto", "reason": "freeze"})
		if b.Total != 4 || b.Counts.Pending != 4 || b.FinishedAt != "" {
			t.Fatalf("%+v", b)
		}
		w.advance(tenant, b.ID)
		b = read(dora, b.ID)
		if b.Counts.Done != 2 || b.Counts.Refused != 2 || b.FinishedAt == "" || !slices.Equal(b.named("done"), []string{"app-0", "app-2"}) {
			t.Errorf("%+v", b)
		}
		if got := automation(); !slices.Equal(got, []string{"app-0", "app-2", "app-4", "app-5"}) {
			t.Errorf("without automation are %v", got)
		}
		if got := w.audited(admin, "update", "allowed"); !slices.Equal(got, []string{"shop/app-0", "shop/app-2"}) {
			t.Errorf("audit records of the writes: %v", got)
		}
		if got := slices.Compact(w.audited(admin, "update", "denied")); !slices.Equal(got, []string{"ops/app-1", "ops/app-3"}) {
			t.Errorf("audit records of the refusals: %v", got)
		}
		if got := w.audited(admin, "bulk pause", "allowed"); len(got) != 1 {
			t.Errorf("audit records of the request: %v", got)
		}
		b = start(admin, 202, map[string]any{"action": "resume", "names": []string{"argocd/app-0", "app-2", "app-4", "not-there"}})
		w.advance(tenant, b.ID)
		b = read(admin, b.ID)
		if b.Counts.Done != 3 || b.Counts.Refused != 1 || !slices.Equal(b.named("refused"), []string{"not-there"}) {
			t.Errorf("%+v", b)
		}
		if got := automation(); !slices.Equal(got, []string{"app-4", "app-5"}) {
			t.Errorf("what never had automation is given none: %v", got)
		}
	})
	t.Run("UI-03 applications are refreshed and deleted, and each is done once by two replicas", func(t *testing.T) {
		b := start(admin, 202, map[string]any{"action": "refresh", "all": true, "hard": true})
		w.advance(tenant, b.ID)
		if b = read(admin, b.ID); b.Counts.Done != 6 {
			t.Errorf("%+v", b)
		}
		if got := w.audited(admin, "refresh", "allowed"); len(got) != 6 {
			t.Errorf("%d refreshes are in the audit log: %v", len(got), got)
		}
		b = start(dora, 202, map[string]any{"action": "delete", "names": []string{"app-4", "app-5"}, "cascade": false})
		w.advance(tenant, b.ID)
		if b = read(dora, b.ID); b.Counts.Done != 1 || b.Counts.Refused != 1 {
			t.Errorf("%+v", b)
		}
		w.call(admin, http.MethodGet, appsPath+"/argocd/app-4", nil).ok(404)
		w.call(admin, http.MethodGet, appsPath+"/argocd/app-5", nil).ok(200)
	})
	t.Run("UI-03 a sync that cannot begin says why, and ends nothing else", func(t *testing.T) {
		b := start(admin, 202, map[string]any{"action": "sync", "query": "project:shop"})
		w.advance(tenant, b.ID)
		if b = read(admin, b.ID); b.Counts.Failed != 2 || b.Items[0].Message == "" {
			t.Errorf("%+v", b)
		}
	})
	t.Run("ISO-2 UI-03 a request is known to who made it alone, and who cancels it keeps what is done", func(t *testing.T) {
		b := start(admin, 202, map[string]any{"action": "refresh", "all": true})
		for _, secret := range []string{dora, stranger} {
			w.call(secret, http.MethodGet, bulkPath+"/"+b.ID, nil).fails(404)
			w.call(secret, http.MethodDelete, bulkPath+"/"+b.ID, nil).fails(404)
		}
		w.call(admin, http.MethodDelete, bulkPath+"/"+b.ID, nil).ok(200).into(&b)
		if b.Counts.Cancelled != 5 || b.Cancelled != "cancelled by admin" {
			t.Errorf("%+v", b)
		}
		w.advance(tenant, b.ID)
		if b = read(admin, b.ID); b.Counts.Cancelled != 5 || b.Counts.Done != 0 {
			t.Errorf("%+v", b)
		}
	})
	t.Run("SEC-E5(part) UI-03 a request ends with the token with which it was made", func(t *testing.T) {
		var token struct{ Token string }
		w.call(dora, http.MethodPost, "/api/v1/tokens", map[string]any{"name": "bulk"}).ok(201).into(&token)
		b := start(token.Token, 202, map[string]any{"action": "refresh", "query": "project:shop"})
		kept := start(dora, 202, map[string]any{"action": "refresh", "query": "project:shop"})
		w.call(dora, http.MethodDelete, "/api/v1/tokens/bulk", nil).ok(204)
		w.advance(tenant, b.ID)
		w.advance(tenant, kept.ID)
		if b = read(dora, b.ID); b.Counts.Done != 0 || !strings.Contains(b.Cancelled, "the token of dora has been revoked") {
			t.Errorf("%+v", b)
		}
		if kept = read(dora, kept.ID); kept.Counts.Done == 0 {
			t.Errorf("one of a session: %+v", kept)
		}
	})
	t.Run("SEC-E5(part) UI-03 a request ends with the account of who made it", func(t *testing.T) {
		b := start(dora, 202, map[string]any{"action": "pause", "query": "project:shop"})
		err := w.DB.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			u, _, err := tx.UserByName(ctx, "dora")
			if err != nil {
				return err
			}
			u.Disabled = true
			return tx.UpdateUser(ctx, u)
		})
		if err != nil {
			t.Fatal(err)
		}
		w.advance(tenant, b.ID)
		if got := automation(); slices.Contains(got, "app-0") {
			t.Errorf("paused for a disabled account: %v", got)
		}
	})
	t.Run("UI-03(refused) requests without a choice, with two, or with options of another action", func(t *testing.T) {
		for _, body := range []map[string]any{
			{"action": "sync"}, {"action": "sync", "all": true, "query": "x"}, {"action": "sync", "names": []string{"/x"}},
			{"action": "refresh", "all": true, "prune": true}, {"action": "sync", "all": true, "cascade": true}, {"action": "sync", "query": "colour:red"},
		} {
			w.call(admin, http.MethodPost, bulkPath, body).fails(400)
		}
		nobody := w.User("acme", "nobody")
		w.call(nobody, http.MethodPost, bulkPath, map[string]any{"action": "sync", "all": true}).fails(403)
	})
	t.Run("UI-03 a request under an idempotency key is made once", func(t *testing.T) {
		var first, second bulk
		key := header("Idempotency-Key", "once")
		w.call(admin, http.MethodPost, bulkPath, map[string]any{"action": "refresh", "all": true}, key).ok(202).into(&first)
		w.call(admin, http.MethodPost, bulkPath, map[string]any{"action": "refresh", "all": true}, key).ok(202).into(&second)
		if first.ID == "" || first.ID != second.ID {
			t.Errorf("two requests %q and %q", first.ID, second.ID)
		}
	})
}
