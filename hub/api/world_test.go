package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/feed"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/hub/relay"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/run"
)

func TestMain(m *testing.M) { storetest.Main(m) }

const password = "correct horse battery"

// A world is one hub's HTTP face on a real store, without agents.
type world struct {
	t     *testing.T
	db    *store.DB
	super string // URL of the database for its superuser
	cat   *catalog.Catalog
	url   string
	http  *http.Client
	log   *buffer

	mu    sync.Mutex
	users map[string]string // bearer secret by "tenant/name"
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// rows lends the store's transactions to the catalogue.
type rows struct{ *store.DB }

func (r rows) InTenant(ctx context.Context, id hub.TenantID, do func(context.Context, catalog.Tx) error) error {
	return r.DB.InTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, t) })
}

func (r rows) ReadTenant(ctx context.Context, id hub.TenantID, do func(context.Context, catalog.Tx) error) error {
	return r.DB.ReadTenant(ctx, id, func(ctx context.Context, t *store.Tenant) error { return do(ctx, t) })
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

// deploys is dispatch, in the catalogue's transactions.
type deploys struct{}

func (deploys) Sync(ctx context.Context, tx catalog.Tx, app hub.ApplicationID, r hub.SyncRequest) (hub.Operation, error) {
	return dispatch.Sync(ctx, tx.(*store.Tenant), app, r)
}

func (deploys) Rollback(ctx context.Context, tx catalog.Tx, app hub.ApplicationID, r catalog.RollbackRequest) (hub.Operation, error) {
	return dispatch.Rollback(ctx, tx.(*store.Tenant), app, r.Entry, r.Reason, hub.OperationOptions{Prune: r.Prune}, r.Initiator)
}

func (deploys) Terminate(ctx context.Context, tx catalog.Tx, app hub.ApplicationID, by hub.Initiator) (hub.Operation, error) {
	return dispatch.Terminate(ctx, tx.(*store.Tenant), app, by)
}

func (deploys) Delete(ctx context.Context, tx catalog.Tx, app hub.ApplicationID, cascade bool, by hub.Initiator) ([]hub.ClusterID, error) {
	return dispatch.Delete(ctx, tx.(*store.Tenant), app, cascade, by)
}

type hints struct{ feed *feed.Feed }

func (hints) Wake(hub.ClusterID)            {}
func (hints) Due(string)                    {}
func (h hints) Changed(tenant hub.TenantID) { h.feed.Hint(tenant) }

type inviter struct{}

func (inviter) Invite() (token, prefix string, hash [32]byte, err error) {
	secret := identity.NewSecret(identity.SetupSecret)
	return "join-" + secret, secret[:8], identity.Hash(secret), nil
}

type noAgents struct{}

func (noAgents) Conn(hub.ClusterID) (grpc.ClientConnInterface, bool) { return nil, false }

// pushes is a webhook receiver whose secret is "right".
type pushes struct{}

func (pushes) Receive(_ context.Context, header http.Header, body []byte) (int, error) {
	if header.Get("X-Hub-Signature-256") != "right" {
		return 0, fault.New(fault.Unknown, "the signature does not fit")
	}
	return len(body), nil
}

func newWorld(t *testing.T, change ...func(*api.Config)) *world {
	t.Helper()
	urls := storetest.Database(t)
	db := storetest.OpenURLs(t, urls.Config())
	w := &world{t: t, db: db, super: urls.Superuser, users: map[string]string{}, log: &buffer{}}
	log := slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	passwords, err := identity.NewPasswords(4)
	if err != nil {
		t.Fatal(err)
	}
	f := feed.New(rows{db}, run.System{}, log)
	w.cat = catalog.New(catalog.Parts{
		Store: rows{db}, Directory: db.System(), Deployer: deploys{}, Hints: hints{f}, Inviter: inviter{}, Permits: plan.Permits, Now: time.Now, Log: log,
	})
	cfg := api.Config{
		ExternalURL: "http://capstan.test",
		Console: fstest.MapFS{
			"index.html": {Data: []byte("<!doctype html><title>Capstan</title>")}, "assets/app-1a2b.js": {Data: []byte("console.log(1)")},
		},
		Rates:       api.Rates{SignIn: api.Rate{PerSecond: 1000, Burst: 1000}, Caller: api.Rate{PerSecond: 10000, Burst: 10000}, Tenant: api.Rate{PerSecond: 10000, Burst: 10000}, Address: api.Rate{PerSecond: 10000, Burst: 10000}},
		StreamCheck: 20 * time.Millisecond,
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := api.New(cfg, api.Parts{
		Catalog: w.cat, Identity: identity.New(db.System(), w.cat, passwords, identity.Config{Trust: time.Nanosecond}, log), Passwords: passwords,
		Feed: f, Relay: relay.New(noAgents{}), Webhook: pushes{}, Ready: db.Ping, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { _ = f.Run(ctx) })
	server := httptest.NewServer(s)
	w.url, w.http = server.URL, server.Client()
	t.Cleanup(func() {
		cancel()
		server.CloseClientConnections()
		server.Close()
		done.Wait()
	})
	return w
}

// user gives the bearer secret of an account, which it makes if need be.
func (w *world) user(tenant, name string, roles ...string) string {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if secret, ok := w.users[tenant+"/"+name]; ok {
		return secret
	}
	ctx := context.Background()
	t, err := w.db.System().TenantByName(ctx, tenant)
	if fault.KindOf(err) == fault.Missing {
		t.ID, err = storetest.Tenant(w.t, w.db, tenant), nil
	}
	if err != nil {
		w.t.Fatal(err)
	}
	link := identity.NewSecret(identity.SetupSecret)
	err = w.db.System().PutSetupLink(ctx, hub.SetupLink{Hash: identity.Hash(link), Tenant: t.ID, Roles: roles, ExpiresAt: time.Now().Add(time.Hour)})
	if err != nil {
		w.t.Fatal(err)
	}
	var in struct{ Token string }
	w.call("", "POST", "/api/v1/setup", map[string]any{"token": link, "username": name, "password": password, "mode": "token"}).ok(200).into(&in)
	w.users[tenant+"/"+name] = in.Token
	return in.Token
}

// admin may do everything in a tenant.
func (w *world) admin(tenant string) string { return w.user(tenant, "admin", hub.RoleTenantAdmin) }

// An answer is what the face said.
type answer struct {
	w      *world
	what   string
	status int
	header http.Header
	body   []byte
}

type option func(*http.Request)

func header(key, value string) option { return func(r *http.Request) { r.Header.Set(key, value) } }

// call sends a request as whoever the secret belongs to. A body that is a
// string goes as it is, as YAML; others as JSON.
func (w *world) call(secret, method, path string, body any, options ...option) answer {
	w.t.Helper()
	var reader io.Reader
	kind := ""
	switch b := body.(type) {
	case nil:
	case string:
		reader, kind = strings.NewReader(b), "application/yaml"
	default:
		text, err := json.Marshal(b)
		if err != nil {
			w.t.Fatal(err)
		}
		reader, kind = bytes.NewReader(text), "application/json"
	}
	r, err := http.NewRequest(method, w.url+path, reader)
	if err != nil {
		w.t.Fatal(err)
	}
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	for _, o := range options {
		o(r)
	}
	resp, err := w.http.Do(r)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{w, method + " " + path, resp.StatusCode, resp.Header, text}
}

// ok ends the test unless the status is the one that is wanted.
func (a answer) ok(status int) answer {
	a.w.t.Helper()
	if a.status != status {
		a.w.t.Fatalf("%s: status %d, want %d: %s\n%s", a.what, a.status, status, a.body, tail(a.w.log.String()))
	}
	return a
}

func tail(s string) string { return s[max(0, len(s)-1500):] }

func (a answer) into(v any) answer {
	a.w.t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		a.w.t.Fatalf("%s: %v in %s", a.what, err, a.body)
	}
	return a
}

// problem is the one shape of errors.
type problem struct {
	Code, Message, Object, Cause, Fix string
	DocURL                            string `json:"doc_url"`
	Retryable                         bool
	RequestID                         string `json:"request_id"`
}

// fails checks that the answer is an error in the one shape, and gives it.
func (a answer) fails(status int) problem {
	a.w.t.Helper()
	a.ok(status)
	var p problem
	a.into(&p)
	if !strings.HasPrefix(p.Code, "CAP-") || p.Message == "" || p.RequestID == "" || p.RequestID != a.header.Get("X-Request-Id") {
		a.w.t.Errorf("%s: the error lacks something: %s", a.what, a.body)
	}
	return p
}

// application is the body of a small application.
func application(name string, change ...func(spec map[string]any)) map[string]any {
	spec := map[string]any{
		"project":     "default",
		"source":      map[string]any{"repoURL": "https://git.example.com/team/repo.git", "path": "apps/" + name, "targetRevision": "main"},
		"destination": map[string]any{"server": "https://kubernetes.default.svc", "namespace": name},
	}
	for _, c := range change {
		c(spec)
	}
	return map[string]any{"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": map[string]any{"name": name, "namespace": "argocd"}, "spec": spec}
}

func jar(t *testing.T) http.CookieJar {
	t.Helper()
	j, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return j
}
