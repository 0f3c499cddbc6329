package releases_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/build"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	"github.com/capstan-cd/capstan/integration/rigs/suite"
)

// otherRenderers builds the hub of this tree with renderers of another version,
// which label what a directory holds, and returns its folder.
func otherRenderers(ctx context.Context, dir string) (bin string, err error) {
	out, err := exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	root := strings.TrimSpace(string(out))
	replace := map[string]string{}
	for file, change := range map[string][2]string{
		"hub/render/render.go":      {`const Version = "`, `const Version = "other/1 `},
		"hub/render/plain/plain.go": {"for _, o := range objects {\n", "for _, o := range objects {\no.SetLabels(map[string]string{\"by\": \"other\"})\n"},
	} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return "", err
		}
		changed := strings.Replace(string(text), change[0], change[1], 1)
		if changed == string(text) {
			return "", fmt.Errorf("%s has no %q", file, change[0])
		}
		copied := filepath.Join(dir, strings.ReplaceAll(file, "/", "-"))
		if err := os.WriteFile(copied, []byte(changed), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, file)] = copied
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "bin")
	return bin, build.ProductInto(ctx, bin, "-overlay", overlay)
}

// A rendererUpgrade is an installation whose hub gets other renderers.
type rendererUpgrade struct {
	*stack.Stack
	t *testing.T
}

// use has the hub run the program of another folder.
func (u rendererUpgrade) use(t *testing.T, bin string) {
	t.Helper()
	if err := u.Hub.Stop(); err != nil {
		t.Fatal(err)
	}
	u.Hub.Use(bin)
	if err := u.Hub.Start(within(t, 2*time.Minute)); err != nil {
		t.Fatal(err)
	}
}

// total is how many applications a query has.
func (u rendererUpgrade) total(ctx context.Context, query string) (int, error) {
	var list struct{ Total int }
	err := u.API.Do(ctx, http.MethodGet, "/api/v1/applications?view=row&limit=1&query="+url.QueryEscape(query), nil, &list)
	return list.Total, err
}

// counts waits until a query has so many applications.
func (u rendererUpgrade) counts(t *testing.T, query string, want int) {
	t.Helper()
	if err := poll.Until(within(t, 10*time.Minute), func(ctx context.Context) error {
		n, err := u.total(ctx, query)
		if err == nil && n != want {
			err = fmt.Errorf("%q has %d applications, want %d", query, n, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func (u rendererUpgrade) cli(t *testing.T, args ...string) string {
	t.Helper()
	out, err := u.API.CLI(within(t, 5*time.Minute), "", args...)
	if err != nil {
		t.Fatalf("%v: %v: %s", args, err, out)
	}
	return out
}

// labelled is how many objects in the cluster the other renderers have made.
func (u rendererUpgrade) labelled(ctx context.Context) (int, error) {
	list, err := u.Clusters["in-cluster"].Dynamic().Resource(schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}).List(ctx, metav1.ListOptions{LabelSelector: "by=other"})
	if err != nil {
		return 0, err
	}
	return len(list.Items), nil
}

func (u rendererUpgrade) labels(t *testing.T, want int) {
	t.Helper()
	if err := poll.Until(within(t, 5*time.Minute), func(ctx context.Context) error {
		n, err := u.labelled(ctx)
		if err == nil && n != want {
			err = fmt.Errorf("%d objects are labelled, want %d", n, want)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// idle waits until no operation is in progress; one that is would refuse to be
// resumed.
func (u rendererUpgrade) idle(t *testing.T) {
	t.Helper()
	i := &installation{Stack: u.Stack, t: t}
	if err := poll.Until(within(t, 5*time.Minute), func(context.Context) error {
		if n := i.count(`SELECT count(*) FROM operation WHERE finished_at IS NULL`); n != 0 {
			return fmt.Errorf("%d operations are in progress", n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestRendererUpgrade changes what many applications render by an upgrade alone.
func TestRendererUpgrade(t *testing.T) {
	dir := t.TempDir()
	ctx := within(t, 20*time.Minute)
	this, err := suite.Build(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	if other, err = otherRenderers(ctx, other); err != nil {
		t.Fatal(err)
	}
	s, err := stack.Start(ctx, stack.Options{Bin: this, Dir: filepath.Join(dir, "run"), Clusters: []string{"in-cluster"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	u := rendererUpgrade{s, t}
	repo, err := s.Repository(ctx, "many", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files, apps := map[string]string{}, strings.Builder{}
	for i := range upgradedApplications {
		name := fmt.Sprintf("app-%04d", i)
		files[name+"/a.yaml"] = configMap("one")
		stage := "late"
		if i < upgradedApplications/10 {
			stage = "first"
		}
		apps.WriteString(strings.Replace(manifest(name, repo.URL(), "in-cluster", name, true), "namespace: argocd", "namespace: argocd, labels: {stage: "+stage+"}", 1))
	}
	if _, err := repo.Commit(ctx, "begin", files); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.Apply(ctx, apps.String()); err != nil {
		t.Fatal(err)
	}
	u.counts(t, "sync:synced health:healthy", upgradedApplications)
	operations := func() int {
		i := &installation{Stack: s, t: t}
		return i.count(`SELECT count(*) FROM operation`)
	}
	before := operations()

	u.use(t, other)
	u.cli(t, "app", "bulk", "refresh", "--all", "--yes")
	t.Run("FT-G11 what an upgrade of the renderers changes is shown with its size, and nothing of it is applied", func(t *testing.T) {
		u.counts(t, "auto:paused", upgradedApplications)
		if n, err := u.labelled(within(t, time.Minute)); err != nil || n != 0 {
			t.Errorf("%d objects are changed, %v", n, err)
		}
		if after := operations(); after != before {
			t.Errorf("%d operations, before %d", after, before)
		}
		diff, err := u.API.CLI(within(t, time.Minute), "", "app", "diff", "app-0000", "--revision", "main")
		if !strings.Contains(diff, "by: other") {
			t.Errorf("the difference is not shown: %v:\n%s", err, diff)
		}
		out := u.cli(t, "app", "get", "app-0000")
		for _, want := range []string{"the renderers changed from", "other/1", "1 changed, 0 added, 0 removed", "capstan app resume"} {
			if !strings.Contains(out, want) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
	})
	t.Run("FT-G11 people let it go on in stages", func(t *testing.T) {
		first := upgradedApplications / 10
		u.cli(t, "app", "bulk", "resume", "--query", "label:stage=first", "--yes")
		u.labels(t, first)
		u.counts(t, "auto:paused", upgradedApplications-first)
		u.counts(t, "label:stage=first sync:synced", first)
	})
	t.Run("FT-G11 a commit to one application is deployed", func(t *testing.T) {
		name := fmt.Sprintf("app-%04d", upgradedApplications-1)
		if _, err := repo.Commit(within(t, time.Minute), "change", map[string]string{name + "/a.yaml": configMap("two")}); err != nil {
			t.Fatal(err)
		}
		u.cli(t, "app", "refresh", name)
		u.labels(t, upgradedApplications/10+1)
		u.counts(t, "auto:paused", upgradedApplications-upgradedApplications/10-1)
	})
	t.Run("FT-G11 an upgrade that is taken back leaves nothing paused, and changes only what it had changed", func(t *testing.T) {
		u.use(t, this)
		u.cli(t, "app", "bulk", "refresh", "--all", "--hard", "--yes")
		u.counts(t, "label:stage=late auto:paused", 1) // the one whose commit was rendered by the other renderers
		u.counts(t, "auto:paused", upgradedApplications/10+1)
		u.labels(t, upgradedApplications/10+1)
		u.idle(t) // the operation of the commit may end only now
		u.cli(t, "app", "bulk", "resume", "--query", "auto:paused", "--yes")
		u.labels(t, 0)
		u.counts(t, "sync:synced health:healthy auto:auto", upgradedApplications)
	})
}
