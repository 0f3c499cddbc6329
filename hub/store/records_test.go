package store_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

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
			newest := must[[]hub.AuditRecord](t)(tx.AuditBefore(ctx, 0, 2))
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
	t.Run("a record without an act is our defect", func(t *testing.T) {
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

func TestFeed(t *testing.T) {
	t.Parallel()
	t.Run("INV-1 a follower misses nothing beside many writers", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant := storetest.Tenant(t, db, "acme")
		const writers, each = 10, 10
		var cursor string
		check(t, db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
			cursor, err = tx.FeedCursor(ctx)
			return err
		}))
		made := make(chan string, writers*each)
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() {
				for j := range each {
					var p hub.Project
					err := db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
						p, err = tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: fmt.Sprintf("p%d-%d", i, j)}})
						return err
					})
					if err != nil {
						t.Error(err)
						return
					}
					made <- string(p.ID)
				}
			})
		}
		go func() { wg.Wait(); close(made) }()
		seen, wanted := map[string]int{}, map[string]bool{}
		follow := func() {
			for more := true; more; {
				check(t, db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
					changes, next, err := tx.Changes(ctx, cursor, 7)
					for _, c := range changes {
						seen[c.ID]++
						delete(wanted, c.ID)
					}
					more, cursor = len(changes) == 7, next
					return err
				}))
			}
		}
		for id := range made {
			if seen[id] == 0 {
				wanted[id] = true
			}
			follow()
		}
		until(t, func() bool { follow(); return len(wanted) == 0 })
		for id, n := range seen {
			if n != 1 {
				t.Errorf("project %s was seen %d times, want once", id, n)
			}
		}
	})
	t.Run("a cursor that is too old or no cursor is said so", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		w := build(t, db, "acme", "acme")
		until(t, func() bool { return len(changesOf(t, db, w.tenant)) > 0 })
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.Collect(ctx, time.Now().Add(2*time.Hour))
		})
		check(t, db.ReadTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if _, _, err := tx.Changes(ctx, "0", 100); fault.KindOf(err) != fault.Missing {
				t.Errorf("old cursor: error %v, want Missing", err)
			}
			for _, bad := range []string{"", "x", "-1", "1.2", "1.application.x", "1.application." + string(w.app.ID) + ".4", "99999999999999999999999", "1' OR true --"} {
				if _, _, err := tx.Changes(ctx, bad, 100); fault.KindOf(err) != fault.Invalid {
					t.Errorf("cursor %q: error %v, want Invalid", bad, err)
				}
			}
			now, err := tx.FeedCursor(ctx)
			check(t, err)
			if changes, _, err := tx.Changes(ctx, now, 100); err != nil || len(changes) != 0 {
				t.Errorf("after the present cursor: %v, %v, want nothing", changes, err)
			}
			return nil
		}))
	})
	t.Run("one transaction touches a thing once, and says what is gone", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		tenant := storetest.Tenant(t, db, "acme")
		var id hub.ProjectID
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			p := must[hub.Project](t)(tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: "shop"}}))
			must[hub.Project](t)(tx.UpdateProject(ctx, p, 1))
			id = p.ID
			return tx.DeleteProject(ctx, "shop")
		})
		until(t, func() bool {
			changes := slices.DeleteFunc(changesOf(t, db, tenant), func(c hub.Change) bool { return c.ID != string(id) })
			if len(changes) > 1 || (len(changes) == 1 && !changes[0].Gone) {
				t.Errorf("changes of the project: %+v, want one that says it is gone", changes)
			}
			return len(changes) > 0
		})
	})
}

// until repeats what depends on other transactions of the server, those of
// tests beside this one too: the feed shows nothing newer than the oldest.
func until(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatal("it did not come within a minute")
		}
		<-time.After(5 * time.Millisecond)
	}
}

func changesOf(t *testing.T, db *store.DB, tenant hub.TenantID) (out []hub.Change) {
	t.Helper()
	check(t, db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
		out, _, err = tx.Changes(ctx, "0", 100)
		return err
	}))
	return out
}

func TestHistory(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	var wg sync.WaitGroup
	for i := range 10 {
		wg.Go(func() {
			operation := hub.NewID[hub.OperationID]()
			for range 2 { // an outcome may be settled twice
				err := db.InTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
					return tx.AppendHistory(ctx, hub.HistoryEntry{Application: w.app.ID, Operation: operation, Revision: fmt.Sprint(i),
						Source: []byte(`{"a": 1}`), Revisions: []string{"x"}, StartedAt: now(), DeployedAt: now()})
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		got := must[[]hub.HistoryEntry](t)(tx.History(ctx, w.app.ID))
		var numbers []int64
		for _, e := range got {
			numbers = append(numbers, e.ID)
		}
		if want := []int64{11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}; !slices.Equal(numbers, want) {
			t.Errorf("APP-12 INV-8 the numbers are %v, want each operation once without a gap: %v", numbers, want)
		}
		e := must[hub.HistoryEntry](t)(tx.HistoryEntry(ctx, w.app.ID, 5))
		if e.ID != 5 || string(e.Source) != `{"a": 1}` || !slices.Equal(e.Revisions, []string{"x"}) {
			t.Errorf("entry 5 is %+v", e)
		}
		if _, err := tx.HistoryEntry(ctx, w.app.ID, 99); fault.KindOf(err) != fault.Missing {
			t.Errorf("entry 99: error %v, want Missing", err)
		}
		return nil
	})
}

func TestIdempotency(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	tenant := storetest.Tenant(t, db, "acme")
	hash := sha256.Sum256([]byte("request"))
	begin := func(key, caller string, hash [32]byte) (status int, body []byte, found bool, err error) {
		err = db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
			status, body, found, err = tx.BeginIdempotent(ctx, key, caller, hash)
			return err
		})
		return status, body, found, err
	}
	finish := func(key string, status int, body string) {
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.FinishIdempotent(ctx, key, "ann", status, []byte(body))
		})
	}
	if _, _, found, err := begin("k", "ann", hash); found || err != nil {
		t.Fatalf("a new key: found %v, %v", found, err)
	}
	if status, _, found, err := begin("k", "ann", hash); !found || status != 0 || err != nil {
		t.Errorf("a key that is being answered: %d, found %v, %v", status, found, err)
	}
	finish("k", 201, "the answer")
	if status, body, found, err := begin("k", "ann", hash); !found || status != 201 || string(body) != "the answer" || err != nil {
		t.Errorf("an answered key: %d %q, found %v, %v", status, body, found, err)
	}
	finish("k", 500, "another")
	if status, _, _, _ := begin("k", "ann", hash); status != 201 {
		t.Errorf("the answer changed to %d", status)
	}
	if _, _, _, err := begin("k", "ann", sha256.Sum256([]byte("other"))); fault.KindOf(err) != fault.Conflict {
		t.Errorf("the key for another request: error %v, want Conflict", err)
	}
	if _, _, found, err := begin("k", "bob", hash); found || err != nil {
		t.Errorf("another caller's key: found %v, %v", found, err)
	}
	if _, _, found, _ := begin("given back", "ann", hash); found {
		t.Error("a new key was found")
	}
	finish("given back", 0, "")
	if _, _, found, _ := begin("given back", "ann", hash); found {
		t.Error("a key that was given back was found")
	}
}

func TestSessionsAndLinks(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	ctx, s := t.Context(), db.System()
	session := sha256.Sum256([]byte(w.tenant + "session"))
	token := w.token.Hash
	t.Run("a session is found until it ends", func(t *testing.T) {
		got := must[hub.Session](t)(s.Session(ctx, session))
		if got.User != w.user.ID || got.Tenant != w.tenant || got.Hash != session {
			t.Errorf("session %+v", got)
		}
		later := now().Add(time.Minute)
		check(t, s.TouchSession(ctx, session, later))
		if got := must[hub.Session](t)(s.Session(ctx, session)); !got.SeenAt.Equal(later) {
			t.Errorf("seen at %v, want %v", got.SeenAt, later)
		}
		check(t, s.SetSuspended(ctx, w.tenant, true))
		if _, err := s.Session(ctx, session); fault.KindOf(err) != fault.Missing {
			t.Errorf("ISO-10 of a suspended tenant: error %v, want Missing", err)
		}
		if _, err := s.Token(ctx, token); fault.KindOf(err) != fault.Missing {
			t.Errorf("ISO-10 token of a suspended tenant: error %v, want Missing", err)
		}
		check(t, s.SetSuspended(ctx, w.tenant, false))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.SetPassword(ctx, w.user.ID, "new") })
		if _, err := s.Session(ctx, session); fault.KindOf(err) != fault.Missing {
			t.Errorf("after a new password: error %v, want Missing", err)
		}
	})
	t.Run("a token is found until its user is gone", func(t *testing.T) {
		check(t, s.TouchToken(ctx, token, now()))
		got := must[hub.APIToken](t)(s.Token(ctx, token))
		if got.ID != w.token.ID || got.UsedAt == nil {
			t.Errorf("token %+v", got)
		}
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			listed := must[[]hub.APIToken](t)(tx.Tokens(ctx, w.user.ID))
			if len(listed) != 1 || listed[0].UsedAt == nil || listed[0].Name != "acme" {
				t.Errorf("tokens %+v", listed)
			}
			if err := tx.DeleteToken(ctx, hub.NewID[hub.UserID](), w.token.ID); fault.KindOf(err) != fault.Missing {
				t.Errorf("another user's token: error %v, want Missing", err)
			}
			return tx.DeleteUser(ctx, w.user.ID)
		})
		if _, err := s.Token(ctx, token); fault.KindOf(err) != fault.Missing {
			t.Errorf("after its user: error %v, want Missing", err)
		}
	})
	t.Run("a setup link is used once", func(t *testing.T) {
		link := sha256.Sum256([]byte(w.tenant + "setup"))
		must[hub.SetupLink](t)(s.SetupLink(ctx, link))
		if _, err := s.UseSetupLink(ctx, link, time.Now().Add(2*time.Hour)); fault.KindOf(err) != fault.Missing {
			t.Errorf("after its time: error %v, want Missing", err)
		}
		var wg sync.WaitGroup
		var mu sync.Mutex
		taken := 0
		for range 8 {
			wg.Go(func() {
				if _, err := s.UseSetupLink(ctx, link, time.Now()); err == nil {
					mu.Lock()
					taken++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if taken != 1 {
			t.Errorf("it was used %d times", taken)
		}
	})
	t.Run("failed sign-ins count within a window", func(t *testing.T) {
		key, start := sha256.Sum256([]byte("ann")), now()
		for want := 1; want <= 3; want++ {
			if n := must[int](t)(s.LoginFailure(ctx, key, start.Add(time.Duration(want)*time.Second), time.Minute)); n != want {
				t.Errorf("failure %d counts as %d", want, n)
			}
		}
		if n := must[int](t)(s.LoginFailures(ctx, key, start)); n != 3 {
			t.Errorf("%d failures, want 3", n)
		}
		if n := must[int](t)(s.LoginFailure(ctx, key, start.Add(time.Hour), time.Minute)); n != 1 {
			t.Errorf("after the window the count is %d, want 1", n)
		}
		check(t, s.ForgetLoginFailures(ctx, key))
		if n := must[int](t)(s.LoginFailures(ctx, key, start)); n != 0 {
			t.Errorf("%d failures after they were forgotten", n)
		}
	})
	t.Run("expired rows are collected", func(t *testing.T) {
		check(t, s.Collect(ctx, time.Now().Add(1000*time.Hour)))
	})
}

func TestLinkDirectory(t *testing.T) {
	t.Parallel()
	db := storetest.Open(t)
	w := build(t, db, "acme", "acme")
	ctx, s := t.Context(), db.System()
	join := sha256.Sum256([]byte(w.tenant + "join"))
	redeem := func(agent, serial, key string) error {
		return s.Redeem(ctx, hub.Redemption{Enrolment: w.enrolment.ID, Key: []byte(key), Fingerprint: "uid", At: now(), Address: "127.0.0.1",
			Certificate: hub.Certificate{Tenant: w.tenant, Cluster: w.cluster.ID, AgentID: agent, Serial: serial, NotBefore: now(), NotAfter: now().Add(time.Hour)}})
	}
	t.Run("a join token is used by one key", func(t *testing.T) {
		got := must[hub.Invitation](t)(s.EnrolmentByHash(ctx, join))
		if got.ID != w.enrolment.ID || got.ClusterName != "acme" || got.Tenant != w.tenant || got.UsedAt != nil {
			t.Errorf("invitation %+v", got)
		}
		check(t, redeem("agent-1", "01", "key"))
		check(t, redeem("agent-1", "02", "key"))
		if err := redeem("agent-2", "03", "other key"); fault.KindOf(err) != fault.Conflict {
			t.Errorf("another key: error %v, want Conflict", err)
		}
		got = must[hub.Invitation](t)(s.EnrolmentByHash(ctx, join))
		if got.UsedAt == nil || got.AgentID != "agent-1" || string(got.Key) != "key" || len(got.Attempts) != 2 {
			t.Errorf("used invitation %+v", got)
		}
		if _, err := s.EnrolmentByHash(ctx, [32]byte{9}); fault.KindOf(err) != fault.Missing {
			t.Errorf("an unknown token: error %v, want Missing", err)
		}
		for range 30 {
			check(t, s.Attempted(ctx, "acme", hub.Attempt{At: now(), Address: "127.0.0.1", Stage: "used"}))
		}
		check(t, s.Attempted(ctx, "nobody's", hub.Attempt{At: now()}))
		if got := must[hub.Invitation](t)(s.EnrolmentByHash(ctx, join)); len(got.Attempts) != 20 {
			t.Errorf("INV-9 %d attempts are kept, want the last 20", len(got.Attempts))
		}
	})
	t.Run("the agent that is replaced is revoked", func(t *testing.T) {
		before := must[int64](t)(s.RevocationVersion(ctx))
		second := sha256.Sum256([]byte("second"))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			w.enrolment = must[hub.Enrolment](t)(tx.CreateEnrolment(ctx, hub.Enrolment{Cluster: w.cluster.ID, Prefix: "two", ExpiresAt: now().Add(time.Hour)}, second))
			return nil
		})
		check(t, redeem("agent-9", "09", "new key"))
		if after := must[int64](t)(s.RevocationVersion(ctx)); after != before+1 {
			t.Errorf("the version went from %d to %d", before, after)
		}
		revoked := must[[]hub.Revocation](t)(s.Revocations(ctx, time.Now()))
		if diff := cmp.Diff([]hub.Revocation{{AgentID: "agent-1"}}, revoked); diff != "" {
			t.Errorf("revocations: %s", diff)
		}
		if m := must[hub.Member](t)(s.Member(ctx, w.tenant, w.cluster.ID)); m.AgentID != "agent-9" || m.ClusterName != "acme" || m.Suspended {
			t.Errorf("member %+v", m)
		}
		check(t, s.Renewed(ctx, hub.Certificate{Tenant: w.tenant, Cluster: w.cluster.ID, AgentID: "agent-9", Serial: "10", NotBefore: now(), NotAfter: now().Add(time.Hour)}))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.RevokeAgent(ctx, w.cluster.ID) })
		if revoked := must[[]hub.Revocation](t)(s.Revocations(ctx, time.Now())); len(revoked) != 2 {
			t.Errorf("revocations %+v, want two", revoked)
		}
		if _, err := s.EnrolmentByHash(ctx, second); fault.KindOf(err) != fault.Missing {
			t.Errorf("join tokens outlive the revocation: %v", err)
		}
	})
	t.Run("presence follows the newest session", func(t *testing.T) {
		at := hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s1", Replica: "r1", KubeVersion: "v1.35.4", APIVersions: []string{"v1"}, At: now()}
		check(t, s.Connected(ctx, at))
		at.Session, at.Replica = "s2", "r2"
		check(t, s.Connected(ctx, at))
		check(t, s.Disconnected(ctx, w.tenant, w.cluster.ID, "s1"))
		if r := must[string](t)(s.ReplicaOf(ctx, w.tenant, w.cluster.ID)); r != "r2" {
			t.Errorf("replica %q, want that of the newest session", r)
		}
		seen := now().Add(time.Second)
		check(t, s.Seen(ctx, []hub.Sighting{
			{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s1", At: seen.Add(time.Hour)},
			{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s2", At: seen, Backlog: 3},
		}))
		check(t, s.Seen(ctx, nil))
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			c := must[hub.Cluster](t)(tx.ClusterByID(ctx, w.cluster.ID))
			if !c.Connected || c.LastSeen == nil || !c.LastSeen.Equal(seen) || c.KubeVersion != "v1.35.4" {
				t.Errorf("cluster %+v", c)
			}
			return nil
		})
		check(t, s.Disconnected(ctx, w.tenant, w.cluster.ID, "s2"))
		if _, err := s.ReplicaOf(ctx, w.tenant, w.cluster.ID); fault.KindOf(err) != fault.Offline {
			t.Errorf("without a session: error %v, want Offline", err)
		}
	})
	t.Run("INV-6 an agent that nobody has seen is not connected", func(t *testing.T) {
		old := hub.Attachment{Tenant: w.tenant, Cluster: w.cluster.ID, Session: "s3", Replica: "r3", At: now().Add(-time.Hour)}
		other := storetest.Open(t)
		v := build(t, other, "acme", "acme")
		storetest.In(t, other, v.tenant, func(ctx context.Context, tx *store.Tenant) error {
			fresh := must[hub.Cluster](t)(tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "silent"}}))
			old.Tenant, old.Cluster = v.tenant, fresh.ID
			return nil
		})
		check(t, other.System().Connected(ctx, old))
		storetest.In(t, other, v.tenant, func(ctx context.Context, tx *store.Tenant) error {
			if c := must[hub.Cluster](t)(tx.Cluster(ctx, "silent")); c.Connected || c.LastSeen == nil {
				t.Errorf("cluster %+v, want not connected since it was last seen", c)
			}
			return nil
		})
	})
	t.Run("the authority is put once and comes back whole", func(t *testing.T) {
		if _, err := s.Authority(ctx); fault.KindOf(err) != fault.Missing {
			t.Errorf("before it is put: error %v, want Missing", err)
		}
		check(t, s.PutAuthority(ctx, []byte("private")))
		if err := s.PutAuthority(ctx, []byte("another")); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a second one: error %v, want Conflict", err)
		}
		if got := must[[]byte](t)(s.Authority(ctx)); string(got) != "private" {
			t.Errorf("it came back as %q", got)
		}
	})
}
