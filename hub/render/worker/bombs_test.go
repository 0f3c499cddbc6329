package worker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A bomb is a source written to exhaust, and a word of the sentence that it
// ends with. What has no word may end in any limit or sentence.
type bomb struct {
	files func() map[string]string
	says  string
}

func bombs() map[string]bomb {
	chart := func(more ...string) func() map[string]string {
		return func() map[string]string {
			m := map[string]string{}
			for i := 0; i+1 < len(more); i += 2 {
				m[more[i]] = more[i+1]
			}
			return rendertest.Chart(m)
		}
	}
	template := func(text string) func() map[string]string { return chart("templates/b.yaml", text) }
	plain := func(text string) func() map[string]string {
		return func() map[string]string { return map[string]string{"a.yaml": text} }
	}
	kust := func(text string, more ...string) func() map[string]string {
		return func() map[string]string {
			m := map[string]string{"kustomization.yaml": text, "r.yaml": configMap}
			for i := 0; i+1 < len(more); i += 2 {
				m[more[i]] = more[i+1]
			}
			return m
		}
	}
	jsonnet := func(text string) func() map[string]string {
		return func() map[string]string { return map[string]string{"a.jsonnet": text} }
	}
	packed := func(make func() string) func() map[string]string {
		return func() map[string]string {
			return rendertest.Chart(map[string]string{"charts/d-1.0.0.tgz": make()})
		}
	}
	return map[string]bomb{
		"SEC-B1 merge keys that multiply":           {plain(rendertest.Manifest(rendertest.MergeBomb(8, 12))), "alias"},
		"SEC-B1 merge keys in values":               {chart("values.yaml", rendertest.MergeBomb(8, 12), "templates/b.yaml", "{{ toYaml .Values }}"), ""},
		"SEC-B1 an alias that holds itself":         {plain(rendertest.Manifest("a: &a [*a]\n")), "itself"},
		"SEC-B1 the same anchor a thousand times":   {plain(rendertest.Manifest(strings.Repeat("k: &a [*a, *a]\n", 1000))), ""},
		"SEC-B1 a hundred thousand levels of lists": {plain(rendertest.Manifest("a: " + strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000))), ""},
		"SEC-B1 ten thousand levels of indentation": {func() map[string]string { return map[string]string{"a.yaml": rendertest.Manifest(indented(3_000))} }, ""},
		"SEC-B1 JSON a hundred thousand levels deep": {func() map[string]string {
			return map[string]string{"a.json": strings.Repeat(`{"a":`, 100_000) + "1" + strings.Repeat("}", 100_000)}
		}, ""},
		"SEC-B1 lists of lists of objects": {plain(strings.Repeat("{apiVersion: v1, kind: List, items: [", 1000) + strings.Repeat("]}", 1000)), ""},
		"SEC-B1 a scalar of 40 MB": {func() map[string]string {
			return map[string]string{"a.yaml": rendertest.Manifest("d: " + strings.Repeat("x", 40<<20))}
		}, "a.yaml"},
		"SEC-B1 nine megabytes of commas": {func() map[string]string {
			return map[string]string{"a.yaml": rendertest.Manifest("d: [" + strings.Repeat("x,", 4<<20) + "]")}
		}, ""},
		"SEC-B1 values of 50 MiB": {func() map[string]string {
			return rendertest.Chart(map[string]string{"values.yaml": "v: " + strings.Repeat("x", 50<<20)})
		}, "values.yaml"},
		"SEC-B2 a chart of a hundred thousand files": {func() map[string]string {
			return with(rendertest.Many("files", 100_001), rendertest.Chart(map[string]string{"templates/b.yaml": "{{ range $n, $_ := .Files }}# {{ $n }}\n{{ end }}"}))
		}, "more than"},
		"SEC-B2 thirty thousand documents":             {plain(strings.Repeat("---\n"+configMap, 30_000)), "more than"},
		"SEC-B2 objects of a generator":                {kust("configMapGenerator: [{name: g, files: ["+strings.TrimSuffix(strings.Repeat("a.bin,", 1), ",")+"]}]\n", "a.bin", strings.Repeat("x", 8<<20)), "bytes"},
		"SEC-B2 output of 1 GiB":                       {template("{{ range until 2000 }}{{ repeat 1000000 \"x\" }}{{ end }}"), "write more than"},
		"SEC-B2 a million API names":                   {template("{{ range $i := until 1000000 }}{{ if $.Capabilities.APIVersions.Has (printf \"%0400d\" $i) }}{{ end }}{{ end }}"), ""},
		"SEC-B2 API names of a megabyte":               {template("{{ $x := repeat 1000000 \"x\" }}{{ range $i := until 100000 }}{{ if $.Capabilities.APIVersions.Has (print $x $i) }}{{ end }}{{ end }}"), "not the name"},
		"SEC-B2 files that are not there, without end": {template("{{ range $i := until 1000000 }}{{ $.Files.Get (printf \"%04000d\" $i) }}{{ end }}"), ""},
		"SEC-B2 one file, read without end":            {chart("templates/b.yaml", "{{ range until 10000000 }}{{ $_ := $.Files.Get \"f\" }}{{ end }}", "f", "x"), ""},
		"SEC-B3 a file of 10 GB of zeros":              {packed(func() string { return rendertest.PackedZeros("d", 10<<30) }), "d-1.0.0.tgz"},
		"SEC-B3 files of 99 MB of zeros":               {packed(func() string { return rendertest.PackedZeros("d", 64<<20) }), ""},
		"SEC-B3 a million entries":                     {packed(func() string { return rendertest.PackedEntries("d", 1_000_000) }), ""},
		"SEC-B3 packed in packed in packed":            {packed(func() string { return rendertest.PackedInPacked("d", 10, 8) }), ""},
		"SEC-B5 a range in a range in a range":         {template("{{ range until 100000 }}{{ range until 100000 }}{{ range until 100000 }}{{ end }}{{ end }}{{ end }}"), "of processor time"},
		"SEC-B5 a width of a million, a million times": {template("{{ range until 1000000 }}{{ $_ := printf \"%999999d%999999d\" 1 1 }}{{ end }}"), ""},
		"SEC-B5 a precision of a million":              {template("{{ range until 1000000 }}{{ $_ := printf \"%.999999f\" 1.0 }}{{ end }}"), ""},
		"SEC-B5 indented by two billion":               {template("{{ indent 2000000000 \"x\" }}"), ""},
		"SEC-B5 repeated less than never":              {template("{{ repeat -1 \"x\" }}"), ""},
		"SEC-B5 repeated more than there is memory":    {template("{{ repeat 9000000000000000000 \"xxxx\" }}"), ""},
		"SEC-B5 random text of a gigabyte":             {template("{{ len (randAlphaNum 2000000000) }}"), ""},
		"SEC-B5 random bytes":                          {template("{{ len (randBytes 2000000000) }}"), ""},
		"SEC-B5 lists that double":                     {template("{{ $l := list 1 }}{{ range until 60 }}{{ $l = concat $l $l }}{{ end }}{{ len $l }}"), ""},
		"SEC-B5 replaced by more":                      {template("{{ $x := \"x\" }}{{ range until 60 }}{{ $x = replace \"x\" \"xx\" $x }}{{ end }}{{ len $x }}"), ""},
		"SEC-B5 a pattern that backtracks elsewhere":   {template("{{ $x := repeat 1000000 \"a\" }}{{ range until 100000 }}{{ $_ := regexMatch \"(a*)*(a*)*(a*)*$b\" $x }}{{ end }}"), ""},
		"SEC-B5 a pattern of patterns":                 {template("{{ regexMatch \"((((((a{100}){100}){100}){100}){100}){100})\" \"a\" }}"), ""},
		"SEC-B5 passwords without end":                 {template("{{ range until 100000 }}{{ $_ := derivePassword 1 \"long\" \"p\" \"u\" \"s\" }}{{ end }}"), ""},
		"SEC-B5 hashes without end":                    {template("{{ range until 100000 }}{{ $_ := bcrypt \"x\" }}{{ end }}"), ""},
		"SEC-B5 keys without end":                      {template("{{ range until 100000 }}{{ $_ := genPrivateKey \"rsa\" }}{{ end }}"), ""},
		"SEC-B5 tpl of tpl of tpl":                     {template("{{ define \"x\" }}{{ tpl \"{{ include \\\"x\\\" . }}\" . }}{{ end }}{{ include \"x\" . }}"), ""},
		"SEC-B5 a text that tpl doubles":               {chart("values.yaml", "t: \"{{ tpl .Values.t . }}{{ tpl .Values.t . }}\"\n", "templates/b.yaml", "{{ tpl .Values.t . }}"), ""},
		"SEC-B5 a huge tpl":                            {template("{{ tpl (repeat 1000000 \"{{ if true }}x{{ end }}\") . }}"), ""},
		"SEC-B5 conditions nested without end": {func() map[string]string {
			return rendertest.Chart(map[string]string{"templates/b.yaml": strings.Repeat("{{ if true }}", 200_000) + strings.Repeat("{{ end }}", 200_000)})
		}, ""},
		"SEC-B5 brackets nested without end": {func() map[string]string {
			return rendertest.Chart(map[string]string{"templates/b.yaml": "{{ " + strings.Repeat("(", 200_000) + "1" + strings.Repeat(")", 200_000) + " }}"})
		}, ""},
		"SEC-B5 a map merged into itself":    {template("{{ $d := dict \"a\" (dict) }}{{ $_ := set $d \"a\" $d }}{{ $_ := merge $d $d }}{{ $_ := deepCopy $d }}"), ""},
		"SEC-B5 a list compared with itself": {template("{{ $d := dict }}{{ $_ := set $d \"d\" $d }}{{ deepEqual $d $d }}{{ $e := dict }}{{ $_ := set $e \"d\" $e }}{{ deepEqual $d $e }}{{ toToml $d }}"), ""},
		"SEC-B5 a value far down": {func() map[string]string {
			return rendertest.Chart(map[string]string{"values.yaml": "a: " + rendertest.Nested(2_000), "templates/b.yaml": "{{ .Values" + strings.Repeat(".a", 100_000) + " }}"})
		}, ""},
		"SEC-B6 a schema with a pattern of patterns": {chart("values.schema.json", `{"properties":{"a":{"pattern":"((a{1000}){1000}){1000}"}}}`, "values.yaml", "a: x\n", "templates/b.yaml", "{{ fail \"still here\" }}"), ""},
		"SEC-B6 a schema of alternatives": {func() map[string]string {
			return rendertest.Chart(map[string]string{"values.schema.json": alternatives(24), "values.yaml": "a: x\n", "templates/b.yaml": "{{ fail \"still here\" }}"})
		}, ""},
		"SEC-B8 a text that doubles without end": {jsonnet(`local f(s, n) = if n == 0 then s else f(s + s, n - 1); f("x", 60)`), ""},
		"SEC-B8 a loop without end":              {jsonnet(`std.foldl(function(a, i) a + std.foldl(function(b, j) b + j, std.range(1, 100000), 0), std.range(1, 1000000), 0)`), "of processor time"},
		"SEC-B8 a list without end":              {jsonnet(`std.range(1, 4000000000)`), ""},
		"SEC-B8 objects that nest without end":   {jsonnet(`local f(n) = {a: f(n + 1)}; f(0)`), ""},
		"SEC-B8 imports in a circle": {func() map[string]string {
			return map[string]string{"a.jsonnet": `import "b.jsonnet"`, "b.jsonnet": `import "a.jsonnet"`}
		}, ""},
		"SEC-B8 text nested without end":        {jsonnet(strings.Repeat("[", 200_000) + strings.Repeat("]", 200_000)), ""},
		"SEC-B8 a repetition of a gigabyte":     {jsonnet(`std.repeat("x", 4000000000)`), ""},
		"SEC-B11 overlays that double":          {func() map[string]string { return rendertest.Overlays(30) }, ""},
		"SEC-B11 bases two thousand deep":       {func() map[string]string { return rendertest.Chain(2_000) }, ""},
		"SEC-B11 a component that holds itself": {kust("components: [c]\nresources: [r.yaml]\n", "c/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncomponents: [../c]\n"), ""},
		"SEC-B11 components in a circle":        {kust("components: [c]\n", "c/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncomponents: [../d]\n", "d/kustomization.yaml", "apiVersion: kustomize.config.k8s.io/v1alpha1\nkind: Component\ncomponents: [../c]\n"), ""},
		"SEC-B11 a kustomization above itself": {func() map[string]string {
			return map[string]string{"kustomization.yaml": "resources: [a]\n", "a/kustomization.yaml": "resources: [../]\n"}
		}, ""},
		"SEC-B11 charts that depend on each other": {chart("Chart.yaml", chartYAML+"dependencies: [{name: c, version: 1.0.0, repository: 'file://.'}]\n"), ""},
		"SEC-B2 a generator of many literals": {func() map[string]string {
			return map[string]string{"kustomization.yaml": "configMapGenerator:\n" + strings.Repeat("- {name: g, literals: [a=b]}\n", 50_000)}
		}, ""},
		"SEC-B2 patches without end": {func() map[string]string {
			return map[string]string{"kustomization.yaml": "resources: [r.yaml]\npatches:\n" + strings.Repeat("- {target: {kind: \".*\"}, patch: \"[{op: add, path: /data/x, value: y}]\"}\n", 20_000), "r.yaml": configMap}
		}, ""},
	}
}

func indented(deep int) string {
	var b strings.Builder
	for i := range deep {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	return b.String()
}

func alternatives(deep int) string {
	s := `{"type":"integer"}`
	for range deep {
		s = `{"anyOf":[` + s + `,{"allOf":[{"$ref":"#/definitions/x"}]}]}`
	}
	return `{"definitions":{"x":{"anyOf":[{"type":"integer"},{"type":"boolean"}]}},"properties":{"a":` + s + `}}`
}

// Each bomb ends within its processor time, which is the same on a busy
// machine, with a limit or a short sentence. The hub's own memory does not
// grow, and the renders of another tenant continue meanwhile.
func TestBombs(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("the race detector has no limit of memory")
	}
	for name, b := range bombs() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bombing.take(t)
			p := newPool(t, func(c *render.Config) {
				c.Workers, c.Processes = 1, 2
				c.Limits.CPU, c.Limits.Memory = 500*time.Millisecond, 256<<20
			})
			req := request(hub.Source{Path: "."}, b.files())
			began := time.Now()
			res, err := p.Render(t.Context(), req)
			if kind := fault.KindOf(err); kind != fault.Exceeded && kind != fault.Invalid {
				t.Fatalf("%d objects and error %v (kind %q), want a limit or a sentence", len(res.Objects), err, kind)
			}
			sentence := fault.Sentence(err)
			// On a slow machine the processor's time may be over before any other limit.
			gotText := strings.Contains(sentence, b.says) || strings.Contains(sentence, "of processor time")
			if len(sentence) > 4_000 || !gotText || strings.Contains(sentence, "goroutine ") {
				t.Errorf("after %s the sentence is %.500q, want %q in it", time.Since(began).Round(time.Millisecond), sentence, b.says)
			}
			t.Logf("%s: %s: %.160s", name, time.Since(began).Round(time.Millisecond), sentence)
			other := request(hub.Source{Path: "."}, map[string]string{"a.yaml": configMap})
			other.Tenant = "other"
			if res, err := p.Render(t.Context(), other); err != nil || len(res.Objects) != 1 {
				t.Errorf("another tenant's render gives %d objects and %v", len(res.Objects), err)
			}
		})
	}
}

// bombing lets few bombs explode at once: each may use what a worker may.
var bombing = gate(make(chan struct{}, 2))

type gate chan struct{}

func (g gate) take(t *testing.T) {
	t.Helper()
	g <- struct{}{}
	t.Cleanup(func() { <-g })
}
