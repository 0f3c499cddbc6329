package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Sources written to hurt. Each ends with a limit or a sentence, within the
// limits of time and memory, and the next render is well.
func TestHostileSources(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has no limit of memory")
	}
	p := newPool(t, func(c *render.Config) {
		c.Workers = 1
		c.Limits.CPU, c.Limits.Memory = 1500*time.Millisecond, 256<<20
	})
	chart := func(more ...string) map[string]string {
		files := map[string]string{"Chart.yaml": chartYAML, "templates/a.yaml": configMap}
		for i := 0; i+1 < len(more); i += 2 {
			files[more[i]] = more[i+1]
		}
		return files
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'm'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	for name, files := range map[string]map[string]string{
		"SEC-B1 an alias bomb in a manifest":    {"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n" + bomb},
		"SEC-B1 an alias bomb in values":        chart("values.yaml", bomb, "templates/b.yaml", "{{ toYaml .Values }}"),
		"SEC-B1 an alias bomb in Chart.yaml":    {"Chart.yaml": chartYAML + bomb, "templates/a.yaml": "{{ toYaml .Chart }}{{ fail \"still here\" }}"},
		"SEC-B1 an alias bomb in a kustomize":   {"kustomization.yaml": bomb},
		"SEC-B1 an alias bomb behind kustomize": {"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n" + bomb},
		"SEC-B1 an alias bomb in fromYaml":      chart("templates/b.yaml", "{{ fromYaml (.Files.Get \"bomb\") | toYaml }}", "bomb", bomb),
		"SEC-B1 an alias bomb in overrides":     {".argocd-source.yaml": "directory: {recurse: true}\n" + bomb, "a.yaml": "kind: x"},
		"SEC-B1 nested ten thousand deep":       {"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: " + strings.Repeat("{a: ", 10_000) + "1" + strings.Repeat("}", 10_000)},
		"SEC-B1 values ten thousand deep":       chart("values.yaml", strings.Repeat("{a: ", 10_000)+"1"+strings.Repeat("}", 10_000), "templates/b.yaml", "{{ fail \"still here\" }}"),
		"SEC-B5 a loop in a loop":               chart("templates/b.yaml", "{{ range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}"),
		"SEC-B5 a billion numbers":              chart("templates/b.yaml", "{{ until 1000000000 }}"),
		"SEC-B5 a repeat of repeats":            chart("templates/b.yaml", "{{ $x := repeat 1000000 \"x\" }}{{ $y := repeat 1000000 $x }}{{ len $y }}"),
		"SEC-B5 certificates without end":       chart("templates/b.yaml", "{{ range until 100000 }}{{ $_ := genCA \"x\" 1 }}{{ end }}"),
		"SEC-B5 a template calls itself":        chart("templates/b.yaml", "{{ define \"r\" }}{{ template \"r\" . }}{{ end }}{{ template \"r\" . }}"),
		"SEC-B5 a map that holds itself":        chart("templates/b.yaml", "{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ toYaml $d }}{{ toJson $d }}{{ $d }}"),
		"SEC-B5 text that doubles":              chart("templates/b.yaml", "{{ $x := \"xxxxxxxx\" }}{{ range until 40 }}{{ $x = print $x $x }}{{ end }}{{ len $x }}"),
		"SEC-B6 a schema that refers to itself": chart("values.schema.json", `{"$ref":"#/definitions/a","definitions":{"a":{"$ref":"#/definitions/a"}}}`, "templates/b.yaml", "{{ fail \"still here\" }}"),
		"SEC-B6 a schema that grows":            chart("values.schema.json", `{"allOf":[{"$ref":"#"},{"$ref":"#"}]}`, "templates/b.yaml", "{{ fail \"still here\" }}"),
		"SEC-B11 kustomizations in a circle":    {"kustomization.yaml": "resources: [b]\n", "b/kustomization.yaml": "resources: [../c]\n", "c/kustomization.yaml": "resources: [../b]\n"},
		"SEC-B2 fifty thousand objects":         chart("templates/b.yaml", "{{ range $i := until 50000 }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a{{ $i }}}\n{{ end }}"),
		"SEC-B2 an object of 30 MB":             chart("templates/b.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {k: \"{{ repeat 30000000 \"x\" }}\"}\n"),
		"SEC-B3 a packed chart that is a bomb":  chart("charts/x-1.0.0.tgz", strings.Repeat("\x1f\x8b\x08\x00", 1000)),
		"SEC-B10 a pattern of braces":           {"a.yaml": "kind: x"},
	} {
		t.Run(name, func(t *testing.T) {
			source := hub.Source{Path: "."}
			if strings.HasPrefix(name, "SEC-B10") {
				source.Directory = &hub.DirectorySource{Include: strings.Repeat("{a,b", 500) + strings.Repeat("}", 500) + strings.Repeat("*a", 500)}
				files["a.yaml"] = "nothing to see"
			}
			res, err := p.Render(t.Context(), request(source, files))
			if kind := fault.KindOf(err); kind != fault.Exceeded && kind != fault.Invalid {
				if err != nil || !strings.HasPrefix(name, "SEC-B10") {
					t.Fatalf("%d objects and error %v (kind %q), want a limit or a sentence", len(res.Objects), err, kind)
				}
			}
			if err != nil {
				t.Log(fault.Sentence(err)[:min(200, len(fault.Sentence(err)))])
			}
			wellAgain(t, p)
		})
	}
}
