// Package scmaccess decides what generators of application sets may send to Git
// hosts, and where: it is the scm.Access of the hub. Secrets are those of type
// scm-creds (CRED-04), the addresses those that the tenant's settings and the
// Secrets themselves name, and every connection goes through the guard of
// hub/source/guard.
//
// What always holds: a token is sent to the public host of its kind, to an
// address of applicationsetcontroller.allowed.scm.providers, or to the url of
// its own Secret. A Secret with a project serves sets of that project alone. No
// error contains a value of a Secret.
//
// The daemon makes one Hosts for each replica.
package scmaccess

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Settings are the keys of hub.ParamsMap that Access needs.
func Settings() []string { return []string{hub.SetAllowedHostsKey, hub.SetHostsKey} }

// Keys of a Secret that are the hub's own: where its token may be sent, and
// whose sets it is for.
const (
	urlKey     = "url"
	projectKey = "project"
)

// Store reads what tenants have stored.
type Store interface {
	// GeneratorSecret returns the values of a Secret of type scm-creds. The error
	// is fault.Missing if there is none.
	GeneratorSecret(ctx context.Context, tenant hub.TenantID, name string) (map[string]string, error)
	// Authorities returns certificates in PEM for a host; empty: there are none.
	Authorities(ctx context.Context, tenant hub.TenantID, host string) (string, error)
}

// Apps exchange the key of a GitHub App for a token of its installation.
type Apps interface {
	Installation(ctx context.Context, tenant hub.TenantID, owner string, app hub.GitHubApp, pulls bool) (string, error)
}

// Config sets what may be connected to. Zero values mean the defaults.
type Config struct {
	Ways    guard.Ways
	RootCAs *x509.CertPool // default: the system's
	Timeout time.Duration  // of one request, its answer included; default 20 s
}

// Hosts give sets access to Git hosts. Many goroutines may use it.
type Hosts struct {
	cfg   Config
	store Store
	apps  Apps
	cache *scm.Cache
}

// New makes one.
func New(cfg Config, store Store, apps Apps, cache *scm.Cache) *Hosts {
	if cfg.Timeout == 0 {
		cfg.Timeout = 20 * time.Second
	}
	return &Hosts{cfg: cfg, store: store, apps: apps, cache: cache}
}

// Access returns what a set may use in one run of its generators. project is
// that of the set; "*": any. settings are those of hub.ParamsMap.
func (h *Hosts) Access(r scm.Reader, project string, settings map[string]string) scm.Access {
	return &access{hosts: h, tenant: r.Tenant, project: project, settings: settings, answers: h.cache.Of(r)}
}

// An access is that of one set.
type access struct {
	hosts    *Hosts
	tenant   hub.TenantID
	project  string
	settings map[string]string
	answers  *scm.Answers
}

// Answers is the tenant's part of the shared cache.
func (a *access) Answers() *scm.Answers { return a.answers }

// secret returns the values of a Secret that the set may use.
func (a *access) secret(ctx context.Context, name string) (map[string]string, error) {
	values, err := a.hosts.store.GeneratorSecret(ctx, a.tenant, name)
	if fault.KindOf(err) == fault.Missing {
		return nil, fault.With(fault.New(fault.Invalid, "there is no Secret %q for generators", name), "", "apply it with the label argocd.argoproj.io/secret-type: scm-creds")
	}
	if err != nil {
		return nil, err
	}
	if p := values[projectKey]; p != "" && p != a.project {
		return nil, fault.With(fault.New(fault.Denied, "the Secret %q is for sets of another project", name), "", "use a Secret of the set's own project, or one without the key project")
	}
	return values, nil
}

// Secret returns a value of a Secret, or the authorities of a host: of
// ConfigMaps only hub.CertificatesMap is stored.
func (a *access) Secret(ctx context.Context, kind, name, key string) (string, error) {
	if kind == scm.ConfigMapKind {
		if name != hub.CertificatesMap {
			return "", fault.With(fault.New(fault.Invalid, "the ConfigMap %q of caRef is not stored in the hub", name), "",
				"store the authority by host, `capstan cert add-tls HOST --from ca.crt`, and leave caRef out")
		}
		pem, err := a.hosts.store.Authorities(ctx, a.tenant, key)
		if err == nil && pem == "" {
			err = fault.With(fault.New(fault.Invalid, "there is no authority for the host %q of caRef", key), "", "store it: `capstan cert add-tls HOST --from ca.crt`")
		}
		return pem, err
	}
	values, err := a.secret(ctx, name)
	if err != nil {
		return "", err
	}
	value, ok := values[key]
	if !ok || key == urlKey || key == projectKey {
		return "", fault.With(fault.New(fault.Invalid, "the Secret %q has no token under the key %q", name, key), "", "correct the key of tokenRef, or apply the Secret with it")
	}
	return value, nil
}

// App returns a token of a GitHub App, whose key is in a Secret.
func (a *access) App(ctx context.Context, use scm.AppUse) (string, error) {
	values, err := a.secret(ctx, use.Secret)
	if err != nil {
		return "", err
	}
	app := hub.GitHubApp{PrivateKey: values["githubAppPrivateKey"], BaseURL: use.BaseURL}
	app.ID, err = strconv.ParseInt(values["githubAppID"], 10, 64)
	if id := values["githubAppInstallationID"]; err == nil && id != "" {
		app.InstallationID, err = strconv.ParseInt(id, 10, 64)
	}
	if err != nil || app.PrivateKey == "" {
		return "", fault.With(fault.New(fault.Invalid, "the Secret %q holds no GitHub App", use.Secret), "", "apply it with githubAppID and githubAppPrivateKey")
	}
	if own := values["githubAppEnterpriseBaseUrl"]; own != "" && apiOf(own) != origin(use.BaseURL) {
		return "", fault.With(fault.New(fault.Denied, "the GitHub App of the Secret %q is not one of %s", use.Secret, hostOf(use.BaseURL)), "", "set the generator's api to the Secret's githubAppEnterpriseBaseUrl")
	}
	return a.hosts.apps.Installation(ctx, a.tenant, use.Owner, app, use.Pulls)
}

// Client returns a client for a host that the set may ask.
func (a *access) Client(ctx context.Context, use scm.ClientUse) (*http.Client, error) {
	if err := a.permit(ctx, use); err != nil {
		return nil, err
	}
	dialer, err := a.hosts.cfg.Ways.Via("", "")
	if err != nil {
		return nil, err
	}
	pool := a.hosts.cfg.RootCAs
	text := use.CA
	if text == "" {
		if text, err = a.hosts.store.Authorities(ctx, a.tenant, hostOf(use.BaseURL)); err != nil {
			return nil, fmt.Errorf("read authorities: %w", err)
		}
	}
	if text != "" {
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(text)) {
			return nil, fault.With(fault.New(fault.Invalid, "the authorities for %s contain no certificate in PEM", hostOf(use.BaseURL)), "", "store the certificate of the authority")
		}
	}
	transport := guard.TransportOver(dialer, pool)
	transport.TLSClientConfig.InsecureSkipVerify = use.Insecure
	transport.MaxIdleConnsPerHost = idleConnections
	transport.IdleConnTimeout = idleTime
	return &http.Client{Transport: transport, Timeout: a.hosts.cfg.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// Connections of one run are used again in it.
const (
	idleConnections = 8
	idleTime        = 10 * time.Second
)

// permit refuses addresses that the settings and the Secrets do not allow.
func (a *access) permit(ctx context.Context, use scm.ClientUse) error {
	if a.settings[hub.SetHostsKey] == "false" {
		return fault.With(fault.New(fault.Denied, "%s is false: generators may not ask Git hosts", hub.SetHostsKey), "", "ask an admin of the tenant to remove it from "+hub.ParamsMap)
	}
	to := origin(use.BaseURL)
	allowed := originsOf(a.settings[hub.SetAllowedHostsKey])
	own := to == publicHost(use.Kind) || slices.Contains(allowed, to)
	for _, name := range use.Secrets {
		values, err := a.secret(ctx, name)
		if err != nil {
			return err
		}
		address := cmp.Or(values[urlKey], values["githubAppEnterpriseBaseUrl"])
		switch {
		case address != "" && apiOf(address) != to:
			return fault.With(fault.New(fault.Denied, "the Secret %q is not for %s", name, hostOf(use.BaseURL)), "", "use a Secret whose url is that of the generator's api")
		case address == "" && !own:
			return fault.With(fault.New(fault.Denied, "the Secret %q may not be sent to %s", name, hostOf(use.BaseURL)), "",
				"add the key url with the address to the Secret, or add the address to "+hub.SetAllowedHostsKey+" of "+hub.ParamsMap)
		}
		own = true
	}
	if !own && len(allowed) > 0 {
		return fault.With(fault.New(fault.Denied, "generators may not ask %s", hostOf(use.BaseURL)), "", "add its address to "+hub.SetAllowedHostsKey+" of "+hub.ParamsMap)
	}
	return nil
}

// publicHost is the address of the API of the host that everybody uses; empty:
// the kind has none.
func publicHost(kind string) string {
	return map[string]string{
		"github": "https://api.github.com", "gitlab": "https://gitlab.com", "bitbucket": "https://api.bitbucket.org", "azureDevOps": "https://dev.azure.com", "gitea": "https://gitea.com",
	}[kind]
}

// apiOf is where the API is of a host that has it at another address.
func apiOf(address string) string {
	switch o := origin(address); o {
	case "https://github.com":
		return publicHost("github")
	case "https://bitbucket.org":
		return publicHost("bitbucket")
	default:
		return o
	}
}

// originsOf are the addresses of a list with commas.
func originsOf(list string) []string {
	var out []string
	for _, item := range strings.Split(list, ",") {
		if o := origin(strings.TrimSpace(item)); o != "" {
			out = append(out, o)
		}
	}
	return out
}

// origin is the scheme, host and port of an address; empty: it is none.
func origin(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	port := u.Port()
	if port == "443" && u.Scheme == "https" || port == "80" && u.Scheme == "http" {
		port = ""
	}
	out := u.Scheme + "://" + strings.ToLower(u.Hostname())
	if port != "" {
		out += ":" + port
	}
	return out
}

// hostOf is the host of an address, as people read it.
func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return "the address"
	}
	return strings.ToLower(u.Hostname())
}
