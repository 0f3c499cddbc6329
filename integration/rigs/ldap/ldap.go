// Package ldap runs a real LDAP directory, OpenLDAP's slapd, with the people
// and groups that a test gives it. It listens on loopback, in clear text and
// with TLS. It finds the program on this machine and never touches a directory
// that the machine runs itself.
package ldap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	goldap "github.com/go-ldap/ldap/v3"

	"github.com/capstan-cd/capstan/integration/rigs/pki"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

// What each directory has.
const (
	BaseDN     = "dc=example,dc=com"
	AdminDN    = "cn=admin," + BaseDN // may change everything
	AdminPW    = "admin-password"
	ReaderDN   = "cn=reader," + BaseDN // may read everything but passwords
	ReaderPW   = "reader-password"
	startLimit = time.Minute
	stopGrace  = 10 * time.Second
)

// head is what precedes the entries of a test.
const head = `dn: ` + BaseDN + `
objectClass: dcObject
objectClass: organization
o: Example
dc: example

dn: ` + ReaderDN + `
objectClass: applicationProcess
objectClass: simpleSecurityObject
cn: reader
userPassword: ` + ReaderPW + `

`

// settings is slapd.conf. Anonymous clients may only prove who they are.
const settings = `
include %[1]s/core.schema
include %[1]s/cosine.schema
include %[1]s/inetorgperson.schema
include %[1]s/nis.schema
modulepath /usr/lib/ldap
moduleload back_mdb
pidfile %[2]s/slapd.pid
argsfile %[2]s/slapd.args
TLSCACertificateFile %[3]s
TLSCertificateFile %[4]s
TLSCertificateKeyFile %[5]s
database mdb
suffix "` + BaseDN + `"
rootdn "` + AdminDN + `"
rootpw ` + AdminPW + `
directory %[2]s/data
maxsize 67108864
access to attrs=userPassword by anonymous auth by * none
access to * by dn.exact="` + ReaderDN + `" read by * none
limits dn.exact="` + ReaderDN + `" size=1000 size.prtotal=unlimited
`

// A Server is a running directory.
type Server struct {
	Plain string // host:port without TLS, and with StartTLS
	TLS   string // host:port with TLS
	CA    []byte // the authority of its certificate in PEM

	dir     *process.Scratch
	process *process.Process
}

// New starts a directory with entries in LDIF for one test.
func New(tb testing.TB, entries string) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	s, err := Start(ctx, entries)
	if err != nil {
		tb.Fatalf("start slapd: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("stop slapd: %v", err)
		}
	})
	return s
}

// Start starts a directory with entries in LDIF. The caller must Stop it.
func Start(ctx context.Context, entries string) (*Server, error) {
	binary, err := find()
	if err != nil {
		return nil, err
	}
	dir, err := process.NewScratch("ldap", "")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	if err := s.prepare(ctx, binary, entries); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	for range process.PortAttempts {
		if err = s.run(ctx, binary); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, s.Stop())
}

// find returns the path of slapd.
func find() (string, error) {
	for _, dir := range append(filepath.SplitList(os.Getenv("PATH")), "/usr/sbin", "/usr/local/sbin", "/usr/lib/openldap") {
		path := filepath.Join(dir, "slapd")
		if info, err := os.Stat(path); err == nil && !info.IsDir() {
			return path, nil
		}
	}
	return "", errors.New("slapd is not there; integration/packages slapd installs it")
}

// schemas is the folder of the schemas that come with slapd.
func schemas() (string, error) {
	for _, dir := range []string{"/etc/ldap/schema", "/etc/openldap/schema"} {
		if _, err := os.Stat(filepath.Join(dir, "core.schema")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("the schemas of slapd are not there; integration/packages slapd installs them")
}

// prepare writes configuration, certificates and entries.
func (s *Server) prepare(ctx context.Context, binary, entries string) error {
	schema, err := schemas()
	if err != nil {
		return err
	}
	authority, err := pki.Open(s.dir.Path)
	if err != nil {
		return err
	}
	s.CA = authority.PEM
	pair, err := authority.Server("ldap")
	if err != nil {
		return err
	}
	cert, key, err := pair.Write(s.dir.Path, "ldap")
	if err != nil {
		return err
	}
	if err := os.Mkdir(s.path("data"), 0o700); err != nil {
		return err
	}
	text := fmt.Sprintf(settings, schema, s.dir.Path, s.path("ca.crt"), cert, key)
	if err := os.WriteFile(s.path("slapd.conf"), []byte(text), 0o600); err != nil {
		return err
	}
	load := exec.CommandContext(ctx, binary, "-f", s.path("slapd.conf"))
	load.Args[0] = "slapadd" // the program loads entries under this name
	load.Stdin = strings.NewReader(head + strings.TrimLeft(entries, "\n"))
	if out, err := load.CombinedOutput(); err != nil {
		return fmt.Errorf("load the entries: %w: %s", err, out)
	}
	return nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir.Path, name) }

func (s *Server) run(ctx context.Context, binary string) error {
	plain, err := process.FreePort()
	if err != nil {
		return err
	}
	secure, err := process.FreePort()
	if err != nil {
		return err
	}
	s.Plain, s.TLS = fmt.Sprintf("127.0.0.1:%d", plain), fmt.Sprintf("127.0.0.1:%d", secure)
	s.process, err = process.Start(process.Command{
		Name: "slapd", Path: binary, Log: s.path("slapd.log"), Orphan: syscall.SIGKILL,
		// -d keeps it in the foreground.
		Args: []string{"-d", "0", "-f", s.path("slapd.conf"), "-h", fmt.Sprintf("ldap://%s/ ldaps://%s/", s.Plain, s.TLS)},
	})
	if err != nil {
		return err
	}
	return s.process.Ready(ctx, func(ctx context.Context) error {
		for _, address := range []string{s.Plain, s.TLS} {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			if err != nil {
				return err
			}
			_ = c.Close()
		}
		return nil
	})
}

// Change runs a function with a connection that may change everything.
func (s *Server) Change(change func(*goldap.Conn) error) error {
	c, err := goldap.DialURL("ldap://" + s.Plain)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.Bind(AdminDN, AdminPW); err != nil {
		return err
	}
	return change(c)
}

// Pause stops the directory from answering until the returned function is
// called; connections to it still open.
func (s *Server) Pause() (resume func() error, err error) {
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	return func() error { return s.process.Signal(syscall.SIGCONT) }, nil
}

// Stop ends the directory and removes its files.
func (s *Server) Stop() error {
	var err error
	if s.process != nil {
		err = s.process.Stop(syscall.SIGTERM, stopGrace)
	}
	return errors.Join(err, s.dir.Close())
}
