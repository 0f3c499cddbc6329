package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func record(object string) hub.AuditRecord {
	return hub.AuditRecord{Actor: "ann", Via: "session", Action: "update", Resource: "applications", Object: object, Result: "allowed", Detail: []byte(`{"z": 1, "a" : [2]}`)}
}

func TestAudit(t *testing.T) {
	t.Parallel()
	t.Run("INV-11 many writers leave one chain without a gap", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant := storetest.Tenant(t, db, "acme")
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				err := db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
					check(t, tx.AppendAudit(ctx, record(fmt.Sprint(i))))
					check(t, tx.AppendAudit(ctx, record(fmt.Sprint(i)+" more")))
					if i%4 == 0 {
						return errors.New("on purpose")
					}
					return nil
				})
				if (err == nil) != (i%4 != 0) {
					t.Errorf("writer %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			got := must[[]hub.AuditRecord](t)(tx.Audit(ctx, 0, 1000))
			if len(got) != 60 {
				t.Errorf("%d records, want the 60 of those that committed", len(got))
			}
			for i, r := range got {
				if r.Seq != int64(i+1) || string(r.Detail) != `{"z": 1, "a" : [2]}` {
					t.Errorf("record %d has number %d and detail %s", i, r.Seq, r.Detail)
				}
			}
			if bad := must[int64](t)(tx.VerifyAudit(ctx)); bad != 0 {
				t.Errorf("record %d is said to be wrong", bad)
			}
			newest := must[hub.AuditPage](t)(tx.SearchAudit(ctx, hub.AuditFilter{Limit: 2})).Records
			if len(newest) != 2 || newest[0].Seq != 60 || newest[1].Seq != 59 {
				t.Errorf("the newest two are %+v", newest)
			}
			return nil
		})
	})
	tampering := map[string]struct {
		sql  string
		want int64
	}{
		"alter":     {`UPDATE audit_record SET actor = 'eve' WHERE seq = 3`, 3},
		"delete":    {`DELETE FROM audit_record WHERE seq = 3`, 3},
		"truncate":  {`DELETE FROM audit_record WHERE seq >= 4`, 4},
		"reorder":   {`UPDATE audit_record SET seq = CASE seq WHEN 2 THEN 30 ELSE seq END; UPDATE audit_record SET seq = 2 WHERE seq = 3; UPDATE audit_record SET seq = 3 WHERE seq = 30`, 2},
		"rehash":    {`UPDATE audit_record SET actor = 'eve', hash = sha256(hash) WHERE seq = 5`, 5},
		"roll back": {`DELETE FROM audit_record WHERE seq = 5; UPDATE audit_head SET seq = 4`, 4},
	}
	for name, c := range tampering {
		t.Run("INV-11 to "+name+" is found out", func(t *testing.T) {
			t.Parallel()
			urls := storetest.Database(t)
			db := storetest.OpenURLs(t, urls.Config())
			tenant := storetest.Tenant(t, db, "acme")
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				for i := range 5 {
					check(t, tx.AppendAudit(ctx, record(fmt.Sprint(i))))
				}
				return nil
			})
			_, err := storetest.Connect(t, urls.Superuser).Exec(t.Context(), c.sql)
			check(t, err)
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				if bad := must[int64](t)(tx.VerifyAudit(ctx)); bad != c.want {
					t.Errorf("the first bad record is %d, want %d", bad, c.want)
				}
				return nil
			})
		})
	}
	t.Run("INV-11 the application cannot change a record", func(t *testing.T) {
		t.Parallel()
		urls := storetest.Database(t)
		db := storetest.OpenURLs(t, urls.Config())
		tenant := storetest.Tenant(t, db, "acme")
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.AppendAudit(ctx, record("x")) })
		app := storetest.Connect(t, urls.App)
		for _, sql := range []string{`UPDATE audit_record SET actor = 'eve'`, `DELETE FROM audit_record`, `DELETE FROM audit_head`, `UPDATE history SET reason = ''`, `DELETE FROM history`, `TRUNCATE audit_record`} {
			if _, err := attempt(t, app, string(tenant), sql); err == nil {
				t.Errorf("%s was allowed", sql)
			}
		}
	})
	t.Run("a record without an action is our defect", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		err := db.InTenant(t.Context(), storetest.Tenant(t, db, "acme"), func(ctx context.Context, tx *store.Tenant) error {
			return tx.AppendAudit(ctx, hub.AuditRecord{Actor: "ann"})
		})
		if fault.KindOf(err) != fault.Internal {
			t.Errorf("error %v, want Internal", err)
		}
	})
}
