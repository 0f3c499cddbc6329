package render

import (
	"testing"

	"github.com/capstan-cd/capstan/hub"
)

func TestRendering(t *testing.T) {
	t.Parallel()
	made := func(change func(*job), inputs ...hub.Input) hub.Rendering {
		j := &job{spec: hub.ApplicationSpec{Source: &hub.Source{RepoURL: "https://example.com/a.git", Path: "app"}}}
		change(j)
		return *j.rendering("t", inputs)
	}
	same := func(*job) {}
	file := hub.Input{Kind: hub.InputFile, Path: "a.yaml", Hash: "1"}
	base := made(same, file)
	if base.Version != Version || base != made(same, file) {
		t.Errorf("FT-G11 %+v, then %+v", base, made(same, file))
	}
	for name, params := range map[string]func(*job){
		"another path":                 func(j *job) { j.spec.Source.Path = "b" },
		"another demand of signatures": func(j *job) { j.integrity = "x" },
	} {
		if got := made(params, file); got.Params == base.Params || got.Inputs != base.Inputs {
			t.Errorf("FT-G11 %s: %+v, before %+v", name, got, base)
		}
	}
	file.Hash = "2"
	if got := made(same, file); got.Inputs == base.Inputs || got.Params != base.Params {
		t.Errorf("FT-G11 another file: %+v, before %+v", got, base)
	}
}
