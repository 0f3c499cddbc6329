// Package api is the hub's HTTP API: openapi.yaml defines it, the generated
// server binds it, and the handlers parse, call and present. It decides
// nothing: rights and writes belong to the catalog, authentication to identity.
// The daemon serves it; browsers, CLI and programs call it.
//
// Every request to a path of the document is validated against it. A caller is
// authenticated before a handler that needs one runs. Every error has the same
// shape, and no response contains a stored secret.
package api

import (
	"bytes"
	"context"
	_ "embed"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/labstack/echo/v4"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sync/singleflight"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/admin"
	"github.com/capstan-cd/capstan/hub/api/appsets"
	"github.com/capstan-cd/capstan/hub/api/clients"
	"github.com/capstan-cd/capstan/hub/api/console"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/api/openapi"
	"github.com/capstan-cd/capstan/hub/api/ratelimit"
	"github.com/capstan-cd/capstan/hub/api/reference"
	"github.com/capstan-cd/capstan/hub/api/rootpath"
	"github.com/capstan-cd/capstan/hub/api/trust"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/feed"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/hub/identity/sso"
	"github.com/capstan-cd/capstan/hub/relay"
	"github.com/capstan-cd/capstan/hub/relay/podlogs"
	"github.com/capstan-cd/capstan/shared/clientip"
)

//go:generate oapi-codegen --config gen/server.cfg.yaml openapi.yaml

//go:embed openapi.yaml
var document []byte

// Config sets the face's manners. Zero fields mean their defaults.
type Config struct {
	// ExternalURL is how people reach the hub, such as
	// https://capstan.example.com or https://example.com/capstan; setup links
	// begin with it, and browsers may write only from it.
	ExternalURL string
	// TrustedProxies may say in X-Forwarded-For who is calling.
	TrustedProxies clientip.Proxies
	// Console is the browser application; nil: none.
	Console fs.FS
	// DocsURL is where error codes are explained; empty: nowhere.
	DocsURL string
	// Rates of requests in a second, and how many may come at once.
	Rates ratelimit.Rates
	// AgentCommand and AgentHelm are what an enrolment shows to start an
	// agent; {token} and {cluster} are filled in. No AgentHelm: none is shown.
	AgentCommand string
	AgentHelm    string
	// StreamCheck is how often a stream asks whether its caller still may
	// listen; default one second.
	StreamCheck time.Duration
	// EventBytes is the size up to which an event of a Git host is read;
	// default 25 MiB.
	EventBytes int64
}

// Validate reports every problem at once.
func (c Config) Validate() error {
	_, err := rootpath.Of(c.ExternalURL)
	return err
}

func (c Config) withDefaults() Config {
	if c.StreamCheck == 0 {
		c.StreamCheck = time.Second
	}
	if c.AgentCommand == "" {
		c.AgentCommand = "capstan-agent run --kubeconfig \"${KUBECONFIG:-$HOME/.kube/config}\" --state-dir \"$HOME/.local/state/capstan-agent\" --join-token-file <(printf %s {token})"
	}
	if c.EventBytes == 0 {
		c.EventBytes = 25 << 20
	}
	c.Rates = c.Rates.WithDefaults()
	return c
}

// Webhook receives push events of Git hosts: it checks the signature, and has
// the repositories fetched that are meant. Nothing that it returns may depend
// on repositories of tenants whose secret has not signed the event.
type Webhook interface {
	Receive(ctx context.Context, header http.Header, body []byte) error
}

// Parts are what the face works with. All are required.
type Parts struct {
	Catalog  *catalog.Catalog
	Identity *identity.Service
	SignIn   *sso.Service
	// Exchange verifies tokens of other issuers, whom it asks with the client.
	Exchange       *exchange.Verifier
	ExchangeClient *http.Client
	Passwords      *identity.Passwords
	Feed           *feed.Feed
	Relay          *relay.Relay
	Logs           *podlogs.Service
	Previews       Previews
	Notifications  Notifications
	Webhook        Webhook
	Probe          Prober                          // nil: nothing is tested
	Ready          func(ctx context.Context) error // nil error: the hub can serve
	Alive          func(ctx context.Context) error // nil error: the process works; nil: it always does
	Log            *slog.Logger
	// Metrics counts each response; nil: none.
	Metrics Metrics
	// Quotas limits the requests of tenants; nil: none.
	Quotas Quotas
	// Sources looks into repositories; nil: nothing does.
	Sources clients.Sources
}

// Previews renders applications at other revisions, and stores nothing.
type Previews interface {
	Preview(ctx context.Context, tenant hub.TenantID, app hub.ApplicationID, o hub.Override) (hub.Preview, error)
	// PreviewUpload has files of the caller in the place of one source.
	PreviewUpload(ctx context.Context, tenant hub.TenantID, app hub.ApplicationID, u hub.Upload) (hub.Preview, error)
	// PreviewUnsaved is of an application that need not be stored; the settings
	// of the tenant are filled in.
	PreviewUnsaved(ctx context.Context, tenant hub.TenantID, r hub.Refresh) (hub.Preview, error)
}

// Quotas limits how many requests a tenant may send.
type Quotas interface {
	// Request counts one. The error is fault.Exceeded if there are too many.
	Request(ctx context.Context, tenant hub.TenantID) error
	// Forget has limits read anew that have changed.
	Forget(tenant hub.TenantID)
}

// A Metrics counts answers. The route is a pattern of the document, never the
// address that was asked for.
type Metrics interface {
	Request(route, method, code string, took time.Duration)
	Login(ok bool)
	Webhook(ok bool)
	Caught(ctx context.Context, where string, value any)
}

// A Server is the HTTP face of one replica. Many goroutines may use it.
type Server struct {
	Parts
	*admin.Handlers
	*clients.Answers
	*trust.Keys
	*appsets.Sets
	cfg        Config
	external   *url.URL
	root       rootpath.Path                 // of external
	document   []byte                        // openapi.yaml, as it is at this address
	operations map[string]*openapi.Operation // by method and echo path
	streamed   []*openapi.Operation          // those that answer with a stream
	reference  reference.Reference
	limits     *ratelimit.Limits
	streams    streams
	checks     singleflight.Group // of what streams may go on with
	versions   policyVersions
	strangers  anonymousTenants
	events     *semaphore.Weighted // bytes of large events
	echo       *echo.Echo
}

// New makes the face. It reads and checks the document, so an error means a
// defect of this program or a bad configuration.
func New(cfg Config, parts Parts) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	external, err := url.Parse(cfg.ExternalURL)
	if err != nil {
		return nil, err
	}
	root, err := rootpath.Of(cfg.ExternalURL)
	if err != nil {
		return nil, err
	}
	operations, err := openapi.Read(document)
	if err != nil {
		return nil, err
	}
	served := bytes.Replace(document, []byte(documentServer+"/\n"), []byte(documentServer+root.Cookie()+"\n"), 1)
	shown, err := reference.New(served)
	if err != nil {
		return nil, err
	}
	s := &Server{Parts: parts, Handlers: admin.New(parts.Catalog, parts.Identity, callerOf, parts.Quotas), Answers: clients.New(parts.Catalog, cfg.ExternalURL, callerOf, parts.Sources), Keys: trust.New(parts.Catalog, callerOf), Sets: appsets.New(parts.Catalog, callerOf, expected), cfg: cfg, external: external, root: root, document: served, operations: operations, reference: shown, limits: ratelimit.New(cfg.Rates), events: semaphore.NewWeighted(max(largeEvents, cfg.EventBytes))}
	for _, o := range operations {
		if o.Stream {
			s.streamed = append(s.streamed, o)
		}
	}
	s.streams.held, s.streams.over = map[string]int{}, make(chan struct{})
	s.echo = s.routes()
	return s, root.Free(s.addresses())
}

// documentServer is the line of openapi.yaml with the path of the hub.
const documentServer = "servers:\n  - url: "

// addresses are patterns of everything that is served.
func (s *Server) addresses() []string {
	var out []string
	for _, r := range s.echo.Routes() {
		out = append(out, r.Path)
	}
	if s.cfg.Console == nil {
		return out
	}
	files, err := fs.ReadDir(s.cfg.Console, ".")
	if err != nil {
		return out // a console without files has no addresses
	}
	for _, f := range files {
		out = append(out, "/"+f.Name())
	}
	return out
}

// ServeHTTP answers one request. HEAD is GET without a body, which the HTTP
// server leaves out.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if len(r.TransferEncoding) > 0 {
		// A proxy may read the end of a request in chunks elsewhere, if that has a
		// length, too (RFC 9112, 6.1). The library drops such a length before
		// anybody sees it, so nothing after chunks is read as a request.
		w.Header().Set("Connection", "close")
	}
	r, bare := s.root.Cut(r)
	if bare {
		to := url.URL{Path: s.root.Under("/"), RawQuery: r.URL.RawQuery}
		http.Redirect(w, r, to.String(), http.StatusPermanentRedirect)
		return
	}
	if r.Method == http.MethodHead && !s.endless(r.URL.Path) {
		r = r.Clone(r.Context())
		r.Method = http.MethodGet
	}
	s.echo.ServeHTTP(w, r)
}

// routes binds the generated server behind the layers that every request
// passes, outermost first.
func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = s.failed
	e.Pre(slashedObject)
	e.Use(s.identify, s.observed, s.recovered, s.headers, s.options, compressed(s.endless))
	group := e.Group("", s.findOperation, s.limited, s.signedIn, s.sameSite, s.limitBody, s.valid, s.expecting, s.idempotent)
	gen.RegisterHandlers(group, gen.NewStrictHandler(s, nil))
	group.GET("/openapi.yaml", s.openAPI)
	group.GET("/openapi.json", blob("application/json", s.reference.JSON))
	group.GET("/docs/api", blob("text/html; charset=utf-8", s.reference.Page))
	group.GET("/docs/api/style.css", blob("text/css; charset=utf-8", s.reference.Style))
	group.POST("/api/v1/apply", s.apply)
	group.GET("/api/v1/stream", s.stream)
	group.GET("/api/v1/applications/:namespace/:name/tree/stream", s.streamTree)
	group.GET("/api/v1/applications/:namespace/:name/logs", s.streamLogs)
	group.GET("/api/v1/applications/:namespace/:name/pods/:podName/logs", s.streamLogs)
	group.GET("/api/v1/applications/:namespace/:name/terminal", s.terminal)
	group.GET("/api/v1/applications/:namespace/:name/port-forward", s.forwardPort)
	group.GET("/terminal", s.argoTerminal)
	group.POST("/api/v1/webhook", s.webhook)
	group.POST("/api/webhook", s.webhook)
	e.Any("/scim/v2/*", s.scim)
	e.POST("/api/dex/token", s.answerToken)
	e.POST("/api/v1/token", s.answerToken)
	e.POST("/api/v1/device/code", s.askDevice)
	group.GET("/auth/login", s.beginSignIn)
	group.GET(sso.DirectCallback, s.finishSignIn)
	group.GET(sso.DexCallback, s.finishSignIn)
	group.POST(sso.DexCallback, s.finishSignIn)
	s.console(e)
	return e
}

// openAPI returns the document.
func (s *Server) openAPI(c echo.Context) error {
	return c.Blob(http.StatusOK, "application/yaml", s.document)
}

// blob serves bytes that never change.
func blob(kind string, content []byte) echo.HandlerFunc {
	return func(c echo.Context) error { return c.Blob(http.StatusOK, kind, content) }
}

// console serves the browser application.
func (s *Server) console(e *echo.Echo) {
	if s.cfg.Console == nil {
		return
	}
	files := console.Handler(s.cfg.Console, s.root.Under(""), errNoOperation())
	serve := func(c echo.Context) error {
		if s.allow(c) {
			return errMethod(c.Request().Method)
		}
		return files(c)
	}
	e.GET("/", serve)
	e.GET("/*", serve)
	e.HEAD("/*", serve)
}
