package git

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/capstan-cd/capstan/shared/fault"
)

var (
	errSSHRefused = errors.New("the server refuses the key")
	errSSHKeyless = errors.New("the server requires a key")
	errNotSSH     = errors.New("the answer is not one of an SSH server")
)

// handshakeError converts untyped errors of a handshake to typed ones.
func handshakeError(t sshTarget, err error) error {
	text := err.Error()
	switch {
	case strings.Contains(text, "unable to authenticate") && t.key == "":
		return fmt.Errorf("%w: %w", errSSHKeyless, err)
	case strings.Contains(text, "unable to authenticate"):
		return fmt.Errorf("%w: %w", errSSHRefused, err)
	case strings.Contains(text, "version string"), strings.Contains(text, "max packet length"), strings.Contains(text, "invalid packet length"):
		return fmt.Errorf("%w: %w", errNotSSH, err)
	}
	return err
}

func (f failure) bySSH() error {
	var host hostKeyError
	var algorithms *ssh.AlgorithmNegotiationError
	switch {
	case errors.As(f.err, &host) && len(host.known) == 0:
		return f.errorf(fault.Invalid, "compare the fingerprint with the one that the operator of the Git server publishes; if they are equal, run: "+host.remedy(),
			"its server is not known: it shows the host key %s of type %s", host.shown.Fingerprint(), host.shown.Type)
	case errors.As(f.err, &host):
		known := host.known[0]
		for _, k := range host.known {
			if k.Type == host.shown.Type {
				known = k
			}
		}
		return f.errorf(fault.Invalid, "ask the operator of the Git server whether its key was changed; if it was, and the fingerprint is the new one, run: "+host.remedy(),
			"THE HOST KEY OF ITS SERVER HAS CHANGED, somebody may be listening in: known is %s of type %s, and it shows %s of type %s",
			known.Fingerprint(), known.Type, host.shown.Fingerprint(), host.shown.Type)
	case errors.Is(f.err, errSSHKeyless):
		return f.errorf(fault.Invalid, "add an SSH private key to the repository", "the Git server requires a key and none is stored")
	case errors.Is(f.err, errSSHRefused):
		return f.errorf(fault.Invalid, "give the public half of the key the right to read the repository, and check the user name in its URL", "the Git server does not accept the SSH key")
	case errors.Is(f.err, errNoUploadPack):
		return f.errorf(fault.Invalid, "check the repository URL: it should be the one that git clone takes", "its SSH server lets the hub in, but does not serve Git repositories")
	case errors.Is(f.err, errNotSSH):
		return f.errorf(fault.Invalid, "check host and port in the repository URL", "its host does not speak SSH at this port")
	case errors.As(f.err, &algorithms):
		return f.errorf(fault.Invalid, "update the SSH server", "its SSH server knows none of the algorithms that the hub takes")
	}
	return nil
}
