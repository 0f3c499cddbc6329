package catalog

import (
	"context"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/generate/changes"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Times of a set.
const (
	setRetry  = time.Minute // between attempts of a set that failed
	setSoonly = 5 * time.Second
	// setProblems is between attempts where single applications have problems,
	// besides those of what is known to change: a quota may have been raised.
	setProblems = 10 * time.Minute
)

// A reconciling is one reconcile of an application set.
type reconciling struct {
	*Catalog

	tenant  hub.TenantID
	set     hub.ApplicationSet
	spec    hub.ApplicationSetSpec
	options setOptions
	now     time.Time

	generation hub.Generation
	existing   []hub.Application // of the set, and of names that it generates
	decision   changes.Decision
	report     setReport
	again      bool // something changed meanwhile
	fresh      bool // somebody waits for what hosts say now

	// Of a rollout: what is wanted, what is there, and what syncs prune.
	wanted  []changes.Application
	members map[string]hub.Application
	prunes  map[string]bool
}

// ReconcileApplicationSet brings the applications of a set to what its
// generators return. Fresh means that somebody waits for what hosts say now. It
// returns when to call it again: zero when something changes. The error is one of
// the hub, never of the set: of that, its conditions tell.
func (c *Catalog) ReconcileApplicationSet(ctx context.Context, tenant hub.TenantID, id hub.ApplicationSetID, fresh bool) (next time.Time, err error) {
	batched := &batchedNotifier{}
	defer batched.flush(c.parts.Service.Notify)
	r := &reconciling{Catalog: c.notifying(batched), tenant: tenant, now: c.parts.Service.Now(), fresh: fresh}
	err = c.parts.Service.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) (err error) {
		if r.set, err = tx.ApplicationSetByID(ctx, id); err != nil {
			return err
		}
		r.options, err = readSetOptions(ctx, tx, r.set.Meta)
		return err
	})
	if fault.KindOf(err) == fault.Missing {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	if r.set.DeletingAt != nil {
		return r.deletePart(ctx)
	}
	return r.reconcile(ctx)
}

func (r *reconciling) reconcile(ctx context.Context) (next time.Time, err error) {
	if r.spec, err = hub.DecodeApplicationSet(r.set.Spec); err != nil {
		return time.Time{}, r.fail(ctx, reasonInvalid, err)
	}
	r.generation, err = r.parts.Sets.Generate(ctx, r.tenant, r.set, r.limits())
	if ctx.Err() != nil {
		return time.Time{}, ctx.Err()
	}
	if err != nil {
		return r.now.Add(setRetry), r.fail(ctx, reasonGenerators, err)
	}
	if r.generation.Waits != "" {
		return r.now.Add(setRetry), r.wait(ctx)
	}
	if err := r.decide(ctx); err != nil {
		return r.now.Add(setRetry), r.failUnlessOwn(ctx, err)
	}
	if !r.options.dryRun {
		if err := r.carryOut(ctx); err != nil {
			return time.Time{}, err
		}
	}
	if err := r.rollOut(ctx); err != nil {
		return time.Time{}, err
	}
	if err := r.conclude(ctx); err != nil {
		return time.Time{}, err
	}
	if err := r.beginSyncs(ctx); err != nil {
		return time.Time{}, err
	}
	switch requeue := r.options.requeue(r.generation.Requeue); {
	case r.again:
		return r.now.Add(setSoonly), nil
	case requeue > 0:
		return r.now.Add(requeue), nil
	case len(r.report.problems) > 0:
		return r.now.Add(setProblems), nil
	}
	return time.Time{}, nil
}

// failUnlessOwn notes what is wrong with the set; other errors are the hub's.
func (r *reconciling) failUnlessOwn(ctx context.Context, err error) error {
	switch fault.KindOf(err) {
	case fault.Invalid, fault.Missing, fault.Denied, fault.Exceeded:
		return r.fail(ctx, reasonInvalid, err)
	}
	return err
}

// caller is how the audit log names a set.
func setCaller(tenant hub.TenantID, s hub.ApplicationSet) hub.Caller {
	return hub.Caller{Tenant: tenant, Username: "applicationset " + title(s.Namespace, s.Name), Via: viaSet}
}

// viaSet is the Via of what an application set writes.
const viaSet = "applicationset"

// write runs a transaction of the set as it was when the reconcile began. If
// somebody has changed it since, nothing is done, and the set comes again.
func (r *reconciling) write(ctx context.Context, do func(ctx context.Context, w *writer) error) error {
	changed := false
	err := r.parts.Service.WriteAs(ctx, r.tenant, false, func(ctx context.Context, tx transact.Tx) (hub.Caller, *access.Index, error) {
		now, err := tx.LockApplicationSet(ctx, r.set.ID)
		if fault.KindOf(err) == fault.Missing {
			changed, err = true, nil
		}
		changed = changed || now.Generation != r.set.Generation || now.DeletingAt != nil != (r.set.DeletingAt != nil)
		return setCaller(r.tenant, r.set), access.OfSet(r.set.Project), err
	}, r.writing(func(ctx context.Context, w *writer) error {
		if changed {
			return nil
		}
		return do(ctx, w)
	}))
	r.again = r.again || changed
	return err
}

// decide checks what was generated and decides what becomes of it.
func (r *reconciling) decide(ctx context.Context) error {
	return r.parts.Service.Store.ReadTenant(ctx, r.tenant, func(ctx context.Context, tx transact.Tx) error {
		r.report.problems, r.prunes = nil, map[string]bool{}
		request := changes.Request{
			Set: r.set, Spec: r.spec, Policy: changes.PolicyOf(r.options.policy, r.options.override, r.spec), Limit: r.options.limit,
			Most: r.options.most, Preserved: r.options.preserved, Now: r.now,
		}
		around, err := r.context(ctx, tx)
		if err != nil {
			return err
		}
		for _, p := range r.generation.Problems {
			r.report.problem(p.Application, p.Message)
			if p.Application != "" {
				request.Invalid = append(request.Invalid, p.Application)
			}
		}
		for _, g := range r.generation.Applications {
			a, err := around.check(r.set, g)
			if err != nil {
				r.report.problem(g.Name, fault.Sentence(err))
				request.Invalid = append(request.Invalid, g.Name)
				continue
			}
			if r.rolling() {
				a.Spec, r.prunes[a.Name] = withoutAutomation(a.Spec)
			}
			request.Generated = append(request.Generated, a)
		}
		if r.existing, err = r.there(ctx, tx, request.Generated); err != nil {
			return err
		}
		request.There, r.wanted = r.existing, request.Generated
		if r.decision, err = changes.Decide(request); err != nil {
			return err
		}
		if r.generation.Truncated || len(r.generation.Problems) > 0 && slices.ContainsFunc(r.generation.Problems, func(p hub.GenerationProblem) bool { return p.Application == "" }) {
			// Which applications are missing from the result is not known.
			r.decision.Delete, r.decision.Held = nil, nil
		}
		for _, p := range r.decision.Problems {
			r.report.problem(p.Application, p.Message)
		}
		return nil
	})
}

// there returns the applications of the set, and those that have the name of one
// that is wanted.
func (r *reconciling) there(ctx context.Context, tx transact.Tx, wanted []changes.Application) ([]hub.Application, error) {
	members, err := tx.SetMembers(ctx, r.set.ID)
	if err != nil {
		return nil, err
	}
	ids := make([]hub.ApplicationID, len(members))
	for i, m := range members {
		ids[i] = m.Application
	}
	found, err := tx.ApplicationsByID(ctx, ids)
	if err != nil {
		return nil, err
	}
	keys := make([]hub.ApplicationKey, 0, len(wanted))
	for _, w := range wanted {
		keys = append(keys, hub.ApplicationKey{Namespace: w.Namespace, Name: w.Name})
	}
	named, err := tx.ApplicationsNamed(ctx, keys)
	if err != nil {
		return nil, err
	}
	for _, a := range named {
		found[a.ID] = a
	}
	out := make([]hub.Application, 0, len(found))
	for _, a := range found {
		out = append(out, a)
	}
	return out, nil
}

// A setContext is what an application of a set is checked with.
type setContext struct {
	projects map[string]hub.Project
	clusters []hub.Cluster
}

func (r *reconciling) context(ctx context.Context, tx transact.Tx) (setContext, error) {
	all, err := tx.Projects(ctx)
	if err != nil {
		return setContext{}, err
	}
	out := setContext{projects: make(map[string]hub.Project, len(all))}
	for _, p := range all {
		out.projects[p.Name] = p
	}
	out.clusters, err = tx.ClusterNames(ctx)
	return out, err
}

// check reports why an application must not be written: it is no valid one, is
// not in the project of its set, or there is no such project or cluster
// (ASET-10, SEC-D11).
func (s setContext) check(set hub.ApplicationSet, g hub.GeneratedApplication) (changes.Application, error) {
	a := hub.Application{Meta: g.Meta, Spec: g.Spec}
	a.Namespace = set.Namespace
	spec, _, err := validation.CheckApplication(&a)
	if err != nil {
		return changes.Application{}, err
	}
	if set.Project != hub.AnyProject && a.Project != set.Project {
		return changes.Application{}, fault.New(fault.Denied, "it is in project %q, and its application set is in project %q", a.Project, set.Project)
	}
	if _, there := s.projects[a.Project]; !there {
		return changes.Application{}, fault.New(fault.Invalid, "there is no project %q", a.Project)
	}
	if validation.PickCluster(spec.Destination, s.clusters) == nil {
		return changes.Application{}, fault.New(fault.Invalid, "its destination %s stands for no cluster", spec.Destination.Name+spec.Destination.Server)
	}
	return changes.Application{Meta: a.Meta, Project: a.Project, Spec: a.Spec}, nil
}
