package api

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/tenancy"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/connector"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/clientip"
	"github.com/capstan-cd/capstan/shared/fault"
)

// maxExchange is how many bytes the form of an exchange has at most.
const maxExchange = 64 << 10

// exchangeToken gives a token of the hub for one of another issuer that the tenant
// trusts (RFC 8693). The form and the answer are those of OAuth. tenant names
// the tenant; without it, it is the one called default.
func (s *Server) exchangeToken(c echo.Context, form url.Values) error {
	r := c.Request()
	if !s.limits.SignIn.Allow(clientip.Key(callerOf(r.Context()).Address)) {
		return s.exchangeFailed(c, errTooFast())
	}
	token := form.Get("subject_token")
	if kind := form.Get("subject_token_type"); kind != exchange.TypeIDToken && kind != exchange.TypeJWT || token == "" {
		return s.exchangeFailed(c, fault.New(fault.Invalid, "subject_token or subject_token_type is missing, or of another type"))
	}
	name := form.Get("tenant")
	if name == "" {
		name = defaultTenant
	}
	answer, err := s.exchanged(r.Context(), name, form.Get("connector_id"), token)
	if err != nil {
		return s.exchangeFailed(c, err)
	}
	return c.JSON(http.StatusOK, answer)
}

type exchangeAnswer struct {
	AccessToken     string `json:"access_token"`
	IssuedTokenType string `json:"issued_token_type"`
	TokenType       string `json:"token_type"`
	ExpiresIn       int    `json:"expires_in"` // seconds
}

// exchanged tries the issuers that the tenant trusts; trust names one of them.
func (s *Server) exchanged(ctx context.Context, tenantName, trust, token string) (exchangeAnswer, error) {
	refused := fault.New(fault.Unknown, "the token is not accepted for exchange")
	tenant, err := s.Identity.TenantByName(ctx, tenantName)
	if fault.KindOf(err) == fault.Missing || err == nil && tenant.Suspended {
		return exchangeAnswer{}, refused
	}
	if err != nil {
		return exchangeAnswer{}, err
	}
	trusts, err := s.Catalog.Federations(ctx, tenant.ID)
	if err != nil {
		return exchangeAnswer{}, err
	}
	last := error(refused)
	for _, f := range trusts {
		if trust != "" && trust != f.Name {
			continue
		}
		for _, rule := range f.Rules {
			id, err := s.Exchange.Verify(ctx, s.ExchangeClient, string(tenant.ID), settings.Issuer(f, rule), token)
			if err != nil {
				last = err
				continue
			}
			return s.exchangedAs(ctx, tenant.ID, f, rule, id, token)
		}
	}
	return exchangeAnswer{}, last
}

// exchangedAs gives a token for one that a rule accepts.
func (s *Server) exchangedAs(ctx context.Context, tenant hub.TenantID, f hub.Federation, rule hub.FederationRule, id connector.Identity, token string) (exchangeAnswer, error) {
	seconds, err := strconv.ParseFloat(strings.Join(id.Claims["exp"], ""), 64)
	if err != nil {
		return exchangeAnswer{}, fault.New(fault.Unknown, "the token does not say when it ends")
	}
	secret, t := identity.NewExchangedToken()
	t, err = s.Catalog.ExchangeToken(ctx, tenant, callerOf(ctx), tenancy.Proof{
		Trust: f.Name, Rule: rule, Subject: id.Subject, Expires: time.Unix(int64(seconds), 0), Hash: identity.Hash(token),
	}, t)
	if err != nil {
		return exchangeAnswer{}, err
	}
	return exchangeAnswer{secret, exchange.TypeAccessToken, "bearer", int(time.Until(t.ExpiresAt).Seconds())}, nil
}

// deviceErrors are what a device may hear (RFC 8628, section 3.5).
var deviceErrors = []string{"authorization_pending", "slow_down", "access_denied", "expired_token", "invalid_grant"}

// exchangeFailed answers an error in the shape of RFC 6749, section 5.2.
func (s *Server) exchangeFailed(c echo.Context, err error) error {
	s.noteInternal(c, err)
	status, body := s.present(c, err)
	kind := "server_error"
	e, _ := fault.As(err)
	switch {
	case e == nil:
	case e.Object == "unsupported_grant_type":
		kind = e.Object
	case slices.Contains(deviceErrors, e.Object):
		status, kind, body.Message = http.StatusBadRequest, e.Object, e.Cause
	case e.Kind == fault.Invalid:
		kind = "invalid_request"
	case e.Kind == fault.Unknown || e.Kind == fault.Conflict || e.Kind == fault.Denied:
		status, kind = http.StatusBadRequest, "invalid_grant"
	case e.Kind == fault.Exceeded || e.Kind == fault.Offline:
		kind = "temporarily_unavailable"
	}
	if status == http.StatusTooManyRequests {
		c.Response().Header().Set("Retry-After", "5")
	}
	return c.JSON(status, map[string]string{"error": kind, "error_description": strings.ReplaceAll(body.Message, `"`, "'")})
}
