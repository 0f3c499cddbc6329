package hub_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
)

func TestChangeOfRenderers(t *testing.T) {
	t.Parallel()
	object := func(name string, digest byte) hub.ObjectRef {
		return hub.ObjectRef{Version: "v1", Kind: "ConfigMap", Name: name, Digest: hub.Digest{digest}}
	}
	snapshot := func(r *hub.Rendering, objects ...hub.ObjectRef) hub.Snapshot {
		return hub.Snapshot{Revisions: []string{"r"}, Objects: objects, Commit: hub.CommitInfo{Rendering: r}}
	}
	was := &hub.Rendering{Version: "3 helm/1 kustomize/1", Params: "p", Inputs: "i"}
	is := &hub.Rendering{Version: "4 helm/2 kustomize/1", Params: "p", Inputs: "j"}
	old := snapshot(was, object("a", 1), object("b", 1), object("c", 1))
	next := snapshot(is, object("b", 2), object("c", 1), object("d", 1))
	got := hub.ChangeOfRenderers(old, []string{"r"}, next)
	if d := cmp.Diff(&hub.RendererChange{From: "rules/3 helm/1", To: "rules/4 helm/2", Added: 1, Changed: 1, Removed: 1}, got); d != "" {
		t.Errorf("FT-G11 (-want +got):\n%s", d)
	}
	more := *was
	more.Version = "3 helm/1 kustomize/1 jsonnet/1"
	if got := hub.ChangeOfRenderers(old, []string{"r"}, snapshot(&more, object("a", 2))); got == nil || got.From != was.Version || got.To != "jsonnet/1" {
		t.Errorf("FT-G11 a renderer more: %+v", got)
	}
	other := *is
	other.Params = "q"
	for name, c := range map[string]struct {
		old, next hub.Snapshot
		at        string
	}{
		"it is not known what made the first": {snapshot(nil, object("a", 1)), next, "r"},
		"the parameters differ":               {old, snapshot(&other, object("b", 2)), "r"},
		"commits and files differ":            {old, next, "s"},
		"the objects are equal":               {old, snapshot(is, old.Objects...), "r"},
		"the renderers are the same":          {old, snapshot(was, object("b", 2)), "r"},
	} {
		if got := hub.ChangeOfRenderers(c.old, []string{c.at}, c.next); got != nil {
			t.Errorf("FT-G11 %s: %+v", name, got)
		}
	}
}
