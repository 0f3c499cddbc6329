package identity

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A Proven is who has proved to be somebody to a provider.
type Proven struct {
	Tenant hub.Tenant
	User   hub.User
	Claims hub.SessionClaims
}

// LoginBy begins a session of a person whose name and password a provider of
// the tenant checks. Wrong ones count like those of a local account. The error
// of check is fault.Unknown if they are wrong.
func (s *Service) LoginBy(ctx context.Context, from hub.Caller, provider string, c Credential, check func(ctx context.Context) (Proven, error)) (secret string, caller hub.Caller, expires time.Time, err error) {
	now := s.cfg.Now()
	c.Username = provider + ":" + c.Username // no local account is called so
	keys := ownKeys(c.Tenant, c.Username, from.Address)
	strangers := strangersKey(c.Tenant, c.Username)
	if err := s.throttled(ctx, append(keys, strangers), now); err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	proven, err := check(ctx)
	if fault.KindOf(err) == fault.Unknown {
		s.refused(ctx, append(keys, strangers), now, proven.Tenant, from, c, false)
		return "", hub.Caller{}, time.Time{}, errPassword()
	}
	if err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	if err := s.dir.ForgetLoginFailures(ctx, keys[0].key); err != nil {
		return "", hub.Caller{}, time.Time{}, err
	}
	return s.BeginBy(ctx, from, proven.Tenant, proven.User, &proven.Claims)
}
