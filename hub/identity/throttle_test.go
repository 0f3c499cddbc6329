package identity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// from signs in to ann's account from an address.
func (f *fixture) from(t *testing.T, address, password string) error {
	t.Helper()
	_, _, _, err := f.Login(t.Context(), hub.Caller{Address: address}, Credential{"acme", "ann", password})
	return err
}

// strangers fail with ann's name, each from four times an address of their
// own, until her account is closed to addresses that it does not know.
func (f *fixture) strangers(t *testing.T) {
	t.Helper()
	for i := range maxOfStrangers {
		if err := f.from(t, fmt.Sprint("203.0.113.", i/4), "guess"); fault.KindOf(err) != fault.Unknown {
			t.Fatalf("guess %d gives %v", i, err)
		}
	}
}

func TestStrangers(t *testing.T) {
	t.Parallel()
	const home, homeSite, other = "192.0.2.1", "2001:db8:1:2::9", "198.51.100.7"
	f := newFixture(t)
	for _, a := range []string{home, homeSite} {
		if err := f.from(t, a, secretWord); err != nil {
			t.Fatal(err)
		}
	}
	f.strangers(t)
	t.Run("SEC-E8 the owner can sign in where she has signed in before", func(t *testing.T) {
		for _, a := range []string{home, homeSite, "2001:db8:1:2:aaaa::1"} {
			if err := f.from(t, a, secretWord); err != nil {
				t.Errorf("from %s: %v", a, err)
			}
		}
	})
	t.Run("SEC-E8 SEC-G1 at an address that the account does not know, right and wrong are answered alike", func(t *testing.T) {
		right, wrong, known := f.from(t, other, secretWord), f.from(t, other, "guess"), f.from(t, home, "guess")
		if fault.KindOf(right) != fault.Exceeded || right.Error() != wrong.Error() || right.Error() != known.Error() {
			t.Errorf("right: %v\nwrong: %v\nwrong at a known address: %v", right, wrong, known)
		}
	})
	t.Run("SEC-E8 at a known address guesses are limited as everywhere", func(t *testing.T) {
		for range maxOfBoth {
			_ = f.from(t, home, "guess")
		}
		if err := f.from(t, home, secretWord); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("after %d guesses: %v", maxOfBoth, err)
		}
	})
	t.Run("the audit log says once that the account was closed to strangers", func(t *testing.T) {
		closed := 0
		for _, r := range f.dir.reasons {
			if strings.HasPrefix(r, fmt.Sprint(maxOfStrangers, " sign-ins with this name failed")) {
				closed++
			}
		}
		if closed != 1 {
			t.Errorf("it says so %d times", closed)
		}
	})
}

func TestKnownAddressesEnd(t *testing.T) {
	t.Parallel()
	t.Run("SEC-E8 an address is known for 90 days after the last sign-in", func(t *testing.T) {
		f := newFixture(t)
		if err := f.from(t, "192.0.2.1", secretWord); err != nil {
			t.Fatal(err)
		}
		f.now = f.now.Add(keepKnown - time.Minute)
		f.strangers(t)
		if err := f.from(t, "192.0.2.1", secretWord); err != nil {
			t.Errorf("on the last day: %v", err)
		}
		f.now = f.now.Add(keepKnown)
		if err := f.from(t, "192.0.2.1", secretWord); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("after it: %v", err)
		}
	})
	t.Run("SEC-E8 a known address of one account is none of another", func(t *testing.T) {
		f := newFixture(t)
		ben := f.dir.users["t1/ann"]
		ben.ID, ben.Name = "u2", "ben"
		f.dir.users["t1/ben"], f.dir.hashes["t1/ben"] = ben, f.dir.hashes["t1/ann"]
		if _, err := f.login(t, "ben", secretWord); err != nil {
			t.Fatal(err)
		}
		f.strangers(t)
		if err := f.from(t, "192.0.2.1", secretWord); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("the address of another account gives %v", err)
		}
	})
	t.Run("SEC-E8 an IPv6 site counts as one address", func(t *testing.T) {
		f := newFixture(t)
		for i := range maxOfBoth {
			_ = f.from(t, fmt.Sprintf("2001:db8:1:2::%d", i+1), "guess")
		}
		if err := f.from(t, "2001:db8:1:2::ff", secretWord); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("another address of the site gives %v", err)
		}
	})
	t.Run("SEC-E8 attempts of others do not prevent the owner from changing the password", func(t *testing.T) {
		f := newFixture(t)
		f.strangers(t)
		who := hub.Caller{Tenant: "t1", TenantName: "acme", Username: "ann", Address: "198.51.100.7"}
		if err := f.CheckPassword(t.Context(), who, secretWord); err != nil {
			t.Error(err)
		}
	})
}
