package main

import "fmt"

func configMap(name, text string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  text: %q\n", name, text)
}

// deployment is one pod that has so many seconds to start.
func deployment(name, image string, seconds int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
spec:
  replicas: 1
  progressDeadlineSeconds: %[3]d
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      containers:
      - name: %[1]s
        image: %[2]s
`, name, image, seconds)
}

func service(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: %[1]s\nspec:\n  selector: {app: %[1]s}\n  ports:\n  - port: 80\n", name)
}

// Images that a real cluster can pull too, and one that none can.
const (
	goodImage   = "registry.k8s.io/pause:3.10"
	brokenImage = "registry.invalid/orders:2.0"
)

// sample is the repository: guestbook is plain, podinfo is Kustomize, shop is
// a Helm chart, and orders asks for an image that cannot be pulled.
var sample = map[string]string{
	"guestbook/greeting.yaml":   configMap("greeting", "hello"),
	"guestbook/deployment.yaml": deployment("guestbook", goodImage, 600),
	"guestbook/service.yaml":    service("guestbook"),

	"orders/deployment.yaml": deployment("orders", brokenImage, 2),
	"orders/service.yaml":    service("orders"),

	"podinfo/base/kustomization.yaml": "resources: [deployment.yaml, service.yaml]\n",
	"podinfo/base/deployment.yaml":    deployment("podinfo", "registry.k8s.io/pause:3.9", 600),
	"podinfo/base/service.yaml":       service("podinfo"),
	"podinfo/overlays/production/kustomization.yaml": `namePrefix: prod-
resources: [../../base]
images:
- name: registry.k8s.io/pause
  newTag: "3.10"
configMapGenerator:
- name: settings
  literals: [color=teal]
`,

	"shop/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	"shop/values.yaml": "replicas: 1\nimage: " + goodImage + "\nmessage: welcome\n",
	"shop/templates/deployment.yaml": `apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .Release.Name }}
  labels: {chart: "{{ .Chart.Name }}"}
spec:
  replicas: {{ .Values.replicas }}
  selector:
    matchLabels: {app: {{ .Release.Name }}}
  template:
    metadata:
      labels: {app: {{ .Release.Name }}}
    spec:
      containers:
      - name: shop
        image: {{ .Values.image }}
`,
	"shop/templates/config.yaml": `apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  message: {{ .Values.message | quote }}
`,
	"shop/templates/migrate.yaml": `apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations:
    argocd.argoproj.io/hook: PreSync
    argocd.argoproj.io/hook-delete-policy: HookSucceeded
spec:
  template:
    spec:
      restartPolicy: Never
      containers:
      - name: migrate
        image: busybox:1.37
        command: ["true"]
`,
}

// An app is a sample application.
type app struct {
	name, path string
	cluster    string
	broken     bool   // it never becomes healthy
	more       string // lines of its source
}

// apps are the applications of an installation with these clusters: all
// samples in the first one, and the first sample in each other.
func apps(clusters []string) []app {
	all := []app{
		{name: "guestbook", path: "guestbook"},
		{name: "podinfo", path: "podinfo/overlays/production"},
		{name: "shop", path: "shop", more: "\n    helm:\n      parameters:\n      - {name: replicas, value: \"2\"}"},
		{name: "orders", path: "orders", broken: true},
	}
	for i := range all {
		all[i].cluster = clusters[0]
	}
	for _, name := range clusters[1:] {
		all = append(all, app{name: "guestbook-" + name, path: "guestbook", cluster: name})
	}
	return all
}

// namespace is where an application is deployed.
func (a app) namespace() string { return "capstan-demo-" + a.name }

// manifest is the Application, as one writes it for Argo CD.
func (a app) manifest(repo string) string {
	return fmt.Sprintf(`---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %[1]s
  namespace: argocd
  finalizers: [resources-finalizer.argocd.argoproj.io]
spec:
  project: default
  source:
    repoURL: %[3]s
    path: %[2]s
    targetRevision: main%[4]s
  destination:
    name: %[5]s
    namespace: %[6]s
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [CreateNamespace=true]
`, a.name, a.path, repo, a.more, a.cluster, a.namespace())
}
