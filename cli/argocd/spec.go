package argocd

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/capstan-cd/capstan/cli/usage"
)

// specFlags are the flags that change an application's specification. They have
// the names of Argo CD's.
type specFlags struct {
	texts  map[string]*string // by the flag's name
	lists  map[string]*[]string
	bools  map[string]*bool
	policy string
}

// Paths of the spec that flags with one text set. A leading dot is the source.
func textPaths() map[string]string {
	return map[string]string{
		"repo": ".repoURL", "path": ".path", "revision": ".targetRevision", "helm-chart": ".chart", "ref": ".ref",
		"project": "project", "dest-server": "destination.server", "dest-name": "destination.name", "dest-namespace": "destination.namespace",
		"release-name": ".helm.releaseName", "helm-version": ".helm.version",
		"nameprefix": ".kustomize.namePrefix", "namesuffix": ".kustomize.nameSuffix", "kustomize-version": ".kustomize.version", "kustomize-namespace": ".kustomize.namespace",
		"config-management-plugin": ".plugin.name", "directory-include": ".directory.include", "directory-exclude": ".directory.exclude",
		"sync-retry-backoff-duration": "syncPolicy.retry.backoff.duration", "sync-retry-backoff-max-duration": "syncPolicy.retry.backoff.maxDuration",
	}
}

func boolPaths() map[string]string {
	return map[string]string{
		"directory-recurse": ".directory.recurse", "helm-pass-credentials": ".helm.passCredentials", "helm-skip-crds": ".helm.skipCrds",
		"ignore-missing-value-files": ".helm.ignoreMissingValueFiles", "auto-prune": "syncPolicy.automated.prune", "self-heal": "syncPolicy.automated.selfHeal", "allow-empty": "syncPolicy.automated.allowEmpty",
	}
}

func listPaths() map[string]string {
	return map[string]string{"values": ".helm.valueFiles", "kustomize-image": ".kustomize.images", "helm-api-versions": ".helm.apiVersions", "sync-option": "syncPolicy.syncOptions", "jsonnet-libs": ".directory.jsonnet.libs"}
}

// add declares the flags.
func (f *specFlags) add(set *pflag.FlagSet) {
	f.texts, f.lists, f.bools = map[string]*string{}, map[string]*[]string{}, map[string]*bool{}
	for name := range textPaths() {
		f.texts[name] = set.String(name, "", "sets "+described(textPaths()[name]))
	}
	for name, path := range boolPaths() {
		f.bools[name] = set.Bool(name, false, "sets "+described(path))
	}
	for name, path := range listPaths() {
		f.lists[name] = set.StringArray(name, nil, "adds to "+described(path)+"; may be given several times")
	}
	f.lists["helm-set"] = set.StringArray("helm-set", nil, "parameter of the chart, as NAME=VALUE")
	f.lists["helm-set-string"] = set.StringArray("helm-set-string", nil, "the same, as a text")
	f.lists["parameter"] = set.StringArrayP("parameter", "p", nil, "the same as --helm-set")
	f.lists["kustomize-common-label"] = set.StringArray("kustomize-common-label", nil, "label of all objects, as NAME=VALUE")
	f.lists["kustomize-common-annotation"] = set.StringArray("kustomize-common-annotation", nil, "annotation of all objects, as NAME=VALUE")
	for name, v := range variables() {
		f.lists[name] = set.StringArray(name, nil, v.what+", as NAME=VALUE")
	}
	set.StringVar(&f.policy, "sync-policy", "", "automated, or none")
}

func described(path string) string {
	if strings.HasPrefix(path, ".") {
		return "spec.source" + path
	}
	return "spec." + path
}

// into changes a spec by the flags that were given. Of several sources the one
// at position, from 1, is changed; 0 is the only one.
func (f *specFlags) into(spec map[string]any, set *pflag.FlagSet, position int) error {
	source, err := sourceOf(spec, position)
	if err != nil {
		return err
	}
	if err := f.intoPolicy(spec, set); err != nil {
		return err
	}
	put := func(path string, value any) {
		if inner, ok := strings.CutPrefix(path, "."); ok {
			putAt(source, inner, value)
			return
		}
		putAt(spec, path, value)
	}
	for name, path := range textPaths() {
		if set.Changed(name) {
			put(path, *f.texts[name])
		}
	}
	for name, path := range boolPaths() {
		if set.Changed(name) {
			put(path, *f.bools[name])
		}
	}
	for name, path := range listPaths() {
		root := spec
		inner, ofSource := strings.CutPrefix(path, ".")
		if ofSource {
			root = source
		}
		for _, v := range *f.lists[name] {
			putAt(root, inner, added(getAt(root, inner), v))
		}
	}
	if err := f.intoVariables(source); err != nil {
		return err
	}
	return f.intoPairs(source)
}

// intoPolicy sets the automation.
func (f *specFlags) intoPolicy(spec map[string]any, set *pflag.FlagSet) error {
	switch f.policy {
	case "":
	case "automated", "auto", "automatic":
		if getAt(spec, "syncPolicy.automated") == nil {
			putAt(spec, "syncPolicy.automated", map[string]any{})
		}
	case "none", "manual":
		if policy, ok := spec["syncPolicy"].(map[string]any); ok {
			delete(policy, "automated")
		}
		for _, name := range [...]string{"auto-prune", "self-heal", "allow-empty"} {
			if set.Changed(name) {
				return usage.Errorf("--%s needs --sync-policy automated", name)
			}
		}
	default:
		return usage.Errorf("--sync-policy is automated or none, not %q", f.policy)
	}
	return nil
}

// A variable is a flag with a name and a value, of which a source has a list.
type variable struct {
	path string
	code bool // the value is Jsonnet
	what string
}

func variables() map[string]variable {
	return map[string]variable{
		"plugin-env":           {"plugin.env", false, "variable of the plugin"},
		"jsonnet-ext-var-str":  {"directory.jsonnet.extVars", false, "variable of Jsonnet"},
		"jsonnet-ext-var-code": {"directory.jsonnet.extVars", true, "variable of Jsonnet that is code"},
		"jsonnet-tla-str":      {"directory.jsonnet.tlas", false, "argument of Jsonnet"},
		"jsonnet-tla-code":     {"directory.jsonnet.tlas", true, "argument of Jsonnet that is code"},
	}
}

// intoVariables sets variables of plugins and of Jsonnet.
func (f *specFlags) intoVariables(source map[string]any) error {
	for name, v := range variables() {
		err := f.eachPair(name, func(key, value string) {
			one := map[string]any{"name": key, "value": value}
			if v.code {
				one["code"] = true
			}
			putAt(source, v.path, replaced(getAt(source, v.path), key, one))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// replaced puts an item in the place of the one with the same name.
func replaced(list any, name string, item map[string]any) []any {
	all, _ := list.([]any)
	all = slices.DeleteFunc(slices.Clone(all), func(v any) bool { m, _ := v.(map[string]any); return m["name"] == name })
	return append(all, item)
}

// intoPairs sets parameters of charts, and labels and annotations of Kustomize.
func (f *specFlags) intoPairs(source map[string]any) error {
	for _, name := range [...]string{"helm-set", "helm-set-string", "parameter"} {
		err := f.eachPair(name, func(key, value string) {
			one := map[string]any{"name": key, "value": value}
			if name == "helm-set-string" {
				one["forceString"] = true
			}
			putAt(source, "helm.parameters", replaced(getAt(source, "helm.parameters"), key, one))
		})
		if err != nil {
			return err
		}
	}
	for name, path := range map[string]string{"kustomize-common-label": "kustomize.commonLabels", "kustomize-common-annotation": "kustomize.commonAnnotations"} {
		err := f.eachPair(name, func(key, value string) {
			all, ok := getAt(source, path).(map[string]any)
			if !ok {
				all = map[string]any{}
			}
			all[key] = value
			putAt(source, path, all)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachPair calls do with the pairs of a flag.
func (f *specFlags) eachPair(name string, do func(key, value string)) error {
	for _, pair := range *f.lists[name] {
		key, value, ok := strings.Cut(pair, "=")
		if !ok {
			return usage.Errorf("--%s %q: write it as NAME=VALUE", name, pair)
		}
		do(key, value)
	}
	return nil
}

// sourceOf returns the source that flags are about, and makes one if there is
// none.
func sourceOf(spec map[string]any, position int) (map[string]any, error) {
	sources, _ := spec["sources"].([]any)
	switch {
	case len(sources) == 0 && position > 1:
		return nil, usage.Errorf("--source-position %d: the application has one source", position)
	case len(sources) == 0:
		source, ok := spec["source"].(map[string]any)
		if !ok {
			source = map[string]any{}
			spec["source"] = source
		}
		return source, nil
	case position == 0 && len(sources) > 1:
		return map[string]any{}, nil // what is about a source has no effect; verbs ask for a position
	}
	position = max(1, position)
	if position > len(sources) {
		return nil, usage.Errorf("--source-position %d: the application has %d sources", position, len(sources))
	}
	source, ok := sources[position-1].(map[string]any)
	if !ok {
		return nil, usage.Errorf("--source-position %d: it is no source", position)
	}
	return source, nil
}

// putAt sets a value at a path, and makes the maps on the way.
func putAt(m map[string]any, path string, value any) {
	head, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		m[head] = value
		return
	}
	next, ok := m[head].(map[string]any)
	if !ok {
		next = map[string]any{}
		m[head] = next
	}
	putAt(next, rest, value)
}

func getAt(m map[string]any, path string) any {
	head, rest, deeper := strings.Cut(path, ".")
	if !deeper {
		return m[head]
	}
	next, _ := m[head].(map[string]any)
	if next == nil {
		return nil
	}
	return getAt(next, rest)
}

// added appends a text to a list that does not have it. An option or an image
// replaces the one of the same name.
func added(list any, v string) []any {
	all, _ := list.([]any)
	name, _, pair := strings.Cut(v, "=")
	all = slices.DeleteFunc(slices.Clone(all), func(x any) bool {
		s, _ := x.(string)
		other, _, _ := strings.Cut(s, "=")
		return s == v || pair && other == name
	})
	return append(all, v)
}
