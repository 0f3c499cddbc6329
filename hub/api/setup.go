package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
)

// SetupLink is the page on which a setup token is used. The token stands
// behind the #, which browsers send to no server and write into no referrer.
func SetupLink(externalURL, secret string) string {
	return strings.TrimRight(externalURL, "/") + "/setup#" + secret
}

type secretKey struct{}

// secretOf is the secret that the caller sent.
func secretOf(ctx context.Context) string {
	v, _ := ctx.Value(secretKey{}).(string)
	return v
}

// signedOut is the response that also deletes the cookie.
type signedOut struct{ cookie string }

// VisitLogoutResponse writes the answer.
func (a signedOut) VisitLogoutResponse(w http.ResponseWriter) error {
	w.Header().Set("Set-Cookie", a.cookie)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Healthz answers like Livez, or like both probes.
func (s *Server) Healthz(ctx context.Context, r gen.HealthzRequestObject) (gen.HealthzResponseObject, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	if r.Params.Full {
		if err := s.ready(ctx); err != nil {
			return nil, err
		}
	}
	return gen.Healthz200JSONResponse{Status: apimodel.Ok}, nil
}

// Livez answers whether the process works.
func (s *Server) Livez(ctx context.Context, _ gen.LivezRequestObject) (gen.LivezResponseObject, error) {
	if err := s.alive(ctx); err != nil {
		return nil, err
	}
	return gen.Livez200JSONResponse{Status: apimodel.Ok}, nil
}

func (s *Server) alive(ctx context.Context) error {
	if s.Alive == nil {
		return nil
	}
	return s.Alive(ctx)
}

// Readyz answers whether the hub can serve.
func (s *Server) Readyz(ctx context.Context, _ gen.ReadyzRequestObject) (gen.ReadyzResponseObject, error) {
	if err := s.ready(ctx); err != nil {
		return nil, err
	}
	return gen.Readyz200JSONResponse{Status: apimodel.Ok}, nil
}

func (s *Server) ready(ctx context.Context) error {
	err := s.Ready(ctx)
	if err != nil && fault.KindOf(err) == fault.Internal {
		return fault.Wrap(fault.Offline, err, "the hub is not ready")
	}
	return err
}
