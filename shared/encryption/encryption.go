// Package encryption encrypts and decrypts rendered objects and credentials,
// which are secret where they are stored or transferred, and computes their
// keyed digests. It stores and prints no key, and does no I/O. Hub and agent
// call it. Open returns exactly what was encrypted under the same key and
// associated data, or an error. Encrypting the same text twice returns
// different bytes.
package encryption

import (
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/crypto/chacha20poly1305"

	"github.com/capstan-cd/capstan/shared/fault"
)

// KeySize is the length of every key in bytes.
const KeySize = 32

// The purposes that keys are derived for from a tenant's data key.
const (
	ObjectKey     = "capstan object key v1"     // encrypts the objects of snapshots; agents of the tenant have it
	CredentialKey = "capstan credential key v1" // encrypts repository credentials; never leaves the hub
	FeedKey       = "capstan feed key v1"       // encrypts positions in the tenant's feed; never leaves the hub
	SnapshotKey   = "capstan snapshot key v1"   // authenticates stored snapshots; never leaves the hub
)

// A Key is 32 secret bytes. No formatter, logger or encoder prints it.
type Key [KeySize]byte

// NewKey draws a random key.
func NewKey() (Key, error) {
	var k Key
	if _, err := rand.Read(k[:]); err != nil {
		return Key{}, fmt.Errorf("generate a key: %w", err)
	}
	return k, nil
}

// KeyFrom makes a key of bytes that must be exactly KeySize long.
func KeyFrom(b []byte) (Key, error) {
	if len(b) != KeySize {
		return Key{}, fault.New(fault.Invalid, "a key has %d bytes, not %d", KeySize, len(b))
	}
	return Key(b), nil
}

// Format hides the key from every verb of package fmt.
func (Key) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("(key)")) }

// MarshalText fails: a key is only stored encrypted.
func (Key) MarshalText() ([]byte, error) { return nil, errors.New("a key is never encoded") }

// MarshalJSON fails for the same reason.
func (Key) MarshalJSON() ([]byte, error) { return nil, errors.New("a key is never encoded") }

// Derive derives the key for one purpose. Keys of different purposes reveal
// nothing about each other. It is HKDF-SHA-256 without salt (RFC 5869), written
// out because one block of output needs no loop and no error.
func Derive(from [KeySize]byte, purpose string) Key {
	extract := hmac.New(sha256.New, make([]byte, sha256.Size))
	extract.Write(from[:])
	expand := hmac.New(sha256.New, extract.Sum(nil))
	expand.Write([]byte(purpose))
	expand.Write([]byte{1})
	return Key(expand.Sum(nil))
}

// Digest is the keyed digest of a canonical text: HMAC-SHA-256. Without the key
// a guess cannot be verified.
func Digest(key [KeySize]byte, canonical []byte) [32]byte {
	m := hmac.New(sha256.New, key[:])
	m.Write(canonical)
	return [32]byte(m.Sum(nil))
}

// Seal encrypts plain under key and binds it to ad, which must be passed again
// to open it. The result is a fresh 24-byte nonce followed by the ciphertext of
// XChaCha20-Poly1305.
func Seal(key [KeySize]byte, ad, plain []byte) ([]byte, error) {
	box, err := aead(key)
	if err != nil {
		return nil, err
	}
	out := make([]byte, chacha20poly1305.NonceSizeX, chacha20poly1305.NonceSizeX+len(plain)+box.Overhead())
	if _, err := rand.Read(out); err != nil {
		return nil, fmt.Errorf("generate a nonce: %w", err)
	}
	return box.Seal(out, out, plain, ad), nil
}

// Open undoes Seal. Another key, other associated data or changed bytes result
// in fault.Invalid, without any of the content.
func Open(key [KeySize]byte, ad, sealed []byte) ([]byte, error) {
	box, err := aead(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < chacha20poly1305.NonceSizeX+box.Overhead() {
		return nil, fault.New(fault.Invalid, "an encrypted text has at least %d bytes, this one has %d",
			chacha20poly1305.NonceSizeX+box.Overhead(), len(sealed))
	}
	plain, err := box.Open(nil, sealed[:chacha20poly1305.NonceSizeX], sealed[chacha20poly1305.NonceSizeX:], ad)
	if err != nil {
		return nil, fault.New(fault.Invalid, "an encrypted text cannot be decrypted: it was changed, or encrypted with another key or associated data")
	}
	return plain, nil
}

func aead(key [KeySize]byte) (cipher.AEAD, error) {
	box, err := chacha20poly1305.NewX(key[:])
	if err != nil {
		return nil, fmt.Errorf("prepare cipher: %w", err)
	}
	return box, nil
}
