package render

import (
	"context"
	"errors"
	"io/fs"
	"strconv"
	"strings"

	"github.com/capstan-cd/capstan/hub"
)

// A treeSet has the open trees of one goroutine.
type treeSet map[string]hub.Tree

func (t *treeSet) open(ctx context.Context, s *Stage, tenant hub.TenantID, j *job) ([]hub.Tree, error) {
	if *t == nil {
		*t = treeSet{}
	}
	out := make([]hub.Tree, len(j.commits))
	for i, commit := range j.commits {
		if j.upload != nil && j.upload.at == i { // for this job alone
			tree := s.withBases(ctx, tenant, j.upload.tree, j.refresh, j.refresh.Sources[i].Repository)
			out[i] = answering(tree)
			continue
		}
		state := j.refresh.Sources[i]
		repo := state.Repository.For(j.spec.EffectiveSources()[i], state.Refs)
		key := string(repo.ID) + repo.Use.Target.Chart + "@" + commit + j.refresh.Application.Project
		tree, ok := (*t)[key]
		if !ok {
			var err error
			if tree, err = s.sources.Tree(ctx, tenant, repo, commit); err != nil {
				return nil, err
			}
			if s.permitsRepository != nil {
				tree = permitting(tree, func(url string) error { return s.permitsRepository(j.refresh, url) })
			}
			tree = answering(s.withBases(ctx, tenant, WithSettings(tree, j.refresh.Settings), j.refresh, repo))
			(*t)[key] = tree
		}
		out[i] = tree
	}
	return out, nil
}

// permitting returns a tree of which submodules are read only if the project
// permits their repositories.
func permitting(tree hub.Tree, permit func(url string) error) hub.Tree {
	if t, ok := tree.(interface {
		Permitting(permit func(url string) error) hub.Tree
	}); ok {
		return t.Permitting(permit)
	}
	return tree
}

// WithSettings returns a tree as the tenant's settings have it read: without
// submodules, if they are switched off.
func WithSettings(tree hub.Tree, settings map[string]string) hub.Tree {
	on, err := strconv.ParseBool(strings.TrimSpace(settings[hub.SubmodulesKey]))
	if t, ok := tree.(interface{ WithoutSubmodules() hub.Tree }); ok && err == nil && !on {
		return t.WithoutSubmodules()
	}
	return tree
}

// An answeredTree caches the answers that many applications of one folder need.
// It belongs to one goroutine.
type answeredTree struct {
	hub.Tree
	inputs map[question]hub.Input
	stats  map[string]stat
}

func answering(tree hub.Tree) *answeredTree {
	return &answeredTree{Tree: tree, inputs: map[question]hub.Input{}, stats: map[string]stat{}}
}

// A stat is what is at a name, or that there is nothing.
type stat struct {
	info fs.FileInfo
	err  error
}

type question struct {
	kind hub.InputKind
	path string
}

// mostAnswers bounds the memory of one tree.
const mostAnswers = 4096

// Stat is that of the tree.
func (t *answeredTree) Stat(name string) (fs.FileInfo, error) {
	if s, ok := t.stats[name]; ok {
		return s.info, s.err
	}
	info, err := t.Tree.Stat(name)
	if (err == nil || errors.Is(err, fs.ErrNotExist)) && len(t.stats) < mostAnswers {
		t.stats[name] = stat{info, err}
	}
	return info, err
}

// Input is that of the tree.
func (t *answeredTree) Input(kind hub.InputKind, name string) (hub.Input, error) {
	q := question{kind, name}
	if in, ok := t.inputs[q]; ok {
		return in, nil
	}
	in, err := t.Tree.Input(kind, name)
	if err == nil && len(t.inputs) < mostAnswers {
		t.inputs[q] = in
	}
	return in, err
}
