package corpus_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"
	convert "sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/helm"
	"github.com/capstan-cd/capstan/hub/render/kustomize"
	"github.com/capstan-cd/capstan/integration/rigs/build"
)

// The corpus has at least so many cases of each kind, and so many charts with
// 25 or more templates.
const (
	leastCases = 30
	leastLarge = 5
	large      = 25
)

func TestCharts(t *testing.T) {
	t.Parallel()
	program, _, err := build.Renderers(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	all := checkouts(t, "charts")
	manyTemplates, objects := 0, 0
	for _, c := range all {
		templates := 0
		for name := range c.files {
			if strings.HasPrefix(name, "templates/") && strings.HasSuffix(name, ".yaml") {
				templates++
			}
		}
		if templates >= large {
			manyTemplates++
		}
		t.Run("HELM-01 "+c.name+": "+c.shows, func(t *testing.T) {
			objects += compareChart(t, program, c)
		})
	}
	if len(all) < leastCases || manyTemplates < leastLarge {
		t.Errorf("%d charts, %d of them large; there must be %d and %d", len(all), manyTemplates, leastCases, leastLarge)
	}
	t.Logf("%d charts, %d with %d templates or more: %d objects are equal", len(all), manyTemplates, large, objects)
}

// compareChart returns how many objects both made.
func compareChart(t *testing.T, program string, c checkout) int {
	t.Helper()
	out, ourError := helm.Render(t.Context(), c.job())
	dir := c.write(t)
	text, theirError := run(t, dir, program, helmArguments(t, c, dir)...)
	if theirError != nil && c.name == "" {
		t.Skipf("helm refuses the chart, the hub says %v: %v", ourError, theirError)
	}
	if theirError != nil {
		t.Fatalf("helm refuses the chart: %v", theirError)
	}
	if ourError != nil {
		t.Fatalf("refused: %v", ourError)
	}
	if out.Impure && c.name == "" {
		t.Skip("the chart uses the time or random data")
	}
	return compare(t, out, text)
}

// helmArguments are those of "helm template" for a source. Inline values are
// written beside the checkout.
func helmArguments(t *testing.T, c checkout, dir string) []string {
	t.Helper()
	h := hub.HelmSource{}
	if c.source.Helm != nil {
		h = *c.source.Helm
	}
	name, space := h.ReleaseName, h.Namespace
	if name == "" {
		name = "web"
	}
	if space == "" {
		space = namespace
	}
	args := []string{"template", name, c.source.Path, "--namespace", space, "--kube-version", h.KubeVersion}
	if h.KubeVersion == "" {
		args = args[:len(args)-2]
	}
	if !h.SkipCrds {
		args = append(args, "--include-crds")
	}
	if h.SkipTests {
		args = append(args, "--skip-tests")
	}
	for _, f := range h.ValueFiles {
		args = append(args, "--values", filepath.Join(c.source.Path, f))
	}
	if h.Values != "" {
		file := dir + "-values.yaml"
		if err := os.WriteFile(file, []byte(h.Values), 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, "--values", file)
	}
	for _, p := range h.Parameters {
		flag := "--set"
		if p.ForceString {
			flag = "--set-string"
		}
		args = append(args, flag, p.Name+"="+p.Value)
	}
	for _, f := range h.FileParameters {
		args = append(args, "--set-file", f.Name+"="+filepath.Join(c.source.Path, f.Path))
	}
	for _, v := range h.APIVersions {
		args = append(args, "--api-versions", v)
	}
	return args
}

func TestOverlays(t *testing.T) {
	t.Parallel()
	_, program, err := build.Renderers(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	all := checkouts(t, "overlays")
	objects := 0
	for _, c := range all {
		t.Run("KUST-01 "+c.name+": "+c.shows, func(t *testing.T) {
			dir := c.write(t)
			out, ourError := kustomize.Render(t.Context(), c.job())
			for _, edit := range kustomizeEdits(c.source.Kustomize) {
				if _, err := run(t, filepath.Join(dir, c.source.Path), program, edit...); err != nil {
					t.Fatalf("kustomize refuses %q: %v", edit, err)
				}
			}
			text, theirError := run(t, dir, program, "build", c.source.Path)
			if theirError != nil {
				t.Fatalf("kustomize refuses the overlay: %v", theirError)
			}
			if ourError != nil {
				t.Fatalf("refused: %v", ourError)
			}
			objects += compare(t, out, text)
		})
	}
	if len(all) < leastCases {
		t.Errorf("%d overlays; there must be %d", len(all), leastCases)
	}
	t.Logf("%d overlays: %d objects are equal", len(all), objects)
}

// kustomizeEdits are the commands that make the edits of a source in the
// kustomization of a checkout.
func kustomizeEdits(k *hub.KustomizeSource) (edits [][]string) {
	if k == nil {
		return nil
	}
	if k.NamePrefix != "" {
		edits = append(edits, []string{"edit", "set", "nameprefix", "--", k.NamePrefix})
	}
	if k.NameSuffix != "" {
		edits = append(edits, []string{"edit", "set", "namesuffix", "--", k.NameSuffix})
	}
	for _, image := range k.Images {
		edits = append(edits, []string{"edit", "set", "image", image})
	}
	for _, r := range k.Replicas {
		edits = append(edits, []string{"edit", "set", "replicas", r.Name + "=" + string(r.Count)})
	}
	if k.Namespace != "" {
		edits = append(edits, []string{"edit", "set", "namespace", "--", k.Namespace})
	}
	for _, key := range slices.Sorted(maps.Keys(k.CommonLabels)) {
		edit := []string{"edit", "add", "label"}
		if k.LabelWithoutSelector {
			edit = append(edit, "--without-selector")
		}
		if k.LabelIncludeTemplates {
			edit = append(edit, "--include-templates")
		}
		edits = append(edits, append(edit, key+":"+k.CommonLabels[key]))
	}
	for _, key := range slices.Sorted(maps.Keys(k.CommonAnnotations)) {
		edits = append(edits, []string{"edit", "add", "annotation", key + ":" + k.CommonAnnotations[key]})
	}
	for _, p := range k.Patches {
		edits = append(edits, []string{"edit", "add", "patch", "--patch", p.Patch, "--kind", p.Target.Kind})
	}
	for _, c := range k.Components {
		edits = append(edits, []string{"edit", "add", "component", c})
	}
	return edits
}

// run runs a program in a folder and returns what it prints.
func run(t *testing.T, dir, program string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%w: %s", err, complaints.String())
	}
	return out.String(), nil
}

// compare fails if the objects of a render are not those of a stream of YAML,
// in whatever order. It returns how many there are.
func compare(t *testing.T, out render.Output, text string) int {
	t.Helper()
	ours, theirs := []string{}, documents(t, text)
	for _, o := range out.Objects {
		data, err := json.Marshal(o.Object.Object)
		if err != nil {
			t.Fatal(err)
		}
		ours = append(ours, normal(t, data))
	}
	slices.Sort(ours)
	slices.Sort(theirs)
	if d := cmp.Diff(theirs, ours); d != "" {
		t.Errorf("objects (-command line +hub):\n%s", d)
	}
	if len(theirs) == 0 {
		t.Error("no object was compared")
	}
	return len(theirs)
}

// documents returns the objects of a stream, each as one normal text. Lists are
// taken apart.
func documents(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	reader := yaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := convert.YAMLToJSON(document)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, document)
		}
		if string(data) != "null" {
			all = append(all, normal(t, data))
		}
	}
}

// normal writes JSON with sorted keys, numbers as exact fractions, and without
// annotations and labels that are null, which the hub leaves out.
func normal(t *testing.T, data []byte) string {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	var v any
	if err := decoder.Decode(&v); err != nil {
		t.Fatal(err)
	}
	if object, ok := v.(map[string]any); ok {
		metadata, _ := object["metadata"].(map[string]any)
		for _, key := range []string{"annotations", "labels"} {
			if value, there := metadata[key]; there && value == nil {
				delete(metadata, key)
			}
		}
	}
	out, err := json.MarshalIndent(exact(v), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func exact(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = exact(x)
		}
	case []any:
		for i, x := range v {
			v[i] = exact(x)
		}
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		if ok {
			return map[string]any{"number": r.RatString()}
		}
	}
	return v
}
