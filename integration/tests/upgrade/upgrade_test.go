package upgrade_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
)

const repository = "registry.example.com/capstan-agent:"

var (
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

// within bounds a step of a story.
func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// install applies the agent's chart.
func install(t *testing.T, token, more string) {
	t.Helper()
	c, err := loader.LoadDir(filepath.Join("..", "..", "..", "charts", "capstan-agent"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	text := "image: {repository: registry.example.com/capstan-agent, tag: v1}\njoin: {token: '" + token + "'}\nmode: namespaced\nnamespaces: [shop]\n" + more
	if err := yaml.UnmarshalStrict([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values, chartutil.ReleaseOptions{Name: "capstan-agent", Namespace: kube.AgentNamespace, IsInstall: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	manifests := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: " + kube.AgentNamespace + "}\n"
	for name, text := range files {
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			manifests += "\n---\n" + text
		}
	}
	if err := cluster.Apply(within(t, 2*time.Minute), manifests); err != nil {
		t.Fatal(err)
	}
}

// upgrade is what the hub shows of one.
type upgrade struct {
	ID, Image, From, Phase, Message, By string
	EndedAt                             *time.Time
}

type shown struct {
	Connection   string
	Upgradable   bool
	AgentVersion string
	Upgrade      *upgrade
}

// wait waits for what the hub shows of the cluster.
func wait(t *testing.T, what string, check func(shown) bool) shown {
	t.Helper()
	var last shown
	err := poll.Until(within(t, 4*time.Minute), func(ctx context.Context) error {
		last = shown{}
		if err := s.API.Do(ctx, http.MethodGet, "/api/v1/clusters/edge", nil, &last); err != nil {
			return err
		}
		if !check(last) {
			return fmt.Errorf("not %s yet", what)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v; the hub shows %+v, upgrade %+v", err, last, last.Upgrade)
	}
	return last
}

func connected(c shown) bool { return c.Connection == "Connected" }

func over(c shown) bool {
	return c.Upgrade != nil && c.Upgrade.Phase != "Pending" && c.Upgrade.Phase != "Running"
}

// ordered orders an upgrade and gives its id.
func ordered(t *testing.T, image string, seconds int) string {
	t.Helper()
	var c shown
	if err := s.API.Do(within(t, time.Minute), http.MethodPost, "/api/v1/clusters/edge/upgrade", map[string]any{"image": image, "deadlineSeconds": seconds}, &c); err != nil {
		t.Fatal(err)
	}
	if c.Upgrade == nil || c.Upgrade.Image != image || c.Upgrade.By != "admin" {
		t.Fatalf("the order is %+v", c.Upgrade)
	}
	return c.Upgrade.ID
}

// ended waits for the end of an upgrade.
func ended(t *testing.T, id, phase string, words ...string) {
	t.Helper()
	u := wait(t, "over", func(c shown) bool { return over(c) && c.Upgrade.ID == id }).Upgrade
	if u.Phase != phase || u.EndedAt == nil {
		t.Errorf("the upgrade is %+v, want %s", u, phase)
	}
	for _, w := range words {
		if !strings.Contains(u.Message, w) {
			t.Errorf("%q is not in the message %q", w, u.Message)
		}
	}
}

// began waits until the updater has exchanged the image.
func began(t *testing.T, id string) {
	t.Helper()
	_, err := cluster.WaitFor(within(t, 3*time.Minute), deployments, kube.AgentNamespace, "capstan-agent", func(d *unstructured.Unstructured) error {
		if got := d.GetAnnotations()["capstan.dev/upgrade"]; !strings.Contains(got, id) {
			return fmt.Errorf("the record is %q", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// runs checks which image the Deployment has, and whether its pods carry a mark.
func runs(t *testing.T, image, mark string) {
	t.Helper()
	d, err := cluster.Dynamic().Resource(deployments).Namespace(kube.AgentNamespace).Get(t.Context(), "capstan-agent", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	if got := all[0].(map[string]any)["image"]; got != image {
		t.Errorf("the Deployment runs %v, want %s", got, image)
	}
	if got, _, _ := unstructured.NestedString(d.Object, "spec", "template", "metadata", "annotations", "capstan.dev/upgrade"); got != mark {
		t.Errorf("its pods are marked %q, want %q", got, mark)
	}
}

func TestUpgrade(t *testing.T) {
	token, err := s.API.CLI(within(t, 2*time.Minute), "", "cluster", "enroll", "edge", "--token-only")
	if err != nil {
		t.Fatal(err)
	}
	token = strings.TrimSpace(token)
	mounts := filepath.Join(dir, "pod")
	for name, text := range map[string]string{"join/join-token": token, "guard/guard.yaml": "{}"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(mounts, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(mounts, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	agent := []string{filepath.Join(s.Bin(), "capstan-agent")}
	k := &kubelet{cluster: cluster, dir: mounts, running: map[string]*container{}, images: map[string][]string{
		repository + "v1": agent, repository + "v2": agent, repository + "v4": agent, repository + "v5": agent,
		repository + "crashes": {"/bin/sh", "-c", "echo no such flag: --mode >&2; exit 3"},
		repository + "silent":  {"/bin/sh", "-c", "exec sleep 600"},
	}}
	install(t, token, "")
	mark, err := cluster.Mark()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- k.run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("the kubelet of the test: %v", err)
		}
	}()
	wait(t, "connected", connected)
	cli := func(words ...string) (string, error) {
		return s.API.CLI(within(t, 10*time.Minute), "", append([]string{"cluster"}, words...)...)
	}

	t.Run("FT-A5 without the owner's permission the request is refused, with what to do", func(t *testing.T) {
		_, err := cli("upgrade", "edge", "--image", repository+"v2")
		if err == nil || !strings.Contains(err.Error(), "upgrades.enabled=true") {
			t.Errorf("the order gives %v", err)
		}
		runs(t, repository+"v1", "")
	})

	install(t, token, "upgrades: {enabled: true}")
	wait(t, "upgradable", func(c shown) bool { return connected(c) && c.Upgradable })

	t.Run("FT-A5 an invalid request is refused, and so is an image that is not the agent's", func(t *testing.T) {
		if _, err := cli("upgrade", "edge", "--image", "capstan agent"); err == nil || !strings.Contains(err.Error(), "full reference") {
			t.Errorf("a malformed reference gives %v", err)
		}
		ended(t, ordered(t, "evil.example.com/capstan-agent:v9", 10), "Failed", "evil.example.com/capstan-agent", "upgrades.repositories")
		runs(t, repository+"v1", "")
	})
	t.Run("FT-A5 UX-ON-7 a good version stays, and the hub shows it", func(t *testing.T) {
		out, err := cli("upgrade", "edge", "--image", repository+"v2", "--wait")
		if err != nil || !strings.Contains(out, "cluster/edge Succeeded") {
			t.Fatalf("%v\n%s", err, out)
		}
		u := wait(t, "connected", connected).Upgrade
		if u.From != repository+"v1" {
			t.Errorf("the upgrade is %+v", u)
		}
		runs(t, repository+"v2", u.ID)
		if out, err := cli("list", "-o", "wide"); err != nil || !strings.Contains(out, "Succeeded") {
			t.Errorf("%v\n%s", err, out)
		}
	})
	good := wait(t, "connected", connected).Upgrade.ID
	t.Run("FT-A5 a version that crashes is rolled back, and the hub shows why", func(t *testing.T) {
		out, err := cli("upgrade", "edge", "--image", repository+"crashes", "--wait")
		if err == nil || !strings.Contains(out, "cluster/edge RolledBack") {
			t.Errorf("%v\n%s", err, out)
		}
		c := wait(t, "connected", connected)
		ended(t, c.Upgrade.ID, "RolledBack", "did not connect: it ended", "code 3: no such flag: --mode", repository+"v2 was brought back")
		runs(t, repository+"v2", good)
	})
	t.Run("FT-A5 the updater is killed, and its pod deleted: a version that does not connect is still rolled back", func(t *testing.T) {
		id := ordered(t, repository+"silent", 20)
		began(t, id)
		all := k.updaters(id) // that of the upgrade before may not have ended yet
		if len(all) != 1 {
			t.Fatalf("%d updaters run", len(all))
		}
		all[0].signal(syscall.SIGKILL)
		if err := cluster.Dynamic().Resource(podsOf).Namespace(kube.AgentNamespace).Delete(t.Context(), all[0].pod.GetName(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		ended(t, id, "RolledBack", "did not connect within 20s", repository+"v2 was brought back")
		runs(t, repository+"v2", good)
	})
	t.Run("FT-A5 an image that does not exist is rolled back, with the kubelet's message", func(t *testing.T) {
		ended(t, ordered(t, repository+"nowhere", 20), "RolledBack", "ErrImagePull: no such image")
		runs(t, repository+"v2", good)
	})
	t.Run("FT-A5 the hub is killed in the middle: the upgrade continues, and runs once", func(t *testing.T) {
		wait(t, "connected", connected)
		from, err := cluster.Mark()
		if err != nil {
			t.Fatal(err)
		}
		id := ordered(t, repository+"v4", 300)
		began(t, id)
		if err := s.Hub.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.Hub.Start(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		ended(t, id, "Succeeded", "v4 runs and is connected")
		runs(t, repository+"v4", id)
		requests, err := cluster.Requests(from)
		if err != nil {
			t.Fatal(err)
		}
		made, patched := 0, 0
		for _, r := range requests {
			if r.Code >= 300 {
				continue
			}
			switch {
			case r.Verb == "create" && r.Resource == "jobs":
				made++
			case r.Verb == "patch" && r.Resource == "deployments" && strings.HasSuffix(r.User, ":capstan-agent-updater"):
				patched++
			}
		}
		if made != 1 || patched != 2 {
			t.Errorf("%d Jobs were made and the Deployment was changed %d times; want one, and the exchange with its confirmation", made, patched)
		}
	})
	t.Run("FT-A5 the agent is killed after it received the request: the upgrade runs once", func(t *testing.T) {
		id := ordered(t, repository+"v5", 300)
		k.all(func(c *container) {
			if !strings.HasPrefix(c.pod.GetName(), "capstan-agent-updater") {
				c.signal(syscall.SIGKILL)
			}
		})
		ended(t, id, "Succeeded")
		runs(t, repository+"v5", id)
		list, err := cluster.Dynamic().Resource(jobs).Namespace(kube.AgentNamespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for i := range list.Items {
			if strings.HasSuffix(list.Items[i].GetName(), id) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d Jobs for one order", n)
		}
	})
	t.Run("FT-A5 the updater's Job is deleted in the middle: the agent creates another one", func(t *testing.T) {
		wait(t, "connected", connected)
		id := ordered(t, repository+"v2", 300)
		began(t, id)
		background := metav1.DeletePropagationBackground
		if err := cluster.Dynamic().Resource(jobs).Namespace(kube.AgentNamespace).Delete(t.Context(), "capstan-agent-updater-"+id, metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
			t.Fatal(err)
		}
		ended(t, id, "Succeeded")
		runs(t, repository+"v2", id)
	})
	t.Run("11.9 each account has exactly the rights that an upgrade needs", func(t *testing.T) { rights(t, mark) })
}

// rights compares what the two accounts asked for with what the chart grants
// for upgrades.
func rights(t *testing.T, from kube.AuditMark) {
	t.Helper()
	requests, err := cluster.Requests(from)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, r := range requests {
		account, ours := strings.CutPrefix(r.User, "system:serviceaccount:"+kube.AgentNamespace+":")
		if !ours {
			continue
		}
		if r.Code == http.StatusForbidden {
			t.Errorf("%s has no right for %s %s", account, r.Verb, r.Path)
		}
		if r.Namespace == kube.AgentNamespace {
			used[account+" "+r.Verb+" "+r.Resource] = true
		}
	}
	for account, file := range map[string]string{"capstan-agent": "upgrade", "capstan-agent-updater": "updater"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "..", "charts", "capstan-agent", "files", file+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var rules []struct{ Resources, Verbs []string }
		if err := yaml.Unmarshal(text, &rules); err != nil {
			t.Fatal(err)
		}
		for _, rule := range rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !used[account+" "+verb+" "+resource] {
						t.Errorf("%s may %s %s, and never does", account, verb, resource)
					}
				}
			}
		}
	}
	var changes []string
	for u := range used {
		if strings.HasPrefix(u, "capstan-agent ") && strings.HasSuffix(u, "deployments") {
			changes = append(changes, u)
		}
	}
	if !slices.Equal(changes, []string{"capstan-agent get deployments"}) {
		text, _ := json.Marshal(changes)
		t.Errorf("the agent itself touches Deployments: %s", text)
	}
}
