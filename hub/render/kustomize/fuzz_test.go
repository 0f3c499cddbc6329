package kustomize

import (
	"context"
	"io/fs"
	"path"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// watched records the requests to the tree.
type watched struct {
	render.Access
	t *testing.T
}

func (w watched) Ask(ctx context.Context, q render.Question) (render.Answer, error) {
	for _, n := range q.Names {
		if path.IsAbs(n) || n == ".." || strings.HasPrefix(n, "../") || strings.Contains(n, "/../") {
			w.t.Fatalf("SEC-A2 the tree is asked for %q", n)
		}
	}
	return w.Access.Ask(ctx, q)
}

// Whatever path kustomize comes up with, it stays in the tree, and nothing is
// ever written.
func FuzzFiles(f *testing.F) {
	for _, p := range rendertest.HostilePaths() {
		if len(p) < 10_000 {
			f.Add(p)
		}
	}
	f.Add("/k/l/x")
	f.Add("k/out/passwd")
	f.Fuzz(func(t *testing.T, p string) {
		req := rendertest.Request(hub.Source{Path: "k"}, map[string]string{
			"k/kustomization.yaml": "resources: [a.yaml]\n", "k/a.yaml": "x", "d/x": "y", "link k/l": "../d", "link k/out": "../../etc", "link k/abs": "/etc", "link k/c": "c",
		})
		job, rec := rendertest.Job(req, 0)
		fsys := newFiles(t.Context(), render.Files{Access: watched{rec, t}, Source: job.Index})
		_, _ = fsys.Exists(p), fsys.IsDir(p)
		if dir, file, err := fsys.CleanedAbs(p); err == nil && (!path.IsAbs(string(dir)) || strings.Contains(file, "/") || strings.Contains(string(dir), "..")) {
			t.Fatalf("CleanedAbs(%q) = %q, %q", p, dir, file)
		}
		if data, err := fsys.ReadFile(p); err == nil && string(data) != "x" && string(data) != "y" && string(data) != "resources: [a.yaml]\n" {
			t.Fatalf("ReadFile(%q) = %q", p, data)
		}
		_, _ = fsys.ReadDir(p)
		for _, err := range []error{fsys.Mkdir(p), fsys.MkdirAll(p), fsys.RemoveAll(p), fsys.WriteFile(p, nil)} {
			if err == nil {
				t.Fatalf("%q was written", p)
			}
		}
		if fsys.refused != nil && fault.KindOf(fsys.refused) != fault.Invalid {
			t.Fatalf("%q: %v", p, fsys.refused)
		}
		for _, in := range rec.Inputs() {
			if !fs.ValidPath(in.Path) {
				t.Fatalf("%q: input %+v", p, in)
			}
		}
	})
}

// Any kustomization builds or is refused with a class, and nothing remote in it
// counts as local.
func FuzzKustomization(f *testing.F) {
	for _, s := range []string{
		"resources: [a.yaml]\n", "resources: ['https://x/y']\n", "namePrefix: x\nresources: [a.yaml]\n", "configMapGenerator: [{name: g, literals: [a=b]}]\n", "patches: [{patch: '[]'}]\n", "resources: [.]\n", "components: [..]\n",
		"replacements: [{source: {kind: ConfigMap}, targets: []}]\nresources: [a.yaml]\n", "images: [{name: x, newTag: y}]\nresources: [a.yaml]\n", "[", "a: &a [*a]", "helmCharts: [{}]", "generators: ['apiVersion: builtin']", "vars: [{name: A}]", "labels: [{pairs: {a: b}}]\nresources: [a.yaml]\n",
		"transformers: [t.yaml]", "openapi: {path: a.yaml}", "crds: [a.yaml]", "buildMetadata: [originAnnotations]\nresources: [a.yaml]\n", "sortOptions: {order: legacy}\nresources: [a.yaml]\n", "namespace: \"\\0\"\nresources: [a.yaml]\n", "replicas: [{name: a, count: -1}]\nresources: [a.yaml]\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 2_000 || strings.Count(text, "*") > 20 {
			return
		}
		req := rendertest.Request(hub.Source{Path: "."}, map[string]string{"kustomization.yaml": text, "a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"})
		job, rec := rendertest.Job(req, 0)
		job.Files.Access = watched{rec, t}
		if _, err := Render(t.Context(), job); err != nil {
			if kind := fault.KindOf(err); kind != fault.Invalid && kind != fault.Exceeded {
				t.Fatalf("error %v (kind %q)", err, kind)
			}
		}
	})
}
