package render_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

func tree() *rendertest.Tree {
	return rendertest.NewTree(map[string]string{
		"a/x.yaml": "x", "a/sub/z.yaml": "z", "a/.hidden/h.yaml": "h", "b/y.yaml": "y",
		"link a/link": "../b", "link a/file": "x.yaml", "link a/gone": "nowhere", "link a/out": "../../etc", "link a/abs": "/etc/passwd",
		"link loop1": "loop2", "link loop2": "loop1",
	})
}

func recorded(req render.Request, q render.Question) (render.Answer, []string, error) {
	rec := render.NewRecorder(req, render.Limits{})
	a, err := rec.Ask(context.Background(), q)
	var out []string
	for _, in := range rec.Inputs() {
		out = append(out, fmt.Sprintf("%s %s", in.Kind, in.Path))
	}
	return a, out, err
}

func request() render.Request {
	return render.Request{
		Tenant: "t", Application: "web", Namespace: "shop", Project: "p", Revision: "abcdef0123456789",
		Sources: []hub.Source{{RepoURL: "https://git.example/x.git", Path: "a", TargetRevision: "main"}}, Trees: []hub.Tree{tree()},
		KubeVersion: "v1.35.1", APIVersions: []string{"v1", "apps/v1"},
	}
}

func TestEveryLookupIsRecorded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		q      render.Question
		inputs []string
	}{
		"a file":             {render.Question{Op: render.OpRead, Names: []string{"a/x.yaml"}}, []string{"file a/x.yaml"}},
		"a file twice":       {render.Question{Op: render.OpRead, Names: []string{"a/x.yaml", "a/x.yaml"}}, []string{"file a/x.yaml"}},
		"a missing file":     {render.Question{Op: render.OpRead, Names: []string{"a/none"}}, []string{"missing a/none"}},
		"below a file":       {render.Question{Op: render.OpRead, Names: []string{"a/none/deep"}}, []string{"missing a/none/deep"}},
		"through links":      {render.Question{Op: render.OpRead, Names: []string{"a/link/y.yaml", "a/file"}}, []string{"file a/file", "file a/link/y.yaml"}},
		"what stands there":  {render.Question{Op: render.OpStat, Names: []string{"a", "a/x.yaml", "c"}}, []string{"dir a", "file a/x.yaml", "missing c"}},
		"a directory":        {render.Question{Op: render.OpList, Names: []string{"b"}}, []string{"dir b", "list b"}},
		"a missing one":      {render.Question{Op: render.OpList, Names: []string{"none"}}, []string{"missing none"}},
		"below, with links":  {render.Question{Op: render.OpList, Names: []string{"a"}, Recurse: true, Links: true}, []string{"dir a", "list a", "link a/abs", "file a/file", "link a/file", "link a/gone", "missing a/gone", "dir a/link", "link a/link", "list a/link", "link a/out", "list a/sub"}},
		"real":               {render.Question{Op: render.OpReal, Names: []string{"a/link/y.yaml"}}, []string{"link a/link", "file b/y.yaml"}},
		"real of what's not": {render.Question{Op: render.OpReal, Names: []string{"a/link/none/x"}}, []string{"link a/link", "missing b/none"}},
		"a fact":             {render.Question{Op: render.OpFact, Names: []string{"kubeVersion", "apiVersion:apps/v1"}}, []string{"fact apiVersion:apps/v1", "fact kubeVersion"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, inputs, err := recorded(request(), c.q)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.inputs, inputs); d != "" {
				t.Errorf("inputs (-want +got):\n%s", d)
			}
		})
	}
}

func TestQuestionsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, q := range map[string]render.Question{
		"SEC-A2 above the root":       {Op: render.OpRead, Names: []string{"../x"}},
		"SEC-A2 not clean":            {Op: render.OpStat, Names: []string{"a/../b"}},
		"SEC-A2 absolute":             {Op: render.OpRead, Names: []string{"/etc/passwd"}},
		"SEC-A2 empty":                {Op: render.OpRead, Names: []string{""}},
		"SEC-A2 a zero byte":          {Op: render.OpRead, Names: []string{"a\x00b"}},
		"SEC-A2 very long":            {Op: render.OpRead, Names: []string{strings.Repeat("a", 5000)}},
		"SEC-A2 no text":              {Op: render.OpRead, Names: []string{"a\xff"}},
		"SEC-A1 a link out":           {Op: render.OpRead, Names: []string{"a/out/passwd"}},
		"SEC-A1 an absolute link":     {Op: render.OpRead, Names: []string{"a/abs"}},
		"SEC-A1 a circle":             {Op: render.OpRead, Names: []string{"loop1"}},
		"SEC-A1 real: a link out":     {Op: render.OpReal, Names: []string{"a/out"}},
		"SEC-A1 real: absolute":       {Op: render.OpReal, Names: []string{"a/abs"}},
		"SEC-A1 real: a circle":       {Op: render.OpReal, Names: []string{"loop1"}},
		"a directory as a file":       {Op: render.OpRead, Names: []string{"a"}},
		"another source":              {Op: render.OpRead, Source: 1, Names: []string{"a"}},
		"a source below zero":         {Op: render.OpRead, Source: -1, Names: []string{"a"}},
		"no name":                     {Op: render.OpList},
		"a question that is unknown":  {Op: "shell", Names: []string{"a"}},
		"SEC-A1 a list through links": {Op: render.OpList, Names: []string{"a/out"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _, err := recorded(request(), q)
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("answer %+v, error %v, want one of kind %q", a, err, fault.Invalid)
			}
		})
	}
	t.Run("SEC-B2 limits", func(t *testing.T) {
		t.Parallel()
		for name, l := range map[string]render.Limits{"inputs": {Inputs: 2}, "bytes": {InputBytes: 2}} {
			rec := render.NewRecorder(request(), l)
			_, err := rec.Ask(t.Context(), render.Question{Op: render.OpRead, Names: []string{"a/x.yaml", "b/y.yaml", "a/sub/z.yaml"}})
			if fault.KindOf(err) != fault.Exceeded {
				t.Errorf("%s: error %v, want one of kind %q", name, err, fault.Exceeded)
			}
		}
	})
	t.Run("SEC-B12 links that multiply", func(t *testing.T) {
		t.Parallel()
		files := map[string]string{"d/f": "x"}
		for i := range 8 {
			files[fmt.Sprintf("link d/l%d", i)] = "."
		}
		req := request()
		req.Trees = []hub.Tree{rendertest.NewTree(files)}
		_, err := render.NewRecorder(req, render.Limits{Inputs: 5_000}).Ask(t.Context(), render.Question{Op: render.OpList, Names: []string{"d"}, Recurse: true, Links: true})
		if kind := fault.KindOf(err); kind != fault.Exceeded && kind != fault.Invalid {
			t.Errorf("error %v, want a limit", err)
		}
	})
	t.Run("a tree that fails is an internal error", func(t *testing.T) {
		t.Parallel()
		req := request()
		req.Trees[0].(*rendertest.Tree).Break(errors.New("disk on fire"))
		rec := render.NewRecorder(req, render.Limits{})
		if _, err := rec.Ask(t.Context(), render.Question{Op: render.OpRead, Names: []string{"a/x.yaml"}}); fault.KindOf(err) != fault.Internal || rec.Trouble() == nil {
			t.Errorf("error %v, trouble %v", err, rec.Trouble())
		}
	})
}

func TestFresh(t *testing.T) {
	t.Parallel()
	rec := render.NewRecorder(request(), render.Limits{})
	for _, q := range []render.Question{
		{Op: render.OpRead, Names: []string{"a/x.yaml", "a/none", "a/link/y.yaml"}},
		{Op: render.OpList, Names: []string{"b"}},
		{Op: render.OpReal, Names: []string{"a/file"}},
		{Op: render.OpStat, Names: []string{"a/sub"}},
		{Op: render.OpFact, Names: []string{"kubeVersion", "apiVersion:apps/v1", "apiVersion:x/v1", "env:ARGOCD_APP_SOURCE_TARGET_REVISION"}},
	} {
		if _, err := rec.Ask(t.Context(), q); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		files  map[string]string
		change func(*render.Request)
		want   bool
	}{
		"nothing changed":                  {want: true},
		"INV-6 something else":             {files: map[string]string{"c/new": "x", "a/sub/z.yaml": "other", "b/y.yaml": "y"}, want: true},
		"a file":                           {files: map[string]string{"a/x.yaml": "other"}},
		"a file is gone":                   {files: map[string]string{"a/x.yaml": ""}},
		"a missing file appears":           {files: map[string]string{"a/none": "x"}},
		"a file behind a link":             {files: map[string]string{"b/y.yaml": "other"}},
		"a link leads elsewhere":           {files: map[string]string{"link a/file": "sub/z.yaml"}},
		"a link leads outside":             {files: map[string]string{"link a/file": "../../x"}},
		"a new name in a listed directory": {files: map[string]string{"b/new": "x"}},
		"a directory becomes a file":       {files: map[string]string{"a/sub/z.yaml": "", "a/sub": "x"}},
		"the cluster's version":            {change: func(r *render.Request) { r.KubeVersion = "v1.36.0" }},
		"an API that was asked for":        {change: func(r *render.Request) { r.APIVersions = append([]string{"x/v1"}, r.APIVersions...) }},
		"an API that was not":              {change: func(r *render.Request) { r.APIVersions = append([]string{"q/v1"}, r.APIVersions...) }, want: true},
		"a revision that was asked for":    {change: func(r *render.Request) { r.Sources[0].TargetRevision = "v2" }},
		"fewer sources":                    {change: func(r *render.Request) { r.Trees = nil }},
		"a source without a tree":          {change: func(r *render.Request) { r.Trees = []hub.Tree{nil} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			req := request()
			req.Trees = []hub.Tree{tree().With(c.files)}
			if c.change != nil {
				c.change(&req)
			}
			fresh, err := render.Fresh(rec.Inputs(), req.Trees, req)
			if err != nil || fresh != c.want {
				t.Errorf("fresh is %v (%v), want %v", fresh, err, c.want)
			}
			for _, tr := range req.Trees {
				if tr != nil && len(tr.(*rendertest.Tree).Reads()) > 0 {
					t.Error("contents were read")
				}
			}
		})
	}
	t.Run("a tree that fails is an error, not an answer", func(t *testing.T) {
		t.Parallel()
		broken := tree()
		broken.Break(errors.New("disk on fire"))
		for _, in := range rec.Inputs() {
			if in.Kind == hub.InputFact {
				continue
			}
			if fresh, err := render.Fresh([]hub.Input{in}, []hub.Tree{broken}, request()); fresh || err == nil {
				t.Errorf("input %+v: fresh is %v, error %v", in, fresh, err)
			}
		}
	})
}

func TestParamsHash(t *testing.T) {
	t.Parallel()
	base := render.ParamsHash(request())
	for name, c := range map[string]struct {
		change func(*render.Request)
		same   bool
	}{
		"the revision is no part":           {func(r *render.Request) { r.Revision = "other"; r.Sources[0].TargetRevision = "v2" }, true},
		"nor is the cluster":                {func(r *render.Request) { r.KubeVersion = "v9"; r.APIVersions = nil }, true},
		"nor are trees":                     {func(r *render.Request) { r.Trees = nil }, true},
		"the path":                          {func(r *render.Request) { r.Sources[0].Path = "b" }, false},
		"the repository":                    {func(r *render.Request) { r.Sources[0].RepoURL = "https://git.example/z.git" }, false},
		"the name":                          {func(r *render.Request) { r.Application = "other" }, false},
		"the namespace":                     {func(r *render.Request) { r.Namespace = "other" }, false},
		"the project":                       {func(r *render.Request) { r.Project = "other" }, false},
		"a parameter":                       {func(r *render.Request) { r.Sources[0].Helm = &hub.HelmSource{Values: "a: b"} }, false},
		"an empty block is not none":        {func(r *render.Request) { r.Sources[0].Directory = &hub.DirectorySource{} }, false},
		"another source":                    {func(r *render.Request) { r.Sources = append(r.Sources, hub.Source{}) }, false},
		"names cannot run into one another": {func(r *render.Request) { r.Application, r.Namespace = "we", "bshop" }, false},
	} {
		req := request()
		c.change(&req)
		if got := render.ParamsHash(req) == base; got != c.same {
			t.Errorf("%s: same hash is %v, want %v", name, got, c.same)
		}
	}
}
