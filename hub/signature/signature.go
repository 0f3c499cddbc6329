// Package signature verifies the OpenPGP signatures of commits and annotated
// tags of Git against public keys of a tenant. It is pure: it reads no
// repository and starts no program.
package signature

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
)

// A Outcome says what a signature is worth.
type Outcome string

// The outcomes. Each but Good is the part of a sentence that says what is
// wrong.
const (
	Good             Outcome = "it is signed"
	Unsigned         Outcome = "it is not signed"
	Bad              Outcome = "its signature does not fit its content"
	Malformed        Outcome = "its signature cannot be read"
	UnknownKey       Outcome = "the key of its signature is not among the public keys of this tenant"
	NotAllowed       Outcome = "the key of its signature is not allowed by the project"
	ExpiredKey       Outcome = "the key of its signature has expired"
	RevokedKey       Outcome = "the key of its signature is revoked"
	ExpiredSignature Outcome = "its signature has expired"
	OtherKind        Outcome = "its signature is of another kind than OpenPGP"
)

// A Result is what is known of one object.
type Result struct {
	Outcome Outcome
	KeyID   string // 16 hexadecimal digits of the key that signed; empty if unknown
	Signer  string // the first identity of the key
}

// A Signed is an object of Git taken apart.
type Signed struct {
	Payload   []byte // what is signed
	Signature []byte // armored; nil: there is none
	Twice     bool   // there are several signatures, of which Git itself would read one
}

const (
	pgpBegin   = "-----BEGIN PGP SIGNATURE-----"
	pgpOld     = "-----BEGIN PGP MESSAGE-----"
	sshBegin   = "-----BEGIN SSH SIGNATURE-----"
	x509Begin  = "-----BEGIN SIGNED MESSAGE-----"
	headSHA1   = "gpgsig "
	headSHA256 = "gpgsig-sha256 "

	maxSignature = 64 << 10 // bytes of a signature
)

// Commit takes a commit apart. The signature is a header, and what is signed is
// the commit without it.
func Commit(data []byte) Signed {
	var s Signed
	head, message, found := bytes.Cut(data, []byte("\n\n"))
	inOwn, inOther := false, false
	for line := range bytes.Lines(append(bytes.Clone(head), '\n')) {
		switch {
		case bytes.HasPrefix(line, []byte(" ")) && inOwn:
			s.Signature = append(s.Signature, line[1:]...)
			continue
		case bytes.HasPrefix(line, []byte(" ")) && inOther:
			continue
		}
		inOwn, inOther = bytes.HasPrefix(line, []byte(headSHA1)), bytes.HasPrefix(line, []byte(headSHA256))
		if inOwn {
			s.Twice = s.Twice || s.Signature != nil
			s.Signature = append(s.Signature, line[len(headSHA1):]...)
		}
		if !inOwn && !inOther {
			s.Payload = append(s.Payload, line...)
		}
	}
	if found {
		s.Payload = append(append(s.Payload, '\n'), message...)
	}
	return s
}

// Tag takes an annotated tag apart. The signature is the end of its message.
func Tag(data []byte) Signed {
	at := -1
	for _, begin := range []string{pgpBegin, pgpOld, sshBegin, x509Begin} {
		for from := 0; ; {
			i := bytes.Index(data[from:], []byte(begin))
			if i < 0 {
				break
			}
			i += from
			if i == 0 || data[i-1] == '\n' {
				at = max(at, i) // the last one, as in Git
			}
			from = i + 1
		}
	}
	if at < 0 {
		return Signed{Payload: data}
	}
	return Signed{Payload: data[:at], Signature: data[at:]}
}

// A Keyring holds the public keys of a tenant. It never changes; many
// goroutines may use it.
type Keyring struct {
	entities openpgp.EntityList
}

// NewKeyring makes a keyring of texts as ParseKeys accepts them. What cannot be
// read counts as no key: nothing is trusted because of it.
func NewKeyring(texts []string) *Keyring {
	k := &Keyring{}
	for _, text := range texts {
		keys, err := read(text)
		if err != nil {
			continue
		}
		k.entities = append(k.entities, keys...)
	}
	return k
}

// Until is how long an outcome stays as it is: the next time at which a key
// expires that has not expired by then; zero: always.
func (k *Keyring) Until(now time.Time) time.Time {
	var next time.Time
	earlier := func(at time.Time) {
		if at.After(now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	for _, e := range k.entities {
		earlier(expiry(e))
		for _, sub := range e.Subkeys {
			earlier(lifetime(sub.PublicKey, sub.Sig))
		}
	}
	return next
}

// Verify judges a signed object at a time. Allowed are ids or fingerprints in
// upper-case digits; an id may be that of the primary key or of the subkey that
// signed.
func (k *Keyring) Verify(s Signed, allowed []string, now time.Time) Result {
	switch {
	case len(s.Signature) == 0:
		return Result{Outcome: Unsigned}
	case s.Twice:
		return Result{Outcome: Malformed}
	case bytes.HasPrefix(s.Signature, []byte(sshBegin)), bytes.HasPrefix(s.Signature, []byte(x509Begin)):
		return Result{Outcome: OtherKind}
	}
	block, err := armor.Decode(bytes.NewReader(s.Signature))
	if err != nil || block.Type != openpgp.SignatureType && block.Type != "PGP MESSAGE" {
		return Result{Outcome: Malformed}
	}
	body, err := io.ReadAll(io.LimitReader(block.Body, maxSignature))
	if err != nil {
		return Result{Outcome: Malformed}
	}
	var out Result
	first, err := packet.NewReader(bytes.NewReader(body)).Next()
	claimed, is := first.(*packet.Signature)
	if err != nil || !is || claimed.IssuerKeyId == nil {
		return Result{Outcome: Malformed}
	}
	out.KeyID = fmt.Sprintf("%016X", *claimed.IssuerKeyId) // of the first signature, unless a key fits another
	config := &packet.Config{Time: func() time.Time { return now }}
	sig, entity, err := openpgp.VerifyDetachedSignature(k.entities, bytes.NewReader(s.Payload), bytes.NewReader(body), config)
	out.Outcome = outcomeOf(err)
	if entity == nil {
		return out
	}
	out.KeyID = fmt.Sprintf("%016X", *sig.IssuerKeyId)
	out.Signer = owner(entity)
	if out.Outcome == Good && !signedBy(entity, *sig.IssuerKeyId, allowed) {
		out.Outcome = NotAllowed
	}
	return out
}

func outcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Good
	case errors.Is(err, pgperrors.ErrUnknownIssuer):
		return UnknownKey
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return ExpiredKey
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return RevokedKey
	case errors.Is(err, pgperrors.ErrSignatureExpired):
		return ExpiredSignature
	}
	var structure pgperrors.StructuralError
	if errors.As(err, &structure) {
		return Malformed
	}
	return Bad
}

// signedBy reports whether a key, or the subkey of it that signed, is among the
// allowed ones.
func signedBy(e *openpgp.Entity, issuer uint64, allowed []string) bool {
	names := namesOf(e.PrimaryKey)
	for _, sub := range e.Subkeys {
		if sub.PublicKey.KeyId == issuer {
			names = append(names, namesOf(sub.PublicKey)...)
		}
	}
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(allowed, n) })
}

func namesOf(k *packet.PublicKey) []string {
	return []string{fmt.Sprintf("%016X", k.KeyId), fmt.Sprintf("%X", k.Fingerprint)}
}

func owner(e *openpgp.Entity) string {
	if _, id := e.PrimarySelfSignature(); id != nil {
		return cut(id.Name)
	}
	return ""
}

// cut shortens what a stranger may have written.
func cut(s string) string {
	s = strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, s), "")
	if len(s) > 200 {
		return strings.ToValidUTF8(s[:200], "") + "…"
	}
	return s
}
