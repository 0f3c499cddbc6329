package hub_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/syncwindow"
)

func TestAutomationPauses(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 3, 31, 23, 58, 30, 0, time.UTC)
	pause := hub.AutomationPause{Cluster: "prod", Names: []string{"https://prod"}, Reason: "checkout is down", By: "ann", Since: since, Until: since.Add(2 * time.Hour)}
	b, err := json.Marshal([]hub.AutomationPause{pause})
	if err != nil {
		t.Fatal(err)
	}
	t.Run("UX-OP-9 a pause holds from its beginning to its end", func(t *testing.T) {
		t.Parallel()
		for offset, want := range map[time.Duration]int{-time.Second: 0, 0: 1, time.Hour: 1, 2 * time.Hour: 0} {
			if got := hub.ActivePauses(string(b), since.Add(offset)); len(got) != want {
				t.Errorf("after %s: %d pauses, want %d", offset, len(got), want)
			}
		}
	})
	t.Run("UX-OP-9 it closes automation and self-heal of the cluster alone, and people may sync", func(t *testing.T) {
		t.Parallel()
		p := hub.Project{Spec: json.RawMessage(`{}`), Pauses: []hub.AutomationPause{pause}}
		spec, err := p.Effective()
		if err != nil {
			t.Fatal(err)
		}
		at := since.Add(time.Minute)
		for d, closed := range map[hub.Destination]bool{{Name: "prod"}: true, {Server: "https://prod"}: true, {Name: "stage"}: false} {
			set := syncwindow.New(spec.WindowsOf("web", d))
			if auto, heal := set.Why(syncwindow.Automated, at) != "", set.Why(syncwindow.Heal, at) != ""; auto != closed || heal != closed {
				t.Errorf("%+v: automation %v, self-heal %v, want %v", d, auto, heal, closed)
			}
			if why := set.Why(syncwindow.Manual, at); why != "" {
				t.Errorf("%+v: nobody may sync: %s", d, why)
			}
			if why := set.Why(syncwindow.Automated, pause.Until); why != "" {
				t.Errorf("%+v: it does not end: %s", d, why)
			}
		}
	})
	t.Run("UX-OP-9 one of the tenant holds for every cluster", func(t *testing.T) {
		t.Parallel()
		all := pause
		all.Cluster, all.Names = "", nil
		spec := hub.ProjectSpec{SyncWindows: []syncwindow.Window{all.Window()}}
		if why := syncwindow.New(spec.WindowsOf("web", hub.Destination{Server: "https://any"})).Why(syncwindow.Automated, since); why == "" {
			t.Error("automation continues")
		}
	})
	t.Run("UX-OP-9 the version of a project changes with its pauses", func(t *testing.T) {
		t.Parallel()
		p := hub.Project{Meta: hub.Meta{Version: 7}}
		paused := p
		paused.Pauses = []hub.AutomationPause{pause}
		longer := paused
		longer.Pauses = []hub.AutomationPause{pause}
		longer.Pauses[0].Until = pause.Until.Add(time.Hour)
		if p.Revision() == paused.Revision() || paused.Revision() == longer.Revision() {
			t.Error("it is the same")
		}
	})
	for name, value := range map[string]string{
		"what is no JSON":     "x",
		"one without end":     `[{"reason":"x","by":"ann","since":"2026-03-31T00:00:00Z"}]`,
		"a very long one":     `[{"reason":"x","by":"ann","since":"2026-03-31T00:00:00Z","until":"2027-03-31T00:00:00Z"}]`,
		"one that ends early": `[{"reason":"x","by":"ann","since":"2026-03-31T00:00:00Z","until":"2026-03-30T00:00:00Z"}]`,
	} {
		t.Run("UX-OP-9 refused: "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := hub.ParsePauses(value); err == nil {
				t.Errorf("%s is accepted", value)
			}
		})
	}
}
