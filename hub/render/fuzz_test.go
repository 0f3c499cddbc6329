package render_test

import (
	"encoding/json"
	"io/fs"
	"strings"
	"testing"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Every question of a worker is answered or refused with a class. What the hub
// records is inside the tree and true of it.
func FuzzQuestions(f *testing.F) {
	for _, q := range []string{
		`{"op":"read","n":["a/x.yaml","a/none"]}`, `{"op":"list","n":["a"],"r":true,"h":true,"l":true}`, `{"op":"list","n":["."],"r":true}`,
		`{"op":"real","n":["a/link/y.yaml"]}`, `{"op":"real","n":["loop1"]}`, `{"op":"stat","n":["a/out","../x","/etc/passwd","a\u0000"]}`,
		`{"op":"fact","n":["kubeVersion","apiVersion:x","env:ARGOCD_APP_NAME","env:\u0000"],"s":-7}`, `{"op":"fact","n":[""],"s":99}`,
		`{"op":"read","s":1,"n":["a"]}`, `{"op":"","n":[]}`, `{"op":"read","n":["a/abs","a/gone","a/file"]}`, `{"op":"real","n":["a/sub/../../../x"]}`,
	} {
		f.Add([]byte(q))
	}
	for _, p := range rendertest.HostilePaths() {
		if text, err := json.Marshal(render.Question{Op: render.OpRead, Names: []string{p}}); err == nil && len(text) < 10_000 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var q render.Question
		if json.Unmarshal(data, &q) != nil {
			return
		}
		req := request()
		rec := render.NewRecorder(req, render.Limits{Inputs: 1000})
		a, err := rec.Ask(t.Context(), q)
		if kind := fault.KindOf(err); err != nil && kind != fault.Invalid && kind != fault.Exceeded {
			t.Fatalf("%s: error %v (kind %q)", data, err, kind)
		}
		if rec.Trouble() != nil {
			t.Fatalf("%s: trouble %v", data, rec.Trouble())
		}
		if err == nil && q.Op != render.OpFact && len(a.Stats)+len(a.Files)+len(a.Entries) == 0 {
			t.Fatalf("%s: no answer", data)
		}
		for _, in := range rec.Inputs() {
			if in.Kind != hub.InputFact && !fs.ValidPath(in.Path) || strings.ContainsRune(in.Path, 0) || len(in.Path) > 4096 {
				t.Fatalf("%s: input %+v", data, in)
			}
		}
		if fresh, err := render.Fresh(rec.Inputs(), req.Trees, req); err != nil || !fresh {
			t.Fatalf("%s: inputs %+v are not fresh where they were noted: %v", data, rec.Inputs(), err)
		}
	})
}
