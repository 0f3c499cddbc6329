package rendertest

import (
	"path"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
)

// Request is one request of a tenant for a source over some files. More trees
// may be added for sources that refer to each other.
func Request(source hub.Source, files map[string]string) render.Request {
	if source.RepoURL == "" {
		source.RepoURL = "https://git.example/app.git"
	}
	tree := NewTree(files)
	return render.Request{
		Tenant: "0198c0de-0000-7000-8000-000000000001", Application: "web", Namespace: "shop", Project: "default",
		Revision: tree.Commit(), Sources: []hub.Source{source}, Trees: []hub.Tree{tree},
	}
}

// Job returns the job of one source of a request as a renderer gets it, without
// a worker, and its recorder.
func Job(req render.Request, index int) (render.Job, *render.Recorder) {
	rec := render.NewRecorder(req, render.Limits{})
	refs := map[string]int{}
	for i, s := range req.Sources {
		if s.Ref != "" {
			refs[s.Ref] = i
		}
	}
	s := req.Sources[index]
	return render.Job{
		Application: req.Application, Namespace: req.Namespace, Index: index, Source: s, Dir: path.Clean("./" + s.Path),
		Refs: refs, Files: render.Files{Access: rec, Source: index}, Limits: render.DefaultLimits(),
	}, rec
}

// Text returns the canonical JSON of all objects of an output, one a line, in
// the order in which they are stored.
func Text(t testing.TB, out render.Output, namespace string) string {
	t.Helper()
	made, _, err := render.Assemble(out.Objects, namespace, render.Limits{})
	if err != nil {
		t.Fatalf("Assemble: %v", err)
	}
	var b strings.Builder
	for _, o := range made {
		b.Write(o.JSON)
		b.WriteByte('\n')
	}
	return b.String()
}

// Names returns "Kind name" of all objects of an output, in order.
func Names(out render.Output) []string {
	names := []string{}
	for _, o := range out.Objects {
		names = append(names, o.Object.GetKind()+" "+o.Object.GetName())
	}
	return names
}
