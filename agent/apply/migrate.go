package apply

import (
	"context"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// clientSideManager is the field manager of kubectl's client-side apply.
const clientSideManager = "kubectl-client-side-apply"

// migrate transfers, after our first apply of an object, the fields that a
// client-side apply owns to our manager, and applies again, so that fields
// missing in the manifest are removed (SYNC-23). out is the response of the
// first apply, which shows whether there is anything to transfer.
func (a *app) migrate(ctx context.Context, s *sending, out *manifest.Object) (*manifest.Object, error) {
	if s.had || s.dryRun || hasOption(s.options, "ClientSideApplyMigration", "false") {
		return out, nil
	}
	switch adopted, err := a.adoptUnseen(ctx, s, out); {
	case err != nil:
		return nil, err
	case adopted:
		return a.applyServerSide(ctx, s)
	}
	manager := migratedManager(s.body)
	for try := 1; ; try++ {
		text := a.migration(out, manager)
		if text == nil {
			return out, nil
		}
		_, err := a.kube().patch(ctx, patch{endpoint: s.endpoint, kind: types.JSONPatchType, body: text, manager: a.e.Manager}, nil)
		if err == nil {
			s.note = "adopted the fields of " + manager
			return a.applyServerSide(ctx, s)
		}
		if outdated := apierrors.IsConflict(err) || apierrors.IsInvalid(err); !outdated || try == maxConflicts {
			return nil, err
		}
		if out, err = a.kube().get(ctx, s.endpoint); err != nil || out == nil {
			return a.applyServerSide(ctx, s)
		}
	}
}

// migratedManager is the field manager of the client-side applies.
func migratedManager(o *manifest.Object) string {
	if name, ok := manifest.Annotation(o, "client-side-apply-migration-manager"); ok && name != "" {
		return name
	}
	return clientSideManager
}

// migration returns the patch that transfers a manager's fields; nil if it owns
// none, or none that can be transferred.
func (a *app) migration(live *manifest.Object, manager string) []byte {
	if !ownsFields(live, manager) {
		return nil
	}
	text, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(manager), a.e.Manager)
	if err != nil {
		return nil
	}
	return text
}

// adoptUnseen adopts an object of another tool that was created shortly before
// our apply, before a watch reported it.
func (a *app) adoptUnseen(ctx context.Context, s *sending, out *manifest.Object) (adopted bool, err error) {
	ops, from := a.adoption(out, s.options)
	if len(ops) == 0 || !inherits(out) {
		return false, nil
	}
	text, err := manifest.AppendCanonical(nil, ops)
	if err != nil {
		return false, err
	}
	_, err = a.kube().patch(ctx, patch{endpoint: s.endpoint, kind: types.JSONPatchType, body: text, manager: a.e.Manager}, nil)
	switch {
	case err == nil:
		s.note = "adopted from " + from
		return true, nil
	case apierrors.IsConflict(err), apierrors.IsInvalid(err):
		return false, nil
	}
	return false, err
}

// ownsFields reports whether a manager owns fields of an object by updates.
func ownsFields(o *manifest.Object, manager string) bool {
	return slices.ContainsFunc(o.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == ""
	})
}
