// Package identity authenticates callers: local accounts with passwords,
// sessions, and API tokens. It does not authorize, and it stores no secret: it
// gets argon2id hashes of passwords, and SHA-256 hashes of sessions and tokens.
// The API calls it for every request. Invalid, unknown and expired credentials,
// and those of a disabled account, get the same reply after the same time.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"hash/crc32"
	"math/big"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// A Kind of secret is identified by its first characters, also by scanners.
type Kind string

// The kinds of secrets that this package makes.
const (
	SessionSecret Kind = "cps_"
	TokenSecret   Kind = "cpt_"
	SetupSecret   Kind = "cpu_"
	RoleSecret    Kind = "cpr_" // of a role of a project
	GivenSecret   Kind = "cpx_" // given for a token of another issuer
	SCIMSecret    Kind = "cpm_" // of an identity provider that provisions people
)

const (
	secretBytes    = 32 // 256 bits
	secretDigits   = 43 // of base 62 hold them
	checksumDigits = 6
	digits62       = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	shownDigits    = 4 // after the kind, in lists
)

// NewSecret makes a secret of a kind: the kind, 256 random bits and a checksum
// of them in base 62.
func NewSecret(kind Kind) string {
	raw := make([]byte, secretBytes)
	rand.Read(raw) // never fails: crypto/rand ends the program instead
	body := base62(new(big.Int).SetBytes(raw), secretDigits)
	return string(kind) + body + checksum(body)
}

// Hash is the stored hash of a secret.
func Hash(secret string) [32]byte { return sha256.Sum256([]byte(secret)) }

// Shown is as much of a secret as lists show.
func Shown(secret string) string { return secret[:min(len(secret), 4+shownDigits)] }

// KindOf returns the kind of a secret, or "" for a text that is none. It costs
// no lookup, so garbage is refused cheaply.
func KindOf(secret string) Kind {
	if len(secret) != 4+secretDigits+checksumDigits {
		return ""
	}
	body := secret[4 : 4+secretDigits]
	if checksum(body) != secret[4+secretDigits:] {
		return ""
	}
	switch k := Kind(secret[:4]); k {
	case SessionSecret, TokenSecret, SetupSecret, RoleSecret, GivenSecret, SCIMSecret:
		return k
	}
	return ""
}

func checksum(body string) string {
	return base62(big.NewInt(int64(crc32.ChecksumIEEE([]byte(body)))), checksumDigits)
}

func base62(n *big.Int, width int) string {
	out := []byte(strings.Repeat("0", width))
	base, digit := big.NewInt(62), new(big.Int)
	for i := width - 1; i >= 0 && n.Sign() > 0; i-- {
		n.DivMod(n, base, digit)
		out[i] = digits62[digit.Int64()]
	}
	return string(out)
}

// NewToken makes an API token for a user and its secret, which is not stored.
func NewToken(tenant hub.TenantID, user hub.UserID, name string) (string, hub.APIToken) {
	secret := NewSecret(TokenSecret)
	return secret, hub.APIToken{
		ID: hub.NewID[hub.TokenID](), Tenant: tenant, User: user, Name: name,
		Prefix: Shown(secret), Hash: Hash(secret),
	}
}
