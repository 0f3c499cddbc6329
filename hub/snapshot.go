package hub

import (
	"time"

	"github.com/capstan-cd/capstan/shared/manifest"
)

// An ObjectRef is one object of a snapshot, without its body.
type ObjectRef struct {
	Digest    Digest `json:"-"`
	Group     string `json:"group"`
	Version   string `json:"version"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"` // as applied; empty for cluster-scoped kinds and for "the destination's default"
	Name      string `json:"name"`
	Wave      int32  `json:"wave,omitempty"`
	Hook      string `json:"hook,omitempty"` // hook types, comma separated; empty: an ordinary object
}

// Key is the object's identity in its cluster.
func (r ObjectRef) Key() manifest.Key {
	return manifest.Key{Group: r.Group, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name}
}

// A Snapshot is the result of rendering one set of inputs. It never changes.
type Snapshot struct {
	ID          SnapshotID    `json:"id"`
	Tenant      TenantID      `json:"-"`
	Application ApplicationID `json:"application"`
	Revision    string        `json:"revision"` // of the commit that it was first rendered for
	Revisions   []string      `json:"revisions,omitempty"`
	ParamsHash  [32]byte      `json:"-"` // renderer version, source spec, parameters, capabilities answered
	Objects     []ObjectRef   `json:"objects"`
	Inputs      []Input       `json:"-"`
	SourceType  string        `json:"sourceType"`
	Impure      bool          `json:"impure,omitempty"`
	Warnings    []string      `json:"warnings,omitempty"`
	// Lists are the digests of blobs that hold the objects, in order, as
	// serialised link.v1.ObjectLists; none unless there are more than 500.
	Lists     []Digest   `json:"-"`
	Commit    CommitInfo `json:"commit"`
	CreatedAt time.Time  `json:"createdAt"`
}

// CommitInfo is what people see of a commit.
type CommitInfo struct {
	Author  string    `json:"author,omitempty"`
	Message string    `json:"message,omitempty"` // first 500 characters
	At      time.Time `json:"at,omitzero"`
	// Integrity is the Integrity.Digest under which it was verified; empty: its
	// project demanded nothing.
	Integrity string `json:"integrity,omitempty"`
	// Rendering is how the manifests were made of it; nil: not known.
	Rendering *Rendering `json:"r,omitempty"`
	// Chart is there for a chart of a repository, Artifact for an OCI artifact.
	Chart    *ChartInfo    `json:"chart,omitempty"`
	Artifact *ArtifactInfo `json:"artifact,omitempty"`
}

// ChartInfo is what a Chart.yaml says about its chart.
type ChartInfo struct {
	Name        string   `json:"name"`
	Version     string   `json:"version"`
	AppVersion  string   `json:"appVersion,omitempty"`
	Description string   `json:"description,omitempty"`
	Home        string   `json:"home,omitempty"`
	Maintainers []string `json:"maintainers,omitempty"` // "name <email>"
}

// ArtifactInfo is what the standard annotations of an artifact say (SRC-05).
type ArtifactInfo struct {
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Version     string `json:"version,omitempty"`
	Revision    string `json:"revision,omitempty"` // of the source that it was made from
	URL         string `json:"url,omitempty"`
	Source      string `json:"source,omitempty"`
	Authors     string `json:"authors,omitempty"`
	Created     string `json:"created,omitempty"`
}

// InputKind says what a renderer saw at a path.
type InputKind string

// The kinds of recorded inputs.
const (
	InputFile    InputKind = "file"    // Hash is the blob
	InputList    InputKind = "list"    // Hash covers names and modes of one directory, not contents
	InputTree    InputKind = "tree"    // Hash is the whole tree below
	InputLink    InputKind = "link"    // Hash is the blob of the link itself
	InputMissing InputKind = "missing" // nothing stood there
	InputDir     InputKind = "dir"     // a directory stood there; no hash, and no Tree answers it
	InputRemote  InputKind = "remote"  // Path is an address as the spec writes it, Hash the contents there; no Tree answers it
	InputChart   InputKind = "chart"   // Path is a ChartRef as text, Hash the digest of the archive; no Tree answers it
	InputFact    InputKind = "fact"    // Path is a question about cluster or revision, Hash its answer; no Tree answers it

	// InputForgotten stands for all that was read, where that is no longer
	// known: it never holds. Its source is -1, which no release takes for the
	// same.
	InputForgotten InputKind = "forgotten"
)

// ForgottenInputs are the inputs of a snapshot that answers no render any more.
// An empty list would answer all of them.
func ForgottenInputs() []Input { return []Input{{Source: -1, Kind: InputForgotten}} }

// An Input is one thing that a render read. Source is the index of the
// application's source whose repository it was read from.
type Input struct {
	Source int       `json:"s,omitempty"`
	Kind   InputKind `json:"k"`
	Path   string    `json:"p"`
	Hash   string    `json:"h,omitempty"`
}
