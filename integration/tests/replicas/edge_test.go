package replicas_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	"github.com/capstan-cd/capstan/integration/rigs/stack"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// An identity is what makes an agent, and may be copied.
type identity struct {
	mu sync.Mutex
	id *link.Identity
}

func (v *identity) Load(context.Context) (link.Identity, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.id == nil {
		return link.Identity{}, fault.New(fault.Missing, "none")
	}
	return *v.id, nil
}

func (v *identity) Save(_ context.Context, id link.Identity) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.id = &id
	return nil
}

// An edge is the real link of an agent without a cluster behind it, which
// attaches to the replica that the test chooses.
type edge struct {
	*inventory.Store
	fingerprint string
	opened      chan string // replica
	closed      chan error
	client      *link.Client
	stop        func()
}

func (e *edge) Facts(context.Context) (link.Facts, error) {
	return link.Facts{Fingerprint: e.fingerprint, KubeVersion: "v1.35.4", Readyz: "ok"}, nil
}

func (e *edge) Cursor() *linkv1.Cursor {
	c, _ := e.Position()
	return &linkv1.Cursor{Incarnation: c.Incarnation, Seq: c.Seq, Chain: c.Chain, Proof: c.Proof}
}

func (e *edge) StoreBatch(ctx context.Context, b *linkv1.Batch) error {
	_, commit, err := e.Stage(b)
	if err != nil {
		return err
	}
	return commit.Wait(ctx)
}

func (e *edge) Rewound(reason string) { e.Rewind(reason) }
func (e *edge) Respond(context.Context, *linkv1.FollowDown) (*linkv1.FollowUp, error) {
	return nil, nil
}

func (e *edge) Next(ctx context.Context) (*linkv1.ReportUp, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
func (e *edge) Acked(string, uint64, uint64) {}
func (e *edge) Resnapshot()                  {}
func (e *edge) Compare(*linkv1.Compare)      {}
func (e *edge) Grant(uint64)                 {}
func (e *edge) Revoked([]*linkv1.Revoked)    {}

func (e *edge) Opened(_ context.Context, h *linkv1.HelloResponse) error {
	e.opened <- h.GetReplicaId()
	return nil
}
func (e *edge) Closed(err error) { e.closed <- err }

// enrol makes an identity for a cluster of that name.
func enrol(t *testing.T, cluster string) *identity {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	token, err := s.API.CLI(ctx, "", "cluster", "enroll", cluster, "--token-only")
	if err != nil {
		t.Fatal(err)
	}
	v := &identity{}
	_, err = link.Enroll(ctx, strings.TrimSpace(token), link.EnrolConfig{Vault: v, Cluster: &edge{fingerprint: cluster}, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// run starts a process with an identity, which reaches one replica alone.
func (v *identity) run(t *testing.T, at *stack.Hub, fingerprint, process string, leads bool) *edge {
	t.Helper()
	copied, err := inventory.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	e := &edge{Store: copied, fingerprint: fingerprint, opened: make(chan string, 100), closed: make(chan error, 100)}
	client, err := link.New(link.Config{
		Vault: v, Cluster: e, Desired: e, Reports: e, Sessions: e, Epoch: process, Instance: "directory of " + process, Version: "v0.1.0",
		Log: slog.New(slog.DiscardHandler), Load: func() link.Load { return link.Load{Leader: leads} },
		Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, at.Link)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	e.client = client
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- copied.Run(ctx) }()
	go func() { done <- client.Run(ctx) }()
	e.stop = sync.OnceFunc(func() {
		cancel()
		<-done
		<-done
		_ = copied.Close()
	})
	t.Cleanup(e.stop)
	return e
}

// attached waits until the process is let in, which must be at that replica.
func (e *edge) attached(t *testing.T, at int) {
	t.Helper()
	select {
	case replica := <-e.opened:
		if !strings.HasPrefix(replica, fmt.Sprintf("replica-%d.", at)) {
			t.Fatalf("the agent is attached to %s and not to replica %d", replica, at)
		}
	case err := <-e.closed:
		t.Fatalf("the agent was refused: %v", err)
	case <-within(t, 2*time.Minute).Done():
		t.Fatal("the agent did not attach")
	}
}

// refused waits until the agent is told that it may not come in.
func (e *edge) refused(t *testing.T) error {
	t.Helper()
	var reason error
	err := poll.Until(within(t, 2*time.Minute), func(context.Context) error {
		reason = e.client.State().Problem
		if kind := fault.KindOf(reason); kind == fault.Denied || kind == fault.Conflict {
			return nil
		}
		return fmt.Errorf("state %+v", e.client.State())
	})
	if err != nil {
		t.Fatalf("nobody refused the agent: %v", err)
	}
	return reason
}

// ended waits for the end of the session.
func (e *edge) ended(t *testing.T) error {
	t.Helper()
	select {
	case err := <-e.closed:
		return err
	case <-within(t, 2*time.Minute).Done():
		t.Fatal("nobody ended the session")
		return nil
	}
}

// place is a cluster as people see it.
type place struct {
	Connection string `json:"connection"`
	Held       bool   `json:"held"`
	Rewind     *struct {
		Proven bool `json:"proven"`
	} `json:"rewind"`
	Quarantine *json.RawMessage `json:"quarantine"`
	Refused    *struct {
		Address string `json:"address"`
	} `json:"refused"`
}

// see waits until a cluster looks as it should through a replica.
func see(t *testing.T, through *stack.Hub, cluster, what string, want func(place) bool) {
	t.Helper()
	var p place
	err := poll.Until(within(t, 3*time.Minute), func(ctx context.Context) error {
		p = place{}
		if err := only(through).Do(ctx, http.MethodGet, "/api/v1/clusters/"+cluster, nil, &p); err != nil {
			return err
		}
		if !want(p) {
			return fmt.Errorf("%s: not yet", what)
		}
		return nil
	})
	if err != nil {
		b, _ := json.Marshal(p)
		t.Fatalf("%v: %s", err, b)
	}
}
