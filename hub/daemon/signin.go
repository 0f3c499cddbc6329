package daemon

import (
	"net/http"
	"net/netip"
	"time"

	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/identity"
	"github.com/capstan-cd/capstan/hub/identity/sso"
	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// signIn makes what signs people in by identity providers.
func (p *parts) signIn(cat *catalog.Catalog, sessions *identity.Service) (*sso.Service, error) {
	var networks []netip.Prefix
	for _, cidr := range p.cfg.SignIn.AllowPrivate {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fault.New(fault.Invalid, "signIn.allowPrivate: %q is no network", cidr)
		}
		networks = append(networks, prefix)
	}
	return sso.New(sso.Parts{
		Tenants: p.db.System(), Requests: cat, People: cat, Claims: cat, Records: cat, Tests: cat, Sessions: sessions,
		Client: func(authorities string, skipVerify bool) (*http.Client, error) {
			return guard.Client(networks, authorities, skipVerify)
		},
		Dial:    guard.Dialer(networks).DialContext,
		Console: p.cfg.publicURL(), Log: p.log, Now: time.Now,
	}), nil
}
