package hub

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// ErrorGrace is how long a repository that could be read before may be
// unreachable until its applications report it. What was fetched stays in use
// (CMPR-04).
const ErrorGrace = 180 * time.Second

// Labels that Argo CD writes about a cluster on request (CLU-09).
const (
	autoLabel    = "argocd.argoproj.io/auto-label-cluster-info"
	versionLabel = "argocd.argoproj.io/kubernetes-version"
)

// ShownLabels are the labels of a cluster, with its Kubernetes version as
// vMAJOR.MINOR.PATCH where they ask for that and an agent has said it.
func (c Cluster) ShownLabels() map[string]string {
	version, _, _ := strings.Cut(c.KubeVersion, "+")
	version, _, _ = strings.Cut(version, "-")
	if c.Labels[autoLabel] != "true" || version == "" {
		return c.Labels
	}
	shown := maps.Clone(c.Labels)
	shown[versionLabel] = version
	return shown
}

// A Cluster is a Kubernetes cluster that an agent speaks for.
type Cluster struct {
	ID     ClusterID `json:"id"`
	Tenant TenantID  `json:"-"`
	Meta
	ClusterScope
	Server       string   `json:"server,omitempty"` // alias URL that destinations may name; not an address that the hub dials
	KubeVersion  string   `json:"kubeVersion,omitempty"`
	APIVersions  []string `json:"apiVersions,omitempty"`
	Fingerprint  string   `json:"fingerprint,omitempty"` // UID of the kube-system namespace
	AgentID      string   `json:"agentId,omitempty"`
	AgentVersion string   `json:"agentVersion,omitempty"`
	// Features are the names of what the agent can do beyond the first release.
	// Nil: none has connected since this is stored.
	Features  []string   `json:"features,omitempty"`
	Connected bool       `json:"connected"`
	LastSeen  *time.Time `json:"lastSeen,omitempty"`
	Seq       int64      `json:"seq"`      // newest row of its desired log
	AckedSeq  int64      `json:"ackedSeq"` // newest row that the agent has stored
	Refusal   *Refusal   `json:"refusal,omitempty"`
	Receipt   *Receipt   `json:"receipt,omitempty"`

	Backlog    uint32        `json:"backlog,omitempty"` // changes that the agent has not sent yet
	Lag        time.Duration `json:"lag,omitempty"`     // age of the oldest change that is not stored here yet
	Rewind     *Rewind       `json:"rewind,omitempty"`
	Quarantine *Quarantine   `json:"quarantine,omitempty"`
	Refused    *Refused      `json:"refused,omitempty"`
	// Upgradable says that the agent lets the hub upgrade it.
	Upgradable bool     `json:"upgradable,omitempty"`
	Upgrade    *Upgrade `json:"upgrade,omitempty"` // the newest
	// Held means that the whole hub waits for an admin: some agent, of
	// whichever tenant, has proved that the hub's log was rewound.
	Held bool `json:"held,omitempty"`
	// InClusterOff means that the tenant has disabled Argo CD's own cluster as
	// a destination. It is read where destinations are checked.
	InClusterOff bool `json:"-"`
}

// ClusterCounts are numbers about a cluster (CLU-08).
type ClusterCounts struct {
	Applications int // whose destination it is
	Objects      int // that their targets have
}

// A ClusterScope is what the registration of a cluster limits it to (CLU-01).
type ClusterScope struct {
	// Project is the one whose applications may have the cluster as their
	// destination without an entry in the project (CLU-07); empty: no project's.
	Project string `json:"project,omitempty"`
	// Namespaces are the only ones that are managed; empty: all (CLU-06).
	Namespaces []string `json:"namespaces,omitempty"`
	// ClusterResources permits cluster-scoped objects where Namespaces are set.
	ClusterResources bool `json:"clusterResources,omitempty"`
	// Shard is the one of Argo CD's controller; it is stored and has no effect,
	// because every cluster has an agent of its own.
	Shard *int64 `json:"shard,omitempty"`
}

// Same reports whether two scopes are equal.
func (s ClusterScope) Same(o ClusterScope) bool {
	shard := s.Shard == o.Shard || s.Shard != nil && o.Shard != nil && *s.Shard == *o.Shard
	return shard && s.Limits(o)
}

// Limits reports whether two scopes limit applications alike.
func (s ClusterScope) Limits(o ClusterScope) bool {
	return s.Project == o.Project && slices.Equal(s.Namespaces, o.Namespaces) && s.ClusterResources == o.ClusterResources
}

// Manages reports whether objects of a namespace are managed.
func (s ClusterScope) Manages(namespace string) bool {
	return len(s.Namespaces) == 0 || slices.Contains(s.Namespaces, namespace)
}

// A ScopedDestination is a cluster as an application's destination names it, with the
// limits of its registration.
type ScopedDestination struct {
	Destination
	ClusterScope
}

// DestinationOf is the cluster as a destination names it.
func (c Cluster) DestinationOf(d Destination) ScopedDestination {
	p := ScopedDestination{Destination{Name: c.Name, Server: c.Server, Namespace: d.Namespace}, c.ClusterScope}
	if d.Server != "" {
		p.Server = d.Server
	}
	return p
}

// A Refusal is the newest attempt of a cluster's agent to join or to connect
// that the hub refused, and that no connection has followed since.
type Refusal struct {
	At           time.Time `json:"at"`
	Address      string    `json:"address"`
	Stage        string    `json:"stage"`   // token, expired, used, version, csr, store, certificate, suspended, replaced, fingerprint
	Message      string    `json:"message"` // a sentence for people
	AgentVersion string    `json:"agentVersion,omitempty"`
}

// A Receipt proves that hub and agent had the same desired state.
type Receipt struct {
	Seq  int64     `json:"seq"`
	Root []byte    `json:"root"`
	At   time.Time `json:"at"`
}
