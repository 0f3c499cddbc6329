//go:build soak

package agenttest_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

// crowd is how full a cluster is.
type crowd struct {
	kinds, namespaces, objects int
}

// crowdOf is the crowd of the specification, or what CAPSTAN_CROWD says, such
// as "5000 1000 100000": custom kinds, namespaces, objects.
func crowdOf(t *testing.T) crowd {
	t.Helper()
	c := crowd{kinds: 5000, namespaces: 1000, objects: 100_000}
	if text := os.Getenv("CAPSTAN_CROWD"); text != "" {
		if _, err := fmt.Sscan(text, &c.kinds, &c.namespaces, &c.objects); err != nil {
			t.Fatalf("CAPSTAN_CROWD is %q, want three numbers: %v", text, err)
		}
	}
	return c
}

const (
	kindsOfGroup = 10  // custom kinds in one group
	kindsInUse   = 200 // of which there are objects
	crowdMemory  = 256 // MiB: the limit of the agent's chart
)

func (c crowd) group(i int) string     { return fmt.Sprintf("g%d.crowd.example.com", i/kindsOfGroup) }
func (c crowd) plural(i int) string    { return fmt.Sprintf("things%d", i) }
func (c crowd) kind(i int) string      { return fmt.Sprintf("Thing%d", i) }
func (c crowd) namespace(i int) string { return fmt.Sprintf("crowd-%d", i%c.namespaces) }

func (c crowd) resource(i int) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: c.group(i), Version: "v1", Resource: c.plural(i)}
}

// fill makes everything that is in the cluster beside the application.
func (c crowd) fill(t *testing.T) {
	t.Helper()
	conf, err := shared.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	conf.QPS = -1
	client, err := dynamic.NewForConfig(conf)
	if err != nil {
		t.Fatal(err)
	}
	create := func(r schema.GroupVersionResource, namespace string, o map[string]any) error {
		target := dynamic.ResourceInterface(client.Resource(r))
		if namespace != "" {
			target = client.Resource(r).Namespace(namespace)
		}
		_, err := target.Create(t.Context(), &unstructured.Unstructured{Object: o}, metav1.CreateOptions{})
		return err
	}
	c.each(t, "custom kinds", c.kinds, func(i int) error { return create(crds, "", c.definition(i)) })
	c.served(t, client)
	c.each(t, "namespaces", c.namespaces, func(i int) error {
		return create(namespaces, "", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": c.namespace(i)}})
	})
	filling := strings.Repeat("x", 1000)
	c.each(t, "objects", c.objects, func(i int) error {
		o := map[string]any{"apiVersion": "v1", "metadata": map[string]any{"name": fmt.Sprintf("foreign-%d", i), "labels": map[string]any{"app": "foreign"}}}
		switch i % 10 {
		case 0:
			kind := i / 10 % min(c.kinds, kindsInUse)
			o["apiVersion"], o["kind"], o["spec"] = c.group(kind)+"/v1", c.kind(kind), map[string]any{"filling": filling}
			return create(c.resource(kind), c.namespace(i), o)
		case 1, 2:
			o["kind"], o["data"] = "Secret", map[string]any{"a": base64.StdEncoding.EncodeToString([]byte(filling))}
			return create(secrets, c.namespace(i), o)
		}
		o["kind"], o["data"] = "ConfigMap", map[string]any{"a": filling}
		return create(configMaps, c.namespace(i), o)
	})
}

func (c crowd) definition(i int) map[string]any {
	version := func(name string, storage bool) map[string]any {
		return map[string]any{"name": name, "served": true, "storage": storage, "schema": map[string]any{
			"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
		}}
	}
	return map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": c.plural(i) + "." + c.group(i)},
		"spec": map[string]any{
			"group": c.group(i), "scope": "Namespaced",
			"names":    map[string]any{"kind": c.kind(i), "plural": c.plural(i), "singular": strings.ToLower(c.kind(i)), "listKind": c.kind(i) + "List"},
			"versions": []any{version("v1", true), version("v1beta1", false)},
		},
	}
}

// served waits until the API server serves all custom kinds.
func (c crowd) served(t *testing.T, client dynamic.Interface) {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	for i := range c.kinds {
		err := poll.Until(ctx, func(ctx context.Context) error {
			o, err := client.Resource(crds).Get(ctx, c.plural(i)+"."+c.group(i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			return established(o)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("all custom kinds are established %s later", time.Since(began).Round(time.Second))
}

// each does something n times, several at once.
func (c crowd) each(t *testing.T, what string, n int, do func(int) error) {
	t.Helper()
	began := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for i := int(next.Add(1) - 1); i < n; i = int(next.Add(1) - 1) {
				if err := do(i); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	t.Logf("%d %s were made in %s", n, what, time.Since(began).Round(time.Second))
}

// readings counts the requests of an agent since a mark: lists and watches by
// resource, and those that are for no resource by path.
func (w *world) readings(from kube.AuditMark) map[string]int {
	w.t.Helper()
	requests, err := shared.Requests(from)
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]int{}
	for _, r := range requests {
		switch {
		case r.User != "system:serviceaccount:"+w.home+":capstan-agent":
		case r.Code == 429 || r.Code >= 500:
			out[fmt.Sprint("answered ", r.Code)]++
		case r.Resource == "":
			path, _, _ := strings.Cut(r.Path, "?")
			out["get "+path]++
		case r.Verb == "list" || r.Verb == "watch":
			out[r.Verb+" "+schema.GroupResource{Group: r.Group, Resource: r.Resource}.String()]++
		}
	}
	return out
}

// peak is the most memory that an agent has had, in MiB.
func (p agentProcess) peak(t *testing.T) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			var kib int
			if _, err := fmt.Sscan(rest, &kib); err != nil {
				t.Fatal(err)
			}
			return kib >> 10
		}
	}
	t.Fatal("the kernel does not say how much memory the agent has had")
	return 0
}

// TestCrowdedCluster has a cluster of its own. It has no controllers: their
// garbage collector would watch every kind itself, and nothing here needs it.
func TestCrowdedCluster(t *testing.T) {
	bin, size := agentBinary(t), crowdOf(t)
	own, err := kube.Start(t.Context(), "crowded", kube.Options{})
	if err != nil {
		t.Fatal(err)
	}
	all := shared
	shared = own
	t.Cleanup(func() {
		shared = all
		if err := own.Stop(); err != nil {
			t.Error(err)
		}
	})
	size.fill(t)
	w := newPlace(t)
	w.change(func() { w.timeout = time.Minute })
	rights, err := kube.AgentRightsIn(w.home, "cluster")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(rights)
	kubeconfig, err := shared.AccountKubeconfig(t.Context(), w.home, "capstan-agent")
	if err != nil {
		t.Fatal(err)
	}
	thing := func(i int, value string) string {
		return fmt.Sprintf("---\napiVersion: %s/v1\nkind: %s\nmetadata: {name: web, namespace: NS}\nspec: {color: %s}\n", size.group(i), size.kind(i), value)
	}
	yaml := func(color string) string {
		return configMap("web", color) + thing(0, color) +
			"---\napiVersion: v1\nkind: Secret\nmetadata: {name: web, namespace: NS}\nstringData: {color: " + color + "}\n" +
			"---\napiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: NS}\nspec: {selector: {app: web}, ports: [{port: 80}]}\n"
	}
	a := w.application()
	id := a.begin(yaml("red"), nil)
	var p agentProcess
	start := func() kube.AuditMark {
		from := mark(t)
		p = w.processAs(bin, kubeconfig)
		return from
	}
	t.Cleanup(func() { p.end(syscall.SIGKILL) })
	// status waits for the first report that says that all is well, of those that come from now on.
	status := func(what string) {
		t.Helper()
		began := time.Now()
		a.await("Synced and Healthy", func(r *linkv1.AppReport) bool { return r.GetSync() == "Synced" && r.GetHealth() == "Healthy" })
		t.Logf("%s: first status after %s, %d MiB at most", what, time.Since(began).Round(time.Millisecond), p.peak(t))
	}
	within := func(t *testing.T) {
		t.Helper()
		if got := p.peak(t); got > crowdMemory {
			t.Errorf("the agent has had %d MiB, its limit is %d", got, crowdMemory)
		}
	}
	own1 := schema.GroupResource{Group: size.group(0), Resource: size.plural(0)}.String()
	needed := []string{"configmaps", "endpointslices.discovery.k8s.io", "secrets", "services", own1}
	// watched waits until everything needed is watched, and finds that nothing else was asked for.
	watched := func(t *testing.T, from kube.AuditMark) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var counts map[string]int
		err := poll.Until(ctx, func(context.Context) error {
			counts = w.readings(from)
			for _, kind := range needed {
				if counts["watch "+kind] == 0 {
					return fmt.Errorf("%s is not watched", kind)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			t.Logf("%s: %d", what, counts[what])
			verb, kind, _ := strings.Cut(what, " ")
			switch verb {
			case "list":
				if !slices.Contains(needed, kind) {
					t.Errorf("%s is listed, and nobody needs it", kind)
				}
			default: // a watch, or what the server says of itself
				if counts[what] != 1 || verb == "watch" && !slices.Contains(needed, kind) {
					t.Errorf("%s: %d times", what, counts[what])
				}
			}
		}
	}
	from := start()
	t.Run("FT-K11 the first status of an application in a crowded cluster is quick, and stays within the agent's memory limit", func(t *testing.T) {
		status("a new agent")
		w.ended(id, "Succeeded")
		within(t)
		watched(t, from)
	})
	t.Run("FT-K11 a restart costs the same", func(t *testing.T) {
		p.end(syscall.SIGTERM)
		w.change(func() { clear(w.apps) })
		from = start()
		status("restarted")
		w.ended(a.begin(yaml("blue"), nil), "Succeeded")
		within(t)
		watched(t, from)
	})
	t.Run("FT-K11 FT-A3 with its directory lost, as on another node, it costs the same", func(t *testing.T) {
		p.end(syscall.SIGTERM)
		if err := os.RemoveAll(w.state); err != nil {
			t.Fatal(err)
		}
		w.change(func() { clear(w.apps) })
		from = start()
		status("without its directory")
		within(t)
		watched(t, from)
	})
	t.Run("FT-K11 an object of a kind that nothing has used so far needs one more watch", func(t *testing.T) {
		from = mark(t)
		w.ended(a.begin(yaml("blue")+thing(size.kinds-1, "red"), nil), "Succeeded")
		status("another kind")
		last := schema.GroupResource{Group: size.group(size.kinds - 1), Resource: size.plural(size.kinds - 1)}
		for what, n := range w.readings(from) {
			if strings.HasPrefix(what, "watch ") && (what != "watch "+last.String() || n != 1) {
				t.Errorf("%s: %d times", what, n)
			}
		}
		within(t)
	})
	t.Run("FT-K11 CMPR-11 orphans of a namespace are found among all kinds", func(t *testing.T) {
		w.apply(configMap("stray", "red") + strings.Replace(thing(1, "red"), "name: web", "name: stray", 1))
		w.change(func() { w.timeout = 10 * time.Minute }) // an API server that has not served a kind so far takes its time
		from = mark(t)
		began := time.Now()
		a.orphans = &linkv1.Orphans{Warn: true}
		w.append(a.stateRow())
		w.resource(nameOf("ConfigMap", w.namespace, "stray"), func(r *linkv1.Resource) bool { return r.GetOrphan() })
		w.resource(nameOf(size.kind(1), w.namespace, "stray"), func(r *linkv1.Resource) bool { return r.GetOrphan() })
		t.Logf("found after %s, %d MiB at most", time.Since(began).Round(time.Millisecond), p.peak(t))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		kinds := map[string]int{} // by verb
		err := poll.Until(ctx, func(context.Context) error {
			clear(kinds)
			for what := range w.readings(from) {
				verb, _, _ := strings.Cut(what, " ")
				kinds[verb]++
			}
			if kinds["list"] < size.kinds {
				return fmt.Errorf("%d kinds are listed", kinds["list"])
			}
			return nil
		})
		t.Logf("everything is listed after %s, %d MiB at most; kinds: %v", time.Since(began).Round(time.Millisecond), p.peak(t), kinds)
		if err != nil {
			t.Error(err)
		}
		if most := 500 + kindsInUse + 100; kinds["watch"] > most { // the bound, what has objects, and Kubernetes' own
			t.Errorf("%d kinds are watched, want at most %d", kinds["watch"], most)
		}
		within(t)
	})
}
