package cli

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/capstan-cd/capstan/cli/exit"
)

// unpacked are the files of a tar.gz: their text, or what a link points at.
func unpacked(t *testing.T, from io.Reader) map[string]string {
	t.Helper()
	packed, err := gzip.NewReader(from)
	if err != nil {
		t.Error(err)
		return nil
	}
	out := map[string]string{}
	for archive := tar.NewReader(packed); ; {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Error(err)
			return out
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Error(err)
		}
		if out[h.Name] = string(text); h.Typeflag == tar.TypeSymlink {
			out[h.Name] = "-> " + h.Linkname
		}
	}
}

// repositoryFolder makes a folder with files that are sent and others.
func repositoryFolder(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"app/a.yaml": "kind: A\n", "app/templates/_helpers.tpl": "{{}}", "app/values.json": "{}", "readme.md": "text", ".env": "password", ".git/config.yaml": "url: x", "lib/x.libsonnet": "{}",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("../app/a.yaml", filepath.Join(dir, "lib/link.yaml")); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestUploads(t *testing.T) {
	dir := repositoryFolder(t)
	all := map[string]string{"app/a.yaml": "kind: A\n", "app/templates/_helpers.tpl": "{{}}", "app/values.json": "{}", "lib/x.libsonnet": "{}", "lib/link.yaml": "-> ../app/a.yaml"}
	diff, manifests := "POST /api/v1/applications/argocd/shop/diff", "POST /api/v1/applications/argocd/shop/manifests"
	for name, c := range map[string]struct {
		args  []string
		code  int
		asked string
		sent  map[string]string
		says  string
	}{
		"a folder is sent to be compared":                 {[]string{"diff", "shop", "--local", dir, "--server-side-generate"}, exit.Differs, diff, all, "would be created"},
		"a folder is sent to be rendered":                 {[]string{"manifests", "shop", "--local", dir}, exit.OK, manifests, all, "kind: ConfigMap"},
		"--server-side-generate is what manifests do":     {[]string{"manifests", "shop", "--local", dir, "--server-side-generate"}, exit.OK, manifests, all, ""},
		"--local-include chooses names of files":          {[]string{"diff", "shop", "--local", dir, "--server-side-generate", "--local-include", "*.yaml", "--local-include", "*.md"}, exit.Differs, diff, map[string]string{"app/a.yaml": "kind: A\n", "readme.md": "text", "lib/link.yaml": "-> ../app/a.yaml"}, ""},
		"--local-repo-root is sent instead":               {[]string{"diff", "shop", "--local", filepath.Join(dir, "app"), "--local-repo-root", dir, "--server-side-generate"}, exit.Differs, diff, all, ""},
		"--source-positions names the source":             {[]string{"diff", "shop", "--local", dir, "--server-side-generate", "--source-positions", "2"}, exit.Differs, diff + "?sourcePosition=2", all, ""},
		"one source at a time":                            {[]string{"diff", "shop", "--local", dir, "--server-side-generate", "--source-positions", "1,2"}, exit.Usage, "", nil, "one source"},
		"--local outside of --local-repo-root is refused": {[]string{"diff", "shop", "--local", t.TempDir(), "--local-repo-root", dir, "--server-side-generate"}, exit.Usage, "", nil, "outside of"},
		"a folder without such files is refused":          {[]string{"diff", "shop", "--local", dir, "--server-side-generate", "--local-include", "*.cue"}, exit.Usage, "", nil, "no file matches"},
		"a pattern that is none is refused":               {[]string{"diff", "shop", "--local", dir, "--server-side-generate", "--local-include", "[a"}, exit.Usage, "", nil, "is no pattern"},
		"a folder that is not there":                      {[]string{"manifests", "shop", "--local", filepath.Join(dir, "none")}, exit.Usage, "", nil, "none"},
		"--server-side-generate without a folder":         {[]string{"diff", "shop", "--server-side-generate"}, exit.Usage, "", nil, "name it with --local"},
		"the input is no folder":                          {[]string{"diff", "shop", "--server-side-generate", "--local", "-"}, exit.Usage, "", nil, "renders a folder"},
		"--local-repo-root alone":                         {[]string{"manifests", "shop", "--local-repo-root", dir}, exit.Usage, "", nil, "go with --local"},
	} {
		t.Run("REPO-12 "+name, func(t *testing.T) {
			home(t)
			asked, sent := "", map[string]string(nil)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				asked = r.Method + " " + r.URL.RequestURI()
				if r.Header.Get("Content-Type") != "application/gzip" {
					t.Errorf("the body is %q", r.Header.Get("Content-Type"))
				}
				sent = unpacked(t, r.Body)
				w.Header().Set("Content-Type", "application/json")
				item := `{"apiVersion":"v1","kind":"ConfigMap","name":"a","version":"v1","group":"","status":"OutOfSync","summary":"would be created"}`
				_, _ = io.WriteString(w, `{"items":[`+item+`]}`)
			}))
			defer server.Close()
			before, err := filepath.Glob(filepath.Join(os.TempDir(), "capstan-upload-*"))
			if err != nil {
				t.Fatal(err)
			}
			code, out, errs := capstan(t, "", append([]string{"app", "--server", server.URL, "--token", "t0ken"}, c.args...)...)
			if code != c.code || asked != c.asked || !strings.Contains(out+errs, c.says) {
				t.Errorf("exit %d, asked %q, output %q, errors %q", code, asked, out, errs)
			}
			if d := cmp.Diff(c.sent, sent); d != "" {
				t.Errorf("sent (-want +got):\n%s", d)
			}
			after, err := filepath.Glob(filepath.Join(os.TempDir(), "capstan-upload-*"))
			if err != nil || len(after) > len(before) {
				t.Errorf("%v is left, %v", after, err)
			}
		})
	}
}
