package settings_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
)

func TestRespectRBAC(t *testing.T) {
	t.Parallel()
	const key = "resource.respectRBAC"
	for value, want := range map[string]string{"": "", "normal": "normal", "strict\n": "strict"} {
		t.Run("CLU-12 agents get "+want+" of "+strings.TrimSpace(value), func(t *testing.T) {
			t.Parallel()
			if err := settings.Check(hub.SettingsMap, key, value); err != nil {
				t.Fatal(err)
			}
			if got := body(t, map[string]string{key: value}).GetRespectRbac(); got != want {
				t.Errorf("agents get %q", got)
			}
		})
	}
	t.Run("CLU-12 the key takes effect, and any other word is refused", func(t *testing.T) {
		t.Parallel()
		if why := settings.Unused(hub.SettingsMap, key); why != "" {
			t.Error(why)
		}
		err := settings.Check(hub.SettingsMap, key, "some")
		if err == nil || !strings.Contains(err.Error(), `"some" is none of strict, normal`) {
			t.Errorf("the answer is %v", err)
		}
	})
}
