package apply

import (
	"slices"
	"strings"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// permit reports whether a project's limits let an application have an object
// (ENG-16). The hub has checked it already; the agent does not rely on that.
func permit(l *linkv1.Limits, project string, key manifest.Key, namespaced bool) error {
	if l == nil {
		return nil
	}
	if err := managedHere(l, key, namespaced); err != nil {
		return err
	}
	if !namespaced {
		if matchesKind(l.GetClusterDeny(), key) || !matchesKind(l.GetClusterAllow(), key) {
			return denied(project, key, "cluster-scoped objects of kind "+kindName(key))
		}
		return nil
	}
	if matchesKind(l.GetNamespacedDeny(), key) {
		return denied(project, key, "objects of kind "+kindName(key))
	}
	if l.GetNamespacedAllowSet() && !matchesKind(l.GetNamespacedAllow(), key) {
		return denied(project, key, "objects of kind "+kindName(key))
	}
	if !matchesNamespace(l.GetNamespaces(), key.Namespace) {
		return denied(project, key, "objects in namespace "+key.Namespace)
	}
	return nil
}

// managedHere reports whether the registration of the cluster leaves an object
// to the hub (CLU-06). It lists namespaces, and nothing else is managed then.
func managedHere(l *linkv1.Limits, key manifest.Key, namespaced bool) error {
	managed := l.GetManagedNamespaces()
	switch {
	case len(managed) == 0, !namespaced && l.GetClusterResources(), namespaced && slices.Contains(managed, key.Namespace):
		return nil
	case !namespaced:
		return fault.With(fault.New(fault.Denied, "the registration of the cluster lists the namespaces %s, and permits nothing cluster-scoped", strings.Join(managed, ", ")), key.Describe(),
			"set clusterResources of the cluster, or leave the object out")
	}
	return fault.With(fault.New(fault.Denied, "namespace %s is not managed: the registration of the cluster lists the namespaces %s", key.Namespace, strings.Join(managed, ", ")), key.Describe(),
		"add the namespace to the cluster's namespaces")
}

func denied(project string, key manifest.Key, what string) error {
	return fault.With(fault.New(fault.Denied, "project %s does not permit %s", project, what), key.Describe(),
		"ask an owner of the project to permit it")
}

func kindName(key manifest.Key) string {
	if key.Group == "" {
		return key.Kind
	}
	return key.Group + "/" + key.Kind
}

func matchesKind(rules []*linkv1.KindRule, key manifest.Key) bool {
	for _, r := range rules {
		if glob.Match(r.GetGroup(), key.Group) && glob.Match(r.GetKind(), key.Kind) && (r.GetName() == "" || glob.Match(r.GetName(), key.Name)) {
			return true
		}
	}
	return false
}

// matchesNamespace applies a list of globs in which a leading "!" denies; a
// denial takes precedence at any position. An empty list permits every
// namespace.
func matchesNamespace(globs []string, namespace string) bool {
	if len(globs) == 0 {
		return true
	}
	ok := false
	for _, g := range globs {
		if rest, deny := strings.CutPrefix(g, "!"); deny {
			if glob.Match(rest, namespace) {
				return false
			}
			continue
		}
		ok = ok || glob.Match(g, namespace)
	}
	return ok
}
