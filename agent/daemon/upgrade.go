package daemon

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/agent/apply"
	"github.com/capstan-cd/capstan/agent/upgrade"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// An UpgradeOrder contains the updater's arguments.
type UpgradeOrder struct {
	ID, Image, Ordered, BeginBefore string // the last two in RFC 3339
	Deadline                        time.Duration
}

// Upgrade executes an upgrade of the agent, in the updater's own pod. It uses
// the namespace, the cluster connection and the log of c.
func Upgrade(ctx context.Context, c Config, given UpgradeOrder) error {
	o := upgrade.Order{ID: given.ID, Image: given.Image, Deadline: given.Deadline}
	for flag, at := range map[string]struct {
		text string
		to   *time.Time
	}{"--ordered": {given.Ordered, &o.Ordered}, "--begin-before": {given.BeginBefore, &o.BeginBefore}} {
		var err error
		if *at.to, err = time.Parse(time.RFC3339Nano, at.text); err != nil {
			return fault.Wrap(fault.Invalid, err, "%s %q is not a time in RFC 3339", flag, at.text)
		}
	}
	if err := o.Validate(); err != nil {
		return err
	}
	conf, err := c.rest()
	if err != nil {
		return err
	}
	k, err := connect(conf)
	if err != nil {
		return err
	}
	defer k.http.CloseIdleConnections()
	u := &upgrade.Updater{Client: k.dynamic, Namespace: c.Namespace, Lease: apply.LeaseName, Clock: lifecycle.System{}, Log: c.Log}
	return u.Run(ctx, o)
}
