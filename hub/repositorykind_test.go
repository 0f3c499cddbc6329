package hub_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestRepositoryKinds(t *testing.T) {
	t.Parallel()
	for kind, want := range map[hub.RepositoryKind]struct{ known, served bool }{
		"":                 {true, true},
		hub.GitRepository:  {true, true},
		hub.HelmRepository: {true, false},
		hub.OCIRepository:  {true, false},
		"svn":              {false, false},
		"Git":              {false, false},
	} {
		if kind.Known() != want.known || kind.Served() != want.served {
			t.Errorf("%q: known %v, served %v", kind, kind.Known(), kind.Served())
		}
	}
	for _, kind := range hub.ServedKinds() {
		if !kind.Known() || !kind.Served() {
			t.Errorf("%q is served and not known", kind)
		}
	}
}

func TestKindOfASource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source hub.Source
		want   hub.RepositoryKind
	}{
		"a path of a repository": {hub.Source{RepoURL: "https://git.example.com/app", Path: "deploy"}, hub.GitRepository},
		"a chart of an index":    {hub.Source{RepoURL: "https://charts.example.com", Chart: "redis"}, hub.HelmRepository},
		"an artifact":            {hub.Source{RepoURL: "oci://registry.example.com/app", Path: "."}, hub.OCIRepository},
		"a chart as artifact":    {hub.Source{RepoURL: "oci://registry.example.com/app", Chart: "redis"}, hub.OCIRepository},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.source.Kind(); got != c.want {
				t.Errorf("Kind() = %q, want %q", got, c.want)
			}
		})
	}
}
