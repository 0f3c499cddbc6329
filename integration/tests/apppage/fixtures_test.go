package apppage_test

import (
	"fmt"
	"strings"
)

// shop are the manifests of an application with an object of each kind that
// the console summarises, and one Deployment that crashes.
func shop(flag string) map[string]string {
	return map[string]string{
		"app/web.yaml":     deployment("web", 2, ""),
		"app/broken.yaml":  deployment("broken", 1, "crash"),
		"app/config.yaml":  configMap("settings", flag),
		"app/old.yaml":     configMap("old", "1"),
		"app/network.yaml": network,
		"app/state.yaml":   state,
		"app/jobs.yaml":    jobs,
		"app/secret.yaml":  "apiVersion: v1\nkind: Secret\nmetadata: {name: token}\nstringData: {value: " + strings.Repeat("s", 12) + "}\n",
	}
}

func deployment(name string, replicas int, outcome string) string {
	annotations := ""
	if outcome != "" {
		annotations = ", annotations: {harness.capstan.dev/outcome: " + outcome + "}"
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}%[3]s}
    spec:
      containers:
      - name: app
        image: registry.example.com/%[1]s:v1
        resources: {requests: {cpu: 100m, memory: 64Mi}}
      - {name: side, image: registry.example.com/side:v1}
`, name, replicas, annotations)
}

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {v: %q, same: \"1\"}\n", name, value)
}

const network = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  rules:
  - host: shop.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 80}}}}]}
`

const state = `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec: {containers: [{name: db, image: registry.example.com/db:v1}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: probe}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec: {containers: [{name: probe, image: registry.example.com/probe:v1}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 1Gi}}
`

const jobs = `apiVersion: batch/v1
kind: Job
metadata: {name: migrate}
spec:
  template:
    spec:
      restartPolicy: Never
      containers: [{name: migrate, image: registry.example.com/migrate:v1}]
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: Never
          containers: [{name: nightly, image: registry.example.com/nightly:v1}]
`

// many are n ConfigMaps, of which the first have another value.
func many(n, changed int) map[string]string { return numbered("item", n, changed) }

// numbered are many with names of their own: tests of one package share a hub.
func numbered(prefix string, n, changed int) map[string]string {
	files := map[string]string{}
	for i := range n {
		value := "one"
		if i < changed {
			value = "two"
		}
		name := fmt.Sprintf("%s-%04d", prefix, i)
		files["app/"+name+".yaml"] = configMap(name, value)
	}
	return files
}
