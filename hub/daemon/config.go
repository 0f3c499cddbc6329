package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
	"github.com/capstan-cd/capstan/hub/api/rootpath"
	"github.com/capstan-cd/capstan/hub/metrics"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
	"github.com/capstan-cd/capstan/shared/yamltext"
)

// A Config is the hub's configuration file. Secrets are paths of files, never
// values. Keys that it does not know are errors.
type Config struct {
	Listen     Listen   `json:"listen"`
	Database   Database `json:"database"`
	StateDir   string   `json:"stateDir"`   // mirrors of repositories; a cache
	MasterKey  string   `json:"masterKey"`  // file with the key that seals all others
	PublicURL  string   `json:"publicURL"`  // address of the console, for links; default: the HTTP address
	AgentHosts []string `json:"agentHosts"` // host:port that agents dial, written into join tokens; default: the link address
	Sources    Sources  `json:"sources"`
	SignIn     SignIn   `json:"signIn"`
	Render     Render   `json:"render"`
	Log        Log      `json:"log"`
	// TrustedProxies are the networks (CIDR) or addresses of ingresses and load
	// balancers. What they say in X-Forwarded-For is where a request comes
	// from; what others say there is ignored.
	TrustedProxies []string `json:"trustedProxies"`
	// ProxyProtocol lists the ports (http, link) at which connections of
	// trusted proxies begin with a header of the PROXY protocol.
	ProxyProtocol []string `json:"proxyProtocol"`
	Replica       string   `json:"replica"` // name of this replica; default: host name and process
	// Advertise is host:port at which other replicas reach the internal port
	// of this one; default: the internal address, if it names one host, or
	// the environment's POD_IP with its port.
	Advertise string `json:"advertise"`
	// Lease is how long the work of a replica that is silent waits for another
	// one; default 15s.
	Lease Duration `json:"lease"`
	// Drain is how long a stopping replica still accepts requests while others
	// take over; default 5s. A single replica does not wait.
	Drain      Duration   `json:"drain"`
	Webhook    Webhook    `json:"webhook"`
	Heartbeat  Duration   `json:"heartbeat"` // of agents; default 10s
	Limits     RateLimits `json:"limits"`
	Metrics    Metrics    `json:"metrics"`
	AgentChart AgentChart `json:"agentChart"` // what the command to install an agent names
	Tenants    Tenants    `json:"tenants"`
	// Notifications sets where messages may be sent to.
	Notifications Notifications `json:"notifications"`
	// ConsoleStyles is the folder of the style sheets that the setting ui.cssurl
	// of a tenant may name. Empty: there are none.
	ConsoleStyles string `json:"consoleStyles"`
}

// Notifications sets where messages may be sent to.
type Notifications struct {
	// AllowPrivate lists networks (CIDR) of services that are reached although
	// they are loopback, link-local or private.
	AllowPrivate []string `json:"allowPrivate"`
}

// Tenants sets what holds for every tenant unless a platform admin says
// otherwise.
type Tenants struct {
	// Grace is how long a deleted tenant can be restored before everything of
	// it is removed; default 168h, at least 1h.
	Grace Duration `json:"deletionGrace"`
	// FirstID is the id of the tenant default that the first start makes; empty:
	// a new one. A hub that takes the place of one that was lost gets the id that
	// the objects in its clusters have as capstan.dev/tenant. It counts for
	// nothing once there is the tenant.
	FirstID string `json:"firstID"`
	// Quotas are what a tenant may have: applications, clusters, repositories,
	// users, tokens, storageBytes, applicationSets, applicationsPerSet,
	// rendersPerMinute, requestsPerMinute, notificationsPerHour. One that is not
	// named, or 0, limits nothing, but applicationsPerSet is 1,000 then.
	Quotas hub.Quotas `json:"quotas"`
}

// Metrics says what listen.metrics serves besides the hub's own counters,
// /livez and /readyz.
type Metrics struct {
	// ArgoCD serves Argo CD's metric names too, for dashboards made for it.
	// Default: true.
	ArgoCD *bool `json:"argocd"`
	// PerTenant shows applications, clusters and operations by tenant.
	PerTenant bool `json:"perTenant"`
	// ApplicationLabels become labels of argocd_app_labels.
	ApplicationLabels []string `json:"applicationLabels"`
	// MaxSeries bounds the applications and repositories that are shown one
	// by one; default 10,000.
	MaxSeries int `json:"maxSeries"`
	// TokenFile contains the bearer token for metrics and profiles; it is read
	// at each request. Empty: metrics are served to processes of this machine
	// alone.
	TokenFile string `json:"tokenFile"`
	// Public serves metrics to every client without a token: they name tenants,
	// applications and repositories.
	Public bool `json:"public"`
	// Profiles serves /debug/pprof, which reveals much about the process.
	Profiles bool `json:"profiles"`
}

func (m Metrics) options() metrics.Options {
	return metrics.Options{
		Argo: m.ArgoCD == nil || *m.ArgoCD, PerTenant: m.PerTenant, Labels: m.ApplicationLabels, MaxSeries: m.MaxSeries,
	}
}

// maxLabels bounds what one series may carry.
const maxLabels = 20

func (m Metrics) check(bad func(format string, args ...any)) {
	if m.Public && m.TokenFile != "" {
		bad("metrics: public and tokenFile are both set; use one")
	}
	if len(m.ApplicationLabels) > maxLabels {
		bad("metrics.applicationLabels: %d labels are too many; %d are allowed", len(m.ApplicationLabels), maxLabels)
	}
	seen := map[string]string{}
	for _, l := range m.ApplicationLabels {
		name := metrics.LabelName(l)
		if l == "" {
			bad("metrics.applicationLabels: a label has no name")
		} else if other, twice := seen[name]; twice {
			bad("metrics.applicationLabels: %q and %q would both become label_%s", other, l, name)
		}
		seen[name] = l
	}
}

// AgentChart says where people find the agent's chart and image, for the
// command that an enrolment shows.
type AgentChart struct {
	Chart   string `json:"chart"`   // default charts/capstan-agent, as in a checkout of the source
	Version string `json:"version"` // of a chart in a registry; empty: the newest
	Image   string `json:"image"`   // repository of the image; default YOUR-REGISTRY/capstan-agent
}

// install is the command; the API fills in {token}.
func (a AgentChart) install() string {
	set(&a.Chart, "charts/capstan-agent")
	set(&a.Image, "YOUR-REGISTRY/capstan-agent")
	if a.Version != "" {
		a.Chart += " --version " + a.Version
	}
	return "helm install capstan-agent " + a.Chart + " --namespace capstan-system --create-namespace --set image.repository=" + a.Image +
		" --set join.token={token}"
}

// Listen has the addresses of the hub. HTTP is for a proxy that terminates TLS,
// or for loopback; Link is for agents. A single replica needs no more.
type Listen struct {
	HTTP string `json:"http"` // default 127.0.0.1:8080
	Link string `json:"link"` // default 127.0.0.1:8443
	// Internal is for other replicas of the same hub, which authenticate with
	// certificates of its private authority. Empty: there are none.
	Internal string `json:"internal"`
	// Metrics serves metrics in Prometheus' text form, and without sign-in
	// /livez and /readyz. Empty: not at all.
	Metrics string `json:"metrics"`
}

// Database has one URL for each role, or the file that contains it. App and
// System are used while the hub runs, Owner by `capstan-hub migrate` and, if it
// is set, at start.
type Database struct {
	App        string `json:"app"`
	AppFile    string `json:"appFile"`
	System     string `json:"system"`
	SystemFile string `json:"systemFile"`
	Owner      string `json:"owner"`
	OwnerFile  string `json:"ownerFile"`
	// MaxConns is how many connections this hub opens for tenants' data, and a
	// quarter of it, at least 2, for directory and work queue; default 8.
	MaxConns int32 `json:"maxConns"`
	// IdleTimeout is after how long an idle connection is closed; default 1m.
	IdleTimeout Duration `json:"idleTimeout"`
}

// read reads the URLs from their files.
func (d *Database) read() error {
	var errs []error
	for _, u := range []struct {
		key, file string
		value     *string
	}{{"app", d.AppFile, &d.App}, {"system", d.SystemFile, &d.System}, {"owner", d.OwnerFile, &d.Owner}} {
		if u.file == "" {
			continue
		}
		b, err := os.ReadFile(u.file)
		text := strings.TrimSpace(string(b))
		switch {
		case *u.value != "":
			errs = append(errs, fault.New(fault.Invalid, "database: %s and %sFile are both set; use one", u.key, u.key))
		case err != nil:
			errs = append(errs, fault.Wrap(fault.Invalid, err, "database.%sFile: %s cannot be read", u.key, u.file))
		case text == "":
			errs = append(errs, fault.New(fault.Invalid, "database.%sFile: %s is empty", u.key, u.file))
		default:
			*u.value = text
		}
	}
	return errors.Join(errs...)
}

// Sources bounds what the hub dials for repositories.
type Sources struct {
	// AllowPrivate lists networks (CIDR) that are dialled although they are
	// loopback, link-local or private.
	AllowPrivate []string `json:"allowPrivate"`
	PollInterval Duration `json:"pollInterval"` // default 3m
	Parallel     int      `json:"parallel"`     // fetches at once, half of them at most for one tenant; default 16
	// MaxExtractedMiB bounds what one chart or OCI artifact unfolds to; default
	// 1024, below 0: 1 TiB.
	MaxExtractedMiB int `json:"maxExtractedMiB"`
	// OCILayerMediaTypes are those that the layer of an OCI artifact may have.
	// Default: tar and tar+gzip of images, and the content of charts.
	OCILayerMediaTypes []string `json:"ociLayerMediaTypes"`
	// RequestTimeout is how long a Git server may take to list its branches;
	// default 15s. Attempts is how often that is tried at once while the server
	// is not reachable; default 1. Later it is tried again anyway.
	RequestTimeout Duration `json:"requestTimeout"`
	Attempts       int      `json:"attempts"`
	// Proxies are the HTTP proxies that repositories may name.
	Proxies []SourceProxy `json:"proxies"`
	// AzureWorkloadIdentity lets tenants use the identity of the hub's pod.
	AzureWorkloadIdentity AzureWorkload `json:"azureWorkloadIdentity"`
}

// maxExtracted is the bound in bytes; 0: the default.
func (s Sources) maxExtracted() int64 {
	if s.MaxExtractedMiB < 0 {
		return 1 << 40
	}
	return int64(s.MaxExtractedMiB) << 20
}

// A SourceProxy is an HTTP proxy that repositories may name.
type SourceProxy struct {
	URL string `json:"url"` // http or https, without a user name; may be internal
	// ByName hands names of hosts to the proxy. It must refuse internal
	// addresses itself. Otherwise it gets addresses that the hub has checked.
	ByName bool `json:"byName"`
}

// AzureWorkload permits the use of the hub's identity in Azure.
type AzureWorkload struct {
	Tenants []string `json:"tenants"` // names; none: nobody
	Hosts   []string `json:"hosts"`   // that its tokens may be sent to; default dev.azure.com and *.visualstudio.com
}

// check reports proxies that nobody can use.
func (s Sources) check(bad func(format string, args ...any)) {
	for i, p := range s.Proxies {
		if _, err := hub.ReadProxy(p.URL); err != nil || p.URL == "" || strings.Contains(p.URL, "@") {
			bad("sources.proxies[%d]: url is no address of a proxy such as http://proxy.example.com:3128, without a user name", i)
		}
	}
	if s.Attempts > maxAttempts {
		bad("sources.attempts: %d is too many; at most %d", s.Attempts, maxAttempts)
	}
}

const maxAttempts = 10

// SignIn bounds what the hub dials to sign people in.
type SignIn struct {
	// AllowPrivate lists networks (CIDR) in which identity providers may be
	// although they are loopback, link-local or private. Every tenant may name
	// addresses in them.
	AllowPrivate []string `json:"allowPrivate"`
}

// Render sets the rendering workers.
type Render struct {
	Workers int    `json:"workers"` // renders at once; default: number of CPUs
	Sandbox string `json:"sandbox"` // "none" renders without Landlock and seccomp
	// Timeout and MemoryMiB bound one render; it fails alone when it passes
	// one of them.
	Timeout   Duration `json:"timeout"`   // default 60s
	MemoryMiB int      `json:"memoryMiB"` // at least 64; default 512
	// PauseAfter is how often an application's render may fail with the same
	// inputs until its error is cached, for the time Pause; defaults 3 and 1h.
	PauseAfter int      `json:"pauseAfter"`
	Pause      Duration `json:"pause"`

	Plugins Plugins `json:"plugins"`
}

// Plugins sets the config management plugins, which docs/plugins.md explains.
type Plugins struct {
	Folder string `json:"folder"` // of the definitions; empty: there are no plugins
	// Read lists files and directories that every plugin may read and execute,
	// besides the programs and libraries of the system.
	Read []string `json:"read"`
	Path string   `json:"path"` // where programs are searched; default: that of the system
	// Timeout bounds one command, and Grace is the time between SIGTERM and
	// SIGKILL after it.
	Timeout   Duration `json:"timeout"`   // default 90s
	Grace     Duration `json:"grace"`     // default 10s
	MemoryMiB int      `json:"memoryMiB"` // of all processes of a command; default 512
	Processes int      `json:"processes"` // and threads of a command; default 128
	DiskMiB   int      `json:"diskMiB"`   // that it may write; default 512
	ExportMiB int      `json:"exportMiB"` // of the repository that it may get; default 1024
}

// Log sets the log's format and level.
type Log struct {
	Format string `json:"format"` // text or json; default text
	Level  string `json:"level"`  // debug, info, warn, error; default info
}

func (l Log) level() slog.Level {
	var level slog.Level
	if level.UnmarshalText([]byte(l.Level)) != nil {
		return slog.LevelInfo
	}
	return level
}

// Webhook says which push events of Git hosts count. Each tenant sets secrets
// of its own in its settings, webhook.github.secret and the like of
// argocd-secret.
type Webhook struct {
	// GitHubSecretFile contains the secret of GitHub's events for the first
	// tenant of the installation, as long as that has none of its own.
	GitHubSecretFile string `json:"githubSecretFile"`
	// AllowUnsigned accepts events without a signature, for tenants that have
	// no secret. Any client of the hub can then make it list their
	// repositories' refs.
	AllowUnsigned bool `json:"allowUnsigned"`
	// MaxPayloadSizeMB is the size up to which an event is read. GitHub sends
	// up to 25 MB; what is beyond is found by polling. Default 25, at most 100.
	MaxPayloadSizeMB int `json:"maxPayloadSizeMB"`
}

const (
	usualPayloadMB = 25
	mostPayloadMB  = 100
)

// payload is the size of the largest event, in bytes.
func (w Webhook) payload() int64 { return int64(cmp.Or(w.MaxPayloadSizeMB, usualPayloadMB)) << 20 }

// RateLimits bounds requests of one session or token, where those of an
// address and of a tenant are at least as high, and the agents that attach.
type RateLimits struct {
	RequestsPerSecond float64 `json:"requestsPerSecond"` // default 100
	Burst             int     `json:"burst"`             // default 300

	// Agents that may attach to this process. Others are told when to retry.
	AgentsPerSecond float64 `json:"agentsPerSecond"` // default 100
	AgentBurst      int     `json:"agentBurst"`      // default 600

	// Connections of one address, or /64 of IPv6, to the console and the API
	// that may be open at once. Trusted proxies have no limit.
	ConnectionsPerAddress int `json:"connectionsPerAddress"` // default 1024
}

func (l RateLimits) rates() ratelimit.Rates {
	one := ratelimit.Rate{PerSecond: l.RequestsPerSecond, Burst: l.Burst}
	many := ratelimit.Rate{PerSecond: max(500, l.RequestsPerSecond), Burst: max(1500, l.Burst)}
	return ratelimit.Rates{Caller: one, Address: many, Tenant: many}
}

// A Duration is written like 30s or 3m.
type Duration time.Duration

// UnmarshalJSON reads a duration in Go's form.
func (d *Duration) UnmarshalJSON(b []byte) error {
	if len(b) < 2 || b[0] != '"' {
		return fmt.Errorf("%s is no duration; write it like \"30s\"", b)
	}
	v, err := time.ParseDuration(string(b[1 : len(b)-1]))
	if err != nil {
		return fmt.Errorf("%s is no duration; write it like \"30s\"", b)
	}
	*d = Duration(v)
	return nil
}

// MarshalJSON writes a duration in Go's form.
func (d Duration) MarshalJSON() ([]byte, error) {
	return []byte(`"` + time.Duration(d).String() + `"`), nil
}

// Load reads a configuration file and fills in defaults.
func Load(path string) (Config, error) {
	var c Config
	b, err := os.ReadFile(path)
	if err != nil {
		return c, fault.Wrap(fault.Invalid, err, "the configuration file %s cannot be read", path)
	}
	if err := yamltext.Decode(path, b, &c); err != nil {
		return c, err
	}
	if err := c.Database.read(); err != nil {
		return c, err
	}
	c.defaults()
	return c, c.Validate()
}

func (c *Config) defaults() {
	set(&c.Listen.HTTP, "127.0.0.1:8080")
	set(&c.Listen.Link, "127.0.0.1:8443")
	set(&c.Sources.PollInterval, Duration(3*time.Minute))
	set(&c.Sources.Parallel, 16)
	set(&c.Sources.RequestTimeout, Duration(15*time.Second))
	set(&c.Sources.Attempts, 1)
	set(&c.Heartbeat, Duration(10*time.Second))
	set(&c.Log.Format, "text")
	set(&c.Log.Level, "info")
	set(&c.Limits.RequestsPerSecond, 100)
	set(&c.Limits.Burst, 300)
	set(&c.Limits.AgentsPerSecond, 100)
	set(&c.Limits.AgentBurst, 600)
	set(&c.Limits.ConnectionsPerAddress, 1024)
	set(&c.Lease, Duration(workLease))
	set(&c.Drain, Duration(5*time.Second))
	c.advertise()
	if c.Replica == "" {
		host, _ := os.Hostname()
		c.Replica = fmt.Sprintf("%s-%d", host, os.Getpid())
	}
}

// advertise returns the address for other replicas, if none is configured: the
// internal one, or that of the pod (POD_IP), where the internal one is any.
func (c *Config) advertise() {
	host, port, err := net.SplitHostPort(c.Listen.Internal)
	switch ip := os.Getenv("POD_IP"); {
	case err != nil:
	case host != "" && !net.ParseIP(host).IsUnspecified():
		set(&c.Advertise, c.Listen.Internal)
	case net.ParseIP(ip) != nil:
		set(&c.Advertise, net.JoinHostPort(ip, port))
	}
}

func set[T comparable](field *T, fallback T) {
	var zero T
	if *field == zero {
		*field = fallback
	}
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fault.New(fault.Invalid, format, args...)) }
	c.badAddresses(bad)
	c.badNumbers(bad)
	c.badProxies(bad)
	c.Metrics.check(bad)
	if c.Database.App == "" || c.Database.System == "" {
		bad("database: the URLs app and system are needed")
	}
	c.badFolders(bad)
	if c.MasterKey == "" {
		bad("masterKey: the file with the master key is needed; `capstan-hub master-key FILE` makes one")
	}
	c.Sources.check(bad)
	for _, cidr := range c.Sources.AllowPrivate {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			bad("sources.allowPrivate: %q is no network; write it like 10.0.0.0/8", cidr)
		}
	}
	for _, cidr := range c.SignIn.AllowPrivate {
		if _, err := netip.ParsePrefix(cidr); err != nil {
			bad("signIn.allowPrivate: %q is no network; write it like 10.0.0.0/8", cidr)
		}
	}
	if c.Render.Sandbox != "" && c.Render.Sandbox != "none" {
		bad("render.sandbox: %q is unknown; leave it out, or write none to render without a sandbox", c.Render.Sandbox)
	}
	if m := c.Render.MemoryMiB; m > 0 && m < 64 {
		bad("render.memoryMiB: %d is too little; a renderer needs 64 or more", m)
	}
	for name, n := range map[string]int{"memoryMiB": c.Render.Plugins.MemoryMiB, "processes": c.Render.Plugins.Processes, "diskMiB": c.Render.Plugins.DiskMiB, "exportMiB": c.Render.Plugins.ExportMiB} {
		if n < 0 {
			bad("render.plugins.%s: %d is below 0", name, n)
		}
	}
	if c.Log.Format != "text" && c.Log.Format != "json" {
		bad("log.format: %q is unknown; write text or json", c.Log.Format)
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, strings.ToLower(c.Log.Level)) {
		bad("log.level: %q is unknown; write debug, info, warn or error", c.Log.Level)
	}
	return errors.Join(errs...)
}

func (c Config) badFolders(bad func(format string, args ...any)) {
	if !filepath.IsAbs(c.StateDir) {
		bad("stateDir: %q is no absolute path", c.StateDir)
	}
	if c.ConsoleStyles != "" && !filepath.IsAbs(c.ConsoleStyles) {
		bad("consoleStyles: %q is no absolute path", c.ConsoleStyles)
	}
}

func (c Config) badAddresses(bad func(format string, args ...any)) {
	address := func(key, value string) {
		if _, _, err := net.SplitHostPort(value); err != nil {
			bad("%s: %q is no host:port", key, value)
		}
	}
	address("listen.http", c.Listen.HTTP)
	address("listen.link", c.Listen.Link)
	if c.Listen.Metrics != "" {
		address("listen.metrics", c.Listen.Metrics)
	}
	if c.Listen.Internal != "" {
		address("listen.internal", c.Listen.Internal)
		if c.Advertise == "" {
			bad("advertise is needed: listen.internal %q is not an address that other replicas can dial", c.Listen.Internal)
		}
	}
	if c.Advertise != "" {
		address("advertise", c.Advertise)
	}
	for _, host := range c.AgentHosts {
		address("agentHosts", host)
	}
	for key, value := range map[string]string{"chart": c.AgentChart.Chart, "version": c.AgentChart.Version, "image": c.AgentChart.Image} {
		if strings.ContainsAny(value, " \t\n'\"\\$`;&|<>(){}") {
			bad("agentChart.%s: %q would not be one word of a command", key, value)
		}
	}
	if c.PublicURL != "" {
		root, err := rootpath.Of(c.PublicURL)
		if err == nil {
			err = root.Free([]string{tunnel.WebSocketPath})
		}
		if err != nil {
			bad("publicURL: %q is no URL that a hub can have; write it like https://capstan.example.com or https://example.com/capstan", c.PublicURL)
		}
	}
}

// Ports that can take the PROXY protocol.
const (
	portHTTP = "http"
	portLink = "link"
)

func (c Config) badProxies(bad func(format string, args ...any)) {
	for _, text := range c.TrustedProxies {
		if _, err := clientip.ParseProxies([]string{text}); err != nil {
			bad("trustedProxies: %s", err)
		}
	}
	for _, port := range c.ProxyProtocol {
		if port != portHTTP && port != portLink {
			bad("proxyProtocol: %q is unknown; write http or link", port)
		}
	}
	if len(c.ProxyProtocol) > 0 && len(c.TrustedProxies) == 0 {
		bad("proxyProtocol: trustedProxies is empty, so no connection would begin with a header; list the addresses of the load balancers there")
	}
}

// badNumbers finds those below zero; zero stands for the default.
func (c Config) badNumbers(bad func(format string, args ...any)) {
	for _, n := range []struct {
		key   string
		value float64
	}{
		{"heartbeat", float64(c.Heartbeat)}, {"drain", float64(c.Drain)}, {"sources.pollInterval", float64(c.Sources.PollInterval)},
		{"sources.requestTimeout", float64(c.Sources.RequestTimeout)}, {"sources.attempts", float64(c.Sources.Attempts)}, {"sources.parallel", float64(c.Sources.Parallel)}, {"render.workers", float64(c.Render.Workers)},
		{"render.timeout", float64(c.Render.Timeout)}, {"render.memoryMiB", float64(c.Render.MemoryMiB)},
		{"render.plugins.timeout", float64(c.Render.Plugins.Timeout)}, {"render.plugins.grace", float64(c.Render.Plugins.Grace)},
		{"limits.requestsPerSecond", c.Limits.RequestsPerSecond}, {"limits.burst", float64(c.Limits.Burst)},
		{"limits.agentsPerSecond", c.Limits.AgentsPerSecond}, {"limits.agentBurst", float64(c.Limits.AgentBurst)},
		{"limits.connectionsPerAddress", float64(c.Limits.ConnectionsPerAddress)},
		{"database.maxConns", float64(c.Database.MaxConns)}, {"database.idleTimeout", float64(c.Database.IdleTimeout)}, {"metrics.maxSeries", float64(c.Metrics.MaxSeries)},
		{"render.pauseAfter", float64(c.Render.PauseAfter)}, {"render.pause", float64(c.Render.Pause)}, {"webhook.maxPayloadSizeMB", float64(c.Webhook.MaxPayloadSizeMB)},
	} {
		if n.value < 0 {
			bad("%s is below zero", n.key)
		}
	}
	if err := c.Tenants.Quotas.Check(); err != nil {
		bad("tenants.quotas: %s", fault.Sentence(err))
	}
	if id := c.Tenants.FirstID; id != "" && !hub.ValidID(id) {
		bad("tenants.firstID: %q is no UUID; the objects of the lost installation have it as the annotation capstan.dev/tenant", id)
	}
	if g := time.Duration(c.Tenants.Grace); g != 0 && g < time.Hour {
		bad("tenants.deletionGrace: %s is less than 1h", g)
	}
	if m := c.Webhook.MaxPayloadSizeMB; m > mostPayloadMB {
		bad("webhook.maxPayloadSizeMB: %d is too much; the hub reads at most %d", m, mostPayloadMB)
	}
	if c.Lease != 0 && time.Duration(c.Lease) < time.Second {
		bad("lease: %s is less than 1s", time.Duration(c.Lease))
	}
	if time.Duration(c.Drain) > 15*time.Second {
		bad("drain: %s is more than 15s; a hub stops within 30s", time.Duration(c.Drain))
	}
}
