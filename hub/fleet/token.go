package fleet

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/capstan-cd/capstan/shared/tunnel"
)

// TokenLife is how long a join token is good unless its maker says less or more.
const TokenLife = time.Hour

// prefixLength is how much of a secret may be shown and searched for: 48 of
// its 256 bits.
const prefixLength = 8

// An Inviter makes join tokens.
type Inviter struct {
	Addresses []string // host:port, as agents reach the hub
	Pin       tunnel.Pin
}

// Invite makes a token. The token itself is shown once to the person who asked
// and is not stored; the prefix identifies its enrolment, and the store has its
// hash.
func (i Inviter) Invite() (token, prefix string, hash [32]byte, err error) {
	var random [32]byte
	if _, err := rand.Read(random[:]); err != nil {
		return "", "", hash, fmt.Errorf("make a join token: %w", err)
	}
	secret := base64.RawURLEncoding.EncodeToString(random[:])
	token, err = tunnel.JoinToken{Addresses: i.Addresses, Pin: i.Pin, Secret: tunnel.Secret(secret)}.Encode()
	if err != nil {
		return "", "", hash, fmt.Errorf("make a join token: %w", err)
	}
	return token, secret[:prefixLength], hashSecret(secret), nil
}

// hashSecret is enough for a secret of 256 random bits: it cannot be guessed,
// so it need not be slow.
func hashSecret(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }
