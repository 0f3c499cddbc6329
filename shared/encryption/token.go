package encryption

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/capstan-cd/capstan/shared/fault"
)

// tokenIV is how many bytes of a token authenticate it.
const tokenIV = aes.BlockSize

// SealToken encrypts a short text so that the same text returns the same bytes:
// positions in a sequence that clients compare and send back, but cannot read.
// It is AES-256 in counter mode with a synthetic IV, the HMAC-SHA-256 of the
// text.
func SealToken(key [KeySize]byte, plain []byte) ([]byte, error) {
	out := append(tokenMAC(key, plain), plain...)
	return out, crypt(key, out)
}

// OpenToken undoes SealToken. Any other text is fault.Invalid.
func OpenToken(key [KeySize]byte, sealed []byte) ([]byte, error) {
	if len(sealed) < tokenIV {
		return nil, errToken()
	}
	out := append([]byte(nil), sealed...)
	if err := crypt(key, out); err != nil {
		return nil, err
	}
	if !hmac.Equal(out[:tokenIV], tokenMAC(key, out[tokenIV:])) {
		return nil, errToken()
	}
	return out[tokenIV:], nil
}

func errToken() error {
	return fault.New(fault.Invalid, "a token cannot be decrypted: it was changed, or encrypted with another key")
}

func tokenMAC(key [KeySize]byte, plain []byte) []byte {
	mac := Derive(key, "token authentication")
	m := hmac.New(sha256.New, mac[:])
	m.Write(plain)
	return m.Sum(nil)[:tokenIV]
}

// crypt encrypts or decrypts the bytes after the IV, in place.
func crypt(key [KeySize]byte, token []byte) error {
	k := Derive(key, "token encryption")
	block, err := aes.NewCipher(k[:])
	if err != nil {
		return fmt.Errorf("prepare cipher: %w", err)
	}
	cipher.NewCTR(block, token[:tokenIV]).XORKeyStream(token[tokenIV:], token[tokenIV:])
	return nil
}
