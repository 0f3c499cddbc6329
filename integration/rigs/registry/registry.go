// Package registry runs a real OCI registry, that of the Distribution project,
// on loopback: with or without TLS and a password. It is built from source once,
// into the user's cache.
package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/capstan-cd/capstan/hub/source/charts/chartstest"
	"github.com/capstan-cd/capstan/integration/rigs/build"
	"github.com/capstan-cd/capstan/integration/rigs/pki"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

const (
	startLimit = 20 * time.Minute // it may have to be built first
	stopGrace  = 10 * time.Second
)

// Options say what a registry requires.
type Options struct {
	Plain          bool   // no TLS
	User, Password string // empty: everybody may read and write
	Notify         string // an address that gets its notifications; empty: none
	NotifyKey      string // the header Authorization of notifications; empty: none
}

// A Server is a running registry, and how to push to it.
type Server struct {
	chartstest.Registry
	CA []byte // the authority of its certificate in PEM

	dir     *process.Scratch
	process *process.Process
}

// New starts an empty registry for one test.
func New(tb testing.TB, o Options) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	s, err := Start(ctx, o)
	if err != nil {
		tb.Fatalf("start the registry: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("stop the registry: %v", err)
		}
	})
	return s
}

// Start starts an empty registry. The caller must Stop it.
func Start(ctx context.Context, o Options) (*Server, error) {
	binary, err := build.Registry(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	dir, err := process.NewScratch("registry", "")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, Registry: chartstest.Registry{Plain: o.Plain, User: o.User, Password: o.Password}}
	for range process.PortAttempts {
		if err = s.run(ctx, binary, o); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, s.Stop())
}

func (s *Server) path(name string) string { return filepath.Join(s.dir.Path, name) }

func (s *Server) run(ctx context.Context, binary string, o Options) error {
	port, err := process.FreePort()
	if err != nil {
		return err
	}
	s.Host = fmt.Sprintf("127.0.0.1:%d", port)
	text, err := s.configuration(o)
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("config.yml"), []byte(text), 0o600); err != nil {
		return err
	}
	s.process, err = process.Start(process.Command{
		Name: "registry", Path: binary, Log: s.path("registry.log"), Orphan: syscall.SIGKILL, Args: []string{"serve", s.path("config.yml")},
	})
	if err != nil {
		return err
	}
	return s.process.Ready(ctx, func(ctx context.Context) error {
		scheme := "https"
		if o.Plain {
			scheme = "http"
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+s.Host+"/", nil)
		if err != nil {
			return err
		}
		res, err := s.Client.Do(req)
		if err != nil {
			return err
		}
		return res.Body.Close()
	})
}

// configuration writes the files that the registry needs.
func (s *Server) configuration(o Options) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "version: 0.1\nlog: {level: warn, accesslog: {disabled: true}}\nstorage: {filesystem: {rootdirectory: %q}, delete: {enabled: true}}\nhttp:\n  addr: %s\n  secret: of-tests-alone\n",
		s.path("data"), s.Host)
	s.Client = &http.Client{}
	if !o.Plain {
		authority, err := pki.Open(s.dir.Path)
		if err != nil {
			return "", err
		}
		pair, err := authority.Server("registry")
		if err != nil {
			return "", err
		}
		cert, key, err := pair.Write(s.dir.Path, "registry")
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "  tls: {certificate: %q, key: %q}\n", cert, key)
		s.CA = authority.PEM
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(s.CA)
		s.Client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	}
	if o.User != "" {
		sum, err := bcrypt.GenerateFromPassword([]byte(o.Password), bcrypt.MinCost)
		if err != nil {
			return "", fmt.Errorf("hash the password: %w", err)
		}
		if err := os.WriteFile(s.path("passwords"), fmt.Appendf(nil, "%s:%s\n", o.User, sum), 0o600); err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "auth: {htpasswd: {realm: registry, path: %q}}\n", s.path("passwords"))
	}
	if o.Notify != "" {
		headers := map[string][]string{}
		if o.NotifyKey != "" {
			headers["Authorization"] = []string{o.NotifyKey}
		}
		list, err := json.Marshal(headers)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&text, "notifications:\n  endpoints:\n  - {name: test, url: %q, headers: %s, timeout: 5s, threshold: 3, backoff: 1s}\n", o.Notify, list)
	}
	return text.String(), nil
}

// URL is the address of a repository of the registry.
func (s *Server) URL(name string) string { return "oci://" + s.Host + "/" + name }

// Signal sends a signal to the registry, such as one that stops it from
// answering.
func (s *Server) Signal(sig syscall.Signal) error { return s.process.Signal(sig) }

// Stop ends the registry and deletes what it has stored.
func (s *Server) Stop() error {
	var err error
	if s.process != nil {
		err = s.process.Stop(syscall.SIGTERM, stopGrace)
	}
	return errors.Join(err, s.dir.Close())
}
