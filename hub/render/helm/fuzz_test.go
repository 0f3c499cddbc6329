package helm

import (
	"regexp"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// large is what this fuzzer leaves to the limits of a worker: numbers that
// make loops and texts long.
var large = regexp.MustCompile(`\d{4,}|0[xXbBoO]|\d[eEpP_]|repeat|bcrypt|htpasswd|derive|gen[A-Z]|rand|Code|until|seq|range|template|include|tpl`)

// Any template, with any values, ends in objects or in a sentence; and twice in
// the same ones unless it is marked as not repeatable.
func FuzzTemplate(f *testing.F) {
	for _, s := range []string{
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Values.a }}}\n", "{{ .Values.b.c.d }}", "{{ .Files.Get \"../x\" }}{{ .Files.Glob \"**\" }}{{ .Files.Lines \"f\" }}",
		"{{ .Capabilities.APIVersions.Has \"apps/v1\" }}{{ .Capabilities.KubeVersion.Minor }}", "{{ toYaml . }}", "{{ $d := dict }}{{ set $d \"d\" $d | len }}", "{{ lookup \"v1\" \"Secret\" \"\" \"\" }}",
		"{{ getHostByName \"localhost\" }}", "{{ now }}{{ uuidv4 }}", "{{ fail .Values.a }}", "{{ required \"x\" .Values.none }}", "{{ .Template.Name }}{{ .Release.Name }}{{ .Chart.Name }}", "{{ regexReplaceAll \"(a*)*\" .Values.a \"x\" }}",
		"{{ fromYaml \"[\" }}{{ fromJson \"{\" }}{{ fromToml \"=\" }}", "{{ slice \"abc\" 9 1 }}", "{{ index .Values.l 9 }}", "{{ printf \"%s%d%v\" 1 \"x\" }}", "{{ index .Values \"a\" 0 }}", "{{ \"\\x00\\xff\" }}", "{{", "{{ if }}", "{{ end }}", "\xff\x00",
		"{{ mustToJson . }}{{ merge .Values .Values }}", "{{ dig \"a\" \"b\" \"c\" .Values }}", "{{ semverCompare \">1\" \"x\" }}", "{{ toDate \"x\" \"y\" }}", "{{ trunc -5 \"ab\" }}{{ abbrev 1 \"abc\" }}{{ substr 5 2 \"abc\" }}", "{{ list | first }}{{ list | last }}{{ initial (list) }}",
		"{{ urlParse \"://\" }}{{ osBase \"../x\" }}{{ env \"PATH\" }}", "{{ .Values | values | sortAlpha | join \",\" }}",
	} {
		f.Add(s, "a: x\nb: {c: 1}\nl: [1]\n")
	}
	f.Add("{{ .Values }}", "[1")
	f.Add("{{ .Values }}", "a: &a [*a]")
	f.Fuzz(func(t *testing.T, template, values string) {
		if len(template) > 2_000 || len(values) > 2_000 || large.MatchString(template+values) || strings.Count(values, "*") > 20 {
			return
		}
		files := map[string]string{"Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\n", "values.yaml": values, "templates/a.yaml": template, "f": "x\ny\n"}
		once := func() (string, bool) {
			job, _ := rendertest.Job(rendertest.Request(hub.Source{Path: "."}, files), 0)
			out, err := Render(t.Context(), job)
			if err == nil {
				var b strings.Builder
				for _, o := range out.Objects {
					text, err := o.Object.MarshalJSON()
					if err != nil {
						t.Fatalf("an object that is no JSON: %v", err)
					}
					b.Write(text)
				}
				return b.String(), out.Impure
			}
			if kind := fault.KindOf(err); kind != fault.Invalid && kind != fault.Exceeded {
				t.Fatalf("error %v (kind %q)", err, kind)
			}
			if strings.Contains(err.Error(), "goroutine ") {
				t.Fatalf("error %v", err)
			}
			return "", true // words of errors may differ
		}
		first, impure := once()
		if second, _ := once(); !impure && first != second {
			t.Fatalf("two renders differ:\n%s\n%s", first, second)
		}
	})
}
