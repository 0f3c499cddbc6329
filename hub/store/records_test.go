package store_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestFeed(t *testing.T) {
	t.Parallel()
	t.Run("INV-1 a follower misses nothing with many concurrent writers", func(t *testing.T) {
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
	t.Run("a cursor that is too old or invalid is refused as such", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		w := build(t, db, "acme", "acme")
		until(t, func() bool { return len(changesOf(t, db, w.tenant)) > 0 })
		storetest.In(t, db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			_, err := tx.Collect(ctx, time.Now().Add(2*time.Hour))
			return err
		})
		check(t, db.ReadTenant(t.Context(), w.tenant, func(ctx context.Context, tx *store.Tenant) error {
			for _, old := range []string{must[string](t)(tx.CursorOf(ctx, "0")), "0", "4711", "4711.application." + string(w.app.ID)} { // plain ones are those of earlier releases
				if _, _, err := tx.Changes(ctx, old, 100); fault.KindOf(err) != fault.Missing {
					t.Errorf("old cursor %q: error %v, want Missing", old, err)
				}
			}
			now := must[string](t)(tx.FeedCursor(ctx))
			for _, bad := range []string{"", "x", "-1", "1.2", "1.application.x", "1.application." + string(w.app.ID) + ".4", "99999999999999999999999", "1' OR true --", now[1:], now + "AA", "A" + now[1:] + "A"} {
				if _, _, err := tx.Changes(ctx, bad, 100); fault.KindOf(err) != fault.Invalid {
					t.Errorf("cursor %q: error %v, want Invalid", bad, err)
				}
			}
			if changes, _, err := tx.Changes(ctx, now, 100); err != nil || len(changes) != 0 {
				t.Errorf("after the present cursor: %v, %v, want nothing", changes, err)
			}
			return nil
		}))
	})
	t.Run("INV-7 the cursor of an idle tenant does not move with others' work, and cannot be decoded", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t)
		idle, busy := storetest.Tenant(t, db, "idle"), storetest.Tenant(t, db, "busy")
		cursor := func(tenant hub.TenantID) (out string) {
			check(t, db.ReadTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
				out, err = tx.FeedCursor(ctx)
				return err
			}))
			return out
		}
		write := func(tenant hub.TenantID, name string) (id string) {
			storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
				p, err := tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: name}})
				id = string(p.ID)
				return err
			})
			return id
		}
		first := write(idle, "first")
		// Making the tenant was a change as well: the newest one has to be there.
		until(t, func() bool {
			return slices.ContainsFunc(changesOf(t, db, idle), func(c hub.Change) bool { return c.ID == first })
		})
		before, theirs := cursor(idle), cursor(busy)
		for i := range 5 {
			write(busy, fmt.Sprintf("p%d", i))
		}
		until(t, func() bool { return cursor(busy) != theirs })
		if got := cursor(idle); got != before {
			t.Errorf("the cursor went from %q to %q", before, got)
		}
		check(t, db.ReadTenant(t.Context(), busy, func(ctx context.Context, tx *store.Tenant) error {
			if _, _, err := tx.Changes(ctx, before, 100); fault.KindOf(err) != fault.Invalid {
				t.Errorf("ISO-5 another tenant's cursor: error %v, want Invalid", err)
			}
			return nil
		}))
		write(idle, "second")
		until(t, func() bool { return cursor(idle) != before })
	})
	t.Run("one transaction changes an object once in the feed, and marks deleted ones", func(t *testing.T) {
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
		start := must[string](t)(tx.CursorOf(ctx, "0"))
		out, _, err = tx.Changes(ctx, start, 100)
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
					return tx.AppendHistory(ctx, []hub.HistoryEntry{{Application: w.app.ID, Operation: operation, Revision: fmt.Sprint(i),
						Source: []byte(`{"a": 1}`), Revisions: []string{"x"}, StartedAt: now(), DeployedAt: now()}})
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
			return tx.FinishIdempotent(ctx, hub.IdempotencyKey{Key: key, Attempt: "try"}, "ann", status, []byte(body))
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
	settle := func(key, attempt string) error {
		return db.InTenant(t.Context(), tenant, func(ctx context.Context, tx *store.Tenant) error {
			return tx.SettleIdempotent(ctx, hub.IdempotencyKey{Key: key, Attempt: attempt}, "ann")
		})
	}
	t.Run("FT-D2 a request whose answer was lost takes effect once", func(t *testing.T) {
		if _, _, _, err := begin("lost", "ann", hash); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a request may write in several transactions
			if err := settle("lost", "first"); err != nil {
				t.Fatal(err)
			}
		}
		finish("lost", 0, "") // its own client got an error
		if err := settle("lost", "second"); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a second try took effect: %v", err)
		}
		finish("lost", 409, "the second try's") // "try" is not the one that did it
		if _, _, _, err := begin("lost", "ann", hash); fault.KindOf(err) != fault.Conflict {
			t.Errorf("the repetition is told %v, want Conflict", err)
		}
		if err := settle("unknown", "first"); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a key that nobody took was settled: %v", err)
		}
	})
	t.Run("FT-D2 the answer replaces the note", func(t *testing.T) {
		if _, _, _, err := begin("answered", "ann", hash); err != nil {
			t.Fatal(err)
		}
		if err := settle("answered", "try"); err != nil {
			t.Fatal(err)
		}
		finish("answered", 202, "done")
		if status, body, found, err := begin("answered", "ann", hash); status != 202 || string(body) != "done" || !found || err != nil {
			t.Errorf("%d %q %v %v", status, body, found, err)
		}
	})
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
	t.Run("a token is found until its user is deleted", func(t *testing.T) {
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
	t.Run("SEC-E8 addresses of an account are known until they expire, and deleted with it", func(t *testing.T) {
		known := func(key [32]byte, at time.Time) bool { return must[bool](t)(s.KnownAddress(ctx, key, at)) }
		start, tenant := now(), w.tenant
		var user hub.UserID
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error {
			u, err := tx.CreateUser(ctx, hub.User{Name: "kim"}, "x")
			user = u.ID
			return err
		})
		one, two := sha256.Sum256([]byte("kim at home")), sha256.Sum256([]byte("kim at work"))
		check(t, s.PutKnownAddress(ctx, one, tenant, user, start.Add(2*time.Hour)))
		check(t, s.PutKnownAddress(ctx, one, tenant, user, start.Add(time.Hour)))
		if !known(one, start.Add(90*time.Minute)) || known(one, start.Add(3*time.Hour)) || known(two, start) {
			t.Error("what is known, and until when, is wrong")
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.EndSessions(ctx, user) })
		if !known(one, start) {
			t.Error("it is gone with the sessions")
		}
		storetest.In(t, db, tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.DeleteUser(ctx, user) })
		if known(one, start) {
			t.Error("it is still known after the account was deleted")
		}
	})
	t.Run("expired rows are collected", func(t *testing.T) {
		if must[bool](t)(s.Collect(ctx, time.Now().Add(1000*time.Hour))) {
			t.Error("a few rows are said to be too many for once")
		}
	})
}
