// Package oidc runs an OpenID provider for tests: npm's oidc-provider, which is
// certified, with pages for sign-in and consent. Nothing of it is a part of the
// product. Its packages are installed once, outside of the source tree.
package oidc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/integration/rigs/build"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/process"
)

//go:embed package.json package-lock.json provider.mjs
var files embed.FS

// Claims are what the provider says of an account besides its id.
type Claims map[string]any

// A Client is a program that the provider signs people in for.
type Client struct {
	ID        string   `json:"client_id"`
	Secret    string   `json:"client_secret"`
	Callbacks []string `json:"redirect_uris"`
	AfterOut  []string `json:"post_logout_redirect_uris,omitempty"`
}

// Options say what a provider begins with.
type Options struct {
	Clients  []Client
	Accounts map[string]Claims // by id, which is the login of its sign-in page
}

// A Provider is a running one.
type Provider struct {
	Issuer  string
	control string
	process *process.Process
}

// Install installs the provider's packages unless they are there, and returns
// the folder. Two processes may call it at once.
func Install(ctx context.Context) (string, error) {
	cache, err := build.CacheDir()
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, name := range []string{"package.json", "package-lock.json", "provider.mjs"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		hash.Write(text)
	}
	folder := filepath.Join(cache, "oidc", hex.EncodeToString(hash.Sum(nil))[:12])
	if _, err := os.Stat(filepath.Join(folder, "provider.mjs")); err == nil {
		return folder, nil
	}
	return folder, install(ctx, folder)
}

// install makes the folder under another name first, so that it is whole.
func install(ctx context.Context, folder string) error {
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return fmt.Errorf("make the cache folder: %w", err)
	}
	made, err := os.MkdirTemp(filepath.Dir(folder), "new-")
	if err != nil {
		return fmt.Errorf("make a folder: %w", err)
	}
	defer os.RemoveAll(made)
	for _, name := range []string{"package.json", "package-lock.json", "provider.mjs"} {
		text, err := files.ReadFile(name)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(made, name), text, 0o644); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = made
	if out, err := npm.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci of the OpenID provider: %w\n%s", err, out)
	}
	if err := os.Rename(made, folder); err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, syscall.ENOTEMPTY) {
		return fmt.Errorf("name the folder: %w", err)
	}
	return nil
}

// New starts a provider for one test.
func New(tb testing.TB, o Options) *Provider {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 3*time.Minute)
	defer cancel()
	folder, err := Install(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	p, err := start(ctx, folder, tb.TempDir(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Stop)
	return p
}

// Start starts a provider whose log goes to a folder. The caller stops it.
func Start(ctx context.Context, dir string, o Options) (*Provider, error) {
	folder, err := Install(ctx)
	if err != nil {
		return nil, err
	}
	return start(ctx, folder, dir, o)
}

func start(ctx context.Context, folder, dir string, o Options) (*Provider, error) {
	var ports [2]int
	for i := range ports {
		var err error
		if ports[i], err = process.FreePort(); err != nil {
			return nil, err
		}
	}
	p := &Provider{Issuer: fmt.Sprintf("http://127.0.0.1:%d", ports[0]), control: fmt.Sprintf("http://127.0.0.1:%d", ports[1])}
	settings, err := json.Marshal(map[string]any{"issuer": p.Issuer, "port": ports[0], "control": ports[1], "clients": o.Clients, "accounts": o.Accounts})
	if err != nil {
		return nil, fmt.Errorf("write the provider's settings: %w", err)
	}
	node, err := exec.LookPath("node")
	if err != nil {
		return nil, fmt.Errorf("find node: %w", err)
	}
	p.process, err = process.Start(process.Command{
		Name: "the OpenID provider", Path: node, Args: []string{"provider.mjs"}, Dir: folder, Log: filepath.Join(dir, "oidc.log"),
		Env: []string{"RIG_SETTINGS=" + string(settings), "NODE_ENV=test"}, Orphan: syscall.SIGKILL,
	})
	if err != nil {
		return nil, err
	}
	err = p.process.Ready(ctx, func(ctx context.Context) error { return poll.OK(ctx, p.Issuer+"/.well-known/openid-configuration") })
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// Stop ends the provider.
func (p *Provider) Stop() { _ = p.process.Stop(syscall.SIGTERM, 5*time.Second) }

// Signal sends the provider's process a signal, such as one that stops it.
func (p *Provider) Signal(sig syscall.Signal) error { return p.process.Signal(sig) }

// Set changes what the provider says of an account; nil removes it.
func (p *Provider) Set(ctx context.Context, id string, claims Claims) error {
	body, err := json.Marshal(map[string]any{"id": id, "claims": claims})
	if err != nil {
		return fmt.Errorf("write the claims: %w", err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.control, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("ask the provider: %w", err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("ask the provider: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusNoContent {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("the provider answers %s: %s", resp.Status, text)
	}
	return nil
}
