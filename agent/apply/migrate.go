package apply

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/csaupgrade"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// clientSideManager is the field manager of kubectl's client-side apply.
const clientSideManager = "kubectl-client-side-apply"

// migrate takes over, before our first apply of an object, the fields that a
// client-side apply owns, so that a field that leaves the manifests leaves the
// object too (SYNC-23). Only metadata changes.
func (a *app) migrate(ctx context.Context, s *sending) error {
	if s.had || s.before == "" || s.dryRun || hasOption(s.options, "ClientSideApplyMigration", "false") {
		return nil
	}
	manager := clientSideManager
	if name, ok := manifest.Annotation(s.body, "client-side-apply-migration-manager"); ok && name != "" {
		manager = name
	}
	for try := 1; ; try++ {
		live, err := a.e.kube.get(ctx, s.place)
		if err != nil || live == nil {
			return err
		}
		text, err := csaupgrade.UpgradeManagedFieldsPatch(live, sets.New(manager), a.e.Manager)
		if err != nil || text == nil {
			return nil // its entries cannot be read, or none is the manager's: there is nothing to take over
		}
		_, err = a.e.kube.patch(ctx, patch{place: s.place, kind: types.JSONPatchType, body: text, manager: a.e.Manager}, nil)
		switch {
		case err == nil:
			s.note = "took over the fields of " + manager
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case try == maxConflicts || !apierrors.IsConflict(err) && !apierrors.IsInvalid(err):
			return err
		}
	}
}
