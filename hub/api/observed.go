package api

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/logkey"
	"github.com/capstan-cd/capstan/shared/trace"
)

// noRoute stands for requests to addresses that there are none of: their text
// is the caller's and would never end.
const noRoute = "none"

// observed counts an answer, writes it into the access log, and makes a span
// of a request that may change something. The answer is written within, so
// that its status is known.
func (s *Server) observed(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		began := time.Now()
		end := func(error) {}
		if r := c.Request(); unsafeMethod(r.Method) {
			var ctx context.Context
			ctx, end = trace.Start(r.Context(), "request", "http.request.method", r.Method, "http.route", s.route(c), logkey.Request, requestID(c))
			c.SetRequest(r.WithContext(ctx))
		}
		err := next(c)
		if err != nil {
			c.Error(err) // the one place for errors writes the answer
		}
		end(err)
		s.answered(c, time.Since(began))
		return nil
	}
}

// route is the pattern that a request matched.
func (s *Server) route(c echo.Context) string {
	if _, ok := s.operations[c.Request().Method+" "+c.Path()]; ok {
		return c.Path()
	}
	if c.Path() == "" || c.Response().Status == http.StatusNotFound {
		return noRoute
	}
	return "console"
}

func (s *Server) answered(c echo.Context, took time.Duration) {
	r, status := c.Request(), c.Response().Status
	route := s.route(c)
	ctx := r.Context()
	who := callerOf(ctx)
	s.Log.DebugContext(ctx, "request answered", logkey.Method, r.Method, logkey.Route, route, logkey.Code, status, logkey.Duration, took,
		logkey.Request, requestID(c), logkey.Address, who.Address, logkey.Tenant, who.Tenant, logkey.User, who.Username)
	s.alarm(c, who, route, status)
	if s.Metrics == nil {
		return
	}
	s.Metrics.Request(route, r.Method, strconv.Itoa(status), took)
	switch {
	case r.Method == http.MethodPost && route == "/api/v1/login":
		s.Metrics.Login(status < http.StatusBadRequest)
	case r.Method == http.MethodPost && (route == "/api/v1/webhook" || route == "/api/webhook"):
		s.Metrics.Webhook(status < http.StatusBadRequest)
	}
}

// alarm logs a refusal as a security event (SEC-L2). What was asked for is
// known by its route; what was sent with it is not repeated.
func (s *Server) alarm(c echo.Context, who hub.Caller, route string, status int) {
	level, weakness := 0, 0
	webhook := route == "/api/webhook" || route == "/api/v1/webhook"
	switch {
	case status == http.StatusUnauthorized && route == "/api/v1/login", webhook && (status == http.StatusUnauthorized || status == http.StatusForbidden):
		level, weakness = 3, 287 // improper authentication
	case status == http.StatusTooManyRequests && route == "/api/v1/login":
		level, weakness = 3, 307 // improper restriction of excessive authentication attempts
	case status == http.StatusForbidden:
		level, weakness = 2, 862 // missing authorization
	default:
		return
	}
	r := c.Request()
	s.Log.WarnContext(r.Context(), "request refused", logkey.Security, level, logkey.CWE, weakness, logkey.Method, r.Method, logkey.Route, route,
		logkey.Code, status, logkey.Request, requestID(c), logkey.Address, who.Address, logkey.Tenant, who.Tenant, logkey.User, who.Username)
}
