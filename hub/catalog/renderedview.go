package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/transact"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// Rendered returns those hub objects that exist and that the applications which
// render them may see: an application must be on the cluster, must have
// rendered the object or list it, and its project must permit writing it.
func (c *Catalog) Rendered(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, refs []hub.RenderedRef) ([]hub.RenderedObject, error) {
	var out []hub.RenderedObject
	err := c.parts.Service.Store.ReadTenant(ctx, tenant, func(ctx context.Context, tx transact.Tx) error {
		out = nil
		l := &lookup{tx: tx, cluster: cluster}
		if err := l.load(ctx, refs); err != nil {
			return err
		}
		for _, ref := range refs {
			o, err := l.object(ctx, ref)
			if err != nil {
				return err
			}
			if o.ID != "" {
				out = append(out, o)
			}
		}
		return nil
	})
	return out, err
}

// A lookup finds many objects of the hub in one transaction.
type lookup struct {
	tx       transact.Tx
	cluster  hub.ClusterID
	parents  map[hub.ApplicationID]*parent
	apps     map[hub.ApplicationKey]hub.Application
	projects map[string]hub.Project
	sets     map[hub.ApplicationKey]hub.ApplicationSet
	by       map[string]hub.RenderedBy
	wants    map[hub.ApplicationID][]hub.ObjectRef // read where they are needed
}

func (l *lookup) load(ctx context.Context, refs []hub.RenderedRef) error {
	l.parents, l.apps, l.wants = map[hub.ApplicationID]*parent{}, map[hub.ApplicationKey]hub.Application{}, map[hub.ApplicationID][]hub.ObjectRef{}
	var ids []hub.ApplicationID
	var keys []hub.ApplicationKey
	var names, objects []string
	l.sets = map[hub.ApplicationKey]hub.ApplicationSet{}
	for _, r := range refs {
		ids = append(ids, r.Parent)
		key := hub.ApplicationKey{Namespace: r.Namespace, Name: r.Name}
		switch r.Kind {
		case validation.KindApplication:
			keys = append(keys, key)
		case validation.KindApplicationSet:
			s, err := l.tx.ApplicationSet(ctx, r.Namespace, r.Name)
			if err != nil && fault.KindOf(err) != fault.Missing {
				return err
			}
			if err == nil {
				l.sets[key], objects = s, append(objects, string(s.ID))
			}
		default:
			names = append(names, r.Name)
		}
	}
	above, err := l.tx.ApplicationsByID(ctx, unique(ids))
	if err != nil {
		return err
	}
	for _, a := range above {
		names = append(names, a.Project)
	}
	if l.projects, err = l.tx.ProjectSpecs(ctx, unique(names)); err != nil {
		return err
	}
	for id, a := range above {
		p := &parent{Application: a}
		if p.spec, err = hub.DecodeSpec(a.Spec); err != nil || a.Cluster != l.cluster {
			continue
		}
		if p.project, err = l.projects[a.Project].Effective(); err == nil {
			l.parents[id] = p
		}
	}
	found, err := l.tx.ApplicationsNamed(ctx, unique(keys))
	if err != nil {
		return err
	}
	for _, a := range found {
		l.apps[hub.ApplicationKey{Namespace: a.Namespace, Name: a.Name}] = a
		objects = append(objects, string(a.ID))
	}
	for _, p := range l.projects {
		objects = append(objects, string(p.ID))
	}
	l.by, err = l.tx.RenderedBy(ctx, objects)
	return err
}

func (l *lookup) object(ctx context.Context, ref hub.RenderedRef) (hub.RenderedObject, error) {
	p := l.parents[ref.Parent]
	if p == nil {
		return hub.RenderedObject{}, nil
	}
	if ref.Kind == validation.KindProject {
		project, there := l.projects[ref.Name]
		if !there || p.may(ref) != nil {
			return hub.RenderedObject{}, nil
		}
		if seen, err := l.mayRead(ctx, p, ref, string(project.ID)); err != nil || !seen {
			return hub.RenderedObject{}, err
		}
		return presentProject(p, ref, project, l.by[string(project.ID)].Parent == p.ID)
	}
	if ref.Kind == validation.KindApplicationSet {
		s, there := l.sets[hub.ApplicationKey{Namespace: ref.Namespace, Name: ref.Name}]
		if !there || p.may(ref, s.Project) != nil {
			return hub.RenderedObject{}, nil
		}
		if seen, err := l.mayRead(ctx, p, ref, string(s.ID)); err != nil || !seen {
			return hub.RenderedObject{}, err
		}
		return presentSet(p, ref, s, l.by[string(s.ID)].Parent == p.ID)
	}
	a, there := l.apps[hub.ApplicationKey{Namespace: ref.Namespace, Name: ref.Name}]
	if !there || ref.Kind != validation.KindApplication || p.may(ref, a.Project) != nil {
		return hub.RenderedObject{}, nil
	}
	if seen, err := l.mayRead(ctx, p, ref, string(a.ID)); err != nil || !seen {
		return hub.RenderedObject{}, err
	}
	return presentApplication(p, ref, a, l.by[string(a.ID)].Parent == p.ID)
}

// mayRead reports whether the application has rendered an object, or lists it.
func (l *lookup) mayRead(ctx context.Context, p *parent, ref hub.RenderedRef, id string) (bool, error) {
	if l.by[id].Parent == p.ID {
		return true, nil
	}
	wants, read := l.wants[p.ID]
	if !read {
		found, err := l.tx.Snapshots(ctx, []hub.SnapshotID{p.Status.Target, p.Status.Accepted})
		if err != nil {
			return false, err
		}
		wants = all(found)
		l.wants[p.ID] = wants
	}
	return slices.ContainsFunc(wants, func(o hub.ObjectRef) bool { return p.names(o, ref) }), nil
}

// presentApplication returns an application for an agent: as Argo CD would
// store it in its cluster, with the fields that health rules read.
func presentApplication(p *parent, ref hub.RenderedRef, a hub.Application, ours bool) (hub.RenderedObject, error) {
	st := a.Status
	status := map[string]any{
		"sync":   map[string]any{"status": string(st.Show(nil, time.Time{}).Sync), "revision": st.Revision},
		"health": health(st),
	}
	if op := st.Operation; op != nil {
		status["operationState"] = map[string]any{"phase": string(op.Phase), "message": op.Message, "startedAt": stamp(&op.CreatedAt), "finishedAt": stamp(op.FinishedAt)}
	}
	var conditions []any
	for _, c := range st.Conditions {
		conditions = append(conditions, map[string]any{"type": c.Type, "message": c.Message, "lastTransitionTime": stamp(&c.Since)})
	}
	if conditions != nil {
		status["conditions"] = conditions
	}
	return present(p, ref, ours, string(a.ID), a.Meta, a.DeletingAt, repourl.RedactJSON(a.Spec), status)
}

func health(st hub.ApplicationStatus) map[string]any {
	out := map[string]any{"status": or(string(st.Health), string(hub.HealthUnknown))}
	if st.HealthCause != "" {
		out["message"] = st.HealthCause
	}
	if st.HealthSince != nil {
		out["lastTransitionTime"] = stamp(st.HealthSince)
	}
	return out
}

func presentProject(p *parent, ref hub.RenderedRef, project hub.Project, ours bool) (hub.RenderedObject, error) {
	return present(p, ref, ours, string(project.ID), project.Meta, nil, repourl.RedactJSON(project.Spec), nil)
}

func present(p *parent, ref hub.RenderedRef, ours bool, id string, m hub.Meta, deleting *time.Time, spec json.RawMessage, status map[string]any) (hub.RenderedObject, error) {
	meta := map[string]any{
		"name": ref.Name, "namespace": ref.Namespace, "uid": id, "resourceVersion": strconv.FormatInt(m.Version, 10),
		"creationTimestamp": stamp(&m.CreatedAt),
	}
	annotations := map[string]string{}
	for k, v := range m.Annotations {
		annotations[k] = v
	}
	if delete(annotations, trackingAnnotation); ours || p.is(ref) {
		annotations[trackingAnnotation] = p.tracking(ref)
	}
	if len(annotations) > 0 {
		meta["annotations"] = annotations
	}
	if len(m.Labels) > 0 {
		meta["labels"] = m.Labels
	}
	if len(m.Finalizers) > 0 {
		meta["finalizers"] = m.Finalizers
	}
	if deleting != nil {
		meta["deletionTimestamp"] = stamp(deleting)
	}
	o := map[string]any{"apiVersion": validation.ArgoVersion, "kind": ref.Kind, "metadata": meta, "spec": spec}
	if status != nil {
		o["status"] = status
	}
	text, err := json.Marshal(o)
	if err != nil {
		return hub.RenderedObject{}, fmt.Errorf("write %s as JSON: %w", ref.Key(), err)
	}
	return hub.RenderedObject{RenderedRef: ref, ID: id, Object: text}, nil
}

// trackingAnnotation says which application an object belongs to, in the
// words that agents use (TRK-02).
const trackingAnnotation = "capstan.dev/tracking-id"

func (p *parent) tracking(ref hub.RenderedRef) string {
	return fmt.Sprintf("%s_%s:%s/%s:%s/%s", p.Namespace, p.Name, manifest.HubGroup, ref.Kind, ref.Namespace, ref.Name)
}

func stamp(t *time.Time) any {
	if t == nil || t.IsZero() {
		return nil
	}
	return t.UTC().Format(time.RFC3339)
}

func or(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
