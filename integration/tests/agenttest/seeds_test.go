package agenttest_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/capstan-cd/capstan/agent/wave/wavetest"
	"github.com/capstan-cd/capstan/integration/rigs/build"
	"github.com/capstan-cd/capstan/integration/rigs/kube"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
)

// realSeeds is how many of the model's scenarios are played on a cluster.
const realSeeds = 25

// leastKills is how often the agent dies in them at least: an operation does
// not come by every point that its scenario would have it die at.
const leastKills = 8

// steps are the places of the agent at which it is killed.
var steps = []string{
	failpoint.AgentPlanAfter, failpoint.AgentSendBefore, failpoint.AgentSendAfter, failpoint.AgentRecordAfter, failpoint.AgentDeleteBefore,
	failpoint.AgentDeleteAfter, failpoint.AgentHookBefore, failpoint.AgentHookAfter, failpoint.AgentHookRemoved, failpoint.AgentLedgerBefore,
	failpoint.AgentLedgerAfter, failpoint.AgentResultBefore, failpoint.AgentResultAfter, failpoint.WaveStepBefore, failpoint.WaveStepAfter,
	failpoint.WaveHookRunning, failpoint.WavePruned, failpoint.WaveCleanUp,
}

// A mortal is the agent's process, which kills itself at armed points and is
// started again.
type mortal struct {
	w        *world
	bin, arm string // binary, and the file that arms it
	token    string

	mu     sync.Mutex
	left   []string // terms that are still to be armed
	killed int
	cmd    *exec.Cmd
	over   bool
	done   chan struct{}
}

func (w *world) mortal() *mortal {
	w.t.Helper()
	dir := w.t.TempDir()
	m := &mortal{w: w, bin: filepath.Join(dir, "capstan-agent"), arm: filepath.Join(dir, "arm"), token: filepath.Join(dir, "token"), done: make(chan struct{})}
	if err := build.Product(w.t.Context(), dir, "-tags", "failpoints"); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(m.token, []byte(w.token), 0o600); err != nil {
		w.t.Fatal(err)
	}
	m.write("")
	m.start()
	go m.restartLoop()
	w.t.Cleanup(m.end)
	return m
}

func (m *mortal) write(term string) {
	if err := os.WriteFile(m.arm, []byte(term+"\n"), 0o600); err != nil {
		m.w.t.Error(err)
	}
}

func (m *mortal) start() {
	cmd := exec.Command(m.bin, "run", "--kubeconfig", shared.Kubeconfig(), "--namespace", m.w.home, "--state-dir", m.w.state, "--join-token-file", m.token, "--log-level", "error")
	cmd.Env = append(os.Environ(), "CAPSTAN_FAILPOINTS_FILE="+m.arm)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		m.w.t.Error(err)
		return
	}
	m.cmd = cmd
}

// restartLoop starts the agent again whenever it has died, with the next point armed.
func (m *mortal) restartLoop() {
	defer close(m.done)
	for {
		m.mu.Lock()
		cmd := m.cmd
		m.mu.Unlock()
		_ = cmd.Wait()
		m.mu.Lock()
		if m.over {
			m.mu.Unlock()
			return
		}
		m.killed++
		m.next()
		m.start()
		m.mu.Unlock()
	}
}

// next arms the next point. The caller holds mu.
func (m *mortal) next() {
	term := ""
	if len(m.left) > 0 {
		term, m.left = m.left[0], m.left[1:]
	}
	m.write(term)
}

func (m *mortal) crashes(terms []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left = terms
	m.next()
}

func (m *mortal) end() {
	m.mu.Lock()
	m.over = true
	cmd := m.cmd
	m.mu.Unlock()
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-m.done
}

// A stage is one scenario on the cluster.
type stage struct {
	wavetest.Scenario
	w     *world
	a     *application
	space string
}

// manifest writes an object of a scenario.
func (s stage) manifest(o wavetest.Object) string {
	notes := []string{fmt.Sprintf("argocd.argoproj.io/sync-wave: '%d'", o.Wave)}
	if len(o.Hooks) > 0 {
		notes = append(notes, "argocd.argoproj.io/hook: '"+strings.Join(o.Hooks, ",")+"'", "argocd.argoproj.io/hook-delete-policy: '"+o.Policy+"'",
			"fate: "+string(o.Fate))
	}
	if o.Last {
		notes = append(notes, "argocd.argoproj.io/sync-options: PruneLast=true")
	}
	head := fmt.Sprintf("metadata: {name: %s, namespace: %s, annotations: {%s}}\n", o.Name, s.space, strings.Join(notes, ", "))
	switch o.Kind {
	case "Job":
		return "---\napiVersion: batch/v1\nkind: Job\n" + head +
			"spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}\n"
	case "Deployment":
		return "---\napiVersion: apps/v1\nkind: Deployment\n" + head + fmt.Sprintf(
			"spec: {replicas: 0, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: busybox}]}}}\n", o.Name)
	case "Service":
		return "---\napiVersion: v1\nkind: Service\n" + head + "spec: {ports: [{port: 80}]}\n"
	}
	key := "key"
	if o.Fate == wavetest.Refused {
		key = "'no key at all'"
	}
	return "---\napiVersion: v1\nkind: ConfigMap\n" + head + "data: {" + key + ": desired}\n"
}

// before is what an earlier operation has left: objects to prune, and some
// that are as desired already.
func (s stage) before() string {
	var b strings.Builder
	for _, o := range s.Objects {
		if o.Prune || o.There && o.Fate == wavetest.Well {
			b.WriteString(s.manifest(o))
		}
	}
	return b.String()
}

func (s stage) wanted() string {
	var b strings.Builder
	for _, o := range s.Objects {
		if !o.Prune {
			b.WriteString(s.manifest(o))
		}
	}
	return b.String()
}

func (s stage) terms() []string {
	var out []string
	for _, c := range s.Crashes {
		out = append(out, fmt.Sprintf("%s=exit:%d", steps[c.Point%len(steps)], 1+c.Call%2))
	}
	return out
}

// player ends the Jobs of the hooks as their fates say.
func player(ctx context.Context, t *testing.T) {
	t.Helper()
	for ctx.Err() == nil {
		list, err := shared.Dynamic().Resource(jobs).List(ctx, metav1.ListOptions{})
		if err == nil {
			for i := range list.Items {
				finishAs(ctx, &list.Items[i])
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func finishAs(ctx context.Context, job *unstructured.Unstructured) {
	fate := job.GetAnnotations()["fate"]
	_, begun, _ := unstructured.NestedString(job.Object, "status", "startTime")
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	if fate == "" || !begun || len(conditions) > 0 {
		return
	}
	now := metav1.Now().UTC().Format(time.RFC3339)
	first, last, completion := "SuccessCriteriaMet", "Complete", fmt.Sprintf(`"completionTime":%q,`, now)
	if fate == string(wavetest.Degraded) {
		first, last, completion = "FailureTarget", "Failed", ""
	}
	text := fmt.Sprintf(`{"status":{"active":0,"ready":0,"uncountedTerminatedPods":{},%s"conditions":[{"type":%q,"status":"True","lastTransitionTime":%q,"reason":"r"},{"type":%q,"status":"True","lastTransitionTime":%q,"reason":"r"}]}}`,
		completion, first, now, last, now)
	_, _ = shared.Dynamic().Resource(jobs).Namespace(job.GetNamespace()).Patch(ctx, job.GetName(), types.MergePatchType, []byte(text), metav1.PatchOptions{}, "status")
}

func TestSeeds(t *testing.T) {
	w := newWorld(t)
	w.stop()
	m := w.mortal()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go player(ctx, t)
	for seed := range uint64(realSeeds) {
		d := wavetest.Draw(seed + 1)
		t.Run(fmt.Sprintf("FT-A1 INV-1 INV-2 INV-3 INV-5 seed %d of the model on a real cluster, with kill -9", d.Seed), func(t *testing.T) {
			w.t = t
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(d)
				}
			})
			s := stage{Scenario: d, w: w, a: w.application(), space: fmt.Sprintf("%s-%d", w.namespace, d.Seed)}
			s.play(t, m)
		})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t.Logf("%d operations, %d kills", realSeeds, m.killed)
	if m.killed < leastKills {
		t.Errorf("the agent was killed %d times, which shows nothing; at least %d are to be expected", m.killed, leastKills)
	}
}

func (s stage) play(t *testing.T, m *mortal) {
	w := s.w
	w.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: " + s.space + "}\n" +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: foreign, namespace: " + s.space + "}\n")
	m.crashes(nil)
	if text := s.before(); text != "" {
		s.a.deploy(text)
	}
	for _, o := range s.Objects {
		if o.Leftover && len(o.Hooks) > 0 {
			w.apply(strings.Replace(s.manifest(o), "annotations: {", "annotations: {capstan.dev/hook-instance: former/x, ", 1))
		}
	}
	mark, err := shared.Mark()
	if err != nil {
		t.Fatal(err)
	}
	m.crashes(s.terms())
	id := s.a.begin(s.wanted(), nil)
	w.await("operation "+id+" ended", func() bool { return w.finals[id] > 0 })
	w.mu.Lock()
	report := w.operations[id]
	w.mu.Unlock()
	requests, err := shared.Requests(mark)
	if err != nil {
		t.Fatal(err)
	}
	s.check(t, report, requests)
}

// check judges what was done by the audit log of the API server, and the
// final state by what is there.
func (s stage) check(t *testing.T, report *linkv1.OperationReport, requests []kube.Request) {
	t.Helper()
	if p := report.GetPhase(); p != "Succeeded" && p != "Failed" {
		t.Fatalf("it ended %s: %s", p, report.GetMessage())
	}
	created, applied := map[string]int{}, map[string]time.Time{}
	for _, r := range requests {
		if r.Namespace != s.space || r.Code >= 300 || r.Sub != "" || strings.Contains(r.Path, "dryRun") || !strings.HasPrefix(r.Agent, "capstan-agent") {
			continue
		}
		switch r.Verb {
		case "create":
			created[r.Resource+"/"+r.Name]++
		case "patch":
			if _, seen := applied[r.Resource+"/"+r.Name]; !seen {
				applied[r.Resource+"/"+r.Name] = r.At
			}
		case "delete":
			if !slices.ContainsFunc(s.Objects, func(o wavetest.Object) bool { return o.Name == r.Name && (o.Prune || len(o.Hooks) > 0) }) {
				t.Errorf("INV-3: %s/%s was deleted and nobody asked for it", r.Resource, r.Name)
			}
		}
	}
	for _, o := range s.Objects {
		if n := created["jobs/"+o.Name]; len(o.Hooks) > 0 && n > len(o.Hooks) {
			t.Errorf("INV-2: hook %s was made %d times for %d phases", o.Name, n, len(o.Hooks))
		}
	}
	if report.GetPhase() == "Succeeded" {
		s.checkDone(t)
		s.checkOrder(t, applied)
	} else if !slices.ContainsFunc(s.Objects, func(o wavetest.Object) bool { return o.Fate != wavetest.Well || o.Leftover }) {
		t.Errorf("it failed without a reason: %s", report.GetMessage())
	}
	if _, err := shared.Dynamic().Resource(configMaps).Namespace(s.space).Get(t.Context(), "foreign", metav1Get); err != nil {
		t.Errorf("INV-3: %v", err)
	}
}

// checkDone: INV-5, what is wanted is there and what is to go is gone.
func (s stage) checkDone(t *testing.T) {
	t.Helper()
	places := map[string]string{"ConfigMap": "configmaps", "Service": "services", "Deployment": "deployments"}
	for _, o := range s.Objects {
		gvr := configMaps
		gvr.Resource = places[o.Kind]
		if o.Kind == "Deployment" {
			gvr = deployments
		}
		switch {
		case len(o.Hooks) > 0:
		case o.Prune:
			ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
			if err := shared.WaitGone(ctx, gvr, s.space, o.Name); err != nil {
				t.Errorf("INV-5: %s was not pruned: %v", o.Name, err)
			}
			cancel()
		default:
			if _, err := shared.Dynamic().Resource(gvr).Namespace(s.space).Get(t.Context(), o.Name, metav1Get); err != nil {
				t.Errorf("INV-5: %v", err)
			}
		}
	}
}

// checkOrder: ENG-02, an object of a lower wave was applied first.
func (s stage) checkOrder(t *testing.T, applied map[string]time.Time) {
	t.Helper()
	at := func(o wavetest.Object) (time.Time, bool) {
		at, ok := applied[strings.ToLower(o.Kind)+"s/"+o.Name]
		return at, ok && len(o.Hooks) == 0 && !o.Prune && !o.There
	}
	for _, a := range s.Objects {
		for _, b := range s.Objects {
			first, ok := at(a)
			then, also := at(b)
			if ok && also && a.Wave < b.Wave && then.Before(first) {
				t.Errorf("ENG-02: %s of wave %d was applied before %s of wave %d", b.Name, b.Wave, a.Name, a.Wave)
			}
		}
	}
}
