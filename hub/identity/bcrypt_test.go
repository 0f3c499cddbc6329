package identity

import (
	"context"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestPasswordsOfArgoCD(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	old, err := bcrypt.GenerateFromPassword([]byte(secretWord), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	f.dir.hashes["t1/ann"] = string(old)
	t.Run("AUTH-01 a hash by bcrypt is accepted once, and then is one by argon2id", func(t *testing.T) {
		if _, err := f.login(t, "ann", "wrong"); fault.KindOf(err) != fault.Unknown || f.dir.hashes["t1/ann"] != string(old) {
			t.Fatalf("a wrong password gives %v and the hash %s", err, f.dir.hashes["t1/ann"])
		}
		f.mustLogin(t)
		if got := f.dir.hashes["t1/ann"]; !strings.HasPrefix(got, "$argon2id$") {
			t.Errorf("the hash is %s", got)
		}
		f.mustLogin(t)
	})
	t.Run("AUTH-01 bcrypt cuts after 72 bytes, so a longer password never matches", func(t *testing.T) {
		long := strings.Repeat("x", 72)
		hash, err := bcrypt.GenerateFromPassword([]byte(long), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		for password, want := range map[string]bool{long: true, long + "y": false} {
			if got, err := f.passwords.matchesOld(t.Context(), password, string(hash)); got != want || err != nil {
				t.Errorf("%d bytes: %v, %v", len(password), got, err)
			}
		}
	})
}

func TestCredentialsThatChange(t *testing.T) {
	t.Parallel()
	t.Run("AUTH-04 SEC-D8 what was found out of a tenant is forgotten when the replica hears of a change", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		secret := f.mustLogin(t)
		if _, err := f.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		f.change(func(u *hub.User) { u.Disabled = true })
		f.ForgetTenant("t2")
		if _, err := f.Authenticate(t.Context(), secret); err != nil {
			t.Fatalf("another tenant's change: %v", err)
		}
		f.ForgetTenant("t1")
		if _, err := f.Authenticate(t.Context(), secret); fault.KindOf(err) != fault.Unknown {
			t.Errorf("after the change: %v", err)
		}
	})
	t.Run("AUTH-04 SEC-D8 what was read before a change is not remembered after it", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		secret := f.mustLogin(t)
		f.Service.accounts = meanwhile{f.dir, func() {
			f.change(func(u *hub.User) { u.Disabled = true })
			f.ForgetTenant("t1")
		}}
		if _, err := f.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		f.Service.accounts = f.dir
		if _, err := f.Authenticate(t.Context(), secret); fault.KindOf(err) != fault.Unknown {
			t.Errorf("the next request: %v", err)
		}
	})
	t.Run("AUTH-01 a token needs the capability apiKey, and a password the capability login", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		secret, token := NewToken("t1", "u1", "ci")
		until := f.now.Add(time.Hour)
		token.ExpiresAt = &until
		f.dir.tokens[token.Hash] = token
		f.change(func(u *hub.User) { u.Capabilities = []string{hub.CanSignIn} })
		if _, err := f.Authenticate(t.Context(), secret); fault.KindOf(err) != fault.Unknown {
			t.Errorf("the token: %v", err)
		}
		f.change(func(u *hub.User) { u.Capabilities = []string{hub.CanUseTokens} })
		if _, err := f.Authenticate(t.Context(), secret); err != nil {
			t.Error(err)
		}
		if _, err := f.login(t, "ann", secretWord); fault.KindOf(err) != fault.Unknown {
			t.Errorf("the password: %v", err)
		}
	})
}

// meanwhile is a directory in which something happens after an account was read.
type meanwhile struct {
	*directory
	then func()
}

func (m meanwhile) Account(ctx context.Context, tenant hub.TenantID, id hub.UserID) (hub.User, error) {
	u, err := m.directory.Account(ctx, tenant, id)
	m.then()
	return u, err
}
