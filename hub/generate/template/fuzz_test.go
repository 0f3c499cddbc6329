package template_test

import (
	"context"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

// FuzzFill fills hostile templates. None may panic, or return an error without
// a kind, or write more than its budget.
func FuzzFill(f *testing.F) {
	for _, text := range []string{
		"{{name}}", "{{.name}}", "{{range .list}}{{.}}{{end}}", "{{with .path}}{{.basename | upper}}{{end}}", "{{define \"a\"}}{{end}}{{template \"a\"}}",
		"{{$x := list 1}}{{range 40}}{{$x = concat $x $x}}{{end}}", "{{ {{name}} }}", "{{printf \"%*d\" 100 1}}", "{{substr 5 1 .name}}", "{{slice .list 4 1}}",
		"{{index .list 9}}", "{{toYaml .}}", "{{fromYaml \"a: &a [*a]\"}}", "{{slugify 3 false .name}}", "{{$_ := set . \"a\" .}}", "{{semver .name}}", "{{regexFind \"(\" .name}}",
		"{{range $i, $e := until 3}}{{break}}{{else}}{{continue}}{{end}}", "{{div 1 0}}", "{{dateModify \"x\" now}}", "{{call .name}}", "{{.name.x.y}}", "{{nil}}", "{{-/* */-}}",
	} {
		f.Add(text, true)
		f.Add(text, false)
	}
	f.Fuzz(func(t *testing.T, text string, goTemplate bool) {
		e, err := template.New(goTemplate, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		params := map[string]any{"name": "web", "list": []any{"a", 1.0, true, nil}, "path": map[string]any{"basename": "x", "segments": []string{"x"}}, "values": map[string]string{"a": "b"}}
		r := e.Start(ctx, 0)
		for _, f := range []func(string, map[string]any) (string, error){r.Fill, r.FillKnown} {
			out, err := f(text, params)
			if err != nil && fault.KindOf(err) == fault.Internal {
				t.Errorf("error without a kind: %v", err)
			}
			if len(out) > 1<<20 {
				t.Errorf("%d bytes", len(out))
			}
		}
		if params["name"] != "web" || len(params) != 4 {
			t.Error("the parameters have changed")
		}
	})
}
