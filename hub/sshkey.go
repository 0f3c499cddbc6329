package hub

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"errors"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	maxSSHKey     = 64 << 10
	minSSHKeyBits = 2048 // of RSA
)

// NormalizeSSHKey checks a private key for SSH and returns it with the line
// ends that every parser accepts. Keys of type ed25519, ECDSA and RSA in the
// formats of OpenSSH and PEM are valid. The error is fault.Invalid, says what
// kind of text it is instead, and repeats nothing of it.
func NormalizeSSHKey(text string) (string, error) {
	text = strings.TrimSpace(strings.ReplaceAll(text, "\r\n", "\n")) + "\n"
	_, err := SSHSigner(text)
	return text, err
}

// SSHSigner reads a private key. Errors are those of NormalizeSSHKey.
func SSHSigner(text string) (ssh.Signer, error) {
	if len(text) > maxSSHKey {
		return nil, sshKeyFault("it has more than 64 KiB", "")
	}
	raw, err := ssh.ParseRawPrivateKey([]byte(text))
	var locked *ssh.PassphraseMissingError
	head := strings.TrimSpace(text)
	switch {
	case errors.As(err, &locked):
		return nil, sshKeyFault("it is encrypted with a passphrase", "take the passphrase off a copy of it with: ssh-keygen -p -N '' -f COPY; the hub encrypts what it stores")
	case err == nil:
	case head == "":
		return nil, sshKeyFault("it is empty", "")
	case strings.HasPrefix(head, "PuTTY-User-Key-File"):
		return nil, sshKeyFault("it is in PuTTY's format", "convert it with: puttygen KEY.ppk -O private-openssh -o KEY")
	case strings.HasPrefix(head, "ssh-"), strings.HasPrefix(head, "ecdsa-"), strings.Contains(head, "PUBLIC KEY"):
		return nil, sshKeyFault("it is a public key", "give the file without the ending .pub")
	default:
		return nil, sshKeyFault("it cannot be read", "")
	}
	if err := checkSSHKey(raw); err != nil {
		return nil, err
	}
	if p, ok := raw.(*ed25519.PrivateKey); ok {
		raw = *p
	}
	signer, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		return nil, sshKeyFault("it cannot be used for SSH", "")
	}
	return signer, nil
}

func checkSSHKey(raw crypto.PrivateKey) error {
	switch k := raw.(type) {
	case *ed25519.PrivateKey, ed25519.PrivateKey, *ecdsa.PrivateKey:
		return nil
	case *rsa.PrivateKey:
		if k.N.BitLen() < minSSHKeyBits {
			return sshKeyFault("it is an RSA key of fewer than 2048 bits", "make a new one with: ssh-keygen -t ed25519")
		}
		return nil
	}
	return sshKeyFault("keys of its type are not served", "make a new one with: ssh-keygen -t ed25519")
}

func sshKeyFault(cause, fix string) error {
	if fix == "" {
		fix = "give the private key as ssh-keygen writes it, from the line with BEGIN to the line with END"
	}
	return fault.With(fault.New(fault.Invalid, "the SSH private key is not usable: %s", cause), "", fix)
}
