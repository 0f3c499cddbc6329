package agenttest_test

import (
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/capstan-cd/capstan/agent/kubeevent"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
)

var kubeEvents = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// events returns what was written about an application: reason, type, count and
// message of each.
func (w *world) events(name string) []string {
	w.t.Helper()
	list, err := w.at(kubeEvents).List(w.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Application,involvedObject.name=" + name})
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		text := func(field string) string { s, _, _ := unstructured.NestedString(o.Object, field); return s }
		n, _, _ := unstructured.NestedInt64(o.Object, "count")
		out = append(out, fmt.Sprintf("%s %s %d %s", text("reason"), text("type"), n, text("message")))
	}
	slices.Sort(out)
	return out
}

func TestKubernetesEvents(t *testing.T) {
	w := newWorld(t)
	a := w.application()
	t.Run("API-20 without a setting no event is written", func(t *testing.T) {
		a.deploy(configMap("quiet", "red"))
		a.synced()
		if got := w.events(a.name); len(got) > 0 {
			t.Errorf("events %q", got)
		}
	})
	w.set(&linkv1.Settings{EventReasons: []string{"all"}})
	b := w.application()
	t.Run("API-20 the beginning and the end of an operation, with its initiator", func(t *testing.T) {
		revision := "0123456789abcdef0123456789abcdef01234567"
		w.eventually("the settings hold", func() bool {
			b.deploy(configMap("loud", "red"))
			return len(w.events(b.name)) > 0
		})
		w.eventually("both are told", func() bool {
			all := strings.Join(w.events(b.name), "\n")
			return strings.Contains(all, "test initiated sync to "+revision) && strings.Contains(all, "OperationCompleted Normal") && strings.Contains(all, "sync to "+revision+" succeeded")
		})
	})
	t.Run("HLT-26 a change of health is reported with its causes", func(t *testing.T) {
		b.synced()
		b.policy.SelfHeal = false
		d := "---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: lost, namespace: NS}\nspec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n"
		b.deploy(configMap("loud", "red") + d)
		w.eventually("it is told", func() bool {
			all := strings.Join(w.events(b.name), "\n")
			return strings.Contains(all, "Updated health status: Healthy -> Progressing (PersistentVolumeClaim "+w.namespace+"/lost")
		})
	})
	t.Run("API-20 a failed operation is a warning with the reason", func(t *testing.T) {
		w.ended(b.begin("---\napiVersion: v1\nkind: Service\nmetadata: {name: bad, namespace: NS}\nspec: {ports: [{port: 99999}]}\n", nil), "Failed")
		w.eventually("it is told", func() bool {
			return slices.ContainsFunc(w.events(b.name), func(e string) bool {
				return strings.HasPrefix(e, "OperationCompleted Warning 1 ") && strings.Contains(e, "spec.ports[0].port")
			})
		})
	})
}

// TestKubernetesEventsRights writes events with the rights that the chart adds
// for them, and no other.
func TestKubernetesEventsRights(t *testing.T) {
	w := newPlace(t)
	rules, err := os.ReadFile("../../../charts/capstan-agent/files/events.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w.apply("apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: teller, namespace: NS}\n---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: teller, namespace: NS}\nrules:\n" + string(rules) + "---\n" +
		"apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: teller, namespace: NS}\n" +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: teller}\nsubjects: [{kind: ServiceAccount, name: teller, namespace: NS}]\n")
	token, err := shared.AccountToken(t.Context(), w.namespace, "teller")
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(&rest.Config{Host: shared.URL(), BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAData: shared.CA()}})
	if err != nil {
		t.Fatal(err)
	}
	r := kubeevent.New(kubeevent.Config{
		Client: client, Home: w.namespace, Reasons: func() []string { return []string{kubeevent.OperationCompleted} },
		Write: func() error { return nil }, Log: slog.New(slog.DiscardHandler),
	})
	go func() { _ = r.Run(t.Context()) }()
	e := kubeevent.Event{App: "0c6e1a52-0000-4000-8000-000000000001", Name: "shop", Reason: kubeevent.OperationCompleted, Message: "sync succeeded"}
	t.Run("API-20 with the chart's rights, events are written and those that happen again are counted", func(t *testing.T) {
		for range 3 {
			r.Record(e)
		}
		r.Record(kubeevent.Event{App: e.App, Name: "shop", Reason: kubeevent.OperationStarted, Message: "nobody asked for it"})
		w.eventually("one event, counted", func() bool {
			return slices.Equal(w.events("shop"), []string{"OperationCompleted Normal 3 sync succeeded"})
		})
	})
	t.Run("API-20 too many events of one application are left out", func(t *testing.T) {
		for i := range 100 {
			f := e
			f.Message = fmt.Sprint("event ", i)
			r.Record(f)
		}
		if n := r.Dropped(); n < 70 {
			t.Errorf("%d of 103 events were left out", n)
		}
	})
}
