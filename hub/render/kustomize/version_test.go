package kustomize

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestVersions(t *testing.T) {
	t.Parallel()
	const key = hub.KustomizeVersionsKey
	for version, c := range map[string]struct {
		listed string
		built  bool
		asked  bool // for the list
	}{
		"":                          {"", true, false},
		hub.KustomizeVersion:        {"", true, false},
		"5.8.0":                     {"", true, false},
		"v5.8":                      {"", true, false},
		"v5":                        {"", true, false},
		"v5.7.1":                    {"", false, true},
		"v5.80.1":                   {"", false, true},
		"v5.4.1":                    {"v4.5.7, v5.4.2", false, true},
		"5.4.1":                     {"v5.4.1", true, true},
		"v4.5.7":                    {"5.4.1, 4.*", true, true},
		"v4":                        {"v4.*", false, true},
		"v3.8.0":                    {"", false, true},
		"v5.8.2.1":                  {"", false, true},
		"v5.8.x":                    {"", false, true},
		"latest":                    {"", false, true},
		"../../bin/sh":              {"*", false, true},
		strings.Repeat("9", 100000): {"", false, true},
	} {
		t.Run(fmt.Sprintf("KUST-07 %.20s, listed are %q", version, c.listed), func(t *testing.T) {
			t.Parallel()
			got, rec, err := buildWith(t, map[string]string{key: c.listed}, "overlays/prod", &hub.KustomizeSource{Version: version}, shop())
			asked := slices.ContainsFunc(rec.Inputs(), func(i hub.Input) bool { return i.Kind == hub.InputFact && i.Path == render.FactSetting+key })
			if asked != c.asked {
				t.Errorf("it asked for the list: %v, want %v", asked, c.asked)
			}
			if c.built {
				if plain, _, err2 := build(t, "overlays/prod", &hub.KustomizeSource{}, shop()); err != nil || err2 != nil || got != plain {
					t.Errorf("%v %v; another output:\n%s", err, err2, got)
				}
				return
			}
			says := fault.Sentence(err)
			for _, want := range []string{"kustomize.version", hub.KustomizeVersion, key, "argocd-cm"} {
				if fault.KindOf(err) != fault.Invalid || !strings.Contains(says, want) || len(says) > 400 {
					t.Errorf("error %.500v, want %q", says, want)
				}
			}
		})
	}
	t.Run("KUST-07 a list that cannot be read names the key", func(t *testing.T) {
		t.Parallel()
		_, _, err := buildWith(t, map[string]string{key: "v4.[5"}, "overlays/prod", &hub.KustomizeSource{Version: "v4.5.7"}, shop())
		if says := fault.Sentence(err); !strings.Contains(says, "argocd-cm, key "+key) || !strings.Contains(says, "4.[5") {
			t.Errorf("error %q", says)
		}
	})
	t.Run("KUST-07 the version that is named is the one that is linked", func(t *testing.T) {
		t.Parallel()
		text, err := os.ReadFile("../../../go.mod")
		if err != nil {
			t.Fatal(err)
		}
		// Kustomize v5.8.2 is made of these modules: change both together.
		if want := "sigs.k8s.io/kustomize/api v0.21.2\n"; hub.KustomizeVersion != "v5.8.2" || !strings.Contains(string(text), want) {
			t.Errorf("go.mod does not have %q: find the release of Kustomize that has the new version, and set hub.KustomizeVersion", want)
		}
	})
}
