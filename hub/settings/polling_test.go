package settings_test

import (
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func TestPolling(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		every, jitter  string
		want, atRandom time.Duration
		unset          bool
	}{
		"CMPR-03 what is not set is the hub's":             {unset: true},
		"CMPR-03 Argo CD's defaults":                       {"120s", "", 2 * time.Minute, time.Minute, false},
		"CMPR-03 without jitter":                           {"5m", "0", 5 * time.Minute, 0, false},
		"CMPR-03 one tenant cannot wear the hub out":       {"1s", "1s", 30 * time.Second, time.Second, false},
		"CMPR-03 0 leaves it to webhooks and a daily look": {"0", "60s", 24 * time.Hour, time.Minute, false},
		"CMPR-03 so does a very long time":                 {"9000h", "9000h", 24 * time.Hour, 24 * time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			every, jitter, ok := settings.Polling(map[string]string{"timeout.reconciliation": c.every, "timeout.reconciliation.jitter": c.jitter})
			if every != c.want || jitter != c.atRandom || ok == c.unset {
				t.Errorf("%v, %v, %v", every, jitter, ok)
			}
		})
	}
	t.Run("CMPR-03 what is no duration is refused", func(t *testing.T) {
		t.Parallel()
		for _, bad := range []string{"soon", "-3m", "5"} {
			if err := settings.Check("argocd-cm", "timeout.reconciliation", bad); err == nil {
				t.Errorf("%q is taken", bad)
			}
		}
	})
	t.Run("CMPR-03 CMPR-04 APP-21 for settings without effect the reply explains what happens instead", func(t *testing.T) {
		t.Parallel()
		for key, want := range map[string]string{
			"argocd-cm timeout.hard.reconciliation":                           "is recorded",
			"argocd-cmd-params-cm controller.repo.error.grace.period.seconds": "180 seconds",
			"argocd-cmd-params-cm controller.resource.health.persist":         "whenever it is read",
		} {
			name, key, _ := strings.Cut(key, " ")
			if got := settings.Unused(name, key); !strings.Contains(got, want) {
				t.Errorf("%s: %q", key, got)
			}
		}
	})
}

func TestWaveDelaySetting(t *testing.T) {
	t.Parallel()
	const key = "controller.sync.wave.delay.seconds"
	for name, c := range map[string]struct {
		value, want string
		refused     bool
	}{
		"ENG-13 seconds":             {"2", `wave_delay_seconds: 2`, false},
		"ENG-13 none":                {"0", `wave_delay_seconds: 0`, false},
		"ENG-13 nothing is set":      {"", ``, false},
		"ENG-13 more than a minute":  {"61", ``, true},
		"ENG-13 not a number at all": {"2s", ``, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := settings.Check(hub.ParamsMap, key, c.value)
			if (err != nil) != c.refused {
				t.Fatalf("error %v", err)
			}
			if c.refused {
				return
			}
			expect(t, param(t, key, c.value), `version: 3 `+c.want)
		})
	}
}

func TestEventSetting(t *testing.T) {
	t.Parallel()
	const key = "controller.enable.k8s.event"
	for name, c := range map[string]struct {
		value, want string
		refused     bool
	}{
		"API-20 all":                {"all", `event_reasons: "all"`, false},
		"API-20 some":               {"OperationStarted, OperationCompleted", `event_reasons: "OperationStarted" event_reasons: "OperationCompleted"`, false},
		"API-20 none":               {"none", ``, false},
		"API-20 a reason of nobody": {"OperationStrated", ``, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := settings.Check(hub.ParamsMap, key, c.value)
			if (err != nil) != c.refused {
				t.Fatalf("error %v", err)
			}
			if !c.refused {
				expect(t, param(t, key, c.value), `version: 3 `+c.want)
			}
		})
	}
}

// param compiles one key of argocd-cmd-params-cm.
func param(t *testing.T, key, value string) *linkv1.Settings {
	t.Helper()
	compiled, err := settings.Compile([]hub.Setting{{Map: hub.ParamsMap, Key: key, Value: value}})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := compiled.Body(3, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got linkv1.Settings
	if err := proto.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}
