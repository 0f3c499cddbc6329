package identity

import (
	"context"
	"crypto/rand"
	"math/big"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
)

// The codes that people type have eight of twenty consonants, as RFC 8628
// proposes: no words, nothing that looks alike, 34 bits.
const (
	codeLetters = "BCDFGHJKLMNPQRSTVWXZ"
	codeLength  = 8
)

// Wrong codes within the window of failed sign-ins after which no more are tried.
const (
	maxCodesOfAccount = 10
	maxCodesOfSource  = 30
)

// NewUserCode makes a code that a device shows and a person types.
func NewUserCode() string {
	out := make([]byte, codeLength)
	letters := big.NewInt(int64(len(codeLetters)))
	for i := range out {
		n, err := rand.Int(rand.Reader, letters)
		if err != nil {
			panic(err) // never: crypto/rand ends the program instead
		}
		out[i] = codeLetters[n.Int64()]
	}
	return ShownUserCode(string(out))
}

// ShownUserCode is a code as people read it, in two halves.
func ShownUserCode(code string) string { return code[:codeLength/2] + "-" + code[codeLength/2:] }

// TypedUserCode reads a code as people type it: in lower case, and with anything
// between the letters. The error is fault.Invalid.
func TypedUserCode(typed string) (string, error) {
	code := strings.Map(func(r rune) rune {
		if strings.ContainsRune(" -_.\t", r) {
			return -1
		}
		return r
	}, strings.ToUpper(typed))
	if len(code) != codeLength || strings.Trim(code, codeLetters) != "" {
		return "", fault.With(fault.New(fault.Invalid, "this is no code of a device"), "", "type the eight letters that the device shows, such as WDJB-MJHT")
	}
	return code, nil
}

// deviceKeys count the wrong codes of an account and of an address.
func deviceKeys(c hub.Caller) []throttleKey {
	return []throttleKey{
		{hashOf("device account", string(c.Tenant), string(c.User)), maxCodesOfAccount},
		{hashOf("device source", clientip.Key(c.Address)), maxCodesOfSource},
	}
}

// TryUserCode calls do, which looks a code up for a caller. One that is not found
// counts, and after too many of them do is not called any more.
func (s *Service) TryUserCode(ctx context.Context, c hub.Caller, do func(ctx context.Context) error) error {
	now, keys := s.cfg.Now(), deviceKeys(c)
	for _, k := range keys {
		n, err := s.dir.LoginFailures(ctx, k.key, now.Add(-failureWindow))
		if err != nil {
			return err
		}
		if n >= k.limit {
			return fault.With(fault.New(fault.Exceeded, "there were too many wrong codes"), "", "wait five minutes, and have the device show a new code")
		}
	}
	err := do(ctx)
	if fault.KindOf(err) != fault.Missing {
		return err
	}
	for _, k := range keys {
		if _, err := s.dir.LoginFailure(ctx, k.key, now, failureWindow); err != nil {
			return err
		}
	}
	return err
}

// BeginFrom starts the session of a device that another session of the account
// has approved. Both began and end at the same time, so that approvals prolong no
// sign-in. The error is fault.Denied if that session or the account is no more.
func (s *Service) BeginFrom(ctx context.Context, from hub.Caller, tenant hub.Tenant, by hub.DeviceLogin) (secret string, caller hub.Caller, expires time.Time, err error) {
	now := s.cfg.Now()
	origin, user, err := s.approver(ctx, tenant, by, now)
	if err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	var claims *hub.SessionClaims
	if user.Provider != "" {
		// Without the proof for the provider's sign-out: that is for the browser.
		c, err := s.accounts.SessionClaims(ctx, tenant.ID, origin.Hash)
		if err != nil {
			return "", hub.Caller{}, time.Time{}, errApproval(err)
		}
		claims = &c
	}
	return s.begin(ctx, from, tenant, user, claims, span{origin.CreatedAt, origin.ExpiresAt})
}

// approver returns the session that has approved a device, and its account.
func (s *Service) approver(ctx context.Context, tenant hub.Tenant, by hub.DeviceLogin, now time.Time) (hub.Session, hub.User, error) {
	origin, err := s.dir.Session(ctx, by.Session)
	if err != nil {
		return origin, hub.User{}, errApproval(err)
	}
	user, err := s.accounts.Account(ctx, tenant.ID, by.User)
	if err != nil {
		return origin, user, errApproval(err)
	}
	ended := !now.Before(origin.ExpiresAt) || now.Sub(origin.SeenAt) >= origin.Idle()
	if tenant.Suspended || user.Disabled || ended || origin.Tenant != tenant.ID || origin.User != by.User {
		return origin, user, errApproval(nil)
	}
	return origin, user, nil
}

// errApproval turns "not there" into the refusal that a device hears.
func errApproval(err error) error {
	if err != nil && fault.KindOf(err) != fault.Missing {
		return err
	}
	return fault.With(fault.New(fault.Denied, "the sign-in that has approved this device has ended"), "", "begin again")
}
