package sso

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/identity/connector/exchange"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// exchangeLasts bounds all requests of one exchange to an issuer.
const exchangeLasts = 20 * time.Second

// errNoExchange is the same for a tenant and for a connector that there is not.
func errNoExchange() error {
	return fault.With(fault.New(fault.Unknown, "there is no connector of this id that exchanges tokens"), "",
		"check tenant and connector_id, and that the connector in dex.config has tokenExchange")
}

// ExchangeToken begins the session of a machine, such as a job of a CI system,
// for the token of an issuer that its tenant trusts (AUTH-10). The errors have
// the kinds of exchange.Verify; fault.Invalid is also for a request that is
// wrong.
func (s *Service) ExchangeToken(ctx context.Context, from hub.Caller, tenant string, form url.Values) (Session, error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeLasts)
	defer cancel()
	request, err := exchange.ReadRequest(form)
	if err != nil {
		return Session{}, err
	}
	t, err := s.TenantByName(ctx, tenant)
	if fault.KindOf(err) == fault.Missing || err == nil && t.Suspended {
		return Session{}, errNoExchange()
	}
	if err != nil {
		return Session{}, err
	}
	out, err := s.exchangeToken(ctx, from, t, request)
	if err != nil {
		s.refused(ctx, from, t, dexPrefix+request.Connector, err)
	}
	return out, err
}

// Exchanges reports whether a tenant has a connector that exchanges tokens.
func (s *Service) Exchanges(ctx context.Context, tenant, connector string) (bool, error) {
	t, err := s.TenantByName(ctx, tenant)
	if fault.KindOf(err) == fault.Missing || err == nil && t.Suspended {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	set, err := s.SignInSettings(ctx, t.ID)
	if err != nil {
		return false, err
	}
	all, err := s.providers(t.ID, set)
	return slices.ContainsFunc(all, func(p provider) bool { return p.ID == dexPrefix+connector && p.exchange != nil }), err
}

func (s *Service) exchangeToken(ctx context.Context, from hub.Caller, t hub.Tenant, request exchange.Request) (Session, error) {
	set, err := s.SignInSettings(ctx, t.ID)
	if err != nil {
		return Session{}, err
	}
	all, err := s.providers(t.ID, set)
	if err != nil {
		return Session{}, err
	}
	for _, p := range all {
		if p.ID != dexPrefix+request.Connector || p.exchange == nil {
			continue
		}
		client, err := s.Client(p.exchange.Authorities, settings.Truth(set.Values[settings.NoTLSCheckKey]))
		if err != nil {
			return Session{}, err
		}
		id, err := s.machines.Verify(ctx, client, string(t.ID), *p.exchange, request.Token)
		if err != nil {
			return Session{}, err
		}
		proven, err := s.proven(ctx, from, t, set, p, id)
		if err != nil {
			return Session{}, err
		}
		var out Session
		out.Secret, out.Caller, out.Expires, err = s.Sessions.BeginBy(ctx, from, t, proven.User, &proven.Claims)
		return out, err
	}
	return Session{}, errNoExchange()
}
