package identity

import (
	"context"
	"fmt"
	"unicode/utf8"

	"github.com/alexedwards/argon2id"
	"golang.org/x/crypto/bcrypt"

	"github.com/capstan-cd/capstan/shared/fault"
)

// Limits of passwords.
const (
	MinPassword = 12
	MaxPassword = 256
)

// passwordCost is the cost of one guess: 19 MiB and two passes, the minimum
// that OWASP recommends. A hub computes few of these at a time.
func passwordCost() *argon2id.Params {
	return &argon2id.Params{Memory: 19 << 10, Iterations: 2, Parallelism: 1, SaltLength: 16, KeyLength: 32}
}

// Passwords hashes and checks passwords, a few at a time, because each needs 19
// MiB. Many goroutines may use it.
type Passwords struct {
	slots chan struct{}
	dummy string // hash of a password that no account has

	oldDummy string // the same by bcrypt
}

// NewPasswords makes a hasher that does at most so many at a time.
func NewPasswords(parallel int) (*Passwords, error) {
	p := &Passwords{slots: make(chan struct{}, max(1, parallel))}
	var err error
	if p.dummy, err = argon2id.CreateHash(NewSecret(SessionSecret), passwordCost()); err != nil {
		return nil, fmt.Errorf("hash a password: %w", err)
	}
	old, err := bcrypt.GenerateFromPassword([]byte(NewSecret(SessionSecret)), bcrypt.DefaultCost)
	if err != nil {
		return nil, fmt.Errorf("hash a password: %w", err)
	}
	p.oldDummy = string(old)
	return p, nil
}

// Hash returns the stored text of a password. The error is fault.Invalid for a
// password that is too short or too long.
func (p *Passwords) Hash(ctx context.Context, password string) (string, error) {
	switch n := utf8.RuneCountInString(password); {
	case n < MinPassword:
		return "", fault.With(fault.New(fault.Invalid, "the password has %d characters", n), "", fmt.Sprintf("choose one with at least %d", MinPassword))
	case len(password) > MaxPassword:
		return "", fault.New(fault.Invalid, "the password is longer than %d bytes", MaxPassword)
	}
	return p.hash(ctx, password)
}

// hash is Hash for a password that was accepted before.
func (p *Passwords) hash(ctx context.Context, password string) (string, error) {
	if err := p.enter(ctx); err != nil {
		return "", err
	}
	defer p.leave()
	hash, err := argon2id.CreateHash(password, passwordCost())
	if err != nil {
		return "", fmt.Errorf("hash a password: %w", err)
	}
	return hash, nil
}

// Matches reports whether the password is the one behind the hash. An empty hash
// stands for "no such account": it costs the same and never matches.
func (p *Passwords) Matches(ctx context.Context, password, hash string) (bool, error) {
	if err := p.enter(ctx); err != nil {
		return false, err
	}
	defer p.leave()
	known := hash != ""
	if !known {
		hash = p.dummy
	}
	match, err := argon2id.ComparePasswordAndHash(password, hash)
	if err != nil {
		return false, fmt.Errorf("check a password: %w", err)
	}
	return match && known, nil
}

func (p *Passwords) enter(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Passwords) leave() { <-p.slots }
