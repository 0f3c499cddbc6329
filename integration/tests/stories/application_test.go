package stories_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// status reads an application as the API gives it.
func status(t *testing.T, name string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := s.API.Do(t.Context(), "GET", "/api/v1/applications/argocd/"+name, nil, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// entries are the numbers of the history that the command line shows.
func entries(t *testing.T, name string, args ...string) []string {
	t.Helper()
	out, err := s.API.CLI(within(t, waitLimit), "", append([]string{"app", "history", name, "-o", "name"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(out)
}

// deployed waits until an application is settled and its history says so, which
// is written after its operation has ended.
func deployed(t *testing.T, name string) {
	t.Helper()
	condition(t, name, func(x stack.App) error {
		if err := stack.Settled(x); err != nil {
			return err
		}
		if len(entries(t, name)) == 0 {
			return errors.New("its history is not written yet")
		}
		return nil
	})
}

func TestApplicationReport(t *testing.T) {
	elsewhere := "apiVersion: v1\nkind: Namespace\nmetadata: {name: reported-else}\n---\n" + strings.Replace(configMap("b", "one"), "name: b", "name: b\n  namespace: reported-else", 1)
	repo := repository(t, "reported", map[string]string{"app/a.yaml": configMap("a", "0"), "app/b.yaml": elsewhere})
	deploy(t, "reported", repo.URL(), "app", "  info: [{name: owner, value: \"https://example.com/team\"}]\n")
	settled(t, "reported")
	cluster := s.Clusters["in-cluster"]
	t.Run("APP-04 the destination's namespace is for objects that name none", func(t *testing.T) {
		for _, at := range [][3]string{{"reported", "a", "0"}, {"reported-else", "b", "one"}} {
			if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, at[0], at[1], value(at[2])); err != nil {
				t.Errorf("%s/%s: %v", at[0], at[1], err)
			}
		}
	})
	t.Run("APP-07 info is returned, APP-10 APP-11 APP-19 and sync, health and source type are reported", func(t *testing.T) {
		x := status(t, "reported")
		st, _ := x["status"].(map[string]any)
		spec, _ := x["spec"].(map[string]any)
		text, _ := json.Marshal(spec["info"])
		if string(text) != `[{"name":"owner","value":"https://example.com/team"}]` {
			t.Errorf("info is %s", text)
		}
		sync, _ := st["sync"].(map[string]any)
		health, _ := st["health"].(map[string]any)
		if sync["status"] != "Synced" || sync["revision"] == "" || health["status"] != "Healthy" || health["lastTransitionTime"] == nil || st["sourceType"] != "Directory" {
			t.Errorf("status is %v", st)
		}
	})
	for i := 1; i <= 12; i++ {
		if _, err := repo.Commit(t.Context(), fmt.Sprint(i), map[string]string{"app/a.yaml": configMap("a", fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "reported", "a", value(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		condition(t, "reported", func(x stack.App) error {
			if got := entries(t, "reported"); len(got) != i+1 {
				return fmt.Errorf("history is %v", got)
			}
			return nil
		})
	}
	t.Run("APP-12 the history has no limit of ten, and counts by one", func(t *testing.T) {
		got := entries(t, "reported")
		if len(got) != 13 || got[0] != "13" || got[12] != "1" {
			t.Errorf("history is %v", got)
		}
		if got := entries(t, "reported", "--limit", "5"); len(got) != 5 || got[4] != "9" {
			t.Errorf("its end is %v", got)
		}
	})
	limited := func(t *testing.T, n int) {
		t.Helper()
		text := applied(t, "reported")
		if _, err := s.API.Apply(t.Context(), strings.Replace(text, "\nspec:\n", fmt.Sprintf("\nspec:\n  revisionHistoryLimit: %d\n", n), 1)); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("APP-08 revisionHistoryLimit sets how many entries are shown and available for a rollback", func(t *testing.T) {
		before := applied(t, "reported")
		limited(t, 3)
		if got := entries(t, "reported"); len(got) != 3 || got[2] != "11" {
			t.Errorf("history is %v", got)
		}
		st, _ := status(t, "reported")["status"].(map[string]any)
		if held, _ := st["history"].([]any); len(held) != 3 {
			t.Errorf("status.history is %v", st["history"])
		}
		out, err := s.API.CLI(within(t, waitLimit), "", "app", "rollback", "reported", "10")
		if err == nil || !strings.Contains(out+err.Error(), "beyond its spec.revisionHistoryLimit") {
			t.Errorf("rollback beyond it: %v\n%s", err, out)
		}
		if _, err := s.API.Apply(t.Context(), before); err != nil {
			t.Fatal(err)
		}
		limited(t, 0)
		if got := entries(t, "reported"); len(got) != 0 {
			t.Errorf("with 0 the history is %v", got)
		}
		out, err = s.API.CLI(within(t, waitLimit), "", "app", "rollback", "reported", "12")
		if err == nil || !strings.Contains(out+err.Error(), "no history is kept") {
			t.Errorf("rollback with 0: %v\n%s", err, out)
		}
	})
	t.Run("APP-29 without the cascade finalizer deletion leaves the objects", func(t *testing.T) {
		text := applied(t, "reported")
		text = strings.Replace(text, "  finalizers:\n  - resources-finalizer.argocd.argoproj.io\n", "", 1)
		if _, err := s.API.Apply(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "delete", "reported", "--yes"); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "reported", "a", value("12")); err != nil {
			t.Error(err)
		}
	})
}
