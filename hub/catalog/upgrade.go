package catalog

import (
	"context"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/shared/fault"
)

// UpgradeAgent requests that the agent of a cluster replaces its image. This
// decides which program runs in a cluster, so it needs the right of such
// decisions. A request for the image of an open one is that one. A deadline of
// zero is the default.
func (c *Catalog) UpgradeAgent(ctx context.Context, by hub.Caller, name, image string, deadline time.Duration) (hub.Cluster, error) {
	if deadline == 0 {
		deadline = hub.UpgradeDeadline
	}
	return c.decide(ctx, by, name, access.Override, func(ctx context.Context, w *writer, cl hub.Cluster) error {
		if err := hub.CheckUpgrade(image, deadline); err != nil {
			return err
		}
		old := cl.Upgrade
		switch {
		case old != nil && !old.Over() && old.Image == image:
			return nil
		case old != nil && !old.Over():
			return fault.With(fault.New(fault.Conflict, "an upgrade to %s is under way since %s", old.Image, old.OrderedAt.UTC().Format(time.DateTime+" MST")), "", "wait for its end")
		case cl.AgentVersion == "" || cl.AgentID == "":
			return fault.With(fault.New(fault.Conflict, "no agent speaks for it yet"), "", "install the agent that `capstan cluster enroll "+name+"` prints")
		case !cl.Upgradable:
			return fault.With(fault.New(fault.Conflict, "its owner does not let the hub upgrade the agent"), "", "install the agent's chart with upgrades.enabled=true")
		}
		u := hub.Upgrade{
			ID: string(hub.NewID[hub.TokenID]()), Image: image, Phase: hub.UpgradePending, By: by.Username,
			OrderedAt: w.Now, ExpiresAt: w.Now.Add(hub.UpgradeExpiry), Deadline: deadline,
		}
		w.Due = append(w.Due, hub.WorkUpgrade)
		w.Note("upgrade", access.Clusters, name, "", map[string]any{"agentVersion": cl.AgentVersion}, map[string]any{"id": u.ID, "image": image, "deadline": deadline.String()})
		return w.OrderUpgrade(ctx, cl.ID, u)
	})
}
