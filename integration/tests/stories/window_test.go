package stories_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// freeze is a deny window that began with this minute and ends after d: windows
// begin with minutes, but may end at any second.
func freeze(d time.Duration) (window map[string]any, end time.Time) {
	now := time.Now().UTC()
	begin := now.Truncate(time.Minute)
	length := (now.Sub(begin) + d).Truncate(time.Second)
	return map[string]any{
		"kind": "deny", "schedule": fmt.Sprintf("%d %d * * *", begin.Minute(), begin.Hour()), "duration": length.String(),
		"applications": []string{"window*"}, "description": "freeze",
	}, begin.Add(length)
}

// projectWith applies a project that permits everything, with sync windows.
func projectWith(t *testing.T, name string, windows ...map[string]any) {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject", "metadata": map[string]any{"name": name},
		"spec": map[string]any{
			"sourceRepos": []string{"*"}, "destinations": []map[string]string{{"server": "*", "namespace": "*"}},
			"clusterResourceWhitelist": []map[string]string{{"group": "*", "kind": "*"}}, "syncWindows": windows,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(within(t, waitLimit), string(b)); err != nil {
		t.Fatal(err)
	}
}

// sees waits until an application satisfies check, for as long as a moment has
// not passed, and says whether it did.
func sees(t *testing.T, name string, before time.Time, check func(stack.App) error) bool {
	t.Helper()
	ctx, cancel := context.WithDeadline(t.Context(), before)
	defer cancel()
	_, err := s.API.Wait(ctx, name, check)
	return err == nil
}

func TestWindows(t *testing.T) {
	repo := repository(t, "windows", map[string]string{"app/a.yaml": configMap("a", "one")})
	projectWith(t, "windows")
	deploy(t, "windows", repo.URL(), "app", "")
	manifest := applied(t, "windows")
	if _, err := s.API.Apply(t.Context(), strings.Replace(manifest, "project: default", "project: windows", 1)); err != nil {
		t.Fatal(err)
	}
	settled(t, "windows")
	cluster := s.Clusters["in-cluster"]
	held := func(text string) func(stack.App) error {
		return func(x stack.App) error {
			if !strings.Contains(x.Status.Capstan.Hold, text) {
				return fmt.Errorf("it holds %q", x.Status.Capstan.Hold)
			}
			return nil
		}
	}
	long, _ := freeze(time.Hour)
	projectWith(t, "windows", long)
	if _, err := repo.Commit(t.Context(), "two", map[string]string{"app/a.yaml": configMap("a", "two")}); err != nil {
		t.Fatal(err)
	}
	t.Run("WIN-09 a revision during a closed window waits, and the application shows until when", func(t *testing.T) {
		x := condition(t, "windows", held("closed by the deny window"))
		if !strings.Contains(x.Status.Capstan.Hold, "(freeze); next opening 20") || x.Status.Sync.Status != "OutOfSync" {
			t.Errorf("%+v", x.Status)
		}
		o, err := cluster.Dynamic().Resource(configMaps).Namespace("windows").Get(t.Context(), "a", metav1.GetOptions{})
		if err != nil || value("one")(o) != nil {
			t.Errorf("it was applied: %v %v", o, err)
		}
	})
	t.Run("WIN-09 a person's sync and rollback are refused with the next opening", func(t *testing.T) {
		for _, args := range [][]string{{"app", "sync", "windows"}, {"app", "rollback", "windows", "1"}} {
			out, err := s.API.CLI(within(t, waitLimit), "", args...)
			if err == nil || !strings.Contains(out+err.Error(), "next opening 20") {
				t.Errorf("%v: %v\n%s", args, err, out)
			}
		}
	})
	t.Run("WIN-10 the API returns which windows are assigned and active, and what they allow", func(t *testing.T) {
		out, err := s.API.CLI(t.Context(), "", "project", "windows", "list", "windows", "-o", "json")
		if err != nil || !strings.Contains(out, `"active": true`) || !strings.Contains(out, `"closes"`) {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("WIN-09 when it opens, what waited is applied and drift is healed, without a request", func(t *testing.T) {
		var end time.Time
		waiting := "two"
		for length := 7 * time.Second; ; length *= 2 {
			var short map[string]any
			short, end = freeze(length)
			projectWith(t, "windows", short)
			if sees(t, "windows", end, held(end.Format("next opening 2006-01-02 15:04 MST"))) {
				break
			}
			// It has opened before anybody could see until when it was closed:
			// the machine is slow. Another revision waits, for longer.
			live(t, "windows", "a", value(waiting))
			projectWith(t, "windows", long)
			waiting = "two, for " + length.String()
			if _, err := repo.Commit(t.Context(), waiting, map[string]string{"app/a.yaml": configMap("a", waiting)}); err != nil {
				t.Fatal(err)
			}
			condition(t, "windows", held("closed by the deny window"))
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "windows", "a", value(waiting)); err != nil {
			t.Fatal(err)
		}
		if time.Now().Before(end) {
			t.Error("it was applied before the opening")
		}
		settled(t, "windows")
	})
	t.Run("WIN-06 with manualSync a person's sync goes through", func(t *testing.T) {
		long["manualSync"] = true
		projectWith(t, "windows", long)
		if _, err := repo.Commit(t.Context(), "three", map[string]string{"app/a.yaml": configMap("a", "three")}); err != nil {
			t.Fatal(err)
		}
		condition(t, "windows", held("closed by the deny window"))
		if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", "windows"); err != nil {
			t.Fatal(err)
		}
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "windows", "a", value("three")); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("WIN-09 an agent heals again once the window is removed", func(t *testing.T) {
		maps := cluster.Dynamic().Resource(configMaps).Namespace("windows")
		if _, err := maps.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"data":{"v":"edited"}}`), metav1.PatchOptions{FieldManager: "kubectl-edit"}); err != nil {
			t.Fatal(err)
		}
		condition(t, "windows", func(x stack.App) error {
			for _, c := range x.Status.Conditions {
				if strings.Contains(c.Message, "self-heal waits: closed by the deny window") && strings.Contains(c.Message, "next opening") {
					return nil
				}
			}
			return fmt.Errorf("conditions %v", x.Status.Conditions)
		})
		projectWith(t, "windows")
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "windows", "a", value("three")); err != nil {
			t.Fatal(err)
		}
		settled(t, "windows")
	})
	t.Run("WIN-12 duplicate windows are refused, WIN-01 bad ones too", func(t *testing.T) {
		for text, extra := range map[string]string{
			"is the same as":    `{"kind":"deny","schedule":"0 1 * * *","duration":"1h","applications":["*"]},{"kind":"deny","schedule":"0 1 * * *","duration":"1h","applications":["*"]}`,
			"4 fields":          `{"kind":"deny","schedule":"0 1 * *","duration":"1h"}`,
			"is not a duration": `{"kind":"deny","schedule":"0 1 * * *","duration":"soon"}`,
		} {
			out, err := s.API.Apply(t.Context(), `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"bad"},"spec":{"syncWindows":[`+extra+`]}}`)
			if err == nil || !strings.Contains(out+err.Error(), text) {
				t.Errorf("%s: %v\n%s", text, err, out)
			}
		}
	})
}

func TestWindowCommands(t *testing.T) {
	t.Run("WIN-11 windows are added, changed, switched, listed and deleted on the command line", func(t *testing.T) {
		if _, err := s.API.Apply(t.Context(), `{"apiVersion":"argoproj.io/v1alpha1","kind":"AppProject","metadata":{"name":"hours"},"spec":{"sourceRepos":["*"]}}`); err != nil {
			t.Fatal(err)
		}
		windows := func(args ...string) { t.Helper(); cli(t, append([]string{"project", "windows"}, args...)...) }
		listed := func() []map[string]any {
			t.Helper()
			var got struct{ All []map[string]any }
			if err := json.Unmarshal([]byte(cli(t, "project", "windows", "list", "hours", "-o", "json")), &got); err != nil {
				t.Fatal(err)
			}
			return got.All
		}
		windows("add", "hours", "--kind", "deny", "--schedule", "0 22 * * *", "--duration", "8h", "--time-zone", "Europe/Berlin", "--applications", "web-*,api")
		windows("add", "hours", "--kind", "allow", "--schedule", "0 6 * * 1-5", "--duration", "12h", "--clusters", "production")
		windows("update", "hours", "0", "--duration", "10h", "--description", "at night")
		all := listed()
		if len(all) != 2 || all[0]["duration"] != "10h" || all[0]["description"] != "at night" || all[0]["timeZone"] != "Europe/Berlin" || all[1]["kind"] != "allow" {
			t.Fatalf("windows are %v", all)
		}
		for verb, field := range map[string]string{"manual-sync": "manualSync", "sync-overrun": "syncOverrun", "self-heal": "selfHeal"} {
			windows("enable-"+verb, "hours", "0")
			if w := listed()[0]; w[field] != true {
				t.Errorf("after enable-%s it is %v", verb, w)
			}
			windows("disable-"+verb, "hours", "0")
			if w := listed()[0]; w[field] == true {
				t.Errorf("after disable-%s it is %v", verb, w)
			}
		}
		windows("delete", "hours", "0", "--yes")
		if all := listed(); len(all) != 1 || all[0]["kind"] != "allow" {
			t.Errorf("windows are %v", all)
		}
		if out, err := s.API.CLI(t.Context(), "", "project", "windows", "delete", "hours", "7", "--yes"); err == nil || !strings.Contains(out+err.Error(), `there is no window "7"`) {
			t.Errorf("a window that is not there: %v\n%s", err, out)
		}
	})
}
