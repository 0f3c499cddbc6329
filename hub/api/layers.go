package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/openapi"
	"github.com/capstan-cd/capstan/hub/api/socket"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// keyOperation is where the operation of a request stands for the layers below.
const keyOperation = "operation"

// maxBody is the limit of most bodies.
const maxBody = 1 << 20

const clientHeader = "X-Capstan-Client"

type callerKey struct{}

// callerOf is who is calling; the layers have seen to it that there is one.
func callerOf(ctx context.Context) hub.Caller {
	c, _ := ctx.Value(callerKey{}).(hub.Caller)
	return c
}

func operationOf(c echo.Context) *openapi.Operation {
	o, _ := c.Get(keyOperation).(*openapi.Operation)
	return o
}

func requestID(c echo.Context) string { return c.Response().Header().Get("X-Request-Id") }

// identify assigns the request an id and determines the client's address. A
// handler finds both in the caller, even without authentication.
func (s *Server) identify(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := hub.NewID[hub.RequestID]()
		c.Response().Header().Set("X-Request-Id", string(id))
		r := c.Request()
		who := hub.Caller{Request: id, Address: s.cfg.TrustedProxies.Client(r), Client: clientOf(r)}
		ctx := context.WithValue(r.Context(), hostKey{}, r.Host)
		c.SetRequest(r.WithContext(context.WithValue(ctx, callerKey{}, who)))
		return next(c)
	}
}

// maxClient bounds the name of a program that is stored with a session.
const maxClient = 200

// clientOf is what the program of a request calls itself, in printable ASCII.
func clientOf(r *http.Request) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, r.UserAgent()[:min(len(r.UserAgent()), maxClient)])
}

// recovered turns a defect into one failed request.
func (s *Server) recovered(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if v := recover(); v != nil {
				if abort, is := v.(error); is && errors.Is(abort, http.ErrAbortHandler) {
					panic(v)
				}
				if s.Metrics != nil {
					s.Metrics.Caught(c.Request().Context(), "http handler", v)
				}
				s.Log.ErrorContext(c.Request().Context(), "handler panicked", logkey.Request, requestID(c), logkey.Panic, fmt.Sprint(v), logkey.Stack, string(debug.Stack()))
				err = fmt.Errorf("panic in %s %s", c.Request().Method, c.Path())
			}
		}()
		return next(c)
	}
}

// headers set the security headers for browsers (SEC-H5).
func (s *Server) headers(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		h := c.Response().Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "+
			"connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		if s.secure() {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		return next(c)
	}
}

func (s *Server) secure() bool { return s.external.Scheme == "https" }

// compressed packs answers that are worth it. A stream is sent as it comes. It
// is made once: its writers, which are large, serve one request after another.
func compressed(stream func(path string) bool) echo.MiddlewareFunc {
	return middleware.GzipWithConfig(middleware.GzipConfig{
		Level: 5, MinLength: 1024,
		Skipper: func(c echo.Context) bool { return stream(c.Request().URL.Path) },
	})
}

// limited refuses what comes too fast from one address.
func (s *Server) limited(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		from := clientip.Key(callerOf(c.Request().Context()).Address)
		o := operationOf(c)
		if !s.limits.Address.Allow(from) || (countsAsSignIn(o) && !s.limits.SignIn.Allow(from)) {
			return errTooFast()
		}
		return next(c)
	}
}

// countsAsSignIn reports whether an operation is one of those by which people
// sign in.
func countsAsSignIn(o *openapi.Operation) bool {
	return o.Callback() || o.Action == "sign-in" || o.Public() && unsafeMethod(o.Route.Method) && o.Action != "webhook"
}

func errTooFast() error {
	return fault.With(fault.New(fault.Exceeded, "there are too many requests"), "", "wait a few seconds and try again")
}

// cookieName is that of the session. A prefix makes browsers refuse it where TLS
// is missing, and keep it to this host where the hub does not share that.
func (s *Server) cookieName() string { return s.root.CookieName("capstan_session", s.secure()) }

// proof is the secret that a request brings, and whether a browser added it
// by itself.
func (s *Server) proof(r *http.Request) (secret string, cookie bool) {
	if scheme, value, found := strings.Cut(r.Header.Get("Authorization"), " "); found && strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(value), false
	}
	if token := socket.Token(r); token != "" {
		return token, false
	}
	if k, err := r.Cookie(s.cookieName()); err == nil {
		return k.Value, true
	}
	return "", false
}

// signedIn finds the caller of an operation that needs one.
func (s *Server) signedIn(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		if operationOf(c).Public() {
			return next(c)
		}
		r := c.Request()
		secret, _ := s.proof(r)
		who, err := s.Identity.Authenticate(r.Context(), secret)
		if err == nil {
			err = s.counted(r.Context(), who)
		} else if secret == "" {
			who, err = s.anonymous(r, operationOf(c), err)
		}
		if err != nil {
			return err
		}
		from := callerOf(r.Context())
		who.Address, who.Request = from.Address, from.Request
		ctx := context.WithValue(r.Context(), callerKey{}, who)
		c.SetRequest(r.WithContext(context.WithValue(ctx, secretKey{}, secret)))
		return next(c)
	}
}

// counted counts a request of somebody who has signed in, and refuses it if there
// are too many.
func (s *Server) counted(ctx context.Context, who hub.Caller) error {
	if !s.limits.Caller.Allow(who.Credential) || !s.limits.Tenant.Allow(string(who.Tenant)) {
		return errTooFast()
	}
	if s.Quotas == nil {
		return nil
	}
	return s.Quotas.Request(ctx, who.Tenant)
}

// sameSite refuses writes that another site makes a browser send (SEC-H4).
// Browsers say where a request comes from; a client that is no browser says
// nothing and brings its token itself.
func (s *Server) sameSite(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		r := c.Request()
		o := operationOf(c)
		_, cookie := s.proof(r)
		// An identity provider's form comes from another site on purpose; it counts
		// only with the secret of the browser that began.
		// A read that refreshes costs work, so another site may not begin it either.
		// Browsers let every site open a WebSocket.
		safe := !unsafeMethod(r.Method) && r.URL.Query().Get("refresh") == "" && !socket.Asked(r)
		if safe || o.Action == "webhook" || o.Callback() || (!cookie && !o.Public()) {
			return next(c)
		}
		site, origin := r.Header.Get("Sec-Fetch-Site"), r.Header.Get("Origin")
		switch {
		case site != "" && site != "same-origin",
			origin != "" && !s.ownOrigin(origin, r.Host),
			cookie && site == "" && origin == "" && r.Header.Get(clientHeader) == "":
			return fault.With(fault.New(fault.Denied, "the request comes from another site"), "", "send it from the console, or with a token and the header "+clientHeader)
		}
		return next(c)
	}
}

func (s *Server) ownOrigin(origin, host string) bool {
	scheme, rest, found := strings.Cut(origin, "://")
	if !found {
		return false
	}
	if scheme == s.external.Scheme && strings.EqualFold(rest, s.external.Host) {
		return true
	}
	return strings.EqualFold(rest, host) && (scheme == "https" || !s.secure())
}

// limitBody cuts bodies that are too long.
func (s *Server) limitBody(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		limit := int64(maxBody)
		switch o := operationOf(c); {
		case o.Resource == "apply":
			limit = catalog.MaxApplyBytes
		case o.Upload:
			limit = hub.MaxUpload
		case o.Action == "webhook":
			limit = s.cfg.EventBytes
		}
		r := c.Request()
		if r.ContentLength > limit {
			return errTooLarge(limit)
		}
		r.Body = http.MaxBytesReader(c.Response(), r.Body, limit)
		return next(c)
	}
}

// setCookie hands a session to a browser.
func (s *Server) setCookie(secret string, age int) string {
	k := http.Cookie{ //nolint:gosec // Secure wherever the hub is reached by https
		Name: s.cookieName(), Value: secret, Path: s.root.Cookie(), MaxAge: age,
		HttpOnly: true, Secure: s.secure(), SameSite: http.SameSiteLaxMode,
	}
	return k.String()
}

// from is a caller of whom only address and request are known.
func from(ctx context.Context) hub.Caller {
	c := callerOf(ctx)
	return hub.Caller{Address: c.Address, Request: c.Request, Client: c.Client}
}
