package git

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	sshPort     = "22"
	sshUser     = "git"
	relativeWay = "~" // a spelling of a path: below the home of the user
	goodbye     = time.Second
	sshClient   = "SSH-2.0-Capstan"
)

// A hostKeysFunc returns the keys of SSH servers that the tenant has stored.
type hostKeysFunc func(ctx context.Context) ([]hub.HostKey, error)

// sshTarget is one repository behind an SSH server.
type sshTarget struct {
	host, port string
	user       string
	path       string
	key        string // private, may be empty
	insecure   bool
}

// sshTargetOf reads the address of a repository. The spelling is the form of
// the path for the server. Hosts distinguish "/path" from "path" below the
// user's home; the short form host:path can mean either.
func sshTargetOf(u *url.URL, spelling string, repo hub.Repository, cred hub.Credential) (sshTarget, error) {
	host := u.Hostname()
	if strings.ContainsFunc(host, notInHostName) || strings.HasPrefix(host, "-") {
		return sshTarget{}, fault.With(fault.New(fault.Invalid, "its host name has invalid characters"), "", "check the repository URL")
	}
	if cred.SSHPrivateKey == "" && (cred.Password != "" || cred.BearerToken != "") {
		return sshTarget{}, fault.With(fault.New(fault.Invalid, "a password or token opens no repository over SSH"), "", "set an SSH private key, or use its https:// URL")
	}
	t := sshTarget{host: host, port: first(u.Port(), sshPort), user: first(repo.Username, cred.Username, sshUser), key: cred.SSHPrivateKey, insecure: repo.Insecure}
	path, relative := strings.CutPrefix(spelling, relativeWay)
	t.path = u.Path + path
	if relative || strings.HasPrefix(t.path, "/~") {
		t.path = strings.TrimLeft(t.path, "/")
	}
	if t.path == "" || t.path == "/" || strings.HasPrefix(t.path, "-") {
		return sshTarget{}, fault.With(fault.New(fault.Invalid, "its path names no repository"), "", "check the repository URL")
	}
	return t, nil
}

func first(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

func notInHostName(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '.' && r != '-' && r != '_' && r != ':'
}

// name is how known_hosts names the server.
func (t sshTarget) name() string { return hub.HostKeyName(t.host, t.port) }

// command starts git's own program. The path is quoted as one word, because the
// server may run a shell.
func (t sshTarget) command() string {
	return "git-upload-pack " + quoted(t.path)
}

// quoted is a path as a word for the shell of a server.
func quoted(path string) string {
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'"
}

// An sshConn is one connection to an SSH server.
type sshConn struct {
	raw    net.Conn
	client *ssh.Client
}

// connect dials behind the guard, checks the server's key and signs in. All of
// it ends with ctx, whatever the server does.
func (r *remote) connect(ctx context.Context, t sshTarget) (*sshConn, error) {
	x := exchangeOf(ctx)
	var known []hub.HostKey
	if !t.insecure {
		own, err := r.hostKeys(ctx)
		if err != nil {
			return nil, fmt.Errorf("read host keys: %w", err)
		}
		known = hub.HostKeysOf(own, t.name())
	}
	auth, err := t.auth()
	if err != nil {
		return nil, x.setError(err)
	}
	raw, err := r.dialer.DialContext(ctx, "tcp", net.JoinHostPort(t.host, t.port))
	if err != nil {
		return nil, x.setError(err)
	}
	c := &sshConn{raw: raw}
	defer c.bind(ctx)()
	conn, chans, reqs, err := ssh.NewClientConn(raw, t.name(), &ssh.ClientConfig{
		User: t.user, Auth: auth, ClientVersion: sshClient,
		HostKeyAlgorithms: hostKeyAlgorithms(known),
		HostKeyCallback: func(_ string, _ net.Addr, key ssh.PublicKey) error {
			if t.insecure {
				return nil
			}
			if err := checkHostKey(t, known, key); err != nil {
				return x.setError(err)
			}
			return nil
		},
	})
	if err != nil {
		_ = raw.Close() // the handshake's error counts
		return nil, x.setError(handshakeError(t, err))
	}
	c.client = ssh.NewClient(conn, chans, reqs)
	return c, nil
}

// bind cuts the connection when ctx ends; the result ends the bond.
func (c *sshConn) bind(ctx context.Context) (release func()) {
	x := exchangeOf(ctx)
	stop := context.AfterFunc(ctx, func() {
		_ = x.setError(context.Cause(ctx))
		_ = c.raw.Close()
	})
	return func() { stop() }
}

// close ends the connection in any case, and within a moment.
func (c *sshConn) close() error {
	_ = c.raw.SetDeadline(time.Now().Add(goodbye))
	err := c.client.Close()
	_ = c.client.Wait() // until its goroutines are gone; the error is that of the end
	if err != nil && !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
		return fmt.Errorf("close connection: %w", err)
	}
	return nil
}

func (t sshTarget) auth() ([]ssh.AuthMethod, error) {
	if t.key == "" {
		return nil, nil
	}
	signer, err := hub.SSHSigner(t.key)
	if err != nil {
		return nil, err
	}
	return []ssh.AuthMethod{ssh.PublicKeys(signer)}, nil
}

// hostKeyAlgorithms puts those first of which a key is known, so that a
// server with several keys shows that one.
func hostKeyAlgorithms(known []hub.HostKey) []string {
	all := []string{
		ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256,
	}
	rank := func(algorithm string) int {
		kind := algorithm
		if strings.HasPrefix(algorithm, "rsa-") {
			kind = ssh.KeyAlgoRSA
		}
		if slices.ContainsFunc(known, func(k hub.HostKey) bool { return k.Type == kind }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b string) int { return rank(a) - rank(b) })
	return all
}

// A hostKeyError means that a server did not prove its identity.
type hostKeyError struct {
	target sshTarget
	known  []hub.HostKey // none: the server is a stranger
	shown  hub.HostKey
}

func (e hostKeyError) Error() string {
	if len(e.known) == 0 {
		return "the host key is not known: " + e.shown.Type + " " + e.shown.Fingerprint()
	}
	return "the host key is another one than is known: " + e.shown.Type + " " + e.shown.Fingerprint()
}

// Is makes a source.ErrImpostor of it.
func (hostKeyError) Is(target error) bool { return target == source.ErrImpostor }

// remedy is the command that would trust the server.
func (e hostKeyError) remedy() string {
	kind := strings.TrimPrefix(e.shown.Type, "ssh-")
	if strings.HasPrefix(kind, "ecdsa-") {
		kind = "ecdsa"
	}
	scan := "ssh-keyscan -t " + kind
	if e.target.port != sshPort {
		scan += " -p " + e.target.port
	}
	add := " | capstan cert add-ssh --batch --fingerprint " + e.shown.Fingerprint()
	if len(e.known) > 0 {
		add += " --upsert"
	}
	return scan + " " + e.target.host + add
}

// checkHostKey compares the key that a server shows with the known ones.
func checkHostKey(t sshTarget, known []hub.HostKey, key ssh.PublicKey) error {
	shown := hub.HostKey{Host: t.name(), Type: key.Type(), Key: base64.StdEncoding.EncodeToString(key.Marshal())}
	for _, k := range known {
		if k.Type == shown.Type && k.Key == shown.Key {
			return nil
		}
	}
	return hostKeyError{t, known, shown}
}
