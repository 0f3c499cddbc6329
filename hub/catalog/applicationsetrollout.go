package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/plan"
)

// rolling reports whether the set syncs its applications itself, in steps
// (APRG-01, APRG-02).
func (r *reconciling) rolling() bool { return r.options.progressive && plan.Rolls(r.spec.Strategy) }

// withoutAutomation is the spec of an application that its set syncs (AUTO-12),
// and whether the set prunes when it does (APRG-06).
func withoutAutomation(spec json.RawMessage) (without json.RawMessage, prune bool) {
	var fields, policy map[string]json.RawMessage
	var automated struct {
		Prune bool `json:"prune"`
	}
	if json.Unmarshal(spec, &fields) != nil || json.Unmarshal(fields["syncPolicy"], &policy) != nil || policy["automated"] == nil {
		return spec, false
	}
	if json.Unmarshal(policy["automated"], &automated) != nil {
		return spec, false
	}
	delete(policy, "automated")
	if len(policy) == 0 {
		delete(fields, "syncPolicy")
	} else if text, err := json.Marshal(policy); err == nil {
		fields["syncPolicy"] = text
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return spec, false
	}
	return text, automated.Prune
}

// rollOut decides how the rollout goes on, of the applications as they are now.
func (r *reconciling) rollOut(ctx context.Context) error {
	if !r.rolling() || r.options.dryRun {
		return nil
	}
	return r.parts.Service.Store.ReadTenant(ctx, r.tenant, func(ctx context.Context, tx transact.Tx) error {
		set, err := tx.ApplicationSetByID(ctx, r.set.ID)
		if err != nil {
			return err
		}
		members, err := r.there(ctx, tx, nil)
		if err != nil {
			return err
		}
		var on []hub.ClusterID
		now := map[string]hub.Application{}
		for _, a := range members {
			if now[a.Name] = a; a.Cluster != "" {
				on = append(on, a.Cluster)
			}
		}
		clusters, err := tx.ClustersByID(ctx, unique(on))
		if err != nil {
			return err
		}
		former := map[string]hub.RolloutState{}
		for _, s := range set.Status.Rollout {
			former[s.Application] = s
		}
		rollout := plan.Rollout{Steps: r.spec.Strategy.RollingSync.Steps, States: set.Status.Rollout, Now: r.now.UTC()}
		for _, w := range r.wanted {
			a, there := now[w.Name]
			if !there || a.DeletingAt != nil {
				rollout.Applications = append(rollout.Applications, plan.RolloutApplication{Name: w.Name, Labels: w.Labels, Missing: true})
				continue
			}
			var cluster *hub.Cluster
			if c, known := clusters[a.Cluster]; known {
				cluster = &c
			}
			x := r.rolledOut(a, cluster)
			x.Labels = w.Labels
			x.Changed = former[a.Name].Spec != "" && former[a.Name].Spec != specHash(a)
			rollout.Applications = append(rollout.Applications, x)
		}
		r.report.rollout = plan.RollOut(rollout)
		for i, s := range r.report.rollout.States {
			r.report.rollout.States[i].Spec = specHash(now[s.Application])
		}
		r.members = now
		return nil
	})
}

// specHash distinguishes the specs that an application has had.
func specHash(a hub.Application) string {
	sum := sha256.Sum256(a.Spec)
	return hex.EncodeToString(sum[:6])
}

// observedUntilConfirmed is why a rollout leaves an imported application alone.
const observedUntilConfirmed = "it was imported, and is observed until the import is confirmed"

// rolledOut is an application as a rollout sees it.
func (r *reconciling) rolledOut(a hub.Application, on *hub.Cluster) plan.RolloutApplication {
	st := a.Status
	shown := st.Show(on, r.now)
	x := plan.RolloutApplication{Name: a.Name, Revisions: st.Revisions, Sync: shown.Sync, Health: shown.Health}
	if len(x.Revisions) == 0 && st.Revision != "" {
		x.Revisions = []string{st.Revision}
	}
	x.Current = st.PlannedGeneration == a.Generation && st.ComparedAt != nil && (shown.Stale == nil || !shown.Stale.Expired)
	if why := st.Broken(); why != nil {
		x.Broken, x.Current = why.Message, false
	}
	if a.Observed() {
		x.Broken, x.Current = observedUntilConfirmed, false
	}
	if op := st.Operation; op != nil {
		x.Operation = &plan.RolloutOperation{Began: op.CreatedAt, Over: op.Phase.Over()}
		if op.Phase == hub.Failed || op.Phase == hub.Errored {
			x.Operation.Failure = orElse(op.Message, string(op.Phase))
		}
	}
	return x
}

func (r *reconciling) rolloutResults() []setResult {
	d := r.report.rollout
	var out []setResult
	if d.Invalid != "" {
		out = append(out, setResult{hub.SetInvalidRolloutConfig, hub.ConditionTrue, reasonRolloutSpec, d.Invalid})
	}
	if d.Step == 0 {
		return append(out, setResult{hub.SetRolloutProgressing, hub.ConditionFalse, reasonRolledOut, "all steps are complete"})
	}
	done := 0
	for _, s := range d.States {
		if s.Status == hub.RolloutHealthy {
			done++
		}
	}
	message := fmt.Sprintf("step %d of %d is not complete: %d of %d applications are synced and healthy",
		d.Step, len(r.spec.Strategy.RollingSync.Steps), done, len(d.States))
	return append(out, setResult{hub.SetRolloutProgressing, hub.ConditionTrue, reasonRollout, message})
}

// beginSyncs begins the syncs that the rollout asks for. Their states are stored
// by now: one whose sync does not begin is tried again.
func (r *reconciling) beginSyncs(ctx context.Context) error {
	var all []setChange
	for _, name := range r.report.rollout.Sync {
		a := r.members[name]
		all = append(all, setChange{name, false, func(ctx context.Context, w *writer) error { return r.beginSync(ctx, w, a) }})
	}
	return r.writeAll(ctx, all)
}

func (r *reconciling) beginSync(ctx context.Context, w *writer, was hub.Application) error {
	held, err := w.LockApplications(ctx, []hub.ApplicationID{was.ID})
	if err != nil {
		return err
	}
	a, there := held[was.ID]
	if !there || a.DeletingAt != nil || a.Observed() || !r.owns(a) {
		return nil
	}
	if op := a.Status.Operation; op != nil && !op.Phase.Over() {
		return nil // its end wakes the set
	}
	if err := w.Need(access.Applications, access.Sync, objectOf(a)); err != nil {
		return err
	}
	request := hub.SyncRequest{
		Present: true, Options: hub.OperationOptions{Prune: r.prunes[a.Name]},
		Initiator: hub.Initiator{Username: w.By.Username, Automated: true}, Reason: "rollout",
	}
	op, err := w.Deploy.Sync(ctx, a.ID, request)
	if err != nil {
		return transact.WithObject(err, "application "+title(a.Namespace, a.Name))
	}
	w.Wakes = append(w.Wakes, op.Cluster)
	w.Note(access.Sync, access.Applications, objectOf(a), request.Reason, nil, map[string]any{"operation": op.ID, "revision": op.Revision, "asked": request.Options})
	return nil
}

// nextToDelete returns the applications that are deleted now.
func (r *reconciling) nextToDelete(apps []hub.Application) []hub.Application {
	all := make([]plan.RolloutApplication, len(apps))
	for i, a := range apps {
		all[i] = plan.RolloutApplication{Name: a.Name, Labels: a.Labels}
	}
	names := plan.NextDeleted(r.spec.Strategy, all)
	return slices.DeleteFunc(slices.Clone(apps), func(a hub.Application) bool { return !slices.Contains(names, a.Name) })
}
