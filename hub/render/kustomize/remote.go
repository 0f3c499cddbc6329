package kustomize

import (
	"regexp"
	"strings"

	"sigs.k8s.io/yaml"

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
	if !isRemote(what) {
		return nil
	}
	if field == "resources" || field == "bases" || field == "components" {
		return fault.New(fault.Invalid, "%s: remote bases are not served yet: %q", field, redact(what))
	}
	return fault.New(fault.Invalid, "%s: remote files are not served yet: %q", field, redact(what))
}

// isRemote knows the forms that kustomize would fetch: URLs, git's short form
// user@host:path, GitHub without a scheme, and anything with a ref.
func isRemote(s string) bool {
	return regexp.MustCompile(`(?i)^(git::|[a-z][a-z0-9+.-]*://|[^/@\s]+@[^/\s]+[:/]|(www\.)?github\.com[/:])|\?(.*&)?(ref|version|timeout|submodules)=`).MatchString(s)
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
