package kustomize

import (
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A library are repositories by address and revision.
type library map[string]map[string]string

// open returns a repository, and notes which.
func (l library) open(asked *[]string) func(render.Base) (hub.Tree, error) {
	return func(b render.Base) (hub.Tree, error) {
		key := b.Address + "@" + b.Revision
		*asked = append(*asked, key)
		files, ok := l[key]
		if !ok {
			return nil, fault.New(fault.Missing, "there is no repository %s", key)
		}
		return rendertest.NewTree(files), nil
	}
}

// borrow builds overlays/prod with bases of a library.
func borrow(t *testing.T, l library, files map[string]string) (text string, asked []string, inputs func(library) bool, err error) {
	t.Helper()
	req := rendertest.Request(hub.Source{Path: "overlays/prod"}, files)
	plain := req.Trees[0]
	req.Trees[0] = render.WithBases(plain, l.open(&asked))
	job, rec := rendertest.Job(req, 0)
	out, err := Render(t.Context(), job)
	if err == nil {
		text = rendertest.Text(t, out, "shop")
	}
	return text, asked, func(later library) bool {
		fresh, err := render.Fresh(rec.Inputs(), []hub.Tree{render.WithBases(plain, later.open(new([]string)))}, req)
		return err == nil && fresh
	}, err
}

func configMap(name, v string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\ndata: {v: " + v + "}\n"
}

func TestBasesOfOtherRepositories(t *testing.T) {
	t.Parallel()
	lib := library{
		"https://git.example.com/team/lib@v1": {
			"base/kustomization.yaml": "resources: [a.yaml, ../other]\n", "base/a.yaml": configMap("a", "one"), "other/kustomization.yaml": "resources: [b.yaml]\n", "other/b.yaml": configMap("b", "one"),
		},
		"ssh://git@git.example.com/team/deep.git@": {"kustomization.yaml": "resources: ['https://git.example.com/team/lib//other?ref=v1']\n"},
		"https://github.com/org/parts@":            {"c/kustomization.yaml": "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\nnamePrefix: c-\n"},
	}
	over := func(k string, more ...string) map[string]string {
		files := map[string]string{"overlays/prod/kustomization.yaml": k, "secret.yaml": configMap("secret-of-the-app", "x")}
		for i := 0; i < len(more); i += 2 {
			files[more[i]] = more[i+1]
		}
		return files
	}
	t.Run("KUST-10 a base of another repository is built at its revision, with the directories beside it", func(t *testing.T) {
		t.Parallel()
		text, asked, fresh, err := borrow(t, lib, over("resources: ['https://git.example.com/team/lib//base?ref=v1', c.yaml]\nnamePrefix: prod-\n", "overlays/prod/c.yaml", configMap("c", "own")))
		if err != nil || strings.Count(text, "prod-") != 3 || strings.Join(asked, " ") != "https://git.example.com/team/lib@v1" {
			t.Fatalf("%v, asked %v\n%s", err, asked, text)
		}
		if !fresh(lib) {
			t.Error("nothing changed, and the inputs are no longer valid")
		}
		moved := library{"https://git.example.com/team/lib@v1": {"base/kustomization.yaml": "resources: [a.yaml, ../other]\n", "base/a.yaml": configMap("a", "two"), "other/kustomization.yaml": "resources: [b.yaml]\n", "other/b.yaml": configMap("b", "one")}}
		if fresh(moved) {
			t.Error("a file of the base changed, and the inputs are valid still")
		}
	})
	t.Run("KUST-10 a base may name bases, by SSH and in git's short form, and components are bases, too", func(t *testing.T) {
		t.Parallel()
		text, asked, _, err := borrow(t, lib, over("resources: ['git@git.example.com:team/deep.git']\ncomponents: [github.com/org/parts/c]\n"))
		if err != nil || !strings.Contains(text, `"name":"c-b"`) || len(asked) != 3 {
			t.Errorf("%v, asked %v\n%s", err, asked, text)
		}
	})
	for name, c := range map[string]struct {
		lib  library
		k    string
		says []string
	}{
		"SEC-A2 a base that leads out of its repository": {
			library{"https://git.example.com/team/lib@": {"base/kustomization.yaml": "resources: [../../../secret.yaml]\n"}}, "resources: ['https://git.example.com/team/lib//base']\n", []string{"leads out of the repository of the base"},
		},
		"SEC-A2 a base with a link out of its repository": {
			library{"https://git.example.com/team/lib@": {"base/kustomization.yaml": "resources: [x.yaml]\n", "link base/x.yaml": "../../../secret.yaml"}}, "resources: ['https://git.example.com/team/lib//base']\n", []string{"leads out"},
		},
		"a directory that is not there":        {lib, "resources: ['https://git.example.com/team/lib//none?ref=v1']\n", []string{"has no directory", "none", "overlays/prod/kustomization.yaml"}},
		"a base of a base that has a password": {library{"https://git.example.com/team/lib@": {"kustomization.yaml": "resources: ['https://me:hunter2@example.com/a/b']\n"}}, "resources: ['https://git.example.com/team/lib']\n", []string{"contains a password"}},
		"SEC-A6 a file at an address":          {lib, "resources: ['https://raw.example.com/org/repo/main/x.yaml']\n", []string{"is a file at an address"}},
	} {
		t.Run("KUST-10 refused: "+name, func(t *testing.T) {
			t.Parallel()
			text, _, _, err := borrow(t, c.lib, over(c.k))
			if fault.KindOf(err) != fault.Invalid || strings.Contains(err.Error(), "hunter2") || strings.Contains(text, "secret-of-the-app") {
				t.Fatalf("%v\n%s", err, text)
			}
			for _, says := range c.says {
				if !strings.Contains(fault.Sentence(err), says) {
					t.Errorf("%q does not say %q", fault.Sentence(err), says)
				}
			}
		})
	}
	t.Run("KUST-10 SEC-A6 a worker reads no base that no kustomization declares", func(t *testing.T) {
		t.Parallel()
		var asked []string
		req := rendertest.Request(hub.Source{Path: "overlays/prod"}, over("resources: ['https://git.example.com/team/lib//base?ref=v1']\n", "link out.yaml", ".capstan-bases/https:%2F%2Fevil.example.com%2Fa%2Fsecret%3Fref=/x.yaml"))
		req.Trees[0] = render.WithBases(req.Trees[0], lib.open(&asked))
		job, _ := rendertest.Job(req, 0)
		name := render.Base{Address: "https://evil.example.com/a/secret", Dir: "x.yaml"}.Path()
		if _, err := job.Files.Read(t.Context(), name); fault.KindOf(err) != fault.Invalid {
			t.Errorf("read: %v", err)
		}
		if _, err := job.Files.Kind(t.Context(), name); fault.KindOf(err) != fault.Invalid {
			t.Errorf("stat: %v", err)
		}
		if _, _, err := job.Files.Real(t.Context(), "out.yaml"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("through a link: %v", err)
		}
		if _, err := job.Files.Base(t.Context(), "overlays/prod/kustomization.yaml", 1); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a place that is not there: %v", err)
		}
		if _, err := job.Files.Base(t.Context(), "secret.yaml", 0); fault.KindOf(err) != fault.Invalid {
			t.Errorf("of a file that is no kustomization: %v", err)
		}
		if len(asked) != 0 {
			t.Errorf("asked %v", asked)
		}
	})
	t.Run("KUST-10 what the server says is the answer", func(t *testing.T) {
		t.Parallel()
		_, _, _, err := borrow(t, lib, over("resources: ['https://git.example.com/team/none//base']\n"))
		if err == nil || !strings.Contains(err.Error(), "no repository https://git.example.com/team/none") {
			t.Error(err)
		}
	})
}
