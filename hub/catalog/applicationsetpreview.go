package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

// GenerateApplications returns what a set would do to each application if it
// were stored now, in order of name, and what is wrong. It writes nothing. The
// caller needs the rights to write the set (ASET-19, UX-PRO-4).
func (c *Catalog) GenerateApplications(ctx context.Context, by hub.Caller, s hub.ApplicationSet) ([]hub.PreviewedApplication, error) {
	if _, err := validation.CheckApplicationSet(&s); err != nil {
		return nil, fault.With(err, "application set "+title(s.Namespace, validation.Shorten(s.Name)), "")
	}
	if _, err := c.parts.Sets.Check(s); err != nil {
		return nil, fault.With(err, "application set "+title(s.Namespace, s.Name), "")
	}
	r := &reconciling{Catalog: c, tenant: by.Tenant, set: s, now: c.parts.Service.Now()}
	if err := c.read(ctx, by, func(ctx context.Context, rd *reader) error { return r.preparePreview(ctx, rd, s) }); err != nil {
		return nil, err
	}
	var err error
	if r.spec, err = hub.DecodeApplicationSet(s.Spec); err != nil {
		return nil, err
	}
	if r.generation, err = c.parts.Sets.Generate(ctx, r.tenant, r.set, r.limits()); err != nil {
		return nil, err
	}
	if r.generation.Waits != "" {
		return nil, fault.With(fault.New(fault.Offline, "the hub has not fetched what its generators read: %s", r.generation.Waits), "application set "+s.Name,
			"register the repository, or store the application set, and try again")
	}
	if err := r.decide(ctx); err != nil {
		return nil, err
	}
	out, err := r.previewed()
	if err != nil {
		return nil, err
	}
	out = r.withProblems(out)
	if err := r.addParams(out); err != nil {
		return nil, err
	}
	return r.visibleOnly(ctx, by, out), nil
}

// addParams says what the template of each application was filled with.
func (r *reconciling) addParams(to []hub.PreviewedApplication) error {
	of := make(map[string]map[string]any, len(r.generation.Applications))
	for _, g := range r.generation.Applications {
		of[g.Name] = g.Params
	}
	for i, p := range to {
		params, there := of[p.Name]
		if !there || p.Action == hub.PreviewDelete {
			continue
		}
		text, err := json.Marshal(params)
		if err != nil {
			return fmt.Errorf("write parameters of application %q: %w", p.Name, err)
		}
		to[i].Params = text
	}
	return nil
}

// preparePreview checks the rights of the caller and reads what the set is
// compared with.
func (r *reconciling) preparePreview(ctx context.Context, rd *reader, s hub.ApplicationSet) error {
	action := access.Create
	old, err := rd.Tx.ApplicationSet(ctx, s.Namespace, s.Name)
	switch {
	case err == nil:
		action = access.Update
		if !rd.Rights.Check(access.ApplicationSets, access.Update, setObject(old)) {
			return denied(access.ApplicationSets, action, setObject(s))
		}
		r.set.ID, r.set.Status, r.set.Generation = old.ID, old.Status, old.Generation
	case fault.KindOf(err) != fault.Missing:
		return err
	default:
		r.set.ID = hub.NewID[hub.ApplicationSetID]() // it has no applications
	}
	if !rd.Rights.Check(access.ApplicationSets, action, setObject(s)) {
		return denied(access.ApplicationSets, action, setObject(s))
	}
	if !rd.Rights.Check(access.Applications, access.Create, s.Project+"/*") {
		return denied(access.Applications, access.Create, s.Project+"/*")
	}
	r.options, err = readSetOptions(ctx, rd.Tx, s.Meta)
	return err
}

// previewed is the decision as people read it.
func (r *reconciling) previewed() ([]hub.PreviewedApplication, error) {
	var out []hub.PreviewedApplication
	add := func(action string, before *hub.Application, after any, namespace, name string) (*hub.PreviewedApplication, error) {
		p := hub.PreviewedApplication{ApplicationKey: hub.ApplicationKey{Namespace: namespace, Name: name}, Action: action}
		var err error
		if before != nil {
			if p.Before, err = json.Marshal(validation.Written(before.Meta, before.Spec)); err != nil {
				return nil, fmt.Errorf("write application %q: %w", name, err)
			}
		}
		if after != nil {
			if p.After, err = json.Marshal(after); err != nil {
				return nil, fmt.Errorf("write application %q: %w", name, err)
			}
		}
		out = append(out, p)
		return &out[len(out)-1], nil
	}
	d := r.decision
	for _, a := range d.Create {
		if _, err := add(hub.PreviewCreate, nil, validation.Written(a.Meta, a.Spec), a.Namespace, a.Name); err != nil {
			return nil, err
		}
	}
	for _, u := range d.Update {
		if _, err := add(hub.PreviewUpdate, &u.Old, validation.Written(u.Want.Meta, u.Want.Spec), u.Want.Namespace, u.Want.Name); err != nil {
			return nil, err
		}
	}
	for _, a := range d.Unchanged {
		if _, err := add(hub.PreviewUnchanged, &a, validation.Written(a.Meta, a.Spec), a.Namespace, a.Name); err != nil {
			return nil, err
		}
	}
	for _, a := range r.existing {
		held := d.Held != nil && slices.Contains(d.Held.Applications, a.Namespace+"/"+a.Name)
		if !held && !slices.ContainsFunc(d.Delete, func(o hub.Application) bool { return o.ID == a.ID }) {
			continue
		}
		p, err := add(hub.PreviewDelete, &a, nil, a.Namespace, a.Name)
		if err != nil {
			return nil, err
		}
		p.Held = held
	}
	slices.SortFunc(out, func(a, b hub.PreviewedApplication) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// withProblems adds why something would not happen. What is there stays as it is.
func (r *reconciling) withProblems(all []hub.PreviewedApplication) []hub.PreviewedApplication {
	for _, p := range r.report.problems {
		key := hub.ApplicationKey{Namespace: r.set.Namespace, Name: p.Application}
		if i := slices.IndexFunc(all, func(a hub.PreviewedApplication) bool { return a.ApplicationKey == key }); i >= 0 {
			all[i].Problem = p.Message
			continue
		}
		action := hub.PreviewCreate
		if slices.ContainsFunc(r.existing, func(a hub.Application) bool { return a.Name == p.Application }) {
			action = hub.PreviewUnchanged
		}
		all = append(all, hub.PreviewedApplication{ApplicationKey: key, Action: action, Problem: p.Message})
	}
	return all
}

// visibleOnly leaves out what is there of applications that the caller may not
// see.
func (r *reconciling) visibleOnly(ctx context.Context, by hub.Caller, all []hub.PreviewedApplication) []hub.PreviewedApplication {
	projects := map[hub.ApplicationKey]string{}
	for _, a := range r.existing {
		projects[hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}] = a.Project
	}
	err := r.read(ctx, by, func(_ context.Context, rd *reader) error {
		for i := range all {
			if project, there := projects[all[i].ApplicationKey]; there && !rd.Rights.Check(access.Applications, access.Get, object(project, all[i].ApplicationKey)) {
				all[i].Before = nil
			}
		}
		return nil
	})
	if err != nil {
		for i := range all {
			all[i].Before = nil
		}
	}
	return all
}

// denied is what a caller reads who lacks a right.
func denied(resource, action, object string) error {
	return transact.Denied(access.Rule{Resource: resource, Action: action, Object: object})
}
