package plan

import (
	"fmt"
	"strings"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
)

// Permits checks an application before anything of it is rendered: its project,
// destination and sources. The error is the sentence of its InvalidSpecError
// condition (APP-03, APP-06, CMPR-06).
func Permits(r hub.Refresh, spec hub.ApplicationSpec) error {
	name := r.Application.Project
	if r.Project == nil {
		return fault.With(fault.New(fault.Invalid, "project %q does not exist", name), "", "create it with `capstan project create "+name+"` or apply its AppProject")
	}
	project, err := r.Project.Effective()
	if err != nil {
		return err
	}
	return PermitsIn(r, spec, project)
}

// PermitsIn is Permits for a project that was read before: r.Project is its name
// alone.
func PermitsIn(r hub.Refresh, spec hub.ApplicationSpec, project hub.ProjectSpec) error {
	name := r.Application.Project
	if err := project.Refusal(name); err != nil {
		return err
	}
	if err := project.AdmitsNamespace(name, r.Application.Namespace); err != nil {
		return err
	}
	if err := destination(r, spec, project); err != nil {
		return err
	}
	sources := spec.EffectiveSources()
	if len(sources) == 0 {
		return fault.With(fault.New(fault.Invalid, "spec names no source"), "", "set spec.source or spec.sources")
	}
	for i, s := range sources {
		if err := source(s, i, project, name); err != nil {
			return err
		}
	}
	return scoped(r)
}

// scoped refuses a repository whose credential belongs to another project.
func scoped(r hub.Refresh) error {
	for _, s := range r.Sources {
		if p := s.Repository.Project; p != "" && p != r.Application.Project && s.Repository.HasCredential {
			return fault.With(fault.New(fault.Invalid, "the repository %s belongs to project %q, and the application to project %q", s.Repository.URL, p, r.Application.Project), "",
				"move the application to that project, or register the repository without a project")
		}
	}
	return nil
}

func destination(r hub.Refresh, spec hub.ApplicationSpec, project hub.ProjectSpec) error {
	d := spec.Destination
	if d.Server != "" && d.Name != "" {
		return fault.With(fault.New(fault.Invalid, "destination has both server and name"), "", "keep one of them")
	}
	if r.Cluster == nil {
		return fault.With(fault.New(fault.Invalid, "destination %s names no known cluster", shown(d)), "", "enroll it with `capstan cluster enroll`, or name one of `capstan cluster list`")
	}
	if err := r.Cluster.Admits(d); err != nil {
		return err
	}
	if d.Namespace != "" && !r.Cluster.Manages(d.Namespace) {
		return fault.With(fault.New(fault.Invalid, "namespace %q of cluster %s is not managed: its registration lists the namespaces %s", d.Namespace, shown(d), strings.Join(r.Cluster.Namespaces, ", ")),
			"", "add the namespace to the cluster's namespaces, or choose one of them")
	}
	if err := permitsDestination(r, d, project); err != nil {
		return err
	}
	if project.PermitOnlyProjectScopedClusters && r.Cluster.Project != r.Project.Name {
		return fault.With(fault.New(fault.Invalid, "project %q permits only clusters that belong to it, and cluster %q does not", r.Project.Name, r.Cluster.Name),
			"", "give the cluster to the project with `capstan cluster set "+r.Cluster.Name+" --project "+r.Project.Name+"`, or unset permitOnlyProjectScopedClusters")
	}
	return nil
}

// permitsDestination checks a destination against the project's entries. A
// cluster that belongs to the project needs none (CLU-07), but one may deny it.
func permitsDestination(r hub.Refresh, d hub.Destination, project hub.ProjectSpec) error {
	// A destination may be written by name or by server; the project may use
	// either for the same cluster.
	whole := r.Cluster.DestinationOf(d).Destination
	allowed := r.Cluster.Project != "" && r.Cluster.Project == r.Project.Name
	for _, p := range project.Destinations {
		server, cluster, namespace := p.Server, p.Name, p.Namespace
		deny := strings.HasPrefix(server, "!") || strings.HasPrefix(cluster, "!") || strings.HasPrefix(namespace, "!")
		if !SameCluster(p, whole) || !glob.Match(strings.TrimPrefix(namespace, "!"), whole.Namespace) {
			continue
		}
		if deny {
			return fault.New(fault.Invalid, "project %q denies the destination %s, namespace %q", r.Project.Name, shown(d), d.Namespace)
		}
		allowed = true
	}
	if !allowed {
		return fault.With(fault.New(fault.Invalid, "project %q does not permit the destination %s, namespace %q", r.Project.Name, shown(d), d.Namespace),
			"", "add it to the project's destinations")
	}
	return nil
}

// SameCluster reports whether a project's destination entry matches a cluster;
// namespaces are ignored, and a leading "!" is removed.
func SameCluster(entry, cluster hub.Destination) bool {
	server, name := strings.TrimPrefix(entry.Server, "!"), strings.TrimPrefix(entry.Name, "!")
	if server == "" && name == "" {
		return false
	}
	if server != "" && !glob.Match(server, cluster.Server) {
		return false
	}
	return name == "" || glob.Match(name, cluster.Name)
}

func source(s hub.Source, i int, project hub.ProjectSpec, name string) error {
	where := fmt.Sprintf("source %d", i+1)
	if s.RepoURL == "" {
		return fault.New(fault.Invalid, "%s has no repoURL", where)
	}
	address := s.RepoURL
	if normal, err := s.Repository(); err == nil && s.Chart != "" {
		address = normal // it may have been written without the scheme
	}
	if err := repository(address, project, name); err != nil {
		return err
	}
	switch {
	case s.Chart != "" && s.Path != "":
		return fault.With(fault.New(fault.Invalid, "%s has both path and chart", where), "", "keep one of them")
	case s.Path == "" && s.Ref == "" && s.Chart == "":
		return fault.With(fault.New(fault.Invalid, "%s has neither path nor chart", where), "", "set path; . is the root of the repository")
	}
	return nil
}

// PermitsRepository judges a repository that an application takes something from
// besides its sources, such as the charts that its chart depends on (HELM-15).
// The error names repository and project.
func PermitsRepository(r hub.Refresh, url string) error {
	if r.Project == nil {
		return fault.New(fault.Invalid, "project %q does not exist", r.Application.Project)
	}
	project, err := r.Project.Effective()
	if err != nil {
		return fmt.Errorf("project %q: %w", r.Project.Name, err)
	}
	return repository(url, project, r.Project.Name)
}

// repository checks an address against the project's sourceRepos.
func repository(url string, project hub.ProjectSpec, name string) error {
	allowed := false
	for _, pattern := range project.SourceRepos {
		deny := strings.HasPrefix(pattern, "!")
		if !repoMatches(strings.TrimPrefix(pattern, "!"), url) {
			continue
		}
		if deny {
			return fault.New(fault.Invalid, "project %q denies the repository %s", name, repourl.Redact(url))
		}
		allowed = true
	}
	if !allowed {
		return fault.With(fault.New(fault.Invalid, "project %q does not permit the repository %s", name, repourl.Redact(url)), "", "add it to the project's sourceRepos")
	}
	return nil
}

// repoMatches compares a pattern with a repository URL as written and in its
// normal form, under which repositories are stored: another spelling of a
// denied one is still denied. Most patterns and URLs are in their normal form
// or match as they are, so they are compared as written first.
func repoMatches(pattern, url string) bool {
	if sameRepo(pattern, url) {
		return true
	}
	if rest, is := strings.CutPrefix(url, "oci://"); is && sameRepo(pattern, rest) {
		return true // as charts of a registry are written
	}
	for _, p := range spellings(pattern) {
		for _, u := range spellings(url) {
			if sameRepo(p, u) {
				return true
			}
		}
	}
	return false
}

func sameRepo(pattern, url string) bool {
	return glob.MatchPath(pattern, url) || glob.MatchPath(strings.TrimSuffix(pattern, ".git"), strings.TrimSuffix(url, ".git"))
}

func spellings(url string) []string {
	if normal, err := repourl.Normalize(url); err == nil && normal != url {
		return []string{url, normal}
	}
	return []string{url}
}

func shown(d hub.Destination) string {
	if d.Name != "" {
		return fmt.Sprintf("%q", d.Name)
	}
	return fmt.Sprintf("%q", d.Server)
}
