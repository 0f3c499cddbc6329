// Package daemon is the composition root of the hub: the only place that
// builds its parts and introduces them to each other. It holds no rule of the
// product. The capstan-hub command and the integration tests call Run; when
// Run returns, nothing that it started is left.
package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"github.com/capstan-cd/capstan/shared/logkey"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/dispatch"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
	"github.com/capstan-cd/capstan/hub/feed"
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/hub/generate/inputs"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/metrics"
	"github.com/capstan-cd/capstan/hub/notify/stage"
	"github.com/capstan-cd/capstan/hub/observe"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/hub/quota"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/plugin"
	"github.com/capstan-cd/capstan/hub/render/scheduler"
	"github.com/capstan-cd/capstan/hub/replicas"
	"github.com/capstan-cd/capstan/hub/secret"
	"github.com/capstan-cd/capstan/hub/source"
	"github.com/capstan-cd/capstan/hub/source/accesstoken"
	"github.com/capstan-cd/capstan/hub/source/archives"
	"github.com/capstan-cd/capstan/hub/source/charts"
	"github.com/capstan-cd/capstan/hub/source/git"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/hub/source/web"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/upgrade"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/telemetry"
	"github.com/capstan-cd/capstan/shared/trace"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// parts is one hub while it is put together. Each add… method builds one
// subsystem from those before it.
type parts struct {
	cfg   Config
	log   *slog.Logger
	clock lifecycle.Clock

	replica  string      // id of this process
	stopping atomic.Bool // no new work, agents and clients are wanted

	db       *store.DB
	queue    *queue
	replicas *replicas.Replicas
	feed     *feed.Feed

	rates *quota.Rates
	trial *stage.Trial // of notifications

	pipeline
	agentSide
	webSide
	observers

	running []lifecycle.Part
}

// pipeline turns commits into rows of desired logs.
type pipeline struct {
	sources  *source.Registry
	mirrors  *git.Mirrors
	tokens   *accesstoken.Issuer
	probes   chan struct{}
	charts   *charts.Client
	archives map[hub.RepositoryKind]*archives.Source // of charts and OCI artifacts
	files    *web.Client
	pool     *scheduler.Pool
	stage    *render.Stage
	plugins  *plugin.Runner

	generators *inputs.Generator

	dispatch *dispatch.Dispatcher
	streams  *stream.Server
}

// agentSide is what agents connect to.
type agentSide struct {
	authority *fleet.Authority
	fleet     *fleet.Server
	inviter   fleet.Inviter
	webSocket http.Handler // takes agents that come through HTTP
}

// webSide is what users connect to.
type webSide struct {
	api         *api.Server
	identity    atomic.Pointer[identity.Service] // who is calling
	rights      *access.Cache                    // of all callers
	proxies     clientip.Proxies                 // whose word on where clients are counts
	connections *connections                     // to the HTTP listeners
}

// observers are what operators see of the process.
type observers struct {
	monitor     *lifecycle.Monitor
	health      *telemetry.Health
	instruments *metrics.Metrics
	tracer      *trace.Tracer
	metrics     *prometheus.Registry
}

// Run runs a hub until ctx ends.
func Run(ctx context.Context, cfg Config) error {
	log, level := newLogger(cfg.Log)
	p := &parts{cfg: cfg, replica: newReplicaID(cfg.Replica), clock: lifecycle.System{}, webSide: webSide{rights: access.NewCache()}}
	p.log = log.With(logkey.Replica, p.replica)
	var err error
	if p.proxies, err = clientip.ParseProxies(cfg.TrustedProxies); err != nil {
		return fault.Wrap(fault.Invalid, err, "trustedProxies is not valid")
	}
	p.connections = newConnections(cfg.Limits.ConnectionsPerAddress, p.proxies, p.log)
	if err := p.observe(ctx); err != nil {
		return err
	}
	defer p.tracer.Stop(ctx) //nolint:errcheck // the last spans are lost with their collector
	ctx = p.tracer.With(p.monitor.With(ctx))
	if err := p.addStore(ctx); err != nil {
		return err
	}
	defer p.db.Close()
	p.addLevel(level)
	for _, add := range []func(context.Context) error{p.addFeed, p.addReplicas, p.addRates, p.addPipeline, p.addNotifications, p.addAgents, p.addConsole, p.addMetrics, p.addCollector, p.addTenants, p.addMemory} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	p.log.InfoContext(ctx, "hub starts", logkey.HTTP, cfg.Listen.HTTP, logkey.Link, cfg.Listen.Link)
	err = p.runParts(ctx)
	p.log.InfoContext(context.WithoutCancel(ctx), "hub stopped")
	return err
}

// runParts runs all parts until ctx ends, and some time longer if others can
// take over meanwhile.
func (p *parts) runParts(ctx context.Context) error {
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	left := make(chan struct{})
	go func() {
		defer close(left)
		defer end()
		select {
		case <-ctx.Done():
			p.leave(running)
		case <-running.Done():
		}
	}()
	err := lifecycle.Run(running, p.running...)
	end()
	<-left
	return err
}

// Logger makes the log that a configuration asks for.
func Logger(cfg Log) *slog.Logger {
	log, _ := newLogger(cfg)
	return log
}

// newLogger returns the level too, which may be changed.
func newLogger(cfg Log) (*slog.Logger, *slog.LevelVar) {
	level := new(slog.LevelVar)
	level.Set(cfg.level())
	return telemetry.NewLog(os.Stderr, cfg.Format, level), level
}

func (p *parts) add(name string, do func(context.Context) error) {
	p.running = append(p.running, lifecycle.Part{Name: name, Run: do})
}

// open reads the master key and opens the database.
func open(ctx context.Context, cfg Config, log *slog.Logger) (*store.DB, error) {
	keys, err := secret.Load(cfg.MasterKey)
	if err != nil {
		return nil, err
	}
	db, err := store.Open(ctx, store.Config{
		AppURL: cfg.Database.App, SystemURL: cfg.Database.System, MaxConns: cfg.Database.MaxConns, Idle: time.Duration(cfg.Database.IdleTimeout),
		Sleep: max(time.Duration(cfg.Lease), leastSleep), Quotas: cfg.Tenants.Quotas,
	}, keys, log)
	if err != nil {
		return nil, err
	}
	if err := db.CheckKeys(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// atStart says what to do about a database that is away when the hub starts.
func atStart(err error) error {
	e, ok := fault.As(err)
	if !ok || e.Kind != fault.Offline {
		return err
	}
	c := *e
	c.Fix = "check that the database runs at that address, and the part `database` of the configuration file"
	return &c
}

func (p *parts) addStore(ctx context.Context) error {
	if p.cfg.Database.Owner != "" {
		if err := store.Migrate(ctx, p.cfg.Database.Owner, p.log); err != nil {
			return atStart(err)
		}
	}
	var err error
	if p.db, err = open(ctx, p.cfg, p.log); err != nil {
		return atStart(err)
	}
	p.queue = newQueue(p.db.System(), p.replica)
	p.queue.metrics, p.queue.leases.lease = p.instruments, p.lease()
	p.health.Ready("database", p.db.Ping)
	p.health.Ready("replica", p.wanted)
	p.add("leases", func(ctx context.Context) error { return p.queue.leases.renew(ctx, p.db.System(), p.log) })
	if _, err := p.db.System().Succeed(ctx, p.cfg.Replica, p.replica); err != nil {
		return fmt.Errorf("take up the work of the life before: %w", err)
	}
	return ensureDefault(ctx, p.db, p.cfg.Tenants.FirstID, p.log)
}

// defaultTenant exists in every installation.
const defaultTenant = "default"

// ensureDefault makes the tenant default with an id, or a new one, unless it is
// there.
func ensureDefault(ctx context.Context, db *store.DB, id string, log *slog.Logger) error {
	want := hub.TenantID(strings.ToLower(id))
	there, err := db.System().TenantByName(ctx, defaultTenant)
	if err == nil && want != "" && there.ID != want {
		log.WarnContext(ctx, "tenants.firstID counts for nothing, because the tenant default has another id already", logkey.Tenant, there.ID)
	}
	if fault.KindOf(err) != fault.Missing {
		return err
	}
	if want == "" {
		want = hub.NewID[hub.TenantID]()
	}
	err = db.System().CreateTenant(ctx, hub.Tenant{ID: want, Name: defaultTenant, CreatedAt: time.Now()})
	if fault.KindOf(err) == fault.Conflict {
		return nil // another replica was faster
	}
	return err
}

// SetupLink makes a link that makes an admin of the platform and of the
// tenant default, once, within an hour. Whoever can read the configuration
// and the master key may have one.
func SetupLink(ctx context.Context, cfg Config) (string, error) {
	db, err := open(ctx, cfg, Logger(cfg.Log))
	if err != nil {
		return "", err
	}
	defer db.Close()
	if err := ensureDefault(ctx, db, cfg.Tenants.FirstID, Logger(cfg.Log)); err != nil {
		return "", err
	}
	tenant, err := db.System().TenantByName(ctx, defaultTenant)
	if err != nil {
		return "", err
	}
	token := identity.NewSecret(identity.SetupSecret)
	err = db.System().PutSetupLink(ctx, hub.SetupLink{
		Hash: identity.Hash(token), Tenant: tenant.ID, Roles: []string{hub.RolePlatformAdmin, hub.RoleTenantAdmin},
		ExpiresAt: time.Now().Add(time.Hour),
	})
	return api.SetupLink(cfg.publicURL(), token), err
}

// Restored tells the hub that its database was restored from a backup. It
// gives how many clusters wait for an admin's decision from now on.
func Restored(ctx context.Context, cfg Config) (int, error) {
	db, err := open(ctx, cfg, Logger(cfg.Log))
	if err != nil {
		return 0, err
	}
	defer db.Close()
	return db.Restored(ctx, time.Now())
}

func (c Config) publicURL() string {
	if c.PublicURL != "" {
		return strings.TrimSuffix(c.PublicURL, "/")
	}
	return "http://" + c.Listen.HTTP
}

func (p *parts) addFeed(context.Context) error {
	p.feed = feed.New(feedLog{p.db}, p.clock, p.log)
	p.add("feed", p.feed.Run)
	return nil
}

// addSources builds a source for each kind of repositories that is served.
func (p *parts) addSources(networks []netip.Prefix) error {
	var err error
	ways := guard.Ways{Allowed: networks, Proxies: p.cfg.Sources.proxies()}
	p.probes = make(chan struct{}, maxProbes)
	p.tokens = newTokens(p.cfg.Sources, ways, p.db)
	p.mirrors, err = git.New(git.Config{
		Dir: filepath.Join(p.cfg.StateDir, "mirrors"), AllowedNetworks: networks, Proxies: ways.Proxies, Tokens: p.tokens, Observe: p.instruments.Git,
		ListTimeout: time.Duration(p.cfg.Sources.RequestTimeout), Attempts: p.cfg.Sources.Attempts,
	}, credentials{p.db}, p.clock, p.log)
	if err != nil {
		return err
	}
	p.mirrors.Opens(credentials{p.db}.AccessTo)
	if err := p.addArchives(networks); err != nil {
		return err
	}
	p.sources, err = source.NewRegistry(map[hub.RepositoryKind]source.Source{
		hub.GitRepository: p.mirrors, hub.HelmRepository: p.archives[hub.HelmRepository], hub.OCIRepository: p.archives[hub.OCIRepository],
	})
	if err != nil {
		return err
	}
	p.add("mirrors", p.mirrors.Run)
	return nil
}

// allowedNetworks are the internal networks that sources may be in.
func (p *parts) allowedNetworks() (networks []netip.Prefix, err error) {
	for _, cidr := range p.cfg.Sources.AllowPrivate {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fault.New(fault.Invalid, "sources.allowPrivate: %q is no network", cidr)
		}
		networks = append(networks, prefix)
	}
	return networks, nil
}

// addPipeline builds the way out: repositories, rendering, desired state.
func (p *parts) addPipeline(context.Context) error {
	networks, err := p.allowedNetworks()
	if err != nil {
		return err
	}
	if err := p.addSources(networks); err != nil {
		return err
	}
	p.pool, err = scheduler.NewPool(render.Config{
		Log: p.log, Workers: p.cfg.Render.Workers, Sandbox: p.cfg.Render.Sandbox, Waited: p.instruments.Waited,
		Limits: render.Limits{Timeout: time.Duration(p.cfg.Render.Timeout), CPU: time.Duration(p.cfg.Render.Timeout), Memory: int64(p.cfg.Render.MemoryMiB) << 20},
	})
	if err != nil {
		return err
	}
	own := dispatchStore{p.db, p.queue}
	p.streams = stream.New(streamStore{own}, p.changed, p.log)
	p.streams.Elsewhere(p.replicas.Wake)
	p.streams.Bursts(p.queue.pacer)
	p.dispatch = dispatch.New(own, p.queue, p.streams, p.changed, p.log)
	p.stage = render.NewStage(render.StageConfig{
		Parallel: max(2, cmp.Or(p.cfg.Render.Workers, runtime.NumCPU())), PauseAfter: p.cfg.Render.PauseAfter, Pause: time.Duration(p.cfg.Render.Pause),
		Poll: time.Duration(p.cfg.Sources.PollInterval),
	}, refreshWork{p.queue, p.db}, p.sources, p.dispatch, metered{p.pool, p.instruments, p.rates}, plan.Permits, p.log)
	p.stage.Verifies(p.mirrors)
	p.files = web.New(web.Config{AllowedNetworks: networks})
	p.stage.Reads(p.files)
	p.stage.Serves(p.charts, plan.PermitsRepository)
	p.stage.Borrows(p.mirrors)
	if err := p.addPlugins(networks); err != nil {
		return err
	}
	if err := p.addUploads(); err != nil {
		return err
	}
	if err := p.addGenerators(); err != nil {
		return err
	}
	fetching := newFetchWork(p.queue, p.db, p.log)
	fetches := source.NewLoop(source.LoopConfig{Interval: time.Duration(p.cfg.Sources.PollInterval), Parallel: p.cfg.Sources.Parallel}, fetching, p.sources, p.clock, p.log)
	p.add("plugins", p.plugins.Loop)
	p.add("render workers", p.pool.Run)
	p.add("dispatch", p.dispatch.Run)
	p.add("desired log streams", p.streams.Run)
	p.add("render", p.stage.Run)
	p.add("fetch", func(ctx context.Context) error { return fetching.run(ctx, fetches.Run) })
	p.add("upgrades", upgrade.New(p.queue, upgrades{p.db, p.changed}, p.replicas, p.clock, p.log).Run)
	return nil
}

// addPlugins lets applications use the plugins that the operator has declared.
func (p *parts) addPlugins(networks []netip.Prefix) (err error) {
	cfg := p.cfg.Render.Plugins
	p.plugins, err = plugin.New(plugin.Config{
		Folder: cfg.Folder, Read: cfg.Read, Path: cfg.Path, Temp: filepath.Join(p.cfg.StateDir, "plugins"), AllowedNetworks: networks, Unsafe: p.cfg.Render.Sandbox == render.SandboxNone,
		Limits: plugin.Limits{
			Timeout: time.Duration(cfg.Timeout), Grace: time.Duration(cfg.Grace), Memory: int64(cfg.MemoryMiB) << 20, Processes: cfg.Processes,
			Disk: int64(cfg.DiskMiB) << 20, Export: int64(cfg.ExportMiB) << 20,
		},
	})
	if err != nil {
		return err
	}
	p.plugins.Grants(func(ctx context.Context, tenant hub.TenantID, call render.PluginCall) (hub.Credential, string, error) {
		cred, err := credentials{p.db}.Credential(ctx, tenant, call.Repository.ID)
		return cred, call.Repository.URL, err
	})
	p.stage.Plugs(p.plugins)
	return nil
}

// addAgents builds the link and the way back.
func (p *parts) addAgents(ctx context.Context) error {
	system := p.db.System()
	pin, err := p.authority.Pin()
	if err != nil {
		return err
	}
	addresses := p.cfg.AgentHosts
	if len(addresses) == 0 {
		addresses = []string{p.cfg.Listen.Link}
	}
	p.inviter = fleet.Inviter{Addresses: addresses, Pin: pin}
	observed := observe.New(newObservations(p.db, p.queue, p.instruments), caller, observe.Notifier{
		Changed: p.changed, Over: func() { p.queue.notify(hub.WorkOutcome) },
		Wait: p.queue.pacer.Wait,
	}, p.log)
	p.fleet, err = fleet.New(fleet.Config{
		Authority: p.authority, Enrolments: system, Revocations: system, Presence: attachments{system, p}, Refusals: attachments{system, p}, Keys: linkKeys{p.db},
		Log: p.log, Replica: p.replica, Heartbeat: time.Duration(p.cfg.Heartbeat), Batch: p.attachmentLease() / 3,
		Admit: p.cfg.Limits.AgentsPerSecond, AdmitBurst: p.cfg.Limits.AgentBurst,
		Features: []string{tunnel.FeatureProbe, tunnel.FeatureUnsupported, observe.Buckets},
		Unary:    []grpc.UnaryServerInterceptor{p.instruments.Unary, p.caughtUnary, p.tracer.ServerUnary},
		Stream:   []tunnel.StreamWrapper{p.instruments.Stream, p.tracer.ServerStream}, Caught: p.caughtStream, Enrolled: p.instruments.Enrolled,
		Revoked: func() { p.replicas.Revoked() }, // made after this
		Control: func(r grpc.ServiceRegistrar) {
			linkv1.RegisterDesiredServer(r, p.streams.Desired(caller))
			linkv1.RegisterObservedServer(r, observed)
			linkv1.RegisterHubObjectsServer(r, p.hubObjects())
		},
		Bulk: func(r grpc.ServiceRegistrar) { linkv1.RegisterBlobsServer(r, p.streams.Blobs(caller)) },
	})
	if err != nil {
		return err
	}
	return p.listenLink(ctx, p.authority)
}

// listenLink shares the agents' port with browsers and the CLI over TLS.
func (p *parts) listenLink(ctx context.Context, authority *fleet.Authority) error {
	ln, err := p.listen(ctx, portLink, p.cfg.Listen.Link)
	if err != nil {
		return err
	}
	split := tunnel.Split(ln, tunnel.SplitConfig{Link: authority.TLS(), HTTP: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return authority.Certificate()
	}}, Client: p.proxies.Client, Log: p.log})
	// Parts stop last one first: the port closes after those that it serves.
	p.webSocket = split.WebSocket()
	p.add("link port", split.Run)
	p.add("agents", func(ctx context.Context) error { return p.fleet.Serve(ctx, split.Link()) })
	p.add("api over TLS", func(ctx context.Context) error { return p.serveHTTP(ctx, split.HTTP()) })
	return nil
}

// listen opens the port for people or for agents, behind trusted proxies if
// there are any that use the PROXY protocol.
func (p *parts) listen(ctx context.Context, port, address string) (net.Listener, error) {
	ln, err := listen(ctx, address)
	if err == nil && slices.Contains(p.cfg.ProxyProtocol, port) {
		ln = newProxyListener(ln, p.proxies, p.log)
	}
	return ln, err
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fault.With(fault.Wrap(fault.Invalid, err, "the hub cannot listen on %s", address), "", "another process may use the port; choose another in the configuration")
	}
	return ln, nil
}

func hostsOf(addresses []string) []string {
	var out []string
	for _, a := range addresses {
		if host, _, err := net.SplitHostPort(a); err == nil {
			out = append(out, host)
		}
	}
	return out
}

// attachments tells the feed when an agent comes or goes.
type attachments struct {
	*store.System
	p *parts
}

func (s attachments) Connected(ctx context.Context, a hub.Attachment) error {
	a.Lease = s.p.attachmentLease()
	if err := s.System.Connected(ctx, a); err != nil {
		return fmt.Errorf("record the agent of cluster %s: %w", a.Cluster, err)
	}
	s.p.changed(a.Tenant)
	s.p.due(hub.WorkRefresh)
	return nil
}

// Quarantine is told to the other replicas at once: one of them may hold the
// other of the two clusters.
func (s attachments) Quarantine(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, q hub.Quarantine) (fresh bool, err error) {
	if fresh, err = s.System.Quarantine(ctx, tenant, cluster, q); fresh {
		s.p.revoked()
	}
	return fresh, err
}

func (s attachments) Refused(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, r hub.Refusal) error {
	err := s.System.Refused(ctx, tenant, cluster, r)
	s.p.changed(tenant)
	return err
}

func (s attachments) Disconnected(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, session string) error {
	err := s.System.Disconnected(ctx, tenant, cluster, session)
	s.p.changed(tenant)
	return err
}
