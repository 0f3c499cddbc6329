package apppage_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/capstan-cd/capstan/integration/rigs/gitserver"
	"github.com/capstan-cd/capstan/integration/rigs/playwright"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
)

// A page is what the spec works on, and does for it what happens outside of
// the console.
type page struct {
	repo        *gitserver.Repository
	web, broken string // pods
}

// TestPage runs web/e2e/app-page.spec.ts and large.spec.ts.
func TestPage(t *testing.T) {
	p := &page{repo: deploy(t, "shop", shop("off"))}
	pods := podsOf(t, "shop", 6)
	p.web, p.broken = named(t, pods, "web-"), named(t, pods, "broken-")
	p.fill(pods)
	large := deploy(t, "many", many(2000, 0))
	if _, err := large.Commit(t.Context(), "Change five hundred", many(2000, 500)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.API.CLI(within(t), "", "app", "refresh", "many"); err != nil {
		t.Fatal(err)
	}
	deploy(t, "seen", map[string]string{"app/config.yaml": configMap("seen", "1")})
	run(t, "app-page,large", p.acts())
}

// acts are what the spec asks for, by name.
func (p *page) acts() map[string]playwright.Act {
	web, off := deployment("web", 2, ""), configMap("settings", "off")
	return map[string]playwright.Act{
		"broken-pod": func(context.Context) (string, error) { return p.broken, nil },
		"warn":       p.warn,
		"setting":    setting,
		"say":        p.say,
		"flood":      p.flood,
		"live":       live,
		"change": playwright.InTurn(func(ctx context.Context, v string) error {
			return s.Clusters[cluster].SetData(ctx, "seen", "seen", "v", v)
		}, "2", "1"),
		"change-many": playwright.InTurn(func(ctx context.Context, v string) error {
			return s.Clusters[cluster].SetData(ctx, "many", "item-1999", "v", v)
		}, "two", "one"),
		"empty":        p.empty,
		"push-danger":  p.push("app/web.yaml", deployment("web", 0, ""), "app/config.yaml", configMap("settings", "on")),
		"push-back":    p.push("app/web.yaml", web, "app/config.yaml", off),
		"push-flag":    p.push("app/config.yaml", configMap("settings", "on"), "app/extra.yaml", configMap("extra", "1"), "app/old.yaml", ""),
		"push-hook":    p.push("app/hook.yaml", hook),
		"push-no-hook": p.push("app/hook.yaml", ""),
	}
}

// hook never ends.
const hook = `apiVersion: batch/v1
kind: Job
metadata:
  name: wait
  annotations: {argocd.argoproj.io/hook: PreSync, argocd.argoproj.io/hook-delete-policy: BeforeHookCreation}
spec:
  template:
    metadata: {annotations: {harness.capstan.dev/outcome: hang}}
    spec:
      restartPolicy: Never
      containers: [{name: wait, image: registry.example.com/wait:v1}]
`

// flood fills the log that the viewer is measured with. The benchmark B19 does
// so for a minute.
func (p *page) flood(ctx context.Context) (string, error) {
	n, err := kubelets.Container("shop", "store-0", "db").Flood(ctx, 10*time.Second)
	return strconv.Itoa(n), err
}

// live says which of the ConfigMaps of the sync the cluster has.
func live(ctx context.Context) (string, error) {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	var out []string
	for _, name := range []string{"settings", "extra", "old"} {
		o, err := s.Clusters[cluster].Dynamic().Resource(configMaps).Namespace("shop").Get(ctx, name, metav1.GetOptions{})
		value := "absent"
		if err == nil {
			value, _, _ = unstructured.NestedString(o.Object, "data", "v")
		} else if !apierrors.IsNotFound(err) {
			return "", err
		}
		out = append(out, name+"="+value)
	}
	return strings.Join(out, " "), nil
}

// empty makes an application that has nothing yet.
func (p *page) empty(ctx context.Context) (string, error) {
	repo, err := s.Repository(ctx, "bare", gitserver.RepositoryOptions{})
	if err != nil {
		return "", err
	}
	if _, err := repo.Commit(ctx, "Begin", map[string]string{"app/readme.md": "nothing yet"}); err != nil {
		return "", err
	}
	out, err := s.API.Apply(ctx, fmt.Sprintf(`apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: bare, namespace: argocd}
spec:
  project: default
  source: {repoURL: %q, path: app, targetRevision: main}
  destination: {name: %s, namespace: bare}
`, repo.URL(), cluster))
	if err != nil {
		return out, err
	}
	// Before it is rendered, there is nothing to compare, which the hub answers with 404.
	_, err = s.API.Wait(ctx, "bare", func(a stack.App) error {
		if a.Status.Sync.Revision == "" {
			return fmt.Errorf("it is not rendered yet: %+v", a.Status)
		}
		return nil
	})
	return out, err
}

// fill writes the logs that the spec looks for.
func (p *page) fill(pods []string) {
	app := kubelets.Container("shop", p.web, "app")
	app.Say("panic before the restart")
	app.Restart()
	begun := time.Now().Add(-10 * time.Minute)
	for i := range 100 {
		app.SayAt(begun.Add(time.Duration(i)*time.Second), fmt.Sprintf(`{"level":"info","msg":"GET /v1/orders","note":"order %d"}`, i))
	}
	for i := range 3 {
		app.SayAt(begun.Add(time.Duration(200+i)*time.Second), `ERROR relation "orders_v2" does not exist`)
	}
	for _, name := range pods {
		if strings.HasPrefix(name, "web-") {
			kubelets.Container("shop", name, "side").SayAt(begun, "a word of the side")
		}
	}
	kubelets.Container("shop", p.broken, "app").SayAt(begun, "INFO listening", "FATAL cannot open the database")
}

func (p *page) say(context.Context) (string, error) {
	kubelets.Container("shop", p.web, "side").Say("said just now")
	return "", nil
}

// push commits files, given as paths with their contents; an empty one has no
// object. Then the application is refreshed.
func (p *page) push(files ...string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		set := map[string]string{}
		for i := 0; i < len(files); i += 2 {
			set[files[i]] = files[i+1]
		}
		revision, err := p.repo.Commit(ctx, "Change the shop", set)
		if err != nil {
			return "", err
		}
		_, err = s.API.CLI(ctx, "", "app", "refresh", "shop")
		return revision, err
	}
}

// warn has the cluster report events of the broken pod: a usual one after a warning.
func (p *page) warn(ctx context.Context) (string, error) {
	client := s.Clusters[cluster].Dynamic()
	pod, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("shop").Get(ctx, p.broken, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	events := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace("shop")
	for i, kind := range []string{"Warning", "Normal"} {
		reason := []string{"BackOff", "Pulled"}[i]
		at := time.Now().Add(time.Duration(i-2) * time.Minute).UTC().Format(time.RFC3339)
		event := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Event", "metadata": map[string]any{"name": strings.ToLower(p.broken + "." + reason), "namespace": "shop"},
			"involvedObject": map[string]any{"kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": p.broken, "uid": string(pod.GetUID())},
			"type":           kind, "reason": reason, "message": reason + " container app", "firstTimestamp": at, "lastTimestamp": at, "count": int64(3),
			"source": map[string]any{"component": "kubelet"},
		}}
		if _, err := events.Create(ctx, event, metav1.CreateOptions{}); err != nil {
			return "", err
		}
	}
	return p.broken, nil
}

// setting is a value of the ConfigMap as the cluster has it.
func setting(ctx context.Context) (string, error) {
	configMaps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	o, err := s.Clusters[cluster].Dynamic().Resource(configMaps).Namespace("shop").Get(ctx, "settings", metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	value, _, err := unstructured.NestedString(o.Object, "data", "same")
	return value, err
}

// run runs specs of web/e2e, given with commas, with a tenant of their own, and
// reports each of their tests as a subtest.
func run(t *testing.T, specs string, acts map[string]playwright.Act) {
	t.Helper()
	outside := playwright.Serve(acts)
	defer outside.Close()
	link, err := s.SetupLink(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	playwright.Run(t, playwright.Options{
		Web: filepath.Join("..", "..", "..", "web"), Specs: specs, Acts: outside, Limit: 15 * time.Minute,
		Env: []string{"CAPSTAN_URL=" + s.Hub.URL, "CAPSTAN_SETUP_LINK=" + link, "CAPSTAN_USER=" + strings.ReplaceAll(specs, ",", "-"), "CAPSTAN_PASSWORD=" + rand.Text()},
	})
}
