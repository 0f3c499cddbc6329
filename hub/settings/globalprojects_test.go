package settings_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub/settings"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestGlobalProjects(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		value string
		good  bool
	}{
		"PROJ-18 labels and expressions":               {"- projectName: base\n  labelSelector:\n    matchLabels: {team: blue}\n    matchExpressions:\n    - {key: stage, operator: In, values: [prod]}\n    - {key: free, operator: DoesNotExist}\n", true},
		"PROJ-18 an empty list":                        {"[]", true},
		"PROJ-18 nothing":                              {"", true},
		"PROJ-18(refused) no project":                  {"- labelSelector: {matchLabels: {team: blue}}", false},
		"PROJ-18(refused) an operator of another kind": {"- projectName: base\n  labelSelector: {matchExpressions: [{key: a, operator: Gt, values: ['1']}]}", false},
		"PROJ-18(refused) In without values":           {"- projectName: base\n  labelSelector: {matchExpressions: [{key: a, operator: In}]}", false},
		"PROJ-18(refused) Exists with values":          {"- projectName: base\n  labelSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}", false},
		"PROJ-18(refused) a misspelt field":            {"- projectName: base\n  labelSelectors: {}", false},
		"PROJ-18(refused) no list":                     {"projectName: base", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := settings.Check("argocd-cm", "globalProjects", c.value)
			if (err == nil) != c.good || err != nil && fault.KindOf(err) != fault.Invalid {
				t.Errorf("error %v", err)
			}
		})
	}
}
