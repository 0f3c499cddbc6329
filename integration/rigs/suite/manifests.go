package suite

import "fmt"

// InWaves are the files of an application, in folder app: a PreSync hook that
// takes delay, such as 2s, and a ConfigMap for each name with the value, spread
// over as many waves.
func InWaves(value, delay string, waves int, names []string) map[string]string {
	files := map[string]string{"app/hook.yaml": `apiVersion: batch/v1
kind: Job
metadata:
  name: migrate
  annotations:
    argocd.argoproj.io/hook: PreSync
    argocd.argoproj.io/hook-delete-policy: BeforeHookCreation
spec:
  template:
    metadata:
      annotations: {harness.capstan.dev/delay: ` + delay + `}
    spec:
      restartPolicy: Never
      containers: [{name: migrate, image: migrate}]
`}
	for i, n := range names {
		files["app/"+n+".yaml"] = fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  annotations: {argocd.argoproj.io/sync-wave: %q}\ndata:\n  v: %q\n", n, fmt.Sprint(i%waves), value)
	}
	return files
}
