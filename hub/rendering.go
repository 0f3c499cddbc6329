package hub

import (
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/capstan-cd/capstan/shared/fault"
)

// The settings that decide what a render makes. A render asks for each that it
// needs, and the answer is recorded with what it read.
const (
	// HiddenDirectoriesKey of ParamsMap says whether manifests are read from
	// directories whose names begin with a dot, too (DIR-08).
	HiddenDirectoriesKey = "reposerver.include.hidden.directories"
	// KustomizeOptionsKey of SettingsMap has the options of all builds whose
	// source names no version of Kustomize, and with a version appended those
	// of that version: kustomize.buildOptions.v5.4.1 (KUST-08).
	KustomizeOptionsKey = "kustomize.buildOptions"
	// KustomizeVersionsKey of SettingsMap lists versions of Kustomize that are
	// built with the one that is here (KUST-07).
	KustomizeVersionsKey = "kustomize.versions"
	// KustomizePathKey of SettingsMap, with a version behind it, names a binary
	// in Argo CD. None is run here.
	KustomizePathKey = "kustomize.path."
	// ValueSchemesKey of SettingsMap lists the schemes of addresses that value
	// files may have, with commas between them (HELM-08).
	ValueSchemesKey = "helm.valuesFileSchemes"
	// These of SettingsMap switch a tool off with "false": then such a source is
	// a plain directory, and Jsonnet files are passed over (SRC-15).
	HelmEnableKey      = "helm.enable"
	KustomizeEnableKey = "kustomize.enable"
	JsonnetEnableKey   = "jsonnet.enable"
	// PluginExclusionsKey of ParamsMap has patterns of files that plugins do not
	// get, and PluginPathsKey says whether they get only what the annotation
	// manifest-generate-paths of an application names (CMP-14).
	PluginExclusionsKey = "reposerver.plugin.tar.exclusions"
	PluginPathsKey      = "reposerver.plugin.use.manifest.generate.paths"
	// SubmodulesKey of ParamsMap switches submodules off with "false": then their
	// directories are empty (SRC-23).
	SubmodulesKey = "reposerver.enable.git.submodule"
)

// KustomizeVersion is the version of Kustomize that is built with.
const KustomizeVersion = "v5.8.2"

// KustomizeServed reports whether a version that a source names is that of the
// builds here: its line of releases, or its major version alone.
func KustomizeServed(version string) bool {
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	here := strings.Split(strings.TrimPrefix(KustomizeVersion, "v"), ".")
	if len(parts) > len(here) {
		return false
	}
	for i, p := range parts {
		if i < len(here)-1 && p != here[i] {
			return false
		}
		if _, err := strconv.ParseUint(p, 10, 31); err != nil {
			return false
		}
	}
	return true
}

// A KustomizeVersions is the value of KustomizeVersionsKey.
type KustomizeVersions []string

// ParseKustomizeVersions reads versions, or patterns of them, between commas.
func ParseKustomizeVersions(text string) (KustomizeVersions, error) {
	var out KustomizeVersions
	for _, v := range strings.Split(text, ",") {
		v = strings.TrimPrefix(strings.TrimSpace(v), "v")
		if v == "" {
			continue
		}
		if _, err := path.Match(v, ""); err != nil || strings.ContainsFunc(v, unicode.IsSpace) {
			return nil, fault.With(fault.New(fault.Invalid, "%q is neither a version nor a pattern of one", cut(v)), "", "write versions between commas, such as v5.4.1, v4.*")
		}
		out = append(out, v)
	}
	return out, nil
}

// Has reports whether a version is listed, with a v before it or without.
func (k KustomizeVersions) Has(version string) bool {
	return slices.ContainsFunc(k, func(pattern string) bool {
		ok, err := path.Match(pattern, strings.TrimPrefix(version, "v"))
		return ok && err == nil
	})
}

// ValueSchemes reads the value of ValueSchemesKey. Where it is empty, value
// files may be read over http and https.
func ValueSchemes(text string) []string {
	var out []string
	for word := range strings.SplitSeq(text, ",") {
		if word = strings.ToLower(strings.TrimSpace(word)); word != "" {
			out = append(out, word)
		}
	}
	if len(out) == 0 {
		return []string{"http", "https"}
	}
	return out
}

// KustomizeOptionsOf is the key of the build options for a version.
func KustomizeOptionsOf(version string) string {
	if version == "" {
		return KustomizeOptionsKey
	}
	return KustomizeOptionsKey + "." + version
}

// RenderKeys are the keys of both maps that decide what renders make, but for
// the options of versions, which begin with KustomizeOptionsKey.
func RenderKeys() (settings, params []string) {
	return []string{HelmEnableKey, KustomizeEnableKey, JsonnetEnableKey, KustomizeOptionsKey, KustomizeVersionsKey, ValueSchemesKey},
		[]string{HiddenDirectoriesKey, PluginExclusionsKey, PluginPathsKey, SubmodulesKey}
}

// Renders reports whether a setting decides what renders make.
func Renders(name, key string) bool {
	settings, params := RenderKeys()
	switch name {
	case ParamsMap:
		return slices.Contains(params, key)
	case SettingsMap:
		return slices.Contains(settings, key) || strings.HasPrefix(key, KustomizeOptionsKey+".")
	}
	return false
}

// KustomizeOptions are those of `kustomize build` that a build here has.
type KustomizeOptions struct {
	LoadAnywhere bool // files may lie outside of the kustomization's directory, though never outside of the repository
	Sorted       bool // objects come in the order of older versions; stored ones are put in order in any case
	ManagedBy    bool // objects get the label app.kubernetes.io/managed-by
	Helm         bool // --enable-helm was given
	HelmVersion  string
	HelmAPIs     []string
}

// ParseKustomizeOptions reads options as they stand on the command line of
// `kustomize build`. What would start a program, reach a network or is not
// known is refused.
func ParseKustomizeOptions(text string) (KustomizeOptions, error) {
	var o KustomizeOptions
	words := strings.Fields(text)
	for len(words) > 0 {
		word := strings.Trim(words[0], `"'`)
		name, value, given := strings.Cut(word, "=")
		name = strings.ReplaceAll(name, "_", "-")
		words = words[1:]
		if !strings.HasPrefix(name, "-") {
			return o, fault.With(fault.New(fault.Invalid, "%q is no option of kustomize build", cut(word)), "", "an option begins with --")
		}
		if !given && slices.Contains([]string{"--load-restrictor", "--reorder", "--helm-kube-version", "--helm-api-versions", "--helm-command"}, name) {
			if len(words) == 0 {
				return o, fault.With(fault.New(fault.Invalid, "the option %s has no value", name), "", "write it like "+name+"=VALUE")
			}
			value, words = strings.Trim(words[0], `"'`), words[1:]
		}
		if err := o.set(name, value); err != nil {
			return o, err
		}
	}
	return o, nil
}

func (o *KustomizeOptions) set(name, value string) (err error) {
	switch name {
	case "--load-restrictor":
		o.LoadAnywhere, err = either(name, value, "LoadRestrictionsNone", "LoadRestrictionsRootOnly")
	case "--reorder":
		o.Sorted, err = either(name, value, "legacy", "none")
	case "--enable-managedby-label":
		o.ManagedBy, err = turned(name, value)
	case "--enable-helm":
		o.Helm, err = turned(name, value)
	case "--helm-kube-version":
		o.HelmVersion = value
	case "--helm-api-versions":
		o.HelmAPIs = append(o.HelmAPIs, strings.Split(value, ",")...)
	case "--helm-debug", "--stack-trace":
		_, err = turned(name, value) // it logs more, which is not read here
	case "--enable-alpha-plugins", "--enable-exec", "--enable-star", "--network", "--network-name", "--mount", "--helm-command", "--as-current-user", "--env", "-e":
		return o.programs(name, value)
	case "--output", "-o":
		return fault.With(fault.New(fault.Invalid, "the option %s is not supported: the result is not written to files", name), "", "remove the option")
	default:
		return fault.With(fault.New(fault.Invalid, "%q is no option of kustomize build that is known here", cut(name)), "",
			"the options are --load-restrictor, --reorder, --enable-managedby-label, --enable-helm, --helm-kube-version and --helm-api-versions")
	}
	return err
}

// programs refuses what starts programs, unless it is switched off.
func (o *KustomizeOptions) programs(name, value string) error {
	if off, err := strconv.ParseBool(value); err == nil && !off && strings.HasPrefix(name, "--enable-") {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "the option %s is not supported: builds run in a sandbox that starts no program and has no network", name), "",
		"remove the option, and commit the plugin's output")
}

func either(name, value, yes, no string) (bool, error) {
	switch value {
	case yes:
		return true, nil
	case no:
		return false, nil
	}
	return false, fault.With(fault.New(fault.Invalid, "the option %s has the value %q", name, cut(value)), "", "write "+yes+" or "+no)
}

// turned reads a switch, which is on where it has no value.
func turned(name, value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		return false, fault.With(fault.New(fault.Invalid, "the option %s has the value %q", name, cut(value)), "", "write true or false")
	}
	return on, nil
}
