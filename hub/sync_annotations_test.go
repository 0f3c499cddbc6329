package hub_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestPruneLimit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]hub.PruneLimit{
		"": {}, "10": {Objects: 10}, "25%": {Percent: 25}, " 10 , 25% ": {Objects: 10, Percent: 25}, "100%": {Percent: 100},
	} {
		if got, err := hub.ParsePruneLimit(text); got != want || err != nil {
			t.Errorf("ParsePruneLimit(%q) = %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, bad := range []string{"0", "-1", "ten", "101%", "%", "0%", "1e3", "99999999999"} {
		if _, err := hub.ParsePruneLimit(bad); fault.KindOf(err) != fault.Invalid {
			t.Errorf("ParsePruneLimit(%q): %v; want Invalid", bad, err)
		}
	}
	t.Run("INV-3 the stricter of application and project counts, part by part", func(t *testing.T) {
		t.Parallel()
		if got, want := (hub.PruneLimit{Objects: 5}).And(hub.PruneLimit{Objects: 9, Percent: 20}), (hub.PruneLimit{Objects: 5, Percent: 20}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
	t.Run("INV-3 a limit that cannot be read is the strictest", func(t *testing.T) {
		t.Parallel()
		a := hub.Application{Meta: hub.Meta{Annotations: map[string]string{"capstan.dev/prune-limit": "many"}}}
		if got := a.PruneLimit(hub.ApplicationSpec{}); got != (hub.PruneLimit{Objects: 1, Percent: 1}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestAnnotationPrefixes(t *testing.T) {
	t.Parallel()
	m := hub.Meta{Annotations: map[string]string{"argocd.argoproj.io/x": "theirs", "argocd.argoproj.io/y": "theirs", "capstan.dev/x": "ours"}}
	for name, want := range map[string]string{"x": "ours", "y": "theirs"} {
		if got, ok := m.Annotation(name); got != want || !ok {
			t.Errorf("Annotation(%q) = %q, %v; want %q", name, got, ok, want)
		}
	}
	if _, ok := m.Annotation("z"); ok {
		t.Error("an annotation was found that is not there")
	}
}

func TestCheckSwitches(t *testing.T) {
	t.Parallel()
	for _, bad := range []map[string]string{
		{"capstan.dev/keep-live": "maybe"}, {"capstan.dev/follow-revision": ""}, {"argocd.argoproj.io/deletion-approved": "yes"}, {"capstan.dev/prune-limit": "half"},
		{"capstan.dev/imported": "yes"},
	} {
		if err := hub.CheckSwitches(hub.Meta{Annotations: bad}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("CheckSwitches(%v): %v; want Invalid", bad, err)
		}
	}
	good := map[string]string{"capstan.dev/keep-live": "true", "argocd.argoproj.io/deletion-approved": "2026-01-31T15:04:05Z", "capstan.dev/prune-limit": "3"}
	if err := hub.CheckSwitches(hub.Meta{Annotations: good}); err != nil {
		t.Error(err)
	}
}

func TestCheckSyncOptions(t *testing.T) {
	t.Parallel()
	t.Run("SYNC-14 every option of Argo CD is accepted unchanged", func(t *testing.T) {
		t.Parallel()
		all := []string{
			"Prune=confirm", "Delete=false", "Validate=false", "SkipDryRunOnMissingResource=true", "ApplyOutOfSyncOnly=true",
			"PrunePropagationPolicy=background", "PruneLast=true", "Replace=true", "Force=true", "ServerSideApply=true",
			"ClientSideApplyMigration=false", "FailOnSharedResource=true", "RespectIgnoreDifferences=true", "CreateNamespace=true",
			"WaveDelay=2s", "SyncTimeout=1h", "StepTimeout=90s", "PruneLimit=10%",
		}
		if warnings, err := hub.CheckSyncOptions(all); err != nil || len(warnings) > 0 {
			t.Errorf("warnings %v, error %v", warnings, err)
		}
	})
	t.Run("an unknown option is stored, with a warning that it has no effect", func(t *testing.T) {
		t.Parallel()
		warnings, err := hub.CheckSyncOptions([]string{"PruneLats=true"})
		if diff := cmp.Diff([]string{`sync option "PruneLats" is not known and has no effect`}, warnings); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
	t.Run("SYNC-14 an invalid value counts as not set, with a warning", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{"Prune", "=true", "Replace=perhaps", "Replace=1", "Prune=ask", "Validate=maybe", "PrunePropagationPolicy=Background"} {
			warnings, err := hub.CheckSyncOptions([]string{bad, "PruneLast=true"})
			if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "counts as not set") {
				t.Errorf("CheckSyncOptions(%q): %q, %v", bad, warnings, err)
			}
			name, value, _ := strings.Cut(bad, "=")
			if len(warnings) == 1 && (!strings.Contains(warnings[0], name) || !strings.Contains(warnings[0], value)) {
				t.Errorf("%q does not name %q", warnings[0], bad)
			}
			if diff := cmp.Diff([]string{"PruneLast=true"}, hub.ReadableSyncOptions([]string{bad, "PruneLast=true"})); diff != "" {
				t.Errorf("ReadableSyncOptions (-want +got):\n%s", diff)
			}
			if err := hub.RefuseSyncOptions([]string{bad}); fault.KindOf(err) != fault.Invalid {
				t.Errorf("SYNC-01: RefuseSyncOptions(%q): %v; want Invalid", bad, err)
			}
		}
	})
	for _, bad := range []string{"StepTimeout=soon", "SyncTimeout=-1m", "PruneLimit=0", "Adopt=perhaps"} {
		if _, err := hub.CheckSyncOptions([]string{bad}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("CheckSyncOptions(%q): %v; want Invalid", bad, err)
		}
	}
}

func TestOverride(t *testing.T) {
	t.Parallel()
	one := hub.ApplicationSpec{Source: &hub.Source{RepoURL: "https://git/x", Path: "a", TargetRevision: "main"}}
	two := hub.ApplicationSpec{Sources: []hub.Source{{RepoURL: "https://git/x", TargetRevision: "main"}, {RepoURL: "https://git/y", TargetRevision: "main"}}}
	revisions := func(s hub.ApplicationSpec) (out []string) {
		for _, x := range s.EffectiveSources() {
			out = append(out, x.TargetRevision)
		}
		return out
	}
	for name, c := range map[string]struct {
		spec hub.ApplicationSpec
		o    hub.Override
		want []string
	}{
		"SYNC-01 revision of the one source":    {one, hub.Override{Revision: "v1"}, []string{"v1"}},
		"SYNC-01 revisions by position":         {two, hub.Override{Revisions: []string{"v2"}, Positions: []int{2}}, []string{"main", "v2"}},
		"SYNC-01 revisions in order":            {two, hub.Override{Revisions: []string{"v1", "v2"}}, []string{"v1", "v2"}},
		"SYNC-01 several sources":               {two, hub.Override{Sources: []hub.Source{{RepoURL: "https://git/x", TargetRevision: "a"}, {RepoURL: "https://git/y", TargetRevision: "b"}}}, []string{"a", "b"}},
		"SYNC-01 source with another path":      {one, hub.Override{Source: &hub.Source{RepoURL: "https://git/x", Path: "b", TargetRevision: "v1"}}, []string{"v1"}},
		"SYNC-01 revision wins over the source": {one, hub.Override{Revision: "v2", Source: &hub.Source{RepoURL: "https://git/x", TargetRevision: "v1"}}, []string{"v2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := c.o.Apply(c.spec)
			if diff := cmp.Diff(c.want, revisions(got)); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	if one.Source.TargetRevision != "main" || two.Sources[1].TargetRevision != "main" {
		t.Error("the application's own specification was changed")
	}
	for name, o := range map[string]hub.Override{
		"another repository": {Source: &hub.Source{RepoURL: "https://git/z"}}, "too many sources": {Sources: make([]hub.Source, 2)},
		"both": {Revision: "a", Revisions: []string{"b"}}, "position 0": {Revisions: []string{"a"}, Positions: []int{0}},
		"position 2": {Revisions: []string{"a"}, Positions: []int{2}}, "too few positions": {Revisions: []string{"a", "b"}, Positions: []int{1}},
		"too many revisions": {Revisions: []string{"a", "b"}},
	} {
		if _, err := o.Apply(one); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %v; want Invalid", name, err)
		}
	}
}
