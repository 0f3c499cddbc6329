package settings_test

import (
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/settings"
)

func TestSessionDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"": 24 * time.Hour, "0": 24 * time.Hour, "12h": 12 * time.Hour, "168h": 168 * time.Hour, "soon": 24 * time.Hour, "1ms": time.Minute} {
		if got := settings.SessionDuration(map[string]string{settings.SessionKey: text}); got != want {
			t.Errorf("AUTH-05 %q: %s, want %s", text, got, want)
		}
	}
	for text, fine := range map[string]bool{"": true, "0": true, "24h": true, "1m": true, "59s": false, "9000h": false, "-1h": false, "24": false} {
		if err := settings.Check("argocd-cm", settings.SessionKey, text); (err == nil) != fine {
			t.Errorf("AUTH-05 %q: %v", text, err)
		}
	}
	if got := settings.Unused("argocd-cm", settings.SessionKey); got != "" {
		t.Errorf("AUTH-05 it is said to change nothing: %q", got)
	}
}
