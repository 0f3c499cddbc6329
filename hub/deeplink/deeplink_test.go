package deeplink

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/shared/fault"
)

func sample() map[string]any {
	app := map[string]any{
		"metadata": map[string]any{"name": "web", "namespace": "argocd", "labels": map[string]any{"team": "shop", "site/name": "oslo"}},
		"spec":     map[string]any{"project": "shop", "sources": []any{map[string]any{"path": "a"}, map[string]any{"path": "b"}}},
	}
	return map[string]any{"app": app, "application": app, "project": map[string]any{"metadata": map[string]any{"name": "shop"}}}
}

func TestLinks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text string
		want []Link
	}{
		"PROJ-23 a link with everything": {
			"- url: https://wiki.example.com/{{.app.metadata.name}}\n  title: Runbook\n  description: What to do\n  icon.class: fa-book\n  if: app.metadata.labels.team == 'shop'\n",
			[]Link{{Title: "Runbook", URL: "https://wiki.example.com/web", Description: "What to do", IconClass: "fa-book"}},
		},
		"PROJ-23 a condition that does not hold": {"- {url: 'https://a.example.com', title: a, if: 'app.metadata.name == \"other\"'}\n- {url: 'https://b.example.com', title: b}\n", []Link{{Title: "b", URL: "https://b.example.com"}}},
		"PROJ-23 what a condition asks for is not there": {"- {url: 'https://a.example.com', title: a, if: 'app.metadata.annotations?.owner != nil'}\n- {url: 'https://b.example.com', title: b, if: 'app.metadata.annotations?.owner == nil'}\n",
			[]Link{{Title: "b", URL: "https://b.example.com"}}},
		"PROJ-23 functions over lists": {"- {url: 'https://a.example.com', title: a, if: 'any(app.spec.sources, {.path == \"b\"}) && len(app.spec.sources) == 2 && app.metadata.name matches \"^w\"'}\n", []Link{{Title: "a", URL: "https://a.example.com"}}},
		"PROJ-23 functions of templates": {"- title: a\n  url: https://a.example.com/{{ index .app.metadata.labels \"site/name\" | upper }}/{{ .project.metadata.name | default \"x\" }}?q={{ urlquery \"a b\" }}{{ if eq .app.spec.project \"shop\" }}&shop{{ end }}\n",
			[]Link{{Title: "a", URL: "https://a.example.com/OSLO/shop?q=a+b&shop"}}},
		"PROJ-23 what a template lacks is empty": {"- {title: a, url: 'https://a.example.com/{{.app.metadata.none}}/x{{.resource}}'}\n", []Link{{Title: "a", URL: "https://a.example.com//x"}}},
		"PROJ-23 no links":                       {"", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all, err := Read(c.text)
			if err != nil {
				t.Fatal(err)
			}
			got, problems := Evaluate(all, sample())
			if diff := cmp.Diff(c.want, got); diff != "" || len(problems) > 0 {
				t.Errorf("%s%v", diff, problems)
			}
		})
	}
}

func TestLinksThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no list":                               "a: b\n",
		"no url":                                "- title: a\n",
		"no title":                              "- url: https://a.example.com\n",
		"a template with an error":              "- {title: a, url: 'https://a.example.com/{{.app'}\n",
		"a function that reads the environment": "- {title: a, url: 'https://a.example.com/{{env \"HOME\"}}'}\n",
		"a function that resolves names":        "- {title: a, url: 'https://a.example.com/{{getHostByName \"a\"}}'}\n",
		"a loop in a template":                  "- {title: a, url: 'https://a.example.com/{{range .app.spec.sources}}x{{end}}'}\n",
		"a template that calls itself":          "- {title: a, url: '{{define \"x\"}}{{template \"x\"}}{{end}}{{template \"x\"}}'}\n",
		"a function that makes long texts":      "- {title: a, url: 'https://a.example.com/{{repeat 1000000 \"x\"}}'}\n",
		"a condition with an error":             "- {title: a, url: 'https://a.example.com', if: 'app.('}\n",
		"a range":                               "- {title: a, url: 'https://a.example.com', if: 'len(1..1000000) > 0'}\n",
		"a variable":                            "- {title: a, url: 'https://a.example.com', if: 'let x = 1; x == 1'}\n",
		"two loops in each other":               "- {title: a, url: 'https://a.example.com', if: 'any(a, {any(b, {true})})'}\n",
		"a function that repeats":               "- {title: a, url: 'https://a.example.com', if: 'repeat(\"x\", 1000000) == \"\"'}\n",
		"a text that is too long":               "- {title: a, url: 'https://a.example.com/" + strings.Repeat("x", 5000) + "'}\n",
		"a condition of too many parts":         "- {title: a, url: 'https://a.example.com', if: '" + strings.Repeat("1+", 400) + "1 == 2'}\n",
		"too many":                              strings.Repeat("- {title: a, url: 'https://a.example.com'}\n", 51),
	} {
		t.Run("PROJ-23 SEC-B9 "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := Read(text); err == nil || !(fault.KindOf(err) == fault.Invalid || fault.KindOf(err) == fault.Exceeded) {
				t.Errorf("Read() = %v", err)
			}
		})
	}
}

func TestLinksThatCannotBeEvaluated(t *testing.T) {
	t.Parallel()
	evaluate := func(t *testing.T, text string, data map[string]any) ([]Link, []string) {
		t.Helper()
		all, err := Read(text)
		if err != nil {
			t.Fatal(err)
		}
		return Evaluate(all, data)
	}
	for name, text := range map[string]string{
		"another scheme":                "- {title: a, url: 'javascript:alert({{.app.metadata.name}})'}\n",
		"no host":                       "- {title: a, url: '/{{.app.metadata.name}}'}\n",
		"a condition that is no truth":  "- {title: a, url: 'https://a.example.com', if: 'app.metadata.name'}\n",
		"a condition of a missing part": "- {title: a, url: 'https://a.example.com', if: 'app.none.other == 1'}\n",
		"an index that is not there":    "- {title: a, url: 'https://a.example.com/{{index .app.spec.sources 7}}'}\n",
	} {
		t.Run("PROJ-23 SEC-H2 "+name+" is no link, is named, and stops no other", func(t *testing.T) {
			t.Parallel()
			links, problems := evaluate(t, text+"- {title: b, url: 'https://b.example.com'}\n", sample())
			if len(links) != 1 || links[0].Title != "b" || len(problems) != 1 || !strings.Contains(problems[0], `the link "a"`) {
				t.Errorf("%v, %q", links, problems)
			}
		})
	}
	t.Run("PROJ-23 SEC-B9 templates that grow their texts end early", func(t *testing.T) {
		t.Parallel()
		grown := "{{ $a := .app.metadata.name }}" + strings.Repeat(`{{ $a = printf "%s%s%s%s%s%s%s%s" $a $a $a $a $a $a $a $a }}`, 60) + "https://a.example.com/{{ $a }}"
		links, problems := evaluate(t, fmt.Sprintf("- title: a\n  url: %q\n", grown), sample())
		if len(links) != 0 || len(problems) != 1 {
			t.Errorf("%v, %q", links, problems)
		}
	})
}
