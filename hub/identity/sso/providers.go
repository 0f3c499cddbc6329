package sso

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/oidc"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Kinds of providers.
const (
	KindRedirect = "redirect" // the browser goes there
	KindPassword = "password" // name and password are checked there
)

// A Provider is what anybody may know of one.
type Provider struct {
	ID   string
	Name string
	Kind string
}

// directID is the id of the provider of oidc.config. Those of dex.config begin
// with dexPrefix.
const (
	directID  = "oidc"
	dexPrefix = "dex-"
)

// Paths that providers send browsers back to, as in Argo CD.
const (
	DirectCallback = "/auth/callback"
	DexCallback    = "/api/dex/callback"
)

// A provider is one that was built.
type provider struct {
	Provider
	realm    string // who issues the subjects
	path     string // of the callback
	posts    bool   // the browser comes back with a form
	redirect connector.Redirect
	password connector.Password
	machine  bool  // only machines have tokens of the issuer
	err      error // why it cannot be used; nil: it can
}

// providers builds what a tenant has configured. One that cannot be built
// stays in the list, so that people read why.
func (s *Service) providers(tenant hub.TenantID, set hub.SignInSettings) ([]provider, error) {
	text, err := json.Marshal(set)
	if err != nil {
		return nil, fmt.Errorf("read the settings of sign-ins: %w", err)
	}
	key := sha256.Sum256(append([]byte(tenant), text...))
	if built, ok := s.built.Get(key); ok {
		return built, nil
	}
	out := s.made(set)
	s.built.Put(key, out, 1)
	return out, nil
}

// made builds the providers of settings anew.
func (s *Service) made(set hub.SignInSettings) []provider {
	var out []provider
	if direct := set.Values[settings.OIDCKey]; strings.TrimSpace(direct) != "" {
		out = append(out, s.direct(direct, set))
	}
	return append(out, s.brokered(set)...)
}

// secretOf looks up references of a configuration.
func secretOf(set hub.SignInSettings) func(string) (string, error) {
	return func(reference string) (string, error) {
		if v, ok := set.Secrets[reference]; ok {
			return v, nil
		}
		name, key := settings.Referred(reference)
		return "", fault.With(fault.New(fault.Invalid, "the secret $%s is not stored", reference), "",
			fmt.Sprintf("apply the Secret %s with the key %s", strings.TrimPrefix(name, hub.SecretPrefix), key))
	}
}

// direct builds the provider of oidc.config.
func (s *Service) direct(text string, set hub.SignInSettings) provider {
	p := provider{Provider: Provider{ID: directID, Name: "SSO", Kind: KindRedirect}, path: DirectCallback}
	p.err = func() error {
		parsed, err := oidc.Parse(text)
		if err != nil {
			return err
		}
		if parsed.Name != "" && !strings.HasPrefix(parsed.Name, "$") {
			p.Name = parsed.Name
		}
		if parsed, err = parsed.Resolve(secretOf(set)); err != nil {
			return err
		}
		cfg, err := parsed.Config()
		if err != nil {
			return err
		}
		client, err := s.Client(parsed.RootCA, settings.Truth(set.Values[settings.NoTLSCheckKey]))
		if err != nil {
			return fault.Wrap(fault.Invalid, err, "rootCA of oidc.config cannot be used")
		}
		cfg.Now = s.Now
		p.realm, p.redirect = cfg.Issuer, oidc.New(cfg, client)
		return nil
	}()
	return p
}

// client is the one for providers that bring no authority of their own.
func (s *Service) client(set hub.SignInSettings) (*http.Client, error) {
	return s.Client("", settings.Truth(set.Values[settings.NoTLSCheckKey]))
}

// Providers lists those of a tenant, as anybody may see them, with the tenant's
// text for the button of the first one. A tenant that there is not has none.
func (s *Service) Providers(ctx context.Context, tenant string) ([]Provider, string, error) {
	t, err := s.TenantByName(ctx, tenant)
	if fault.KindOf(err) == fault.Missing || err == nil && t.Suspended {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	set, err := s.SignInSettings(ctx, t.ID)
	if err != nil {
		return nil, "", err
	}
	all, err := s.providers(t.ID, set)
	out := make([]Provider, 0, len(all))
	for _, p := range all {
		if !p.machine {
			out = append(out, p.Provider)
		}
	}
	text := []rune(strings.TrimSpace(set.Values[settings.ButtonTextKey]))
	return out, string(text[:min(len(text), maxButtonText)]), err
}

// maxButtonText is the length, in characters, of the text of a button.
const maxButtonText = 80

// find returns a provider by its id; the first one if it is empty.
func find(all []provider, id string) (provider, error) {
	for _, p := range all {
		if id == "" && p.redirect != nil && !p.machine || p.ID == id {
			return p, fault.With(p.err, "provider "+p.Name, "")
		}
	}
	return provider{}, fault.With(fault.New(fault.Missing, "there is no such identity provider"), "", "choose one on the sign-in page")
}
