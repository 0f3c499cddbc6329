package relay_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/relay"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// wire is a connection to an agent; each call is answered by the next of the
// answers, and the last one stays.
type wire struct {
	grpc.ClientConnInterface

	mu       sync.Mutex
	answers  []func(*linkv1.RunActionResponse) error
	requests []*linkv1.RunActionRequest
}

func (w *wire) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, _ := args.(*linkv1.RunActionRequest)
	w.requests = append(w.requests, &linkv1.RunActionRequest{Id: r.GetId(), Recall: r.GetRecall(), Action: r.GetAction(), Params: r.GetParams()})
	next := w.answers[0]
	if len(w.answers) > 1 {
		w.answers = w.answers[1:]
	}
	out, _ := reply.(*linkv1.RunActionResponse)
	return next(out)
}

func done(out *linkv1.RunActionResponse) error {
	out.Changes = []*linkv1.ActionChange{{Created: true, Group: "batch", Version: "v1", Kind: "Job", Namespace: "n", Name: "j"}}
	return nil
}

func fails(err error) func(*linkv1.RunActionResponse) error {
	return func(*linkv1.RunActionResponse) error { return err }
}

// agents has an agent that is away for some questions.
type agents struct {
	conn *wire
	away int // questions from the second on that find no agent; negative: all
	asks int
}

func (a *agents) Conn(context.Context, hub.Cluster) (grpc.ClientConnInterface, error) {
	a.asks++
	if a.asks > 1 && (a.away < 0 || a.asks <= 1+a.away) {
		return nil, tunnel.NotHere("nowhere")
	}
	return a.conn, nil
}

func TestAct(t *testing.T) {
	t.Parallel()
	lost := status.Error(codes.Unavailable, "the connection is closed")
	link := tunnel.Fault(lost) // as the link says it
	slow := tunnel.Fault(status.Error(codes.DeadlineExceeded, "the call exceeded its time limit"))
	gone := tunnel.Fault(status.Error(codes.Canceled, "the session has ended"))
	here := hub.Cluster{ID: "c1", Meta: hub.Meta{Name: "prod"}, AgentID: "a1"}
	wish := hub.ActionRequest{ID: "wish-1", Name: "create-job", Params: map[string]string{"a": "b"}}
	for _, c := range []struct {
		name    string
		answers []func(*linkv1.RunActionResponse) error
		away    int
		kind    fault.Kind // empty: it succeeds
		says    string
		asked   []bool // recall of each request
	}{
		{"ACT-07 an action passes through", []func(*linkv1.RunActionResponse) error{done}, 0, "", "", []bool{false}},
		{"what the agent says of a failure passes through", []func(*linkv1.RunActionResponse) error{fails(fault.New(fault.Conflict, "not now"))}, 0, fault.Conflict, "not now", []bool{false}},
		{"a lost answer is asked for, and the action not run again", []func(*linkv1.RunActionResponse) error{fails(lost), done}, 3, "", "", []bool{false, true}},
		{"a connection that is lost again is awaited again", []func(*linkv1.RunActionResponse) error{fails(lost), fails(lost), fails(lost), done}, 0, "", "", []bool{false, true, true, true}},
		{"a link that breaks is no answer, whatever the link says of it", []func(*linkv1.RunActionResponse) error{fails(link), fails(slow), fails(gone), fails(tunnel.NotHere("gone")), done}, 1, "", "", []bool{false, true, true, true, true}},
		{"a cluster that the agent cannot reach is an answer", []func(*linkv1.RunActionResponse) error{fails(fault.New(fault.Offline, "the API server is away"))}, 0, fault.Offline, "the API server is away", []bool{false}},
		{"an agent that has just gone was not asked", []func(*linkv1.RunActionResponse) error{fails(tunnel.NotHere("gone"))}, 0, fault.Offline, "its agent is not connected", []bool{false}},
		{"a defect of the agent is an answer", []func(*linkv1.RunActionResponse) error{fails(tunnel.Fault(status.Error(codes.Internal, "defect")))}, 0, fault.Internal, "", []bool{false}},
		{"a lost failure is told", []func(*linkv1.RunActionResponse) error{fails(lost), fails(fault.New(fault.Invalid, "bad script"))}, 0, fault.Invalid, "bad script", []bool{false, true}},
		{"an agent that knows nothing of the action is told so", []func(*linkv1.RunActionResponse) error{fails(lost), fails(fault.New(fault.Missing, "no"))}, 0, fault.Offline, "knows nothing of it", []bool{false, true}},
		{"an agent that does not come back leaves the result open, and that is said", []func(*linkv1.RunActionResponse) error{fails(lost)}, -1, fault.Offline, "whether it was carried out is not known", []bool{false}},
		{"an agent of before actions is told", []func(*linkv1.RunActionResponse) error{fails(status.Error(codes.Unimplemented, "unknown service"))}, 0, fault.Conflict, "too old", []bool{false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := &wire{answers: c.answers}
				got, err := relay.New(&agents{conn: w, away: c.away}).Act(t.Context(), here, "app", hub.ObjectRef{Kind: "CronJob", Name: "x"}, wish)
				if fault.KindOf(err) != c.kind || c.kind != "" && !strings.Contains(fault.Sentence(err), c.says) {
					t.Errorf("error %v, want %s: %s", err, c.kind, c.says)
				}
				if c.kind == "" && (len(got) != 1 || !got[0].Created || got[0].Name != "j") {
					t.Errorf("changes %+v", got)
				}
				for i, r := range w.requests {
					if r.GetId() != wish.ID || r.GetAction() != wish.Name || r.GetParams()["a"] != "b" || i < len(c.asked) && r.GetRecall() != c.asked[i] {
						t.Errorf("request %d is %v", i, r)
					}
				}
				if len(w.requests) != len(c.asked) {
					t.Errorf("%d requests, want %d", len(w.requests), len(c.asked))
				}
			})
		})
	}
	t.Run("a disconnected agent is an error at once", func(t *testing.T) {
		t.Parallel()
		_, err := relay.New(attached{}).Act(t.Context(), here, "app", hub.ObjectRef{}, wish)
		_, list := relay.New(attached{}).Actions(t.Context(), here, "app", hub.ObjectRef{})
		if fault.KindOf(err) != fault.Offline || fault.KindOf(list) != fault.Offline {
			t.Error(err, list)
		}
	})
}
