package render

import (
	"crypto/sha256"
	"slices"
	"strings"
	"sync"

	"github.com/capstan-cd/capstan/hub"
)

const (
	mostShared      = 16      // results that are kept while a round lasts
	mostSharedBytes = 4 << 20 // of each
)

// shared keeps results of a round for applications that differ in nothing but
// their names, as those of one folder in many clusters do. A result is used
// again only if its recorded inputs, read with the other name, are the same:
// the rule by which a commit goes without a render.
type shared struct {
	mu      sync.Mutex
	results map[[sha256.Size]byte]sharedResult
}

type sharedResult struct {
	application string
	result      Result
}

// nameless says whether a kind of source makes the same objects whatever the
// application is called, but for the files that the name stands in. A Helm
// release is called like its application.
func nameless(sourceType string) bool {
	return !slices.ContainsFunc(strings.Split(sourceType, ","), func(kind string) bool {
		kind = strings.TrimSpace(kind)
		return kind != TypeDirectory && kind != TypeKustomize
	})
}

func sharedKey(r Request, commits []string) [sha256.Size]byte {
	r.Application = ""
	params := ParamsHash(r)
	return sha256.Sum256([]byte(string(params[:]) + strings.Join(commits, "\x00")))
}

// put keeps a result for others.
func (s *shared) put(r Request, commits []string, res Result) {
	size := 0
	for _, o := range res.Objects {
		size += len(o.JSON)
	}
	if res.Impure || !nameless(res.SourceType) || size > mostSharedBytes {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.results) < mostShared {
		if s.results == nil {
			s.results = map[[sha256.Size]byte]sharedResult{}
		}
		s.results[sharedKey(r, commits)] = sharedResult{r.Application, res}
	}
}

// get gives the result of another application if it is this one's too.
func (s *shared) get(r Request, commits []string) (Result, bool) {
	s.mu.Lock()
	found, ok := s.results[sharedKey(r, commits)]
	s.mu.Unlock()
	if !ok {
		return Result{}, false
	}
	res := found.result
	res.Inputs = slices.Clone(res.Inputs)
	for i := range res.Inputs {
		in := &res.Inputs[i]
		if in.Kind != hub.InputFact {
			in.Path = renamed(in.Path, found.application, r.Application)
		}
	}
	// An error says that it cannot be found out: then it is rendered.
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
