package worker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Text that is odd is read for what it means, or refused with a sentence. It
// never becomes a name that a database or a screen cannot bear.
func TestUnprintableText(t *testing.T) {
	t.Parallel()
	p := newPool(t, nil)
	named := func(name string) string { return "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: " + name + "\n" }
	chart := func(text string) map[string]string {
		return rendertest.Chart(map[string]string{"templates/a.yaml": text})
	}
	odd := "\u202e" // turns the direction of text around
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // names of the objects, or
		says  string   // part of the sentence
	}{
		"a byte order mark":                 {map[string]string{"a.yaml": "\xef\xbb\xbf" + configMap}, []string{"ConfigMap a"}, ""},
		"a byte order mark in a chart":      {map[string]string{"Chart.yaml": "\xef\xbb\xbf" + chartYAML, "values.yaml": "\xef\xbb\xbfwho: a\n", "templates/a.yaml": "\xef\xbb\xbf" + named("{{ .Values.who }}")}, []string{"ConfigMap a"}, ""},
		"a byte order mark before JSON":     {map[string]string{"a.json": "\xef\xbb\xbf" + `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`}, []string{"ConfigMap a"}, ""},
		"lines that end as on DOS":          {map[string]string{"a.yaml": strings.ReplaceAll(configMap, "\n", "\r\n")}, []string{"ConfigMap a"}, ""},
		"documents that end as on DOS":      {map[string]string{"a.yaml": strings.ReplaceAll(named("a")+"---\n"+named("b"), "\n", "\r\n")}, []string{"ConfigMap a", "ConfigMap b"}, ""},
		"a chart that ends as on DOS":       {chart(strings.ReplaceAll("{{ if true }}\n"+configMap+"{{ end }}\n", "\n", "\r\n")), []string{"ConfigMap a"}, ""},
		"UTF-16":                            {map[string]string{"a.yaml": "\xff\xfe" + strings.Join(strings.Split(configMap, ""), "\x00") + "\x00"}, []string{"ConfigMap a"}, ""},
		"bytes that are no text":            {map[string]string{"a.yaml": configMap + "  b: \"\xff\xfe\xfd\"\n"}, nil, "a.yaml"},
		"bytes that are no text in a chart": {chart(configMap + "  b: \"\xff\"\n"), nil, "templates/a.yaml"},
		"a zero byte in a file":             {map[string]string{"a.yaml": configMap + "\x00"}, nil, "a.yaml"},
		"a zero byte in data":               {map[string]string{"a.yaml": configMap + "  b: \"x\\0y\"\n"}, []string{"ConfigMap a"}, ""},
		"a zero byte in a name":             {map[string]string{"a.yaml": named(`"a\0b"`)}, nil, "character that no name may have"},
		"a zero byte in a kind":             {map[string]string{"a.yaml": strings.Replace(configMap, "ConfigMap", `"Config\0Map"`, 1)}, nil, "cannot be printed"},
		"a zero byte in a version":          {map[string]string{"a.yaml": strings.Replace(configMap, "v1", `"v\01"`, 1)}, nil, "cannot be printed"},
		"a zero byte in a group":            {map[string]string{"a.yaml": strings.Replace(configMap, "v1", `"x\0y/v1"`, 1)}, nil, "cannot be printed"},
		"a zero byte in a name of a chart":  {chart(strings.Replace(configMap, "ConfigMap", `"Config\0Map"`, 1)), nil, "cannot be printed"},
		"a zero byte behind kustomize":      {map[string]string{"kustomization.yaml": "resources: [a.yaml]\n", "a.yaml": strings.Replace(configMap, "ConfigMap", `"Config\0Map"`, 1)}, nil, "cannot be printed"},
		"a namespace with a control":        {map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: \"a\\eb\"}\n"}, nil, "cannot be printed"},
		"a name that turns text around":     {map[string]string{"a.yaml": named(`"a` + odd + `b"`)}, nil, "cannot be printed"},
		"a name that nobody sees":           {map[string]string{"a.yaml": named("\"\u200b\"")}, nil, "cannot be printed"},
		"a very long name":                  {map[string]string{"a.yaml": named(strings.Repeat("a", 100_000))}, nil, "100000 bytes"},
		"a very long kind":                  {map[string]string{"a.yaml": strings.Replace(configMap, "ConfigMap", strings.Repeat("K", 5_000), 1)}, nil, "its kind has 5000 bytes"},
		"a very long group":                 {map[string]string{"a.yaml": strings.Replace(configMap, "v1", strings.Repeat("g", 5_000)+"/v1", 1)}, nil, "5000 bytes"},
		"a very long namespace":             {map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: " + strings.Repeat("n", 5_000) + "}\n"}, nil, "5000 bytes"},
		"a very long name to be generated":  {map[string]string{"a.yaml": "apiVersion: batch/v1\nkind: Job\nmetadata:\n  generateName: " + strings.Repeat("n", 5_000) + "\n  annotations: {argocd.argoproj.io/hook: Sync}\n"}, nil, "5000 bytes"},
		"a role's name may have colons":     {map[string]string{"a.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: 'system:x:y@z'}\n"}, []string{"ClusterRole system:x:y@z"}, ""},
		"a key twice":                       {map[string]string{"a.yaml": configMap + "  k: later\n"}, []string{"ConfigMap a"}, ""},
		"a key twice in JSON":               {map[string]string{"a.json": `{"apiVersion":"v1","kind":"Secret","kind":"ConfigMap","metadata":{"name":"z","name":"a"}}`}, []string{"ConfigMap a"}, ""},
		"keys of prototypes":                {map[string]string{"a.yaml": configMap + "  __proto__: x\n  constructor: y\n  toString: z\n"}, []string{"ConfigMap a"}, ""},
		"values of prototypes":              {rendertest.Chart(map[string]string{"values.yaml": "__proto__: {polluted: true}\nconstructor: {prototype: {polluted: true}}\n", "templates/b.yaml": "{{ if .Values.polluted }}{{ fail \"polluted\" }}{{ end }}"}), []string{"ConfigMap a"}, ""},
		"the keys that differ by case":      {map[string]string{"a.yaml": strings.Replace(configMap, "kind: ConfigMap", "Kind: Secret\nkind: ConfigMap\nKIND: Role", 1)}, []string{"ConfigMap a"}, ""},
		"a value that is a date":            {map[string]string{"a.yaml": named("2001-01-01")}, []string{"ConfigMap 2001-01-01"}, ""},
		"a name that is a number":           {map[string]string{"a.yaml": named("0x10")}, nil, "not text"},
		"a tag that makes things":           {map[string]string{"a.yaml": configMap + "  b: !!python/object/apply:os.system [id]\n"}, []string{"ConfigMap a"}, ""},
		"a tag that is no tag":              {map[string]string{"a.yaml": configMap + "  b: !<tag:yaml.org,2002:nope> x\n"}, []string{"ConfigMap a"}, ""},
		"binary that is none":               {map[string]string{"a.yaml": configMap + "  b: !!binary \"*\"\n"}, nil, "!!binary"},
		"only comments":                     {map[string]string{"a.yaml": "# nothing\n---\n# more\n---\n"}, []string{}, ""},
		"ten thousand empty documents":      {map[string]string{"a.yaml": strings.Repeat("---\n", 10_000) + configMap}, []string{"ConfigMap a"}, ""},
		"an object for another namespace":   {map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: kube-system}\n"}, []string{"ConfigMap a"}, ""},
	} {
		t.Run("SEC-B1 "+name, func(t *testing.T) {
			t.Parallel()
			req := request(hub.Source{Path: "."}, c.files)
			res, err := p.Render(t.Context(), req)
			if c.says != "" {
				if fault.KindOf(err) != fault.Invalid || !strings.Contains(fault.Sentence(err), c.says) {
					t.Errorf("%d objects and error %v (kind %q), want kind %q and %q", len(res.Objects), err, fault.KindOf(err), fault.Invalid, c.says)
				}
				if err != nil && (strings.ContainsAny(fault.Sentence(err), "\x00\x1b"+odd) || len(fault.Sentence(err)) > 1_500) {
					t.Errorf("the sentence is %.300q", fault.Sentence(err))
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, names(res)); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
			if ok, err := render.Fresh(res.Inputs, req.Trees, req); !ok || err != nil {
				t.Errorf("the inputs are not fresh in their own tree: %v", err)
			}
		})
	}
}
