package hub_test

import (
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestCheckUpgrade(t *testing.T) {
	t.Parallel()
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for _, image := range []string{"registry.example.com/capstan-agent:v1.2.3", "localhost:5000/a/b_c:x", "ghcr.io/capstan/agent" + digest, "ghcr.io/capstan/agent:v1" + digest} {
		if err := hub.CheckUpgrade(image, hub.UpgradeDeadline); err != nil {
			t.Errorf("%s: %v", image, err)
		}
	}
	for name, image := range map[string]string{
		"None": "", "NoTag": "registry.example.com/agent", "PortOnly": "localhost:5000/agent", "NoRegistry": "agent:v1", "Space": "a/b c:v1", "Flag": "--x/y:z",
		"Upper": "Registry/Agent:v1", "Digest": "a/b@sha256:1234", "URL": "https://registry/agent:v1", "Newline": "a/b:v1\n", "Long": "a/" + strings.Repeat("b", 2000) + ":v1",
	} {
		if err := hub.CheckUpgrade(image, hub.UpgradeDeadline); fault.KindOf(err) != fault.Invalid {
			t.Errorf("%s: %q gives %v, want an invalid reference", name, image, err)
		}
	}
	for _, d := range []time.Duration{0, time.Second, time.Hour} {
		if err := hub.CheckUpgrade("a/b:v1", d); fault.KindOf(err) != fault.Invalid {
			t.Errorf("deadline %s: %v", d, err)
		}
	}
}
