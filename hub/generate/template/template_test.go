package template_test

import (
	"context"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub/generate/template"
	"github.com/capstan-cd/capstan/shared/fault"
)

func fill(t *testing.T, goTemplate bool, text string, params map[string]any, options ...string) (string, error) {
	t.Helper()
	e, err := template.New(goTemplate, options)
	if err != nil {
		t.Fatal(err)
	}
	return e.Start(t.Context(), 0).Fill(text, params)
}

func TestLegacy(t *testing.T) {
	t.Parallel()
	params := map[string]any{"name": "web", "path.basename": "shop", "metadata.labels.a/b": "x", "number": 3.0, "inner": "{{name}}"}
	for name, c := range map[string]struct{ text, want string }{
		"ASET-03 a parameter is replaced":                    {"{{name}}-app", "web-app"},
		"ASET-03 blanks around it do not count":              {"{{ name }}-{{path.basename}}", "web-shop"},
		"ASET-03 a key may have any characters":              {"{{metadata.labels.a/b}}", "x"},
		"ASET-03 an unknown parameter is kept as it is":      {"{{ other }}-{{name}}", "{{ other }}-web"},
		"ASET-03 what is no text is kept as it is":           {"{{number}}", "{{number}}"},
		"ASET-03 a value is not filled itself":               {"{{inner}}", "{{name}}"},
		"ASET-03 functions are unknown parameters":           {"{{name | upper}}", "{{name | upper}}"},
		"ASET-03 an empty placeholder is kept":               {"{{}}", "{{}}"},
		"ASET-03 braces on different lines are no parameter": {"a {{\n}} b", "a {{\n}} b"},
		"ASET-03 text without placeholders is kept":          {"a } b {", "a } b {"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := fill(t, false, c.text, params)
			if err != nil || got != c.want {
				t.Errorf("Fill(%q) = %q, %v, want %q", c.text, got, err, c.want)
			}
		})
	}
	if _, err := fill(t, false, "{{name}} {{", params); fault.KindOf(err) != fault.Invalid {
		t.Errorf("a text with {{ without }} returned %v", err)
	}
}

func TestGoTemplates(t *testing.T) {
	t.Parallel()
	params := map[string]any{
		"name": "web", "count": 3.0, "large": 1234567.0, "on": true,
		"path":   map[string]any{"basename": "shop", "segments": []string{"apps", "shop"}},
		"labels": map[string]string{"team": "a"}, "list": []any{"x", "y"}, "text": "a: 1\nb: [x, yes]\n",
	}
	for name, c := range map[string]struct {
		text, want string
		options    []string
	}{
		"ASET-04 fields of parameters":                          {text: "{{.name}}-{{.path.basename}}", want: "web-shop"},
		"ASET-04 elements of lists":                             {text: "{{index .path.segments 1}}", want: "shop"},
		"ASET-04 Sprig functions":                               {text: `{{.name | upper | replace "W" "V" | trunc 2}}`, want: "VE"},
		"ASET-04 default for what is missing":                   {text: `{{.other | default "x"}}`, want: "x"},
		"ASET-04 dig":                                           {text: `{{dig "path" "basename" "none" .}}`, want: "shop"},
		"ASET-04 what is missing is printed as no value":        {text: "{{.other}}", want: "<no value>"},
		"ASET-04 missingkey=zero of a map of texts":             {text: "[{{.labels.other}}]", want: "[]", options: []string{"missingkey=zero"}},
		"ASET-04 numbers of generators are floating":            {text: "{{.count}} {{.large}} {{.large | int}}", want: "3 1.234567e+06 1234567"},
		"ASET-04 conditions and loops":                          {text: "{{if .on}}{{range $i, $e := .list}}{{$i}}{{$e}}{{else}}none{{end}}{{end}}", want: "0x1y"},
		"ASET-04 loops over numbers":                            {text: "{{range $i := until 3}}{{$i}}{{end}}", want: "012"},
		"ASET-04 named templates":                               {text: `{{define "a"}}<{{.}}>{{end}}{{template "a" .name}}`, want: "<web>"},
		"ASET-04 normalize":                                     {text: `{{normalize "My_App/Ünit."}}`, want: "my-app--nit"},
		"ASET-04 slugify has the defaults 50 and true":          {text: `{{slugify "feature/a.b"}}`, want: "feature-a-b"},
		"ASET-04 slugify ends at a dash":                        {text: `{{slugify 10 true "feature/a-very-long-name"}}`, want: "feature-a"},
		"ASET-04 slugify without that":                          {text: `{{slugify 10 false "feature/a-very-long-name"}}`, want: "feature-a"},
		"ASET-04 slugify cuts a word":                           {text: `{{slugify 4 true "feature"}}`, want: "feat"},
		"ASET-04 toYaml":                                        {text: "{{toYaml .path}}", want: "basename: shop\nsegments:\n- apps\n- shop"},
		"ASET-04 fromYaml":                                      {text: "{{(fromYaml .text).a}} {{index (fromYaml .text).b 1}}", want: "1 true"},
		"ASET-04 fromYamlArray":                                 {text: `{{index (fromYamlArray "- a\n- b") 1}}`, want: "b"},
		"ASET-04 printf":                                        {text: `{{printf "%s-%03d" .name 7}}`, want: "web-007"},
		"keys are sorted":                                       {text: `{{range $k := keys (dict "b" 1 "a" 2 "c" 3)}}{{$k}}{{end}}`, want: "abc"},
		"a change of parameters ends with its text":             {text: `{{$_ := set . "name" "x"}}{{.name}}`, want: "x"},
		"whitespace is trimmed":                                 {text: "a {{- /* nothing */ -}} b", want: "ab"},
		"a function may be called in front of a loop and in it": {text: `{{range $k, $v := .labels}}{{$k | upper}}={{$v}}{{end}}`, want: "TEAM=a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := fill(t, true, c.text, params, c.options...)
			if err != nil || got != c.want {
				t.Errorf("Fill(%q) = %q, %v, want %q", c.text, got, err, c.want)
			}
		})
	}
	if params["name"] != "web" {
		t.Error("a template changed the parameters")
	}
}

func TestGoTemplatesThatFail(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text    string
		options []string
		want    string // part of the error
	}{
		"ASET-04 missingkey=error":        {text: "{{.other}}", options: []string{"missingkey=error"}, want: `no entry for key "other"`},
		"ASET-04 no env":                  {text: `{{env "HOME"}}`, want: `function "env" not defined`},
		"ASET-04 no expandenv":            {text: `{{expandenv "$HOME"}}`, want: `function "expandenv" not defined`},
		"ASET-04 no getHostByName":        {text: `{{getHostByName "a"}}`, want: `function "getHostByName" not defined`},
		"a syntax error":                  {text: "{{if}}", want: "cannot be read"},
		"fail":                            {text: `{{fail "not here"}}`, want: "not here"},
		"fromYaml of a list":              {text: `{{fromYaml "- a"}}`, want: "fromYamlArray"},
		"SEC-B10(part) keys are not made": {text: `{{genPrivateKey "rsa"}}`, want: "another key each time"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := fill(t, true, c.text, map[string]any{"name": "web"}, c.options...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Fill(%q) = %q, %v, want an error with %q", c.text, got, err, c.want)
			}
		})
	}
	if _, err := fill(t, true, `{{fail (repeat 100000 "a")}}`, nil); len(err.Error()) > 1000 {
		t.Errorf("an error has %d bytes", len(err.Error()))
	}
	if _, err := template.New(true, []string{"missingkey=none"}); fault.KindOf(err) != fault.Invalid {
		t.Errorf("an unknown option returned %v", err)
	}
}

// TestHostileTemplates has programs that would need much time or memory. Each
// must end with an error that says which bound it exceeded.
func TestHostileTemplates(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 1<<16)
	for name, text := range map[string]string{
		"a loop over a large number":   "{{range 1000000000000}}{{end}}",
		"nested loops":                 "{{range 100000}}{{range 100000}}{{end}}{{end}}",
		"repeat":                       `{{repeat 1000000000 "a"}}`,
		"repeated repeat":              `{{repeat 1000 (repeat 1000 (repeat 1000 "a"))}}`,
		"indent":                       `{{indent 2000000000 "a"}}`,
		"until":                        "{{until 2000000000}}",
		"untilStep":                    "{{untilStep 0 2000000000 1}}",
		"untilStep backwards":          "{{untilStep 0 -2000000000 -1}}",
		"seq":                          "{{seq 2000000000}}",
		"seq of two":                   "{{seq -2000000000 2000000000}}",
		"seq of three":                 "{{seq 0 1 2000000000}}",
		"random text":                  "{{randAlphaNum 2000000000}}",
		"random bytes":                 "{{randBytes 2000000000}}",
		"printf with a width":          `{{printf "%999999999d" 1}}`,
		"printf with many widths":      "{{printf `" + strings.Repeat("%999999d", 60) + "` 1}}",
		"printf with repeats":          "{{printf `" + strings.Repeat("%[1]s", 1000) + "` .long}}",
		"replace":                      `{{replace "" .long .long}}`,
		"wrapWith":                     `{{wrapWith 1 .long .long}}`,
		"join":                         `{{join .long (until 100000)}}`,
		"doubling a text":              "{{$x := .long}}{{range 40}}{{$x = print $x $x}}{{end}}",
		"doubling a list":              "{{$x := list 1}}{{range 40}}{{$x = concat $x $x}}{{end}}",
		"a list of itself":             "{{$x := list 1}}{{range 60}}{{$x = list $x $x}}{{end}}{{toJson $x}}",
		"a map that contains itself":   `{{$d := dict}}{{$_ := set $d "self" $d}}{{toJson $d}}`,
		"parameters in themselves":     `{{$_ := set . "self" .}}{{toYaml .}}`,
		"a deep list":                  "{{$x := list}}{{range 100000}}{{$x = list $x}}{{end}}{{toPrettyJson $x}}",
		"uniq":                         "{{uniq (until 100000)}}",
		"without":                      "{{without (until 100000) .long}}",
		"a large regular expression":   `{{regexMatch "(.?){1000}b" .long}}`,
		"regexReplaceAll":              `{{regexReplaceAll "" .long .long}}`,
		"much output":                  "{{range 100}}{{$.long}}{{end}}",
		"templates that call two":      `{{define "a"}}{{end}}{{define "b"}}{{template "a"}}{{template "a"}}{{end}}{{range 600000}}{{template "b"}}{{end}}`,
		"a template that calls itself": `{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`,
		"templates in a circle":        `{{define "a"}}{{template "b"}}{{end}}{{define "b"}}{{template "a"}}{{end}}`,
		"deep blocks":                  strings.Repeat("{{if 1}}", 5000) + strings.Repeat("{{end}}", 5000),
		"deep parentheses":             "{{" + strings.Repeat("(", 50000) + "1" + strings.Repeat(")", 50000) + "}}",
		"a long text":                  strings.Repeat("{{1}}", 100_000),
		"a YAML bomb":                  "{{fromYaml `a: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e,*e,*e]`}}",
	} {
		t.Run("SEC-B10(part) "+name+" is bounded", func(t *testing.T) {
			t.Parallel()
			got, err := fill(t, true, text, map[string]any{"long": long})
			if err == nil {
				t.Fatalf("it returned %d bytes", len(got))
			}
			if k := fault.KindOf(err); k != fault.Exceeded && k != fault.Invalid {
				t.Errorf("error %v has kind %q", err, k)
			}
		})
	}
}

func TestRuns(t *testing.T) {
	t.Parallel()
	e, err := template.New(true, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("SEC-B10(part) the output of one application is bounded, that of a set is not", func(t *testing.T) {
		t.Parallel()
		r := e.Start(t.Context(), 0)
		text := "{{.a}}" + strings.Repeat("a", 100<<10)
		for range 30 {
			r.Next()
			for range 5 {
				if _, err := r.Fill(text, map[string]any{"a": "b"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for range 20 {
			_, err = r.Fill(text, map[string]any{"a": "b"})
		}
		if fault.KindOf(err) != fault.Exceeded {
			t.Errorf("2 MiB in one application returned %v", err)
		}
	})
	t.Run("SEC-B10(part) the time of templates is bounded", func(t *testing.T) {
		t.Parallel()
		r := e.Start(t.Context(), 1)
		var err error
		for range 100 {
			_, err = r.Fill("{{range 1000}}{{.a}}{{end}}", map[string]any{"a": "b"})
			r.Next()
		}
		if fault.KindOf(err) != fault.Exceeded || !strings.Contains(err.Error(), "too long") {
			t.Errorf("templates that take a long time returned %v", err)
		}
	})
	t.Run("a bound that one application exceeds is none of the next", func(t *testing.T) {
		t.Parallel()
		r := e.Start(t.Context(), 0)
		if _, err := r.Fill("{{repeat 1000000000 `a`}}", nil); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("it returned %v", err)
		}
		r.Next()
		if _, err := r.Fill("{{fail `not here`}}", nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("the next returned %v", err)
		}
	})
	t.Run("a run ends with its context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		r := e.Start(ctx, 0)
		cancel()
		if _, err := r.Fill("{{range 1000}}{{.a}}{{end}}", nil); fault.KindOf(err) != fault.Exceeded {
			t.Errorf("it returned %v", err)
		}
	})
	t.Run("a parameter that another generator has stays a template", func(t *testing.T) {
		t.Parallel()
		r := e.Start(t.Context(), 0)
		for text, want := range map[string]string{
			"{{.name}}":                  "web",
			"{{.metadata.labels.stage}}": "{{.metadata.labels.stage}}",
			"{{.name}}-{{.other}}":       "{{.name}}-{{.other}}",
		} {
			if got, err := r.FillKnown(text, map[string]any{"name": "web"}); err != nil || got != want {
				t.Errorf("FillKnown(%q) = %q, %v, want %q", text, got, err, want)
			}
		}
	})
}
