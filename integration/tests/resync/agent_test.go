package resync_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/agent/inventory"
	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/agent/report"
	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/daemon/storeports"
	"github.com/capstan-cd/capstan/hub/dispatch/stream"
	"github.com/capstan-cd/capstan/hub/fleet"
	"github.com/capstan-cd/capstan/hub/observe"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// world is a hub on a database of its own, with one tenant, one cluster and a
// few applications.
type world struct {
	t       testing.TB
	db      *store.DB
	tenant  hub.TenantID
	cluster hub.Cluster
	apps    []hub.ApplicationID
	log     *slog.Logger
}

func newWorld(t testing.TB, apps int) *world {
	t.Helper()
	w := &world{t: t, db: storetest.Open(t), log: slog.New(slog.DiscardHandler)}
	w.tenant = storetest.Tenant(t, w.db, "acme")
	storetest.In(t, w.db, w.tenant, func(ctx context.Context, tx *store.Tenant) (err error) {
		if w.cluster, err = tx.CreateCluster(ctx, hub.Cluster{Meta: hub.Meta{Name: "prod"}}); err != nil {
			return err
		}
		if _, err := tx.CreateProject(ctx, hub.Project{Meta: hub.Meta{Name: "shop"}, Spec: []byte(`{}`)}); err != nil {
			return err
		}
		w.apps = nil
		for i := range apps {
			a, err := tx.CreateApplication(ctx, hub.Application{
				Meta: hub.Meta{Namespace: "argocd", Name: fmt.Sprintf("app-%03d", i)}, Project: "shop", Cluster: w.cluster.ID,
				Spec: []byte(`{"project":"shop","source":{"repoURL":"https://git.test/a","path":"."},"destination":{"name":"prod","namespace":"shop"}}`),
			})
			if err != nil {
				return err
			}
			w.apps = append(w.apps, a.ID)
		}
		return nil
	})
	return w
}

// held returns the hub's resources as "application/name=sync".
func (w *world) held() map[string]string {
	w.t.Helper()
	out := map[string]string{}
	storetest.In(w.t, w.db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		clear(out)
		for _, app := range w.apps {
			all, err := tx.Resources(ctx, app)
			if err != nil {
				return err
			}
			for _, r := range all {
				out[string(app)+"/"+r.Name] = r.Message
			}
		}
		return nil
	})
	return out
}

// PutObservation is the store as observe sees it.
func (w *world) PutObservation(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, o hub.Observation) (out hub.Observed, err error) {
	err = w.db.InTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error {
		out, err = t.PutObservation(ctx, cluster, o)
		return err
	})
	return out, err
}

func (w *world) observe() *observe.Service {
	return observe.New(w, func(ctx context.Context) (hub.TenantID, hub.ClusterID, error) { return w.tenant, w.cluster.ID, nil },
		observe.Notifier{Changed: func(hub.TenantID) {}, Over: func() {}}, w.log)
}

// desiredStore is the store as the streams see it.
type desiredStore struct{ db *store.DB }

func (s desiredStore) InTenant(ctx context.Context, tenant hub.TenantID, do func(context.Context, stream.Tx) error) error {
	return s.db.InTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Stream(t)) })
}

func (s desiredStore) ReadTenant(ctx context.Context, tenant hub.TenantID, do func(context.Context, stream.Tx) error) error {
	return s.db.ReadTenant(ctx, tenant, func(ctx context.Context, t *store.Tenant) error { return do(ctx, storeports.Stream(t)) })
}

func (s desiredStore) DigestKey(ctx context.Context, tenant hub.TenantID) ([32]byte, error) {
	k, err := s.db.Keys(ctx, tenant)
	return k.Digest, err
}

type keys struct{}

func (keys) LinkKeys(context.Context, hub.TenantID, hub.ClusterID) (object, mask [32]byte, err error) {
	return sha256.Sum256([]byte("object")), sha256.Sum256([]byte("mask")), nil
}

// serve runs the link of the hub and gives its address and a join token.
func (w *world) serve() (token string) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	system := w.db.System()
	authority, err := fleet.OpenAuthority(ctx, system, lifecycle.System{}, []string{"127.0.0.1"})
	if err != nil {
		w.t.Fatal(err)
	}
	who := func(context.Context) (hub.TenantID, hub.ClusterID, error) { return w.tenant, w.cluster.ID, nil }
	d := stream.New(desiredStore{w.db}, func(hub.TenantID) {}, w.log)
	server, err := fleet.New(fleet.Config{
		Authority: authority, Enrolments: system, Revocations: system, Presence: system, Refusals: system, Keys: keys{}, Log: w.log, Replica: "r1",
		Features: []string{observe.Buckets},
		Control: func(r grpc.ServiceRegistrar) {
			linkv1.RegisterDesiredServer(r, d.Desired(who))
			linkv1.RegisterObservedServer(r, w.observe())
		},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	split := tunnel.Split(ln, tunnel.SplitConfig{Link: authority.TLS(), Log: w.log})
	done := make(chan error, 1)
	go func() {
		done <- lifecycle.Run(ctx, lifecycle.Part{Name: "port", Run: split.Run},
			lifecycle.Part{Name: "fleet", Run: func(ctx context.Context) error { return server.Serve(ctx, split.Link()) }})
	}()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("the hub ended with %v", err)
		}
	})
	pin, err := authority.Pin()
	if err != nil {
		w.t.Fatal(err)
	}
	token, prefix, hash, err := fleet.Inviter{Addresses: []string{ln.Addr().String()}, Pin: pin}.Invite()
	if err != nil {
		w.t.Fatal(err)
	}
	storetest.In(w.t, w.db, w.tenant, func(ctx context.Context, tx *store.Tenant) error {
		_, err := tx.CreateEnrolment(ctx, hub.Enrolment{Cluster: w.cluster.ID, Prefix: prefix, ExpiresAt: time.Now().Add(time.Hour), CreatedBy: "admin"}, hash)
		return err
	})
	return token
}

// vault keeps an identity in memory.
type vault struct {
	mu sync.Mutex
	id *link.Identity
}

func (v *vault) Load(context.Context) (link.Identity, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.id == nil {
		return link.Identity{}, fault.New(fault.Missing, "none")
	}
	return *v.id, nil
}

func (v *vault) Save(_ context.Context, id link.Identity) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.id = &id
	return nil
}

// Facts are those of a cluster with as many kinds as a usual one has.
func (v *vault) Facts(context.Context) (link.Facts, error) {
	f := link.Facts{Fingerprint: "uid-of-kube-system", KubeVersion: "v1.35.4", Readyz: "ok"}
	for i := range 120 {
		f.APIVersions = append(f.APIVersions, fmt.Sprintf("group-%02d.example.com/v1/Kind%03d", i/4, i))
	}
	return f, nil
}

// meter counts the bytes of a connection, in both directions, as they are on
// the wire: with TLS and everything.
type meter struct {
	net.Conn
	up, down *atomic.Int64
}

func (m meter) Read(b []byte) (int, error) {
	n, err := m.Conn.Read(b)
	m.down.Add(int64(n))
	return n, err
}

func (m meter) Write(b []byte) (int, error) {
	n, err := m.Conn.Write(b)
	m.up.Add(int64(n))
	return n, err
}

// dialer counts what goes over the connections that it opens.
type dialer struct{ up, down *atomic.Int64 }

func (d dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return meter{c, d.up, d.down}, nil
}

// desired is the agent's copy of the log.
type desired struct{ *inventory.Store }

func (d desired) Cursor() *linkv1.Cursor {
	c, _ := d.Position()
	return &linkv1.Cursor{Incarnation: c.Incarnation, Seq: c.Seq, Chain: c.Chain, Proof: c.Proof, Compares: true}
}

func (d desired) StoreBatch(ctx context.Context, b *linkv1.Batch) error {
	_, commit, err := d.Stage(b)
	if err != nil {
		return err
	}
	return commit.Wait(ctx)
}

func (d desired) Rewound(reason string) { d.Rewind(reason) }
func (d desired) Respond(_ context.Context, down *linkv1.FollowDown) (*linkv1.FollowUp, error) {
	if c := down.GetCompare(); c != nil {
		return &linkv1.FollowUp{Message: &linkv1.FollowUp_Sums{Sums: d.Sums(c.GetFirst())}}, nil
	}
	return nil, nil
}

// sessions switches the outbox to what the hub can.
type sessions struct{ outbox *report.Outbox }

func (s sessions) Opened(_ context.Context, h *linkv1.HelloResponse) error {
	s.outbox.Compares(len(h.GetFeatures()) > 0)
	return nil
}
func (sessions) Revoked([]*linkv1.Revoked) {}
func (sessions) Closed(error)              {}

// attach runs an agent's link until its outbox agrees with the hub, and gives
// the bytes that went up and down.
func (w *world) attach(v *vault, copied *inventory.Store, outbox *report.Outbox, epoch string) (up, down int64) {
	w.t.Helper()
	var sent, received atomic.Int64
	client, err := link.New(link.Config{
		Vault: v, Cluster: v, Desired: desired{copied}, Reports: outbox, Sessions: sessions{outbox}, Epoch: epoch, Log: w.log, Version: "test",
		Load: func() link.Load { return link.Load{Backlog: outbox.Backlog(), Lag: outbox.Lag(), Leader: true} },
		Dial: dialer{&sent, &received}.DialContext,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	done := make(chan error, 1)
	go func() { done <- client.Run(ctx) }()
	for !outbox.Agreed() && ctx.Err() == nil {
		_ = lifecycle.Sleep(ctx, lifecycle.System{}, 10*time.Millisecond)
	}
	late := ctx.Err()
	up, down = sent.Load(), received.Load()
	cancel()
	<-done
	if late != nil {
		w.t.Fatal("hub and agent did not come to agree")
	}
	return up, down
}
