package daemon

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/capstan-cd/capstan/agent/actions"
	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/agent/hubobjects"
	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/kubeevent"
	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/agent/live"
	"github.com/capstan-cd/capstan/agent/relay"
	"github.com/capstan-cd/capstan/agent/remote"
	"github.com/capstan-cd/capstan/agent/report"
	"github.com/capstan-cd/capstan/agent/rule"
	"github.com/capstan-cd/capstan/agent/secrets"
	"github.com/capstan-cd/capstan/agent/settings"
	"github.com/capstan-cd/capstan/agent/upgrade"
	"github.com/capstan-cd/capstan/agent/watch"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/manifest"
	"github.com/capstan-cd/capstan/shared/tunnel"
	"github.com/capstan-cd/capstan/shared/version"
)

// Run runs an agent until ctx ends, then stops it in order and returns nil. A
// running operation continues after the next start.
func Run(ctx context.Context, c Config) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	conf, err := c.rest()
	if err != nil {
		return err
	}
	guard, err := c.guard()
	if err != nil {
		return err
	}
	policy, err := c.secretsPolicy()
	if err != nil {
		return err
	}
	t, err := newInstruments(ctx, c)
	if err != nil {
		return err
	}
	defer t.close(ctx)
	ctx = t.tracer.With(t.monitor.With(ctx))
	conf.Wrap(t.metrics.Wrap)
	k, err := connect(conf)
	if err != nil {
		return err
	}
	defer k.http.CloseIdleConnections()
	store, err := inventory.Open(c.StateDir)
	if err != nil {
		return err
	}
	defer func() {
		if e := store.Close(); err == nil && e != nil {
			err = fmt.Errorf("close the inventory: %w", e)
		}
	}()
	secret, err := openSecret(ctx, c, newVault(k.dynamic, c.Namespace))
	if err != nil || secret == nil {
		return err
	}
	store.Guard(secret.Cursor())
	resolver, err := secrets.New(secrets.Config{Policy: policy, Home: c.Namespace, Keys: clusterSecrets(k.dynamic)})
	if err != nil {
		return err
	}
	a := assemble(c, k, owner{guard, resolver}, store, secret, t)
	a.addStats()
	return lifecycle.Run(ctx, append(t.parts(c), a.parts()...)...)
}

// openSecret reads the agent's Secret and waits for an unreachable API server.
// It returns nil when ctx ends first.
func openSecret(ctx context.Context, c Config, v *vault) (*inventory.Secret, error) {
	back := lifecycle.Backoff{First: 500 * time.Millisecond, Max: 10 * time.Second}
	for {
		s, err := inventory.OpenSecret(ctx, v, c.Log)
		if err == nil {
			return s, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if !temporary(err) {
			return nil, err
		}
		c.Log.WarnContext(ctx, "waiting for the API server", logkey.Error, err)
		if lifecycle.Sleep(ctx, lifecycle.System{}, back.Next()) != nil {
			return nil, nil
		}
	}
}

// kubernetes contains the clients of the cluster, with one connection pool.
type kubernetes struct {
	http    *http.Client
	as      func(user string) (dynamic.Interface, error) // a client that acts as a user
	dynamic dynamic.Interface
	slim    dynamic.Interface // reads only metadata
	api     *watch.API
	base    *url.URL // of the API server
	conf    *rest.Config
}

func connect(conf *rest.Config) (kubernetes, error) {
	conf.WarningHandler, conf.WarningHandlerWithContext = nil, watch.Warnings{}
	if file := conf.BearerTokenFile; file != "" {
		// A refused token is read again at once; the client's own refresh
		// continues to use it for up to a minute.
		conf.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedFileTokenSource(file)))
		conf.BearerToken, conf.BearerTokenFile = "", ""
	}
	client, err := rest.HTTPClientFor(conf)
	if err != nil {
		return kubernetes{}, fmt.Errorf("prepare the connection to the API server: %w", err)
	}
	dyn, err := dynamic.NewForConfigAndClient(conf, client)
	if err != nil {
		return kubernetes{}, fmt.Errorf("prepare the connection to the API server: %w", err)
	}
	slim := *client
	slim.Transport = watch.MetadataOnly(client.Transport)
	metadata, err := dynamic.NewForConfigAndClient(conf, &slim)
	if err != nil {
		return kubernetes{}, fmt.Errorf("prepare the connection to the API server: %w", err)
	}
	base, _, err := rest.DefaultServerUrlFor(conf)
	if err != nil {
		return kubernetes{}, fmt.Errorf("prepare the connection to the API server: %w", err)
	}
	as := func(user string) (dynamic.Interface, error) {
		own := *client // the connections are shared
		own.Transport = transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: user}, client.Transport)
		return dynamic.NewForConfigAndClient(conf, &own)
	}
	return kubernetes{as: as, http: client, dynamic: dyn, slim: metadata, api: watch.NewAPI(client, base), base: base, conf: conf}, nil
}

// agent is the assembled parts.
type agent struct {
	Config
	instruments *instruments
	kube        kubernetes
	store       *inventory.Store
	secret      *inventory.Secret
	mapper      *watch.RESTMapper
	outbox      *report.Outbox
	tree        *watch.Tree
	engine      *apply.Engine
	guard       apply.Guard
	watcher     *watch.Informers
	hub         *hubobjects.Objects
	orphans     *watch.Informers
	lease       *apply.Lease
	actions     *actions.Server
	live        *live.Server
	events      *kubeevent.Recorder
	epoch       string
	conn        connection
	settings    tenantSettings
}

// connection is what the parts share of the connection to the hub.
type connection struct {
	link     atomic.Pointer[link.Client]
	caughtUp atomic.Bool // the first barrier was reached
	plain    atomic.Bool // rows could not be unpacked: request complete ones
}

// tenantSettings are the settings that the hub sends, and what is made of them.
type tenantSettings struct {
	current *settings.Current
	rules   *rule.Rules
	engine  atomic.Pointer[apply.Settings]
}

// owner is what the cluster's owner has decided.
type owner struct {
	guard   apply.Guard
	secrets *secrets.Resolver
}

func assemble(c Config, k kubernetes, own owner, store *inventory.Store, secret *inventory.Secret, t *instruments) *agent {
	a := &agent{Config: c, instruments: t, kube: k, store: store, secret: secret, epoch: epoch(), mapper: watch.NewMapper(k.api), guard: own.guard}
	a.settings.current = settings.New(store.Settings())
	a.settings.rules = rule.New(healthScripts(a.settings.current))
	a.actions = actions.New(cluster{a}, actionScripts(a.settings.current), func() []string { return a.engine.Hidden() }, c.Log)
	a.customize()
	a.outbox = report.New(a.epoch, lifecycle.System{}, a.delivered, c.Log)
	a.live = live.New(live.Config{Cluster: cluster{a}, Client: k.http, Base: k.base, Log: c.Log})
	a.tree = watch.NewTree(a.assessHealth, children{a})
	a.tree.Exclude(a.settings.current.Get().ExcludedChild)
	a.tree.Label(a.settings.current.Get().CustomLabels())
	a.lease = apply.NewLease(k.dynamic, c.Namespace, store.Instance(), lifecycle.System{}, c.Log)
	a.events = kubeevent.New(kubeevent.Config{Client: k.dynamic, Home: c.Namespace, Reasons: a.eventReasons, Write: a.lease.Check, Log: c.Log})
	a.hub = hubobjects.New(a.control, lifecycle.System{}, c.Log)
	a.engine = apply.New(apply.Config{
		Hub: a.hub, Client: k.dynamic, As: k.as, Mapper: a.mapper, Inventory: store, Secret: secret, Reports: a.outbox, Tree: a.tree,
		Blobs: blobs{a}, Lease: a.lease.Check, Health: a.assessHealth, Columns: a.columns, Links: watch.Links, Log: c.Log,
		Offset: a.offset, Guard: own.guard, Secrets: own.secrets, Manager: c.FieldManager, Metrics: t.metrics,
		Excluded: func(group, kind string) bool { return a.settings.current.Get().Excluded(group, kind) },
		Settings: func() apply.Settings { return *a.settings.engine.Load() },
		Happened: func(h apply.Happening) { a.events.Record(kubeevent.Event(h)) },
	})
	a.watcher = watch.New(k.dynamic, a.mapper, t.metrics.Watching(a.engine), a.tree, c.Log, c.Namespaces...)
	a.orphans = watch.New(k.slim, a.mapper, a.engine.Orphans(), nil, c.Log, c.Namespaces...)
	a.watcher.LeaveOut(a.respect, k.dynamic)
	a.orphans.LeaveOut(a.respect, k.dynamic)
	a.orphans.Bound(16, 500) // of all served kinds, which may be thousands
	a.lease.Undone(func(ctx context.Context) {
		c.Log.WarnContext(ctx, "the cluster has lost confirmed writes, as after a restore of its etcd; everything is listed again")
		a.watcher.Undone()
		a.orphans.Undone()
	})
	return a
}

// eventReasons are those of the Kubernetes events that are written. In mode
// observe, none are written.
func (a *agent) eventReasons() []string {
	if a.Mode == ModeObserve {
		return nil
	}
	return a.settings.current.Get().EventReasons()
}

// parts are the running parts, in the order in which they start.
func (a *agent) parts() []lifecycle.Part {
	return []lifecycle.Part{
		{Name: "inventory", Run: a.store.Run},
		{Name: "secret", Run: a.secret.Run},
		{Name: "lease", Run: a.lease.Run},
		{Name: "events", Run: a.events.Run},
		{Name: "engine", Run: func(ctx context.Context) error { return a.engine.Run(ctx, a.watcher) }},
		{Name: "references to secrets", Run: a.engine.RunSecrets},
		{Name: "watches", Run: a.watcher.Run},
		{Name: "objects of the hub", Run: func(ctx context.Context) error { return a.hub.Run(ctx, a.instruments.metrics.Watching(a.engine)) }},
		{Name: "orphans", Run: func(ctx context.Context) error { return a.engine.Orphans().Run(ctx, a.orphans) }},
		{Name: "watches of orphans", Run: a.orphans.Run},
		{Name: "first snapshot", Run: a.firstSnapshot, Once: true},
		{Name: "lines of failed pods", Run: a.live.Run},
		{Name: "link", Run: a.attach},
	}
}

// firstSnapshot starts the outbox's snapshot once the whole desired log was
// received and processed.
func (a *agent) firstSnapshot(ctx context.Context) error {
	const pollEvery = 50 * time.Millisecond
	for !(a.conn.caughtUp.Load() || a.store.Cursor().Incarnation != "") || !a.engine.Ready() {
		if lifecycle.Sleep(ctx, lifecycle.System{}, pollEvery) != nil {
			return nil
		}
	}
	a.outbox.Ready()
	return nil
}

// attach enrols if needed, and maintains the link to the hub.
func (a *agent) attach(ctx context.Context) error {
	token, err := a.token()
	if err != nil {
		return err
	}
	proxy, err := a.Proxy()
	if err != nil {
		return err
	}
	vault, facts := identities{a.secret}, &clusterFacts{kube: a.kube, mapper: a.mapper}
	before, _ := vault.Load(ctx) // Enroll reports what is wrong with it
	id, err := link.Enroll(ctx, token, link.EnrolConfig{Vault: vault, Cluster: facts, Log: a.Log, Version: version.String(), Proxy: proxy, Dial: a.Dial})
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("enrol: %w", err)
	}
	a.customize() // the tenant is known now
	a.logIdentity(ctx, before, id, token != "")
	client, err := link.New(link.Config{
		Vault: vault, Cluster: facts, Desired: desired{a}, Reports: a.outbox, Sessions: sessions{a}, Load: a.load,
		Epoch: a.epoch, Log: a.Log, Version: version.String(), Proxy: proxy, Dial: a.Dial, Instance: a.store.Instance(), Revoked: a.revoked,
		Watchdog: a.Watchdog, Features: []string{tunnel.FeatureUnsupported, manifest.ResolveFeature}, Upgrades: a.Upgrades,
		Unary:  []grpc.UnaryServerInterceptor{a.instruments.caught, a.instruments.tracer.ServerUnary},
		Caught: a.instruments.caughtStream,
		Serve: func(r grpc.ServiceRegistrar) {
			linkv1.RegisterOpsServer(r, relay.New(cluster{a}, cluster{a}, cluster{a}, cluster{a}, func() []byte { return a.secret.Keys().Mask }, a.engine.Hidden))
			linkv1.RegisterActsServer(r, a.actions)
			linkv1.RegisterLiveServer(r, a.live)
			linkv1.RegisterRemoteServer(r, remote.New(remote.Config{
				Cluster: cluster{a}, Policy: ownersPolicy{a.guard}, REST: a.kube.conf, Base: a.kube.base, Mode: a.mode(), Namespaces: a.Namespaces,
			}))
			linkv1.RegisterUpgradesServer(r, &upgrade.Server{
				Allowed: a.Upgrades, Repositories: a.UpgradeRepositories, Client: a.kube.dynamic, Namespace: a.Namespace, Clock: lifecycle.System{}, Log: a.Log,
			})
		},
	})
	if err != nil {
		return err
	}
	a.conn.link.Store(client)
	return client.Run(ctx)
}

// logIdentity logs where the identity comes from: a used join token does not
// enrol again.
func (a *agent) logIdentity(ctx context.Context, before, id link.Identity, token bool) {
	text := "agent enrolled"
	if before.AgentID != "" && before.AgentID == id.AgentID {
		text = "identity taken from Secret " + a.Namespace + "/" + inventory.SecretName
		if token {
			text += "; the join token is not used"
		}
	}
	a.Log.InfoContext(ctx, text, logkey.Agent, id.AgentID, logkey.Cluster, id.ClusterName) //nolint:sloglint // one of three texts, with the name of a Secret
}

// offset is the hub's time minus the agent's, as a session has reported it.
func (a *agent) offset() time.Duration {
	if client := a.conn.link.Load(); client != nil {
		return time.Until(client.HubNow())
	}
	return 0
}

// control is the connection to the hub, if there is one.
func (a *agent) control(ctx context.Context) (grpc.ClientConnInterface, error) {
	client := a.conn.link.Load()
	if client == nil || !client.State().Connected {
		return nil, fault.New(fault.Offline, "the agent is not connected to the hub")
	}
	return client.Control(ctx)
}

func (a *agent) load() link.Load {
	return link.Load{
		Backlog: a.outbox.Backlog(), Lag: a.outbox.Lag(), Seq: a.store.Cursor().Seq, Leader: a.lease.Check() == nil, Incomplete: !a.outbox.Complete(),
	}
}

// revoked are the revocations that the hub has sent.
func (a *agent) revoked() []*linkv1.Revoked {
	held := a.secret.Revoked()
	out := make([]*linkv1.Revoked, len(held))
	for i, r := range held {
		out[i] = &linkv1.Revoked{AgentId: r.AgentID, UntilUnix: r.Until, Proof: r.Proof}
	}
	return out
}

// delivered is called when the hub has the result of an operation.
func (a *agent) delivered(operation string) {
	failpoint.Here(failpoint.AgentDeliveredLate)
	if _, err := a.store.Delivered(operation); err != nil {
		a.Log.Debug("unknown result acknowledged", logkey.Operation, operation, logkey.Error, err)
	}
}

// epoch identifies this run of the process.
func epoch() string {
	var raw [8]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
}

func userAgentVersion() string { return version.Number }
