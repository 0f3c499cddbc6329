package catalog

import (
	"context"
	"slices"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// mayReplace refuses a user's sync that would replace or recreate objects, if
// the tenant's settings forbid it (SYNC-08). Options of objects in Git stay
// allowed: they were reviewed.
func (w *writer) mayReplace(ctx context.Context, a hub.Application, r hub.SyncRequest) error {
	what, err := replaces(a, r)
	if err != nil || what == "" {
		return err
	}
	all, _, err := w.Tx.Settings(ctx)
	if err != nil {
		return err
	}
	set, err := settings.Compile(all)
	if err != nil || set.ReplaceAllowed() {
		return err
	}
	return fault.With(fault.New(fault.Denied, "the tenant's settings forbid to sync with %s", what), "",
		"sync without it, or have server.sync.replace.allowed of argocd-cmd-params-cm set to true")
}

// replaces names what of a request replaces objects; empty: nothing does.
func replaces(a hub.Application, r hub.SyncRequest) (string, error) {
	if r.Options.Force {
		return "Force", nil
	}
	spec, err := hub.DecodeSpec(a.Spec)
	if err != nil {
		return "", err
	}
	var options []string
	if spec.SyncPolicy != nil {
		options = spec.SyncPolicy.SyncOptions
	}
	if what := validation.ReplaceOption(slices.Concat(options, r.Options.SyncOptions)); what != "" || r.Local == nil {
		return what, nil
	}
	for _, body := range r.Local.Bodies {
		o, err := manifest.FromCanonical(body)
		if err != nil {
			return "", err
		}
		if what := validation.ReplaceOption(manifest.Options(o)); what != "" {
			return what + " on " + manifest.KeyOf(o).Describe(), nil
		}
	}
	return "", nil
}
