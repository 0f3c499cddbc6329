package render

import (
	"context"
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/lru"
)

const (
	sharedBytes     = 64 << 20 // of the results that are cached for one tenant
	mostSharedBytes = 4 << 20  // of each
	mostApart       = 4096     // renders that are known to be for only one application
)

// shared caches the results of a tenant for applications that differ only in
// their names, as those of one folder in many clusters. It lives while any
// application of the tenant is refreshed. A result is used again only if its
// recorded inputs, read with the other name, are the same: the rule by which a
// commit goes without a render.
type shared struct {
	results *lru.Cache[sharedKey, sharedResult]

	mu      sync.Mutex
	pending map[sharedKey]chan struct{} // closed when the render has ended
	apart   map[sharedKey]bool          // what failed, or is of no use to others
}

type sharedKey [sha256.Size]byte

type sharedResult struct {
	application string
	result      Result
}

func newShared() *shared {
	return &shared{
		results: lru.New[sharedKey, sharedResult](sharedBytes), pending: map[sharedKey]chan struct{}{}, apart: map[sharedKey]bool{},
	}
}

// begin waits while a render is under way that may be another application's
// too. Where there is no result after that, it is this one's turn to render,
// and end is to be called; nil: there is one, or it cannot be shared, so that
// others do not wait for it.
func (s *shared) begin(ctx context.Context, key sharedKey) (end func()) {
	for {
		under, end := s.next(key)
		if under == nil {
			return end
		}
		select {
		case <-under:
		case <-ctx.Done():
			return nil
		}
	}
}

// next returns what is to be waited for or, if it is this one's turn, its end.
func (s *shared) next(key sharedKey) (under <-chan struct{}, end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if under, waits := s.pending[key]; waits {
		return under, nil
	}
	if _, done := s.results.Get(key); done || s.apart[key] {
		return nil, nil
	}
	mine := make(chan struct{})
	s.pending[key] = mine
	return nil, func() { s.end(key, mine) }
}

// end lets those go on who wait for a render. What it has not put is not
// waited for again.
func (s *shared) end(key sharedKey, under chan struct{}) {
	_, put := s.results.Get(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !put {
		if len(s.apart) >= mostApart {
			clear(s.apart)
		}
		s.apart[key] = true
	}
	delete(s.pending, key)
	close(under)
}

// nameless reports whether the objects of a kind of source do not depend on the
// application's name, except through files that contain it. A Helm release is
// called like its application.
func nameless(sourceType string) bool {
	return !slices.ContainsFunc(strings.Split(sourceType, ","), func(kind string) bool {
		kind = strings.TrimSpace(kind)
		return kind != TypeDirectory && kind != TypeKustomize
	})
}

func keyOf(r Request, commits []string) sharedKey {
	r.Application = ""
	params := ParamsHash(r)
	return sha256.Sum256([]byte(string(params[:]) + strings.Join(commits, "\x00")))
}

// put stores a result for others.
func (s *shared) put(key sharedKey, application string, res Result) {
	size := 0
	for _, o := range res.Objects {
		size += len(o.JSON)
	}
	if res.Impure || !nameless(res.SourceType) || size > mostSharedBytes {
		return
	}
	s.results.Put(key, sharedResult{application, res}, int64(size))
}

// get returns the result of another application if it is this one's too.
func (s *shared) get(key sharedKey, r Request) (Result, bool) {
	found, ok := s.results.Get(key)
	if !ok {
		return Result{}, false
	}
	res := found.result
	res.Inputs = slices.Clone(res.Inputs)
	for i := range res.Inputs {
		in := &res.Inputs[i]
		if in.Kind != hub.InputFact && in.Kind != hub.InputRemote && in.Kind != hub.InputChart {
			in.Path = renamed(in.Path, found.application, r.Application)
		}
	}
	// After an error the answer is unknown: then it is rendered.
	same, err := Fresh(res.Inputs, r.Trees, r)
	return res, err == nil && same
}

// renamed is the path that is read for the other application.
func renamed(path, from, to string) string {
	if dir, ok := strings.CutSuffix(path, overridesOf(from)); ok && (dir == "" || strings.HasSuffix(dir, "/")) {
		return dir + overridesOf(to)
	}
	return path
}

// overridesOf is the file with an application's own settings.
func overridesOf(application string) string { return ".argocd-source-" + application + ".yaml" }
