package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

type foreigner struct{ w *world }

func (f foreigner) value(typ reflect.Type, depth int) reflect.Value {
	w := f.w
	for _, known := range []any{
		w.tenant, w.user.ID, w.token.ID, w.project.ID, w.cluster.ID, w.enrolment.ID, w.repository.ID, w.app.ID, w.set.ID, w.snapshot.ID, w.operation.ID, w.bulk, w.delivery.ID,
		w.object.Digest, w.mark, now(), json.RawMessage(w.app.Spec), hub.Failed, w.object.Sealed, []string{w.mark}, false, time.Second,
	} {
		if reflect.TypeOf(known) == typ {
			return reflect.ValueOf(known)
		}
	}
	v := reflect.New(typ).Elem()
	switch typ.Kind() {
	case reflect.Slice:
		v.Set(reflect.Append(v, f.value(typ.Elem(), depth+1)))
	case reflect.Struct:
		for i := range typ.NumField() {
			if typ.Field(i).IsExported() && depth < 4 {
				v.Field(i).Set(f.value(typ.Field(i).Type, depth+1))
			}
		}
	case reflect.Pointer:
		if typ.Elem().Kind() != reflect.Struct || typ.Elem() == reflect.TypeFor[time.Time]() {
			return v
		}
		v.Set(reflect.New(typ.Elem()))
		v.Elem().Set(f.value(typ.Elem(), depth+1))
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.String:
		v.SetString(w.mark)
	}
	return v
}

func TestEveryMethodKeepsToItsTenant(t *testing.T) {
	t.Parallel()
	for name, off := range map[string]bool{"ISO-1 with row security": false, "ISO-4 predicates alone": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			urls := storetest.Database(t)
			db := storetest.OpenURLs(t, urls.Config())
			a, b := build(t, db, "alpha", "canary-alpha"), build(t, db, "beta", "canary-beta")
			super := storetest.Connect(t, urls.Superuser)
			tables := tenantTables(t, super)
			if off {
				for _, table := range tables {
					_, err := super.Exec(t.Context(), `ALTER TABLE `+table+` DISABLE ROW LEVEL SECURITY`)
					check(t, err)
				}
			}
			before := sums(t, super, tables, b.tenant)
			work := queryOne[string](t, super, `SELECT string_agg(x::text, '|' ORDER BY x::text) FROM work.item x WHERE tenant_id = $1`, b.tenant)
			methods := reflect.TypeFor[*store.Tenant]()
			// First all are rolled back, so that what one stored is not
			// mistaken for what another returned. Then all are committed.
			for _, commit := range []bool{false, true} {
				for i := range methods.NumMethod() {
					m := methods.Method(i)
					t.Run(m.Name, func(t *testing.T) { callForeign(t, db, a.tenant, m, foreigner{b}, commit) })
					after := sums(t, super, tables, b.tenant)
					for table := range after {
						if after[table] != before[table] {
							t.Errorf("%s changed rows of another tenant in %s", m.Name, table)
						}
					}
					before = after
				}
			}
			if after := queryOne[string](t, super, `SELECT string_agg(x::text, '|' ORDER BY x::text) FROM work.item x WHERE tenant_id = $1`, b.tenant); after != work {
				t.Errorf("work of another tenant changed: %s, before %s", after, work)
			}
		})
	}
}

var errTakenBack = errors.New("taken back")

func callForeign(t *testing.T, db *store.DB, as hub.TenantID, m reflect.Method, f foreigner, commit bool) {
	err := db.InTenant(t.Context(), as, func(ctx context.Context, tx *store.Tenant) error {
		args := []reflect.Value{reflect.ValueOf(tx)}
		given := ""
		for i := 1; i < m.Type.NumIn(); i++ {
			if m.Type.In(i) == reflect.TypeFor[context.Context]() {
				args = append(args, reflect.ValueOf(ctx))
				continue
			}
			v := f.value(m.Type.In(i), 0)
			text, _ := json.Marshal(v.Interface())
			given += string(text)
			args = append(args, v)
		}
		writes := strings.Contains(given, f.w.mark)
		for _, out := range m.Func.Call(args) {
			if err, ok := out.Interface().(error); ok {
				return err
			}
			text, _ := json.Marshal(out.Interface())
			// A method that was called with the mark may return it.
			if strings.Contains(string(text), f.w.mark) && !writes && !commit {
				t.Errorf("it gave away %s", text)
			}
			for _, id := range f.w.ids() {
				if strings.Contains(string(text), id) && !strings.Contains(given, id) && !commit {
					t.Errorf("it gave away the id %s in %s", id, text)
				}
			}
			if strings.Contains(string(text), "secret of") {
				t.Errorf("it gave away a credential: %s", text)
			}
		}
		if !commit {
			return errTakenBack
		}
		return nil
	})
	// Any refusal is fine, except one that row security had to speak.
	if err != nil && strings.Contains(err.Error(), "row-level security") {
		t.Errorf("only row security stopped it: %v", err)
	}
}

func TestSameNamesInTwoTenants(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	// The marks are equal: all names, URLs and aliases are the same.
	a, b := build(t, db, "alpha", "same"), build(t, db, "beta", "same")
	for _, w := range []*world{a, b} {
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			app, err := tx.Application(ctx, "argocd", "same")
			if err != nil || app.ID != w.app.ID {
				t.Errorf("ISO-8 the application is %q, %v, want the tenant's own %q", app.ID, err, w.app.ID)
			}
			cluster, err := tx.Cluster(ctx, "same")
			if err != nil || cluster.ID != w.cluster.ID {
				t.Errorf("ISO-8 the cluster is %q, %v, want the tenant's own %q", cluster.ID, err, w.cluster.ID)
			}
			repository, err := tx.RepositoryByURL(ctx, w.repository.URL)
			if err != nil || repository.ID != w.repository.ID {
				t.Errorf("ISO-8 the repository is %q, %v, want the tenant's own %q", repository.ID, err, w.repository.ID)
			}
			project, err := tx.Project(ctx, "same")
			if err != nil || project.ID != w.project.ID {
				t.Errorf("ISO-8 the project is %q, %v, want the tenant's own %q", project.ID, err, w.project.ID)
			}
			user, _, err := tx.UserByName(ctx, "same")
			if err != nil || user.ID != w.user.ID {
				t.Errorf("ISO-8 the user is %q, %v, want the tenant's own %q", user.ID, err, w.user.ID)
			}
			return nil
		})
	}
	t.Run("ISO-8 each tenant has keys of its own", func(t *testing.T) {
		first, err := db.Keys(t.Context(), a.tenant)
		check(t, err)
		second, err := db.Keys(t.Context(), b.tenant)
		check(t, err)
		for _, pair := range [][2][32]byte{{first.Digest, second.Digest}, {first.Object, second.Object}, {first.Credential, second.Credential}, {first.Object, first.Credential}} {
			if pair[0] == pair[1] || pair[0] == ([32]byte{}) {
				t.Error("two keys are equal, or one is empty")
			}
		}
	})
}
