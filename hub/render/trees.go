package render

import (
	"context"
	"errors"
	"io/fs"

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
		repo := j.refresh.Sources[i].Repository
		key := string(repo.ID) + commit
		tree, ok := (*t)[key]
		if !ok {
			var err error
			if tree, err = s.sources.Tree(ctx, tenant, repo, commit); err != nil {
				return nil, err
			}
			tree = &answeredTree{Tree: tree, inputs: map[question]hub.Input{}, stats: map[string]stat{}}
			(*t)[key] = tree
		}
		out[i] = tree
	}
	return out, nil
}

// An answeredTree caches the answers that many applications of one folder need.
// It belongs to one goroutine.
type answeredTree struct {
	hub.Tree
	inputs map[question]hub.Input
	stats  map[string]stat
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
