package kustomize

import (
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

// onlyLocal refuses a kustomization that refers to something outside the
// repository, other than as a chart. Text that is not YAML is left to
// kustomize, which reports the line.
func onlyLocal(text []byte) error {
	var k map[string]any
	if err := yaml.Unmarshal(text, &k); err != nil {
		return nil
	}
	if charts, _ := k["helmChartInflationGenerator"].([]any); len(charts) > 0 {
		return fault.New(fault.Invalid, "helmChartInflationGenerator is no longer served; write it as helmCharts")
	}
	for _, r := range references(k) {
		if err := local(r.field, r.value); err != nil {
			return err
		}
	}
	return nil
}

// A reference is what a field of a kustomization names: a file, a directory or
// an address.
type reference struct {
	field string
	value any
}

// references returns everything that a kustomization refers to, without charts.
func references(k map[string]any) []reference {
	var out []reference
	add := func(field string, values ...any) {
		for _, v := range values {
			out = append(out, reference{field, v})
		}
	}
	for _, field := range [...]string{"resources", "bases", "components", "crds", "configurations", "generators", "transformers", "validators", "patchesStrategicMerge"} {
		add(field, list(k[field])...)
	}
	for _, field := range [...]string{"patches", "patchesJson6902", "replacements"} {
		for _, v := range list(k[field]) {
			add(field, member(v, "path"))
		}
	}
	for _, field := range [...]string{"configMapGenerator", "secretGenerator"} {
		for _, g := range list(k[field]) {
			add(field, list(member(g, "files"))...)
			add(field, list(member(g, "envs"))...)
			add(field, member(g, "env"))
		}
	}
	add("openapi", member(k["openapi"], "path"))
	return out
}

func local(field string, v any) error {
	s, _ := v.(string)
	if s == "" || strings.ContainsRune(s, '\n') {
		return nil // a patch or a generator written in place
	}
	what := s
	if field == "configMapGenerator" || field == "secretGenerator" {
		if _, file, ok := strings.Cut(s, "="); ok {
			what = file
		}
	}
	if !render.RemoteBase(what) || slices.Contains(render.BaseFields(), field) {
		return nil
	}
	return fault.New(fault.Invalid, "%s: remote files are not served yet: %q", field, redact(what))
}

// borrowed returns a kustomization with the places of bases where it names them
// in other repositories. The hub has fetched them.
func (f *files) borrowed(name string, text []byte) ([]byte, error) {
	var k map[string]any
	if err := yaml.Unmarshal(text, &k); err != nil {
		return text, nil // kustomize reports what is wrong with it
	}
	if err := f.contained(name, k); err != nil {
		return nil, err
	}
	place := 0
	for _, field := range render.BaseFields() {
		entries := slices.Clone(list(k[field]))
		for i, v := range entries {
			if s, _ := v.(string); len(render.DeclaredBases(map[string]any{field: []any{s}})) == 0 {
				continue
			}
			at, err := f.tree.Base(f.ctx, name, place)
			if err != nil {
				return nil, fault.With(err, name, "")
			}
			if entries[i], err = filepath.Rel(path.Join("/", path.Dir(name)), path.Join("/", at)); err != nil {
				return nil, err
			}
			place++
		}
		if len(entries) > 0 {
			k[field] = entries
		}
	}
	if place == 0 {
		return text, nil
	}
	return yaml.Marshal(k)
}

// contained refuses a kustomization of a base that names a directory outside of
// the base's repository.
func (f *files) contained(name string, k map[string]any) error {
	rest, borrowed := strings.CutPrefix(name, render.BasesDir+"/")
	if !borrowed {
		return nil
	}
	repository, below, _ := strings.Cut(rest, "/")
	for _, field := range render.BaseFields() {
		for _, v := range list(k[field]) {
			s, _ := v.(string)
			if !render.RemoteBase(s) && strings.HasPrefix(path.Join(path.Dir(below), s)+"/", "../") {
				return fault.With(fault.New(fault.Invalid, "%s: %q leads out of the repository of the base %s", field, s, repository), name, "")
			}
		}
	}
	return nil
}

// redact removes a password from a URL.
func redact(s string) string {
	return regexp.MustCompile(`://[^/@\s]*@`).ReplaceAllString(s, "://")
}

func list(v any) []any {
	l, _ := v.([]any)
	return l
}

func member(v any, key string) any {
	m, _ := v.(map[string]any)
	return m[key]
}
