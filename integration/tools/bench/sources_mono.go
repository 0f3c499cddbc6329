package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// A monoKind is the applications of one renderer in R-mono.
type monoKind struct {
	tool, what string
	n          int
	files      func(dir, name, value string) map[string]string
	changed    string // the file that a change writes
}

func (k monoKind) name(i int) string { return fmt.Sprintf("%s-%03d", k.tool, i) }
func (k monoKind) dir(i int) string  { return "apps/" + k.name(i) }

// seed is the file that an application has before it is what it is to be.
func (k monoKind) seed(i int) string { return k.dir(i) + "/seed.yaml" }

// change is one file with another value.
func (k monoKind) change(i int, value string) map[string]string {
	name := k.dir(i) + "/" + k.changed
	return map[string]string{name: k.files(k.dir(i), k.name(i), value)[name]}
}

// monoKinds are R-mono: 1,000 applications of five files each, and large
// charts beside them.
func monoKinds() []monoKind {
	return []monoKind{
		{"plain", "plain files", 200, func(dir, _, value string) map[string]string { return web(dir, value) }, "one.yaml"},
		{"helm", "Helm, 3 templates", 300, smallChart, "values.yaml"},
		{"kust", "kustomize on a shared base", 500, overlay, "settings.env"},
		{"large", "Helm, 112 objects, 640 KB", 20, largeChart, "values.yaml"},
	}
}

func monoTotal() (n int) {
	for _, k := range monoKinds() {
		n += k.n
	}
	return n
}

// monoFiles are what R-mono begins with: the shared base, and one file for each
// application.
func monoFiles() map[string]string {
	out := web("base/app", "base")
	for name, text := range out {
		delete(out, name)
		out[strings.Replace(name, "base/app/", "base/", 1)] = text
	}
	out["base/kustomization.yaml"] = "resources: [one.yaml, two.yaml, account.yaml, service.yaml, deployment.yaml]\n"
	for _, k := range monoKinds() {
		for i := range k.n {
			out[k.seed(i)] = configMap("seed-"+k.name(i), "v0")
		}
	}
	return out
}

func smallChart(dir, name, value string) map[string]string {
	return map[string]string{
		dir + "/Chart.yaml":                fmt.Sprintf("apiVersion: v2\nname: %s\nversion: 1.0.0\n", name),
		dir + "/values.yaml":               fmt.Sprintf("value: %q\nreplicas: 1\nimage: {repository: web, tag: '1.0'}\n", value),
		dir + "/templates/config.yaml":     "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}, labels: {app: {{ .Chart.Name }}}}\ndata: {value: {{ .Values.value | quote }}}\n",
		dir + "/templates/service.yaml":    "apiVersion: v1\nkind: Service\nmetadata: {name: {{ .Release.Name }}}\nspec:\n  selector: {app: {{ .Chart.Name }}}\n  ports: [{port: 80}]\n",
		dir + "/templates/deployment.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}}\nspec:\n  replicas: {{ .Values.replicas }}\n  selector: {matchLabels: {app: {{ .Chart.Name }}}}\n  template:\n    metadata: {labels: {app: {{ .Chart.Name }}}}\n    spec: {containers: [{name: web, image: '{{ .Values.image.repository }}:{{ .Values.image.tag }}'}]}\n",
	}
}

func overlay(dir, name, value string) map[string]string {
	return map[string]string{
		dir + "/kustomization.yaml": fmt.Sprintf("resources: [../../base, own.yaml]\nnamePrefix: %s-\nlabels: [{pairs: {team: %s}, includeSelectors: true}]\npatches: [{path: patch.yaml}]\nconfigMapGenerator: [{name: settings, envs: [settings.env]}]\nimages: [{name: web, newTag: '2.0'}]\n", name, name),
		dir + "/patch.yaml":         "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: app}\nspec: {replicas: 2}\n",
		dir + "/own.yaml":           configMap("own", "v0"),
		dir + "/settings.env":       "value=" + value + "\n",
		dir + "/README.md":          "An application.\n",
	}
}

// largeChart is a chart of the size of kube-prometheus-stack: as many objects,
// and as many bytes of output.
func largeChart(dir, name, value string) map[string]string {
	const objects = 112
	out := map[string]string{
		dir + "/Chart.yaml":             fmt.Sprintf("apiVersion: v2\nname: %s\nversion: 1.0.0\n", name),
		dir + "/values.yaml":            fmt.Sprintf("value: %q\n", value),
		dir + "/templates/_helpers.tpl": "{{- define \"labels\" }}\napp: {{ .Chart.Name }}\nrelease: {{ .Release.Name | quote }}\n{{- end }}\n",
	}
	for i := range objects {
		var rules strings.Builder
		for r := range 24 {
			fmt.Fprintf(&rules, "    - alert: Rule%03d%02d\n      expr: {{ printf \"sum(rate(requests_total{app=%%q}[5m])) by (namespace, pod, container) > %%d\" $.Release.Name %d | quote }}\n      for: 15m\n      labels: {severity: warning, value: {{ $.Values.value | quote }}}\n", i, r, r)
		}
		out[fmt.Sprintf("%s/templates/rule-%03d.yaml", dir, i)] = fmt.Sprintf("apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: {{ .Release.Name }}-%03d\n  labels: {{- include \"labels\" . | nindent 4 }}\nspec:\n  groups:\n  - name: group-%03d\n    rules:\n%s", i, i, rules.String())
	}
	return out
}

// fastImport writes into a bare repository.
func fastImport(ctx context.Context, bare string, stream func(*strings.Builder)) error {
	var text strings.Builder
	stream(&text)
	cmd := exec.CommandContext(ctx, "git", "-C", bare, "fast-import", "--quiet", "--force")
	cmd.Stdin = strings.NewReader(text.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fast-import: %w: %s", err, out)
	}
	return nil
}
