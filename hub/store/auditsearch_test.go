package store_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// auditWorld is a log in which every field has a few values. Times are days
// apart, the newest is now.
func auditWorld(t *testing.T, n int) (storetest.URLs, *store.DB, hub.TenantID, []hub.AuditRecord) {
	t.Helper()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	tenant := storetest.Tenant(t, db, "acme")
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		for i := range n {
			check(t, tx.AppendAudit(ctx, hub.AuditRecord{
				At: time.Now().Add(-time.Duration(n-1-i) * 24 * time.Hour), Actor: []string{"ann", "Bob"}[i%2], Address: "10.0.0.1",
				Action: []string{"create", "update", "delete", "stream-begin", "stream-end"}[i%5], Resource: []string{"projects", "applications"}[i/2%2],
				Object: fmt.Sprintf("shop/p%d", i%5), Result: []string{"allowed", "denied"}[i/3%2], Reason: fmt.Sprintf("Reason %d%%_", i%4),
				Detail: []byte(fmt.Sprintf(`{"after":{"Spec":%d}}`, i%6)),
			}))
		}
		return nil
	})
	var all []hub.AuditRecord
	storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
		all = must[[]hub.AuditRecord](t)(tx.Audit(ctx, 0, 1000))
		return nil
	})
	slices.Reverse(all)
	return urls, db, tenant, all
}

// picks is what a filter means, said once more in Go.
func picks(f hub.AuditFilter, r hub.AuditRecord) bool {
	is := func(want, got string) bool { return want == "" || want == got }
	text := strings.ToLower(strings.Join([]string{r.Actor, r.Address, r.Object, r.Reason, string(r.Detail)}, " "))
	if f.WithoutStreams && strings.HasPrefix(r.Action, "stream-") {
		return false
	}
	return is(f.Actor, r.Actor) && is(f.Action, r.Action) && is(f.Resource, r.Resource) && is(f.Result, r.Result) &&
		strings.Contains(r.Object, f.Object) && strings.Contains(text, strings.ToLower(f.Text)) &&
		(f.From == nil || !r.At.Before(*f.From)) && (f.To == nil || !r.At.After(*f.To))
}

func TestSearchAudit(t *testing.T) {
	t.Parallel()
	_, db, tenant, all := auditWorld(t, 90)
	t.Run("SEC-C1 every filter picks what it says, in pages without gap or repetition", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			one := func(name string, of ...string) string { return rapid.SampledFrom(append(of, "", "")).Draw(rt, name) }
			f := hub.AuditFilter{
				Actor: one("actor", "ann", "Bob", "eve"), Action: one("action", "create", "delete"), Resource: one("resource", "projects"),
				Object: one("object", "p1", "shop/", "x"), Result: one("result", "denied"), Text: one("text", "bOb", "reason 2%_", `"spec":3`, "'"),
				WithoutStreams: rapid.Bool().Draw(rt, "without streams"),
				Limit:          rapid.IntRange(1, 40).Draw(rt, "limit"),
			}
			if rapid.Bool().Draw(rt, "from") {
				at := all[rapid.IntRange(0, len(all)-1).Draw(rt, "first")].At
				f.From = &at
			}
			if rapid.Bool().Draw(rt, "to") {
				at := all[rapid.IntRange(0, len(all)-1).Draw(rt, "last")].At
				f.To = &at
			}
			var want, got []int64
			for _, r := range all {
				if picks(f, r) {
					want = append(want, r.Seq)
				}
			}
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				got = nil
				for asked := f; ; {
					page := must[hub.AuditPage](t)(tx.SearchAudit(ctx, asked))
					for _, r := range page.Records {
						got = append(got, r.Seq)
					}
					if asked.Before = page.Next; page.Next == 0 {
						return nil
					}
				}
			})
			if !slices.Equal(got, want) {
				rt.Errorf("%+v picks %v, want %v", f, got, want)
			}
		})
	})
}

func TestRetentionOfAudit(t *testing.T) {
	t.Parallel()
	urls, db, tenant, all := auditWorld(t, 90)
	prune := func() (more bool) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			more = must[bool](t)(tx.PruneAudit(ctx))
			return nil
		})
		return more
	}
	left := func() (out []hub.AuditRecord) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			out = must[[]hub.AuditRecord](t)(tx.Audit(ctx, 0, 1000))
			return nil
		})
		return out
	}
	keep := func(days int) error {
		return db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.KeepAudit(ctx, days) })
	}
	t.Run("INV-11 nothing is removed unless the tenant limits the age", func(t *testing.T) {
		prune()
		if n := len(left()); n != 90 {
			t.Errorf("%d records are left", n)
		}
		for _, days := range []int{1, 29, -1} {
			if err := keep(days); fault.KindOf(err) != fault.Invalid {
				t.Errorf("a limit of %d days: %v", days, err)
			}
		}
	})
	t.Run("INV-11 what is older than the limit goes, and the chain stays provable from its anchor", func(t *testing.T) {
		check(t, keep(40))
		prune()
		got := left()
		if len(got) != 40 || got[0].Seq != 51 {
			t.Fatalf("%d records are left, from %d on", len(got), got[0].Seq)
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			if bad := must[int64](t)(tx.VerifyAudit(ctx)); bad != 0 {
				t.Errorf("record %d is said to be wrong", bad)
			}
			h := must[hub.AuditHead](t)(tx.AuditHead(ctx))
			if h.Anchor.Seq != 50 || string(h.Anchor.Hash) != string(all[len(all)-50].Hash) || h.Head.Seq != 90 {
				t.Errorf("the log's ends are %+v", h)
			}
			page := must[hub.AuditPage](t)(tx.SearchAudit(ctx, hub.AuditFilter{Limit: 100}))
			if len(page.Records) != 40 || page.Next != 0 {
				t.Errorf("a search finds %d records, next %d", len(page.Records), page.Next)
			}
			return nil
		})
	})
	t.Run("INV-11 a log with a gap is not shortened further", func(t *testing.T) {
		conn := storetest.Connect(t, urls.Superuser)
		_, err := conn.Exec(t.Context(), `DELETE FROM audit_record WHERE seq = 53`)
		check(t, err)
		check(t, keep(30))
		err = db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.PruneAudit(ctx)
			return err
		})
		if err == nil || len(left()) != 39 {
			t.Errorf("it was shortened: %v", err)
		}
	})
	t.Run("SEC-J3 the hub's own role can neither change nor remove records, nor move the anchor", func(t *testing.T) {
		app := storetest.Connect(t, urls.App)
		for _, statement := range []string{
			`UPDATE audit_record SET actor = 'eve'`, `DELETE FROM audit_record`, `TRUNCATE audit_record`, `UPDATE audit_head SET floor_seq = 80`,
			`UPDATE audit_head SET floor_hash = ''`, `DELETE FROM audit_head`, `ALTER TABLE audit_record DISABLE TRIGGER ALL`, `DROP TABLE audit_record`,
		} {
			_, err := app.Exec(t.Context(), `BEGIN; SELECT set_config('app.tenant_id', '`+string(tenant)+`', true); `+statement)
			if err == nil || !strings.Contains(err.Error(), "permission denied") && !strings.Contains(err.Error(), "must be owner") {
				t.Errorf("%s: %v", statement, err)
			}
			_, err = app.Exec(t.Context(), `ROLLBACK`)
			check(t, err)
		}
	})
}
