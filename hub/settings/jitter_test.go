package settings_test

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/settings"
)

func TestRefreshJitter(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		jitter, threshold string
		most              time.Duration
		over              int
	}{
		"HOOKW-07 refreshes are not delayed unless that is set":        {"", "", 0, 10},
		"HOOKW-07 a threshold alone delays nothing":                    {"", "3", 0, 3},
		"HOOKW-07 jitter and threshold":                                {"30s", "3", 30 * time.Second, 3},
		"HOOKW-07 a very long jitter is an hour":                       {"900h", "", time.Hour, 10},
		"HOOKW-07 what an earlier release has stored delays nothing":   {"soon", "some", 0, 10},
		"HOOKW-07 a threshold that is no number is that of no setting": {"1m", "-3", time.Minute, 10},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			most, over := settings.RefreshJitter(map[string]string{"webhook.refresh.jitter": c.jitter, "webhook.refresh.jitter.threshold": c.threshold})
			if most != c.most || over != c.over {
				t.Errorf("%v from %d on", most, over)
			}
		})
	}
}
