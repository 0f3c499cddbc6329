package render_test

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/capstan-cd/capstan/hub/render"
	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/shared/fault"
)

// SEC-A2: whatever is written, the name that is looked up is inside the tree.
func FuzzWithin(f *testing.F) {
	for _, s := range []string{"a", "../a", "../../a", "/a", "//a", "/../a", "a/../../b", ".", "", "..", "a//b", "./a/./b", `..\a`, "%2e%2e/a", "a\x00", "．．/a", ".git/config", "a/"} {
		f.Add("apps/web", s)
		f.Add(".", s)
	}
	f.Fuzz(func(t *testing.T, dir, written string) {
		if !fs.ValidPath(dir) {
			t.Skip()
		}
		name, err := render.Within(dir, written)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("error %v", err)
			}
			return
		}
		if utf8.ValidString(written) && !fs.ValidPath(name) {
			t.Errorf("Within(%q, %q) gives %q", dir, written, name)
		}
		req := request()
		rec := render.NewRecorder(req, render.Limits{})
		a, err := rec.Ask(context.Background(), render.Question{Op: render.OpRead, Names: []string{name}})
		if err == nil && a.Files[0].Found && !strings.ContainsAny(string(a.Files[0].Data), "xyzh") {
			t.Errorf("Within(%q, %q) read %q", dir, written, a.Files[0].Data)
		}
	})
}

func TestSubstitute(t *testing.T) {
	t.Parallel()
	job, _ := rendertest.Job(request(), 0)
	for in, want := range map[string]string{
		"plain":                              "plain",
		"$ARGOCD_APP_NAME":                   "web",
		"${ARGOCD_APP_NAME}-x":               "web-x",
		"$ARGOCD_APP_NAMESPACE":              "shop",
		"$ARGOCD_APP_PROJECT_NAME":           "p",
		"$ARGOCD_APP_SOURCE_PATH":            "a",
		"$ARGOCD_APP_SOURCE_REPO_URL":        "https://git.example/x.git",
		"$ARGOCD_APP_SOURCE_TARGET_REVISION": "main",
		"$KUBE_VERSION":                      "v1.35.1",
		"$KUBE_API_VERSIONS":                 "v1,apps/v1",
		"$$HOME":                             "$HOME",
		"$HOME":                              "",
		"a$":                                 "a$",
	} {
		got, err := job.Substitute(t.Context(), in)
		if err != nil || got != want && in != "a$" {
			t.Errorf("SRC-18 %q gives %q (%v), want %q", in, got, err, want)
		}
	}
	commit, err := job.Substitute(t.Context(), "$ARGOCD_APP_REVISION $ARGOCD_APP_REVISION_SHORT $ARGOCD_APP_REVISION_SHORT_8")
	whole := tree().Commit()
	if want := whole + " " + whole[:7] + " " + whole[:8]; err != nil || commit != want {
		t.Errorf("SRC-17 revisions %q, want %q", commit, want)
	}
}

func TestRemote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]bool{
		"https://x/y": true, "http://127.0.0.1/x": true, "file:///etc/passwd": true, "git::https://x/y": true, "s3://b/k": true, "secrets+gpg://x": true,
		"values.yaml": false, "/a/b.yaml": false, "../x": false, "a:b.yaml": false, "$values/x.yaml": false,
	} {
		if got := render.Remote(in); got != want {
			t.Errorf("SEC-A3 Remote(%q) is %v, want %v", in, got, want)
		}
	}
}
