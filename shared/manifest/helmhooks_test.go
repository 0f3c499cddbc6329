package manifest_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/manifest"
)

func TestHelmHooksAreHooks(t *testing.T) {
	t.Parallel()
	for helm, want := range map[string][]string{
		"pre-install,pre-upgrade": {"PreSync"}, "post-install,post-upgrade": {"PostSync"}, "pre-delete": {"PreDelete"}, "post-delete": {"PostDelete"},
		// One that names installs alone or upgrades alone runs at every sync.
		"pre-install": {"PreSync"}, "pre-upgrade": {"PreSync"}, "post-install": {"PostSync"}, "post-upgrade": {"PostSync"},
	} {
		t.Run("HOOK-18 HELM-20 Helm's "+helm, func(t *testing.T) {
			t.Parallel()
			got, err := manifest.Hooks(object("Job", map[string]any{"helm.sh/hook": helm}))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}
