package tenancy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Settings returns the settings that the caller may see, without the values of
// secrets, and the version of all.
func (c *Tenancy) Settings(ctx context.Context, by hub.Caller) ([]hub.Setting, int64, error) {
	var out []hub.Setting
	var version int64
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		if err := r.May(access.Settings, access.Get); err != nil {
			return err
		}
		all, v, err := r.Tx.Settings(ctx)
		for _, s := range all {
			if r.Rights.Check(access.Settings, access.Get, validation.SettingName(s.Map, s.Key)) {
				out = append(out, s)
			}
		}
		version = v
		return err
	})
	return out, version, err
}

// A SettingsPatch is what became of a change of settings.
type SettingsPatch struct {
	Version  int64
	Outcome  transact.Outcome
	Warnings []string
}

// PatchSettings sets keys and takes others away; what is not named stays. All
// changes are made, or none. An expected version of 0 is any.
func (c *Tenancy) PatchSettings(ctx context.Context, by hub.Caller, changes []hub.SettingChange, expect int64, dryRun bool) (SettingsPatch, error) {
	var out SettingsPatch
	for _, change := range changes {
		value := ""
		if change.Value != nil {
			value = *change.Value
		}
		if err := settings.Check(change.Map, change.Key, value); err != nil && change.Value != nil {
			return out, err
		}
		if why := settings.Unused(change.Map, change.Key); why != "" && change.Value != nil {
			out.Warnings = append(out.Warnings, why)
		}
		if why := settings.Foreign(change.Map, change.Key, value); why != "" {
			out.Warnings = append(out.Warnings, why)
		}
	}
	err := c.writeOr(ctx, by, dryRun, func(ctx context.Context, w *writer) error {
		var err error
		if out.Version, out.Outcome, err = w.patchSettings(ctx, changes, expect); err != nil {
			return err
		}
		missing, err := w.warnSignIn(ctx, changes)
		out.Warnings = append(out.Warnings, missing...)
		out.Warnings = append(out.Warnings, w.doubts...)
		return err
	})
	return out, err
}

func (w *writer) patchSettings(ctx context.Context, changes []hub.SettingChange, expect int64) (int64, transact.Outcome, error) {
	if err := w.LockSettings(ctx); err != nil {
		return 0, "", err
	}
	if err := w.needSettings(ctx, changes); err != nil {
		return 0, "", err
	}
	return w.changeSettings(ctx, changes, expect)
}

// changeSettings makes changes that the caller has the right to. The settings are
// locked.
func (w *writer) changeSettings(ctx context.Context, changes []hub.SettingChange, expect int64) (int64, transact.Outcome, error) {
	before, version, err := w.Tx.Settings(ctx)
	if err != nil {
		return 0, "", err
	}
	if expect != 0 && expect != version {
		return version, "", transact.ErrStale("settings")
	}
	after, put, drop, outcome, err := w.applySettings(ctx, before, changes)
	if err != nil || len(put)+len(drop) == 0 {
		return version, transact.Unchanged, err
	}
	for _, change := range effective(changes, put, drop) {
		if settings.DecidesSignIn(change.Map, change.Key) && !w.By.Fresh(w.Now) {
			return version, "", w.Stale(access.Settings, access.Update, validation.SettingName(change.Map, change.Key))
		}
	}
	if err := validation.CheckSizes(after); err != nil {
		return version, "", err
	}
	if err := w.changePolicy(ctx, before, after, changes); err != nil {
		return version, "", err
	}
	if err := w.ChangeSettings(ctx, put, drop); err != nil {
		return version, "", err
	}
	if err := w.followSettings(ctx, changes); err != nil {
		return version, "", err
	}
	w.Credentials = w.Credentials || validation.Sets(changes, hub.FederationKey)
	if err := w.applyAccounts(ctx, after, effective(changes, put, drop)); err != nil {
		return version, "", err
	}
	clusters, err := w.Tx.Clusters(ctx)
	if err != nil {
		return version, "", err
	}
	return version + 1, outcome, w.deliver(ctx, settingsScope{before, clusters}, settingsScope{after, clusters}, version+1)
}

// followSettings has done what follows from changes that have been stored.
func (w *writer) followSettings(ctx context.Context, changes []hub.SettingChange) error {
	if validation.Sets(changes, settings.PollKeys()...) {
		if err := w.refreshRepositories(ctx); err != nil {
			return err
		}
	}
	if err := w.refreshOverTLS(ctx, changes); err != nil {
		return err
	}
	decides := func(c hub.SettingChange) bool {
		return c.Map == hub.GPGKeysMap || hub.Renders(c.Map, c.Key) || c.Map == hub.ParamsMap && c.Key == hub.ApplicationNamespacesKey
	}
	if validation.Sets(changes, hub.InClusterKey, hub.GlobalProjectsKey, hub.PausesKey) || slices.ContainsFunc(changes, decides) {
		w.Due = append(w.Due, hub.WorkRefresh)
		return w.RefreshApplications(ctx)
	}
	if slices.ContainsFunc(changes, func(c hub.SettingChange) bool {
		return c.Map == hub.ParamsMap && strings.HasPrefix(c.Key, hub.SetSettingsPrefix)
	}) {
		w.Due = append(w.Due, hub.WorkApplicationSet)
		return w.WakeSets(ctx)
	}
	return nil
}

// refreshRepositories has all repositories looked at now, so that how long they are
// left alone from then on is as it is set.
func (w *writer) refreshRepositories(ctx context.Context) error {
	all, err := w.Repositories(ctx)
	for _, r := range all {
		if err == nil {
			err = w.Fetch(ctx, r.ID)
		}
	}
	w.Due = append(w.Due, hub.WorkFetch)
	return err
}

// applySettings finds out what changes in fact.
func (w *writer) applySettings(ctx context.Context, before []hub.Setting, changes []hub.SettingChange) (after, put, drop []hub.Setting, outcome transact.Outcome, err error) {
	type id struct{ name, key string }
	now := map[id]hub.Setting{}
	for _, s := range before {
		now[id{s.Map, s.Key}] = s
	}
	outcome = transact.Configured
	for _, change := range changes {
		old, there := now[id{change.Map, change.Key}]
		if change.Value == nil {
			if there {
				delete(now, id{change.Map, change.Key})
				drop = append(drop, old)
				w.noteSetting(access.Delete, change, &old)
			}
			continue
		}
		if there && old.Secret {
			if old.Value, _, err = w.SettingSecret(ctx, change.Map, change.Key); err != nil {
				return nil, nil, nil, "", err
			}
		}
		if there && old.Value == *change.Value {
			continue
		}
		if !there && len(before) == 0 {
			outcome = transact.Created
		}
		s := hub.Setting{
			Map: change.Map, Key: change.Key, Value: *change.Value, Secret: settings.IsSecret(change.Map), UpdatedAt: w.Now, UpdatedBy: w.By.Username,
		}
		now[id{change.Map, change.Key}] = s
		put = append(put, s)
		action := access.Update
		if !there {
			action = access.Create
		}
		w.noteSetting(action, change, &old)
	}
	return slices.Collect(maps.Values(now)), put, drop, outcome, nil
}

// noteSetting leaves an audit record. Values stand in it only where they are
// known to be no secret: people write passwords into other ConfigMaps, too.
func (w *writer) noteSetting(action string, change hub.SettingChange, old *hub.Setting) {
	var before, after any
	if settings.Public(change.Map, change.Key) {
		if old.Key != "" {
			before = old.Value
		}
		if change.Value != nil {
			after = *change.Value
		}
	}
	if change.Map == hub.CertificatesMap { // which are no secrets, and known by their fingerprints
		message := fingerprints(change.Key, old.Value)
		if change.Value != nil {
			message = fingerprints(change.Key, *change.Value)
		}
		w.Note(action, access.Certificates, change.Key, "https "+message, before, after)
		return
	}
	w.Note(action, access.Settings, validation.SettingName(change.Map, change.Key), "", before, after)
}

// A settingsScope is where settings hold.
type settingsScope struct {
	settings []hub.Setting
	clusters []hub.Cluster
}

// deliver gives the settings to the agents for which they have changed. The
// caller has locked them.
func (w *writer) deliver(ctx context.Context, before, after settingsScope, version int64) error {
	was, err := settings.Compile(before.settings)
	if err != nil {
		return fmt.Errorf("read the stored settings: %w", err)
	}
	is, err := settings.Compile(after.settings)
	if err != nil {
		return err
	}
	none, err := settings.Compile(nil)
	if err != nil {
		return err
	}
	bodies := map[hub.ClusterID][]byte{}
	for _, cl := range after.clusters {
		from, called := none, cl // a new one holds the defaults
		if i := slices.IndexFunc(before.clusters, func(c hub.Cluster) bool { return c.ID == cl.ID }); i >= 0 {
			from, called = was, before.clusters[i]
		}
		// What has changed is found with equal versions.
		old, err := from.Body(0, namesIn(called, before.clusters))
		if err != nil {
			return err
		}
		same, err := is.Body(0, namesIn(cl, after.clusters))
		if err != nil {
			return err
		}
		if bytes.Equal(old, same) {
			continue
		}
		if bodies[cl.ID], err = is.Body(version, namesIn(cl, after.clusters)); err != nil {
			return err
		}
		w.Wakes = append(w.Wakes, cl.ID)
	}
	if len(bodies) == 0 {
		return nil
	}
	return w.Deploy.SendSettings(ctx, bodies)
}

// Redeliver gives the settings to clusters that are new, or that rules about
// clusters may mean now, unlike before. What was before is what undo makes of
// the clusters that there are now; nobody reads them while there are no
// settings, for a tenant may have thousands.
func Redeliver(ctx context.Context, r *transact.Reader, ch *transact.Changes, undo func([]hub.Cluster) []hub.Cluster) error {
	if err := r.LockSettings(ctx); err != nil {
		return err
	}
	all, version, err := r.Tx.Settings(ctx)
	if err != nil || len(all) == 0 {
		return err
	}
	after, err := r.Tx.Clusters(ctx)
	if err != nil {
		return err
	}
	w := &writer{reader: reader{r}, Changes: ch}
	return w.deliver(ctx, settingsScope{all, undo(slices.Clone(after))}, settingsScope{all, after}, version)
}

// namesIn is what rules may call a cluster by.
func namesIn(cl hub.Cluster, all []hub.Cluster) []string {
	names := validation.ClusterNames(cl)
	if in := validation.PickCluster(hub.Destination{Server: hub.InCluster}, all); in != nil && in.ID == cl.ID {
		names = append(names, hub.InCluster, hub.InClusterName)
	}
	return names
}

// ApplySettings takes the data of a ConfigMap, or the values of a Secret,
// key by key. A key goes only by an explicit null.
func (c *Tenancy) ApplySettings(ctx context.Context, by hub.Caller, o *manifest.Object, dryRun bool) (transact.Outcome, []string, error) {
	object := manifest.KeyOf(o).Describe()
	changes, warnings, err := validation.SettingChanges(o)
	if err != nil {
		return "", nil, fault.With(err, object, "")
	}
	if len(changes) == 0 {
		return transact.Unchanged, append(warnings, "it names no key, so nothing was changed"), nil
	}
	patch, err := c.PatchSettings(ctx, by, changes, 0, dryRun)
	return patch.Outcome, append(warnings, patch.Warnings...), fault.With(err, object, "")
}
