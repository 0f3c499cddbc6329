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
	PermitOnlyProjectScopedClusters bool              `json:"permitOnlyProjectScopedClusters,omitempty"`
	DestinationServiceAccounts      []json.RawMessage `json:"destinationServiceAccounts,omitempty"`
	// Unknown are the fields of the spec that this release does not know: in an
	// AppProject nearly every field restricts.
	Unknown []string `json:"-"`
}

// fields names those that are set, with what the restriction is about.
func (u Unenforced) fields() (names, about []string) {
	add := func(set bool, name, what string) {
		if set {
			names, about = append(names, "spec."+name), append(about, what)
		}
	}
	add(u.PermitOnlyProjectScopedClusters, "permitOnlyProjectScopedClusters", "clusters do not belong to projects")
	add(len(u.DestinationServiceAccounts) > 0, "destinationServiceAccounts", "syncs act as the account of the cluster's agent")
	for _, name := range u.Unknown {
		add(true, name, "this release does not know "+name)
	}
	return names, slices.Compact(about)
}

// Refusal says why nothing new may be deployed for a project; nil: it may.
func (u Unenforced) Refusal(project string) error {
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

// AdmitsNamespace reports whether applications of a namespace may use the
// project: those of Argo CD's own always may, and, where the project lists
// sourceNamespaces, those that a glob or a /regular expression/ matches
// (PROJ-02).
func (s ProjectSpec) AdmitsNamespace(namespace string) bool {
	if len(s.SourceNamespaces) == 0 || namespace == ArgoNamespace {
		return true
	}
	return slices.ContainsFunc(s.SourceNamespaces, func(p string) bool {
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

// GlobalProjectsKey of SettingsMap lists projects whose restrictions others
// inherit.
const GlobalProjectsKey = "globalProjects"
