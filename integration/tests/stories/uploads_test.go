package stories_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

// archived is a tar.gz.
func archived(t *testing.T, entries []tar.Header, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	packed := gzip.NewWriter(&out)
	w := tar.NewWriter(packed)
	for _, h := range entries {
		if h.Mode = 0o644; h.Typeflag == 0 {
			h.Size = int64(len(text))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, text[:h.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), packed.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// uploadTo sends an archive to be compared, and returns the answer.
func uploadTo(t *testing.T, name, token string, body io.Reader) (status int, text string) {
	t.Helper()
	r, err := http.NewRequestWithContext(within(t, waitLimit), http.MethodPost, s.API.URL+"/api/v1/applications/argocd/"+name+"/diff", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/gzip")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// namelessFile waits until the hub has an upload open, which has no name.
func namelessFile(t *testing.T) {
	t.Helper()
	if err := poll.Until(within(t, waitLimit), func(context.Context) error {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", s.Hub.PID()))
		for _, l := range links {
			if to, err := os.Readlink(l); err == nil && strings.Contains(to, "/uploads/") && strings.HasSuffix(to, "(deleted)") {
				return nil
			}
		}
		return errors.Join(errors.New("the hub has no upload open"), err)
	}); err != nil {
		t.Fatal(err)
	}
}

// TestUploads renders what is on somebody's disk.
func TestUploads(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), s.Postgres.Superuser("capstan"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	const name = "uploads"
	repo := repository(t, name, map[string]string{
		"app/kustomization.yaml": "resources: [a.yaml, old.yaml, ../shared]\n", "shared/kustomization.yaml": "resources: [s.yaml]\n",
		"app/a.yaml": configMap("a", "one"), "app/old.yaml": configMap("old", "one"),
		"shared/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: upload-secret-one}\n",
	})
	deploy(t, name, repo.URL(), "app", "")
	deployed(t, name)
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o750), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("app/kustomization.yaml", "resources: [a.yaml, new.yaml, ../shared]\n")
	write("shared/kustomization.yaml", "resources: [s.yaml]\n")
	write("app/a.yaml", configMap("a", "two"))
	write("app/new.yaml", configMap("new", "two"))
	write("shared/s.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: upload-secret-two}\n")
	before, rows := appStateOf(t, conn, name), rowsOf(t, conn, name)
	unchanged := func(t *testing.T) {
		t.Helper()
		if diff := cmp.Diff(before, appStateOf(t, conn, name)) + cmp.Diff(rows, rowsOf(t, conn, name)); diff != "" {
			t.Errorf("the upload changed something (-before +after):\n%s", diff)
		}
		if left, err := os.ReadDir(filepath.Join(s.Hub.Dir(), "state", "uploads")); err != nil || len(left) != 0 {
			t.Errorf("files are left: %v, %v", left, err)
		}
	}
	t.Run("REPO-12 DIFF-17 a folder is rendered by the hub and compared with the cluster, and nothing is stored", func(t *testing.T) {
		for _, args := range [][]string{{"--local", dir}, {"--local", filepath.Join(dir, "app"), "--local-repo-root", dir}} {
			out, code := previewOf(t, append([]string{name, "--server-side-generate"}, args...)...)
			if code != 1 {
				t.Errorf("exit code %d", code)
			}
			for _, want := range []string{"-  v: one", "+  v: two", "/new: would be created", "/old: would be pruned", "hmac:"} {
				if !strings.Contains(out, want) {
					t.Errorf("it does not show %q:\n%s", want, out)
				}
			}
			if strings.Contains(out, "upload-secret") {
				t.Errorf("it shows a value:\n%s", out)
			}
		}
		unchanged(t)
	})
	t.Run("REPO-12 the manifests of a folder are rendered by the hub, secrets masked", func(t *testing.T) {
		out := cli(t, "app", "manifests", name, "--local", dir)
		if !strings.Contains(out, "v: two") || !strings.Contains(out, "name: new") || strings.Contains(out, "v: one") || strings.Contains(out, "upload-secret") || !strings.Contains(out, "kind: Secret") {
			t.Error(out)
		}
		unchanged(t)
	})
	t.Run("REPO-12 what cannot be rendered is an error with file and cause", func(t *testing.T) {
		if out, code := previewOf(t, name, "--server-side-generate", "--local", filepath.Join(dir, "app")); code != 2 || !strings.Contains(out, "app") {
			t.Errorf("without the root: %d\n%s", code, out)
		}
		write("app/a.yaml", "kind: [")
		if out, code := previewOf(t, name, "--server-side-generate", "--local", dir); code != 2 || !strings.Contains(out, "a.yaml") {
			t.Errorf("no YAML: %d\n%s", code, out)
		}
		write("app/a.yaml", configMap("a", "two"))
		unchanged(t)
	})
	t.Run("REPO-12 SEC-A1 SEC-A2 SEC-B3 archives that lead out or unfold without end are refused with file and cause", func(t *testing.T) {
		limits := func(value any) {
			t.Helper()
			if err := s.API.Do(within(t, waitLimit), http.MethodPatch, "/api/v1/settings", map[string]any{"values": map[string]any{"argocd-cmd-params-cm": map[string]any{"reposerver.streamed.manifest.max.extracted.size": value}}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		limits("1M")
		defer limits(nil)
		for title, c := range map[string]struct {
			entries []tar.Header
			text    string
			says    []string
		}{
			"a bomb":         {[]tar.Header{{Name: "app/zeros.yaml"}}, strings.Repeat("\x00", 2_000_000), []string{"unfolds to more than 1000000 bytes"}},
			"a traversal":    {[]tar.Header{{Name: "app/../../x.yaml"}}, "x", []string{"leads out of it", "app/../../x.yaml"}},
			"a link outside": {[]tar.Header{{Name: "app/kustomization.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, "", []string{"leads out", "app/kustomization.yaml"}},
		} {
			status, text := uploadTo(t, name, s.API.Token, bytes.NewReader(archived(t, c.entries, c.text)))
			for _, says := range c.says {
				if status < 400 || status >= 500 || !strings.Contains(text, says) {
					t.Errorf("%s: %d %s, want %q", title, status, text, says)
				}
			}
		}
		unchanged(t)
	})
	t.Run("REPO-12 who may only read the application has nothing rendered", func(t *testing.T) {
		const password = "correct horse battery"
		account := map[string]any{"name": "upload-reader", "password": password, "roles": []string{"readonly"}}
		if err := s.API.Do(within(t, waitLimit), http.MethodPost, "/api/v1/users", account, nil); err != nil {
			t.Fatal(err)
		}
		reader, err := s.SignIn(within(t, waitLimit), t.TempDir(), "upload-reader", password)
		if err != nil {
			t.Fatal(err)
		}
		if status, text := uploadTo(t, name, reader.Token, bytes.NewReader(archived(t, []tar.Header{{Name: "app/a.yaml"}}, configMap("a", "three")))); status != http.StatusForbidden || !strings.Contains(text, "override") {
			t.Errorf("%d %s", status, text)
		}
	})
	t.Run("REPO-12 FT-H1 nothing is left of an upload when the hub is killed in the middle of it", func(t *testing.T) {
		body, caller := io.Pipe()
		ended := make(chan struct{})
		r, err := http.NewRequestWithContext(within(t, waitLimit), http.MethodPost, s.API.URL+"/api/v1/applications/argocd/"+name+"/diff", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.API.Token)
		r.Header.Set("Content-Type", "application/gzip")
		go func() {
			defer close(ended)
			if resp, err := http.DefaultClient.Do(r); err == nil {
				_ = resp.Body.Close()
			}
		}()
		whole := archived(t, []tar.Header{{Name: "app/a.yaml"}, {Name: "app/b.yaml"}}, strings.Repeat("upload-of-the-killed ", 1000))
		if _, err := caller.Write(whole[:len(whole)/2]); err != nil {
			t.Fatal(err)
		}
		namelessFile(t)
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = caller.Close()
		<-ended
		unfinished, err := os.ReadDir(filepath.Join(s.Hub.Dir(), "state", "uploads"))
		if err != nil || len(unfinished) != 0 {
			t.Errorf("after the kill there is %v, %v", unfinished, err)
		}
		if err := s.Hub.Start(within(t, waitLimit)); err != nil {
			t.Fatal(err)
		}
		settled(t, name)
		if out, code := previewOf(t, name, "--server-side-generate", "--local", dir); code != 1 {
			t.Errorf("%d\n%s", code, out)
		}
	})
}
