package settings_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestGlobalProjects(t *testing.T) {
	t.Parallel()
	const value = `
- projectName: base
  labelSelector:
    matchLabels: {team: blue}
    matchExpressions:
    - {key: stage, operator: In, values: [prod, test]}
    - {key: free, operator: DoesNotExist}
`
	t.Run("PROJ-18(refused) a list that is not empty is refused", func(t *testing.T) {
		t.Parallel()
		if err := settings.Check("argocd-cm", "globalProjects", value); fault.KindOf(err) != fault.Invalid {
			t.Errorf("error %v", err)
		}
		for _, empty := range []string{"", "[]", "null"} {
			if err := settings.Check("argocd-cm", "globalProjects", empty); err != nil {
				t.Errorf("%q: %v", empty, err)
			}
		}
	})
	t.Run("PROJ-18(refused) what an earlier release stored breaks no other setting", func(t *testing.T) {
		t.Parallel()
		if _, err := settings.Compile([]hub.Setting{{Map: "argocd-cm", Key: "globalProjects", Value: value}}); err != nil {
			t.Error(err)
		}
	})
	for name, c := range map[string]struct {
		value, project string
		labels         map[string]string
		want           string
	}{
		"all terms hold":          {value, "shop", map[string]string{"team": "blue", "stage": "prod"}, "base"},
		"a label is another":      {value, "shop", map[string]string{"team": "red", "stage": "prod"}, ""},
		"a value is not listed":   {value, "shop", map[string]string{"team": "blue", "stage": "dev"}, ""},
		"a label must not be":     {value, "shop", map[string]string{"team": "blue", "stage": "prod", "free": ""}, ""},
		"it is the project":       {value, "base", map[string]string{"team": "blue", "stage": "prod"}, ""},
		"no selector means all":   {"- projectName: base", "shop", nil, "base"},
		"nothing is set":          {"", "shop", nil, ""},
		"what cannot be read":     {"{", "shop", nil, "that cannot be read"},
		"not in, and not there":   {"- projectName: base\n  labelSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}", "shop", nil, "base"},
		"not in, and it is there": {"- projectName: base\n  labelSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b]}]}", "shop", map[string]string{"a": "b"}, ""},
	} {
		t.Run("PROJ-18(refused) "+name, func(t *testing.T) {
			t.Parallel()
			if got := settings.Inherited(c.value, c.project, c.labels); got != c.want {
				t.Errorf("inherits from %q, want %q", got, c.want)
			}
		})
	}
}
