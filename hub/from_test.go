package hub_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
)

func TestSyncedFrom(t *testing.T) {
	t.Parallel()
	one, two := hub.Source{RepoURL: "https://a", Path: "x", TargetRevision: "main"}, hub.Source{RepoURL: "https://b", Path: "y"}
	other := one
	other.TargetRevision = "v1"
	meta := &hub.NamespaceMetadata{Labels: map[string]string{"team": "a"}}
	for name, c := range map[string]struct {
		spec      hub.ApplicationSpec
		override  *hub.Override
		revisions []string
		want      *hub.SyncedFrom
	}{
		"APP-13 one source": {hub.ApplicationSpec{Source: &one}, nil, []string{"1"}, &hub.SyncedFrom{Source: &one}},
		"APP-13 several sources, each with its revision": {
			hub.ApplicationSpec{Source: &one, Sources: []hub.Source{one, two}}, nil, []string{"1", "2"},
			&hub.SyncedFrom{Sources: []hub.Source{one, two}, Revisions: []string{"1", "2"}},
		},
		"APP-13 another revision": {hub.ApplicationSpec{Source: &one}, &hub.Override{Revision: "v1"}, nil, &hub.SyncedFrom{Source: &other}},
		"APP-13 metadata of the namespace": {
			hub.ApplicationSpec{Source: &one, SyncPolicy: &hub.SyncPolicy{ManagedNamespaceMetadata: meta}}, nil, nil, &hub.SyncedFrom{Source: &one, Namespace: meta},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, c.spec.From(c.override, c.revisions)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if one.TargetRevision != "main" {
				t.Error("the specification was changed")
			}
		})
	}
}
