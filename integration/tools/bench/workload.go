package main

import (
	"context"
	"fmt"
	"path"
	"time"
)

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\ndata:\n  %s: %q\n", name, mark, value)
}

// web is one application: Deployment with one replica, Service, two
// ConfigMaps, ServiceAccount. The value stands in each object.
func web(dir, value string) map[string]string {
	name := path.Base(dir)
	suffix := "-" + name
	if name == "app" {
		suffix = ""
	}
	return map[string]string{
		dir + "/one.yaml":     configMap("one"+suffix, value),
		dir + "/two.yaml":     configMap("two"+suffix, value),
		dir + "/account.yaml": fmt.Sprintf("apiVersion: v1\nkind: ServiceAccount\nmetadata:\n  name: %s\n  labels: {%s: %q}\n", name, mark, value),
		dir + "/service.yaml": fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata:\n  name: %[1]s\n  labels: {%[2]s: %[3]q}\nspec:\n  selector: {app: %[1]s}\n  ports:\n  - port: 80\n", name, mark, value),
		dir + "/deployment.yaml": fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata:
  name: %[1]s
  labels: {%[2]s: %[3]q}
spec:
  replicas: 1
  selector:
    matchLabels: {app: %[1]s}
  template:
    metadata:
      labels: {app: %[1]s}
    spec:
      serviceAccountName: %[1]s
      containers:
      - name: web
        image: web:1.0
`, name, mark, value),
	}
}

func application(name, dir, repo, namespace string) string {
	return fmt.Sprintf(`---
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: %s
  namespace: argocd
spec:
  project: default
  source:
    repoURL: %s
    path: %s
    targetRevision: main
  destination:
    name: in-cluster
    namespace: %s
  syncPolicy:
    automated: {prune: true, selfHeal: true}
    syncOptions: [CreateNamespace=true]
`, name, repo, dir, namespace)
}

// back waits until one object has a value again.
func (o *observer) back(ctx context.Context, key, value string) (time.Time, error) {
	for {
		o.mu.Lock()
		got, at, changed := o.marks[key], o.at, o.changed
		o.mu.Unlock()
		if got == value {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return at, fmt.Errorf("%s is %q and not %q again: %w", key, got, value, ctx.Err())
		case <-changed:
		}
	}
}
