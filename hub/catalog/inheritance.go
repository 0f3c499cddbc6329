package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// globalProjects is the setting of that name.
func (r *reader) globalProjects(ctx context.Context) (string, error) {
	values, err := r.SettingValues(ctx, hub.SettingsMap, []string{hub.GlobalProjectsKey})
	return values[hub.GlobalProjectsKey], err
}

// heirs names the projects that inherit from a project (PROJ-18).
func (r *reader) heirs(ctx context.Context, name string) ([]string, error) {
	value, err := r.globalProjects(ctx)
	if err != nil || value == "" {
		return nil, err
	}
	all, err := hub.ParseGlobalProjects(value)
	if err != nil {
		return nil, nil // the projects themselves report it
	}
	if !slices.ContainsFunc(all, func(g hub.GlobalProject) bool { return g.Project == name }) {
		return nil, nil
	}
	projects, err := r.Tx.Projects(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range projects {
		if slices.Contains(hub.GlobalsOf(all, p), name) {
			out = append(out, p.Name)
		}
	}
	return out, nil
}

// refreshHeirs has the applications of projects that inherit from a project
// judged anew.
func (w *writer) refreshHeirs(ctx context.Context, name string) error {
	heirs, err := w.heirs(ctx, name)
	for _, heir := range heirs {
		if err == nil {
			err = w.RefreshProject(ctx, heir)
		}
	}
	return err
}

// maxInvalidated is how many applications an error lists.
const maxInvalidated = 20

// keepsApplications refuses a change of a project that would invalidate
// applications of it, or of projects that inherit from it, and lists them
// (PROJ-21). Restrictions that are not enforced invalidate none: the
// applications' conditions report them.
func (w *writer) keepsApplications(ctx context.Context, old, changed hub.Project) error {
	if validation.SameJSON(old.Spec, changed.Spec) && validation.SameMap(old.Labels, changed.Labels) {
		return nil
	}
	names, err := w.heirs(ctx, old.Name)
	if err != nil {
		return err
	}
	var found invalidated
	for _, name := range append([]string{old.Name}, names...) {
		before, after, err := w.beforeAndAfter(ctx, name, old, changed)
		if err != nil {
			return err
		}
		if err := w.invalidates(ctx, before, after, &found); err != nil {
			return err
		}
	}
	return found.refusal(old.Name)
}

// beforeAndAfter are a project with what it inherits, before and after a change
// of it or of a project that it inherits from.
func (w *writer) beforeAndAfter(ctx context.Context, name string, old, changed hub.Project) (before, after hub.Project, err error) {
	if before, err = w.EffectiveProject(ctx, name); err != nil {
		return before, after, err
	}
	if name != old.Name {
		after = before
		after.Globals = slices.Clone(before.Globals)
		for i, g := range after.Globals {
			if g.Name == changed.Name {
				after.Globals[i].Spec = changed.Spec
			}
		}
		return enforceable(before), enforceable(after), nil
	}
	value, err := w.globalProjects(ctx)
	if err != nil {
		return before, after, err
	}
	all, err := w.Tx.Projects(ctx)
	if err != nil {
		return before, after, err
	}
	found := map[string]hub.Project{}
	for _, p := range all {
		found[p.Name] = p
	}
	after = before
	after.Labels, after.Spec = changed.Labels, changed.Spec
	if value != "" {
		after.Inherit(value, found)
	}
	return enforceable(before), enforceable(after), nil
}

// invalidated are applications that a change would invalidate, with the causes.
type invalidated struct {
	apps   []string
	hidden int // that the caller may not see
}

func (i invalidated) refusal(project string) error {
	if len(i.apps)+i.hidden == 0 {
		return nil
	}
	apps := i.apps
	if more := len(apps) - maxInvalidated; more > 0 {
		apps = append(apps[:maxInvalidated:maxInvalidated], fmt.Sprintf("%d more", more))
	}
	if i.hidden > 0 {
		apps = append(apps, fmt.Sprintf("%d that you may not see", i.hidden))
	}
	return fault.With(fault.New(fault.Conflict, "applications would become invalid: %s", strings.Join(apps, "; ")), "project "+project,
		"change, move or delete these applications first")
}

// invalidates adds the applications of a project that were permitted and would
// not be any more.
func (w *writer) invalidates(ctx context.Context, before, after hub.Project, found *invalidated) error {
	filter := hub.ApplicationFilter{All: true, Projects: []string{before.Name}, Limit: 500}
	for {
		apps, err := w.Tx.Applications(ctx, filter)
		if err != nil {
			return err
		}
		views, err := w.views(ctx, apps)
		if err != nil {
			return err
		}
		for _, v := range views {
			filter.After = hub.ApplicationKey{Namespace: v.Namespace, Name: v.Name}
			switch why := w.invalidated(v, before, after); {
			case why == nil:
			case !w.Rights.Check(access.Applications, access.Get, objectOf(v.Application)):
				found.hidden++
			default:
				found.apps = append(found.apps, title(v.Namespace, v.Name)+" ("+causeOf(why)+")")
			}
		}
		if len(apps) < filter.Limit {
			return nil
		}
	}
}

// invalidated says why an application that was permitted is permitted no more.
func (w *writer) invalidated(v View, before, after hub.Project) error {
	if v.DeletingAt != nil {
		return nil
	}
	spec, err := hub.DecodeSpec(v.Spec)
	if err != nil {
		return nil
	}
	r := hub.Refresh{Application: v.Application, Cluster: v.On, Project: &before}
	if w.catalog.parts.Permits(r, spec) != nil {
		return nil
	}
	r.Project = &after
	return w.catalog.parts.Permits(r, spec)
}

// enforceable is a project without what is not enforced.
func enforceable(p hub.Project) hub.Project {
	var spec map[string]json.RawMessage
	if json.Unmarshal(p.Spec, &spec) != nil {
		return p
	}
	for _, name := range hub.UnenforcedFields(p.Spec) {
		delete(spec, name)
	}
	if raw, err := json.Marshal(spec); err == nil {
		p.Spec = raw
	}
	return p
}

// A ProjectView is a project with everything that counts for its applications
// (PROJ-22).
type ProjectView struct {
	hub.Project
	Repositories []hub.Repository // those that belong to it
	Clusters     []hub.Cluster    // those that belong to it
}

// DetailedProject returns a project with the projects that it inherits from,
// and with the repositories and clusters that belong to it. What the caller may
// not see is left out.
func (c *Catalog) DetailedProject(ctx context.Context, by hub.Caller, name string) (ProjectView, error) {
	var v ProjectView
	err := c.read(ctx, by, func(ctx context.Context, r *reader) error {
		if !r.Rights.Check(access.Projects, access.Get, name) {
			return transact.Missing(access.Projects, name)
		}
		v = ProjectView{}
		var err error
		if v.Project, err = r.EffectiveProject(ctx, name); err != nil {
			return transact.Hide(err, access.Projects, name)
		}
		clusters, err := r.Tx.Clusters(ctx)
		if err != nil {
			return err
		}
		for _, cl := range clusters {
			if cl.Project == name && r.seesCluster(cl) {
				v.Clusters = append(v.Clusters, cl)
			}
		}
		repositories, err := r.Tx.Repositories(ctx)
		for _, repo := range repositories {
			if repo.Project == name && repo.Registered && r.seesRepo(repo.Project, repo.URL) {
				v.Repositories = append(v.Repositories, repo)
			}
		}
		return err
	})
	return v, err
}
