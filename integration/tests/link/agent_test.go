package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/integration/rigs/poll"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/hashchain"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

// vault keeps an identity in memory.
type vault struct {
	mu    sync.Mutex
	id    *link.Identity
	saves int
	fail  func(save int) error // nil: never
}

func (v *vault) Load(context.Context) (link.Identity, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.id == nil {
		return link.Identity{}, fault.New(fault.Missing, "nothing was saved")
	}
	return *v.id, nil
}

func (v *vault) Save(_ context.Context, id link.Identity) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.saves++
	if v.fail != nil {
		if err := v.fail(v.saves); err != nil {
			return err
		}
	}
	v.id = &id
	return nil
}

// facts of a cluster.
type facts link.Facts

func (f facts) Facts(context.Context) (link.Facts, error) { return link.Facts(f), nil }

func someFacts() facts {
	return facts{Fingerprint: "uid-of-kube-system", KubeVersion: "v1.35.4", APIVersions: []string{"apps/v1"}, Readyz: "ok"}
}

// inventory is the agent's copy of the log.
type inventory struct {
	mu      sync.Mutex
	changed *sync.Cond
	rows    []*linkv1.Row
	rewound string
	fail    error // of the next Take
	takes   int
}

func newInventory() *inventory {
	i := &inventory{}
	i.changed = sync.NewCond(&i.mu)
	return i
}

func (i *inventory) Cursor() *linkv1.Cursor {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.rows) == 0 {
		return &linkv1.Cursor{}
	}
	last := i.rows[len(i.rows)-1]
	return &linkv1.Cursor{Incarnation: incarnation, Seq: last.GetSeq(), Chain: last.GetChain()}
}

func (i *inventory) StoreBatch(_ context.Context, b *linkv1.Batch) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	defer i.changed.Broadcast()
	i.takes++
	if err := i.fail; err != nil {
		i.fail = nil
		return err
	}
	for _, r := range b.GetRows() {
		prev := hashchain.First(b.GetIncarnation())
		if n := len(i.rows); n > 0 {
			prev = i.rows[n-1].GetChain()
		}
		if r.GetSeq() != uint64(len(i.rows)+1) || !bytes.Equal(r.GetChain(), hashchain.Next(prev, r.GetSeq(), int32(r.GetKind()), r.GetAppId(), r.GetBody())) {
			return fmt.Errorf("row %d does not follow row %d", r.GetSeq(), len(i.rows))
		}
		i.rows = append(i.rows, r)
	}
	return nil
}

func (i *inventory) Root() []byte {
	i.mu.Lock()
	defer i.mu.Unlock()
	return rootOf(i.rows)
}

func (i *inventory) Rewound(reason string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.rewound = reason
	i.changed.Broadcast()
}

func (i *inventory) Respond(context.Context, *linkv1.FollowDown) (*linkv1.FollowUp, error) {
	return nil, nil
}

func (i *inventory) await(cond func() bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for !cond() {
		i.changed.Wait()
	}
}

// reporter gives reports as a test makes them.
type reporter struct {
	mu       sync.Mutex
	changed  *sync.Cond
	epoch    string
	made     uint64
	ready    []*linkv1.ReportUp
	acked    uint64
	snapshot int
}

func newReporter(epoch string) *reporter {
	r := &reporter{epoch: epoch}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// make adds a report with a payload of about that size.
func (r *reporter) make(size int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made++
	app := &linkv1.AppReport{AppId: fmt.Sprint(r.made), Error: string(bytes.Repeat([]byte{'x'}, size))}
	r.ready = append(r.ready, &linkv1.ReportUp{Epoch: r.epoch, Seq: r.made, Apps: []*linkv1.AppReport{app}})
	r.changed.Broadcast()
}

func (r *reporter) Next(ctx context.Context) (*linkv1.ReportUp, error) {
	stop := context.AfterFunc(ctx, func() { r.mu.Lock(); defer r.mu.Unlock(); r.changed.Broadcast() })
	defer stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.ready) == 0 {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.changed.Wait()
	}
	m := r.ready[0]
	r.ready = r.ready[1:]
	return proto.Clone(m).(*linkv1.ReportUp), nil
}

func (r *reporter) Acked(epoch string, seq, _ uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if epoch == r.epoch {
		r.acked = max(r.acked, seq)
	}
	r.changed.Broadcast()
}

func (r *reporter) Compare(*linkv1.Compare) {}
func (r *reporter) Grant(uint64)            {}

func (r *reporter) Resnapshot() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot++
	r.changed.Broadcast()
}

func (r *reporter) await(cond func() bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for !cond() {
		r.changed.Wait()
	}
}

// listener hears of sessions.
type listener struct {
	mu      sync.Mutex
	changed *sync.Cond
	opened  []*linkv1.HelloResponse
	closed  []error
}

func newListener() *listener {
	l := &listener{}
	l.changed = sync.NewCond(&l.mu)
	return l
}

func (l *listener) Opened(_ context.Context, h *linkv1.HelloResponse) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opened = append(l.opened, h)
	l.changed.Broadcast()
	return nil
}

func (l *listener) Revoked([]*linkv1.Revoked) {}

func (l *listener) Closed(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = append(l.closed, err)
	l.changed.Broadcast()
}

// ended is how many sessions have ended.
func (l *listener) ended() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.closed)
}

// awaitOpened waits for the nth session, from 1, and gives the hub's answer.
func (l *listener) awaitOpened(n int) *linkv1.HelloResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.opened) < n {
		l.changed.Wait()
	}
	return l.opened[n-1]
}

// awaitClosed waits for the nth end, from 1, and gives its reason.
func (l *listener) awaitClosed(n int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.closed) < n {
		l.changed.Wait()
	}
	return l.closed[n-1]
}

// agent is one agent process.
type agent struct {
	*link.Client
	vault    *vault
	desired  *inventory
	reports  *reporter
	sessions *listener
	cluster  hub.ClusterID
	stop     func()
}

// live answers the hub's calls.
type live struct {
	linkv1.UnimplementedOpsServer
	name string
}

func (o live) Get(_ context.Context, r *linkv1.GetRequest) (*linkv1.GetResponse, error) {
	return &linkv1.GetResponse{Json: []byte(o.name + " has " + r.GetName())}, nil
}

// enrol trades a token for an identity.
func (w *world) enrol(token string) (*vault, error) {
	v := &vault{}
	_, err := link.Enroll(w.t.Context(), token, link.EnrolConfig{Vault: v, Cluster: someFacts(), Log: w.log.logger(), Version: "test"})
	return v, err
}

// run starts an agent process with an identity, until the test ends or stop
// is called.
func (w *world) run(v *vault, change func(*link.Config)) *agent {
	w.t.Helper()
	epoch := string(hub.NewID[hub.TokenID]())
	a := &agent{vault: v, desired: newInventory(), reports: newReporter(epoch), sessions: newListener()}
	cfg := link.Config{
		Vault: v, Cluster: someFacts(), Desired: a.desired, Reports: a.reports, Sessions: a.sessions,
		Load: func() link.Load { return link.Load{Backlog: 3, Seq: a.desired.Cursor().GetSeq()} }, Epoch: epoch, Log: w.log.logger(),
		Serve:   func(r grpc.ServiceRegistrar) { linkv1.RegisterOpsServer(r, live{name: "agent"}) },
		Version: "test", Clock: lifecycle.System{},
		Random: func() float64 { return 0 }, // no test waits for a back-off
	}
	if change != nil {
		change(&cfg)
	}
	c, err := link.New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	a.Client = c
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	var once sync.Once
	a.stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				w.t.Errorf("the agent ended with: %v", err)
			}
		})
	}
	w.t.Cleanup(a.stop)
	return a
}

// join makes a cluster, enrols an agent for it and runs it, all through addr.
func (w *world) join(r *replica, addr string, tenant hub.TenantID, change func(*link.Config)) *agent {
	w.t.Helper()
	token, _, c := w.token(r, addr, tenant)
	v, err := w.enrol(token)
	if err != nil {
		w.t.Fatalf("Enroll() = %v", err)
	}
	a := w.run(v, change)
	a.cluster = c
	return a
}

func tenant() hub.TenantID { return hub.NewID[hub.TenantID]() }

// connected waits until the agent says of itself that it is connected, which
// is a moment after it has heard of its session.
func (a *agent) connected(t *testing.T) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	return poll.Until(ctx, func(context.Context) error {
		if a.State().Connected {
			return nil
		}
		return errors.New("it is not connected")
	}) == nil
}
