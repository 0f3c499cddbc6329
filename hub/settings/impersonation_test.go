package settings_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

func TestImpersonation(t *testing.T) {
	t.Parallel()
	const enabled, enforced = "application.sync.impersonation.enabled", "application.sync.impersonation.enforced"
	for name, c := range map[string]struct {
		values             map[string]string
		impersonate, maybe bool
	}{
		"IMP-01 it is off":                       {nil, false, false},
		"IMP-01 enabled, it is enforced":         {map[string]string{enabled: "true"}, true, false},
		"IMP-01 enforced may be off":             {map[string]string{enabled: "true", enforced: "false"}, true, true},
		"IMP-01 enforced alone switches none on": {map[string]string{enforced: "true"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var all []hub.Setting
			for key, value := range c.values {
				if err := settings.Check(hub.SettingsMap, key, value); err != nil {
					t.Fatal(err)
				}
				if why := settings.Unused(hub.SettingsMap, key); why != "" {
					t.Error(why)
				}
				all = append(all, hub.Setting{Map: hub.SettingsMap, Key: key, Value: value})
			}
			compiled, err := settings.Compile(all)
			if err != nil {
				t.Fatal(err)
			}
			body, err := compiled.Body(1, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got linkv1.Settings
			if err := proto.Unmarshal(body, &got); err != nil {
				t.Fatal(err)
			}
			if got.GetImpersonate() != c.impersonate || got.GetImpersonateOptional() != c.maybe {
				t.Errorf("agents get %v", &got)
			}
		})
	}
	if err := settings.Check(hub.SettingsMap, enabled, "perhaps"); err == nil {
		t.Error("what is neither true nor false is taken")
	}
}
