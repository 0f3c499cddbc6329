package upgrade

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// still is a clock that stands still.
type still struct {
	lifecycle.System
	now time.Time
}

func (s still) Now() time.Time { return s.now }

func TestServer(t *testing.T) {
	t.Parallel()
	held := func(r Record) *unstructured.Unstructured {
		d := deployment(v1)
		d.SetAPIVersion("apps/v1")
		d.SetKind("Deployment")
		d.SetNamespace("ops")
		if r.ID != "" {
			text, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			d.SetAnnotations(map[string]string{Annotation: string(text)})
		}
		return d
	}
	running := Record{ID: one, Ordered: noon, From: v1, To: v2, Phase: Running, Begun: noon, Deadline: noon.Add(5 * time.Minute)}
	job := func(conditions ...any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]any{"namespace": "ops", "name": jobName(order(one, v2))},
			"status": map[string]any{"conditions": conditions},
		}}
	}
	damaged := held(Record{})
	damaged.SetAnnotations(map[string]string{Annotation: "{"})
	cases := map[string]struct {
		why     string
		objects []runtime.Object
		image   string
		denied  bool // by the owner
		after   time.Duration
		phase   string
		kind    fault.Kind
		says    string
		jobs    int // afterwards
	}{
		"Begins":          {why: "an order starts the updater", objects: []runtime.Object{held(Record{})}, phase: Running, says: "has not begun yet", jobs: 1},
		"Again":           {why: "an order comes twice", objects: []runtime.Object{held(Record{}), job()}, phase: Running, says: "has not begun yet", jobs: 1},
		"NotAllowed":      {why: "the owner decides", objects: []runtime.Object{held(Record{})}, denied: true, kind: fault.Denied, says: "does not let the hub"},
		"Foreign":         {why: "an image of anybody would be anybody's rights", objects: []runtime.Object{held(Record{})}, image: "evil.example.com/capstan-agent:v2", kind: fault.Denied, says: "evil.example.com"},
		"Mirror":          {why: "the owner has named it", objects: []runtime.Object{held(Record{})}, image: "mirror.example.com/agent:v2", phase: Running, jobs: 1},
		"Malformed":       {why: "the hub may be anyone", objects: []runtime.Object{held(Record{})}, image: "--x", kind: fault.Invalid, says: "not a full reference"},
		"NoDeployment":    {why: "somebody started the agent by hand", kind: fault.Denied, says: "there is none"},
		"Damaged":         {why: "somebody wrote into the record", objects: []runtime.Object{damaged}, kind: fault.Invalid, says: "not readable"},
		"UnderWay":        {why: "the record says so", objects: []runtime.Object{held(running), job()}, phase: Running, says: "has until 12:05:00 UTC", jobs: 1},
		"WithoutUpdater":  {why: "nobody would take it back", objects: []runtime.Object{held(running)}, phase: Running, says: "has until", jobs: 1},
		"NoLongerAllowed": {why: "it has begun", objects: []runtime.Object{held(running), job()}, denied: true, phase: Running, jobs: 1},
		"Over":            {why: "the record says so", objects: []runtime.Object{held(running.end(noon, RolledBack, "it crashed"))}, phase: RolledBack, says: "it crashed"},
		"Stale":           {why: "a restored hub", objects: []runtime.Object{held(Record{ID: two, Ordered: noon.Add(time.Second), To: v3, Phase: Succeeded})}, kind: fault.Conflict, says: "newer upgrade"},
		"Late":            {why: "the agent was away", objects: []runtime.Object{held(Record{})}, after: 2 * time.Hour, phase: Failed, says: "did not begin before"},
		"JobFailed": {why: "its image cannot start any more", objects: []runtime.Object{held(Record{}), job(map[string]any{"type": "Failed", "status": "True", "message": "too many tries"})},
			phase: Failed, says: "before it changed anything (too many tries)", jobs: 1},
	}
	for name, c := range cases {
		t.Run("FT-A5 "+name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				deployments: "DeploymentList", jobs: "JobList",
			}, c.objects...)
			s := &Server{
				Allowed: !c.denied, Repositories: []string{"mirror.example.com/agent"}, Client: client, Namespace: "ops",
				Clock: still{now: noon.Add(c.after)}, Log: slog.New(slog.DiscardHandler),
			}
			image := v2
			if c.image != "" {
				image = c.image
			}
			got, err := s.Upgrade(t.Context(), &linkv1.UpgradeRequest{
				Id: one, Image: image, OrderedUnixNano: noon.UnixNano(), BeginBeforeUnix: noon.Add(time.Hour).Unix(), DeadlineSeconds: 300,
			})
			gotText := got.GetMessage()
			if err != nil {
				gotText = err.Error()
			}
			if fault.KindOf(err) != c.kind || got.GetPhase() != c.phase || !strings.Contains(gotText, c.says) {
				t.Errorf("Upgrade() = %v, %v; want phase %q, error %q, %q: %s", got, err, c.phase, c.kind, c.says, c.why)
			}
			if (got.GetEndedUnixNano() != 0) != (c.phase == Failed || c.phase == RolledBack) {
				t.Errorf("ended at %d in phase %s", got.GetEndedUnixNano(), got.GetPhase())
			}
			list, err := client.Resource(jobs).Namespace("ops").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(list.Items) != c.jobs {
				t.Errorf("%d Jobs, want %d: %v", len(list.Items), c.jobs, err)
			}
		})
	}
}
