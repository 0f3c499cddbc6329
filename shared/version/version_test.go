package version

import (
	"runtime/debug"
	"testing"
)

func TestDescribe(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"NoCommit": {nil, Number},
		"Clean":    {[]debug.BuildSetting{{Key: "vcs.revision", Value: "1a2b3c4d5e6f7a8b9c0d"}}, Number + "+1a2b3c4d5e6f"},
		"Dirty": {[]debug.BuildSetting{
			{Key: "vcs.modified", Value: "true"}, {Key: "vcs.revision", Value: "1a2b3c"},
		}, Number + "+1a2b3c.dirty"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := describe(c.settings); got != c.want {
				t.Errorf("describe() = %q, want %q", got, c.want)
			}
		})
	}
	if String() == "" {
		t.Error("String() is empty")
	}
}
