// Package explore looks into repositories for forms that people fill in: which
// sources there are, and what can be set about one. The API calls it. Files are
// read by a render worker; nothing is stored.
package explore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/bmatcuk/doublestar/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/plugin"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	limit     = 2 * time.Minute // of one look
	maxFound  = 2_000
	maxFiles  = 200_000
	maxNested = 64
)

// An Explorer looks into repositories. Many goroutines may use it.
type Explorer struct {
	sources  Sources
	renderer render.Renderer
	plugins  *plugin.Runner
}

// Sources are the repositories that it looks into.
type Sources interface {
	render.Sources
	// List returns what a repository of charts or artifacts publishes.
	List(ctx context.Context, tenant hub.TenantID, repo hub.Repository) (hub.Listing, error)
}

// New makes one.
func New(sources Sources, renderer render.Renderer, plugins *plugin.Runner) *Explorer {
	return &Explorer{sources, renderer, plugins}
}

// Plugins are those that applications of a tenant may use.
func (e *Explorer) Plugins(tenant hub.TenantID) []hub.DeclaredPlugin {
	return e.plugins.Declared(tenant)
}

// source is the source that a view shows.
func source(v hub.SourceView) hub.Source {
	return hub.Source{RepoURL: v.Repository.URL, Path: v.Path, Chart: v.Chart, TargetRevision: v.Revision}
}

// open resolves the revision of a view and opens its files. A chart or an
// artifact is downloaded if it is not here.
func (e *Explorer) open(ctx context.Context, v hub.SourceView) (hub.Tree, error) {
	repo := v.Repository
	git := repo.Type.OrDefault() == hub.GitRepository
	switch {
	case git && v.Chart != "":
		return nil, fault.With(fault.New(fault.Invalid, "it is a Git repository, which has no charts by name"), "", "name the path of the chart")
	case repo.Type == hub.HelmRepository && v.Chart == "":
		return nil, fault.With(fault.New(fault.Invalid, "it is a repository of charts, and none is named"), "", "name a chart")
	case git && repo.FetchedAt == nil && repo.Error != "":
		return nil, fault.New(fault.Offline, "%s", repo.Error)
	case git && repo.FetchedAt == nil:
		return nil, fault.With(fault.New(fault.Offline, "the repository has not been fetched yet"), "", "it is fetched once it is registered; try again")
	}
	repo = repo.For(source(v), v.Refs)
	commit, err := e.sources.Resolve(ctx, v.Tenant, repo, v.Refs, v.Revision, "")
	if err != nil {
		return nil, err
	}
	tree, err := e.sources.Tree(ctx, v.Tenant, repo, commit)
	if err != nil {
		return nil, err
	}
	return render.WithSettings(tree, v.Settings), nil
}

// Info returns what is known of the revision of a view: the author and message
// of a commit, the Chart.yaml of a chart, the annotations of an artifact.
func (e *Explorer) Info(ctx context.Context, v hub.SourceView) (hub.CommitInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tree, err := e.open(ctx, v)
	if err != nil {
		return hub.CommitInfo{}, err
	}
	return tree.Info(), nil
}

// List returns what the repository of a view publishes: the charts of an index,
// or the tags of a registry.
func (e *Explorer) List(ctx context.Context, v hub.SourceView) (hub.Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return e.sources.List(ctx, v.Tenant, v.Repository.For(source(v), v.Refs))
}

// Apps finds the charts and kustomizations of a repository, and directories
// that a plugin discovers by a file name. Those of an index are its charts,
// which have no commit.
func (e *Explorer) Apps(ctx context.Context, v hub.SourceView) (string, []hub.FoundSource, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if v.Repository.Type == hub.HelmRepository && v.Chart == "" {
		l, err := e.List(ctx, v)
		out := make([]hub.FoundSource, len(l.Charts))
		for i, c := range l.Charts {
			out[i] = hub.FoundSource{Path: ".", Chart: c.Name, Type: render.TypeHelm}
		}
		return "", out, err
	}
	tree, err := e.open(ctx, v)
	if err != nil {
		return "", nil, err
	}
	s := &search{tree: tree, plugins: e.plugins.Installed(v.Tenant)}
	if err := s.walk(ctx, ".", 0); err != nil {
		return "", nil, err
	}
	return tree.Commit(), s.found, nil
}

// A search walks a tree.
type search struct {
	tree    hub.Tree
	plugins []render.InstalledPlugin
	files   int
	found   []hub.FoundSource
}

func (s *search) walk(ctx context.Context, dir string, depth int) error {
	if depth > maxNested || ctx.Err() != nil {
		return ctx.Err()
	}
	entries, err := s.tree.ReadDir(dir)
	if kind := fault.KindOf(err); kind == fault.Invalid || errors.Is(err, fs.ErrInvalid) {
		return nil // a submodule, or what cannot be a source either
	}
	if err != nil {
		return fmt.Errorf("list %q: %w", dir, err)
	}
	if s.files += len(entries); s.files > maxFiles || len(s.found) >= maxFound {
		return fault.New(fault.Exceeded, "the repository has more than %d files or %d sources", maxFiles, maxFound)
	}
	if kind := s.kind(entries); kind != "" {
		s.found = append(s.found, hub.FoundSource{Path: dir, Type: kind})
	}
	for _, d := range entries {
		if !d.IsDir() || strings.HasPrefix(d.Name(), ".") {
			continue
		}
		if err := s.walk(ctx, path.Join(dir, d.Name()), depth+1); err != nil {
			return err
		}
	}
	return nil
}

// kind is the type of a directory by the names of its files, as renders find it.
func (s *search) kind(entries []fs.DirEntry) string {
	has := func(pattern string) bool {
		return slices.ContainsFunc(entries, func(d fs.DirEntry) bool {
			ok, err := doublestar.Match(pattern, d.Name())
			return ok && err == nil
		})
	}
	for _, p := range s.plugins {
		if p.FileName != "" && has(p.FileName) {
			return render.TypePlugin
		}
	}
	switch {
	case has("{kustomization.yaml,kustomization.yml,Kustomization}"):
		return render.TypeKustomize
	case has("Chart.yaml"):
		return render.TypeHelm
	}
	return ""
}

// Details describes a source.
func (e *Explorer) Details(ctx context.Context, v hub.SourceView) (hub.SourceDetails, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tree, err := e.open(ctx, v)
	if err != nil {
		return hub.SourceDetails{}, err
	}
	source := source(v)
	if v.Plugin != "" {
		if source.Plugin, err = json.Marshal(hub.PluginSource{Name: v.Plugin}); err != nil {
			return hub.SourceDetails{}, fault.New(fault.Invalid, "the name of the plugin cannot be read")
		}
	}
	res, err := e.renderer.Render(ctx, render.Request{
		Tenant: v.Tenant, Application: v.Application, Project: "default", Revision: tree.Commit(), Describe: true,
		Sources: []hub.Source{source}, Trees: []hub.Tree{tree}, Settings: v.Settings, Plugins: e.plugins.Installed(v.Tenant),
		Plugin: func(ctx context.Context, call render.PluginCall) (render.PluginReply, error) {
			call.Repository = v.Repository
			return e.plugins.Run(ctx, call)
		},
	})
	if err != nil {
		return hub.SourceDetails{}, err
	}
	if res.Details == nil {
		return hub.SourceDetails{}, fault.New(fault.Internal, "the renderer described nothing")
	}
	res.Details.Commit = tree.Commit()
	return *res.Details, nil
}
