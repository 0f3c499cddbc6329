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
		hub.HelmRepository: {true, true},
		hub.OCIRepository:  {true, true},
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
		"a chart of a registry":  {hub.Source{RepoURL: "oci://registry.example.com/app", Chart: "redis"}, hub.HelmRepository},
		"the same, as Argo CD's": {hub.Source{RepoURL: "registry.example.com/app", Chart: "redis"}, hub.HelmRepository},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.source.Kind(); got != c.want {
				t.Errorf("Kind() = %q, want %q", got, c.want)
			}
		})
	}
}

func TestRepositoryOfASource(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source hub.Source
		want   string
	}{
		"HELM-16 a registry without a scheme":  {hub.Source{RepoURL: "Registry.example.com/charts/", Chart: "redis"}, "oci://registry.example.com/charts"},
		"HELM-16 a registry with a port":       {hub.Source{RepoURL: "localhost:5000/charts", Chart: "redis"}, "oci://localhost:5000/charts"},
		"SRC-02 a chart of an index":           {hub.Source{RepoURL: "https://charts.example.com/", Chart: "redis"}, "https://charts.example.com"},
		"SRC-03 an artifact":                   {hub.Source{RepoURL: "oci://registry.example.com/app", Path: "."}, "oci://registry.example.com/app"},
		"SRC-01 a path of a repository in ssh": {hub.Source{RepoURL: "git@git.example.com:a/b.git", Path: "."}, "ssh://git.example.com/a/b"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := c.source.Repository(); err != nil || got != c.want {
				t.Errorf("Repository() = %q, %v; want %q", got, err, c.want)
			}
		})
	}
	for name, bad := range map[string]string{"SEC-A8 an option": "-x/charts", "SEC-A8 a transport helper": "ext::sh", "SEC-A8 a line break": "registry.example.com/a\nb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got, err := (hub.Source{RepoURL: bad, Chart: "redis"}).Repository(); err == nil {
				t.Errorf("%q is taken as %q", bad, got)
			}
		})
	}
}
