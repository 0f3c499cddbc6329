package stories_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/harness"
)

// Whoever asks for a refresh sees what was pushed before, though no webhook
// told the hub.
func TestRefresh(t *testing.T) {
	repo := repository(t, "refresh", map[string]string{"app/a.yaml": configMap("a", "one")})
	deployByHand(t, "refresh", repo.URL(), "app")
	repo.SetWebhook(harness.Webhook{})
	for name, args := range map[string][]string{
		"APP-22 app get --refresh shows what was pushed before":      {"app", "get", "refresh", "--refresh", "-o", "json"},
		"APP-22 app get --hard-refresh shows what was pushed before": {"app", "get", "refresh", "--hard-refresh", "-o", "json"},
	} {
		t.Run(name, func(t *testing.T) {
			commit, err := repo.Commit(t.Context(), name, map[string]string{"app/a.yaml": configMap("a", name)})
			if err != nil {
				t.Fatal(err)
			}
			if out := cli(t, args...); !strings.Contains(out, commit) {
				t.Errorf("after the refresh the application does not show %s:\n%s", commit, out)
			}
		})
	}
	t.Run("DIFF-17 app diff --refresh compares with what was pushed before", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "diff", map[string]string{"app/a.yaml": configMap("a", "pushed last")}); err != nil {
			t.Fatal(err)
		}
		if out := cli(t, "app", "diff", "refresh", "--refresh", "--exit-code=false"); !strings.Contains(out, "pushed last") {
			t.Errorf("the difference is\n%s", out)
		}
	})
}
