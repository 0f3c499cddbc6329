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
