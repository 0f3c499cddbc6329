package signature

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"

	"github.com/capstan-cd/capstan/shared/fault"
)

// A Key is a public key as people see it (CRED-19).
type Key struct {
	ID          string // 16 hexadecimal digits
	Fingerprint string
	Owner       string
	Algorithm   string    // such as rsa4096 or ed25519
	CreatedAt   time.Time // of the key
	ExpiresAt   time.Time // zero: never
	Revoked     bool
	Text        string // armored, the public part alone
}

// Limits of what is read.
const (
	MaxKeyText = 1 << 20 // bytes of one text
	maxKeys    = 100     // in one text
)

// ParseKeys reads public keys, armored or binary. A private key is refused. The
// error says what is wrong with the text, and shows nothing of it.
func ParseKeys(text string) ([]Key, error) {
	entities, err := read(text)
	if err != nil {
		return nil, err
	}
	keys := make([]Key, 0, len(entities))
	for _, e := range entities {
		armored, err := armored(e)
		if err != nil {
			return nil, err
		}
		keys = append(keys, Key{
			ID: fmt.Sprintf("%016X", e.PrimaryKey.KeyId), Fingerprint: fmt.Sprintf("%X", e.PrimaryKey.Fingerprint), Owner: owner(e),
			Algorithm: algorithm(e.PrimaryKey), CreatedAt: e.PrimaryKey.CreationTime.UTC(), ExpiresAt: expiry(e), Revoked: e.Revoked(time.Now()), Text: armored,
		})
	}
	return keys, nil
}

func read(text string) (openpgp.EntityList, error) {
	const fix = "give the output of `gpg --armor --export KEY`"
	if len(text) > MaxKeyText {
		return nil, fault.New(fault.Exceeded, "it has %d bytes, more than %d", len(text), MaxKeyText)
	}
	var entities openpgp.EntityList
	var err error
	if strings.Contains(text, "-----BEGIN PGP") {
		if strings.Contains(text, "-----BEGIN PGP PRIVATE KEY BLOCK-----") {
			return nil, fault.With(fault.New(fault.Invalid, "it is a private key"), "", fix+"; treat the private key as published and replace it")
		}
		entities, err = readArmored(dedented(text))
	} else {
		entities, err = openpgp.ReadKeyRing(strings.NewReader(text))
	}
	switch {
	case err != nil:
		return nil, fault.With(fault.New(fault.Invalid, "it is no OpenPGP public key"), "", fix)
	case len(entities) == 0:
		return nil, fault.With(fault.New(fault.Invalid, "there is no public key in it"), "", fix)
	case len(entities) > maxKeys:
		return nil, fault.New(fault.Exceeded, "it has %d keys, more than %d", len(entities), maxKeys)
	}
	for _, e := range entities {
		if e.PrivateKey != nil {
			return nil, fault.With(fault.New(fault.Invalid, "it is a private key"), "", fix+"; treat the private key as published and replace it")
		}
	}
	return entities, nil
}

// readArmored reads all blocks of a text.
func readArmored(text string) (openpgp.EntityList, error) {
	const begin = "-----BEGIN PGP"
	var all openpgp.EntityList
	for rest := text[strings.Index(text, begin):]; rest != ""; {
		block := rest
		if next := strings.Index(rest[len(begin):], begin); next >= 0 {
			block, rest = rest[:len(begin)+next], rest[len(begin)+next:]
		} else {
			rest = ""
		}
		keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(block))
		if err != nil {
			return nil, err
		}
		all = append(all, keys...)
	}
	return all, nil
}

// dedented removes spaces before lines, as texts in YAML have them.
func dedented(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimLeft(line, " \t"))
	}
	return b.String()
}

func armored(e *openpgp.Entity) (string, error) {
	var b bytes.Buffer
	w, err := armor.Encode(&b, openpgp.PublicKeyType, nil)
	if err == nil {
		err = e.Serialize(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		_, err = io.WriteString(&b, "\n")
	}
	if err != nil {
		return "", fault.New(fault.Invalid, "its key has a form that is not supported")
	}
	return b.String(), nil
}

// expiry is when the primary key expires; zero: never.
func expiry(e *openpgp.Entity) time.Time {
	sig, _ := e.PrimarySelfSignature()
	return lifetime(e.PrimaryKey, sig)
}

func lifetime(k *packet.PublicKey, sig *packet.Signature) time.Time {
	if sig == nil || sig.KeyLifetimeSecs == nil || *sig.KeyLifetimeSecs == 0 {
		return time.Time{}
	}
	return k.CreationTime.Add(time.Duration(*sig.KeyLifetimeSecs) * time.Second).UTC()
}

func algorithm(k *packet.PublicKey) string {
	name := map[packet.PublicKeyAlgorithm]string{
		packet.PubKeyAlgoRSA: "rsa", packet.PubKeyAlgoRSASignOnly: "rsa", packet.PubKeyAlgoDSA: "dsa", packet.PubKeyAlgoECDSA: "ecdsa",
		packet.PubKeyAlgoEdDSA: "ed25519", packet.PubKeyAlgoEd25519: "ed25519", packet.PubKeyAlgoEd448: "ed448",
	}[k.PubKeyAlgo]
	if name == "rsa" || name == "dsa" {
		if bits, err := k.BitLength(); err == nil {
			return fmt.Sprintf("%s%d", name, bits)
		}
	}
	if name == "" {
		return fmt.Sprintf("algorithm %d", k.PubKeyAlgo)
	}
	return name
}
