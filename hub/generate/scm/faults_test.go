package scm_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/integration/rigs/canary"
	"github.com/capstan-cd/capstan/integration/rigs/scmhosts"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A failing is what a host answers instead.
type failing struct {
	why  string
	kind fault.Kind
	do   func(w http.ResponseWriter)
}

func answer(status int, kind, body string, headers ...string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", kind)
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func failings() map[string]failing {
	const text, html = "application/json", "text/html"
	return map[string]failing{
		"status 500":                {"the host is broken", fault.Offline, answer(500, text, `{"message":"boom"}`)},
		"status 502 of a proxy":     {"a proxy has no host", fault.Offline, answer(502, html, "<html>bad gateway</html>")},
		"HTML with 200":             {"a proxy, or a sign-in page", fault.Offline, answer(200, html, "<html>hello</html>")},
		"HTML said to be JSON":      {"a proxy that lies", fault.Offline, answer(200, text, "<html>hello</html>")},
		"status 404 of a proxy":     {"it says nothing about the repository", fault.Offline, answer(404, html, "<html>not found</html>")},
		"status 404 without reason": {"the API always says why", fault.Offline, answer(404, text, "")},
		"an empty answer":           {"it is no document", fault.Offline, answer(200, text, "")},
		"null":                      {"it is no list", fault.Offline, answer(200, text, "null")},
		"an answer of another kind": {"an object without a list, or a list where an object is due", fault.Offline, answer(200, text, `"hello"`)},
		"no content":                {"it is no list", fault.Offline, answer(204, text, "")},
		"status 203":                {"Azure DevOps sends its sign-in page so", fault.Offline, answer(203, html, "<html>sign in</html>")},
		"status 304 unasked":        {"nothing is known that it could confirm", fault.Offline, func(w http.ResponseWriter) { w.WriteHeader(304) }},
		"status 401":                {"the token is revoked", fault.Invalid, answer(401, text, `{"message":"Bad credentials"}`)},
		"status 403":                {"the token may not", fault.Invalid, answer(403, text, `{"message":"Resource not accessible by personal access token"}`)},
		"status 429":                {"a rate limit", fault.Offline, answer(429, text, `{"message":"slow down"}`, "Retry-After", "30")},
		"status 403 with a limit":   {"GitHub's rate limit", fault.Offline, answer(403, text, `{"message":"API rate limit exceeded"}`, "X-RateLimit-Remaining", "0")},
		"a secondary limit":         {"GitHub's other rate limit", fault.Offline, answer(403, text, `{"message":"You have exceeded a secondary rate limit"}`)},
		"a redirect elsewhere":      {"a token does not follow it", fault.Invalid, answer(302, html, "", "Location", "https://attacker.example/")},
		"half an answer": {"the connection ends early", fault.Offline, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "4096")
			_, _ = w.Write([]byte(`[{"id":1`))
		}},
		"half an answer in chunks": {"the connection ends early", fault.Offline, func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`[`))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}},
	}
}

// TestFaults has each document fail that a list needs.
func TestFaults(t *testing.T) {
	t.Parallel()
	for _, kind := range repositoryKinds() {
		for name, f := range failings() {
			t.Run("FT-G2 "+kind+": "+name+" is an error, never a shorter list", func(t *testing.T) {
				t.Parallel()
				host := scmhosts.New(t, kind)
				host.Most = 2
				host.Put(withPulls(), shop(2, "cart"), shop(3, "web"))
				var broken atomic.Pointer[string] // path and query
				host.Override = func(w http.ResponseWriter, r *http.Request) bool {
					document := broken.Load()
					if document == nil || *document != r.URL.EscapedPath()+"?"+r.URL.RawQuery || r.Header.Get("If-None-Match") != "" {
						return false
					}
					f.do(w)
					return true
				}
				a := newAccess(host, nil)
				list := func() (int, error) {
					got, err := providerOf(t, host, `,"allBranches":true`, `,"filters":[{"pathsExist":["deploy"]}]`).Repositories(t.Context(), a)
					if err != nil {
						return len(got), err
					}
					pulls, err := pullsOf(t, host, "shop", "", `,"continueOnRepoNotFoundError":true`).List(t.Context(), a)
					if err != nil {
						return len(pulls), err
					}
					return len(got) + len(pulls), nil
				}
				if n, err := list(); n != 6 || err != nil {
					t.Fatalf("without a fault %d, %v", n, err)
				}
				documents := map[string]bool{}
				for _, c := range host.Calls() {
					documents[c.Path+"?"+c.Query] = true
				}
				for document := range documents {
					broken.Store(&document)
					if n, err := list(); n != 0 || fault.KindOf(err) != f.kind {
						t.Errorf("%s fails, %s: %d items, %q error %v, want %q", document, f.why, n, fault.KindOf(err), err, f.kind)
					}
				}
			})
		}
	}
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	host := scmhosts.New(t, scmhosts.GitHub)
	p := providerOf(t, host, "", "")
	for _, c := range []struct {
		name   string
		change func(*access)
		want   string
	}{
		{"FT-G2 a certificate that is not trusted", func(a *access) { a.ca = "" }, "certificate"},
		{"SEC-A6 settings that refuse the address", func(a *access) { a.refuse = fault.New(fault.Denied, "not allowed") }, "not allowed"},
		{"CRED-04 a Secret that is not there", func(a *access) { clear(a.secrets) }, "no such value"},
		{"AGEN-16 a Secret without a token", func(a *access) { a.secrets["creds/token"] = " \n" }, "holds no token"},
		{"FT-G2 a host that is away", func(*access) { host.HTTP.Close() }, "cannot be reached"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAccess(host, nil)
			c.change(a)
			if got, err := p.Repositories(t.Context(), a); err == nil || got != nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, %v, want %q", got, err, c.want)
			}
		})
	}
}

// TestPartialLists has hosts that say that their list is not complete.
func TestPartialLists(t *testing.T) {
	t.Parallel()
	t.Run("FT-G2 GitHub lists only what single sign-on permits", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitHub)
		host.Put(shop(1, "shop"))
		host.Override = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("X-GitHub-SSO", "partial-results; organizations=21955855")
			return false
		}
		if got, err := providerOf(t, host, "", "").Repositories(t.Context(), newAccess(host, nil)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("FT-G2 GitLab counts more projects than it lists", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitLab)
		host.Put(shop(1, "shop"))
		host.Override = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.HasSuffix(r.URL.Path, "/projects") {
				return false
			}
			answer(200, "application/json", `[{"id":1,"path":"shop","namespace":{"full_path":"acme"},"default_branch":"main","ssh_url_to_repo":"s","http_url_to_repo":"h"}]`, "X-Total", "2")(w)
			return true
		}
		if got, err := providerOf(t, host, "", "").Repositories(t.Context(), newAccess(host, nil)); fault.KindOf(err) != fault.Offline {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("FT-G2 GitLab leaves out branches that a role may not read", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitLab)
		r := shop(1, "shop")
		r.Default = ""
		host.Put(r)
		if got, err := providerOf(t, host, "", "").Repositories(t.Context(), newAccess(host, nil)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%v, %v", got, err)
		}
	})
	t.Run("FT-G3 a list that changes between its pages is read again", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitHub)
		host.Most = 2
		host.Put(shop(1, "shop"), shop(2, "cart"), shop(3, "web"), shop(4, "api"), shop(5, "docs"))
		removed := false
		host.Override = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("page") == "2" && !removed {
				removed = true
				host.Remove("shop") // web moves to the first page, which was read
			}
			return false
		}
		got, err := providerOf(t, host, "", "").Repositories(t.Context(), newAccess(host, nil))
		if names := strings.Join(listed(got), " "); err != nil || names != "cart@main web@main api@main docs@main" {
			t.Errorf("%s: %v", names, err)
		}
	})
	t.Run("FT-G3 a list that changes all the time is an error", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitHub)
		host.Most = 2
		for i := range 9 {
			host.Put(shop(int64(i+1), fmt.Sprintf("shop-%d", i)))
		}
		var n int
		host.Override = func(_ http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("page") == "2" {
				host.Remove(fmt.Sprintf("shop-%d", n))
				n++
			}
			return false
		}
		if got, err := providerOf(t, host, "", "").Repositories(t.Context(), newAccess(host, nil)); fault.KindOf(err) != fault.Offline {
			t.Errorf("%v: %v", listed(got), err)
		}
	})
}

// TestTokensStaySecret searches for tokens in errors, URLs and at other hosts.
func TestTokensStaySecret(t *testing.T) {
	t.Parallel()
	for _, kind := range repositoryKinds() {
		t.Run("SEC-D16 "+kind+" repeats a token, and redirects elsewhere: no error has it, and no other host gets it", func(t *testing.T) {
			t.Parallel()
			secrets := canary.New()
			host, other := scmhosts.New(t, kind), scmhosts.New(t, kind)
			host.Token = secrets.Plant("token")
			host.Put(shop(1, "shop"))
			body := func(status int, kind string) func(http.ResponseWriter) {
				return answer(status, kind, `{"message":"rate limit for `+host.Token+`","errors":[{"message":"`+host.Token+`"}]}`, "Location", other.HTTP.URL+"/?token="+host.Token)
			}
			for _, status := range []int{200, 301, 302, 307, 308, 400, 401, 403, 404, 422, 429, 500} {
				for _, contentType := range []string{"application/json", "text/html"} {
					host.Override = func(w http.ResponseWriter, _ *http.Request) bool {
						body(status, contentType)(w)
						return true
					}
					a := newAccess(host, nil)
					a.ca += other.CA()
					_, err := providerOf(t, host, "", "").Repositories(t.Context(), a)
					if err == nil {
						t.Fatalf("status %d is no error", status)
					}
					for e := err; e != nil; e = errors.Unwrap(e) {
						if found := secrets.Find("error", []byte(e.Error())); len(found) > 0 {
							t.Errorf("status %d: %v in %q", status, found, e)
						}
					}
				}
			}
			if calls := other.Calls(); len(calls) > 0 {
				t.Errorf("requests to another host: %v", calls)
			}
			for _, c := range host.Calls() {
				if found := secrets.Find("address", []byte(c.Path+"?"+c.Query)); len(found) > 0 {
					t.Errorf("%v in the address %s?%s", found, c.Path, c.Query)
				}
			}
		})
	}
}

// TestHostileAnswers has hosts that try to be asked for more, or elsewhere.
func TestHostileAnswers(t *testing.T) {
	t.Parallel()
	t.Run("SEC-B10 a list without an end is an error", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitHub)
		var n int
		host.Override = func(w http.ResponseWriter, r *http.Request) bool {
			n++
			answer(200, "application/json", fmt.Sprintf(`[{"id":%d}]`, n), "Link", `<https://`+r.Host+`/x?page=9>; rel="next"`)(w)
			return true
		}
		if _, err := providerOf(t, host, "", "").Repositories(t.Context(), newAccess(host, nil)); fault.KindOf(err) != fault.Exceeded || n != 200 {
			t.Errorf("after %d pages: %v", n, err)
		}
	})
	t.Run("SEC-B10 an answer without an end is an error", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitHub)
		host.Override = func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "application/json")
			for range 9 {
				_, _ = w.Write([]byte(strings.Repeat(" ", 1<<20)))
			}
			return true
		}
		if _, err := providerOf(t, host, "", "").Repositories(t.Context(), newAccess(host, nil)); fault.KindOf(err) != fault.Exceeded {
			t.Error(err)
		}
	})
	t.Run("SEC-A6 the next page of Bitbucket Cloud is asked for at the same host", func(t *testing.T) {
		t.Parallel()
		host, other := scmhosts.New(t, scmhosts.Bitbucket), scmhosts.New(t, scmhosts.Bitbucket)
		host.Put(withPulls())
		host.Override = func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Query().Get("page") != "" {
				return false
			}
			answer(200, "application/json", `{"values":[],"next":"`+other.HTTP.URL+`/2.0/repositories/acme/shop/pullrequests?page=1&pagelen=50"}`)(w)
			return true
		}
		got, err := pullsOf(t, host, "shop", "", "").List(t.Context(), newAccess(host, nil))
		if err != nil || len(got) != 3 || len(other.Calls()) > 0 {
			t.Errorf("%d, %v, requests elsewhere %v", len(got), err, other.Calls())
		}
	})
	t.Run("SEC-A6 names do not leave their place in an address", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitHub)
		name := "../../user?x=1#y"
		p, err := scm.ParseProvider(json.RawMessage(`{"github":{"organization":"` + name + `","api":"` + host.HTTP.URL + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Repositories(t.Context(), newAccess(host, nil)); err == nil {
			t.Fatal("it is listed")
		}
		if c := host.Calls()[0]; c.Path != "/api/v3/orgs/"+url.PathEscape(name)+"/repos" || c.Authority != "" {
			t.Errorf("request %+v", c)
		}
	})
	t.Run("SEC-A6 an address with a user name is refused", func(t *testing.T) {
		t.Parallel()
		for _, api := range []string{"https://user:secret@github.example", "file:///etc/passwd", "github.example", "gopher://x"} {
			p, err := scm.ParseProvider(json.RawMessage(`{"github":{"organization":"acme","api":"` + api + `"}}`))
			if err != nil {
				t.Fatal(err)
			}
			a := &access{}
			if _, err := p.Repositories(t.Context(), a); fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "secret") || len(a.uses) > 0 {
				t.Errorf("%s: %v", api, err)
			}
		}
	})
	t.Run("FT-G2 a rate limit says when it ends", func(t *testing.T) {
		t.Parallel()
		host := scmhosts.New(t, scmhosts.GitHub)
		host.Put(shop(1, "shop"))
		host.Limit(1, time.Now().Add(20*time.Minute))
		_, err := providerOf(t, host, "", "").Repositories(t.Context(), newAccess(host, nil))
		e, ok := fault.As(err)
		if !ok || e.Kind != fault.Offline || e.RetryAfter < 19*time.Minute || e.RetryAfter > 21*time.Minute || !strings.Contains(e.Cause, "limits requests") {
			t.Errorf("%+v", err)
		}
	})
}
