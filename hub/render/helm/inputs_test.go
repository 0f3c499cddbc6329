package helm

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// simple is a chart of one template.
func simple(template string) map[string]string {
	return map[string]string{
		"c/Chart.yaml":       "apiVersion: v2\nname: c\nversion: 1.0.0\n",
		"c/values.yaml":      "active: true\n",
		"c/templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n" + template,
	}
}

func facts(rec *render.Recorder) map[string]string {
	out := map[string]string{}
	for _, in := range rec.Inputs() {
		if in.Kind == hub.InputFact {
			out[in.Path] = in.Hash
		}
	}
	return out
}

func TestOnlyAnswersThatWereReadBindToTheCluster(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		template string
		helm     *hub.HelmSource
		data     map[string]string
		facts    map[string]string
	}{
		"nothing asked": {"  k: v\n", nil, map[string]string{"k": "v"}, map[string]string{}},
		"HELM-14 Has": {
			`  yes: "{{ .Capabilities.APIVersions.Has "example.com/v1/Widget" }}"` + "\n  no: \"{{ .Capabilities.APIVersions.Has \"policy/v1beta1\" }}\"\n", nil,
			map[string]string{"true": "true", "false": "false"},
			map[string]string{"apiVersion:example.com/v1/Widget": "true", "apiVersion:policy/v1beta1": "false"},
		},
		"HELM-14 the version and its parts": {
			"  v: {{ .Capabilities.KubeVersion }} {{ .Capabilities.KubeVersion.Version }} {{ .Capabilities.KubeVersion.GitVersion }} {{ .Capabilities.KubeVersion.Major }}.{{ .Capabilities.KubeVersion.Minor }} {{ semverCompare \">=1.30-0\" .Capabilities.KubeVersion.Version }}\n", nil,
			map[string]string{"v": "v1.34.2 v1.34.2 v1.34.2 1.34 true"},
			map[string]string{"kubeVersion": "v1.34.2"},
		},
		"HELM-14 through a variable": {
			"  v: {{ $c := .Capabilities }}{{ $c.KubeVersion.Minor | quote }}\n", nil,
			map[string]string{"v": "34"}, map[string]string{"kubeVersion": "v1.34.2"},
		},
		"HELM-14 the whole list": {
			"  v: {{ has \"example.com/v1\" .Capabilities.APIVersions | quote }}\n", nil,
			map[string]string{"v": "true"}, map[string]string{"apiVersions": "v1\nexample.com/v1\nexample.com/v1/Widget"},
		},
		"HELM-14 what the source says is no question": {
			"  v: {{ .Capabilities.KubeVersion.Version }} {{ .Capabilities.APIVersions.Has \"foo/v1\" }} {{ .Capabilities.APIVersions.Has \"apps/v1\" }}\n",
			&hub.HelmSource{KubeVersion: "1.29.1", APIVersions: []string{"foo/v1"}},
			map[string]string{"v": "v1.29.1 true true"}, map[string]string{},
		},
		"HELM-21 lookup is empty": {
			"  v: {{ lookup \"v1\" \"Secret\" \"kube-system\" \"x\" | toJson | quote }}\n", nil,
			map[string]string{"v": "{}"}, map[string]string{},
		},
		"SEC-A10 no name is resolved": {
			"  v: {{ getHostByName \"localhost\" | quote }}\n", nil, map[string]string{"v": ""}, map[string]string{},
		},
		"SRC-17 a variable of the environment": {
			"  v: {{ .Values.rev | quote }}\n", &hub.HelmSource{Parameters: []hub.HelmParameter{{Name: "rev", Value: "$ARGOCD_APP_PROJECT_NAME"}}},
			map[string]string{"v": "default"}, map[string]string{"env:ARGOCD_APP_PROJECT_NAME": "default"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := rendertest.Request(hub.Source{Path: "c", Helm: c.helm}, simple(c.template))
			req.KubeVersion, req.APIVersions = "v1.34.2", []string{"v1", "example.com/v1", "example.com/v1/Widget"}
			out, rec, err := renderChart(t, req)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.data, data(t, out)); d != "" {
				t.Errorf("data (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.facts, facts(rec)); d != "" {
				t.Errorf("facts (-want +got):\n%s", d)
			}
		})
	}
	t.Run("a cluster that is not known yet has the usual APIs", func(t *testing.T) {
		t.Parallel()
		out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "c"}, simple(
			"  v: \"{{ .Capabilities.APIVersions.Has \"apps/v1\" }} {{ .Capabilities.APIVersions.Has \"foo/v1\" }}\"\n")))
		if err != nil || data(t, out)["v"] != "true false" {
			t.Errorf("data %v, %v", data(t, out), err)
		}
	})
}

func TestImpureFunctionsAreNotedWhenTheyAreCalled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		template string
		impure   bool
	}{
		"random text":                  {"  k: {{ randAlphaNum 8 }}\n", true},
		"an identifier":                {"  k: {{ uuidv4 }}\n", true},
		"the time":                     {"  k: {{ now | date \"2006\" | quote }}\n", true},
		"the age of something":         {"  k: {{ ago (toDate \"2006\" \"2020\") | quote }}\n", true},
		"a password hash":              {"  k: {{ htpasswd \"a\" \"b\" | quote }}\n", true},
		"in a helper":                  {"{{ define \"r\" }}{{ randInt 1 9 }}{{ end }}  k: {{ include \"r\" . | quote }}\n", true},
		"in tpl":                       {"  k: {{ tpl \"{{ randNumeric 3 }}\" . | quote }}\n", true},
		"date of something else":       {"  k: {{ date \"2006\" \"not a time\" | quote }}\n", true},
		"a certificate":                {"  k: {{ (genSelfSignedCert \"x\" nil nil 1).Key | b64enc }}\n", true},
		"a branch that is not taken":   {"  k: {{ if .Values.off }}{{ randAlphaNum 8 }}{{ else }}x{{ end }}\n", false},
		"default that is not needed":   {"  k: {{ .Values.active | quote }}\n", false},
		"date of a given time":         {"  k: {{ dateInZone \"2006\" (toDate \"2006-01-02\" \"2020-05-05\") \"UTC\" | quote }}\n", false},
		"a derived password":           {"  k: {{ derivePassword 1 \"long\" \"a\" \"b\" \"c\" | quote }}\n", false},
		"a hash":                       {"  k: {{ sha256sum \"x\" | quote }}\n", false},
		"only spoken of":               {"  k: randAlphaNum\n", false},
		"keys and values are in order": {"  k: {{ keys (dict \"c\" 1 \"a\" 2 \"b\" 3) | join \",\" }}{{ values (dict \"c\" 1 \"a\" 2) | join \",\" }}\n", false},
	} {
		t.Run("HELM-21 "+name, func(t *testing.T) {
			t.Parallel()
			out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "c"}, simple(c.template)))
			if err != nil {
				t.Fatal(err)
			}
			if out.Impure != c.impure {
				t.Errorf("impure is %v, want %v", out.Impure, c.impure)
			}
		})
	}
}

func TestFilesOfAChartAreReadWhenTheyAreAskedFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		template string
		data     map[string]string
		reads    []string // of the files below that templates can see
	}{
		"Get":                    {"  k: {{ .Files.Get \"conf/a.txt\" | quote }}\n", map[string]string{"k": "A1\nA2\n"}, []string{"c/conf/a.txt"}},
		"Lines":                  {"  k: {{ .Files.Lines \"conf/a.txt\" | join \"+\" }}\n", map[string]string{"k": "A1+A2"}, []string{"c/conf/a.txt"}},
		"GetBytes":               {"  k: {{ .Files.GetBytes \"conf/b.txt\" | toString }}\n", map[string]string{"k": "B"}, []string{"c/conf/b.txt"}},
		"Glob":                   {"  {{- range $n, $b := .Files.Glob \"conf/*\" }}\n  {{ base $n }}: {{ $b | toString | trim | quote }}\n  {{- end }}\n", map[string]string{"a.txt": "A1\nA2", "b.txt": "B"}, []string{"c/conf/a.txt", "c/conf/b.txt"}},
		"AsConfig":               {"{{ (.Files.Glob \"conf/b*\").AsConfig | indent 2 }}\n", map[string]string{"b.txt": "B"}, []string{"c/conf/b.txt"}},
		"AsSecrets":              {"{{ (.Files.Glob \"conf/b*\").AsSecrets | indent 2 }}\n", map[string]string{"b.txt": "Qg=="}, []string{"c/conf/b.txt"}},
		"a file that is not":     {"  k: {{ .Files.Get \"none\" | quote }}\n", map[string]string{"k": ""}, nil},
		"SEC-A10 beyond a chart": {"  k: {{ .Files.Get \"../secret.txt\" | quote }}{{ .Files.Get \"/secret.txt\" }}\n", map[string]string{"k": ""}, nil},
		"an ignored file":        {"  k: {{ .Files.Get \"conf/skip.md\" | quote }}\n", map[string]string{"k": ""}, nil},
		"a template is no file":  {"  k: {{ .Files.Get \"templates/a.yaml\" | quote }}\n", map[string]string{"k": ""}, nil},
		"all of them": {
			"  {{- range $n, $_ := .Files }}{{ if hasPrefix \"conf\" $n }}\n  {{ base $n }}: x\n  {{- end }}{{ end }}\n",
			map[string]string{"a.txt": "x", "b.txt": "x"}, []string{"c/conf/a.txt", "c/conf/b.txt"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := with(simple(c.template), map[string]string{
				"c/conf/a.txt": "A1\nA2\n", "c/conf/b.txt": "B", "c/conf/skip.md": "no", "secret.txt": "no", "c/.helmignore": "*.md\n",
			})
			req := rendertest.Request(hub.Source{Path: "c"}, files)
			out, rec, err := renderChart(t, req)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.data, data(t, out)); d != "" {
				t.Errorf("data (-want +got):\n%s", d)
			}
			var reads []string
			for _, in := range rec.Inputs() {
				if in.Kind == hub.InputFile && (strings.HasPrefix(in.Path, "c/conf/") || in.Path == "secret.txt") {
					reads = append(reads, in.Path)
				}
			}
			if d := cmp.Diff(c.reads, reads); d != "" {
				t.Errorf("recorded files (-want +got):\n%s", d)
			}
		})
	}
	t.Run("INV-6 another environment's values are no input", func(t *testing.T) {
		t.Parallel()
		files := with(simple("  k: {{ .Values.env }}\n"), map[string]string{"c/prod.yaml": "env: prod\n", "c/test.yaml": "env: test\n"})
		req := rendertest.Request(hub.Source{Path: "c", Helm: &hub.HelmSource{ValueFiles: []string{"prod.yaml"}}}, files)
		_, rec, err := renderChart(t, req)
		if err != nil {
			t.Fatal(err)
		}
		tree := req.Trees[0].(*rendertest.Tree)
		for change, want := range map[string]bool{"c/test.yaml": true, "c/README.md": true, "c/prod.yaml": false, "c/templates/b.yaml": false, "c/values.yaml": false, "c/.helmignore": false} {
			fresh, err := render.Fresh(rec.Inputs(), []hub.Tree{tree.With(map[string]string{change: "x: y\n"})}, req)
			if err != nil || fresh != want {
				t.Errorf("after a change of %s fresh is %v (%v), want %v", change, fresh, err, want)
			}
		}
	})
}

func TestDependencies(t *testing.T) {
	t.Parallel()
	sub := func(at, name, version, values string) map[string]string {
		return map[string]string{
			at + "/Chart.yaml":         "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n",
			at + "/values.yaml":        values,
			at + "/templates/sub.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Chart.Name }}\ndata:\n  v: {{ .Values.v | quote }}\n  g: {{ .Values.global | toJson | quote }}\n",
		}
	}
	chart := func(deps string) map[string]string {
		return map[string]string{
			"c/Chart.yaml":       "apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies:\n" + deps,
			"c/values.yaml":      "sub: {v: parent}\nglobal: {x: 1}\n",
			"c/templates/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  imported: {{ .Values.imported | quote }}\n  below: {{ .Subcharts | keys | join \",\" | quote }}\n",
		}
	}
	for name, c := range map[string]struct {
		files map[string]string
		helm  hub.HelmSource
		want  []string
	}{
		"vendored": {with(chart("- {name: sub, version: 1.x}\n"), sub("c/charts/sub", "sub", "1.2.0", "v: own\n")), hub.HelmSource{}, []string{"ConfigMap sub", "ConfigMap a"}},
		"beside":   {with(chart("- {name: sub, version: 1.x, repository: 'file://../sub'}\n"), sub("sub", "sub", "1.2.0", "v: own\n")), hub.HelmSource{}, []string{"ConfigMap sub", "ConfigMap a"}},
		"with an alias": {
			with(chart("- {name: sub, version: 1.x, repository: 'file://../sub', alias: other}\n"), sub("sub", "sub", "1.2.0", "v: own\n")), hub.HelmSource{},
			[]string{"ConfigMap other", "ConfigMap a"},
		},
		"condition off": {
			with(chart("- {name: sub, version: 1.x, repository: 'file://../sub', condition: sub.enabled}\n"), sub("sub", "sub", "1.2.0", "v: own\n")), hub.HelmSource{Values: "sub: {enabled: false}"},
			[]string{"ConfigMap a"},
		},
		"tag off": {
			with(chart("- {name: sub, version: 1.x, repository: 'file://../sub', tags: [db]}\n"), sub("sub", "sub", "1.2.0", "v: own\n")), hub.HelmSource{Values: "tags: {db: false}"},
			[]string{"ConfigMap a"},
		},
		"a remote one that is off is not missed": {
			chart("- {name: redis, version: ^18, repository: https://charts.example.com, condition: redis.enabled}\n"), hub.HelmSource{Values: "redis: {enabled: false}"},
			[]string{"ConfigMap a"},
		},
		"a remote one that is vendored": {
			with(chart("- {name: sub, version: 1.x, repository: https://charts.example.com}\n"), sub("c/charts/sub", "sub", "1.2.0", "v: own\n")), hub.HelmSource{}, []string{"ConfigMap sub", "ConfigMap a"},
		},
		"import-values": {
			with(chart("- name: sub\n  version: 1.x\n  repository: file://../sub\n  import-values: [{child: out, parent: imported}]\n"), sub("sub", "sub", "1.2.0", "out: {}\nv: own\n")), hub.HelmSource{},
			[]string{"ConfigMap sub", "ConfigMap a"},
		},
		"of a dependency": {
			with(chart("- {name: sub, version: 1.x, repository: 'file://../sub'}\n"), with(sub("sub", "sub", "1.2.0", ""), with(sub("deep", "deep", "3.0.0", ""),
				map[string]string{"sub/Chart.yaml": "apiVersion: v2\nname: sub\nversion: 1.2.0\ndependencies:\n- {name: deep, version: 3.0.0, repository: 'file://../deep'}\n"}))),
			hub.HelmSource{}, []string{"ConfigMap deep", "ConfigMap sub", "ConfigMap a"},
		},
	} {
		t.Run("HELM-15 "+name, func(t *testing.T) {
			t.Parallel()
			out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "c", Helm: &c.helm}, c.files))
			if err != nil {
				t.Fatal(err)
			}
			got := rendertest.Names(out)
			slices.Sort(got)
			slices.Sort(c.want)
			if d := cmp.Diff(c.want, got); d != "" {
				t.Errorf("objects (-want +got):\n%s", d)
			}
			for _, o := range out.Objects {
				if o.Object.GetName() == "sub" && !strings.Contains(rendertest.Text(t, out, ""), `"g":"{\"x\":1}"`) {
					t.Error("global values do not reach the subchart")
				}
			}
		})
	}
	t.Run("HELM-15 another version than asked for", func(t *testing.T) {
		t.Parallel()
		files := with(chart("- {name: sub, version: 2.x, repository: 'file://../sub'}\n"), sub("sub", "sub", "1.2.0", ""))
		_, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "c"}, files))
		if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), "holds version 1.2.0, and 2.x is asked for") {
			t.Errorf("error %v", err)
		}
	})
}

func TestHelmIgnore(t *testing.T) {
	t.Parallel()
	files := with(simple("  k: v\n"), map[string]string{
		"c/.helmignore":           "# comment\ntemplates/skip.yaml\nold/\n",
		"c/templates/skip.yaml":   "{{ fail \"not ignored\" }}",
		"c/templates/.hidden":     "{{ fail \"not ignored\" }}",
		"c/templates/old/x.yaml":  "{{ fail \"not ignored\" }}",
		"c/templates/deep/x.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: deep\n",
	})
	out, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "c"}, files))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"ConfigMap a", "ConfigMap deep"}, rendertest.Names(out)); d != "" {
		t.Errorf("objects (-want +got):\n%s", d)
	}
}

func TestValuesThatMustBeDecrypted(t *testing.T) {
	t.Parallel()
	files := with(simple("  k: {{ .Values.env | quote }}\n"), map[string]string{"c/sealed.yaml": "env: ENC[AES256_GCM,data:a,iv:b,tag:c,type:str]\nsops: {mac: x, version: 3.9.0}\n"})
	for _, file := range []string{"secrets://sealed.yaml", "secrets+age-import://key.txt?sealed.yaml", "sealed.yaml"} {
		t.Run("pain 22 the hub decrypts no values, and says what to do instead: "+file, func(t *testing.T) {
			t.Parallel()
			_, _, err := renderChart(t, rendertest.Request(hub.Source{Path: "c", Helm: &hub.HelmSource{ValueFiles: []string{file}}}, files))
			if got := fault.Sentence(err); err == nil || !strings.Contains(got, "agent resolves") || !strings.Contains(got, "sealed.yaml") && !strings.Contains(got, "secrets") {
				t.Errorf("the error is %q", got)
			}
		})
	}
}
