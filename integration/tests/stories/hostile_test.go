package stories_test

import (
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"sigs.k8s.io/yaml"
)

// The text that the console must show as a text: each of its parts would set
// window.hit if it became an element.
const hostileText = `<img src=x onerror="window.hit=1"><script>window.hit=1</script>"'><svg onload=window.hit=1></svg><a href="javascript:window.hit=1">text</a>`

// hostile writes that text wherever a tenant, a repository, an object, an event
// or a caller may, and returns the name of an application that has most of it.
func hostile(t *testing.T) (string, error) {
	const name = "console-hostile"
	object := func(kind, version string, metadata, more map[string]any) map[string]any {
		out := map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata}
		for k, v := range more {
			out[k] = v
		}
		return out
	}
	text := func(objects ...map[string]any) (out string) {
		for _, o := range objects {
			b, err := yaml.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			out += "---\n" + string(b)
		}
		return out
	}
	links := map[string]any{"link.argocd.argoproj.io/first": "javascript:window.hit=1", "link.argocd.argoproj.io/second": hostileText, "note": hostileText}
	repo := repository(t, name, map[string]string{"app/a.yaml": text(object("ConfigMap", "v1", map[string]any{"name": "a", "annotations": links}, map[string]any{"data": map[string]any{"v": hostileText}}))})
	if _, err := repo.Commit(t.Context(), hostileText, map[string]string{"app/b.yaml": text(object("ConfigMap", "v1", map[string]any{"name": "b"}, map[string]any{"data": map[string]any{"v": hostileText}}))}); err != nil {
		return "", err
	}
	app := func(name, path string) map[string]any {
		annotations := map[string]any{"notice.argocd.argoproj.io/content": hostileText, "link.argocd.argoproj.io/third": "data:text/html," + hostileText}
		return object("Application", "argoproj.io/v1alpha1", map[string]any{"name": name, "namespace": "argocd", "annotations": annotations}, map[string]any{"spec": map[string]any{
			"project": name, "source": map[string]any{"repoURL": repo.URL(), "path": path, "targetRevision": "main"},
			"destination": map[string]any{"name": "in-cluster", "namespace": name}, "info": []any{map[string]any{"name": hostileText, "value": hostileText}, map[string]any{"name": "link", "value": "javascript:window.hit=1"}},
			"syncPolicy": map[string]any{"automated": map[string]any{}, "syncOptions": []any{"CreateNamespace=true"}},
		}})
	}
	project := func(name string) map[string]any {
		return object("AppProject", "argoproj.io/v1alpha1", map[string]any{"name": name, "annotations": links}, map[string]any{"spec": map[string]any{
			"description": hostileText, "sourceRepos": []any{"*"}, "destinations": []any{map[string]any{"name": "*", "namespace": "*"}},
		}})
	}
	all := text(project(name), project(name+"-bad"), app(name, "app"), app(name+"-bad", "nothing/"+hostileText))
	if _, err := s.API.Apply(within(t, waitLimit), all); err != nil {
		return "", err
	}
	settled(t, name)
	if _, err := s.API.CLI(within(t, waitLimit), "", "app", "sync", name, "--reason", hostileText); err != nil {
		return "", err
	}
	// A refused write is in the audit log with the name that the caller wrote.
	if err := s.API.Do(within(t, waitLimit), http.MethodDelete, "/api/v1/projects/"+url.PathEscape(hostileText), nil, nil); err == nil {
		return "", fmt.Errorf("a project of an impossible name was deleted")
	}
	return name, clusterEvent(t, name)
}

// clusterEvent has the cluster report an event of the ConfigMap.
func clusterEvent(t *testing.T, namespace string) error {
	event, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": "hostile", "namespace": namespace},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "namespace": namespace},
		"reason":         "Hostile", "message": hostileText, "type": "Warning", "source": map[string]any{"component": hostileText},
		"firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1,
	})
	if err != nil {
		return err
	}
	return s.Clusters["in-cluster"].Apply(within(t, waitLimit), string(event))
}
