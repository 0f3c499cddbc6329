package actions_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/capstan-cd/capstan/agent/actions"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/action"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/manifest"
)

// cluster has one object of each kind that is asked about.
type cluster struct {
	objects map[string]string
	acts    atomic.Int32
	enter   chan struct{} // closed when an action may go on; nil: at once
	began   chan struct{}
	once    sync.Once
	got     []action.Change
}

func (c *cluster) Belongs(app string, k manifest.Key) bool {
	return app == "a" && c.objects[k.Kind] != ""
}

func (c *cluster) Read(_ context.Context, _ string, k manifest.Key, _ string) (*manifest.Object, error) {
	return manifest.FromCanonical([]byte(c.objects[k.Kind]))
}

func (c *cluster) Act(ctx context.Context, r *linkv1.RunActionRequest, k manifest.Key, do func(context.Context, *manifest.Object) ([]action.Change, error)) ([]*manifest.Object, error) {
	c.acts.Add(1)
	if c.enter != nil {
		c.once.Do(func() { close(c.began) })
		<-c.enter
	}
	live, err := c.Read(ctx, r.GetObject().GetAppId(), k, r.GetObject().GetVersion())
	if err != nil {
		return nil, err
	}
	if c.got, err = do(ctx, live); err != nil {
		return nil, err
	}
	var out []*manifest.Object
	for _, x := range c.got {
		out = append(out, &manifest.Object{Object: x.Object})
	}
	return out, nil
}

func newCluster() *cluster {
	return &cluster{began: make(chan struct{}), objects: map[string]string{
		"Deployment": `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web","namespace":"n","uid":"u"},"spec":{"replicas":1,"template":{"metadata":{}}}}`,
		"CronJob":    `{"apiVersion":"batch/v1","kind":"CronJob","metadata":{"name":"web","namespace":"n","uid":"u"},"spec":{"jobTemplate":{"spec":{"x":1}}}}`,
		"Secret":     `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"web","namespace":"n","uid":"u","annotations":{"kubectl.kubernetes.io/last-applied-configuration":"aHVudGVyMg==","hide/me":"aHVudGVyMg==","seen":"x","old":"x"}},"data":{"k":"aHVudGVyMg==","l":"eA=="}}`,
	}}
}

func server(c *cluster, own func(string, string) (action.Set, bool)) *actions.Server {
	return actions.New(c, own, func() []string { return []string{"hide/me"} }, slog.New(slog.DiscardHandler))
}

func of(kind string) *linkv1.ActionObject {
	o := &linkv1.ActionObject{AppId: "a", Version: "v1", Kind: kind, Namespace: "n", Name: "web"}
	switch kind {
	case "Deployment":
		o.Group = "apps"
	case "CronJob":
		o.Group = "batch"
	}
	return o
}

func TestActions(t *testing.T) {
	t.Parallel()
	t.Run("ACT-03 an object's actions are listed", func(t *testing.T) {
		t.Parallel()
		got, err := server(newCluster(), nil).ListActions(t.Context(), &linkv1.ListActionsRequest{Object: of("Deployment")})
		if err != nil || len(got.GetActions()) != 4 {
			t.Fatal(got, err)
		}
		for _, a := range got.GetActions() {
			if (a.GetName() == "resume") != a.GetDisabled() {
				t.Errorf("%s is disabled: %v", a.GetName(), a.GetDisabled())
			}
			if a.GetName() == "scale" && (len(a.GetParams()) != 1 || a.GetParams()[0].GetName() != "replicas") {
				t.Errorf("parameters %v", a.GetParams())
			}
		}
	})
	t.Run("ACT-08 an action returns what it wrote", func(t *testing.T) {
		t.Parallel()
		got, err := server(newCluster(), nil).RunAction(t.Context(), &linkv1.RunActionRequest{Id: "1", Object: of("CronJob"), Action: "create-job"})
		if err != nil || len(got.GetChanges()) != 1 || !got.GetChanges()[0].GetCreated() || got.GetChanges()[0].GetKind() != "Job" {
			t.Error(got, err)
		}
	})
	t.Run("an action with one id runs once", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		s := server(c, nil)
		for range 3 {
			got, err := s.RunAction(t.Context(), &linkv1.RunActionRequest{Id: "1", Object: of("Deployment"), Action: "restart"})
			if err != nil || len(got.GetChanges()) != 1 {
				t.Fatal(got, err)
			}
		}
		if n := c.acts.Load(); n != 1 {
			t.Errorf("it ran %d times", n)
		}
	})
	t.Run("an action continues without its caller, and its result can be read later", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		c.enter = make(chan struct{})
		s := server(c, nil)
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() {
			_, _ = s.RunAction(ctx, &linkv1.RunActionRequest{Id: "1", Object: of("Deployment"), Action: "restart"})
		})
		<-c.began
		cancel()
		close(c.enter)
		got, err := s.RunAction(t.Context(), &linkv1.RunActionRequest{Id: "1", Recall: true, Object: of("Deployment"), Action: "restart"})
		if err != nil || len(got.GetChanges()) != 1 || c.acts.Load() != 1 {
			t.Error(got, err, c.acts.Load())
		}
		first.Wait()
	})
	t.Run("a request for the result of an unknown action does not run it", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		_, err := server(c, nil).RunAction(t.Context(), &linkv1.RunActionRequest{Id: "1", Recall: true, Object: of("Deployment"), Action: "restart"})
		if fault.KindOf(err) != fault.Missing || c.acts.Load() != 0 {
			t.Error(err, c.acts.Load())
		}
	})
	for name, r := range map[string]*linkv1.RunActionRequest{
		"without an id":     {Object: of("Deployment"), Action: "restart"},
		"without a name":    {Id: "1", Object: of("Deployment")},
		"without an object": {Id: "1", Action: "restart"},
	} {
		t.Run("a request is refused "+name, func(t *testing.T) {
			t.Parallel()
			if _, err := server(newCluster(), nil).RunAction(t.Context(), r); fault.KindOf(err) != fault.Invalid {
				t.Error(err)
			}
		})
	}
	t.Run("ISO-1 another application's object is not changed", func(t *testing.T) {
		t.Parallel()
		c := newCluster()
		o := of("Deployment")
		o.AppId = "b"
		_, err := server(c, nil).RunAction(t.Context(), &linkv1.RunActionRequest{Id: "1", Object: o, Action: "restart"})
		_, listed := server(c, nil).ListActions(t.Context(), &linkv1.ListActionsRequest{Object: o})
		if fault.KindOf(err) != fault.Missing || fault.KindOf(listed) != fault.Missing || c.acts.Load() != 0 {
			t.Error(err, listed, c.acts.Load())
		}
	})
}

func TestSecretsStayHidden(t *testing.T) {
	t.Parallel()
	own := func(_, kind string) (action.Set, bool) {
		return action.Set{
			Discovery: `return {tell = {displayName = obj.data.k}, fail = {}, note = {}}`,
			Scripts: map[string]string{
				"fail": `local all = obj.data.k for k, v in pairs(obj.metadata.annotations) do all = all .. v end error(all)`,
				"note": `obj.metadata.labels = {a = "b"} obj.metadata.annotations.old = nil obj.data.l = "bmV3" return obj`,
			},
		}, kind == "Secret"
	}
	c := newCluster()
	s := server(c, own)
	all, err := s.ListActions(t.Context(), &linkv1.ListActionsRequest{Object: of("Secret")})
	if err != nil || strings.Contains(all.String(), "aHVud") {
		t.Errorf("SEC a list shows a Secret's value: %v, %v", all, err)
	}
	_, err = s.RunAction(t.Context(), &linkv1.RunActionRequest{Id: "1", Object: of("Secret"), Action: "fail"})
	if err == nil || strings.Contains(err.Error(), "aHVud") {
		t.Errorf("SEC an error shows a Secret's value: %v", err)
	}
	if _, err = s.RunAction(t.Context(), &linkv1.RunActionRequest{Id: "2", Object: of("Secret"), Action: "note"}); err != nil {
		t.Fatal(err)
	}
	data := c.got[0].Object["data"].(map[string]any)
	if data["k"] != "aHVudGVyMg==" || data["l"] != "bmV3" {
		t.Errorf("values that the script did not see are to be written as %v", data)
	}
	notes := (&manifest.Object{Object: c.got[0].Object}).GetAnnotations()
	want := map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "aHVudGVyMg==", "hide/me": "aHVudGVyMg==", "seen": "x"}
	if !maps.Equal(notes, want) {
		t.Errorf("annotations are to be written as %v", notes)
	}
}

func TestFailuresAreStored(t *testing.T) {
	t.Parallel()
	c := newCluster()
	own := func(string, string) (action.Set, bool) {
		return action.Set{Discovery: `return {x = {}}`, Scripts: map[string]string{"x": `error("no", 0)`}}, true
	}
	s := server(c, own)
	_, first := s.RunAction(t.Context(), &linkv1.RunActionRequest{Id: "1", Object: of("Deployment"), Action: "x"})
	_, again := s.RunAction(t.Context(), &linkv1.RunActionRequest{Id: "1", Recall: true, Object: of("Deployment"), Action: "x"})
	if first == nil || !errors.Is(again, first) || c.acts.Load() != 1 {
		t.Error(first, again, c.acts.Load())
	}
}
