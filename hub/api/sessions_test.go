package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
)

type sessionList struct {
	Items []struct {
		ID, Address, Client, Provider string
		CreatedAt, SeenAt, ExpiresAt  time.Time
		Current                       bool
	}
}

// signInAs signs somebody in with a program of that name.
func (w *world) signInAs(tenant, name, program string) string {
	w.t.Helper()
	var in struct{ Token string }
	w.call("", "POST", "/api/v1/login", map[string]any{"tenant": tenant, "username": name, "password": password, "mode": "token"},
		header("User-Agent", program)).ok(200).into(&in)
	return in.Token
}

func (w *world) sessions(secret, name string) sessionList {
	w.t.Helper()
	var out sessionList
	w.call(secret, "GET", "/api/v1/users/"+name+"/sessions", nil).ok(200).into(&out)
	return out
}

func TestSessionsOfAccounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	admin := w.Admin("acme")
	w.User("acme", "alice")
	laptop, phone := w.signInAs("acme", "alice", "laptop/1\u00e9"), w.signInAs("acme", "alice", "phone/2")
	me := func(secret string, status int) {
		t.Helper()
		if a := w.call(secret, "GET", "/api/v1/me", nil); a.status != status {
			t.Errorf("GET /api/v1/me answers %d, want %d", a.status, status)
		}
	}
	t.Run("SEC-F5 people see where they are signed in, and which session is theirs", func(t *testing.T) {
		list := w.sessions(laptop, "alice")
		programs := map[string]bool{}
		for _, s := range list.Items {
			programs[s.Client] = s.Current
			if s.Client != "" && (s.Address != "127.0.0.1" || s.CreatedAt.IsZero() || !s.ExpiresAt.After(s.SeenAt)) {
				t.Errorf("a session is %+v", s)
			}
		}
		if current, listed := programs["laptop/1"]; !listed || !current || programs["phone/2"] {
			t.Errorf("the sessions are %+v", list)
		}
	})
	t.Run("SEC-F5 a session that nobody has used for its idle time is not listed", func(t *testing.T) {
		unused := w.signInAs("acme", "alice", "unused/1")
		w.sql(t, "UPDATE directory.session SET seen_at = now() - (expires_at - created_at) / 3 WHERE client = 'unused/1'")
		for _, s := range w.sessions(laptop, "alice").Items {
			if s.Client == "unused/1" {
				t.Errorf("it is listed: %+v", s)
			}
		}
		me(unused, 401)
	})
	t.Run("SEC-F5 one session is ended at its next request, and no other", func(t *testing.T) {
		me(phone, 200)
		for _, s := range w.sessions(laptop, "alice").Items {
			if s.Client == "phone/2" {
				w.call(laptop, "DELETE", "/api/v1/users/alice/sessions/"+s.ID, nil).ok(204)
				w.call(laptop, "DELETE", "/api/v1/users/alice/sessions/"+s.ID, nil).fails(404)
			}
		}
		me(phone, 401)
		me(laptop, 200)
	})
	t.Run("SEC-F5 all others are ended, or all; tokens stay", func(t *testing.T) {
		token, other := w.token(laptop, "stays"), w.signInAs("acme", "alice", "other/1")
		w.call(token, "DELETE", "/api/v1/users/alice/sessions?others=true", nil).fails(409)
		me(other, 200)
		w.call(laptop, "DELETE", "/api/v1/users/alice/sessions?others=true", nil).ok(200)
		me(other, 401)
		me(laptop, 200)
		w.call(laptop, "DELETE", "/api/v1/users/alice/sessions", nil).ok(200)
		me(laptop, 401)
		me(token, 200)
	})
	t.Run("SEC-F5 an admin ends the sessions of others, with a record; nobody else does", func(t *testing.T) {
		alice, reader := w.signInAs("acme", "alice", "again/1"), w.User("acme", "reader", hub.RoleReadOnly)
		id := w.sessions(admin, "alice").Items[0].ID
		w.call(reader, "DELETE", "/api/v1/users/alice/sessions", nil).fails(403)
		w.call(reader, "DELETE", "/api/v1/users/alice/sessions/"+id, nil).fails(403)
		w.call(w.User("acme", "nobody"), "GET", "/api/v1/users/alice/sessions", nil).fails(403)
		me(alice, 200)
		w.call(admin, "DELETE", "/api/v1/users/alice/sessions/"+id, nil).ok(204)
		me(alice, 401)
		var log struct {
			Items []struct{ Action, Object, Actor string }
		}
		w.call(admin, "GET", "/api/v1/audit?action=delete-session", nil).ok(200).into(&log)
		if len(log.Items) == 0 || log.Items[0].Object != "alice" || log.Items[0].Actor != "admin" {
			t.Errorf("the audit log has %+v", log)
		}
	})
	t.Run("SEC-F5 SEC-D4 an admin of the tenant does not sign a platform admin out", func(t *testing.T) {
		boss := w.User("acme", "boss", hub.RolePlatformAdmin)
		w.call(admin, "DELETE", "/api/v1/users/boss/sessions", nil).fails(403)
		me(boss, 200)
	})
	t.Run("SEC-F5 ISO-5 sessions of an account of the same name in another tenant are others", func(t *testing.T) {
		w.User("bolt", "alice")
		theirs := w.signInAs("bolt", "alice", "bolt/1")
		w.signInAs("acme", "alice", "acme/1")
		id := w.sessions(theirs, "alice").Items[0].ID
		w.call(admin, "DELETE", "/api/v1/users/alice/sessions/"+id, nil).fails(http.StatusNotFound)
		w.call(admin, "DELETE", "/api/v1/users/alice/sessions", nil).ok(200)
		me(theirs, 200)
		for _, s := range w.sessions(admin, "alice").Items {
			t.Errorf("a session is left: %+v", s)
		}
	})
}
