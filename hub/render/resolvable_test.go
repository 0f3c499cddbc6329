package render_test

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestAgentsThatResolveNothing(t *testing.T) {
	t.Parallel()
	opted := []byte(`{"source":{"repoURL":"https://git.example.com/r","path":"a"},"destination":{"name":"prod"},"syncPolicy":{"automated":{},"syncOptions":["ResolveSecrets=true"]}}`)
	for name, c := range map[string]struct {
		features []string
		opted    bool
		refused  bool
	}{
		"an agent that does not say so gets no placeholders":  {[]string{"unsupported-rows"}, true, true},
		"an agent of the first release gets none either":      {[]string{}, true, true},
		"one that says so does":                               {[]string{"resolve-secrets"}, true, false},
		"one that has not connected yet is not judged":        {nil, true, false},
		"an application that resolves nothing is not refused": {[]string{}, false, false},
	} {
		t.Run("0108 "+name, func(t *testing.T) {
			t.Parallel()
			w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
			w.apps["a"].Cluster = &hub.Cluster{Meta: hub.Meta{Name: "prod"}, Features: c.features}
			if c.opted {
				w.apps["a"].Application.Spec = opted
			}
			w.run(t.Context(), false)
			if !c.refused {
				if len(w.rendered) != 1 || len(w.failed) != 0 {
					t.Errorf("rendered %d, failed %+v", len(w.rendered), w.failed)
				}
				return
			}
			if len(w.rendered) != 0 || len(w.failed) != 1 || !strings.Contains(w.failed[0].Message, "agent of cluster prod does not resolve secrets yet") || len(w.later) != 1 {
				t.Errorf("rendered %d, failed %+v, later %v", len(w.rendered), w.failed, w.later)
			}
			w.apps["a"].Cluster.Features = []string{"resolve-secrets"}
			w.run(t.Context(), false)
			if len(w.rendered) != 1 {
				t.Errorf("after an upgrade of the agent nothing is rendered: %+v", w.failed)
			}
		})
	}
	t.Run("0108 an object that opts in by itself is named, and one that only mentions the option is not", func(t *testing.T) {
		t.Parallel()
		for body, refused := range map[string]bool{
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"argocd.argoproj.io/sync-options":"Prune=false,ResolveSecrets=true"},"name":"x"}}`: true,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"capstan.dev/sync-options":"ResolveSecrets=false"},"name":"x"}}`:                   false,
			`{"apiVersion":"v1","data":{"text":"ResolveSecrets=true"},"kind":"ConfigMap","metadata":{"name":"x"}}`:                                               false,
		} {
			w := newStageWorld(map[string]string{"a/x.yaml": "0"}, "a")
			w.apps["a"].Cluster, w.body = &hub.Cluster{Meta: hub.Meta{Name: "prod"}, Features: []string{}}, body
			w.run(t.Context(), false)
			if got := len(w.failed) == 1 && strings.Contains(w.failed[0].Message, "ConfigMap x.yaml"); got != refused || refused == (len(w.rendered) == 1) {
				t.Errorf("%s: rendered %d, failed %+v", body, len(w.rendered), w.failed)
			}
		}
	})
}
