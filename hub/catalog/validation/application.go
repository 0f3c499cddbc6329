package validation

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// CheckApplication validates what a person wrote of an application and fills
// in namespace and project. Warnings are for people.
func CheckApplication(a *hub.Application) (hub.ApplicationSpec, []string, error) {
	var spec hub.ApplicationSpec
	if !subdomain(a.Name) {
		return spec, nil, fault.With(fault.New(fault.Invalid, "name %q is no DNS name", Shorten(a.Name)), "",
			"use lower-case letters, digits, hyphens and dots, with a letter or digit at both ends")
	}
	if a.Namespace == "" {
		a.Namespace = DefaultNamespace
	}
	if err := CheckLabel("namespace", a.Namespace); err != nil {
		return spec, nil, err
	}
	if err := checkMaps(a.Labels, a.Annotations); err != nil {
		return spec, nil, err
	}
	if err := decode(a.Spec, &spec); err != nil {
		return spec, nil, err
	}
	if a.Project = spec.Project; a.Project == "" {
		a.Project = "default"
	}
	if err := CheckLabel("project", a.Project); err != nil {
		return spec, nil, err
	}
	if err := checkDestination(spec.Destination); err != nil {
		return spec, nil, err
	}
	if err := checkHydrator(a.Spec); err != nil {
		return spec, nil, err
	}
	if err := checkSources(spec); err != nil {
		return spec, nil, err
	}
	a.Finalizers = hub.OwnFinalizers(a.Finalizers)
	if err := hub.CheckSwitches(a.Meta); err != nil {
		return spec, nil, err
	}
	warnings, err := checkPolicy(spec)
	if err != nil {
		return spec, nil, err
	}
	warnings = append(warnings, hub.CheckNotices(a.Meta)...)
	return spec, append(unknown(a.Spec, spec), warnings...), nil
}

// checkHydrator refuses a source that is to be hydrated first: nothing would do
// that, so the application would stand still without a word (APP-23).
func checkHydrator(raw json.RawMessage) error {
	var s struct {
		SourceHydrator json.RawMessage `json:"sourceHydrator"`
	}
	if json.Unmarshal(raw, &s) != nil || len(s.SourceHydrator) == 0 || string(s.SourceHydrator) == "null" {
		return nil
	}
	return fault.With(fault.New(fault.Invalid, "spec.sourceHydrator is not served: Capstan does not write to repositories"), "",
		"set spec.source to the dry source, which is rendered here, or to the branch that something else hydrates")
}

func checkDestination(d hub.Destination) error {
	switch {
	case d.Server != "" && d.Name != "":
		return fault.With(fault.New(fault.Invalid, "spec.destination has both server and name"), "", "keep one of them")
	case d.Server == "" && d.Name == "":
		return fault.With(fault.New(fault.Invalid, "spec.destination has neither server nor name"), "",
			"set name to one of your clusters, or server to "+hub.InCluster)
	}
	if d.Namespace != "" {
		return CheckLabel("destination namespace", d.Namespace)
	}
	return nil
}

func checkSources(spec hub.ApplicationSpec) error {
	sources := spec.EffectiveSources()
	if len(sources) == 0 {
		return fault.With(fault.New(fault.Invalid, "spec names no source"), "", "set spec.source or spec.sources")
	}
	refs, names := map[string]bool{}, map[string]bool{}
	for i, s := range sources {
		where := "spec.source"
		if len(spec.Sources) > 0 {
			where = fmt.Sprintf("spec.sources[%d]", i)
		}
		if err := checkSource(s); err != nil {
			return prefix(err, where)
		}
		if s.Ref != "" && refs[s.Ref] {
			return fault.New(fault.Invalid, "%s: another source has the ref %q too", where, Shorten(s.Ref))
		}
		if s.Name != "" && names[s.Name] {
			return fault.With(fault.New(fault.Invalid, "%s: another source has the name %q too", where, Shorten(s.Name)), "", "use a different name for every source")
		}
		refs[s.Ref], names[s.Name] = true, true
	}
	return nil
}

func checkSource(s hub.Source) error {
	if s.RepoURL == "" {
		return fault.New(fault.Invalid, "repoURL is empty")
	}
	if err := repourl.CheckNoSecret(s.RepoURL); err != nil {
		return prefix(err, "repoURL")
	}
	if s.Helm != nil {
		for i, file := range s.Helm.ValueFiles {
			if err := repourl.CheckNoSecret(file); err != nil && strings.Contains(file, "://") {
				return prefix(err, fmt.Sprintf("helm.valueFiles[%d]", i))
			}
		}
	}
	if _, err := s.Repository(); err != nil {
		return err
	}
	if path.IsAbs(s.Path) {
		return fault.With(fault.New(fault.Invalid, "path %q is absolute", Shorten(s.Path)), "", "write it relative to the root of the repository")
	}
	if clean := path.Clean(s.Path); clean == ".." || strings.HasPrefix(clean, "../") {
		return fault.New(fault.Invalid, "path %q leaves the repository", Shorten(s.Path))
	}
	if strings.ContainsAny(s.TargetRevision, "\x00\n\r") || strings.HasPrefix(s.TargetRevision, "-") {
		return fault.New(fault.Invalid, "targetRevision %q is no revision", Shorten(s.TargetRevision))
	}
	return nil
}

func checkPolicy(spec hub.ApplicationSpec) (warnings []string, err error) {
	if spec.RevisionHistoryLimit != nil && *spec.RevisionHistoryLimit < 0 {
		return nil, fault.New(fault.Invalid, "spec.revisionHistoryLimit is below 0")
	}
	if spec.SyncPolicy == nil {
		return nil, nil
	}
	if warnings, err = hub.CheckSyncOptions(spec.SyncPolicy.SyncOptions); err != nil {
		return nil, err
	}
	return warnings, checkRetry(spec.SyncPolicy.Retry)
}

func checkRetry(r *hub.Retry) error {
	if r == nil || r.Backoff == nil {
		return nil
	}
	for name, d := range map[string]string{"duration": r.Backoff.Duration, "maxDuration": r.Backoff.MaxDuration} {
		if d == "" {
			continue
		}
		if _, err := ParseDuration(d); err != nil {
			return fault.With(fault.New(fault.Invalid, "retry.backoff.%s %q is no duration", name, Shorten(d)), "", "write it like 5s, 3m or 1h")
		}
	}
	if r.Backoff.Factor != nil && *r.Backoff.Factor < 1 {
		return fault.New(fault.Invalid, "retry.backoff.factor is below 1")
	}
	return nil
}

// prefix puts a place in front of the cause of a classified error.
func prefix(err error, where string) error {
	e, ok := fault.As(err)
	if !ok {
		return fmt.Errorf("%s: %w", where, err)
	}
	c := *e
	c.Cause = where + ": " + c.Cause
	return &c
}
