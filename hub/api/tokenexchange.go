package api

import (
	"context"
	"net/url"
	"time"

	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
)

// exchangedBy begins the session of a machine whose issuer a connector of
// dex.config trusts. It is not served if the tenant has no such connector.
func (s *Server) exchangedBy(ctx context.Context, tenant string, form url.Values) (answer exchangeAnswer, served bool, err error) {
	if s.SignIn == nil {
		return exchangeAnswer{}, false, nil
	}
	served, err = s.SignIn.Exchanges(ctx, tenant, form.Get("connector_id"))
	if err != nil || !served {
		return exchangeAnswer{}, served, err
	}
	in, err := s.SignIn.ExchangeToken(ctx, from(ctx), tenant, form)
	if s.Metrics != nil {
		s.Metrics.Login(err == nil)
	}
	if err != nil {
		return exchangeAnswer{}, true, err
	}
	return exchangeAnswer{in.Secret, exchange.TypeAccessToken, "bearer", int(time.Until(in.Expires).Seconds())}, true, nil
}
