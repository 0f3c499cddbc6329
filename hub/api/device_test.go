package api_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
	"github.com/capstan-cd/capstan/shared/clientip"
)

// device is what a device hears at its two endpoints.
type device struct {
	DeviceCode  string `json:"device_code"`
	UserCode    string `json:"user_code"`
	URI         string `json:"verification_uri"`
	Complete    string `json:"verification_uri_complete"`
	ExpiresIn   int    `json:"expires_in"`
	Interval    int
	AccessToken string `json:"access_token"`
	TokenType   string `json:"token_type"`
	Error       string
	Description string `json:"error_description"`
}

// form sends a form to an endpoint of OAuth.
func (w *world) form(path string, values url.Values, options ...option) (int, device) {
	w.t.Helper()
	r, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.URL+path, strings.NewReader(values.Encode()))
	if err != nil {
		w.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("User-Agent", "capstan/test")
	for _, o := range options {
		o(r)
	}
	resp, err := w.Client.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	var out device
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, out
}

// ask begins the sign-in of a device.
func (w *world) ask(tenant string, options ...option) device {
	w.t.Helper()
	status, d := w.form("/api/v1/device/code", url.Values{"client_id": {"capstan"}, "tenant": {tenant}}, options...)
	if status != http.StatusOK {
		w.t.Fatalf("%d %+v", status, d)
	}
	return d
}

func (w *world) poll(code string) (int, device) {
	w.t.Helper()
	return w.form("/api/v1/token", url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {code}, "client_id": {"capstan"}})
}

// hears fails unless a device gets an error of that name.
func (w *world) hears(code, want string) {
	w.t.Helper()
	w.patient()
	if status, d := w.poll(code); status != http.StatusBadRequest || d.Error != want || d.Description == "" || d.AccessToken != "" {
		w.t.Errorf("the device hears %d %+v, want %s", status, d, want)
	}
}

// patient is as if every device had waited as long as it has to.
func (w *world) patient() {
	w.t.Helper()
	w.sql(w.t, "UPDATE device_login SET polled_at = polled_at - interval '2 minutes'")
}

func deciding(code string, approve bool) map[string]any {
	return map[string]any{"userCode": code, "approve": approve}
}

func (w *world) decide(secret, code string, approve bool) answer {
	w.t.Helper()
	return w.call(secret, "POST", "/api/v1/device/decision", deciding(code, approve))
}

func TestDeviceLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	alice := w.User("acme", "alice")
	t.Run("AUTH-05 UX-CLI-6 a device is signed in by who types its code, once", func(t *testing.T) {
		d := w.ask("acme")
		if d.URI != "http://capstan.test/device" || !strings.HasPrefix(d.Complete, d.URI+"?") || !strings.Contains(d.Complete, "user_code="+d.UserCode) || !strings.Contains(d.Complete, "tenant=acme") || d.ExpiresIn != 600 || d.Interval != 5 {
			t.Errorf("it is told %+v", d)
		}
		w.hears(d.DeviceCode, "authorization_pending")
		var found struct {
			UserCode, Address, Client string
			CreatedAt, ExpiresAt      time.Time
			SameAddress, Recent       bool
		}
		typed := " " + strings.ToLower(strings.ReplaceAll(d.UserCode, "-", " "))
		w.call(alice, "POST", "/api/v1/device/lookup", map[string]any{"userCode": typed}).ok(200).into(&found)
		if found.UserCode != d.UserCode || found.Address != "127.0.0.1" || found.Client != "capstan/test" || !found.SameAddress || !found.Recent || time.Since(found.CreatedAt) > time.Minute || !found.ExpiresAt.After(time.Now()) {
			t.Errorf("the person sees %+v", found)
		}
		w.decide(alice, typed, true).ok(204)
		w.patient()
		status, got := w.poll(d.DeviceCode)
		if status != 200 || !strings.HasPrefix(got.AccessToken, "cps_") || got.TokenType != "bearer" || got.ExpiresIn <= 0 {
			t.Fatalf("%d %+v", status, got)
		}
		var me meAnswer
		w.call(got.AccessToken, "GET", "/api/v1/me", nil).ok(200).into(&me)
		if me.Username != "alice" || me.Tenant != "acme" {
			t.Errorf("it is %+v", me)
		}
		w.hears(d.DeviceCode, "invalid_grant")
		w.decide(alice, d.UserCode, true).fails(404)
		w.call(got.AccessToken, "POST", "/api/v1/logout", nil).ok(204)
		w.call(got.AccessToken, "GET", "/api/v1/me", nil).fails(401)
		w.call(alice, "GET", "/api/v1/me", nil).ok(200)
	})
	t.Run("SEC-E4 a device that was denied hears so, and nobody can approve it afterwards", func(t *testing.T) {
		d := w.ask("acme")
		w.decide(alice, d.UserCode, false).ok(204)
		w.decide(admin, d.UserCode, true).fails(404)
		w.hears(d.DeviceCode, "access_denied")
		w.hears(d.DeviceCode, "access_denied")
	})
	t.Run("SEC-E4 a code expires, approved or not", func(t *testing.T) {
		waits, approved := w.ask("acme"), w.ask("acme")
		w.decide(alice, approved.UserCode, true).ok(204)
		w.sql(t, "UPDATE device_login SET expires_at = now() - interval '1 second'")
		w.call(alice, "POST", "/api/v1/device/lookup", map[string]any{"userCode": waits.UserCode}).fails(404)
		w.decide(alice, waits.UserCode, true).fails(404)
		w.hears(waits.DeviceCode, "expired_token")
		w.hears(approved.DeviceCode, "expired_token")
	})
	t.Run("SEC-E4 SEC-F5 asking, approving, denying and the sign-in are in the audit log: who, which device, from where", func(t *testing.T) {
		var log struct {
			Items []struct {
				Actor, Action, Object, Reason, Address string
				Detail                                 struct{ After map[string]any }
			}
		}
		w.call(admin, "GET", "/api/v1/audit?limit=200", nil).ok(200).into(&log)
		seen := map[string]string{}
		for _, r := range log.Items {
			seen[r.Action] += r.Actor + " "
			if strings.HasSuffix(r.Action, "-device") && (r.Address != "127.0.0.1" || r.Detail.After["client"] != "capstan/test" || r.Detail.After["address"] != "127.0.0.1") {
				t.Errorf("a record is %+v", r)
			}
		}
		if !strings.Contains(seen["ask-device"], "device ") || !strings.Contains(seen["approve-device"], "alice") || !strings.Contains(seen["deny-device"], "alice") || !strings.Contains(seen["login"], "alice") {
			t.Errorf("the log has %v", seen)
		}
	})
	t.Run("SEC-E4 codes are stored as hashes, and are in no log", func(t *testing.T) {
		d := w.ask("acme")
		w.decide(alice, d.UserCode, true).ok(204)
		stored := w.call(admin, "GET", "/api/v1/audit?limit=200", nil).ok(200)
		for _, code := range []string{d.DeviceCode, d.UserCode, strings.ReplaceAll(d.UserCode, "-", "")} {
			if strings.Contains(w.Log.String(), code) || strings.Contains(string(stored.body), code) {
				t.Error("a log has a code")
			}
		}
	})
}

func TestDeviceLoginIsNoWayAround(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin, alice := w.Admin("acme"), w.User("acme", "alice")
	t.Run("SEC-E12 an old sign-in denies but does not approve, and the refusal is recorded", func(t *testing.T) {
		old := w.agedSession(t, "acme", "alice", hub.FreshSignIn+time.Minute)
		d := w.ask("acme")
		var found struct{ Recent bool }
		w.call(old, "POST", "/api/v1/device/lookup", map[string]any{"userCode": d.UserCode}).ok(200).into(&found)
		if found.Recent {
			t.Error("it counts as recent")
		}
		w.decide(old, d.UserCode, true).fails(401)
		w.hears(d.DeviceCode, "authorization_pending")
		w.decide(old, d.UserCode, false).ok(204)
		var log struct {
			Items []struct{ Action, Actor string }
		}
		w.call(admin, "GET", "/api/v1/audit?result=denied", nil).ok(200).into(&log)
		if len(log.Items) == 0 || log.Items[0].Action != "approve-device" || log.Items[0].Actor != "alice" {
			t.Errorf("the audit log has %+v", log)
		}
	})
	t.Run("SEC-E12 the session of a device began and ends with the one that approved it, so that approvals prolong nothing", func(t *testing.T) {
		first := w.agedSession(t, "acme", "alice", hub.FreshSignIn-2*time.Minute)
		d := w.ask("acme")
		w.decide(first, d.UserCode, true).ok(204)
		w.patient()
		_, got := w.poll(d.DeviceCode)
		for _, s := range w.sessions(got.AccessToken, "alice").Items {
			if s.Current && (time.Since(s.CreatedAt) < hub.FreshSignIn-3*time.Minute || time.Until(s.ExpiresAt) > time.Hour || s.Client != "capstan/test") {
				t.Errorf("it is %+v", s)
			}
		}
	})
	t.Run("SEC-E12 a token approves no device", func(t *testing.T) {
		d := w.ask("acme")
		w.decide(w.token(alice, "robot"), d.UserCode, true).fails(403)
		w.decide(w.token(alice, "robot2"), d.UserCode, false).fails(403)
		w.hears(d.DeviceCode, "authorization_pending")
	})
	t.Run("SEC-D8 SEC-F5 an approval ends with the session that gave it, and with the account", func(t *testing.T) {
		for _, end := range []func(secret string){
			func(secret string) { w.call(secret, "POST", "/api/v1/logout", nil).ok(204) },
			func(string) { w.call(admin, "DELETE", "/api/v1/users/alice/sessions", nil).ok(200) },
			func(string) { w.call(admin, "PUT", "/api/v1/users/alice", map[string]any{"disabled": true}).ok(200) },
		} {
			secret, d := w.signInAs("acme", "alice", "browser/1"), w.ask("acme")
			w.decide(secret, d.UserCode, true).ok(204)
			end(secret)
			w.hears(d.DeviceCode, "access_denied")
			w.hears(d.DeviceCode, "invalid_grant")
			w.call(admin, "PUT", "/api/v1/users/alice", map[string]any{"disabled": false}).ok(200)
		}
		gone := w.User("acme", "gone")
		d := w.ask("acme")
		w.decide(gone, d.UserCode, true).ok(204)
		w.call(admin, "DELETE", "/api/v1/users/gone", nil).ok(204)
		w.hears(d.DeviceCode, "invalid_grant")
	})
	t.Run("SEC-H4 another site approves nothing", func(t *testing.T) {
		d := w.ask("acme")
		secret := w.signInAs("acme", "alice", "browser/1")
		send := func(options ...option) answer {
			return w.call("", "POST", "/api/v1/device/decision", deciding(d.UserCode, true), append(options, header("Cookie", "capstan_session="+secret))...)
		}
		send().fails(403)
		send(header("Sec-Fetch-Site", "cross-site"), header("X-Capstan-Client", "console")).fails(403)
		send(header("Origin", "https://evil.example.com"), header("X-Capstan-Client", "console")).fails(403)
		w.hears(d.DeviceCode, "authorization_pending")
		send(header("Sec-Fetch-Site", "same-origin")).ok(204)
	})
}

func TestDeviceLoginOfTenants(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	alice, stranger := w.User("acme", "alice"), w.User("bolt", "alice")
	root := w.User("default", "root", hub.RolePlatformAdmin)
	t.Run("ISO-5 SEC-D1 a code of another tenant answers like one that is not there, and stays as it is", func(t *testing.T) {
		d := w.ask("acme")
		for _, secret := range []string{stranger, root} {
			theirs := w.call(secret, "POST", "/api/v1/device/lookup", map[string]any{"userCode": d.UserCode}).fails(404)
			none := w.call(secret, "POST", "/api/v1/device/lookup", map[string]any{"userCode": "BBBB-BBBB"}).fails(404)
			if theirs.Message != none.Message || theirs.Fix != none.Fix {
				t.Errorf("%+v differs from %+v", theirs, none)
			}
			w.decide(secret, d.UserCode, false).fails(404)
			w.decide(secret, d.UserCode, true).fails(404)
		}
		w.hears(d.DeviceCode, "authorization_pending")
		w.decide(alice, d.UserCode, true).ok(204)
	})
	t.Run("ISO-5 the secret of a device is of no use under the name of another tenant", func(t *testing.T) {
		a, b := w.ask("acme"), w.ask("bolt")
		mixed := b.DeviceCode[:21] + a.DeviceCode[21:]
		w.hears(mixed, "invalid_grant")
		for _, garbage := range []string{"x", strings.Repeat("A", 64), a.DeviceCode + "A", a.UserCode} {
			w.hears(garbage, "invalid_grant")
		}
		if status, d := w.poll(""); status != 400 || d.Error != "invalid_request" {
			t.Errorf("%d %+v", status, d)
		}
	})
	t.Run("ISO-10 a tenant that is suspended, and one that is not there, sign no device in", func(t *testing.T) {
		d := w.ask("bolt")
		w.decide(stranger, d.UserCode, true).ok(204)
		w.call(root, "POST", "/api/v1/tenants/bolt/suspend", map[string]any{}).ok(200)
		w.hears(d.DeviceCode, "access_denied")
		status, suspended := w.form("/api/v1/device/code", url.Values{"tenant": {"bolt"}})
		_, missing := w.form("/api/v1/device/code", url.Values{"tenant": {"nobody"}})
		if status != 400 || suspended.Error != "invalid_grant" || suspended != missing {
			t.Errorf("%d %+v, and without a tenant %+v", status, suspended, missing)
		}
	})
}

func TestDeviceLoginIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) {
		var err error
		if c.TrustedProxies, err = clientip.ParseProxies([]string{"127.0.0.0/8"}); err != nil {
			t.Fatal(err)
		}
	})
	alice := w.User("acme", "alice")
	at := func(address string) option { return header("X-Forwarded-For", address) }
	t.Run("SEC-E4 a device that asks too often hears slow_down, and has to wait longer each time", func(t *testing.T) {
		d := w.ask("acme", at("192.0.2.1"))
		if _, got := w.poll(d.DeviceCode); got.Error != "authorization_pending" {
			t.Errorf("first: %+v", got)
		}
		for range 3 {
			if status, got := w.poll(d.DeviceCode); status != 400 || got.Error != "slow_down" {
				t.Errorf("%d %+v", status, got)
			}
		}
		w.sql(t, "UPDATE device_login SET polled_at = polled_at - interval '10 seconds'")
		if _, got := w.poll(d.DeviceCode); got.Error != "slow_down" { // by now it has to wait 20 seconds
			t.Errorf("after ten seconds: %+v", got)
		}
		w.decide(alice, d.UserCode, true).ok(204)
		if _, got := w.poll(d.DeviceCode); got.Error != "slow_down" || got.AccessToken != "" {
			t.Errorf("too early, approved: %+v", got)
		}
		w.patient()
		if status, got := w.poll(d.DeviceCode); status != 200 || got.AccessToken == "" {
			t.Errorf("%d %+v", status, got)
		}
	})
	t.Run("SEC-E4 of many questions at once one gets the session", func(t *testing.T) {
		d := w.ask("acme", at("192.0.2.1"))
		w.decide(alice, d.UserCode, true).ok(204)
		tokens := make(chan string, 8)
		for range cap(tokens) {
			go func() { // ends with its answer, which is waited for
				_, got := w.poll(d.DeviceCode)
				tokens <- got.AccessToken
			}()
		}
		issued := 0
		for range cap(tokens) {
			if <-tokens != "" {
				issued++
			}
		}
		if issued != 1 {
			t.Errorf("%d sessions", issued)
		}
	})
	t.Run("SEC-E8 an address has at most 20 devices that wait; others go on", func(t *testing.T) {
		for range 20 {
			w.ask("acme", at("192.0.2.20"))
		}
		status, d := w.form("/api/v1/device/code", url.Values{"tenant": {"acme"}}, at("192.0.2.20"))
		if status != http.StatusTooManyRequests || d.Error != "temporarily_unavailable" {
			t.Errorf("%d %+v", status, d)
		}
		w.ask("acme", at("192.0.2.21"))
	})
	t.Run("SEC-E8 an account tries ten wrong codes, an address thirty; then even the right one is not looked up", func(t *testing.T) {
		d := w.ask("acme", at("192.0.2.1"))
		guess := func(secret, address string) answer {
			return w.call(secret, "POST", "/api/v1/device/lookup", map[string]any{"userCode": "BBBB-BBBB"}, at(address))
		}
		for range 10 {
			guess(alice, "192.0.2.2").fails(404)
		}
		guess(alice, "192.0.2.3").fails(429)
		w.call(alice, "POST", "/api/v1/device/decision", deciding(d.UserCode, true), at("192.0.2.4")).fails(429)
		for _, name := range []string{"bob", "carol"} {
			secret := w.User("acme", name)
			for range 10 {
				guess(secret, "192.0.2.2").fails(404)
			}
		}
		dave := w.User("acme", "dave")
		w.call(dave, "POST", "/api/v1/device/lookup", map[string]any{"userCode": d.UserCode}, at("192.0.2.2")).fails(429)
		w.call(dave, "POST", "/api/v1/device/lookup", map[string]any{"userCode": d.UserCode}, at("192.0.2.5")).ok(200)
	})
	t.Run("SEC-E4 a code has eight letters that are no words and cannot be mistaken", func(t *testing.T) {
		seen := map[string]bool{}
		for i := range 20 {
			code := w.ask("acme", at("192.0.2."+string(rune('0'+i%9))+"9")).UserCode
			if len(code) != 9 || strings.Trim(code, "BCDFGHJKLMNPQRSTVWXZ") != "-" && strings.Trim(strings.ReplaceAll(code, "-", ""), "BCDFGHJKLMNPQRSTVWXZ") != "" || seen[code] {
				t.Errorf("a code is %q", code)
			}
			seen[code] = true
		}
		for _, typed := range []string{"", "AEIO-UAEI", "BBBB-BBB", "BBBB-BBBB-B", "ББББ-ББББ"} {
			if a := w.call(alice, "POST", "/api/v1/device/lookup", map[string]any{"userCode": typed}); a.status != 400 {
				t.Errorf("%q: %d %s", typed, a.status, a.body)
			}
		}
	})
}

func TestDeviceLoginFloods(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *api.Config) {
		c.Rates.SignIn, c.Rates.Address = ratelimit.Rate{PerSecond: 0.001, Burst: 3}, ratelimit.Rate{PerSecond: 0.001, Burst: 60}
	})
	w.Admin("acme")
	t.Run("SEC-E8 devices count as sign-ins of their address, and questions as its requests", func(t *testing.T) {
		d := w.ask("acme")
		refused := 0
		for range 4 {
			if status, _ := w.form("/api/v1/device/code", url.Values{"tenant": {"acme"}}); status == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused == 0 {
			t.Error("no request is refused")
		}
		last := device{}
		for range 60 {
			_, last = w.poll(d.DeviceCode)
		}
		if last.Error != "temporarily_unavailable" {
			t.Errorf("after many questions: %+v", last)
		}
	})
}

func TestDeviceLoginByProvider(t *testing.T) {
	t.Parallel()
	s := newSignInWorld(t)
	b, _ := s.signIn("alice")
	browser := session(t, b, s.URL)
	t.Run("AUTH-09 a device that a person of a provider has approved has the groups of that sign-in", func(t *testing.T) {
		d := s.ask("acme")
		s.decide(browser, d.UserCode, true).ok(204)
		s.patient()
		_, got := s.poll(d.DeviceCode)
		m := s.me(got.AccessToken)
		if m.Username != "oidc:alice@example.com" || !m.syncs("shop") {
			t.Errorf("it is %+v", m)
		}
		s.call(got.AccessToken, "POST", "/api/v1/logout", nil).ok(204) // the provider's session goes on
		s.call(browser, "GET", "/api/v1/me", nil).ok(200)
	})
}
