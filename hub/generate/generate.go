// Package generate makes the applications of application sets: it reads the
// spec of a set, has its generators make parameters, and fills the template
// with each of them. It decides nothing about applications that exist, and
// reads nothing by itself: what a set may see comes through Inputs. The loop of
// sets and previews call it.
//
// What always holds: a generator that fails makes no result, so that nothing is
// deleted because of it. Parameters that give no valid application are problems
// of the result, and the others are applications. Specs, files of Git and
// replies of others are untrusted: all that is made of them is bounded.
package generate

import (
	"context"
	"encoding/json"
	"io/fs"
	"slices"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate/scm"
)

// Inputs are what the generators of a set may see.
type Inputs interface {
	scm.Access

	// Clusters returns the clusters that the set may deploy to.
	Clusters(ctx context.Context) ([]Cluster, error)
	// Tree returns the files of a repository at a revision, and their commit.
	Tree(ctx context.Context, url, revision string) (fs.FS, string, error)
	// Decision returns the objects of a clusterDecisionResource generator.
	Decision(ctx context.Context, q DecisionQuery) (Decisions, error)
	// Plugin sends a request to the plugin whose settings have a name, and
	// returns its reply.
	Plugin(ctx context.Context, configMap string, body []byte) ([]byte, error)
}

// A Cluster is one that the clusters generator knows.
type Cluster struct {
	Name        string
	Server      string
	Project     string
	Labels      map[string]string
	Annotations map[string]string
	// Implicit means that nobody registered it: it counts only where a generator
	// selects no labels (AGEN-02).
	Implicit bool
}

// A DecisionQuery is what a clusterDecisionResource generator asks for: objects
// of the kind that a ConfigMap names, by name or by labels.
type DecisionQuery struct {
	ConfigMap string
	Name      string
	Selector  hub.LabelSelector
}

// Decisions are objects whose status lists clusters.
type Decisions struct {
	ListKey  string // of the status; empty: clusters
	MatchKey string // of the elements of that list, with the name of a cluster
	Objects  []map[string]any
}

// Limits bound what one set makes, and say how it reads Git. A zero field means
// its default.
type Limits struct {
	Applications int           // of one set; default 1,000
	Time         time.Duration // that the templates of the set may take; default 10 seconds
	// PathGlobs has * of git.files stop at slashes (enable.new.git.file.globbing).
	PathGlobs bool
	// HiddenDirectories has git.directories find those whose name begins with a dot
	// (reposerver.include.hidden.directories).
	HiddenDirectories bool
}

// Bounds of the inputs of one set.
const (
	defaultApplications = 1000
	defaultTime         = 10 * time.Second
	maxParameterBytes   = 64 << 20 // of all parameters together
	maxTreeEntries      = 500_000  // of one repository
	maxFileBytes        = 1 << 20
)

func (l Limits) withDefaults() Limits {
	if l.Applications <= 0 {
		l.Applications = defaultApplications
	}
	if l.Time <= 0 {
		l.Time = defaultTime
	}
	return l
}

// parameterSets is how many parameter sets a generator may make: selectors can
// leave out many of them.
func (l Limits) parameterSets() int { return max(10_000, 2*l.Applications) }

// A Result is what the generators of a set and its template make.
type Result struct {
	Applications []Generated
	// Problems are parameter sets that gave no valid application. An application
	// with the name of one is neither changed nor deleted. If the name is empty,
	// nothing may be deleted.
	Problems []Problem
	Uses     []hub.SetRepository // what Git generators have read
	Watches  []string            // the places of Git hosts whose events change the result
	// Truncated means that there would be more applications than the set may
	// have: nothing may be deleted.
	Truncated bool
}

// Generated is an application as a set wants it. Its namespace is the set's.
type Generated struct {
	Meta   hub.Meta
	Spec   json.RawMessage
	Params map[string]any
}

// A Problem is why a parameter set gave no application.
type Problem struct {
	Application string // empty: its name is not known
	Generator   string // its path in the set's spec
	Message     string
}

// Generate makes the applications of the set. The error says which generator
// failed, and there is no result then.
func (s *Set) Generate(ctx context.Context, in Inputs, l Limits) (Result, error) {
	l = l.withDefaults()
	r := &round{set: s, in: in, limits: l, templates: s.engine.Start(ctx, l.Time), trees: map[hub.SetRepository]*tree{}}
	out := Result{}
	for _, g := range s.generators {
		if err := r.addAll(ctx, &out, g); err != nil {
			return Result{}, err
		}
	}
	out.Truncated = out.Truncated || r.truncated
	out.Uses = r.uses()
	slices.Sort(r.watches)
	out.Watches = slices.Compact(r.watches)
	withoutDuplicates(&out)
	return out, nil
}
