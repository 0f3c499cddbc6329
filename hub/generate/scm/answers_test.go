package scm_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A clock is the time of hub and host.
type clock struct{ now atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	c.now.Store(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC).UnixNano())
	return c
}

func (c *clock) Now() time.Time { return time.Unix(0, c.now.Load()).UTC() }

func (c *clock) pass(d time.Duration) { c.now.Add(int64(d)) }

// An observer counts requests by status.
type observer struct {
	mu    sync.Mutex
	calls []scm.Call
}

func (o *observer) SCMCall(c scm.Call) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.calls = append(o.calls, c)
}

// fleet is an organisation with many repositories.
func fleet(t *testing.T, kind string, n int, c *clock) *scmhosts.Server {
	t.Helper()
	host := scmhosts.New(t, kind)
	host.Now = c.Now
	for i := range n {
		r := shop(int64(i+1), fmt.Sprintf("service-%04d", i))
		r.Pushed = c.Now().Add(-48 * time.Hour)
		host.Put(r)
	}
	return host
}

func TestIdleOrganisation(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{scmhosts.GitHub, scmhosts.GitLab} {
		t.Run("pain 41 "+kind+": 1,000 repositories need less than 100 requests an hour when idle, however many sets ask", func(t *testing.T) {
			t.Parallel()
			const repos, sets = 1000, 5
			c := newClock()
			host := fleet(t, kind, repos, c)
			cache := scm.NewCache(scm.Config{Now: c.Now})
			a := newAccess(host, nil)
			run := func(set int) {
				t.Helper()
				a.answers = cache.Of(scm.Reader{Tenant: "t1", Set: fmt.Sprint(set)})
				got, err := providerOf(t, host, "", `,"filters":[{"pathsExist":["deploy"]}]`).Repositories(t.Context(), a)
				if err != nil || len(got) != repos {
					t.Fatalf("%d repositories, %v", len(got), err)
				}
			}
			run(0)
			first := len(host.Calls())
			if kind == scmhosts.GitHub && first > 2*10+2*repos {
				t.Errorf("the first scan needs %d requests", first)
			}
			most, all := 0, 0
			for range 8 { // hours
				host.Forget()
				for range 2 { // every set asks each half hour, one after the other
					for set := range sets {
						run(set)
						c.pass(30 * time.Minute / sets)
					}
				}
				most, all = max(most, len(host.Calls())), all+len(host.Calls())
			}
			t.Logf("%s: %d requests for the first scan, then %d an hour, %d at most", kind, first, all/26, most)
			if most >= 100 {
				t.Errorf("%d requests in an hour", most)
			}
		})
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	c := newClock()
	host := fleet(t, scmhosts.GitHub, 250, c)
	seen := &observer{}
	cache := scm.NewCache(scm.Config{Now: c.Now, Observer: seen})
	a := newAccess(host, nil)
	list := func(t *testing.T, r scm.Reader) map[string]string {
		t.Helper()
		r.Tenant, r.Namespace, r.Set = "t1", "argocd", "previews"
		a.answers = cache.Of(r)
		got, err := providerOf(t, host, "", "").Repositories(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]string{}
		for _, r := range got {
			out[r.Name] = r.SHA
		}
		return out
	}
	list(t, scm.Reader{})
	push := func(name, sha string) {
		r := shop(7, name)
		r.ID = 7
		r.Branches[0].SHA, r.Pushed = sha, c.Now()
		host.Put(r)
	}
	t.Run("pain 41 a push is seen by the next scan, and asks about one repository", func(t *testing.T) {
		host.Forget()
		c.pass(21 * time.Minute)
		push("service-0006", scmhosts.SHA("second"))
		if got := list(t, scm.Reader{}); got["service-0006"] != scmhosts.SHA("second") || len(got) != 250 {
			t.Errorf("%d repositories, commit %s", len(got), got["service-0006"])
		}
		var branches []string
		for _, call := range host.Calls() {
			if strings.Contains(call.Path, "/branches/") {
				branches = append(branches, call.Path)
			}
		}
		if !slices.Contains(branches, "/api/v3/repos/acme/service-0006/branches/main") || len(branches) > 15 { // some are due for their daily question
			t.Errorf("asked about %v", branches)
		}
	})
	t.Run("pain 41 a second push at the same time as the first scan is seen", func(t *testing.T) {
		c.pass(time.Second)
		push("service-0006", scmhosts.SHA("third"))
		r := shop(7, "service-0006")
		r.Branches[0].SHA, r.Pushed = scmhosts.SHA("third"), c.Now().Add(-time.Second)
		host.Put(r) // the time that the host lists is the same second
		if got := list(t, scm.Reader{Fresh: true}); got["service-0006"] != scmhosts.SHA("third") {
			t.Errorf("commit %s", got["service-0006"])
		}
	})
	t.Run("AGEN-17 an event makes the next scan ask, a set's own poll does not", func(t *testing.T) {
		host.Put(scmhosts.Repository{ID: 999, Name: "new", Default: "main", Branches: []scmhosts.Branch{{Name: "main", SHA: scmhosts.SHA("new")}}, Pushed: c.Now()})
		c.pass(time.Second)
		if got := list(t, scm.Reader{}); got["new"] != "" {
			t.Error("the answer of a moment ago is not used")
		}
		if got := list(t, scm.Reader{Fresh: true}); got["new"] == "" {
			t.Error("a refresh uses the answer of a moment ago")
		}
	})
	t.Run("FT-G3 a removed repository is missing only after a second look", func(t *testing.T) {
		host.Remove("service-0003")
		host.Forget()
		c.pass(time.Second)
		if got := list(t, scm.Reader{Fresh: true}); got["service-0003"] != "" || len(got) != 250 {
			t.Errorf("%d repositories", len(got))
		}
		if calls := host.Calls(); len(calls) < 6 { // three pages, and three again
			t.Errorf("requests: %v", calls)
		}
	})
	t.Run("pain 41 what did not change is confirmed without being sent", func(t *testing.T) {
		host.Forget()
		c.pass(time.Second)
		list(t, scm.Reader{Hard: true})
		for _, call := range host.Calls() {
			if call.Status != http.StatusNotModified {
				t.Errorf("%+v", call)
			}
		}
		if n := len(host.Calls()); n < 250 {
			t.Errorf("a hard refresh asks %d times", n)
		}
	})
	t.Run("AGEN-18 each request is shown with its endpoint, set and limit", func(t *testing.T) {
		host.Limit(4000, c.Now().Add(time.Hour))
		c.pass(time.Hour)
		list(t, scm.Reader{})
		seen.mu.Lock()
		defer seen.mu.Unlock()
		last := seen.calls[len(seen.calls)-1]
		if last.Endpoint != "/orgs/{org}/repos" && last.Endpoint != "/repos/{owner}/{repo}/branches/{branch}" || last.Set != "previews" || last.Namespace != "argocd" || last.Kind != "github" {
			t.Errorf("%+v", last)
		}
		if l := last.Limit; !l.Known || l.Limit != 5000 || l.Remaining >= 4000 || l.Used != 5000-l.Remaining || l.Resource != "core" || l.Reset.IsZero() {
			t.Errorf("%+v", l)
		}
	})
}

func TestSharing(t *testing.T) {
	t.Parallel()
	t.Run("pain 41 sets that ask at the same time wait for one scan", func(t *testing.T) {
		t.Parallel()
		c := newClock()
		host := fleet(t, scmhosts.GitHub, 30, c)
		cache := scm.NewCache(scm.Config{Now: c.Now})
		var wait sync.WaitGroup
		for set := range 10 {
			wait.Go(func() {
				a := newAccess(host, cache.Of(scm.Reader{Tenant: "t1", Set: fmt.Sprint(set), Fresh: true}))
				if got, err := providerOf(t, host, "", "").Repositories(t.Context(), a); err != nil || len(got) != 30 {
					t.Errorf("%d, %v", len(got), err)
				}
			})
		}
		wait.Wait()
		if n := len(host.Calls()); n != 31 {
			t.Errorf("%d requests", n)
		}
	})
	t.Run("SEC-D16 answers are not shared with another tenant, credential or trust", func(t *testing.T) {
		t.Parallel()
		c := newClock()
		host := fleet(t, scmhosts.GitHub, 2, c)
		cache := scm.NewCache(scm.Config{Now: c.Now})
		list := func(tenant hub.TenantID, token string) error {
			a := newAccess(host, cache.Of(scm.Reader{Tenant: tenant}))
			a.secrets["creds/token"] = token
			_, err := providerOf(t, host, "", "").Repositories(t.Context(), a)
			return err
		}
		if err := list("t1", host.Token); err != nil {
			t.Fatal(err)
		}
		host.Forget()
		if err := list("t1", "another"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("another token: %v", err)
		}
		if err := list("t2", "another"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("another tenant without a valid token: %v", err)
		}
		if err := list("t2", host.Token); err != nil || len(host.Calls()) != 5 {
			t.Errorf("another tenant: %v after %d requests", err, len(host.Calls()))
		}
		cache.Forget("t1")
		host.Forget()
		if err := list("t1", host.Token); err != nil || len(host.Calls()) != 3 {
			t.Errorf("after it was forgotten: %v, %d requests", err, len(host.Calls()))
		}
	})
	t.Run("FT-G2 a host that limits requests is left alone until then", func(t *testing.T) {
		t.Parallel()
		c := newClock()
		host := fleet(t, scmhosts.GitHub, 2, c)
		cache := scm.NewCache(scm.Config{Now: c.Now})
		list := func() error {
			a := newAccess(host, cache.Of(scm.Reader{Tenant: "t1", Fresh: true}))
			_, err := providerOf(t, host, "", "").Repositories(t.Context(), a)
			return err
		}
		host.Limit(2, c.Now().Add(10*time.Minute))
		if err := list(); fault.KindOf(err) != fault.Offline {
			t.Fatal(err)
		}
		host.Forget()
		for range 5 {
			if err := list(); fault.KindOf(err) != fault.Offline || !strings.Contains(fault.Sentence(err), "until 09:10:00 UTC") {
				t.Error(err)
			}
		}
		if calls := host.Calls(); len(calls) > 0 {
			t.Errorf("requests while it is limited: %v", calls)
		}
		host.Limit(-1, time.Time{})
		c.pass(10 * time.Minute)
		if err := list(); err != nil {
			t.Error(err)
		}
	})
	t.Run("FT-G2 a failed scan continues where it ended", func(t *testing.T) {
		t.Parallel()
		c := newClock()
		host := fleet(t, scmhosts.GitHub, 50, c)
		cache := scm.NewCache(scm.Config{Now: c.Now})
		a := newAccess(host, cache.Of(scm.Reader{Tenant: "t1"}))
		host.Limit(40, c.Now().Add(time.Hour))
		if _, err := providerOf(t, host, "", "").Repositories(t.Context(), a); fault.KindOf(err) != fault.Offline {
			t.Fatal(err)
		}
		host.Forget()
		host.Limit(25, c.Now().Add(3*time.Hour))
		c.pass(time.Hour)
		for range 5 { // requests of the first scan may still come back
			c.pass(2 * time.Minute)
			a.answers = cache.Of(scm.Reader{Tenant: "t1"})
			got, err := providerOf(t, host, "", "").Repositories(t.Context(), a)
			if err == nil && len(got) == 50 {
				return
			}
		}
		t.Errorf("not complete after %d requests", len(host.Calls()))
	})
}

func TestAuthorities(t *testing.T) {
	t.Parallel()
	t.Run("AGEN-16 caRef and insecure", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitLab)
		host.Put(shop(1, "shop"))
		a := newAccess(host, nil)
		a.ca = ""
		for extra, ok := range map[string]bool{"": false, `,"insecure":true`: true, `,"caRef":{"configMapName":"authorities","key":"ca"}`: true} {
			if _, err := providerOf(t, host, extra, "").Repositories(t.Context(), a); (err == nil) != ok {
				t.Errorf("%s: %v", extra, err)
			}
		}
	})
	t.Run("AGEN-16 appSecretName", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitHub)
		host.Put(withPulls())
		a := newAccess(host, nil)
		p, err := scm.ParsePullRequests(json.RawMessage(`{"github":{"owner":"acme","repo":"shop","api":"` + host.HTTP.URL + `","appSecretName":"app"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.List(t.Context(), a); err != nil || len(got) != 3 {
			t.Errorf("%v, %v", got, err)
		}
		if len(a.app) != 1 || a.app[0] != (scm.AppUse{Secret: "app", BaseURL: host.HTTP.URL + "/api/v3", Owner: "acme", Pulls: true}) || !slices.Equal(a.uses[0].Secrets, []string{"app"}) {
			t.Errorf("%+v %+v", a.app, a.uses)
		}
	})
	t.Run("AGEN-16 basicAuth and bearerToken", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.BitbucketServer)
		host.Put(withPulls())
		for _, auth := range []string{
			`"basicAuth":{"username":"robot","passwordRef":{"secretName":"creds","key":"token"}}`, `"bearerToken":{"tokenRef":{"secretName":"creds","key":"token"}}`,
		} {
			p, err := scm.ParsePullRequests(json.RawMessage(`{"bitbucketServer":{"project":"acme","repo":"shop","api":"` + host.HTTP.URL + `/rest",` + auth + `}}`))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := p.List(t.Context(), newAccess(host, nil)); err != nil || len(got) != 3 {
				t.Errorf("%s: %v, %v", auth, got, err)
			}
		}
	})
}
