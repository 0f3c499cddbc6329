package hub

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/glob"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// A RenderedRef names an object of the hub that an application renders: one
// of the group argoproj.io that lives here and not in a cluster.
type RenderedRef struct {
	Parent    ApplicationID
	Kind      string
	Namespace string
	Name      string
}

// Key is the object's identity without its parent.
func (r RenderedRef) Key() manifest.Key {
	return manifest.Key{Group: manifest.HubGroup, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// A RenderedObject is such an object as it is now.
type RenderedObject struct {
	RenderedRef
	ID     string // empty: there is none
	Object []byte // JSON in the shape of Argo CD's, with its status
}

// A RenderedWrite asks for an object to be brought to one accepted manifest.
type RenderedWrite struct {
	RenderedRef
	Digest Digest // of the manifest
	DryRun bool
}

// A RenderedDeletion is the result of the deletion of such an object.
type RenderedDeletion struct {
	Gone  bool   // it is not there any more
	Other bool   // what is there under its name is not the parent's
	Waits string // it cannot go yet, and why
}

// A RenderedBy says which application has rendered an object of the hub, and
// what it wrote of it: labels, annotations, finalizers and spec.
type RenderedBy struct {
	Object  string // id of the application or project
	Kind    string
	Parent  ApplicationID
	Applied json.RawMessage
}

// inHub is the destination that stands for the hub itself, as Argo CD's users
// write it.
var inHub = Destination{Server: InCluster, Name: InClusterName} //nolint:gochecknoglobals // a constant

// CheckHubObject reports whether the applications of a project may render an object of the
// hub. The rules are those for an object of a cluster: the kind must be
// permitted, and the namespace on the destination that stands for the hub
// (https://kubernetes.default.svc, in-cluster).
func (p ProjectSpec) CheckHubObject(project string, key manifest.Key) error {
	if listed(p.NamespaceResourceBlacklist, key) || (p.NamespaceResourceWhitelist != nil && !listed(p.NamespaceResourceWhitelist, key)) {
		return fault.With(fault.New(fault.Denied, "project %s does not permit objects of kind %s/%s", project, key.Group, key.Kind), key.Describe(),
			"ask an owner of the project to permit it")
	}
	if !p.reaches(inHub, key.Namespace) {
		return fault.With(fault.New(fault.Denied, "project %s does not permit objects of the hub in namespace %s", project, key.Namespace), key.Describe(),
			"add the destination "+inHub.Server+" with this namespace to the project")
	}
	return nil
}

func listed(kinds []GroupKind, key manifest.Key) bool {
	return slices.ContainsFunc(kinds, func(k GroupKind) bool {
		return glob.Match(k.Group, key.Group) && glob.Match(k.Kind, key.Kind) && (k.Name == "" || glob.Match(k.Name, key.Name))
	})
}

// reaches reports whether the destinations of a project permit a namespace of a
// cluster; a denial wins wherever it stands.
func (p ProjectSpec) reaches(cluster Destination, namespace string) bool {
	ok := false
	for _, d := range p.Destinations {
		server, name := strings.TrimPrefix(d.Server, "!"), strings.TrimPrefix(d.Name, "!")
		switch {
		case server == "" && name == "",
			server != "" && !glob.Match(strings.TrimRight(server, "/"), cluster.Server),
			name != "" && !glob.Match(name, cluster.Name),
			!glob.Match(strings.TrimPrefix(d.Namespace, "!"), namespace):
			continue
		case strings.HasPrefix(d.Server, "!"), strings.HasPrefix(d.Name, "!"), strings.HasPrefix(d.Namespace, "!"):
			return false
		}
		ok = true
	}
	return ok
}

// Rules reports whether the applications of a project may render projects, and
// with them applications of every project: a writer of projects can grant any
// right. A project permits it by naming the kind AppProject of the group
// argoproj.io in its namespaceResourceWhitelist, or by permitting everything.
func (p ProjectSpec) Rules(project, namespace string) bool {
	key := manifest.Key{Group: manifest.HubGroup, Kind: "AppProject", Namespace: namespace, Name: "*"}
	if p.CheckHubObject(project, key) != nil {
		return false
	}
	named := slices.ContainsFunc(p.NamespaceResourceWhitelist, func(k GroupKind) bool {
		return k.Group == manifest.HubGroup && k.Name == "" && glob.Match(k.Kind, key.Kind)
	})
	return named || p.unrestricted()
}

// unrestricted reports whether nothing could be permitted that is not.
func (p ProjectSpec) unrestricted() bool {
	all := func(kinds []GroupKind) bool { return slices.Contains(kinds, GroupKind{Group: "*", Kind: "*"}) }
	if len(p.ClusterResourceBlacklist)+len(p.NamespaceResourceBlacklist) > 0 || !all(p.ClusterResourceWhitelist) {
		return false
	}
	if p.NamespaceResourceWhitelist != nil && !all(p.NamespaceResourceWhitelist) {
		return false
	}
	denies := func(s string) bool { return strings.HasPrefix(s, "!") }
	if !slices.Contains(p.SourceRepos, "*") || slices.ContainsFunc(p.SourceRepos, denies) {
		return false
	}
	everywhere := false
	for _, d := range p.Destinations {
		if denies(d.Server) || denies(d.Name) || denies(d.Namespace) {
			return false
		}
		everywhere = everywhere || (d.Namespace == "*" && (d.Server == "*" || d.Server == "") && (d.Name == "*" || d.Name == "") && d.Server+d.Name != "")
	}
	return everywhere
}
