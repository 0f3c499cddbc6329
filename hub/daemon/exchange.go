package daemon

import (
	"net/http"
	"net/netip"

	"github.com/capstan-cd/capstan/hub/source/guard"
	"github.com/capstan-cd/capstan/shared/fault"
)

// issuers is the client with which the keys of issuers are read, whose tokens
// are exchanged. They may be where identity providers may be.
func (p *parts) issuers() (*http.Client, error) {
	var networks []netip.Prefix
	for _, cidr := range p.cfg.SignIn.AllowPrivate {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, fault.New(fault.Invalid, "signIn.allowPrivate: %q is no network", cidr)
		}
		networks = append(networks, prefix)
	}
	return guard.Client(networks, "", false)
}
