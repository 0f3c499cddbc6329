package render_test

import (
	"testing"

	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/shared/fault"
)

func TestParseBase(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]render.Base{
		"https://git.example.com/team/repo//base?ref=v1":            {Address: "https://git.example.com/team/repo", Revision: "v1", Dir: "base"},
		"https://git.example.com/team/repo.git/base/a?ref=main":     {Address: "https://git.example.com/team/repo.git", Revision: "main", Dir: "base/a"},
		"https://git.example.com/team/repo.git":                     {Address: "https://git.example.com/team/repo.git", Dir: "."},
		"https://git.example.com/group/sub/team/repo//a/b":          {Address: "https://git.example.com/group/sub/team/repo", Dir: "a/b"},
		"https://git.example.com/team/repo/base":                    {Address: "https://git.example.com/team/repo", Dir: "base"},
		"https://git.example.com/team/repo/":                        {Address: "https://git.example.com/team/repo", Dir: "."},
		"github.com/org/repo/base":                                  {Address: "https://github.com/org/repo", Dir: "base"},
		"git.example.com/org/repo?ref=main":                         {Address: "https://git.example.com/org/repo", Revision: "main", Dir: "."},
		"git@git.example.com:org/repo":                              {Address: "ssh://git@git.example.com/org/repo", Dir: "."},
		"git@git.example.com:org/repo.git//base?version=v2":         {Address: "ssh://git@git.example.com/org/repo.git", Revision: "v2", Dir: "base"},
		"ssh://git@git.example.com:2222/org/repo//base":             {Address: "ssh://git@git.example.com:2222/org/repo", Dir: "base"},
		"git::https://git.example.com/org/repo//base?ref=v1":        {Address: "https://git.example.com/org/repo", Revision: "v1", Dir: "base"},
		"https://dev.azure.com/org/project/_git/repo//base?ref=v1":  {Address: "https://dev.azure.com/org/project/_git/repo", Revision: "v1", Dir: "base"},
		"https://dev.azure.com/org/project/_git/repo/base?ref=v1":   {Address: "https://dev.azure.com/org/project/_git/repo", Revision: "v1", Dir: "base"},
		"https://git.example.com/org/repo//base?timeout=90s&ref=v1": {Address: "https://git.example.com/org/repo", Revision: "v1", Dir: "base"},
	} {
		t.Run("KUST-10 "+written, func(t *testing.T) {
			t.Parallel()
			if got, err := render.ParseBase(written); err != nil || got != want || !render.RemoteBase(written) {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
		})
	}
	for _, written := range []string{
		"https://me:hunter2@example.com/org/repo", "https://example.com/x", "https://example.com", "git@example.com:", "https://example.com/org/repo//../../x",
		"https://raw.example.com/org/repo/main/x.yaml", "https://example.com/x.yaml", "https://example.com/a/b?ref=%zz",
	} {
		t.Run("KUST-10 refused: "+written, func(t *testing.T) {
			t.Parallel()
			if got, err := render.ParseBase(written); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%+v, %v", got, err)
			}
		})
	}
}
