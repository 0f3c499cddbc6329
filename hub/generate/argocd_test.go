package generate_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate"
)

// An argoCase is a set with its inputs. The applications that Argo CD's own
// packages (3.5.7) make of it are in the file NAME.want.json beside it.
type argoCase struct {
	Why       string            `json:"why"`
	Clusters  []cluster         `json:"clusters"`
	Files     map[string]string `json:"files"`
	PathGlobs bool              `json:"pathGlobs"`
	Spec      json.RawMessage   `json:"spec"`
}

type cluster struct {
	Name, Server, Project string
	Labels, Annotations   map[string]string
}

// An argoApplication is an application as Argo CD made it.
type argoApplication struct {
	Metadata hub.TemplateMeta `json:"metadata"`
	Spec     any              `json:"spec"`
}

// TestAsArgoCD compares what sets make with what Argo CD makes of them.
func TestAsArgoCD(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/argocd/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		var c argoCase
		if err := yaml.UnmarshalStrict(read(t, file), &c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Run(c.Why+" ("+strings.TrimSuffix(filepath.Base(file), ".yaml")+")", func(t *testing.T) {
			t.Parallel()
			var want []argoApplication
			if err := json.Unmarshal(read(t, strings.TrimSuffix(file, ".yaml")+".want.json"), &want); err != nil {
				t.Fatal(err)
			}
			set, err := generate.Parse("set", c.Spec)
			if err != nil {
				t.Fatal(err)
			}
			result, err := set.Generate(t.Context(), c.inputs(), generate.Limits{PathGlobs: c.PathGlobs})
			if err != nil {
				t.Fatal(err)
			}
			// Argo CD leaves it to the API server to refuse names.
			all := len(want)
			want = slices.DeleteFunc(want, func(a argoApplication) bool { return len(validation.IsDNS1123Subdomain(a.Metadata.Name)) > 0 })
			if len(result.Problems) != all-len(want) {
				t.Errorf("problems %v, want one for each of %d invalid names", result.Problems, all-len(want))
			}
			got := make([]argoApplication, 0, len(result.Applications))
			for _, g := range result.Applications {
				a := argoApplication{Metadata: hub.TemplateMeta{Name: g.Meta.Name, Labels: g.Meta.Labels, Annotations: g.Meta.Annotations, Finalizers: g.Meta.Finalizers}}
				if err := json.Unmarshal(g.Spec, &a.Spec); err != nil {
					t.Fatal(err)
				}
				got = append(got, a)
			}
			slices.SortFunc(got, func(a, b argoApplication) int { return strings.Compare(a.Metadata.Name, b.Metadata.Name) })
			if diff := cmp.Diff(significant(t, want), significant(t, got)); diff != "" {
				t.Errorf("applications (-Argo CD +Capstan):\n%s", diff)
			}
		})
	}
}

// significant leaves out what Argo CD's types write although it is empty.
func significant(t *testing.T, v any) any {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return withoutEmpty(out)
}

func withoutEmpty(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, inner := range v {
			v[k] = withoutEmpty(inner)
		}
		maps.DeleteFunc(v, func(_ string, inner any) bool {
			m, isMap := inner.(map[string]any)
			l, isList := inner.([]any)
			return inner == nil || inner == "" || inner == false || isMap && len(m) == 0 || isList && len(l) == 0
		})
	case []any:
		for i, inner := range v {
			v[i] = withoutEmpty(inner)
		}
	}
	return v
}

func (c argoCase) inputs() *inputs {
	in := &inputs{clusters: []generate.Cluster{}, files: fstest.MapFS{}}
	own := false
	for _, k := range c.Clusters {
		in.clusters = append(in.clusters, generate.Cluster{Name: k.Name, Server: k.Server, Project: k.Project, Labels: k.Labels, Annotations: k.Annotations})
		own = own || k.Server == hub.InCluster
	}
	if !own {
		in.clusters = append(in.clusters, generate.Cluster{Name: hub.InClusterName, Server: hub.InCluster, Implicit: true})
	}
	for name, text := range c.Files {
		in.files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return in
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
