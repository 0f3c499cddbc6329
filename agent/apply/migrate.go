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
	if ops, from := a.adoption(out, s.options); len(ops) > 0 && inherits(out) {
		// It was created so recently that no watch has reported it.
		text, err := manifest.AppendCanonical(nil, ops)
		if err != nil {
			return nil, err
		}
		_, err = a.e.kube.patch(ctx, patch{endpoint: s.endpoint, kind: types.JSONPatchType, body: text, manager: a.e.Manager}, nil)
		switch {
		case err == nil:
			s.note = "adopted from " + from
			return a.applyServerSide(ctx, s)
		case !apierrors.IsConflict(err) && !apierrors.IsInvalid(err):
			return nil, err
		}
	}
	manager := clientSideManager
	if name, ok := manifest.Annotation(s.body, "client-side-apply-migration-manager"); ok && name != "" {
		manager = name
	}
	for try := 1; ; try++ {
		if !slices.ContainsFunc(out.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
			return f.Manager == manager && f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == ""
		}) {
			return out, nil
		}
		text, err := csaupgrade.UpgradeManagedFieldsPatch(out, sets.New(manager), a.e.Manager)
		if err != nil || text == nil {
			return out, nil
		}
		_, err = a.e.kube.patch(ctx, patch{endpoint: s.endpoint, kind: types.JSONPatchType, body: text, manager: a.e.Manager}, nil)
		if err == nil {
			s.note = "adopted the fields of " + manager
			return a.applyServerSide(ctx, s)
		}
		if try == maxConflicts || !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
			return nil, err
		}
		if out, err = a.e.kube.get(ctx, s.endpoint); err != nil || out == nil {
			return a.applyServerSide(ctx, s)
		}
	}
}
