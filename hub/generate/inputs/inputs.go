// Package inputs has the generators of an application set see what the project
// of the set may see: clusters that it may deploy to, repositories that it may
// read, and the hosts and secrets of package scm. It writes nothing. The
// catalogue calls it to generate a set.
//
// What always holds: a repository that the project does not permit is not
// opened, a cluster that it does not reach is not listed, and an error is no
// empty list.
package inputs

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/generate"
	"github.com/capstan-cd/capstan/hub/generate/scm"
	"github.com/capstan-cd/capstan/hub/generate/scmaccess"
	"github.com/capstan-cd/capstan/hub/plan"
	"github.com/capstan-cd/capstan/hub/repourl"
	"github.com/capstan-cd/capstan/shared/fault"
)

// A View is what the hub knows that generators of a project may see.
type View struct {
	Project  *hub.Project // with what it inherits; nil: a set of any project
	Clusters []hub.Cluster
	Settings map[string]string // of hub.ParamsMap
	// PublicKeys check signatures of commits, where the project demands them.
	PublicKeys []string
}

// Store reads what the hub knows, each call at one moment.
type Store interface {
	// View is of a project; hub.AnyProject: of the whole tenant.
	View(ctx context.Context, tenant hub.TenantID, project string) (View, error)
	// Repository returns what sets of a project use for a normalised URL, with its
	// refs. The error is fault.Missing if it is not known.
	Repository(ctx context.Context, tenant hub.TenantID, url, project string) (hub.Repository, []hub.Ref, error)
}

// Sources open the files of repositories.
type Sources interface {
	Resolve(ctx context.Context, tenant hub.TenantID, repo hub.Repository, refs []hub.Ref, revision, tagPrefix string) (commit string, err error)
	Tree(ctx context.Context, tenant hub.TenantID, repo hub.Repository, commit string) (hub.Tree, error)
}

// Signatures check what projects demand of commits.
type Signatures interface {
	Verify(ctx context.Context, tenant hub.TenantID, repo hub.Repository, d hub.SignatureDemand) error
}

// Access returns the hosts and secrets that a set may use. Fresh means that what
// hosts said before does not count.
type Access func(tenant hub.TenantID, s hub.ApplicationSet, settings map[string]string, fresh bool) scm.Access

// A Generator generates sets. Many goroutines may use it.
type Generator struct {
	store      Store
	sources    Sources
	signatures Signatures
	access     Access
	now        func() time.Time
}

// New makes a generator.
func New(store Store, sources Sources, signatures Signatures, access Access, now func() time.Time) *Generator {
	return &Generator{store: store, sources: sources, signatures: signatures, access: access, now: now}
}

// Check reports what is wrong with a set, and returns warnings for people.
func (g *Generator) Check(s hub.ApplicationSet) (warnings []string, err error) {
	set, err := generate.Parse(s.Name, s.Spec)
	if err != nil {
		return nil, err
	}
	return set.Warnings(), nil
}

// Settings are the keys of hub.ParamsMap that a View has.
func Settings() []string {
	return append(scmaccess.Settings(), hub.SetGlobbingKey, hub.HiddenDirectoriesKey)
}

const (
	standardRequeue = 3 * time.Minute // where neither the generator nor the tenant says another
	unlimited       = 100_000         // applications of a set without a limit
)

// Generate returns what the generators of a set make. A repository that the hub
// has not fetched yet is what the result waits for.
func (g *Generator) Generate(ctx context.Context, tenant hub.TenantID, s hub.ApplicationSet, l hub.GenerationLimit) (hub.Generation, error) {
	set, err := generate.Parse(s.Name, s.Spec)
	if err != nil {
		return hub.Generation{}, err
	}
	view, err := g.store.View(ctx, tenant, s.Project)
	if err != nil {
		return hub.Generation{}, fmt.Errorf("read what application set %q may see: %w", s.Name, err)
	}
	in := &inputs{Access: g.access(tenant, s, view.Settings, l.Fresh), g: g, tenant: tenant, set: s, view: view}
	found, err := set.Generate(ctx, in, generate.Limits{
		Applications: cmp.Or(l.Applications, unlimited), PathGlobs: view.Settings[hub.SetGlobbingKey] == "true",
		HiddenDirectories: view.Settings[hub.HiddenDirectoriesKey] == "true",
	})
	if in.waits != "" {
		return hub.Generation{Waits: in.waits, Uses: append(s.Status.Uses, in.uses...)}, nil
	}
	if err != nil {
		return hub.Generation{}, err
	}
	out := hub.Generation{Uses: found.Uses, Watches: found.Watches, Requeue: set.Requeue(cmp.Or(l.Requeue, standardRequeue)), Truncated: found.Truncated}
	for _, a := range found.Applications {
		out.Applications = append(out.Applications, hub.GeneratedApplication{Meta: a.Meta, Spec: a.Spec, Params: a.Params})
	}
	for _, p := range found.Problems {
		out.Problems = append(out.Problems, hub.GenerationProblem{Application: p.Application, Message: strings.TrimPrefix(p.Generator+": "+p.Message, ": ")})
	}
	return out, nil
}

// inputs are those of one set.
type inputs struct {
	scm.Access

	g      *Generator
	tenant hub.TenantID
	set    hub.ApplicationSet
	view   View

	uses  []hub.SetRepository // that are not fetched yet
	waits string              // for what; empty: for nothing
}

// project is that of the set; empty: it may be any.
func (in *inputs) project() string {
	if in.view.Project == nil {
		return ""
	}
	return in.view.Project.Name
}

// Tree returns the files of a repository at a revision, and their commit.
func (in *inputs) Tree(ctx context.Context, url, revision string) (fs.FS, string, error) {
	object := "repository " + repourl.Redact(url)
	if in.view.Project != nil {
		asked := hub.Refresh{Application: hub.Application{Project: in.project()}, Project: in.view.Project}
		if err := plan.PermitsRepository(asked, url); err != nil {
			return nil, "", fault.With(err, object, "")
		}
	}
	normal, err := repourl.Normalize(url)
	if err != nil {
		return nil, "", fault.With(err, object, "")
	}
	repo, refs, err := in.g.store.Repository(ctx, in.tenant, normal, in.project())
	if fault.KindOf(err) == fault.Missing || err == nil && repo.FetchedAt == nil && repo.Error == "" {
		in.uses = append(in.uses, hub.SetRepository{URL: url, Revision: revision})
		in.waits = object + " is being fetched"
		return nil, "", fault.New(fault.Offline, "%s", in.waits)
	}
	if err != nil {
		return nil, "", err
	}
	if err := in.usable(repo); err != nil {
		return nil, "", fault.With(err, object, "")
	}
	commit, err := in.g.sources.Resolve(ctx, in.tenant, repo, refs, revision, "")
	if err != nil {
		return nil, "", err
	}
	if err := in.verify(ctx, repo, url, revision, commit); err != nil {
		return nil, "", fault.With(err, object, "")
	}
	tree, err := in.g.sources.Tree(ctx, in.tenant, repo, commit)
	return tree, commit, err
}

// usable refuses a repository of another project, and one that cannot be reached
// for long: its files may be of long ago (FT-G2).
func (in *inputs) usable(repo hub.Repository) error {
	switch {
	case repo.Project != "" && repo.Project != in.project():
		return fault.New(fault.Denied, "the repository belongs to project %q", repo.Project)
	case repo.Type.OrDefault() != hub.GitRepository:
		return fault.New(fault.Invalid, "the repository is registered as one of type %s, and Git generators read Git repositories", repo.Type)
	case repo.Error != "" && (repo.FetchedAt == nil || repo.ErrorSince != nil && in.g.now().Sub(*repo.ErrorSince) >= hub.ErrorGrace):
		return fault.New(fault.Offline, "%s", repo.Error)
	}
	return nil
}

// verify checks the signature that the project demands of a commit (AGEN-06).
func (in *inputs) verify(ctx context.Context, repo hub.Repository, url, revision, commit string) error {
	if in.view.Project == nil {
		return nil
	}
	spec, err := in.view.Project.Effective()
	if err != nil {
		return err
	}
	policy, demanded := spec.Of(url)
	if !demanded {
		return nil
	}
	return in.g.signatures.Verify(ctx, in.tenant, repo, hub.SignatureDemand{Revision: revision, Commit: commit, Policy: policy, Keys: in.view.PublicKeys})
}

// Decision is not served: agents report no objects of other tools' kinds.
func (in *inputs) Decision(context.Context, generate.DecisionQuery) (generate.Decisions, error) {
	return generate.Decisions{}, fault.With(fault.New(fault.Invalid, "the generator clusterDecisionResource is not served: the hub does not read objects of other tools"), "",
		"use the clusters generator, and label clusters")
}

// Plugin is not served: settings carry no ConfigMaps of plugins.
func (in *inputs) Plugin(context.Context, string, []byte) ([]byte, error) {
	return nil, fault.With(fault.New(fault.Invalid, "the generator plugin is not served"), "", "write the parameters as files of a repository, and use the Git generator")
}
