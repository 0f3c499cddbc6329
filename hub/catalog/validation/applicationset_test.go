package validation_test

import (
	"encoding/json"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/catalog/validation"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestProjectOfASet(t *testing.T) {
	t.Parallel()
	of := func(main string, generators string) (string, error) {
		s := hub.ApplicationSet{Meta: hub.Meta{Name: "a"}, Spec: json.RawMessage(`{"generators":[` + generators + `],"template":{"spec":{"project":"` + main + `"}}}`)}
		_, err := validation.CheckApplicationSet(&s)
		return s.Project, err
	}
	const list, admin, templated = `{"list":{},"selector":{}}`, `{"list":{"template":{"spec":{"project":"admin"}}}}`, `{"list":{"template":{"spec":{"project":"{{.p}}"}}}}`
	for name, c := range map[string]struct{ main, generators, want string }{
		"SEC-D11(part) a set is in the project of its template":                    {"shop", list, "shop"},
		"SEC-D11(part) also without generators":                                    {"shop", "", "shop"},
		"SEC-D11(part) without a name it is default":                               {"", list, "default"},
		"SEC-D11(part) a templated project is any project":                         {"{{.p}}", list, hub.AnyProject},
		"SEC-D11(part) the only generator has a template with another project":     {"shop", admin, "admin"},
		"SEC-D11(part) one of two generators has a template with another project":  {"shop", list + "," + admin, hub.AnyProject},
		"SEC-D11(part) a generator has a template with a templated project":        {"shop", templated, hub.AnyProject},
		"SEC-D11(part) a generator's template replaces the main one's placeholder": {"{{.p}}", admin, "admin"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := of(c.main, c.generators)
			if err != nil || got != c.want {
				t.Errorf("project %q, %v, want %q", got, err, c.want)
			}
		})
	}
	if _, err := of("No Project", list); fault.KindOf(err) != fault.Invalid {
		t.Errorf("an invalid name returned %v", err)
	}
}
