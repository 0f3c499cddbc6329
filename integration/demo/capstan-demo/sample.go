package main

import "fmt"

func configMap(name, text string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  text: %q\n", name, text)
}

func deployment(name, image string) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
spec:
  replicas: 1
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      containers:
      - name: %[1]s
        image: %[2]s
`, name, image)
}

func service(name string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: %[1]s\nspec:\n  selector: {app: %[1]s}\n  ports:\n  - port: 80\n", name)
}

// sample is the repository: guestbook is plain, podinfo is Kustomize, shop is
// a Helm chart.
var sample = map[string]string{
	"guestbook/greeting.yaml":   configMap("greeting", "hello"),
	"guestbook/deployment.yaml": deployment("guestbook", "guestbook:1.0"),
	"guestbook/service.yaml":    service("guestbook"),

	"podinfo/base/kustomization.yaml": "resources: [deployment.yaml, service.yaml]\n",
	"podinfo/base/deployment.yaml":    deployment("podinfo", "podinfo:6.0"),
	"podinfo/base/service.yaml":       service("podinfo"),
	"podinfo/overlays/production/kustomization.yaml": `namePrefix: prod-
resources: [../../base]
images:
- name: podinfo
  newTag: "6.7"
configMapGenerator:
- name: settings
  literals: [color=teal]
`,

	"shop/Chart.yaml":  "apiVersion: v2\nname: shop\nversion: 1.0.0\n",
	"shop/values.yaml": "replicas: 1\nimage: shop:1.0\nmessage: welcome\n",
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
        image: {{ .Values.image }}
`,
}

func application(name, path, repo, extra string) string {
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
    server: https://kubernetes.default.svc
    namespace: %[1]s
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [CreateNamespace=true]
`, name, path, repo, extra)
}

func applications(repo string) string {
	return application("guestbook", "guestbook", repo, "") +
		application("podinfo", "podinfo/overlays/production", repo, "") +
		application("shop", "shop", repo, "\n    helm:\n      parameters:\n      - {name: replicas, value: \"2\"}")
}
