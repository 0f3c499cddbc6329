package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
)

// What every operation of the document keeps to. The tests are made from the
// document: a new operation is tried without a further line.

// conventions is a hub with something at most of the addresses.
func conventions(t *testing.T) (*matrix, []method) {
	t.Helper()
	m := newMatrix(t)
	m.seed()
	return m, methods(t)
}

// admins is the caller who may call an operation.
func (m *matrix) admins(op method) matrixCaller {
	role := "tenant-admin"
	if op.resource == "tenants" {
		role = "platform-admin"
	}
	at := slices.IndexFunc(m.callers, func(c matrixCaller) bool { return c.role == role && !c.token })
	return m.callers[at]
}

// elsewhere reports whether requests of the operation come from other hosts by
// design, with a proof of their own: events of Git hosts, and browsers that an
// identity provider sends back.
func (m method) elsewhere() bool {
	return m.action == "webhook" || m.action == "callback" || m.action == "sign-in"
}

// isProblem says why an answer is not an error in the one shape.
func isProblem(a answer) string {
	var p problem
	if err := json.Unmarshal(a.body, &p); err != nil {
		return fmt.Sprintf("its body is no JSON: %s", a.body)
	}
	if !strings.HasPrefix(p.Code, "CAP-") || p.Message == "" || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		return fmt.Sprintf("it lacks something: %s", a.body)
	}
	if kind := a.header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return "its type is " + kind
	}
	return ""
}

func with(path, query string) string {
	if strings.Contains(path, "?") {
		return path + "&" + query
	}
	return path + "?" + query
}

// safety are the headers of every answer.
var safety = map[string]string{
	"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store",
	"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
}

func TestEveryAnswer(t *testing.T) {
	t.Parallel()
	m, all := conventions(t)
	path := func(op method) string { p, _ := m.address(op, m.admins(op)); return p }
	t.Run("UX-API-3 SEC-H5 every refusal has the one shape, a request id that is in the log, and the headers for browsers", func(t *testing.T) {
		for _, op := range all {
			a := m.call("cpt_garbage", op.verb, with(path(op), "no-such-parameter=1"), "{")
			if a.status < 400 {
				if op.resource != "public" {
					t.Errorf("%s answers %d", op.id, a.status)
				}
				continue
			}
			if why := isProblem(a); why != "" {
				t.Errorf("%s: %d: %s", op.id, a.status, why)
			}
			for name, value := range safety {
				if got := a.header.Get(name); got != value {
					t.Errorf("%s: %s is %q, want %q", op.id, name, got, value)
				}
			}
			if csp := a.header.Get("Content-Security-Policy"); strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
				t.Errorf("%s: the policy of content is %q", op.id, csp)
			}
			if id := a.header.Get("X-Request-Id"); !strings.Contains(m.Log.String(), id) {
				t.Errorf("%s: no line of the log has the request id %s", op.id, id)
			}
		}
	})
	t.Run("API-03 a query parameter that an operation does not have is refused by its name", func(t *testing.T) {
		for _, op := range all {
			if op.elsewhere() {
				continue // who sends a browser there may add some
			}
			a := m.call(m.admins(op).secret, op.verb, with(path(op), "no-such-parameter=1"), m.body(op))
			if a.status != 400 || !bytes.Contains(a.body, []byte("no-such-parameter")) {
				t.Errorf("%s answers %d %s", op.id, a.status, a.body)
			}
		}
	})
	t.Run("API-01 SEC-H4 a body of another content type is refused", func(t *testing.T) {
		for _, op := range all {
			if op.op.RequestBody == nil || op.op.RequestBody.Value.Content.Get("application/json") == nil || op.action == "webhook" {
				continue
			}
			for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""} {
				a := m.call(m.admins(op).secret, op.verb, path(op), m.body(op), header("Content-Type", kind))
				if a.status != 400 && a.status != 415 {
					t.Errorf("%s takes %q: %d %s", op.id, kind, a.status, a.body)
				}
			}
		}
	})
	t.Run("SEC-D1 SEC-H4 the verb of a request cannot be overridden", func(t *testing.T) {
		for _, op := range all {
			if op.verb != http.MethodDelete {
				continue
			}
			for _, name := range []string{"X-HTTP-Method-Override", "X-HTTP-Method", "X-Method-Override"} {
				m.call(m.admins(op).secret, http.MethodGet, with(path(op), "_method=DELETE"), nil, header(name, http.MethodDelete))
				if a := m.call(m.admins(op).secret, http.MethodPost, path(op), nil, header(name, http.MethodDelete)); a.status == 204 || a.status == 202 {
					t.Errorf("%s: a POST with %s answers %d", op.id, name, a.status)
				}
			}
		}
	})
}

func TestMethods(t *testing.T) {
	t.Parallel()
	m, all := conventions(t)
	takes := func(path, verb string) bool {
		return slices.ContainsFunc(all, func(op method) bool { return op.verb == verb && matches(op.path, path) })
	}
	t.Run("API-01 HEAD answers like GET, without a body", func(t *testing.T) {
		for _, op := range all {
			if op.verb != http.MethodGet || op.streams() || op.upgrades() {
				continue
			}
			path, _ := m.address(op, m.admins(op))
			get, head := m.call(m.admins(op).secret, "GET", path, nil), m.call(m.admins(op).secret, "HEAD", path, nil)
			if head.status != get.status || len(head.body) != 0 || head.header.Get("Content-Type") != get.header.Get("Content-Type") || head.header.Get("ETag") != get.header.Get("ETag") {
				t.Errorf("%s: GET %d %v, HEAD %d %v with %d bytes", op.id, get.status, get.header, head.status, head.header, len(head.body))
			}
			if a := m.call("", "HEAD", path, nil); op.resource != "public" && a.status != 401 {
				t.Errorf("%s: HEAD without a sign-in answers %d", op.id, a.status)
			}
		}
	})
	t.Run("API-01 other methods are answered with 405 and those that there are, OPTIONS with the latter", func(t *testing.T) {
		for _, op := range all {
			path, _, _ := strings.Cut(first(m.address(op, m.admins(op))), "?")
			for _, verb := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "PROPFIND", "OPTIONS"} {
				if takes(path, verb) {
					continue
				}
				a := m.call(m.admins(op).secret, verb, path, nil)
				want := 405
				if verb == "OPTIONS" {
					want = 204
				}
				if allow := a.header.Get("Allow"); a.status != want || !strings.Contains(allow, op.verb) || !strings.Contains(allow, "OPTIONS") {
					t.Errorf("%s %s answers %d, Allow %q: %s", verb, path, a.status, allow, a.body)
				}
				if want == 405 && isProblem(a) != "" {
					t.Errorf("%s %s: %s", verb, path, isProblem(a))
				}
			}
		}
	})
	t.Run("SEC-H4 no answer permits anything to a page of another site", func(t *testing.T) {
		for _, op := range all {
			path, _ := m.address(op, m.admins(op))
			for _, verb := range []string{"OPTIONS", "HEAD"} {
				a := m.call("", verb, path, nil, header("Origin", "https://evil.example.com"), header("Access-Control-Request-Method", op.verb), header("Access-Control-Request-Headers", "authorization"))
				for name := range a.header {
					if strings.HasPrefix(name, "Access-Control-") {
						t.Errorf("%s %s answers with %s", verb, path, name)
					}
				}
			}
		}
	})
	t.Run("SEC-H4 a write with the cookie from another site or a sibling of it is refused, for every operation", func(t *testing.T) {
		for _, op := range all {
			if op.verb == "GET" || op.elsewhere() || op.id == "logout" {
				continue
			}
			c := m.admins(op)
			path, _ := m.address(op, c)
			for _, sent := range [][]option{
				{header("Origin", "https://evil.example.com"), header("Sec-Fetch-Site", "cross-site")},
				{header("Origin", "http://sibling.capstan.test"), header("Sec-Fetch-Site", "same-site")},
				{header("Origin", "null")}, {},
			} {
				options := append(sent, header("Authorization", ""), header("Cookie", "capstan_session="+c.secret))
				a := m.call("", op.verb, path, m.body(op), options...)
				if op.resource == "public" && len(sent) == 0 {
					continue // it uses no cookie
				}
				if a.status != 403 {
					t.Errorf("%s with %d headers answers %d %s", op.id, len(sent), a.status, a.body)
				}
			}
		}
	})
}

func first(path string, _ bool) string { return path }

// matches reports whether an address is one of a path of the document.
func matches(template, path string) bool {
	want, got := strings.Split(template, "/"), strings.Split(path, "/")
	for i := range want {
		if len(want) != len(got) || want[i] != got[i] && !strings.HasPrefix(want[i], "{") {
			return false
		}
	}
	return true
}

func TestVersions(t *testing.T) {
	t.Parallel()
	m, all := conventions(t)
	t.Run("UX-API-1 every write takes If-Match and refuses another version, or refuses the header", func(t *testing.T) {
		taken := 0
		for _, op := range all {
			if op.verb == "GET" || op.action == "webhook" || op.resource == "public" {
				continue
			}
			c := m.admins(op)
			path, _ := m.address(op, c)
			declared, _ := op.op.Extensions["x-capstan-if-match"].(bool)
			if op.op.Parameters.GetByInAndName("header", "If-Match") != nil || declared {
				taken++
				m.seed()
				if a := m.call(c.secret, op.verb, path, m.body(op), header("If-Match", `"987654"`)); a.status != 412 {
					t.Errorf("%s with a version that there never was answers %d %s", op.id, a.status, a.body)
				}
				continue
			}
			if a := m.call(c.secret, op.verb, path, m.body(op), header("If-Match", `"1"`)); a.status != 400 || !bytes.Contains(a.body, []byte("If-Match")) {
				t.Errorf("%s neither takes nor refuses If-Match: %d %s", op.id, a.status, a.body)
			}
		}
		if taken < 15 {
			t.Errorf("only %d operations take If-Match", taken)
		}
	})
	t.Run("UX-API-1 what has an ETag says that it is unchanged", func(t *testing.T) {
		for _, op := range all {
			if op.verb != "GET" || op.op.Parameters.GetByInAndName("header", "If-None-Match") == nil {
				continue
			}
			c := m.admins(op)
			path, _ := m.address(op, c)
			tag := m.call(c.secret, "GET", path, nil).ok(200).header.Get("ETag")
			if a := m.call(c.secret, "GET", path, nil, header("If-None-Match", tag)); tag == "" || a.status != 304 || len(a.body) > 0 {
				t.Errorf("%s with %q answers %d and %d bytes", op.id, tag, a.status, len(a.body))
			}
		}
	})
	t.Run("UX-API-2 every POST takes effect once under an idempotency key", func(t *testing.T) {
		for _, op := range all {
			if op.verb != "POST" || op.resource == "public" || op.id == "logout" {
				continue
			}
			m.seed()
			c := m.admins(op)
			path, _ := m.address(op, c)
			key := header("Idempotency-Key", "once-"+op.id)
			one, two := m.call(c.secret, "POST", path, m.body(op), key), m.call(c.secret, "POST", path, m.body(op), key)
			if one.status >= 500 {
				continue // an agent is away: it may be tried again
			}
			secret, _ := op.op.Extensions["x-capstan-secret"].(bool)
			replayed := two.header.Get("Idempotent-Replay") == "true" && two.status == one.status && bytes.Equal(bytes.TrimSpace(one.body), bytes.TrimSpace(two.body))
			if !replayed && (!secret || two.status != 409) {
				t.Errorf("%s: first %d %s, then %d %s", op.id, one.status, one.body, two.status, two.body)
			}
		}
	})
}

func TestEveryOperationIsLimited(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	all := methods(t)
	slow := newWorld(t, func(c *api.Config) { c.Rates = ratelimit.Rates{Address: ratelimit.Rate{PerSecond: 1e-9, Burst: 1}} })
	slow.call("", "GET", "/livez", nil).ok(200)
	t.Run("API-01 SEC-I6 too many requests of one address are refused for every operation, with the time to wait", func(t *testing.T) {
		for _, op := range all {
			a := slow.call("", op.verb, concrete(op.path, nil), nil)
			if a.status != 429 || a.header.Get("Retry-After") == "" || isProblem(a) != "" {
				t.Errorf("%s answers %d %v %s", op.id, a.status, a.header, a.body)
			}
		}
	})
	t.Run("API-01 answers are compressed for those who ask, at every operation", func(t *testing.T) {
		admin := w.Admin("acme")
		for n := range 5 {
			w.call(admin, "POST", "/api/v1/applications", application(fmt.Sprint("web-", n))).ok(201)
		}
		packed := 0
		for _, op := range all {
			if op.verb != "GET" || op.streams() {
				continue
			}
			plain := w.call(admin, "GET", concrete(op.path, nil), nil)
			r, err := http.NewRequest("GET", w.URL+concrete(op.path, nil), nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+admin)
			r.Header.Set("Accept-Encoding", "gzip")
			resp, err := w.Client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			raw, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			zipped := resp.Header.Get("Content-Encoding") == "gzip"
			if long := len(plain.body) > 1100; long != zipped && len(plain.body) > 0 && (len(plain.body) < 1000 || long) {
				t.Errorf("%s: %d bytes, compressed %v", op.id, len(plain.body), zipped)
			}
			if zipped {
				packed++
				if len(raw) >= len(plain.body) || resp.Header.Get("Vary") == "" {
					t.Errorf("%s: %d bytes become %d", op.id, len(plain.body), len(raw))
				}
			}
		}
		if packed < 3 {
			t.Errorf("only %d answers were compressed", packed)
		}
	})
}
