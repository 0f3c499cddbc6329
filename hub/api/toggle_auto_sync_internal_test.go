package api

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestToggleAutoSync(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string]struct {
		spec string
		on   bool
	}{
		`{"project":"p"}`: {`{"project":"p","syncPolicy":{"automated":{"enabled":true}}}`, true},
		`{"syncPolicy":{"automated":null,"retry":{"limit":2}}}`: {`{"syncPolicy":{"automated":{"enabled":true},"retry":{"limit":2}}}`, true},
		`{"syncPolicy":{"automated":{"prune":true}}}`:           {`{"syncPolicy":{"automated":{"enabled":false,"prune":true}}}`, false},
		`{"syncPolicy":{"automated":{"enabled":true}}}`:         {`{"syncPolicy":{"automated":{"enabled":false}}}`, false},
		`{"syncPolicy":{"automated":{"enabled":false}}}`:        {`{"syncPolicy":{"automated":{"enabled":true}}}`, true},
	} {
		t.Run("ACT-09 "+spec, func(t *testing.T) {
			t.Parallel()
			got, on, err := toggled(json.RawMessage(spec))
			if err != nil || on != want.on {
				t.Errorf("on: %v, %v", on, err)
			}
			if d := cmp.Diff(want.spec, string(got)); d != "" {
				t.Errorf("spec (-want +got):\n%s", d)
			}
		})
	}
	for _, spec := range []string{`[]`, `{"syncPolicy":3}`, `{"syncPolicy":{"automated":"yes"}}`} {
		if _, _, err := toggled(json.RawMessage(spec)); err == nil {
			t.Errorf("ACT-09 %s was taken", spec)
		}
	}
}
