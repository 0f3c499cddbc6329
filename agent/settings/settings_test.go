package settings_test

import (
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/capstan-cd/capstan/agent/settings"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func parse(t *testing.T, text string) *linkv1.Settings {
	t.Helper()
	var s linkv1.Settings
	if err := prototext.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestCurrent(t *testing.T) {
	t.Parallel()
	c := settings.New(nil)
	changed := c.Changed()
	if c.Set(parse(t, `version: 4`)) {
		t.Error("another version of the same settings is no change")
	}
	if c.Get().Version() != 4 {
		t.Errorf("version %d", c.Get().Version())
	}
	select {
	case <-changed:
		t.Error("a change was announced")
	default:
	}
	before := c.Get()
	if !c.Set(parse(t, `version: 5 tracking_method: "label"`)) {
		t.Error("a change was not seen")
	}
	<-changed
	if before.TrackingMethod() != settings.TrackByAnnotation || c.Get().TrackingMethod() != settings.TrackByLabel {
		t.Error("TRK-01 a value that was given out must not change")
	}
	c.Set(nil)
	if c.Get().TrackingMethod() != settings.TrackByAnnotation || c.Get().InstanceLabelKey() != "app.kubernetes.io/instance" {
		t.Error("TRK-04 without settings the defaults hold")
	}
}

func TestExclusions(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text, group, kind string
		want, child       bool
	}{
		"CLU-14 built-in":                     {"", "coordination.k8s.io", "Lease", true, false},
		"CLU-14 reviews":                      {"", "authorization.k8s.io", "SubjectAccessReview", true, false},
		"CLU-14 children are shown":           {"", "discovery.k8s.io", "EndpointSlice", true, false},
		"CLU-14 events always":                {"exclusions_given: true", "", "Event", true, true},
		"CLU-14 metrics always":               {`exclusions_given: true`, "metrics.k8s.io", "PodMetrics", true, true},
		"CLU-14 a list replaces the built-in": {`exclusions_given: true exclusions { kinds: "A" }`, "coordination.k8s.io", "Lease", false, false},
		"CLU-13 kind":                         {`exclusions_given: true exclusions { groups: "velero.io" kinds: "Backup" }`, "velero.io", "Backup", true, true},
		"CLU-13 other kind":                   {`exclusions_given: true exclusions { groups: "velero.io" kinds: "Backup" }`, "velero.io", "Restore", false, false},
		"CLU-13 other group":                  {`exclusions_given: true exclusions { groups: "velero.io" kinds: "Backup" }`, "", "Backup", false, false},
		"CLU-13 patterns":                     {`exclusions_given: true exclusions { groups: "*.velero.io" kinds: "B*" }`, "x.velero.io", "Backup", true, true},
		"CLU-13 any group":                    {`exclusions_given: true exclusions { kinds: "Backup" }`, "", "Backup", true, true},
		"CLU-13 included":                     {`inclusions { groups: "apps" }`, "apps", "Deployment", false, false},
		"CLU-13 not included":                 {`inclusions { groups: "apps" }`, "batch", "Job", true, true},
		"CLU-13 included and excluded":        {`exclusions_given: true exclusions { kinds: "Deployment" } inclusions { groups: "apps" }`, "apps", "Deployment", true, true},
		"CLU-13 the core group is written ''": {`exclusions_given: true exclusions { groups: "" kinds: "Secret" }`, "", "Secret", true, true},
		"CLU-13 only the built-in exclusions": {"", "apps", "Deployment", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := settings.New(parse(t, c.text)).Get()
			if got := v.Excluded(c.group, c.kind); got != c.want {
				t.Errorf("excluded: %v", got)
			}
			if got := v.ExcludedChild(c.group, c.kind); got != c.child {
				t.Errorf("excluded as a child: %v", got)
			}
		})
	}
}

func TestCustomizations(t *testing.T) {
	t.Parallel()
	v := settings.New(parse(t, `
		customizations { group: "*" kind: "*" health_lua: "any" ignore_differences { managers: "hpa" } }
		customizations { group: "*.io" kind: "*" use_open_libs: true actions { discovery_lua: "d" } ignore_resource_updates { jq: ".x" } }
		customizations { group: "a.io" kind: "B" health_lua: "own" known_type_fields { field: "f" type: "t" } }`)).Get()
	if h, ok := v.HealthScript("a.io", "B"); !ok || h.Lua != "own" || !h.OpenLibs {
		t.Errorf("HLT-02 the script of the very kind wins: %+v", h)
	}
	if h, ok := v.HealthScript("", "Pod"); !ok || h.Lua != "any" || h.OpenLibs {
		t.Errorf("a pattern counts for the rest: %+v", h)
	}
	if v.Actions("a.io", "B").GetDiscoveryLua() != "d" || v.Actions("", "Pod") != nil {
		t.Error("ACT-02 actions of a kind")
	}
	if got := v.IgnoreDifferences(); len(got) != 1 || got[0].GetGroup() != "*" || got[0].GetManagers()[0] != "hpa" {
		t.Errorf("DIFF-09 %v", got)
	}
	if got := v.IgnoreResourceUpdates(); len(got) != 2 {
		t.Errorf("%v", got)
	}
	if got := v.KnownTypeFields("a.io", "B"); len(got) != 1 || v.KnownTypeFields("a.io", "C") != nil {
		t.Errorf("DIFF-10 %v", got)
	}
	if o := v.CompareOptions(); o.IgnoreStatus != "all" || o.IgnoreAggregatedRoles {
		t.Errorf("DIFF-11 %+v", o)
	}
	off := settings.New(parse(t, `ignore_resource_updates_disabled: true customizations { kind: "A" ignore_resource_updates { jq: ".x" } }`)).Get()
	if off.IgnoreResourceUpdates() != nil {
		t.Error("switched off, they still count")
	}
}

func TestWaveDelay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settings string
		want     time.Duration
	}{
		"ENG-13 the agent's own, without a setting": {``, 3 * time.Second},
		"ENG-13 the tenant's setting wins":          {`wave_delay_seconds: 2`, 2 * time.Second},
		"ENG-13 the tenant may want none":           {`wave_delay_seconds: 0`, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := settings.New(parse(t, c.settings)).Get().WaveDelay(3 * time.Second); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
