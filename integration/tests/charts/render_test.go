package charts_test

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// load reads a chart of this repository.
func load(t *testing.T, name string) *chart.Chart {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join("..", "..", "..", "charts", name))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// values reads YAML over the least that a chart needs.
func values(t *testing.T, least, text string) map[string]any {
	t.Helper()
	base, over := map[string]any{}, map[string]any{}
	for into, from := range map[*map[string]any]string{&base: least, &over: text} {
		if err := yaml.UnmarshalStrict([]byte(from), into); err != nil {
			t.Fatal(err)
		}
	}
	return chartutil.CoalesceTables(over, base)
}

// rendered is what a chart gives, by kind and name.
type rendered map[string]*unstructured.Unstructured

// render returns a chart's objects the way `helm template` does: without a
// cluster.
func render(c *chart.Chart, v map[string]any) (rendered, error) {
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "capstan", Namespace: "ops", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	out := rendered{}
	for _, file := range slices.Sorted(maps.Keys(files)) {
		if !strings.HasSuffix(file, ".yaml") {
			continue
		}
		for _, text := range strings.Split(files[file], "\n---") {
			o := &unstructured.Unstructured{}
			if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", file, err, text)
			}
			if len(o.Object) == 0 {
				continue
			}
			id := o.GetKind() + "/" + o.GetName()
			if space := o.GetNamespace(); space != "" && space != "ops" {
				id = o.GetKind() + "/" + space + "/" + o.GetName()
			}
			if out[id] != nil {
				return nil, fmt.Errorf("%s is rendered twice", id)
			}
			out[id] = o
		}
	}
	return out, nil
}

// notes are what Helm prints after an install.
func notes(t *testing.T, c *chart.Chart, v map[string]any) string {
	t.Helper()
	all, err := chartutil.ToRenderValues(c, v, chartutil.ReleaseOptions{Name: "capstan", Namespace: "ops", IsInstall: true, Revision: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	return files[c.Name()+"/templates/NOTES.txt"]
}

func must(t *testing.T, c *chart.Chart, v map[string]any) rendered {
	t.Helper()
	out, err := render(c, v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// at reads a value of an object: keys, and positions of lists.
func (r rendered) at(t *testing.T, id string, path ...any) any {
	t.Helper()
	o := r[id]
	if o == nil {
		t.Fatalf("there is no %s, but %v", id, slices.Sorted(maps.Keys(r)))
	}
	return dig(o.Object, path...)
}

func dig(v any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, _ := v.(map[string]any)
			v = m[s]
		case int:
			list, _ := v.([]any)
			if s >= len(list) {
				return nil
			}
			v = list[s]
		}
	}
	return v
}

// says renders a value for comparison.
func says(v any) string {
	b, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(b))
}

// pods are the pod specs of everything that runs.
func (r rendered) pods() map[string]map[string]any {
	out := map[string]map[string]any{}
	for id, o := range r {
		if spec, ok := dig(o.Object, "spec", "template", "spec").(map[string]any); ok {
			out[id] = spec
		}
	}
	return out
}

// restricted says what of a pod would break the Pod Security Standard
// "restricted", or lets the pod write where it need not.
func restricted(spec map[string]any) []string {
	var bad []string
	check := func(ok bool, what string) {
		if !ok {
			bad = append(bad, what)
		}
	}
	security := dig(spec, "securityContext")
	check(dig(security, "runAsNonRoot") == true, "runAsNonRoot")
	check(dig(security, "seccompProfile", "type") == "RuntimeDefault", "seccompProfile")
	check(spec["hostNetwork"] == nil && spec["hostPID"] == nil && spec["hostIPC"] == nil, "host namespaces")
	containers, _ := spec["containers"].([]any)
	check(len(containers) > 0, "containers")
	for _, c := range containers {
		s := dig(c, "securityContext")
		check(dig(s, "allowPrivilegeEscalation") == false, "allowPrivilegeEscalation")
		check(dig(s, "readOnlyRootFilesystem") == true, "readOnlyRootFilesystem")
		check(dig(s, "privileged") == false, "privileged")
		check(says(dig(s, "capabilities", "drop")) == "- ALL", "capabilities")
		check(dig(c, "resources", "limits", "memory") != nil, "memory limit")
	}
	volumes, _ := spec["volumes"].([]any)
	for _, v := range volumes {
		check(dig(v, "hostPath") == nil, "hostPath")
	}
	return bad
}

// refused checks that values are refused, and that the message has every word.
func refused(t *testing.T, c *chart.Chart, v map[string]any, words ...string) {
	t.Helper()
	_, err := render(c, v)
	if err == nil {
		t.Fatal("it was rendered")
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is not in: %v", w, err)
		}
	}
}

// parse reads a YAML stream.
func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	var out []*unstructured.Unstructured
	for _, one := range strings.Split(text, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(one), &o.Object); err != nil {
			t.Fatal(err)
		}
		if len(o.Object) > 0 {
			out = append(out, o)
		}
	}
	return out
}
