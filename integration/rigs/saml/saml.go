// Package saml runs a SAML identity provider, made of the npm package samlify,
// for tests of signing in. It installs the package once, outside of the source
// tree, by its lock file, and runs it with node on loopback.
package saml

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"embed"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/build"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

const (
	startLimit = 3 * time.Minute // with the installation
	stopGrace  = 5 * time.Second
)

//go:embed provider
var program embed.FS

// A Person is one who can sign in.
type Person struct {
	Name       string              `json:"name"` // the NameID
	Attributes map[string][]string `json:"attributes"`
}

// Options say what the provider does.
type Options struct {
	People                      map[string]Person // by what they enter
	SignResponse, SignAssertion bool
}

// A Server is a running provider.
type Server struct {
	URL         string // of its sign-in page
	Issuer      string
	Certificate []byte // in PEM

	dir     *process.Scratch
	process *process.Process
}

// New starts a provider for one test.
func New(tb testing.TB, o Options) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), startLimit)
	defer cancel()
	s, err := Start(ctx, o)
	if err != nil {
		tb.Fatalf("start the SAML provider: %v", err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Errorf("stop the SAML provider: %v", err)
		}
	})
	return s
}

// Start starts a provider. The caller must Stop it.
func Start(ctx context.Context, o Options) (*Server, error) {
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, errors.New("node is not there; integration/packages node installs it")
	}
	folder, err := install(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := process.NewScratch("saml", "")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	key, err := s.keys()
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	for range process.PortAttempts {
		if err = s.run(ctx, node, folder, key, o); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, s.Stop())
}

// keys makes the key of the provider, and its certificate.
func (s *Server) keys() (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "provider"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return "", err
	}
	s.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	text, err := x509.MarshalPKCS8PrivateKey(key)
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})), err
}

func (s *Server) run(ctx context.Context, node, folder, key string, o Options) error {
	port, err := process.FreePort()
	if err != nil {
		return err
	}
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	s.URL, s.Issuer = base+"/sso", base+"/metadata"
	settings, err := json.Marshal(map[string]any{
		"port": port, "key": key, "certificate": string(s.Certificate), "people": o.People, "signResponse": o.SignResponse, "signAssertion": o.SignAssertion,
	})
	if err != nil {
		return err
	}
	s.process, err = process.Start(process.Command{
		Name: "SAML provider", Path: node, Args: []string{filepath.Join(folder, "provider.js")}, Dir: folder,
		Log: filepath.Join(s.dir.Path, "provider.log"), Env: []string{"SETTINGS=" + string(settings)}, Orphan: syscall.SIGKILL,
	})
	if err != nil {
		return err
	}
	return s.process.Ready(ctx, func(ctx context.Context) error {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/ready", nil)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		return resp.Body.Close()
	})
}

// Stop ends the provider and removes its files.
func (s *Server) Stop() error {
	var err error
	if s.process != nil {
		err = s.process.Stop(syscall.SIGTERM, stopGrace)
	}
	return errors.Join(err, s.dir.Close())
}

// install returns the folder with the program and what it needs.
func install(ctx context.Context) (string, error) {
	hash := sha256.New()
	files := map[string][]byte{}
	for _, name := range []string{"package.json", "package-lock.json", "provider.js"} {
		text, err := program.ReadFile("provider/" + name)
		if err != nil {
			return "", err
		}
		files[name] = text
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
	}
	cache, err := build.CacheDir()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(cache, "saml", hex.EncodeToString(hash.Sum(nil))[:16])
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	done := filepath.Join(folder, "installed")
	unlock, err := lock(ctx, folder)
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(done); err == nil {
		return folder, nil
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			return "", err
		}
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	npm.Dir = folder
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("install the SAML provider: %w: %s", err, out)
	}
	return folder, os.WriteFile(done, nil, 0o644)
}

// lock waits until no other process installs.
func lock(ctx context.Context, folder string) (unlock func(), err error) {
	for {
		f, err := build.TryLock(filepath.Join(folder, "lock"))
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
