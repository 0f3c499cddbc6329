package identity

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// Failures within the window after which sign-ins are refused. The first two
// limits are per client address, so they affect nobody elsewhere. The third is
// for all addresses that an account has not signed in from: it slows down
// guessing from many of them, and does not affect known addresses (decision
// 0054).
const (
	failureWindow  = 5 * time.Minute
	maxOfBoth      = 5   // one account from one address
	maxOfSource    = 30  // all accounts from one address
	maxOfStrangers = 100 // one account from all addresses that it does not know
	maxOfChanges   = 100 // one account, by those who are signed in to it
	keepKnown      = 90 * 24 * time.Hour
)

// A throttleKey is what failures are counted under. Names are hashed, so that
// guesses of names fill no table with texts.
type throttleKey struct {
	key   [32]byte
	limit int
}

func hashOf(parts ...string) [32]byte {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return [32]byte(h.Sum(nil))
}

// ownKeys are those of the address that asks: first with this account.
func ownKeys(tenant, username, address string) []throttleKey {
	from := clientip.Key(address)
	return []throttleKey{
		{hashOf("both", tenant, username, from), maxOfBoth},
		{hashOf("source", from), maxOfSource},
	}
}

// strangersKey is that of all addresses that an account does not know.
func strangersKey(tenant, username string) throttleKey {
	return throttleKey{hashOf("strangers", tenant, username), maxOfStrangers}
}

// changeKey counts the wrong passwords of those who are signed in.
func changeKey(tenant, username string) throttleKey {
	return throttleKey{hashOf("change", tenant, username), maxOfChanges}
}

// knownKey identifies an account at an address. A missing account has none, and
// is looked up like any other.
func knownKey(t hub.Tenant, u hub.User, address string) [32]byte {
	return hashOf("known", string(t.ID), string(u.ID), clientip.Key(address))
}

// accountState reports whether the account has signed in from this address before,
// and whether it is closed to all others for a while.
func (s *Service) accountState(ctx context.Context, c Credential, t hub.Tenant, u hub.User, address string, now time.Time) (known, closed bool, err error) {
	if known, err = s.dir.KnownAddress(ctx, knownKey(t, u, address), now); err != nil {
		return false, false, err
	}
	k := strangersKey(c.Tenant, c.Username)
	n, err := s.dir.LoginFailures(ctx, k.key, now.Add(-failureWindow))
	return known, n >= k.limit, err
}

// throttled refuses a sign-in after too many failures.
func (s *Service) throttled(ctx context.Context, keys []throttleKey, now time.Time) error {
	for _, k := range keys {
		n, err := s.dir.LoginFailures(ctx, k.key, now.Add(-failureWindow))
		if err != nil {
			return err
		}
		if n >= k.limit {
			return fault.With(fault.New(fault.Exceeded, "there were too many failed sign-ins"), "", "wait five minutes and try again")
		}
	}
	return nil
}

// errClosed is the only reply to failed sign-ins while an account is closed to
// unknown addresses: it does not reveal whether the address is known.
func errClosed() error {
	return fault.With(fault.New(fault.Exceeded, "the user name or the password is wrong, or there were too many failed sign-ins with this name"), "",
		"check both and sign in from where you did before, or wait five minutes")
}

// What the audit log says of sign-ins that were refused.
const (
	reasonWrong  = "the user name or the password is wrong"
	reasonClosed = "there were too many failed sign-ins with this name from addresses that it has not signed in from"
)

// refused counts and notes a sign-in that failed. Nothing of it may change
// the answer, so its own errors go to the log.
func (s *Service) refused(ctx context.Context, keys []throttleKey, now time.Time, tenant hub.Tenant, from hub.Caller, c Credential, closed bool) {
	reasons := []string{reasonWrong}
	if closed {
		reasons[0] = reasonClosed
	}
	strangers := strangersKey(c.Tenant, c.Username)
	for _, k := range keys {
		n, err := s.dir.LoginFailure(ctx, k.key, now, failureWindow)
		if err != nil {
			s.log.ErrorContext(ctx, "count a failed sign-in", logkey.Error, err)
		}
		if k == strangers && n == k.limit {
			reasons = append(reasons, fmt.Sprintf("%d sign-ins with this name failed within %d minutes from addresses that it has not signed in from: for the rest of them it is closed to all such addresses", n, int(failureWindow.Minutes())))
		}
	}
	if tenant.ID == "" {
		return
	}
	who := hub.Caller{Tenant: tenant.ID, Username: c.Username, Via: "password", Address: from.Address, Request: from.Request}
	for _, reason := range reasons {
		if err := s.accounts.SignInRefused(ctx, who, reason); err != nil {
			s.log.ErrorContext(ctx, "note a failed sign-in", logkey.Error, err)
		}
	}
}
