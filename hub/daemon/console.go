package daemon

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/api/console"
	"github.com/capstan-cd/capstan/hub/api/rootpath"
	"github.com/capstan-cd/capstan/hub/bulk"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/platform"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/generate/loop"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/hub/objects"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/hub/relay"
	"github.com/capstan-cd/capstan/hub/relay/podlogs"
	"github.com/capstan-cd/capstan/hub/render/explore"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
	"github.com/capstan-cd/capstan/web"
)

const (
	// headerTime bounds how long a client may take to send a request's head;
	// pace bounds bodies.
	headerTime = 10 * time.Second
	idleTime   = 2 * time.Minute
	stopTime   = 10 * time.Second
)

// catalog makes the one write path.
func (p *parts) catalog() *catalog.Catalog {
	permits := func(r hub.Refresh, spec hub.ApplicationSpec) error { return plan.Permits(r, spec) }
	s := &transact.Service{Store: catalogStore{p.db}, Notify: notifications{p}, Now: time.Now, Log: p.log, Cache: p.rights}
	return catalog.New(catalog.Parts{
		Service: s, Tenancy: tenancy.New(s, p.db.System(), p.db.System()), Platform: platform.New(s, p.db.System(), time.Duration(p.cfg.Tenants.Grace), p.cfg.Tenants.Quotas), Pace: notifications{p}, Inviter: p.inviter, Permits: permits, Sets: p.generators,
	})
}

// hubObjects serves the objects of the hub that applications render.
func (p *parts) hubObjects() *objects.Server {
	return objects.New(p.catalog(), func(ctx context.Context, tenant hub.TenantID) (objects.Reader, error) {
		return p.feed.Read(ctx, tenant, "")
	}, caller, p.clock, p.log)
}

// addConsole builds what people and programs talk to.
func (p *parts) addConsole(ctx context.Context) error {
	passwords, err := identity.NewPasswords(max(1, runtime.NumCPU()/2))
	if err != nil {
		return err
	}
	cat := p.catalog()
	p.add("bulk requests", bulk.New(p.queue, cat, p.clock, p.log).Run)
	p.add("application sets", loop.New(p.queue, cat, p.clock, p.log).Run)
	hooks, err := p.newHooks()
	if err != nil {
		return err
	}
	pages, err := p.pages()
	if err != nil {
		return err
	}
	sessions := identity.New(storeports.Identity(p.db.System()), cat, passwords, identity.Config{}, p.log)
	signIn, err := p.signIn(cat, sessions)
	if err != nil {
		return err
	}
	p.identity.Store(sessions)
	issuers, err := p.issuers()
	if err != nil {
		return err
	}
	live := relay.New(p.replicas)
	p.api, err = api.New(api.Config{
		ExternalURL: p.cfg.publicURL(), Console: pages,
		TrustedProxies: p.proxies, Rates: p.cfg.Limits.rates(), AgentHelm: p.cfg.AgentChart.install(),
		EventBytes: p.cfg.Webhook.payload(),
	}, api.Parts{
		Catalog: cat, Identity: sessions, SignIn: signIn, Passwords: passwords,
		Exchange: exchange.New(time.Now), ExchangeClient: issuers,
		Feed: p.feed, Relay: live, Logs: podlogs.New(live), Previews: previews{p.stage, p.db}, Notifications: p.trial, Webhook: hooks, Probe: p.probe, Ready: p.health.Readiness, Alive: p.health.Liveness, Log: p.log,
		Metrics: face{p.instruments, p.monitor}, Quotas: p.rates, Sources: explore.New(p.sources, p.pool, p.plugins),
	})
	if err != nil {
		return err
	}
	ln, err := p.listen(ctx, portHTTP, p.cfg.Listen.HTTP)
	if err != nil {
		return err
	}
	p.add("api", func(ctx context.Context) error { return p.serveHTTP(ctx, ln) })
	return nil
}

// pages are the files of the console, with the operator's own style sheets.
func (p *parts) pages() (fs.FS, error) {
	files, err := web.Console()
	if err != nil || p.cfg.ConsoleStyles == "" {
		return files, err
	}
	folder, err := os.OpenRoot(p.cfg.ConsoleStyles)
	if err != nil {
		return nil, fault.Wrap(fault.Invalid, err, "consoleStyles: the folder %s cannot be read", p.cfg.ConsoleStyles)
	}
	return console.WithStyles(files, folder.FS()), nil
}

// serveHTTP answers until ctx ends. Streams end then, so that their clients
// come again elsewhere; requests under way end in peace.
func (p *parts) serveHTTP(ctx context.Context, ln net.Listener) error {
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	s := &http.Server{
		Handler: bodyPace().hold(p.leaving(p.front())), ConnState: p.connections.state, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return requests },
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	p.api.EndStreams()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := s.Shutdown(stop); err != nil {
		_ = s.Close()
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
		return err
	}
	return nil
}

// front serves the API and, on one path, the WebSocket of agents whose way
// to the hub lets through nothing but HTTP.
func (p *parts) front() http.Handler {
	root, _ := rootpath.Of(p.cfg.publicURL()) // the configuration was checked
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if root.Inside(r.URL.Path) == tunnel.WebSocketPath {
			p.webSocket.ServeHTTP(w, r)
			return
		}
		p.api.ServeHTTP(w, r)
	})
}
