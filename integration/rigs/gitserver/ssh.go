package gitserver

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// SSHOptions say how an SSH server for Git is run.
type SSHOptions struct {
	// Repositories is the folder with bare repositories. A relative path in
	// an address counts from there; so does the only program that clients may
	// run, git-upload-pack.
	Repositories string
	// HostKeys are the kinds of key that the server has: ed25519, ecdsa, rsa.
	// Empty: ed25519.
	HostKeys []string
}

// A SSH is a running OpenSSH server that serves repositories to whoever has
// one of the keys that NewKey makes. It runs as the user of this process.
type SSH struct {
	dir     *process.Scratch
	sshd    string
	options SSHOptions
	user    string
	port    int
	process *process.Process
}

// StartSSH starts a server. The caller must Stop it.
func StartSSH(ctx context.Context, o SSHOptions) (*SSH, error) {
	sshd, err := findSSHD()
	if err != nil {
		return nil, err
	}
	me, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("start the SSH server: %w", err)
	}
	dir, err := process.NewScratch("ssh", "")
	if err != nil {
		return nil, fmt.Errorf("prepare the SSH server: %w", err)
	}
	if len(o.HostKeys) == 0 {
		o.HostKeys = []string{"ed25519"}
	}
	s := &SSH{dir: dir, sshd: sshd, options: o, user: me.Username}
	if err := s.prepare(); err != nil {
		return nil, fmt.Errorf("prepare the SSH server: %w", errors.Join(err, s.Stop()))
	}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// findSSHD returns the full path, which sshd wants to be started under.
func findSSHD() (string, error) {
	for _, name := range []string{"sshd", "/usr/sbin/sshd", "/usr/local/sbin/sshd"} {
		if found, err := exec.LookPath(name); err == nil {
			return filepath.Abs(found)
		}
	}
	return "", errors.New("the program sshd is not there: install it, on Debian with: apt-get install openssh-server")
}

func (s *SSH) file(name string) string { return filepath.Join(s.dir.Path, name) }

// prepare writes what does not change over the life of the server.
func (s *SSH) prepare() error {
	if os.Getuid() == 0 { // where sshd locks its children up; a service would make it
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return err
		}
	}
	script := fmt.Sprintf(`#!/bin/sh
echo "$SSH_ORIGINAL_COMMAND" >>'%[1]s'
export GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null
cd '%[2]s' || exit 1
case "$SSH_ORIGINAL_COMMAND" in
git-upload-pack\ *) eval "exec $SSH_ORIGINAL_COMMAND" ;;
git-lfs-authenticate\ *\ download) [ -f '%[3]s' ] && exec cat '%[3]s' ;;
esac
echo 'only git-upload-pack is served' >&2
exit 1
`, s.file("calls"), s.options.Repositories, s.file("lfs"))
	if err := os.WriteFile(s.file("serve"), []byte(script), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.file("authorized_keys"), nil, 0o644); err != nil {
		return err
	}
	return s.ChangeHostKeys()
}

// ChangeHostKeys makes new host keys. A server that runs shows them once it
// was restarted.
func (s *SSH) ChangeHostKeys() error {
	for _, kind := range s.options.HostKeys {
		private, public, err := newSSHKey(kind)
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.file("host_"+kind), private, 0o600); err != nil {
			return err
		}
		if err := os.WriteFile(s.file("host_"+kind+".pub"), public, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// begin starts the program on a free port, or on the one that it had.
func (s *SSH) begin(ctx context.Context) error {
	for try := 1; ; try++ {
		if s.process == nil {
			port, err := process.FreePort()
			if err != nil {
				return err
			}
			s.port = port
		}
		if err := s.configure(ctx); err != nil {
			return err
		}
		p, err := process.Start(process.Command{
			Name: "sshd", Path: s.sshd, Args: []string{"-D", "-e", "-f", s.file("sshd_config")}, Log: s.file("sshd.log"), Orphan: syscall.SIGKILL,
		})
		if err != nil {
			return err
		}
		wait, cancel := context.WithTimeout(ctx, time.Minute)
		err = p.Ready(wait, s.greeted)
		cancel()
		if err == nil {
			s.process = p
			return nil
		}
		if stopped := p.Stop(syscall.SIGTERM, 5*time.Second); stopped != nil || try == 3 {
			return errors.Join(err, stopped)
		}
	}
}

// greeted asks for the greeting of the server, and for no more.
func (s *SSH) greeted(ctx context.Context) error {
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", s.Address())
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	var head [4]byte
	if _, err := conn.Read(head[:]); err != nil {
		return err
	}
	if string(head[:]) != "SSH-" {
		return fmt.Errorf("another server is at %s", s.Address())
	}
	return nil
}

func (s *SSH) configure(ctx context.Context) error {
	lines := []string{
		"ListenAddress 127.0.0.1:" + strconv.Itoa(s.port), "PidFile none", "UsePAM no", "StrictModes no", "UseDNS no",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password", "PubkeyAuthentication yes",
		"AuthorizedKeysFile " + s.file("authorized_keys"), "AllowAgentForwarding no", "AllowTcpForwarding no", "X11Forwarding no", "PrintMotd no",
		"ForceCommand " + s.file("serve"), "MaxStartups 200:30:400", "LogLevel VERBOSE",
	}
	for _, kind := range s.options.HostKeys {
		lines = append(lines, "HostKey "+s.file("host_"+kind))
	}
	// Newer servers punish addresses whose sign-in failed; older ones do not
	// know the word.
	for _, extra := range []string{"PerSourcePenalties no\n", ""} {
		if err := os.WriteFile(s.file("sshd_config"), []byte(strings.Join(lines, "\n")+"\n"+extra), 0o644); err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, s.sshd, "-t", "-f", s.file("sshd_config")).CombinedOutput()
		if err == nil {
			return nil
		}
		if extra == "" {
			return fmt.Errorf("sshd does not take its configuration: %w: %s", err, out)
		}
	}
	return nil
}

// Restart ends the server and starts it again at its address.
func (s *SSH) Restart(ctx context.Context) error {
	if err := s.process.Stop(syscall.SIGTERM, 5*time.Second); err != nil {
		return err
	}
	return s.begin(ctx)
}

// Halt ends the server; Restart starts it again.
func (s *SSH) Halt() error { return s.process.Stop(syscall.SIGTERM, 5*time.Second) }

// Stop ends the server and removes its folder. It may be called twice.
func (s *SSH) Stop() error {
	if s.dir == nil {
		return nil
	}
	var err error
	if s.process != nil {
		err = s.process.Stop(syscall.SIGTERM, 5*time.Second)
	}
	err = errors.Join(err, s.dir.Close())
	s.dir = nil
	return err
}

// Address is the host and the port of the server.
func (s *SSH) Address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// URL is the address of a repository below the folder, such as "team/shop.git".
func (s *SSH) URL(name string) string {
	return "ssh://" + s.user + "@" + s.Address() + filepath.Join(s.options.Repositories, name)
}

// RelativeURL is an address whose path counts from the folder, as that of the
// short form user@host:name does.
func (s *SSH) RelativeURL(name string) string {
	return "ssh://" + s.user + "@" + s.Address() + "/" + name
}

// KnownHosts are the lines by which the server is known.
func (s *SSH) KnownHosts() (string, error) {
	var lines []string
	for _, kind := range s.options.HostKeys {
		public, err := os.ReadFile(s.file("host_" + kind + ".pub"))
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("[127.0.0.1]:%d %s", s.port, public))
	}
	return strings.Join(lines, ""), nil
}

// NewKey makes a key of a kind (ed25519, ecdsa, rsa) that opens the server,
// and gives its private half.
func (s *SSH) NewKey(kind string) (string, error) {
	private, public, err := newSSHKey(kind)
	if err != nil {
		return "", err
	}
	f, err := os.OpenFile(s.file("authorized_keys"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return "", err
	}
	_, err = f.Write(public)
	return string(private), errors.Join(err, f.Close())
}

// AnswerLFS is what git-lfs-authenticate prints from now on, as published in the
// repository git-lfs under docs/api/server-discovery.md. Without it, the command
// is refused.
func (s *SSH) AnswerLFS(text string) error { return os.WriteFile(s.file("lfs"), []byte(text), 0o644) }

// CloseToAll takes every key its right.
func (s *SSH) CloseToAll() error { return os.Truncate(s.file("authorized_keys"), 0) }

// Calls are the commands that clients have run so far.
func (s *SSH) Calls() ([]string, error) {
	text, err := os.ReadFile(s.file("calls"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n"), err
}

// newSSHKey makes a pair in OpenSSH's formats.
func newSSHKey(kind string) (private, public []byte, err error) {
	var key crypto.Signer
	switch kind {
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	default:
		err = fmt.Errorf("%q is no kind of key", kind)
	}
	if err != nil {
		return nil, nil, err
	}
	block, err := ssh.MarshalPrivateKey(key, "harness")
	if err != nil {
		return nil, nil, err
	}
	half, err := ssh.NewPublicKey(key.Public())
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(block), ssh.MarshalAuthorizedKey(half), nil
}

// Repositories is the folder that holds the server's repositories, for a
// server of another protocol beside it.
func (g *Server) Repositories() string { return filepath.Join(g.dir.Path, "repositories") }
