package catalog

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/rbac"
)

// A RightQuestion asks whether somebody may do an action on an object.
type RightQuestion struct{ Resource, Action, Object string }

// A RightAnswer is the answer, and the rule that decides.
type RightAnswer struct {
	RightQuestion
	access.Decision

	Problem error // why the policy as a whole allows nothing
}

// Explain answers questions about the caller, or about others: names are a user
// and groups, or roles of the policy. Who may read the policy may ask about
// others.
func (c *Catalog) Explain(ctx context.Context, by hub.Caller, names []string, questions []RightQuestion) ([]RightAnswer, error) {
	var out []RightAnswer
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		out = nil
		rights := r.Rights
		if len(names) > 0 {
			var err error
			if rights, err = c.rightsOf(ctx, r, names); err != nil {
				return err
			}
		}
		clusters, err := r.askedClusters(ctx, questions)
		if err != nil {
			return err
		}
		for _, q := range questions {
			objects := []string{q.Object}
			for _, cl := range clusters {
				if called := validation.ClusterNames(cl); q.Resource == access.Clusters && slices.Contains(called, q.Object) {
					objects = called
				}
			}
			out = append(out, RightAnswer{q, rights.Explain(q.Resource, q.Action, objects...), access.Problem(rights.Problems())})
		}
		return nil
	})
	return out, err
}

// askedClusters returns the clusters if a question is about one: they have
// several names, which are decided about together.
func (r *reader) askedClusters(ctx context.Context, questions []RightQuestion) ([]hub.Cluster, error) {
	if !slices.ContainsFunc(questions, func(q RightQuestion) bool { return q.Resource == access.Clusters }) {
		return nil, nil
	}
	return r.ClusterNames(ctx)
}

// rightsOf returns the rights of others.
func (c *Catalog) rightsOf(ctx context.Context, r *reader, names []string) (*access.Index, error) {
	if err := r.readsPolicy(); err != nil {
		return nil, err
	}
	roles, err := r.AccountRoles(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.parts.Service.AllRights(ctx, r.Tx)
	if err != nil {
		return nil, err
	}
	return all.ForNames(names, roles), nil
}

// readsPolicy is the right to read the access policy.
func (r *reader) readsPolicy() error {
	return r.Need(access.Settings, access.Get, validation.SettingName(rbac.Map, rbac.PolicyKey))
}

// A PolicyState is whether an access policy is in force, and what is odd in it.
type PolicyState struct {
	Problems []string // why it allows nothing
	Unmet    []string // tests that it fails
	Doubts   []string
}

func stateOf(rights *access.Rights, roles map[string][]string) PolicyState {
	s := PolicyState{Doubts: rights.Doubts()}
	for _, problem := range rights.Problems() {
		s.Problems = append(s.Problems, fault.Sentence(problem))
	}
	for _, f := range rights.Unmet(roles) {
		s.Unmet = append(s.Unmet, f.String())
	}
	return s
}

// PolicyState returns the state of the tenant's access policy.
func (c *Catalog) PolicyState(ctx context.Context, by hub.Caller) (PolicyState, error) {
	var s PolicyState
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if err := r.readsPolicy(); err != nil {
			return err
		}
		roles, err := r.AccountRoles(ctx)
		if err != nil {
			return err
		}
		rights, err := c.parts.Service.AllRights(ctx, r.Tx)
		if err == nil {
			s = stateOf(rights, roles)
		}
		return err
	})
	return s, err
}

// A PolicyEffect is what a change of the policy changes for a subject.
type PolicyEffect struct {
	Subject string // a user or group; empty: everybody
	access.Question

	Gained, Lost           []string // objects, at most maxSamples
	GainedCount, LostCount int
}

const (
	maxSamples = 10
	maxEffects = 5000
)

// A PolicyPreview is what a change of the policy would do.
type PolicyPreview struct {
	State   PolicyState
	Effects []PolicyEffect
	More    bool // there are more effects
}

// PreviewPolicy says who would gain and lose what by changes of argocd-rbac-cm,
// and changes nothing. A nil value removes a key.
func (c *Catalog) PreviewPolicy(ctx context.Context, by hub.Caller, values map[string]*string) (PolicyPreview, error) {
	var out PolicyPreview
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if err := r.readsPolicy(); err != nil {
			return err
		}
		set, err := r.SettingsOf(ctx, []string{rbac.Map, hub.SettingsMap}, settings.PolicyKeys(), rbac.KeyPrefix)
		if err != nil {
			return err
		}
		projects, err := r.Tx.Projects(ctx)
		if err != nil {
			return err
		}
		roles, err := r.AccountRoles(ctx)
		if err != nil {
			return err
		}
		before := transact.PolicyOf(set, projects)
		after := before
		after.Values = maps.Clone(before.Values)
		for key, value := range values {
			if delete(after.Values, key); value != nil {
				after.Values[key] = *value
			}
		}
		comparison := comparison{before: access.Compile(r.ID(), before), after: access.Compile(r.ID(), after), roles: roles}
		out = PolicyPreview{State: stateOf(comparison.after, roles)}
		if comparison.objects, err = r.policyObjects(ctx, projects, slices.Sorted(maps.Keys(roles))); err != nil {
			return err
		}
		out.Effects, out.More = comparison.effects()
		return nil
	})
	return out, err
}

// policyObjects returns what there is, as policies call it, by resource.
func (r *reader) policyObjects(ctx context.Context, projects []hub.Project, accounts []string) (map[string][][]string, error) {
	out := map[string][][]string{}
	add := func(resource string, names ...string) { out[resource] = append(out[resource], names) }
	places, err := r.ApplicationPlaces(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range places {
		name := object(p.Project, hub.ApplicationKey{Namespace: p.Namespace, Name: p.Name})
		add(access.Applications, name)
		add(access.Logs, name)
		add(access.Exec, name)
		add(access.PortForward, name)
	}
	for _, p := range projects {
		add(access.Projects, p.Name)
	}
	for _, name := range accounts {
		add(access.Accounts, name)
	}
	clusters, err := r.ClusterNames(ctx)
	if err != nil {
		return nil, err
	}
	for _, cl := range clusters {
		add(access.Clusters, validation.ClusterNames(cl)...)
	}
	repositories, err := r.Repositories(ctx)
	for _, repo := range repositories {
		add(access.Repositories, repoObject(repo.Project, repo.URL))
	}
	return out, err
}

// A comparison is of two policies.
type comparison struct {
	before, after *access.Rights
	roles         map[string][]string
	objects       map[string][][]string // by resource; each has its names
}

func (c comparison) effects() (out []PolicyEffect, more bool) {
	questions := unique(append(c.before.Questions(), c.after.Questions()...))
	slices.SortFunc(questions, func(a, b access.Question) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Action, b.Action))
	})
	everybody := map[access.Question]PolicyEffect{}
	for _, subject := range unique(slices.Concat([]string{""}, slices.Sorted(maps.Keys(c.roles)), c.before.Subjects(), c.after.Subjects())) {
		var names []string
		if subject != "" {
			names = []string{subject}
		}
		was, is := c.before.ForNames(names, c.roles), c.after.ForNames(names, c.roles)
		for _, q := range questions {
			if was.Same(is, q.Resource, q.Action) {
				continue
			}
			if len(out) >= maxEffects {
				return out, true
			}
			e := c.effect(was, is, q)
			if subject == "" {
				everybody[q] = e
			}
			if e.GainedCount+e.LostCount == 0 || subject != "" && e.same(everybody[q]) {
				continue // what everybody gains, nobody gains in particular
			}
			e.Subject = subject
			out = append(out, e)
		}
	}
	return out, false
}

// same reports whether two effects are on the same objects.
func (e PolicyEffect) same(other PolicyEffect) bool {
	return e.GainedCount == other.GainedCount && e.LostCount == other.LostCount && slices.Equal(e.Gained, other.Gained) && slices.Equal(e.Lost, other.Lost)
}

func (c comparison) effect(was, is *access.Index, q access.Question) PolicyEffect {
	e := PolicyEffect{Question: q}
	objects := c.objects[q.Resource]
	if len(objects) == 0 { // then the rules say what there may be
		for _, pattern := range unique(append(was.Patterns(q.Resource, q.Action), is.Patterns(q.Resource, q.Action)...)) {
			objects = append(objects, []string{pattern})
		}
	}
	note := func(list *[]string, count *int, name string) {
		if *count++; len(*list) < maxSamples {
			*list = append(*list, name)
		}
	}
	for _, names := range objects {
		before, after := was.CheckAny(q.Resource, q.Action, names...), is.CheckAny(q.Resource, q.Action, names...)
		switch {
		case after && !before:
			note(&e.Gained, &e.GainedCount, names[0])
		case before && !after:
			note(&e.Lost, &e.LostCount, names[0])
		}
	}
	return e
}
