package daemon

import (
	"context"
	"errors"
	"net"
	"net/http"
	"runtime"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/catalog/platform"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/objects"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/hub/relay"
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
		Service: s, Tenancy: tenancy.New(s, p.db.System(), p.db.System()), Platform: platform.New(s, p.db.System(), time.Duration(p.cfg.Tenants.Grace), p.cfg.Tenants.Quotas), Pace: notifications{p}, Inviter: p.inviter, Permits: permits,
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
	hooks, err := p.newHooks()
	if err != nil {
		return err
	}
	console, err := web.Console()
	if err != nil {
		return err
	}
	p.api, err = api.New(api.Config{
		ExternalURL: p.cfg.publicURL(), Console: console,
		TrustedProxies: p.proxies, Rates: p.cfg.Limits.rates(), AgentHelm: p.cfg.AgentChart.install(),
	}, api.Parts{
		Catalog: cat, Identity: identity.New(storeports.Identity(p.db.System()), cat, passwords, identity.Config{}, p.log), Passwords: passwords,
		Feed: p.feed, Relay: relay.New(p.replicas), Webhook: hooks, Ready: p.health.Readiness, Alive: p.health.Liveness, Log: p.log,
		Metrics: face{p.instruments, p.monitor}, Quotas: p.rates,
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
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == tunnel.WebSocketPath {
			p.webSocket.ServeHTTP(w, r)
			return
		}
		p.api.ServeHTTP(w, r)
	})
}
