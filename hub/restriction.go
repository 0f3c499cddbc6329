package hub

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// ArgoNamespace is the namespace of Argo CD itself, in which every project's
// applications may be.
const ArgoNamespace = "argocd"

// Unenforced are the fields of a project that restrict its applications and
// that this release does not enforce. Such a project permits nothing new.
type Unenforced struct {
	// Unknown are the fields of the spec that this release does not know: in an
	// AppProject nearly every field restricts.
	Unknown []string `json:"-"`
	// Broken is why it is unknown what the project inherits; empty: it is known.
	Broken string `json:"-"`
	// AppNamespaces is the tenant's application.namespaces.
	AppNamespaces string `json:"-"`
}

// fields names those that are set, with what the restriction is about.
func (u Unenforced) fields() (names, about []string) {
	add := func(set bool, name, what string) {
		if set {
			names, about = append(names, "spec."+name), append(about, what)
		}
	}
	for _, name := range u.Unknown {
		add(true, name, "this release does not know "+name)
	}
	return names, slices.Compact(about)
}

// UnenforcedFields names the fields of a project's spec that this release does
// not enforce.
func UnenforcedFields(raw json.RawMessage) []string {
	spec, err := DecodeProject(raw)
	if err != nil {
		return nil
	}
	names, _ := spec.fields()
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], "spec.")
	}
	return names
}

// Refusal says why nothing new may be deployed for a project; nil: it may.
func (u Unenforced) Refusal(project string) error {
	if u.Broken != "" {
		return fault.With(fault.New(fault.Invalid, "the restrictions of project %q are not known: %s; so nothing new is deployed for its applications", project, u.Broken), "",
			"correct "+GlobalProjectsKey+" of argocd-cm, or create the project that it names")
	}
	names, about := u.fields()
	if len(names) == 0 {
		return nil
	}
	verb := "is"
	if len(names) > 1 {
		verb = "are"
	}
	return fault.With(fault.New(fault.Invalid, "project %q restricts its applications with %s, which %s not enforced: %s; so nothing new is deployed for them",
		project, strings.Join(names, " and "), verb, strings.Join(about, ", and ")), "",
		fmt.Sprintf("remove %s from the project, if you accept what it would have prevented, or deploy these applications with Argo CD", strings.Join(names, " and ")))
}

// UnmarshalJSON notes the fields that this release does not know.
func (s *ProjectSpec) UnmarshalJSON(raw []byte) error {
	type plain ProjectSpec
	if err := json.Unmarshal(raw, (*plain)(s)); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return err
	}
	s.Unknown = nil
	for name, value := range all {
		if !slices.Contains(projectFields(), name) && !isZero(value) {
			s.Unknown = append(s.Unknown, name)
		}
	}
	slices.Sort(s.Unknown)
	return nil
}

// projectFields are the names of the fields of a ProjectSpec.
func projectFields() []string {
	return []string{
		"description", "sourceRepos", "sourceNamespaces", "destinations", "clusterResourceWhitelist", "clusterResourceBlacklist",
		"namespaceResourceWhitelist", "namespaceResourceBlacklist", "roles", "syncWindows", "orphanedResources",
		"signatureKeys", "sourceIntegrity", "permitOnlyProjectScopedClusters", "destinationServiceAccounts",
	}
}

// isZero reports whether a JSON value is what an absent field means.
func isZero(raw json.RawMessage) bool {
	return slices.Contains([]string{"null", "false", `""`, "0", "[]", "{}"}, strings.TrimSpace(string(raw)))
}

// AdmitsNamespace refuses applications of a namespace that may not use the
// project. Those of Argo CD's own always may. Others need an entry in the
// project's sourceNamespaces, and one in the tenant's application.namespaces
// (PROJ-02, ANY-01).
func (s ProjectSpec) AdmitsNamespace(project, namespace string) error {
	switch {
	case namespace == "", namespace == ArgoNamespace: // an empty one stands for it
		return nil
	case !AppNamespaceEnabled(s.AppNamespaces, namespace):
		return fault.With(fault.New(fault.Invalid, "applications in namespace %q are not enabled", namespace), "",
			"add the namespace to "+ApplicationNamespacesKey+" of argocd-cmd-params-cm, or use the namespace "+ArgoNamespace)
	case !matchesNamespace(s.SourceNamespaces, namespace):
		return fault.With(fault.New(fault.Invalid, "project %q does not permit applications in namespace %q", project, namespace), "",
			"add the namespace to the project's sourceNamespaces, or move the application")
	}
	return nil
}

// ApplicationNamespacesKey of ParamsMap lists the namespaces, besides Argo CD's
// own, in which applications may be: globs and /regular expressions/, separated
// by commas.
const ApplicationNamespacesKey = "application.namespaces"

// AppNamespaceEnabled reports whether applications may be in a namespace, by a
// value of application.namespaces.
func AppNamespaceEnabled(value, namespace string) bool {
	return namespace == "" || namespace == ArgoNamespace || matchesNamespace(SplitNamespaces(value), namespace)
}

// SplitNamespaces are the entries of a list that commas separate.
func SplitNamespaces(value string) (out []string) {
	for _, n := range strings.Split(value, ",") {
		if n = strings.TrimSpace(n); n != "" {
			out = append(out, n)
		}
	}
	return out
}

func matchesNamespace(patterns []string, namespace string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if IsExpression(p) {
			re, err := regexp.Compile(p[1 : len(p)-1])
			return err == nil && re.MatchString(namespace)
		}
		return glob.Match(p, namespace)
	})
}

// IsExpression reports whether a pattern of sourceNamespaces is a regular
// expression between slashes, and not a glob.
func IsExpression(pattern string) bool {
	return len(pattern) > 1 && strings.HasPrefix(pattern, "/") && strings.HasSuffix(pattern, "/")
}
