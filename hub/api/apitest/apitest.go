// Package apitest runs the HTTP API of a hub on a real store, without agents
// and without a pipeline, for tests of the API and of its clients. Only tests
// import it. Everything that it started has ended when the test has.
package apitest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/platform"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/daemon/notifystore"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/feed"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/hub/identity/sso"
	"github.com/capstan-cd/capstan/hub/notify/stage"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/hub/relay"
	"github.com/capstan-cd/capstan/hub/relay/podlogs"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// Password is that of every account that a test makes.
const Password = "correct horse battery"

// A Hub is one hub's HTTP face.
type Hub struct {
	T         testing.TB
	DB        *store.DB
	Catalog   *catalog.Catalog
	URL       string
	Client    *http.Client
	Log       *Buffer
	Superuser string // URL of the database for its superuser

	// Issuers is the client with which keys of issuers are read, whose tokens are
	// exchanged.
	Issuers *http.Client

	// Ahead is how far the clock of the catalog is in front of the machine's, in
	// nanoseconds.
	Ahead atomic.Int64

	// Probed is what repositories were tried with before they were registered.
	Probed []Probe

	mu    sync.Mutex
	users map[string]string // secret by "tenant/name"
}

func (h *Hub) now() time.Time { return time.Now().Add(time.Duration(h.Ahead.Load())) }

// A Buffer contains what was logged.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends a log line.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String is everything that was logged.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// rows lends the store's transactions to catalogue and feed.
type rows struct{ *store.DB }

func (r rows) InTenant(ctx context.Context, id hub.TenantID, do func(context.Context, transact.Tx) error) error {
	return r.DB.InTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Catalog(t)) })
}

func (r rows) ReadTenant(ctx context.Context, id hub.TenantID, do func(context.Context, transact.Tx) error) error {
	return r.DB.ReadTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Catalog(t)) })
}

func (r rows) Changes(ctx context.Context, id hub.TenantID, after string, limit int) (out []hub.Change, next string, err error) {
	err = r.DB.ReadTenant(ctx, id, func(ctx context.Context, t *store.Tenant) (err error) {
		out, next, err = t.Changes(ctx, after, limit)
		return err
	})
	return out, next, err
}

func (r rows) Cursor(ctx context.Context, id hub.TenantID) (cursor string, err error) {
	err = r.DB.ReadTenant(ctx, id, func(ctx context.Context, t *store.Tenant) (err error) {
		cursor, err = t.FeedCursor(ctx)
		return err
	})
	return cursor, err
}

type notifications struct{ feed *feed.Feed }

func (notifications) Wake(hub.ClusterID) {}
func (notifications) Due(string)         {}
func (notifications) Revoked()           {}

func (notifications) Credentials(hub.TenantID) {}

func (notifications) Arriving(hub.TenantID) (arrived func()) { return func() {} }

func (notifications) Alone(hub.TenantID) (through func(follows func())) {
	return func(follows func()) {
		if follows != nil {
			follows()
		}
	}
}

func (h notifications) Changed(tenant hub.TenantID) { h.feed.Notify(tenant) }

// inviter makes join tokens that begin with "join-".
type inviter struct{}

func (inviter) Invite() (token, prefix string, hash [32]byte, err error) {
	secret := identity.NewSecret(identity.SetupSecret)
	return "join-" + secret, secret[:8], identity.Hash(secret), nil
}

type noAgents struct{}

func (noAgents) Conn(context.Context, hub.Cluster) (grpc.ClientConnInterface, error) {
	return nil, fault.New(fault.Offline, "there are no agents")
}

// pushes is a webhook receiver for which the signature "right" is right.
// noPreviews renders nothing: there is no repository.
type noPreviews struct{}

func (noPreviews) Preview(context.Context, hub.TenantID, hub.ApplicationID, hub.Override) (hub.Preview, error) {
	return hub.Preview{}, fault.New(fault.Offline, "the repository has not been fetched yet")
}

func (noPreviews) PreviewUpload(context.Context, hub.TenantID, hub.ApplicationID, hub.Upload) (hub.Preview, error) {
	return hub.Preview{}, fault.New(fault.Offline, "there is no renderer")
}

func (noPreviews) PreviewUnsaved(context.Context, hub.TenantID, hub.Refresh) (hub.Preview, error) {
	return hub.Preview{}, fault.New(fault.Offline, "the repository has not been fetched yet")
}

type pushes struct{}

func (pushes) Receive(_ context.Context, header http.Header, _ []byte) error {
	if header.Get("X-Hub-Signature-256") != "right" {
		return fault.New(fault.Unknown, "the signature does not fit")
	}
	return nil
}

func config() api.Config {
	plenty := ratelimit.Rate{PerSecond: 10_000, Burst: 10_000}
	return api.Config{
		ExternalURL: "http://capstan.test",
		Console: fstest.MapFS{
			"index.html": {Data: []byte("<!doctype html><title>Capstan</title>")}, "assets/app-1a2b.js": {Data: []byte("console.log(1)")},
		},
		Rates:       ratelimit.Rates{SignIn: plenty, Caller: plenty, Tenant: plenty, Address: plenty},
		StreamCheck: 20 * time.Millisecond,
	}
}

// New starts a hub for one test, and ends it with the test.
func New(t testing.TB, change ...func(*api.Config)) *Hub {
	t.Helper()
	return NewOn(t, storetest.Database(t), change...)
}

// NewOn is New with a database that the test has made.
func NewOn(t testing.TB, urls storetest.URLs, change ...func(*api.Config)) *Hub {
	t.Helper()
	h := &Hub{T: t, DB: storetest.OpenURLs(t, urls.Config()), Superuser: urls.Superuser, Log: &Buffer{}, users: map[string]string{}}
	log := slog.New(slog.NewTextHandler(h.Log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	passwords, err := identity.NewPasswords(4)
	if err != nil {
		t.Fatal(err)
	}
	f := feed.New(rows{h.DB}, lifecycle.System{}, log)
	service := &transact.Service{Store: rows{h.DB}, Notify: notifications{f}, Now: h.now, Log: log, Cache: access.NewCache()}
	h.Catalog = catalog.New(catalog.Parts{
		Service: service, Tenancy: tenancy.New(service, h.DB.System(), h.DB.System()), Platform: platform.New(service, h.DB.System(), 0, h.DB.DefaultQuotas()), Pace: notifications{f}, Inviter: inviter{}, Permits: plan.Permits, Sets: h.generators(),
	})
	cfg := config()
	for _, c := range change {
		c(&cfg)
	}
	if h.Issuers, err = guard.Client([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, "", false); err != nil {
		t.Fatal(err)
	}
	messages := notifystore.New(h.DB, log, nil)
	sessions := identity.New(storeports.Identity(h.DB.System()), h.Catalog, passwords, identity.Config{Trust: time.Nanosecond}, log)
	s, err := api.New(cfg, api.Parts{
		Catalog: h.Catalog, Identity: sessions, Passwords: passwords, SignIn: sso.New(sso.Parts{
			Tenants: h.DB.System(), Requests: h.Catalog, People: h.Catalog, Claims: h.Catalog, Records: h.Catalog, Tests: h.Catalog, Sessions: sessions,
			Client: func(authorities string, skip bool) (*http.Client, error) {
				return guard.Client([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, authorities, skip)
			},
			Dial:    guard.Dialer([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}).DialContext,
			Console: cfg.ExternalURL, Log: log, Now: time.Now,
		}),
		Exchange: exchange.New(time.Now), ExchangeClient: h.Issuers,
		Feed: f, Relay: relay.New(noAgents{}), Logs: podlogs.New(relay.New(noAgents{})), Previews: noPreviews{}, Notifications: stage.NewTrial(messages, messages.Lookups, cfg.ExternalURL), Webhook: pushes{}, Probe: h.probe, Ready: h.DB.Ping, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	h.serve(s, f)
	return h
}

func (h *Hub) serve(handler http.Handler, f *feed.Feed) {
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = f.Run(ctx) })
	server := httptest.NewServer(handler)
	h.URL, h.Client = server.URL, server.Client()
	h.T.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
		done.Wait()
	})
}

// Tenant returns the id of a tenant, which it makes if need be.
func (h *Hub) Tenant(name string) hub.TenantID {
	h.T.Helper()
	t, err := h.DB.System().TenantByName(context.Background(), name)
	if fault.KindOf(err) == fault.Missing {
		return storetest.Tenant(h.T, h.DB, name)
	}
	if err != nil {
		h.T.Fatal(err)
	}
	return t.ID
}

// SetupLink returns the secret of a fresh setup link.
func (h *Hub) SetupLink(tenant string, roles ...string) string {
	h.T.Helper()
	secret := identity.NewSecret(identity.SetupSecret)
	link := hub.SetupLink{Hash: identity.Hash(secret), Tenant: h.Tenant(tenant), Roles: roles, ExpiresAt: time.Now().Add(time.Hour)}
	if err := h.DB.System().PutSetupLink(context.Background(), link); err != nil {
		h.T.Fatal(err)
	}
	return secret
}

// User returns the session secret of an account, which it makes if need be, the
// way people make theirs.
func (h *Hub) User(tenant, name string, roles ...string) string {
	h.T.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if secret, ok := h.users[tenant+"/"+name]; ok {
		return secret
	}
	secret, err := h.setUp(h.SetupLink(tenant, roles...), name)
	if err != nil {
		h.T.Fatal(err)
	}
	h.users[tenant+"/"+name] = secret
	return secret
}

func (h *Hub) setUp(link, name string) (string, error) {
	body, err := json.Marshal(map[string]any{"token": link, "username": name, "password": Password, "mode": "token"})
	if err != nil {
		return "", err
	}
	resp, err := h.Client.Post(h.URL+"/api/v1/setup", "application/json", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var in struct{ Token, Message string }
	if err := json.NewDecoder(resp.Body).Decode(&in); err != nil || in.Token == "" {
		return "", fmt.Errorf("set up account %s: %s (status %d, error %v)", name, in.Message, resp.StatusCode, err)
	}
	return in.Token, nil
}

// Admin may do everything in a tenant.
func (h *Hub) Admin(tenant string) string { return h.User(tenant, "admin", hub.RoleTenantAdmin) }

// probe records what a repository was tried with; a URL that ends in "away" is
// not reached.
func (h *Hub) probe(_ context.Context, tenant hub.TenantID, repo hub.Repository, cred hub.Credential) error {
	h.mu.Lock()
	h.Probed = append(h.Probed, Probe{tenant, repo, cred})
	h.mu.Unlock()
	if strings.HasSuffix(repo.URL, "away") {
		return fault.New(fault.Offline, "its host refuses the connection")
	}
	return nil
}

// A Probe is what a repository was tried with.
type Probe struct {
	Tenant     hub.TenantID
	Repository hub.Repository
	Credential hub.Credential
}
