package validation

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// CheckProject validates what a person wrote of a project.
func CheckProject(p *hub.Project, rules func(name string, spec hub.ProjectSpec) error) (hub.ProjectSpec, []string, error) {
	var spec hub.ProjectSpec
	if err := checkProjectMeta(p); err != nil {
		return spec, nil, err
	}
	if err := decode(p.Spec, &spec); err != nil {
		return spec, nil, err
	}
	if err := checkSourceRepos(spec.SourceRepos); err != nil {
		return spec, nil, err
	}
	if err := checkDestinations(spec.Destinations); err != nil {
		return spec, nil, err
	}
	if err := checkPatterns(spec); err != nil {
		return spec, nil, err
	}
	if err := checkAccounts(spec.DestinationServiceAccounts); err != nil {
		return spec, nil, err
	}
	if err := checkOrphans(spec.OrphanedResources); err != nil {
		return spec, nil, err
	}
	if err := checkWindows(spec); err != nil {
		return spec, nil, err
	}
	if err := spec.Integrity.Validate(); err != nil {
		return spec, nil, err
	}
	if err := rules(p.Name, spec); err != nil {
		return spec, nil, err
	}
	warnings := append(unknown(p.Spec, spec, prefixed("spec.", spec.Unknown)...), windowWarnings(spec)...)
	if err := spec.Refusal(p.Name); err != nil {
		warnings = append([]string{fault.Sentence(err)}, warnings...)
	}
	return spec, warnings, nil
}

// checkProjectMeta validates the metadata of a project and fills in its namespace.
func checkProjectMeta(p *hub.Project) error {
	if err := CheckLabel("name", p.Name); err != nil {
		return err
	}
	if p.Namespace == "" {
		p.Namespace = DefaultNamespace
	}
	if err := CheckLabel("namespace", p.Namespace); err != nil {
		return err
	}
	if err := checkMaps(p.Labels, p.Annotations); err != nil {
		return err
	}
	return hub.CheckSwitches(p.Meta)
}

func checkSourceRepos(patterns []string) error {
	if slices.Contains(patterns, "!*") {
		return fault.New(fault.Invalid, "spec.sourceRepos has !*, which denies everything")
	}
	for i, pattern := range patterns {
		if slices.Index(patterns, pattern) != i {
			return fault.New(fault.Invalid, "spec.sourceRepos[%d], %q, is there twice", i, Shorten(repourl.Redact(pattern)))
		}
		if err := repourl.CheckNoSecret(pattern); err != nil {
			return prefix(err, fmt.Sprintf("spec.sourceRepos[%d]", i))
		}
	}
	return nil
}

func checkDestinations(all []hub.Destination) error {
	for i, d := range all {
		if d.Server == "" && d.Name == "" {
			return fault.With(fault.New(fault.Invalid, "spec.destinations[%d] has neither server nor name", i), "", "set one of them; * stands for any")
		}
		if slices.Index(all, d) != i {
			return fault.New(fault.Invalid, "spec.destinations[%d] is there twice", i)
		}
		for _, f := range []struct{ name, value string }{{"server", d.Server}, {"name", d.Name}, {"namespace", d.Namespace}} {
			if f.value == "!*" {
				return fault.New(fault.Invalid, "spec.destinations[%d].%s is !*, which denies everything", i, f.name)
			}
		}
	}
	return nil
}

// checkAccounts validates the accounts that applications act as.
func checkAccounts(all []hub.DestinationServiceAccount) error {
	for i, d := range all {
		where := fmt.Sprintf("spec.destinationServiceAccounts[%d]", i)
		if err := d.Check(); err != nil {
			return prefix(err, where)
		}
		same := func(o hub.DestinationServiceAccount) bool { return o.Server == d.Server && o.Namespace == d.Namespace }
		if slices.IndexFunc(all, same) != i {
			return fault.With(fault.New(fault.Invalid, "%s: an entry before it has the same server and namespace", where), "", "the first one that matches counts; remove one of them")
		}
	}
	return nil
}

// checkPatterns refuses patterns of a project that match nothing because they
// are malformed: a denial that matches nothing would permit.
func checkPatterns(spec hub.ProjectSpec) error {
	for i, r := range spec.SourceRepos {
		if err := checkGlobs(fmt.Sprintf("spec.sourceRepos[%d]", i), r); err != nil {
			return err
		}
	}
	for i, n := range spec.SourceNamespaces {
		if slices.Index(spec.SourceNamespaces, n) != i {
			return fault.New(fault.Invalid, "spec.sourceNamespaces[%d], %q, is there twice", i, Shorten(n))
		}
		if err := checkNamespacePattern(fmt.Sprintf("spec.sourceNamespaces[%d]", i), n); err != nil {
			return err
		}
	}
	for i, d := range spec.Destinations {
		if err := checkGlobs(fmt.Sprintf("spec.destinations[%d]", i), d.Server, d.Name, d.Namespace); err != nil {
			return err
		}
	}
	if err := checkKindPatterns(spec); err != nil {
		return err
	}
	for i, w := range spec.SyncWindows {
		if err := checkGlobs(fmt.Sprintf("spec.syncWindows[%d]", i), slices.Concat(w.Applications, w.Namespaces, w.Clusters)...); err != nil {
			return err
		}
	}
	return nil
}

// checkGlobs validates patterns, denials included.
func checkGlobs(where string, patterns ...string) error {
	for _, p := range patterns {
		if err := glob.Check(strings.TrimPrefix(p, "!")); err != nil {
			return prefix(err, where)
		}
	}
	return nil
}

// checkNamespacePattern validates a glob, or a regular expression between slashes.
func checkNamespacePattern(where, pattern string) error {
	if !hub.IsExpression(pattern) {
		return checkGlobs(where, pattern)
	}
	if _, err := regexp.Compile(pattern[1 : len(pattern)-1]); err != nil {
		return fault.New(fault.Invalid, "%s: %q is not a regular expression", where, Shorten(pattern))
	}
	return nil
}

// checkKindPatterns validates the lists of permitted and denied kinds.
func checkKindPatterns(spec hub.ProjectSpec) error {
	for _, list := range []struct {
		name  string
		rules []hub.GroupKind
	}{
		{"clusterResourceWhitelist", spec.ClusterResourceWhitelist},
		{"clusterResourceBlacklist", spec.ClusterResourceBlacklist},
		{"namespaceResourceWhitelist", spec.NamespaceResourceWhitelist},
		{"namespaceResourceBlacklist", spec.NamespaceResourceBlacklist},
	} {
		for i, r := range list.rules {
			if err := checkGlobs(fmt.Sprintf("spec.%s[%d]", list.name, i), r.Group, r.Kind, r.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

func prefixed(prefix string, names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = prefix + name
	}
	return out
}

// checkOrphans validates what a project's monitor of orphaned objects leaves out.
func checkOrphans(m *hub.OrphanedMonitor) error {
	if m == nil {
		return nil
	}
	for i, r := range m.Ignore {
		if r == (hub.OrphanedRule{}) {
			return fault.With(fault.New(fault.Invalid, "spec.orphanedResources.ignore[%d] names nothing", i), "", "set kind, and group for kinds that have one")
		}
		for _, pattern := range [...]string{r.Group, r.Kind, r.Name} {
			if err := glob.Check(pattern); err != nil {
				return prefix(err, fmt.Sprintf("spec.orphanedResources.ignore[%d]", i))
			}
		}
	}
	return nil
}
