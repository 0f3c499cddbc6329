package relay_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/relay"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// agent answers like one.
type agent struct {
	linkv1.UnimplementedOpsServer
}

func (agent) Get(_ context.Context, r *linkv1.GetRequest) (*linkv1.GetResponse, error) {
	switch r.GetName() {
	case "broken":
		return &linkv1.GetResponse{Json: []byte("{")}, nil
	case "crash":
		return nil, context.Canceled
	}
	return &linkv1.GetResponse{Json: []byte(`{"kind":"` + r.GetKind() + `"}`)}, nil
}

func (agent) Diff(_ context.Context, r *linkv1.DiffRequest) (*linkv1.DiffResponse, error) {
	return &linkv1.DiffResponse{Objects: []*linkv1.ObjectDiff{{Kind: "ConfigMap", Name: r.GetAppId(), Sync: "OutOfSync", Fields: []string{"data.a"}, Live: []byte(`{}`)}}}, nil
}

func (agent) Refresh(context.Context, *linkv1.RefreshRequest) (*linkv1.RefreshResponse, error) {
	return &linkv1.RefreshResponse{}, nil
}

type attached map[hub.ClusterID]grpc.ClientConnInterface

func (a attached) Conn(_ context.Context, c hub.Cluster) (grpc.ClientConnInterface, error) {
	if conn, ok := a[c.ID]; ok {
		return conn, nil
	}
	return nil, fault.New(fault.Offline, "nowhere")
}

func connect(t *testing.T) *relay.Relay { return connectTo(t, agent{}) }

func connectTo(t *testing.T, a linkv1.OpsServer) *relay.Relay {
	t.Helper()
	ln := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	linkv1.RegisterOpsServer(server, a)
	go func() { _ = server.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///agent", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); server.Stop() })
	return relay.New(attached{"c1": conn})
}

func TestRelay(t *testing.T) {
	t.Parallel()
	r := connect(t)
	here := hub.Cluster{ID: "c1", Meta: hub.Meta{Name: "prod"}, AgentID: "a1"}
	t.Run("reads are forwarded", func(t *testing.T) {
		live, err := r.Get(t.Context(), here, "app", hub.ObjectRef{Kind: "Pod", Name: "x"})
		if err != nil || string(live) != `{"kind":"Pod"}` {
			t.Errorf("Get() = %s, %v", live, err)
		}
		diffs, err := r.Diff(t.Context(), here, "app", false, false, hub.ObjectRef{})
		if err != nil || len(diffs) != 1 || diffs[0].Name != "app" || diffs[0].Sync != hub.OutOfSync || diffs[0].Desired != nil {
			t.Errorf("Diff() = %+v, %v", diffs, err)
		}
		if err := r.Refresh(t.Context(), here, "app"); err != nil {
			t.Errorf("Refresh() = %v", err)
		}
	})
	t.Run("what is no JSON is left out", func(t *testing.T) {
		if live, err := r.Get(t.Context(), here, "app", hub.ObjectRef{Name: "broken"}); live != nil || err != nil {
			t.Errorf("Get() = %s, %v", live, err)
		}
	})
	t.Run("an agent that is disconnected or fails is one clear sentence", func(t *testing.T) {
		for name, c := range map[string]struct {
			cluster hub.Cluster
			object  string
		}{
			"NeverInstalled": {hub.Cluster{ID: "c2", Meta: hub.Meta{Name: "new"}}, "x"},
			"Disconnected":   {hub.Cluster{ID: "c3", Meta: hub.Meta{Name: "off"}, AgentID: "a3"}, "x"},
			"Crash":          {here, "crash"},
		} {
			_, err := r.Get(t.Context(), c.cluster, "app", hub.ObjectRef{Kind: "Pod", Name: c.object})
			e, ok := fault.As(err)
			if !ok || e.Kind != fault.Offline || e.Object != "cluster "+c.cluster.Name || e.Fix == "" {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// previewer answers previews, and counts what it is sent.
type previewer struct {
	agent

	calls   []int
	kept    int
	removed int
}

func (p *previewer) Preview(_ context.Context, r *linkv1.PreviewRequest) (*linkv1.DiffResponse, error) {
	p.calls = append(p.calls, len(r.GetObjects()))
	out := &linkv1.DiffResponse{}
	if r.GetRemoved() {
		p.removed, p.kept = p.removed+1, len(r.GetKept())
		out.Objects = append(out.Objects, &linkv1.ObjectDiff{Kind: "ConfigMap", Name: "zz-removed"})
	}
	for range r.GetObjects() {
		out.Objects = append(out.Objects, &linkv1.ObjectDiff{Kind: "ConfigMap", Name: "changed"})
	}
	return out, nil
}

func TestPreview(t *testing.T) {
	t.Parallel()
	here := hub.Cluster{ID: "c1", Meta: hub.Meta{Name: "prod"}, AgentID: "a1"}
	made := hub.Preview{}
	add := func(name, hook string, size int) {
		made.Objects = append(made.Objects, hub.ObjectRef{Kind: "ConfigMap", Name: name, Hook: hook})
		made.Bodies = append(made.Bodies, make([]byte, size))
	}
	t.Run("DIFF-17 an agent that is too old says so", func(t *testing.T) {
		_, err := connect(t).Preview(t.Context(), here, "app", made)
		if fault.KindOf(err) != fault.Conflict || !strings.Contains(fault.Sentence(err), "update the agent") {
			t.Error(err)
		}
	})
	t.Run("DIFF-17 objects are sent in calls that an agent accepts, hooks are not, and removals are asked for once", func(t *testing.T) {
		for range 450 {
			add("small", "", 10)
		}
		for range 3 {
			add("large", "", 400<<10)
		}
		add("hook", "PreSync", 10)
		add("huge", "", 900<<10)
		p := &previewer{}
		got, err := connectTo(t, p).Preview(t.Context(), here, "app", made)
		if err != nil || p.removed != 1 || p.kept != 454 {
			t.Fatalf("%d removals of %d: %v", p.removed, p.kept, err)
		}
		sum := 0
		for _, n := range p.calls {
			if sum += n; n > 200 {
				t.Errorf("a call has %d objects", n)
			}
		}
		if sum != 453 || len(got) != 455 {
			t.Errorf("%d objects were sent in %v, and there are %d differences", sum, p.calls, len(got))
		}
		if last := got[len(got)-1]; last.Name != "zz-removed" {
			t.Errorf("the last one is %s", last.Name)
		}
	})
	t.Run("DIFF-17 too many objects are refused", func(t *testing.T) {
		many := hub.Preview{Objects: make([]hub.ObjectRef, 9000), Bodies: make([][]byte, 9000)}
		if _, err := connect(t).Preview(t.Context(), here, "app", many); fault.KindOf(err) != fault.Exceeded {
			t.Error(err)
		}
	})
}
