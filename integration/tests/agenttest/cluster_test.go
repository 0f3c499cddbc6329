package agenttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/daemon"
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// shared is the one cluster of the package; each test has a namespace of its own.
var shared *kube.Cluster

func TestMain(m *testing.M) {
	os.Exit(kube.Main(m, kube.Options{Controllers: true}, func(c *kube.Cluster) { shared = c }))
}

// world is one agent with its hub, in a namespace of a real cluster.
type world struct {
	*fakeHub
	t         *testing.T
	namespace string // of the applications
	home      string // of the agent
	state     string // directory
	faults    faults
	stop      func()
	count     int
	mode      string    // of an agent that has an account of its own and the rights of its chart
	scope     []string  // its namespaces
	guard     string    // contents of its guard file
	secrets   string    // contents of its policy for secrets
	alsoLog   io.Writer // gets its log, too; nil: nobody
	account   *rest.Config
	connect   *rest.Config // how it reaches the cluster; nil: as an admin
	marker    *application // by which it is known that the agent has seen what there is
	settings  string       // id of the row of settings
	version   uint64       // of the settings
}

// newWorld starts an agent and waits until it is attached.
func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldWith(t, nil)
}

// newWorldWith is newWorld for an agent that is installed otherwise.
func newWorldWith(t *testing.T, with func(*world)) *world {
	t.Helper()
	w := newPlace(t)
	if with != nil {
		with(w)
	}
	w.run()
	return w
}

// newPlace is a world whose agent does not run yet.
func newPlace(t *testing.T) *world {
	t.Helper()
	w := &world{fakeHub: newHub(t), t: t, state: filepath.Join(t.TempDir(), "state")}
	id := strings.Map(func(r rune) rune { // as names of namespaces are
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(t.Name()))
	w.namespace, w.home = cut(id+"-app"), cut(id+"-agent")
	for _, ns := range []string{w.namespace, w.home} {
		w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + ns + "}\n")
	}
	return w
}

func cut(s string) string { return strings.TrimLeft(s[max(0, len(s)-60):], "-") }

// run starts the agent, or starts it again with the state that it has.
func (w *world) run() {
	w.t.Helper()
	conf, err := shared.RESTConfig()
	if err != nil {
		w.t.Fatal(err)
	}
	if w.connect != nil {
		conf = rest.CopyConfig(w.connect)
	}
	c := daemon.Config{
		StateDir: w.state, Namespace: w.home, REST: conf, JoinToken: w.token, Log: quiet(w.t), Wrap: w.faults.wrap,
	}
	if w.mode != "" || w.guard != "" {
		w.install(&c)
	}
	if w.secrets != "" {
		c.SecretsFile = filepath.Join(w.t.TempDir(), "secrets.yaml")
		if err := os.WriteFile(c.SecretsFile, []byte(w.secrets), 0o600); err != nil {
			w.t.Fatal(err)
		}
	}
	if w.alsoLog != nil {
		c.Log = slog.New(slog.NewTextHandler(io.MultiWriter(w.alsoLog, writer{w.t}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- daemon.Run(ctx, c)
	}()
	var once sync.Once
	w.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Errorf("the agent ended with: %v", err)
			}
		})
	}
	w.t.Cleanup(func() { w.stop() })
}

// faults stands between the agent and the API server.
type faults struct {
	mu   sync.Mutex
	rule func(r *http.Request, next http.RoundTripper) (*http.Response, error) // nil: pass on
}

func (f *faults) set(rule func(*http.Request, http.RoundTripper) (*http.Response, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rule = rule
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

func (f *faults) wrap(next http.RoundTripper) http.RoundTripper {
	return tripper(func(r *http.Request) (*http.Response, error) {
		f.mu.Lock()
		rule := f.rule
		f.mu.Unlock()
		if rule == nil {
			return next.RoundTrip(r)
		}
		return rule(r, next)
	})
}

// application is what a test deploys.
type application struct {
	w          *world
	id, name   string
	generation uint64
	policy     *linkv1.Policy
	tombstones []*linkv1.Tombstone
	target     *linkv1.SnapshotRef
	accepted   *linkv1.SnapshotRef
	ops        int
	fence      uint64 // of the next operation, if not the generation
	orphans    *linkv1.Orphans
	approved   int64 // when deletions were approved last
}

func (w *world) application() *application {
	w.count++
	return &application{
		w: w, id: string(hub.NewID[hub.ApplicationID]()), name: fmt.Sprintf("shop-%d", w.count),
		policy: &linkv1.Policy{Automated: true, SelfHeal: true, Prune: true},
	}
}

// snapshot seals manifests (YAML) and gives the reference to them.
func (a *application) snapshot(yaml string) *linkv1.SnapshotRef {
	a.w.t.Helper()
	objs, err := manifest.Parse("test.yaml", []byte(inNamespace(yaml, a.w.namespace)), manifest.Limits{})
	if err != nil {
		a.w.t.Fatal(err)
	}
	ref := &linkv1.SnapshotRef{Id: string(hub.NewID[hub.SnapshotID]()), Revision: "0123456789abcdef0123456789abcdef01234567"}
	for _, o := range objs {
		ref.Objects = append(ref.Objects, a.seal(o))
	}
	return ref
}

func (a *application) seal(o *manifest.Object) *linkv1.ObjectRef {
	if err := manifest.Normalize(o); err != nil {
		a.w.t.Fatal(err)
	}
	text, err := manifest.Canonical(o)
	if err != nil {
		a.w.t.Fatal(err)
	}
	digest := encryption.Digest(digestKey(), text)
	sealed, err := encryption.SealBlob(objectKey(), digest, text)
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.w.change(func() { a.w.blobs[string(digest[:])] = sealed })
	key := manifest.KeyOf(o)
	wave := manifest.Wave(o)
	hooks, _ := manifest.Hooks(o)
	return &linkv1.ObjectRef{
		Digest: digest[:], Group: key.Group, Version: manifest.Version(o), Kind: key.Kind, Namespace: key.Namespace,
		Name: key.Name, Wave: wave, Hook: strings.Join(hooks, ","),
	}
}

// stateRow is the application as it stands now.
func (a *application) stateRow() *linkv1.Row {
	a.generation++
	return row(linkv1.RowKind_ROW_KIND_STATE, a.id, &linkv1.AppState{
		Name: a.name, AppNamespace: "argocd", Namespace: a.w.namespace, Project: "default", Generation: a.generation,
		Target: a.target, Accepted: a.accepted, Policy: a.policy, Tombstones: a.tombstones,
		Orphans:          a.orphans,
		ApprovedUnixNano: a.approved,
	})
}

// operation makes the row of an operation on the target.
func (a *application) operation(change func(*linkv1.Operation)) (string, *linkv1.Row) {
	a.ops++
	fence := a.generation
	if a.fence != 0 {
		fence = a.fence
	}
	o := &linkv1.Operation{
		Id: string(hub.NewID[hub.OperationID]()), Kind: linkv1.OperationKind_OPERATION_KIND_SYNC, Fence: fence,
		Snapshot: &linkv1.SnapshotRef{Id: a.target.GetId(), Revision: a.target.GetRevision()}, Options: &linkv1.Options{Prune: true},
		DeadlineUnix: time.Now().Add(2 * waitLimit).Unix(), Initiator: "test", CreatedUnixNano: time.Now().UnixNano(),
	}
	if change != nil {
		change(o)
	}
	return o.GetId(), row(linkv1.RowKind_ROW_KIND_OPERATION, a.id, o)
}

// begin writes state and operation in one batch.
func (a *application) begin(yaml string, change func(*linkv1.Operation)) string {
	a.w.t.Helper()
	a.addTombstones(a.target, yaml)
	a.target = a.snapshot(yaml)
	a.accepted = a.target
	state := a.stateRow()
	id, op := a.operation(change)
	a.w.append(state, op)
	return id
}

// addTombstones makes tombstones of what a new snapshot no longer has.
func (a *application) addTombstones(old *linkv1.SnapshotRef, yaml string) {
	next := a.snapshot(yaml)
	has := func(o *linkv1.ObjectRef) bool {
		for _, n := range next.GetObjects() {
			if n.GetKind() == o.GetKind() && n.GetName() == o.GetName() && n.GetNamespace() == o.GetNamespace() {
				return true
			}
		}
		return false
	}
	for _, o := range old.GetObjects() {
		if o.GetHook() == "" && !has(o) {
			a.tombstones = append(a.tombstones, &linkv1.Tombstone{Group: o.GetGroup(), Version: o.GetVersion(), Kind: o.GetKind(), Namespace: o.GetNamespace(), Name: o.GetName(), Wave: o.GetWave()})
		}
	}
}

// deploy begins an operation and waits for its end in a phase.
func (a *application) deploy(yaml string) *linkv1.OperationReport {
	a.w.t.Helper()
	return a.w.ended(a.begin(yaml, nil), "Succeeded")
}

// ended waits for the end of an operation.
func (w *world) ended(id, phase string) *linkv1.OperationReport {
	w.t.Helper()
	w.await("operation "+id+" ended", func() bool { return w.finals[id] > 0 })
	w.mu.Lock()
	defer w.mu.Unlock()
	o := w.operations[id]
	if o.GetPhase() != phase {
		w.t.Fatalf("operation ended %s (%s), want %s\n%s", o.GetPhase(), o.GetMessage(), phase, w.describe())
	}
	return o
}

// awaitApp waits until the newest report of an application fits.
func (a *application) await(what string, cond func(*linkv1.AppReport) bool) *linkv1.AppReport {
	a.w.t.Helper()
	var out *linkv1.AppReport
	a.w.await(what, func() bool {
		out = a.w.fakeHub.apps[a.id]
		return out != nil && out.GetTarget() == a.target.GetId() && cond(out)
	})
	return out
}

func (a *application) synced() {
	a.w.t.Helper()
	a.await("application is Synced", func(r *linkv1.AppReport) bool { return r.GetSync() == "Synced" })
}

// resource waits until the hub knows a resource that fits.
func (w *world) resource(name string, cond func(*linkv1.Resource) bool) *linkv1.Resource {
	w.t.Helper()
	var out *linkv1.Resource
	w.await("resource "+name, func() bool { out = w.resources[name]; return out != nil && cond(out) })
	return out
}

// namespaceMark stands for the namespace of a test in its manifests. It counts
// as a word only: random keys and secrets contain the two letters, too.
var namespaceMark = regexp.MustCompile(`\bNS\b`)

func inNamespace(yaml, namespace string) string {
	return namespaceMark.ReplaceAllLiteralString(yaml, namespace)
}

func (w *world) apply(yaml string) {
	w.t.Helper()
	if err := shared.Apply(w.t.Context(), inNamespace(yaml, w.namespace)); err != nil {
		w.t.Fatal(err)
	}
}

var (
	configMaps  = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets     = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	namespaces  = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	jobs        = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}
)

func (w *world) at(r schema.GroupVersionResource) dynamic.ResourceInterface {
	return shared.Dynamic().Resource(r).Namespace(w.namespace)
}

func (w *world) get(r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.at(r).Get(w.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// edit changes a live object under the name of a field manager.
func (w *world) edit(r schema.GroupVersionResource, name, manager, patch string) *unstructured.Unstructured {
	w.t.Helper()
	o, err := w.at(r).Patch(w.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// live waits until a live object fits.
func (w *world) live(r schema.GroupVersionResource, name string, check func(*unstructured.Unstructured) error) *unstructured.Unstructured {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
	defer cancel()
	o, err := shared.WaitFor(ctx, r, w.namespace, name, check)
	if err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.t.Fatalf("%s: %v\n%s", name, err, w.describe())
	}
	return o
}

// eventually waits for what the hub does not hear of.
func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
	defer cancel()
	err := poll.Until(ctx, func(context.Context) error {
		if cond() {
			return nil
		}
		return errors.New("it is not so yet")
	})
	if err != nil {
		w.t.Fatalf("%s: %v", what, err)
	}
}

// waitForState waits until the agent goes by the newest state of the application.
func (a *application) waitForState() {
	a.w.t.Helper()
	a.w.await("the state is taken", func() bool { return a.w.fakeHub.apps[a.id].GetGeneration() == a.generation })
}

func (w *world) waitDeleted(r schema.GroupVersionResource, name string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), waitLimit)
	defer cancel()
	if err := shared.WaitGone(ctx, r, w.namespace, name); err != nil {
		w.t.Fatal(err)
	}
}

// data checks one key of a ConfigMap.
func data(key, want string) func(*unstructured.Unstructured) error {
	return func(o *unstructured.Unstructured) error {
		got, _, _ := unstructured.NestedString(o.Object, "data", key)
		if got != want {
			return fmt.Errorf("data.%s is %q, want %q", key, got, want)
		}
		return nil
	}
}

func configMap(name, color string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: NS}\ndata: {color: %q}\n", name, color)
}

var (
	metav1Get   = metav1.GetOptions{}
	metav1Patch = metav1.PatchOptions{}
)

// asList moves the target's references into a blob, as the hub does with many.
func (a *application) asList() {
	text, err := proto.Marshal(&linkv1.ObjectList{Objects: a.target.GetObjects()})
	if err != nil {
		a.w.t.Fatal(err)
	}
	digest := encryption.Digest(digestKey(), text)
	sealed, err := encryption.SealBlob(objectKey(), digest, text)
	if err != nil {
		a.w.t.Fatal(err)
	}
	a.w.change(func() { a.w.blobs[string(digest[:])] = sealed })
	a.target.Objects, a.target.List = nil, digest[:]
}
