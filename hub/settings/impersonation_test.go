package settings_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestImpersonation(t *testing.T) {
	t.Parallel()
	const key = "application.sync.impersonation.enabled"
	t.Run("DIFF-05 ENG-20(refused) impersonation is refused, because comparisons and syncs act as the agent", func(t *testing.T) {
		t.Parallel()
		err := settings.Check("argocd-cm", key, "true")
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), "act as the account of the cluster's agent") || !strings.Contains(fault.Sentence(err), key) {
			t.Errorf("error %v", err)
		}
	})
	t.Run("DIFF-05 disabled it is accepted, with a warning that it has no effect", func(t *testing.T) {
		t.Parallel()
		if err := settings.Check("argocd-cm", key, "false"); err != nil {
			t.Error(err)
		}
		if got := settings.Unused("argocd-cm", key); !strings.Contains(got, "without effect") {
			t.Errorf("%q", got)
		}
		if err := settings.Check("argocd-cm", key, "perhaps"); err == nil {
			t.Error("what is neither true nor false is taken")
		}
	})
}
