package daemon

import (
	"context"
	"net/netip"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/notifystore"
	"github.com/capstan-cd/capstan/hub/notify/send"
	"github.com/capstan-cd/capstan/hub/notify/stage"
	"github.com/capstan-cd/capstan/shared/fault"
)

// addNotifications builds what tells people of changes.
func (p *parts) addNotifications(context.Context) error {
	var networks []netip.Prefix
	for _, cidr := range p.cfg.Notifications.AllowPrivate {
		prefix, err := netip.ParsePrefix(cidr)
		if err != nil {
			return fault.New(fault.Invalid, "notifications.allowPrivate: %q is no network", cidr)
		}
		networks = append(networks, prefix)
	}
	s := notifystore.New(p.db, p.log, p.due)
	cfg := send.Config{Allowed: networks, Authorities: credentials{p.db}.Authorities, Threads: s}
	st := stage.New(stage.Parts{
		Work: p.queue, Store: s, Send: func(ctx context.Context, l send.Letter) (hub.DeliveryAttempt, error) { return send.Send(ctx, cfg, l) }, Lookups: s.Lookups, Counts: p.instruments, URL: p.cfg.publicURL(), Clock: p.clock, Log: p.log,
	})
	p.trial = stage.NewTrial(s, s.Lookups, p.cfg.publicURL())
	p.add("notifications", st.Decide)
	p.add("deliveries", st.Deliver)
	return nil
}
