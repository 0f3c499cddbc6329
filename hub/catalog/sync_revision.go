package catalog

import (
	"cmp"
	"context"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/access"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

// mayChoose refuses a sync to another revision than the application's to those
// who may not override it, where the tenant's settings ask for that right
// (SYNC-06).
func (w *writer) mayChoose(ctx context.Context, a hub.Application, o *hub.Override) error {
	other, err := otherRevision(a, o)
	if err != nil || other == "" {
		return err
	}
	set, err := w.SettingValues(ctx, hub.SettingsMap, []string{settings.RevisionSyncKey})
	if err != nil || !settings.RevisionSyncOverrides(set) {
		return err
	}
	object := objectOf(a)
	if w.Rights.Check(access.Applications, access.Override, object) {
		return nil
	}
	cause := fault.New(fault.Denied, "you have no right to override, which a sync to revision %s takes because of %s in argocd-cm", validation.Shorten(other), settings.RevisionSyncKey)
	return w.Refuse(access.Applications, access.Override, object,
		fault.With(cause, "application "+title(a.Namespace, a.Name), "sync to its own revision, or ask an admin of the tenant for: applications, override, "+object))
}

// PreviewTarget says where the objects of an application are that a preview of
// other revisions is compared with. Whoever may not sync to another revision,
// because of the tenant's settings, may not preview one either: its manifests
// have the same rights in the dry run.
func (c *Catalog) PreviewTarget(ctx context.Context, by hub.Caller, namespace, name string, o hub.Override) (View, error) {
	v, err := c.LiveTarget(ctx, by, namespace, name, nil)
	if err != nil {
		return v, err
	}
	other, err := otherRevision(v.Application, &o)
	if err != nil || other == "" {
		return v, err
	}
	return v, c.ofApplication(ctx, by, namespace, name, func(ctx context.Context, r *reader, a hub.Application) error {
		set, err := r.SettingValues(ctx, hub.SettingsMap, []string{settings.RevisionSyncKey})
		if err != nil || !settings.RevisionSyncOverrides(set) || r.Rights.Check(access.Applications, access.Override, objectOf(a)) {
			return err
		}
		return fault.With(fault.New(fault.Denied, "you have no right to override, which a preview of revision %s takes because of %s in argocd-cm", validation.Shorten(other), settings.RevisionSyncKey),
			"application "+title(a.Namespace, a.Name), "ask an admin of the tenant for: applications, override, "+objectOf(a))
	})
}

// UploadTarget says where the objects of an application are that those of an
// upload are compared with. Manifests that nobody reviewed take the right to
// override.
func (c *Catalog) UploadTarget(ctx context.Context, by hub.Caller, namespace, name string) (View, error) {
	v, err := c.LiveTarget(ctx, by, namespace, name, nil)
	if err != nil {
		return v, err
	}
	return v, c.mayUpload(ctx, by, namespace, name)
}

// mayUpload refuses those who may not replace what an application's source says.
func (c *Catalog) mayUpload(ctx context.Context, by hub.Caller, namespace, name string) error {
	return c.ofApplication(ctx, by, namespace, name, func(_ context.Context, r *reader, a hub.Application) error {
		if r.Rights.Check(access.Applications, access.Override, objectOf(a)) {
			return nil
		}
		return fault.With(fault.New(fault.Denied, "you have no right to override, which a render of your own files takes"),
			"application "+title(a.Namespace, a.Name), "ask an admin of the tenant for: applications, override, "+objectOf(a))
	})
}

// otherRevision is the first revision of a request that is neither the one
// that the application names nor the commit that this stands for at present;
// empty: there is none.
func otherRevision(a hub.Application, o *hub.Override) (string, error) {
	if o == nil || o.Revision == "" && len(o.Revisions) == 0 {
		return "", nil
	}
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return "", err
	}
	wanted, err := o.Apply(spec)
	if err != nil {
		return "", err
	}
	commits := a.Status.Revisions
	if a.Pin != nil {
		commits = a.Pin.SkippedRevisions
	}
	own := spec.EffectiveSources()
	for i, s := range wanted.EffectiveSources() {
		if s.TargetRevision == own[i].TargetRevision || cmp.Or(s.TargetRevision, "HEAD") == cmp.Or(own[i].TargetRevision, "HEAD") {
			continue
		}
		if i < len(commits) && len(s.TargetRevision) >= 7 && strings.HasPrefix(commits[i], s.TargetRevision) {
			continue
		}
		return s.TargetRevision, nil
	}
	return "", nil
}
