package hostile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-cd/capstan/hub/render/rendertest"
	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// loops are enough that they take many times as long as three pushes, on a slow
// machine too.
const loops = 12

// An attack is a directory of the evil repository, and words of the sentence
// that its application ends with.
type attack struct {
	files map[string]string
	words []string // one of them
}

func attacks() map[string]attack {
	out := map[string]attack{
		"grow":      {rendertest.Chart(map[string]string{"templates/b.yaml": "{{ $x := \"xxxxxxxx\" }}{{ range until 60 }}{{ $x = print $x $x }}{{ end }}"}), []string{"MiB of memory", "took more than"}},
		"output":    {rendertest.Chart(map[string]string{"templates/b.yaml": "{{ range until 2000 }}{{ repeat 1000000 \"x\" }}{{ end }}"}), []string{"write more than", "took more than", "MiB of memory"}},
		"recursion": {rendertest.Chart(map[string]string{"templates/b.yaml": "{{ define \"r\" }}{{ template \"r\" . }}{{ end }}{{ template \"r\" . }}"}), []string{"too deep", "exceeded maximum", "took more than"}},
		"packed":    {rendertest.Chart(map[string]string{"charts/d-1.0.0.tgz": rendertest.PackedZeros("d", 1<<30)}), []string{"larger than the maximum", "took more than"}},
		"aliases":   {map[string]string{"a.yaml": rendertest.Manifest(rendertest.AliasBomb(9, 12))}, []string{"alias"}},
		"nested":    {map[string]string{"a.yaml": rendertest.Manifest("d: " + rendertest.Nested(9_000))}, []string{"deep"}},
		"overlays":  {rendertest.Overlays(30), []string{"took more than", "MiB of memory"}},
		"zero":      {map[string]string{"a.yaml": "apiVersion: v1\nkind: \"Config\\0Map\"\nmetadata: {name: a}\n"}, []string{"cannot be printed"}},
		"long":      {map[string]string{"a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + strings.Repeat("a", 50_000) + "}\n"}, []string{"50000 bytes"}},
		"questions": {rendertest.Chart(map[string]string{"templates/b.yaml": "{{ range $i := until 1000000 }}{{ if $.Capabilities.APIVersions.Has (printf \"%0400d\" $i) }}{{ end }}{{ end }}"}), []string{"reads more than", "names of all", "took more than"}},
		"megabytes": {rendertest.Chart(map[string]string{"templates/b.yaml": "{{ $x := repeat 1000000 \"x\" }}{{ range $i := until 100000 }}{{ if $.Capabilities.APIVersions.Has (print $x $i) }}{{ end }}{{ end }}"}), []string{"not the name of an API"}},
		"objects":   {rendertest.Chart(map[string]string{"templates/b.yaml": "{{ range $i := until 50000 }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a{{ $i }}}\n{{ end }}"}), []string{"more than 20000", "took more than", "MiB of memory"}},
		"remote":    {map[string]string{"kustomization.yaml": "resources: ['http://169.254.169.254/latest']\n"}, []string{"names no repository"}},
		"inflate":   {map[string]string{"kustomization.yaml": "helmCharts: [{name: x, repo: 'http://127.0.0.1:1'}]\n"}, []string{"need the build option --enable-helm"}},
		"depend":    {rendertest.Chart(map[string]string{"Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies: [{name: d, version: 1.0.0, repository: 'http://169.254.169.254/charts'}]\n"}), []string{"leads into an internal network"}},
		"outside":   {rendertest.Chart(map[string]string{"Chart.yaml": "apiVersion: v2\nname: c\nversion: 1.0.0\ndependencies: [{name: d, version: 1.0.0, repository: 'file://../../../../etc'}]\n"}), []string{"leaves the repository"}},
		"schema":    {rendertest.Chart(map[string]string{"values.schema.json": `{"$ref":"file:///etc/passwd"}`}), []string{"only what is in the schema itself is read"}},
		"link":      {nil, []string{"symbolic link leads out"}},
	}
	for i := range loops {
		out[fmt.Sprintf("loop-%02d", i)] = attack{rendertest.Chart(map[string]string{"templates/b.yaml": "{{ range until 1000000 }}{{ range until 1000000 }}{{ end }}{{ end }}"}), []string{"took more than", "processor time"}}
	}
	return out
}

// arm pushes all attacks, and one directory that is well.
func arm(t *testing.T, all map[string]attack) *gitserver.Repository {
	t.Helper()
	ctx := within(t, waitLimit)
	r, err := s.Repository(ctx, "evil", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{"fine/a.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: fine}\n", "target": "../../../../../../etc/passwd"}
	for name, a := range all {
		for f, text := range a.files {
			files[name+"/"+f] = text
		}
	}
	if _, err := r.Commit(ctx, "begin", files); err != nil {
		t.Fatal(err)
	}
	blob, err := r.Run(ctx, "rev-parse", "HEAD:target")
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"update-index", "--add", "--cacheinfo", "120000," + strings.TrimSpace(blob) + ",link/a.yaml"},
		{"commit", "--quiet", "--message=link"}, {"push", "--quiet", "origin", "HEAD:refs/heads/main"},
	} {
		if _, err := r.Run(ctx, args...); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func app(name, repo, path string) string {
	return fmt.Sprintf("---\napiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: %s, namespace: argocd}\nspec:\n  project: default\n  source: {repoURL: %q, path: %q, targetRevision: main}\n"+
		"  destination: {name: in-cluster, namespace: %s}\n  syncPolicy: {automated: {prune: true, selfHeal: true}, syncOptions: [CreateNamespace=true]}\n", name, repo, path, name)
}

func configMap(value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  v: %q\n", value)
}

func value(want string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		if got, _, _ := unstructured.NestedString(o.Object, "data", "v"); got != want {
			return fmt.Errorf("the value is %q, want %q", got, want)
		}
		return nil
	}
}

// ended counts the attacks that have come to their sentence.
func ended(ctx context.Context, prefix string) (int, error) {
	var list struct {
		Items []stack.App `json:"items"`
	}
	if err := evil.Do(ctx, http.MethodGet, "/api/v1/applications?limit=200", nil, &list); err != nil {
		return 0, err
	}
	n := 0
	for _, x := range list.Items {
		if strings.HasPrefix(x.Metadata.Name, prefix) && len(x.Status.Conditions) > 0 {
			n++
		}
	}
	return n, nil
}

// asking asks the API until it is told to stop, and gives what went wrong.
func asking(ctx context.Context, failures *atomic.Int64, answers *atomic.Int64) error {
	var first error
	pace := time.NewTicker(20 * time.Millisecond)
	defer pace.Stop()
	for ctx.Err() == nil {
		<-pace.C
		for _, path := range []string{"/api/v1/applications", "/api/v1/clusters/in-cluster", "/api/v1/applications/argocd/good"} {
			err := s.API.Do(ctx, http.MethodGet, path, nil, nil)
			switch {
			case err == nil:
				answers.Add(1)
			case ctx.Err() == nil:
				failures.Add(1)
				first = errors.Join(first, err)
			}
		}
	}
	return first
}

func TestAHostileTenant(t *testing.T) {
	ctx := within(t, 15*time.Minute)
	cluster := s.Clusters["in-cluster"]
	good, err := s.Repository(ctx, "good", gitserver.RepositoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	push := func(v string) {
		t.Helper()
		if _, err := good.Commit(ctx, v, map[string]string{"app/a.yaml": configMap(v)}); err != nil {
			t.Fatal(err)
		}
	}
	arrives := func(v string) {
		t.Helper()
		if _, err := cluster.WaitFor(within(t, waitLimit), configMaps, "good", "a", value(v)); err != nil {
			t.Fatal(err)
		}
	}
	push("one")
	if _, err := s.API.Apply(ctx, app("good", good.URL(), "app")); err != nil {
		t.Fatal(err)
	}
	arrives("one")

	all := attacks()
	repo := arm(t, all)
	var manifests strings.Builder
	for name := range maps.Keys(all) {
		manifests.WriteString(app(name, repo.URL(), name))
	}
	manifests.WriteString(app("fine", repo.URL(), "fine"))
	if _, err := evil.Apply(ctx, manifests.String()); err != nil {
		t.Fatal(err)
	}
	asked, stop := context.WithCancel(ctx)
	var failures, answers atomic.Int64
	var wg sync.WaitGroup
	var wrong error
	wg.Go(func() { wrong = asking(asked, &failures, &answers) })

	t.Run("FT-G9 INV-7 LD-2 another tenant's pushes arrive while endless renders wait", func(t *testing.T) {
		if err := poll.Until(within(t, waitLimit), func(ctx context.Context) error {
			if n, err := ended(ctx, ""); err != nil || n == 0 {
				return fmt.Errorf("no attack has begun: %w", err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			v := fmt.Sprint("during ", i)
			push(v)
			arrives(v)
		}
		n, err := ended(ctx, "loop-")
		if err != nil || n == loops {
			t.Errorf("three pushes took as long as all %d loops, %d of which are over: %v", loops, n, err)
		}
		t.Logf("when the third push had arrived, %d of %d loops were over", n, loops)
	})
	for name, a := range all {
		t.Run("SEC-B INV-13 "+name+" ends as one sentence on its application", func(t *testing.T) {
			x, err := evil.Wait(within(t, 3*waitLimit), name, func(x stack.App) error {
				if len(x.Status.Conditions) == 0 {
					return errors.New("no condition yet")
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			says := x.Status.Conditions[0].Message
			found := false
			for _, w := range a.words {
				found = found || strings.Contains(says, w)
			}
			if !found || len(x.Status.Conditions) != 1 || len(says) > 2_000 || strings.Contains(says, "root:") || strings.Contains(says, "goroutine") {
				t.Errorf("%d conditions, the first is %.500q, want one of %q", len(x.Status.Conditions), says, a.words)
			}
			if x.Status.Capstan.Target != "" {
				t.Errorf("INV-3 there is a desired state: %s", x.Status.Capstan.Target)
			}
		})
	}
	t.Run("INV-13 the attacker's own valid application is rendered", func(t *testing.T) {
		if _, err := evil.Wait(within(t, waitLimit), "fine", func(x stack.App) error {
			if x.Status.Capstan.Target == "" {
				return fmt.Errorf("no target; conditions %v", x.Status.Conditions)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	})
	stop()
	wg.Wait()
	t.Run("SEC-B the API answered all the while", func(t *testing.T) {
		if failures.Load() > 0 || answers.Load() == 0 {
			t.Errorf("%d requests failed, %d were answered: %v", failures.Load(), answers.Load(), wrong)
		}
		t.Logf("%d requests were answered", answers.Load())
	})
	t.Run("INV-6 the other tenant's status is unchanged", func(t *testing.T) {
		if _, err := s.API.Wait(within(t, waitLimit), "good", stack.Settled); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("FT-H4 all renderers are killed, and the next push arrives", func(t *testing.T) {
		if n := killRenderers(t); n == 0 {
			t.Log("no renderer was alive")
		}
		push("after the kill")
		arrives("after the kill")
	})
	t.Run("INV-9 the hub's own memory has stayed small", func(t *testing.T) {
		if mib := resident(t, s.Hub.PID()) >> 20; mib > 400 {
			t.Errorf("the hub has %d MiB", mib)
		} else {
			t.Logf("the hub has %d MiB", mib)
		}
	})
	t.Run("SEC-B nothing in the hub panicked", func(t *testing.T) {
		log, err := os.ReadFile(s.Hub.LogFile())
		if err != nil || bytes.Contains(log, []byte("goroutine ")) || bytes.Contains(log, []byte("panic: ")) || bytes.Contains(log, []byte("invalid byte sequence")) {
			t.Errorf("%v; see %s", err, s.Hub.LogFile())
		}
	})
}

// killRenderers kills the hub's child processes.
func killRenderers(t *testing.T) int {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(s.Hub.PID()) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err == nil {
			n++
		}
	}
	return n
}

func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
