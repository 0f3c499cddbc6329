package tenancy

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// PauseAutomation holds the automation of the applications on a cluster, or of
// the tenant's without one, for a time (UX-OP-9). It replaces an earlier pause of
// the same.
func (c *Tenancy) PauseAutomation(ctx context.Context, by hub.Caller, cluster, reason string, length time.Duration) (hub.AutomationPause, error) {
	var pause hub.AutomationPause
	if length < time.Minute || length > hub.MaxPause {
		return pause, fault.With(fault.New(fault.Invalid, "a pause of %s is not possible", length), "", "it may be between a minute and 30 days")
	}
	if strings.TrimSpace(reason) == "" {
		return pause, fault.With(fault.New(fault.Invalid, "the pause has no reason"), "", "say why, for those who find automation paused")
	}
	err := c.write(ctx, by, func(ctx context.Context, w *writer) error {
		pause = hub.AutomationPause{Cluster: cluster, Reason: reason, By: by.Username, Since: w.Now.UTC(), Until: w.Now.UTC().Add(length).Truncate(time.Second)}
		return w.changePauses(ctx, cluster, "pause", reason, func(names []string) *hub.AutomationPause {
			pause.Names = names
			return &pause
		})
	})
	return pause, err
}

// ResumeAutomation ends the pause of a cluster, or of the tenant, if there is one.
func (c *Tenancy) ResumeAutomation(ctx context.Context, by hub.Caller, cluster string) error {
	return c.write(ctx, by, func(ctx context.Context, w *writer) error {
		return w.changePauses(ctx, cluster, "resume", "", func([]string) *hub.AutomationPause { return nil })
	})
}

// changePauses replaces the pause of a cluster or of the tenant; nil: it goes.
// Pauses that are over go with it.
func (w *writer) changePauses(ctx context.Context, cluster, action, reason string, put func(names []string) *hub.AutomationPause) error {
	if err := w.LockSettings(ctx); err != nil {
		return err
	}
	names, err := w.needPause(ctx, cluster)
	if err != nil {
		return err
	}
	values, err := w.SettingValues(ctx, hub.SettingsMap, []string{hub.PausesKey})
	if err != nil {
		return err
	}
	all := hub.ActivePauses(values[hub.PausesKey], w.Now)
	others := slices.DeleteFunc(slices.Clone(all), func(p hub.AutomationPause) bool { return p.Cluster == cluster })
	next := put(names)
	if next == nil && len(others) == len(all) {
		return nil
	}
	if next != nil {
		others = append(others, *next)
	}
	change := hub.SettingChange{Map: hub.SettingsMap, Key: hub.PausesKey}
	if len(others) > 0 {
		b, err := json.Marshal(others)
		if err != nil {
			return err
		}
		value := string(b)
		if _, err := hub.ParsePauses(value); err != nil {
			return err
		}
		change.Value = &value
	}
	w.Note(action, access.Clusters, pauseObject(cluster), reason, nil, next)
	_, _, err = w.changeSettings(ctx, []hub.SettingChange{change}, 0)
	return err
}

// needPause is the right to pause, and the names of the cluster besides its own.
func (w *writer) needPause(ctx context.Context, cluster string) ([]string, error) {
	if cluster == "" {
		if err := w.Need(access.Clusters, access.Override, "*"); err != nil {
			return nil, err
		}
		return nil, w.Need(access.Settings, access.Update, validation.SettingName(hub.SettingsMap, hub.PausesKey))
	}
	cl, err := w.Tx.Cluster(ctx, cluster)
	if err != nil {
		return nil, w.Refuse(access.Clusters, access.Override, cluster, transact.Hide(err, access.Clusters, validation.Shorten(cluster)))
	}
	names := validation.ClusterNames(cl)
	if !w.Rights.CheckAny(access.Clusters, access.Get, names...) {
		return nil, w.Refuse(access.Clusters, access.Override, cluster, transact.Missing(access.Clusters, validation.Shorten(cluster)))
	}
	if cl.Server == "" {
		return nil, w.Need(access.Clusters, access.Override, names...)
	}
	return []string{cl.Server}, w.Need(access.Clusters, access.Override, names...)
}

// pauseObject is how records name what is paused.
func pauseObject(cluster string) string {
	if cluster == "" {
		return "*"
	}
	return cluster
}
