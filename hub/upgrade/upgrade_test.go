package upgrade

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// clock stands still.
type clock struct {
	lifecycle.System
	now time.Time
}

func (c clock) Now() time.Time { return c.now }

// world is a cluster with an order, and its agent.
type world struct {
	grpc.ClientConnInterface
	cluster hub.Cluster
	deleted bool
	answer  *linkv1.UpgradeResponse
	err     error
	away    bool
	asked   *linkv1.UpgradeRequest
	stored  int
	broken  error // of the store
}

func (w *world) Cluster(context.Context, hub.TenantID, hub.ClusterID) (hub.Cluster, error) {
	if w.deleted {
		return hub.Cluster{}, fault.New(fault.Missing, "gone")
	}
	return w.cluster, nil
}

func (w *world) PutUpgrade(_ context.Context, _ hub.TenantID, _ hub.ClusterID, u hub.Upgrade) error {
	if w.broken == nil {
		w.cluster.Upgrade, w.stored = &u, w.stored+1
	}
	return w.broken
}

func (w *world) Conn(context.Context, hub.Cluster) (grpc.ClientConnInterface, error) {
	if w.away {
		return nil, fault.New(fault.Offline, "nowhere")
	}
	return w, nil
}

func (w *world) Invoke(_ context.Context, _ string, args, reply any, _ ...grpc.CallOption) error {
	w.asked, _ = args.(*linkv1.UpgradeRequest)
	if w.err == nil {
		proto.Merge(reply.(proto.Message), w.answer)
	}
	return w.err
}

func TestCheck(t *testing.T) {
	t.Parallel()
	open := hub.Upgrade{
		ID: "u1", Image: "r/a:v2", Phase: hub.UpgradePending, By: "me", OrderedAt: noon.Add(-time.Minute), ExpiresAt: noon.Add(59 * time.Minute), Deadline: 5 * time.Minute,
	}
	running := open
	running.Phase = hub.UpgradeRunning
	says := func(phase, message string) *linkv1.UpgradeResponse {
		return &linkv1.UpgradeResponse{Phase: phase, Message: message, From: "r/a:v1", EndedUnixNano: noon.Add(-time.Second).UnixNano()}
	}
	cases := map[string]struct {
		why     string
		world   world
		order   *hub.Upgrade
		after   time.Duration
		over    bool
		phase   string
		message string
		fails   bool
	}{
		"Taken":        {why: "the agent has the order", world: world{answer: says("Running", "soon")}, order: &open, phase: "Running", message: "soon"},
		"Succeeded":    {why: "it says so", world: world{answer: says("Succeeded", "")}, order: &running, over: true, phase: "Succeeded"},
		"RolledBack":   {why: "it says so", world: world{answer: says("RolledBack", "bad\x00\nflag")}, order: &running, over: true, phase: "RolledBack", message: "bad  flag"},
		"Nonsense":     {why: "a phase that we do not know may be one of a newer agent", world: world{answer: says("Dancing", "")}, order: &running, phase: "Running", fails: true},
		"Refused":      {why: "asking again would not help", world: world{err: fault.With(fault.New(fault.Denied, "not you"), "", "ask the owner")}, order: &open, over: true, phase: "Failed", message: "not you (ask the owner)"},
		"TooOld":       {why: "the agent knows no upgrades", world: world{err: status.Error(codes.Unimplemented, "unknown service")}, order: &open, over: true, phase: "Failed", message: "too old"},
		"Lost":         {why: "the agent is just being exchanged", world: world{err: status.Error(codes.Unavailable, "closed")}, order: &running, phase: "Running"},
		"NotNow":       {why: "its API server is away", world: world{err: fault.New(fault.Offline, "no API server")}, order: &running, phase: "Running"},
		"Away":         {why: "it is attached nowhere", world: world{away: true}, order: &running, phase: "Running"},
		"Expired":      {why: "an order for yesterday is not carried out tomorrow", world: world{away: true}, order: &open, after: 2 * time.Hour, over: true, phase: "Failed", message: "not connected before the order expired"},
		"Silent":       {why: "nobody waits for ever", world: world{away: true}, order: &running, after: 2 * time.Hour, over: true, phase: "Failed", message: "not reported its end"},
		"ClusterGone":  {why: "nothing is left to upgrade", world: world{deleted: true}, over: true},
		"NoOrder":      {why: "an item of work may come twice", over: true},
		"StoreIsAway":  {why: "what is not stored is asked again", world: world{answer: says("Succeeded", ""), broken: errors.New("no database")}, order: &running, phase: "Running", fails: true},
		"AlreadyEnded": {why: "an item of work may come twice", order: &hub.Upgrade{ID: "u0", Phase: hub.UpgradeFailed}, over: true, phase: "Failed"},
	}
	for name, c := range cases {
		t.Run("FT-A5 "+name, func(t *testing.T) {
			t.Parallel()
			w := c.world
			w.cluster = hub.Cluster{ID: "c1", Connected: true, Upgrade: c.order}
			s := New(nil, &w, &w, clock{now: noon.Add(c.after)}, slog.New(slog.DiscardHandler))
			over, err := s.check(t.Context(), "t1", "c1")
			if over != c.over || (err != nil) != c.fails {
				t.Fatalf("look() = %t, %v; want %t, error %t: %s", over, err, c.over, c.fails, c.why)
			}
			if c.order == nil {
				return
			}
			u := w.cluster.Upgrade
			if u.Phase != c.phase || !strings.Contains(u.Message, c.message) || (u.EndedAt != nil) != (c.over && u.ID == "u1") {
				t.Errorf("the order is %+v: %s", u, c.why)
			}
			if w.asked != nil && (w.asked.GetId() != "u1" || w.asked.GetImage() != "r/a:v2" || w.asked.GetDeadlineSeconds() != 300 || w.asked.GetOrderedUnixNano() != open.OrderedAt.UnixNano()) {
				t.Errorf("asked for %v", w.asked)
			}
		})
	}
	t.Run("an agent that is not connected is not called", func(t *testing.T) {
		t.Parallel()
		w := world{cluster: hub.Cluster{Upgrade: &open}}
		if over, err := New(nil, &w, &w, clock{now: noon}, slog.New(slog.DiscardHandler)).check(t.Context(), "t1", "c1"); over || err != nil || w.asked != nil || w.stored != 0 {
			t.Errorf("look() = %t, %v; asked %v", over, err, w.asked)
		}
	})
}
