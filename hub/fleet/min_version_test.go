package fleet

import (
	"errors"
	"testing"

	"github.com/capstan-cd/capstan/shared/fault"
)

func TestMinVersion(t *testing.T) {
	t.Parallel()
	for hub, want := range map[string]string{"0.1.0": "0.0.0", "0.9.2": "0.6.0", "v1.3.0-rc.1": "1.0.0", "dev": "", "": ""} {
		if got := minVersionOf(hub); got != want {
			t.Errorf("FT-L14 a hub %q takes agents from %q, want %q", hub, got, want)
		}
	}
	for agent, ok := range map[string]bool{
		"0.4.0": true, "0.4.1+abc.dirty": true, "1.0.0": true, "0.10.0": true, "test": true, "": true, "0.4": true, "0.4.x": true,
		"-1.0.0": true, "0.3.99": false, "v0.3.0": false, "0.0.0-rc.1+x": false,
	} {
		err := checkVersion("0.4.0", agent)
		if (err == nil) != ok {
			t.Errorf("FT-L14 agent %q: %v", agent, err)
		}
		var f *fault.Error
		if err != nil && (!errors.As(err, &f) || f.Kind != fault.Denied || f.Code != CodeUpgrade || f.Fix == "") {
			t.Errorf("FT-L14 agent %q is refused with %+v", agent, err)
		}
	}
	if checkVersion("", "0.0.1") != nil {
		t.Error("a hub without a floor refuses somebody")
	}
}
