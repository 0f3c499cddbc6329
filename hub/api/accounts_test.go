package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
)

// applied changes settings of a ConfigMap or a Secret; null takes a key away.
func (w *world) applied(secret, _, name string, values map[string]string) answer {
	w.t.Helper()
	changes := map[string]any{}
	for k, v := range values {
		changes[k] = v
		if v == "null" {
			changes[k] = nil
		}
	}
	return w.call(secret, "PATCH", "/api/v1/settings", map[string]any{"values": map[string]any{name: changes}})
}

// signIn returns the secret of a new session, or the answer that refuses one.
func (w *world) signIn(tenant, name, password string) (string, answer) {
	w.t.Helper()
	a := w.call("", "POST", "/api/v1/login", map[string]any{"tenant": tenant, "username": name, "password": password, "mode": "token"})
	var in struct{ Token string }
	if a.status == 200 {
		a.into(&in)
	}
	return in.Token, a
}

// policy sets the rules of a tenant.
func (w *world) policy(tenant hub.TenantID, text string) {
	w.t.Helper()
	storetest.In(w.t, w.DB, tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.SetPolicy(ctx, text) })
}

func argoHash(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

func TestAccountsOfSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	hash := argoHash(t, "short but old")
	w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.alice": "apiKey, login", "accounts.robot": "apiKey"}).ok(200)
	w.applied(admin, "Secret", "argocd-secret", map[string]string{"accounts.alice.password": hash}).ok(200)
	stored := func(name string) (hash string) {
		t.Helper()
		conn := storetest.Connect(t, w.Superuser)
		if err := conn.QueryRow(t.Context(), `SELECT password_hash FROM account WHERE name = $1`, name).Scan(&hash); err != nil {
			t.Fatal(err)
		}
		return hash
	}
	t.Run("AUTH-01 an account of argocd-cm signs in with the hash of argocd-secret, which is replaced by argon2id", func(t *testing.T) {
		if got := stored("alice"); got != hash {
			t.Fatalf("before the first sign-in the hash is %.12s…", got)
		}
		w.signIn("acme", "alice", "short but wrong")
		if got := stored("alice"); got != hash {
			t.Errorf("a wrong password has changed the hash")
		}
		session, a := w.signIn("acme", "alice", "short but old")
		a.ok(200)
		if got := stored("alice"); !strings.HasPrefix(got, "$argon2id$") {
			t.Errorf("after it the hash is %.12s…", got)
		}
		w.call(session, "GET", "/api/v1/me", nil).ok(200)
		_, a = w.signIn("acme", "alice", "short but old")
		a.ok(200)
	})
	t.Run("AUTH-01 applying the same Secret again does not bring an older password back", func(t *testing.T) {
		session, _ := w.signIn("acme", "alice", "short but old")
		w.call(session, "PUT", "/api/v1/me/password", map[string]any{"current": "short but old", "new": password}).ok(204)
		w.applied(admin, "Secret", "argocd-secret", map[string]string{"accounts.alice.password": hash}).ok(200)
		_, a := w.signIn("acme", "alice", password)
		a.ok(200)
	})
	t.Run("AUTH-01 an account without the capability login cannot sign in, and one without apiKey has no tokens", func(t *testing.T) {
		w.applied(admin, "Secret", "argocd-secret", map[string]string{"accounts.robot.password": hash}).ok(200)
		_, a := w.signIn("acme", "robot", "short but old")
		a.fails(401)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.person": "login"}).ok(200)
		w.call(admin, "POST", "/api/v1/users/person/tokens", map[string]any{}).fails(409)
	})
	t.Run("AUTH-01 AUTH-04 SEC-E7 tokens end at the next request when apiKey is withdrawn, or the account disabled", func(t *testing.T) {
		var token struct{ Token string }
		w.call(admin, "POST", "/api/v1/users/robot/tokens", map[string]any{"name": "ci"}).ok(201).into(&token)
		w.call(token.Token, "GET", "/api/v1/me", nil).ok(200)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.robot": "login"}).ok(200)
		w.call(token.Token, "GET", "/api/v1/me", nil).fails(401)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.robot": "apiKey"}).ok(200)
		w.call(token.Token, "GET", "/api/v1/me", nil).ok(200)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.robot.enabled": "false"}).ok(200)
		w.call(token.Token, "GET", "/api/v1/me", nil).fails(401)
	})
	t.Run("AUTH-01 SEC-E7 a disabled account is signed out, and cannot sign in", func(t *testing.T) {
		session, a := w.signIn("acme", "alice", password)
		a.ok(200)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.alice.enabled": "false"}).ok(200)
		w.call(session, "GET", "/api/v1/me", nil).fails(401)
		_, a = w.signIn("acme", "alice", password)
		a.fails(401)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.alice.enabled": "null"}).ok(200)
		_, a = w.signIn("acme", "alice", password)
		a.ok(200)
	})
	t.Run("AUTH-01 an account that is listed no more is gone", func(t *testing.T) {
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.alice": "null"}).ok(200)
		w.call(admin, "GET", "/api/v1/users/alice", nil).fails(404)
		_, a := w.signIn("acme", "alice", password)
		a.fails(401)
	})
	t.Run("AUTH-01 what cannot be is refused by key", func(t *testing.T) {
		for key, value := range map[string]string{"accounts.x": "apikey", "accounts.X": "login", "accounts.x.enabled": "maybe"} {
			if p := w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{key: value}).fails(400); !strings.Contains(p.Object, strings.Split(key, ".")[1]) {
				t.Errorf("%s: %+v", key, p)
			}
		}
		p := w.applied(admin, "Secret", "argocd-secret", map[string]string{"accounts.x.password": "hunter2hunter2"}).fails(400)
		if strings.Contains(fmt.Sprint(p), "hunter2") {
			t.Errorf("the error shows the password: %+v", p)
		}
	})
	t.Run("AUTH-04 tokens that Argo CD has issued are stored without effect, and the answer says so", func(t *testing.T) {
		a := w.applied(admin, "Secret", "argocd-secret", map[string]string{"accounts.robot.tokens": `[{"id":"x","iat":1,"exp":0}]`}).ok(200)
		if !strings.Contains(string(a.body), "never accepted") {
			t.Errorf("it says %s", a.body)
		}
	})
}

// Settings must not be a way to rights that the caller lacks.
func TestAccountsOfSettingsNeedRights(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tenant := w.Tenant("acme")
	admin := w.Admin("acme")
	w.User("acme", "boss", hub.RolePlatformAdmin)
	editor := w.User("acme", "editor")
	w.policy(tenant, "p, editor, settings, *, *, allow")
	t.Run("AUTH-01 SEC-D4 the right to settings makes, changes and deletes no account", func(t *testing.T) {
		w.applied(editor, "ConfigMap", "argocd-cm", map[string]string{"accounts.mole": "login"}).fails(403)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.bob": "login, apiKey"}).ok(200)
		w.applied(editor, "ConfigMap", "argocd-cm", map[string]string{"accounts.bob": "login"}).fails(403)
		w.applied(editor, "ConfigMap", "argocd-cm", map[string]string{"accounts.bob": "null"}).fails(403)
		w.applied(editor, "Secret", "argocd-secret", map[string]string{"accounts.bob.password": argoHash(t, password)}).fails(403)
		w.applied(editor, "ConfigMap", "argocd-cm", map[string]string{"admin.enabled": "false"}).fails(403)
		w.call(admin, "GET", "/api/v1/users/bob", nil).ok(200)
	})
	t.Run("AUTH-01 SEC-D4 an admin of the tenant cannot take over a platform admin by settings", func(t *testing.T) {
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.boss": "login"}).fails(403)
		w.applied(admin, "Secret", "argocd-secret", map[string]string{"accounts.boss.password": argoHash(t, "taken over by")}).fails(403)
		w.call(admin, "POST", "/api/v1/users/boss/tokens", map[string]any{}).fails(403)
	})
	t.Run("AUTH-01 a caller cannot lock themselves out", func(t *testing.T) {
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"accounts.admin": "apiKey, login", "accounts.admin.enabled": "false"}).fails(409)
	})
}

func TestAdminOfSettings(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Admin("acme")
	other := w.User("acme", "other", hub.RoleTenantAdmin)
	t.Run("AUTH-02 admin.enabled: false signs the account admin out and lets it in no more", func(t *testing.T) {
		session, a := w.signIn("acme", "admin", password)
		a.ok(200)
		w.applied(other, "ConfigMap", "argocd-cm", map[string]string{"admin.enabled": "false"}).ok(200)
		w.call(session, "GET", "/api/v1/me", nil).fails(401)
		_, a = w.signIn("acme", "admin", password)
		a.fails(401)
		w.applied(other, "ConfigMap", "argocd-cm", map[string]string{"admin.enabled": "true"}).ok(200)
		_, a = w.signIn("acme", "admin", password)
		a.ok(200)
	})
	t.Run("AUTH-02 admin.password is the password of admin", func(t *testing.T) {
		w.applied(other, "Secret", "argocd-secret", map[string]string{"admin.password": argoHash(t, "as Argo CD has it")}).ok(200)
		_, a := w.signIn("acme", "admin", password)
		a.fails(401)
		_, a = w.signIn("acme", "admin", "as Argo CD has it")
		a.ok(200)
	})
	t.Run("AUTH-02 admin itself switches it off, and stays signed in until the end of the session", func(t *testing.T) {
		session, a := w.signIn("acme", "admin", "as Argo CD has it")
		a.ok(200)
		w.applied(session, "ConfigMap", "argocd-cm", map[string]string{"admin.enabled": "false"}).ok(200)
		w.call(session, "GET", "/api/v1/me", nil).ok(200)
		_, a = w.signIn("acme", "admin", "as Argo CD has it")
		a.fails(401)
	})
	t.Run("AUTH-02 the first administrator comes by a link that works once, and there is no default password", func(t *testing.T) {
		link := w.SetupLink("fresh", hub.RoleTenantAdmin)
		for _, guess := range []string{"admin", "password", "argocd-server-0", ""} {
			_, a := w.signIn("fresh", "admin", guess)
			if a.status != 401 && a.status != 400 {
				t.Errorf("%q answers %d", guess, a.status)
			}
		}
		w.call("", "POST", "/api/v1/setup", map[string]any{"token": link, "username": "admin", "password": password}).ok(200)
		w.call("", "POST", "/api/v1/setup", map[string]any{"token": link, "username": "second", "password": password}).fails(404)
	})
}

func TestPasswordPattern(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"passwordPattern": `^.*[0-9].*$`}).ok(200)
	t.Run("AUTH-03 a new password must match the pattern, wherever it comes from", func(t *testing.T) {
		bad, good := "no digit in here", "one digit 1 in here"
		w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "eve", "password": bad}).fails(400)
		w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "eve", "password": good}).ok(201)
		w.call(admin, "PUT", "/api/v1/users/eve", map[string]any{"password": bad}).fails(400)
		w.call(admin, "PUT", "/api/v1/me/password", map[string]any{"current": password, "new": bad}).fails(400)
		w.call("", "POST", "/api/v1/setup", map[string]any{"token": w.SetupLink("acme"), "username": "zoe", "password": bad}).fails(400)
		_, a := w.signIn("acme", "admin", password) // an older one stays good
		a.ok(200)
	})
	t.Run("AUTH-03 a pattern allows no password shorter than 12 characters, and one that is no pattern is refused", func(t *testing.T) {
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"passwordPattern": `^.{1,64}$`}).ok(200)
		w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "tim", "password": "1short"}).fails(400)
		w.applied(admin, "ConfigMap", "argocd-cm", map[string]string{"passwordPattern": `(`}).fails(400)
	})
	t.Run("AUTH-03 the rule of one tenant is none of another", func(t *testing.T) {
		w.call(w.Admin("bolt"), "POST", "/api/v1/users", map[string]any{"name": "eve", "password": "no digit in here"}).ok(201)
	})
}

func TestTokensOfAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "ci", "roles": []string{"readonly"}, "capabilities": []string{"apiKey"}}).ok(201)
	w.call(admin, "POST", "/api/v1/users", map[string]any{"name": "nobody"}).fails(400)
	type tokens struct {
		Items []struct {
			ID, Name, Prefix string
			ExpiresAt        time.Time
			UsedAt           *time.Time
		}
	}
	var made struct {
		Token string
		Info  struct{ ID, Name string }
	}
	w.call(admin, "POST", "/api/v1/users/ci/tokens", map[string]any{"name": "deploy", "expiresIn": "720h"}).ok(201).into(&made)
	t.Run("AUTH-04 SEC-E6 a token of a service account has an id, an expiry and a last use, and the rights of the account", func(t *testing.T) {
		w.call(made.Token, "GET", "/api/v1/applications", nil).ok(200)
		w.call(made.Token, "POST", "/api/v1/applications", application("x")).fails(403)
		var list tokens
		w.call(admin, "GET", "/api/v1/users/ci/tokens", nil).ok(200).into(&list)
		if len(list.Items) != 1 || list.Items[0].Name != "deploy" || list.Items[0].UsedAt == nil || time.Until(list.Items[0].ExpiresAt).Round(time.Hour) != 720*time.Hour {
			t.Errorf("the list is %+v", list)
		}
		if !strings.HasPrefix(made.Token, list.Items[0].Prefix) || strings.Contains(fmt.Sprint(list), made.Token) {
			t.Errorf("the list shows %+v", list)
		}
	})
	t.Run("AUTH-04 the database holds the hash of a token alone", func(t *testing.T) {
		conn := storetest.Connect(t, w.Superuser)
		for _, table := range []string{"directory.token", "api_token", "audit_record"} {
			var n int
			if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM `+table+` x WHERE x::text LIKE '%' || $1 || '%'`, made.Token[8:]).Scan(&n); err != nil || n != 0 {
				t.Errorf("%s: %d rows, error %v", table, n, err)
			}
		}
	})
	t.Run("AUTH-04 a token makes no token, of no account", func(t *testing.T) {
		var own struct{ Token string }
		w.call(admin, "POST", "/api/v1/tokens", map[string]any{"name": "own"}).ok(201).into(&own)
		w.call(own.Token, "POST", "/api/v1/users/ci/tokens", map[string]any{}).fails(403)
	})
	t.Run("AUTH-04 a revoked token is refused at the next request", func(t *testing.T) {
		w.call(w.User("acme", "reader", hub.RoleReadOnly), "DELETE", "/api/v1/users/ci/tokens/deploy", nil).fails(403)
		w.call(admin, "DELETE", "/api/v1/users/ci/tokens/deploy", nil).ok(204)
		w.call(made.Token, "GET", "/api/v1/me", nil).fails(401)
		w.call(admin, "DELETE", "/api/v1/users/ci/tokens/deploy", nil).fails(404)
	})
	t.Run("AUTH-04 one account's tokens are not another's to list or revoke", func(t *testing.T) {
		var again struct{ Info struct{ ID string } }
		w.call(admin, "POST", "/api/v1/users/ci/tokens", map[string]any{}).ok(201).into(&again)
		w.call(admin, "DELETE", "/api/v1/users/admin/tokens/"+again.Info.ID, nil).fails(404)
		w.call(w.Admin("bolt"), "GET", "/api/v1/users/ci/tokens", nil).fails(404)
		w.call(w.Admin("bolt"), "DELETE", "/api/v1/users/ci/tokens/"+again.Info.ID, nil).fails(404)
	})
	t.Run("AUTH-05 SEC-E7 a new password ends the sessions of the account, and its tokens stay", func(t *testing.T) {
		var own struct{ Token string }
		session, _ := w.signIn("acme", "admin", password)
		w.call(session, "POST", "/api/v1/tokens", map[string]any{"name": "stays"}).ok(201).into(&own)
		w.call(session, "PUT", "/api/v1/me/password", map[string]any{"current": password, "new": password + "!"}).ok(204)
		w.call(session, "GET", "/api/v1/me", nil).fails(401)
		w.call(own.Token, "GET", "/api/v1/me", nil).ok(200)
	})
}

func TestLanguageOfAnAccount(t *testing.T) {
	w := newWorld(t)
	languageOf := func(secret string) string {
		var me struct{ Language string }
		w.call(secret, "GET", "/api/v1/me", nil).ok(200).into(&me)
		return me.Language
	}
	first, other := w.Admin("acme"), w.Admin("bolt")
	t.Run("UX-A11-5 a language that is chosen is the account's, at every sign-in, and nobody else's", func(t *testing.T) {
		if got := languageOf(first); got != "" {
			t.Errorf("before a choice the language is %q", got)
		}
		w.call(first, "PUT", "/api/v1/me/language", map[string]any{"language": "ja"}).ok(204)
		again, a := w.signIn("acme", "admin", password)
		a.ok(200)
		if got := languageOf(again); got != "ja" {
			t.Errorf("after a choice the language is %q", got)
		}
		if got := languageOf(other); got != "" {
			t.Errorf("the language of another tenant's account is %q", got)
		}
		w.call(first, "PUT", "/api/v1/me/language", map[string]any{"language": ""}).ok(204)
		if got := languageOf(first); got != "" {
			t.Errorf("after the choice is taken back the language is %q", got)
		}
	})
	t.Run("UX-A11-5 a language that the console does not have is refused", func(t *testing.T) {
		w.call(first, "PUT", "/api/v1/me/language", map[string]any{"language": "xx"}).fails(400)
		w.call(first, "PUT", "/api/v1/me/language", map[string]any{}).fails(400)
	})
}

// sessionOf begins a session of an account that has no password.
func (w *world) sessionOf(tenant hub.TenantID, user hub.UserID) string {
	w.t.Helper()
	secret, now := identity.NewSecret(identity.SessionSecret), time.Now()
	if err := w.DB.System().PutSession(w.t.Context(), hub.Session{Hash: identity.Hash(secret), Tenant: tenant, User: user, CreatedAt: now, SeenAt: now, ExpiresAt: now.Add(time.Hour)}); err != nil {
		w.t.Fatal(err)
	}
	return secret
}

// putToken stores an API token without asking for rights.
func (w *world) putToken(tenant hub.TenantID, token hub.APIToken) {
	w.t.Helper()
	until := time.Now().Add(time.Hour)
	token.ExpiresAt = &until
	storetest.In(w.t, w.DB, tenant, func(ctx context.Context, tx *store.Tenant) error { return tx.PutToken(ctx, token) })
}

func TestAuthenticationCannotBeSwitchedOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	t.Run("AUTH-15(refused) server.disable.auth is stored without effect, and the answer says so", func(t *testing.T) {
		a := w.applied(admin, "ConfigMap", "argocd-cmd-params-cm", map[string]string{"server.disable.auth": "true"}).ok(200)
		if !strings.Contains(string(a.body), "without effect") {
			t.Errorf("it says %s", a.body)
		}
		for _, path := range []string{"/api/v1/applications", "/api/v1/me", "/api/v1/settings"} {
			w.call("", "GET", path, nil).fails(401)
			w.call("garbage", "GET", path, nil).fails(401)
		}
	})
}
