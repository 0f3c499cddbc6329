// Package render turns a source at a commit into the exact objects that a
// cluster should hold. It never talks to a cluster, to Git or to a network:
// trees come in, objects go out. The hub's daemon owns one scheduler.Pool; the
// stage in this package calls it. Templates and overlays are rendered in
// sandboxed worker processes that serve one tenant each; the hub reads every
// file for them and records what was read. Equal inputs produce byte-equal
// objects, and a render that fails, hangs or grows affects no other.
package render

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Version names the renderers. It is part of every ParamsHash, so it changes
// whenever equal inputs may produce other objects than before.
const Version = "3 helm/3.22.0 sprig/3.3.0 kustomize/0.21.2 jsonnet/0.22.0"

// A Request has what is needed to render one application.
type Request struct {
	Tenant      hub.TenantID
	Application string
	Namespace   string // of the destination; may be empty
	Project     string
	Revision    string // commit of the first source
	Sources     []hub.Source
	Trees       []hub.Tree // by source index; used by one goroutine during the render
	KubeVersion string     // of the destination; empty: not known yet
	APIVersions []string   // "apps/v1", "apps/v1/Deployment"; empty: not known yet
	// Settings are those of the tenant that hub.Renders names, by key. What is
	// read of them is an input like a file.
	Settings map[string]string
	// Fetch reads the file at an address with one of the schemes, of at most so
	// many bytes. Nil: none can be read.
	Fetch func(address string, schemes []string, most int64) ([]byte, error)
	// Chart returns the archive of a chart that the application's project may
	// have; without Data if it is the one with the digest known. Nil: charts
	// cannot be fetched.
	Chart func(ref hub.ChartRef, known string) (hub.ChartArchive, error)
	// Plugins are those that the tenant may use; Plugin runs one. Nil: none can
	// be run.
	Plugins []InstalledPlugin
	Plugin  func(ctx context.Context, call PluginCall) (PluginReply, error)
	// Describe asks for details of the first source instead of objects.
	Describe bool
	// GeneratePaths is the application's annotation manifest-generate-paths.
	GeneratePaths string
}

// A Result is the complete, error-free outcome of a render. Beside an error
// only Inputs counts: what was read until then, or nothing if that is not all
// that the error depends on.
type Result struct {
	Objects    []Object
	SourceType string      // Helm, Kustomize, Plugin or Directory; several are joined by commas in source order
	Inputs     []hub.Input // everything that was read, each once, in a stable order
	Impure     bool        // a template used the time or random data
	Warnings   []string
	Details    *hub.SourceDetails // of a request that asks for them
}

// An Object is one rendered object with its canonical JSON. The digest of the
// reference is empty: only the store knows a tenant's digest key.
type Object struct {
	Ref  hub.ObjectRef
	JSON []byte
}

// The source types.
const (
	TypeHelm      = "Helm"
	TypeKustomize = "Kustomize"
	TypeDirectory = "Directory"
	TypePlugin    = "Plugin"
)

// RepeatedResource begins the warning about an object that occurs in several
// files or sources (SRC-12).
const RepeatedResource = "RepeatedResourceWarning"

// ParamsHash covers all that decides about the outcome of a render besides
// what it reads: the renderers' version, the application's names and the
// sources. The content of a revision is an input, not part of the hash. So are
// the facts of the cluster and the settings that a render reads.
func ParamsHash(r Request) [sha256.Size]byte { return hashParams(Version, r) }

func hashParams(version string, r Request) [sha256.Size]byte {
	sources := make([]hub.Source, len(r.Sources))
	for i, s := range r.Sources {
		s.TargetRevision, s.TagPrefix, s.Name = "", "", ""
		sources[i] = s
	}
	text, err := json.Marshal(struct {
		Version, Application, Namespace, Project string
		Sources                                  []hub.Source
	}{version, r.Application, r.Namespace, r.Project, sources})
	if err != nil {
		// Only a raw field that is not JSON gets here, and such a spec cannot
		// have been decoded. The hash must still differ from every other.
		text = fmt.Appendf(nil, "%s %#v", version, r)
	}
	return sha256.Sum256(text)
}

// CheckSources refuses sources that cannot be rendered, whatever is in them:
// contradictory ones, and kinds that are not served. It needs no tree, so it
// can be called before anything is fetched.
func CheckSources(sources []hub.Source) error {
	if len(sources) == 0 {
		return fault.New(fault.Invalid, "the application has no source")
	}
	refs := map[string]bool{}
	for i, s := range sources {
		if err := checkSource(s); err != nil {
			return fault.With(err, SourceName(i, s), "")
		}
		if s.Ref == "" {
			continue
		}
		if refs[s.Ref] {
			return fault.With(fault.New(fault.Invalid, "the ref %q is used by another source too", s.Ref), SourceName(i, s), "use a different name for every ref")
		}
		refs[s.Ref] = true
	}
	return nil
}

func checkSource(s hub.Source) error {
	switch {
	case s.Chart != "" && s.Path != "":
		return fault.New(fault.Invalid, "path and chart are both set; a source has one of them")
	case s.Chart != "" && s.Ref != "":
		return fault.New(fault.Invalid, "ref and chart are both set; only a Git source can have a ref")
	case s.Chart != "" && (s.Kustomize != nil || s.Directory != nil):
		return fault.With(fault.New(fault.Invalid, "the chart %q has settings for Kustomize or a directory", s.Chart), "", "remove kustomize and directory")
	}
	_, err := s.PluginBlock()
	return err
}

// Check refuses what cannot be rendered before a worker is bothered.
func (r Request) Check() error {
	if err := CheckSources(r.Sources); err != nil {
		return err
	}
	if len(r.Trees) != len(r.Sources) {
		return fmt.Errorf("render: %d sources, but %d trees", len(r.Sources), len(r.Trees))
	}
	for i, tree := range r.Trees {
		if tree == nil {
			return fmt.Errorf("render: no tree for source %d", i+1)
		}
	}
	return nil
}

// RefOnly reports whether a source only lends its files to others (SRC-10).
func RefOnly(s hub.Source) bool { return s.Ref != "" && s.Path == "" && s.Chart == "" }

// SourceName names a source for users, without a credential in its URL.
func SourceName(i int, s hub.Source) string {
	return fmt.Sprintf("source %d (%s)", i+1, repourl.Redact(s.RepoURL))
}
