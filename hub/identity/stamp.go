package identity

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// NewStamp makes a random text that says of which tenant it is, in 64 characters.
func NewStamp(tenant hub.TenantID) (string, error) {
	id, err := hex.DecodeString(strings.ReplaceAll(string(tenant), "-", ""))
	if err != nil || len(id) != 16 {
		return "", errors.New("the id of a tenant is not usable")
	}
	raw := make([]byte, 32)
	rand.Read(raw) // never fails: crypto/rand ends the program instead
	return base64.RawURLEncoding.EncodeToString(append(id, raw...)), nil
}

// TenantOf reads the tenant of a stamp.
func TenantOf(text string) (hub.TenantID, bool) {
	raw, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(raw) != 48 {
		return "", false
	}
	id := hex.EncodeToString(raw[:16])
	return hub.TenantID(id[:8] + "-" + id[8:12] + "-" + id[12:16] + "-" + id[16:20] + "-" + id[20:]), true
}
