package tunnel

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"net"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Pin is the SHA-256 of a public key as certificates encode it (SPKI).
type Pin [32]byte

// PinOf is the pin of a certificate's key.
func PinOf(c *x509.Certificate) Pin { return sha256.Sum256(c.RawSubjectPublicKeyInfo) }

// String is the pin in base64url, as in join tokens. A pin is not secret.
func (p Pin) String() string { return base64.RawURLEncoding.EncodeToString(p[:]) }

// ParsePin reads the text form of a pin.
func ParsePin(text string) (Pin, error) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(b) != len(Pin{}) {
		return Pin{}, fault.New(fault.Invalid, "a key pin is 43 characters of base64url")
	}
	return Pin(b), nil
}

const (
	joinPrefix   = "capstan-join-v1."
	mostJoin     = 8 << 10
	mostAddress  = 16
	secretLength = 43 // 32 random bytes in base64url
)

// A JoinToken is all that an agent needs to enrol: the hub's addresses, the pin
// of its key, and a secret that can be used once.
type JoinToken struct {
	Addresses []string // host:port
	Pin       Pin
	Secret    Secret
}

// A Secret is a text that formatters and encoders never show.
type Secret string

// String hides the secret.
func (Secret) String() string { return "(secret)" }

// GoString hides it from %#v too.
func (Secret) GoString() string { return "(secret)" }

// MarshalText hides it from encoders, log handlers among them.
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// joinWire is the JSON inside a token.
type joinWire struct {
	Addresses []string `json:"addresses"`
	Pin       string   `json:"pin"`
	Secret    string   `json:"secret"`
}

// Encode is the text of the token. It contains the secret.
func (t JoinToken) Encode() (string, error) {
	if err := t.check(); err != nil {
		return "", err
	}
	b, err := json.Marshal(joinWire{Addresses: t.Addresses, Pin: t.Pin.String(), Secret: string(t.Secret)})
	if err != nil {
		return "", err
	}
	return joinPrefix + base64.RawURLEncoding.EncodeToString(b), nil
}

// ParseJoinToken reads what Encode wrote. White space around and inside it,
// as terminals add when they wrap lines, is ignored. No error repeats any
// part of the token.
func ParseJoinToken(text string) (JoinToken, error) {
	const fix = "copy the whole token again, or create a new one"
	text = strings.Join(strings.Fields(text), "")
	body, ok := strings.CutPrefix(text, joinPrefix)
	if !ok || len(text) > mostJoin {
		return JoinToken{}, fault.With(fault.New(fault.Invalid, "it does not start with %q, or is too long", joinPrefix), "join token", fix)
	}
	b, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		return JoinToken{}, fault.With(fault.New(fault.Invalid, "it is damaged"), "join token", fix)
	}
	var w joinWire
	if json.Unmarshal(b, &w) != nil {
		return JoinToken{}, fault.With(fault.New(fault.Invalid, "it is damaged"), "join token", fix)
	}
	pin, err := ParsePin(w.Pin)
	if err != nil {
		return JoinToken{}, fault.With(err, "join token", fix)
	}
	t := JoinToken{Addresses: w.Addresses, Pin: pin, Secret: Secret(w.Secret)}
	if err := t.check(); err != nil {
		return JoinToken{}, fault.With(err, "join token", fix)
	}
	return t, nil
}

func (t JoinToken) check() error {
	if len(t.Addresses) == 0 || len(t.Addresses) > mostAddress {
		return fault.New(fault.Invalid, "it names %d hub addresses; 1 to %d are allowed", len(t.Addresses), mostAddress)
	}
	for _, a := range t.Addresses {
		if err := CheckAddress(a); err != nil {
			return err
		}
	}
	if !ValidSecret(string(t.Secret)) {
		return fault.New(fault.Invalid, "its secret does not have %d characters of base64url", secretLength)
	}
	return nil
}

// CheckAddress reports whether an address is host:port.
func CheckAddress(a string) error {
	host, port, err := net.SplitHostPort(a)
	if err != nil || host == "" || port == "" || strings.ContainsAny(a, "/@ ") {
		return fault.New(fault.Invalid, "the hub address %q is not host:port", a)
	}
	return nil
}

// ValidSecret reports whether a text has the form of a token's secret.
func ValidSecret(s string) bool {
	b, err := base64.RawURLEncoding.DecodeString(s)
	return err == nil && len(b) == 32 && len(s) == secretLength
}
