package identity

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/bcrypt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// OldPasswords are hashes in the form of Argo CD. They are accepted, and
// replaced at the next sign-in (AUTH-01).
type OldPasswords interface {
	// HasOldPasswords reports whether an account of the tenant has such a hash.
	HasOldPasswords(ctx context.Context, tenant hub.TenantID) (bool, error)
	// UpgradePassword replaces a hash by another one of the same password.
	UpgradePassword(ctx context.Context, tenant hub.TenantID, user hub.UserID, old, hash string) error
}

// oldPassword reports whether a hash is one of bcrypt.
func oldPassword(hash string) bool { return strings.HasPrefix(hash, "$2") }

// maxBcrypt is how many bytes of a password bcrypt uses.
const maxBcrypt = 72

// matchesOld is Matches for a hash of bcrypt. Any other hash stands for no
// account: it costs the same and never matches.
func (p *Passwords) matchesOld(ctx context.Context, password, hash string) (bool, error) {
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave()
	known := oldPassword(hash)
	if !known {
		hash = p.oldDummy
	}
	if len(password) > maxBcrypt {
		password, known = password[:maxBcrypt], false
	}
	err := bcrypt.CompareHashAndPassword([]byte(hash), []byte(password))
	if err != nil && !errors.Is(err, bcrypt.ErrMismatchedHashAndPassword) {
		return false, fmt.Errorf("check a password: %w", err)
	}
	return err == nil && known, nil
}

// matches reports whether a password is that of an account. In a tenant that
// has passwords of Argo CD every check costs one of each form, so that the time
// tells nothing of the account.
func (s *Service) matches(ctx context.Context, tenant hub.TenantID, hash, password string) (bool, error) {
	mixed := false
	if tenant != "" {
		var err error
		if mixed, err = s.accounts.HasOldPasswords(ctx, tenant); err != nil {
			return false, err
		}
	}
	current := hash
	if oldPassword(hash) {
		current = ""
	}
	match, err := s.passwords.Matches(ctx, password, current)
	if err != nil || !mixed {
		return match, err
	}
	old, err := s.passwords.matchesOld(ctx, password, hash)
	return match || old, err
}

// upgrade replaces a hash of bcrypt after a sign-in with its password. The
// sign-in does not depend on it.
func (s *Service) upgrade(ctx context.Context, t hub.Tenant, u hub.User, old, password string) {
	if !oldPassword(old) {
		return
	}
	hash, err := s.passwords.hash(ctx, password)
	if err == nil {
		err = s.accounts.UpgradePassword(ctx, t.ID, u.ID, old, hash)
	}
	if err != nil {
		s.log.ErrorContext(ctx, "a password keeps its older hash until the next sign-in", logkey.Error, err)
	}
}
