package stories_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
)

// Whoever asks for a refresh sees what was pushed before, though no webhook
// told the hub.
func TestRefresh(t *testing.T) {
	repo := repository(t, "refresh", map[string]string{"app/a.yaml": configMap("a", "one")})
	deployByHand(t, "refresh", repo.URL(), "app")
	repo.SetWebhook(gitserver.Webhook{})
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
	t.Run("APP-22 a refresh of an unchanged repository ends, and reports that", func(t *testing.T) {
		out := cli(t, "app", "refresh", "refresh", "--timeout", "1m")
		if !strings.Contains(out, "unchanged") {
			t.Errorf("it says\n%s", out)
		}
	})
	t.Run("APP-22 a refresh reports its result", func(t *testing.T) {
		commit, err := repo.Commit(t.Context(), "beside", map[string]string{"notes.txt": "nothing of it is rendered"})
		if err != nil {
			t.Fatal(err)
		}
		if out := cli(t, "app", "refresh", "refresh"); !strings.Contains(out, commit[:8]) || !strings.Contains(out, "same manifests") {
			t.Errorf("it says\n%s", out)
		}
	})
	t.Run("APP-12 the history names the listed revision, not the first one with the same manifests", func(t *testing.T) {
		cli(t, "app", "sync", "refresh")
		if _, err := repo.Commit(t.Context(), "beside again", map[string]string{"notes.txt": "still nothing"}); err != nil {
			t.Fatal(err)
		}
		cli(t, "app", "refresh", "refresh")
		cli(t, "app", "sync", "refresh")
		listed := strings.Fields(strings.Split(cli(t, "app", "list", "--name", "refresh"), "\n")[1])[5]
		history := strings.Fields(strings.Split(cli(t, "app", "history", "refresh"), "\n")[1])[1]
		if listed != history {
			t.Errorf("the list says %s, the history %s", listed, history)
		}
	})
	t.Run("DIFF-17 app diff --refresh compares with what was pushed before", func(t *testing.T) {
		if _, err := repo.Commit(t.Context(), "diff", map[string]string{"app/a.yaml": configMap("a", "pushed last")}); err != nil {
			t.Fatal(err)
		}
		if out := cli(t, "app", "diff", "refresh", "--refresh", "--exit-code=false"); !strings.Contains(out, "pushed last") {
			t.Errorf("the difference is\n%s", out)
		}
	})
}
