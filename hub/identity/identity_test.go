package identity

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// directory keeps everything in memory.
type directory struct {
	mu       sync.Mutex
	tenants  map[string]hub.Tenant
	users    map[string]hub.User // by tenant id and name
	hashes   map[string]string
	sessions map[[32]byte]hub.Session
	tokens   map[[32]byte]hub.APIToken
	failures map[[32]byte]int
	known    map[[32]byte]time.Time
	noted    []string
	reasons  []string
	lookups  int
	lasts    time.Duration
}

func newDirectory() *directory {
	return &directory{
		tenants: map[string]hub.Tenant{}, users: map[string]hub.User{}, hashes: map[string]string{}, sessions: map[[32]byte]hub.Session{},
		tokens: map[[32]byte]hub.APIToken{}, failures: map[[32]byte]int{}, known: map[[32]byte]time.Time{}, lasts: 24 * time.Hour,
	}
}

// SessionClaims, PutSessionClaims and LocalSignIn are those of a tenant without
// an identity provider.
func (d *directory) SessionClaims(context.Context, hub.TenantID, [32]byte) (hub.SessionClaims, error) {
	return hub.SessionClaims{}, absent()
}

func (d *directory) PutSessionClaims(context.Context, hub.TenantID, hub.SessionClaims) error {
	return nil
}

func (d *directory) LocalSignIn(context.Context, hub.TenantID, hub.User) (bool, error) {
	return true, nil
}

func absent() error { return fault.New(fault.Missing, "not there") }

func (d *directory) Tenant(_ context.Context, id hub.TenantID) (hub.Tenant, error) {
	for _, t := range d.tenants {
		if t.ID == id {
			return t, nil
		}
	}
	return hub.Tenant{}, absent()
}

func (d *directory) TenantByName(_ context.Context, name string) (hub.Tenant, error) {
	if t, ok := d.tenants[name]; ok {
		return t, nil
	}
	return hub.Tenant{}, absent()
}

func (d *directory) PutSession(_ context.Context, s hub.Session) error {
	d.sessions[s.Hash] = s
	return nil
}

func (d *directory) Session(_ context.Context, hash [32]byte) (hub.Session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
	if s, ok := d.sessions[hash]; ok {
		return s, nil
	}
	return hub.Session{}, absent()
}

func (d *directory) TouchSession(_ context.Context, hash [32]byte, at time.Time) error {
	s := d.sessions[hash]
	s.SeenAt = at
	d.sessions[hash] = s
	return nil
}

func (d *directory) DeleteSession(_ context.Context, hash [32]byte) error {
	delete(d.sessions, hash)
	return nil
}

func (d *directory) Token(_ context.Context, hash [32]byte) (hub.APIToken, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lookups++
	if t, ok := d.tokens[hash]; ok {
		return t, nil
	}
	return hub.APIToken{}, absent()
}

func (d *directory) TouchToken(_ context.Context, hash [32]byte, at time.Time) error {
	t := d.tokens[hash]
	t.UsedAt = &at
	d.tokens[hash] = t
	return nil
}

func (d *directory) LoginFailure(_ context.Context, key [32]byte, _ time.Time, _ time.Duration) (int, error) {
	d.failures[key]++
	return d.failures[key], nil
}

func (d *directory) LoginFailures(_ context.Context, key [32]byte, _ time.Time) (int, error) {
	return d.failures[key], nil
}

func (d *directory) ForgetLoginFailures(_ context.Context, key [32]byte) error {
	delete(d.failures, key)
	return nil
}

func (d *directory) PutKnownAddress(_ context.Context, key [32]byte, _ hub.TenantID, _ hub.UserID, until time.Time) error {
	d.known[key] = until
	return nil
}

func (d *directory) KnownAddress(_ context.Context, key [32]byte, now time.Time) (bool, error) {
	return now.Before(d.known[key]), nil
}

func (d *directory) AccountByName(_ context.Context, tenant hub.TenantID, name string) (hub.User, string, error) {
	u, ok := d.users[string(tenant)+"/"+name]
	if !ok {
		return u, "", absent()
	}
	return u, d.hashes[string(tenant)+"/"+name], nil
}

func (d *directory) Account(_ context.Context, tenant hub.TenantID, id hub.UserID) (hub.User, error) {
	for _, u := range d.users {
		if u.Tenant == tenant && u.ID == id {
			return u, nil
		}
	}
	return hub.User{}, absent()
}

func (d *directory) SessionDuration(context.Context, hub.TenantID) (time.Duration, error) {
	return d.lasts, nil
}

func (d *directory) SignedIn(_ context.Context, c hub.Caller) error {
	d.noted = append(d.noted, "allowed "+c.Username)
	return nil
}

func (d *directory) SignInRefused(_ context.Context, c hub.Caller, reason string) error {
	d.noted, d.reasons = append(d.noted, "denied "+c.Username), append(d.reasons, reason)
	return nil
}

// fixture is a service with one tenant and one account, ann.
type fixture struct {
	*Service
	dir *directory
	now time.Time
}

const secretWord = "correct horse battery"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	passwords, err := NewPasswords(2)
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{dir: newDirectory(), now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
	f.Service = New(Directory{f.dir, f.dir, f.dir, f.dir, f.dir}, f.dir, passwords, Config{Now: func() time.Time { return f.now }}, slog.New(slog.DiscardHandler))
	hash, err := passwords.Hash(t.Context(), secretWord)
	if err != nil {
		t.Fatal(err)
	}
	f.dir.tenants["acme"] = hub.Tenant{ID: "t1", Name: "acme"}
	f.dir.users["t1/ann"] = hub.User{ID: "u1", Tenant: "t1", Name: "ann", Roles: []string{"readonly"}}
	f.dir.hashes["t1/ann"] = hash
	return f
}

func (f *fixture) change(change func(*hub.User)) {
	u := f.dir.users["t1/ann"]
	change(&u)
	f.dir.users["t1/ann"] = u
}

func (f *fixture) login(t *testing.T, name, password string) (string, error) {
	t.Helper()
	secret, _, _, err := f.Login(t.Context(), hub.Caller{Address: "192.0.2.1"}, Credential{"acme", name, password})
	return secret, err
}

func (f *fixture) mustLogin(t *testing.T) string {
	t.Helper()
	secret, err := f.login(t, "ann", secretWord)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func TestSessions(t *testing.T) {
	t.Parallel()
	t.Run("a session names its user", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		c, err := f.Authenticate(t.Context(), f.mustLogin(t))
		if err != nil || c.Username != "ann" || c.Tenant != "t1" || c.Via != "session" || len(c.Roles) != 1 {
			t.Errorf("Authenticate() = %+v, %v", c, err)
		}
	})
	t.Run("SEC-F1 a session ends when it is idle, and at its age in any case", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		idle, busy := f.mustLogin(t), f.mustLogin(t)
		for range 3 {
			f.now = f.now.Add(7 * time.Hour)
			if _, err := f.Authenticate(t.Context(), busy); err != nil {
				t.Fatalf("a session in use ended: %v", err)
			}
		}
		if _, err := f.Authenticate(t.Context(), idle); fault.KindOf(err) != fault.Unknown {
			t.Errorf("an idle session gives %v", err)
		}
		f.now = f.now.Add(4 * time.Hour)
		if _, err := f.Authenticate(t.Context(), busy); fault.KindOf(err) != fault.Unknown {
			t.Errorf("a session older than a day gives %v", err)
		}
	})
	t.Run("AUTH-05 SEC-F1 the tenant sets how long a session lasts, and it ends after a third of that without use", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.dir.lasts = 90 * time.Minute
		idle, busy := f.mustLogin(t), f.mustLogin(t)
		f.dir.lasts = 24 * time.Hour // counts for those that begin later
		for range 3 {
			f.now = f.now.Add(29 * time.Minute)
			if _, err := f.Authenticate(t.Context(), busy); err != nil {
				t.Fatalf("a session in use ended: %v", err)
			}
		}
		if _, err := f.Authenticate(t.Context(), idle); fault.KindOf(err) != fault.Unknown {
			t.Errorf("an idle session gives %v", err)
		}
		f.now = f.now.Add(3 * time.Minute)
		if _, err := f.Authenticate(t.Context(), busy); fault.KindOf(err) != fault.Unknown {
			t.Errorf("a session that is too old gives %v", err)
		}
	})
	t.Run("a proof is trusted for a moment and no longer", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		secret := f.mustLogin(t)
		for range 10 {
			if _, err := f.Authenticate(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		if f.dir.lookups != 1 {
			t.Errorf("ten requests in a moment cost %d look-ups", f.dir.lookups)
		}
		f.change(func(u *hub.User) { u.Disabled = true })
		f.now = f.now.Add(3 * time.Second)
		if _, err := f.Authenticate(t.Context(), secret); fault.KindOf(err) != fault.Unknown {
			t.Errorf("SEC-D8 a disabled account gives %v", err)
		}
	})
	t.Run("removing an account from the cache reads it again at once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		secret := f.mustLogin(t)
		if _, err := f.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		f.change(func(u *hub.User) { u.Roles = []string{"tenant-admin"} })
		f.Forget("t1", "ann")
		if c, err := f.Authenticate(t.Context(), secret); err != nil || c.Roles[0] != "tenant-admin" {
			t.Errorf("Authenticate() = %+v, %v", c, err)
		}
	})
	t.Run("signing out ends it at once", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		secret := f.mustLogin(t)
		if _, err := f.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		if err := f.Logout(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Authenticate(t.Context(), secret); fault.KindOf(err) != fault.Unknown {
			t.Errorf("after signing out: %v", err)
		}
	})
}

func TestProofsThatDoNotHold(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	good := f.mustLogin(t)
	past := f.now.Add(-time.Hour)
	old, oldToken := NewToken("t1", "u1", "old")
	oldToken.ExpiresAt = &past
	f.dir.tokens[oldToken.Hash] = oldToken
	lost, lostToken := NewToken("t1", "gone", "lost")
	f.dir.tokens[lostToken.Hash] = lostToken
	foreign, foreignToken := NewToken("nowhere", "u1", "foreign")
	f.dir.tokens[foreignToken.Hash] = foreignToken
	setup := NewSecret(SetupSecret)
	f.dir.sessions[Hash(setup)] = hub.Session{Hash: Hash(setup), Tenant: "t1", User: "u1", SeenAt: f.now, ExpiresAt: f.now.Add(time.Hour)}
	var sentence string
	for name, secret := range map[string]string{
		"Empty": "", "Garbage": "garbage", "Unknown": NewSecret(SessionSecret), "UnknownToken": NewSecret(TokenSecret),
		"Truncated": good[:len(good)-1], "Longer": good + "0", "OtherKind": "cpt_" + good[4:], "Expired": old, "NoAccount": lost, "NoTenant": foreign,
		"SetupLink": setup, "JWT": "eyJhbGciOiJub25lIn0.eyJzdWIiOiJhbm4ifQ.", "NUL": good[:20] + "\x00" + good[21:],
	} {
		_, err := f.Authenticate(t.Context(), secret)
		if fault.KindOf(err) != fault.Unknown {
			t.Errorf("SEC-E1 %s gives %v", name, err)
			continue
		}
		if sentence == "" {
			sentence = fault.Sentence(err)
		}
		if got := fault.Sentence(err); got != sentence {
			t.Errorf("SEC-G1 %s answers %q, others %q", name, got, sentence)
		}
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	t.Run("SEC-G1 the answer is the same for every cause and every failure is recorded", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		_, wrong := f.login(t, "ann", "wrong")
		_, unknown := f.login(t, "bob", "wrong")
		f.change(func(u *hub.User) { u.Disabled = true })
		_, disabled := f.login(t, "ann", secretWord)
		if fault.KindOf(wrong) != fault.Unknown || wrong.Error() != unknown.Error() || wrong.Error() != disabled.Error() {
			t.Errorf("the answers are %v, %v, %v", wrong, unknown, disabled)
		}
		if got := strings.Join(f.dir.noted, ", "); got != "denied ann, denied bob, denied ann" {
			t.Errorf("noted are %q", got)
		}
	})
	t.Run("SEC-E8 failures of others do not lock an owner out elsewhere", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		for range 5 {
			if _, err := f.login(t, "ann", "wrong"); fault.KindOf(err) != fault.Unknown {
				t.Fatal(err)
			}
		}
		if _, err := f.login(t, "ann", secretWord); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("the sixth try from one address gives %v", err)
		}
		if _, _, _, err := f.Login(t.Context(), hub.Caller{Address: "198.51.100.7"}, Credential{"acme", "ann", secretWord}); err != nil {
			t.Errorf("the owner elsewhere gets %v", err)
		}
	})
	t.Run("SEC-E8 many names from one address are stopped", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		stopped := false
		for i := range maxOfSource + 1 {
			_, err := f.login(t, "name"+strings.Repeat("x", i), "wrong")
			stopped = fault.KindOf(err) == fault.Exceeded
		}
		if !stopped {
			t.Error("they are not")
		}
	})
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	p, err := NewPasswords(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "short", strings.Repeat("x", MaxPassword+1)} {
		if _, err := p.Hash(t.Context(), bad); fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "short") && bad == "short" {
			t.Errorf("a password of %d characters gives %v", len(bad), err)
		}
	}
	hash, err := p.Hash(t.Context(), secretWord)
	if err != nil || strings.Contains(hash, secretWord) {
		t.Fatal(hash, err)
	}
	for password, want := range map[string]bool{secretWord: true, secretWord + " ": false, "": false} {
		if got, err := p.Matches(t.Context(), password, hash); got != want || err != nil {
			t.Errorf("Matches(%q) = %v, %v", password, got, err)
		}
	}
	if got, err := p.Matches(t.Context(), secretWord, ""); got || err != nil {
		t.Errorf("no account matches: %v, %v", got, err)
	}
	if _, err := p.Matches(t.Context(), secretWord, "nonsense"); err == nil {
		t.Error("a hash that cannot be read is no error")
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]Kind{SessionSecret, TokenSecret, SetupSecret}).Draw(t, "kind")
		s := NewSecret(kind)
		if KindOf(s) != kind || !strings.HasPrefix(s, Shown(s)) || len(Shown(s)) != 8 {
			t.Fatalf("a new secret of %q is taken as %q", kind, KindOf(s))
		}
		i := rapid.IntRange(4, len(s)-1).Draw(t, "at")
		b := []byte(s)
		if b[i] = rapid.SampledFrom([]byte("09azAZ")).Draw(t, "digit"); string(b) != s && KindOf(string(b)) != "" {
			t.Fatalf("SEC-E1 a secret with a changed digit is taken as one")
		}
	})
	rapid.Check(t, func(t *rapid.T) { _ = KindOf(rapid.String().Draw(t, "text")) })
}
