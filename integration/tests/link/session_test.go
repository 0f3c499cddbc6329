package link_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/capstan-cd/capstan/agent/link"
	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestSession(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	org := tenant()
	a := w.join(r, r.addr, org, nil)
	hello := a.sessions.awaitOpened(1)

	object, mask, _ := w.dir.LinkKeys(t.Context(), org, a.cluster)
	if !bytes.Equal(hello.GetObjectKey(), object[:]) || !bytes.Equal(hello.GetMaskKey(), mask[:]) {
		t.Error("the agent got other keys than those of its tenant and cluster")
	}
	if hello.GetHeartbeatSeconds() != 10 || hello.GetClusterName() != "demo" || hello.GetReplicaId() != "replica-1" {
		t.Errorf("Hello answered %d s, %q, %q", hello.GetHeartbeatSeconds(), hello.GetClusterName(), hello.GetReplicaId())
	}
	w.dir.await(func() bool { return w.dir.connected[a.cluster].Session == hello.GetSessionId() })
	w.dir.mu.Lock()
	at := w.dir.connected[a.cluster]
	w.dir.mu.Unlock()
	if at.Tenant != org || at.Fingerprint != "uid-of-kube-system" || at.KubeVersion != "v1.35.4" || at.Readyz != "ok" || at.AgentVersion != "test" || len(at.APIVersions) != 1 {
		t.Errorf("presence heard %+v", at)
	}

	t.Run("desired state flows down and is acknowledged once stored", func(t *testing.T) {
		for range 20 {
			w.svc.row(string(a.cluster), "app-1", "body")
		}
		w.svc.await(func() bool { return w.svc.acked[string(a.cluster)] == 20 && w.svc.receipts[string(a.cluster)] == 20 })
		if c := a.desired.Cursor(); c.GetSeq() != 20 {
			t.Errorf("the cursor is at %d", c.GetSeq())
		}
	})
	t.Run("reports flow up and are acknowledged", func(t *testing.T) {
		for range 50 {
			a.reports.make(4 << 10) // three times the credit in all
		}
		a.reports.await(func() bool { return a.reports.acked == 50 })
	})
	t.Run("the hub calls the agent", func(t *testing.T) {
		cc, ok := r.Conn(a.cluster)
		if !ok {
			t.Fatal("the agent is not attached")
		}
		res, err := linkv1.NewOpsClient(cc).Get(t.Context(), &linkv1.GetRequest{Name: "web"})
		if err != nil || string(res.GetJson()) != "agent has web" {
			t.Errorf("Get() = %q, %v", res.GetJson(), err)
		}
		if _, ok := r.Conn(hub.NewID[hub.ClusterID]()); ok {
			t.Error("there is a connection to a cluster that nobody knows")
		}
	})
	t.Run("the state of the link is known", func(t *testing.T) {
		if s := a.State(); !s.Connected || s.Address != r.addr || s.Problem != nil {
			t.Errorf("State() = %+v", s)
		}
		if d := time.Since(a.HubNow()); d.Abs() > time.Minute {
			t.Errorf("the hub's time is %s off", d)
		}
	})
	t.Run("the end of an agent is noticed", func(t *testing.T) {
		a.stop()
		w.dir.await(func() bool { _, there := w.dir.connected[a.cluster]; return !there })
		if r.Attached(a.cluster) {
			t.Error("the registry still has it")
		}
	})
}

func TestRewound(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	w.svc.rewound = "the hub's database was restored"
	a := w.join(r, r.addr, tenant(), nil)
	a.desired.await(func() bool { return a.desired.rewound == "the hub's database was restored" })
	if !a.connected(t) {
		t.Error("INV-12 the session ended")
	}
}

func TestTakeFails(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	token, _, cluster := w.token(r, r.addr, tenant())
	v, err := w.enrol(token)
	if err != nil {
		t.Fatal(err)
	}
	w.svc.row(string(cluster), "app", "one")
	a := w.run(v, func(c *link.Config) { c.Desired.(*inventory).fail = errTestOver })
	w.svc.await(func() bool { return w.svc.acked[string(cluster)] == 1 })
	if a.desired.takes < 2 {
		t.Errorf("INV-1 what was not stored was acknowledged after %d calls", a.desired.takes)
	}
	a.sessions.awaitOpened(1)
	if n := len(a.sessions.opened); n != 1 {
		t.Errorf("the stream failed and %d sessions were opened", n)
	}
}

func TestReportTooLarge(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	a := w.join(r, r.addr, tenant(), nil)
	a.reports.make(2 << 20)
	a.reports.make(10)
	a.reports.await(func() bool { return a.reports.acked == 2 })
	w.svc.mu.Lock()
	defer w.svc.mu.Unlock()
	got := w.svc.taken[string(a.cluster)]
	if len(got[1].GetApps()) != 0 || len(got[2].GetApps()) != 1 {
		t.Errorf("INV-13 the hub has %d and %d records", len(got[1].GetApps()), len(got[2].GetApps()))
	}
}

// methods are all calls of the link that a hub answers.
func methods() []string {
	var out []string
	for _, d := range []grpc.ServiceDesc{linkv1.Session_ServiceDesc, linkv1.Identity_ServiceDesc, linkv1.Desired_ServiceDesc, linkv1.Observed_ServiceDesc, linkv1.Blobs_ServiceDesc, linkv1.HubObjects_ServiceDesc} {
		for _, m := range d.Methods {
			out = append(out, "/"+d.ServiceName+"/"+m.MethodName)
		}
		for _, s := range d.Streams {
			out = append(out, "/"+d.ServiceName+"/"+s.StreamName)
		}
	}
	return out
}

// call makes a call of any kind with an empty message.
func call(ctx context.Context, c grpc.ClientConnInterface, method string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	if err := s.SendMsg(&emptypb.Empty{}); err != nil {
		return s.RecvMsg(&emptypb.Empty{})
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	return s.RecvMsg(&emptypb.Empty{})
}

// credential is a certificate of an agent that is not running.
func (w *world) credential(r *replica, org hub.TenantID) (*tls.Certificate, *vault, hub.ClusterID) {
	w.t.Helper()
	token, _, c := w.token(r, r.addr, org)
	v, err := w.enrol(token)
	if err != nil {
		w.t.Fatal(err)
	}
	cert, err := v.id.Certificate()
	if err != nil {
		w.t.Fatal(err)
	}
	return cert, v, c
}

func TestGuard(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	other := newWorld(t).start()
	good, _, _ := w.credential(r, tenant())
	hubs, err := r.authority.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	strangers, _, _ := newWorldWith(t, other).credential(other, tenant())

	cases := map[string]struct {
		cert *tls.Certificate
		want fault.Kind
		says string
	}{
		"SEC-J1 NoCertificate": {nil, fault.Unknown, "no client certificate"},
		"SEC-J1 AnotherHub":    {strangers, fault.Unknown, "not issued to an agent by this hub"},
		"SEC-J1 SelfSigned":    {selfSigned(t, "spiffe://capstan/tenant/t/cluster/c/agent/a"), fault.Unknown, "not issued to an agent by this hub"},
		"SEC-K7 TheHubsOwn":    {hubs, fault.Unknown, "not issued to an agent by this hub"},
		"SEC-D1 BeforeHello":   {good, fault.Conflict, "Hello comes before"},
	}
	for name, c := range cases {
		for _, m := range methods() {
			t.Run(name+m, func(t *testing.T) {
				cc := dialWith(t, r, c.cert, tunnel.Control())
				err := call(t.Context(), cc, m)
				want, says := c.want, c.says
				if m == linkv1.Identity_Enroll_FullMethodName { // open to all; the token decides
					want, says = fault.Unknown, "join token"
				}
				if m == linkv1.Session_Hello_FullMethodName && c.want == fault.Conflict {
					want, says = fault.Invalid, "epoch"
				}
				if fault.KindOf(err) != want || !strings.Contains(fault.Sentence(err), says) {
					t.Errorf("got %q (%s), want %s with %q", fault.Sentence(err), fault.KindOf(err), want, says)
				}
			})
		}
	}
	t.Run("SEC-D1 odd paths find nothing", func(t *testing.T) {
		cc := dialPlain(t, r)
		for _, m := range []string{"/link.v1.Desired/follow", "/link.v1.Desired//Follow", "//link.v1.Desired/Follow", "/link.v1.Nothing/Get", "/link.v1.Identity/Enroll/../../Desired/Follow"} {
			if err := call(t.Context(), cc, m); fault.KindOf(err) != fault.Invalid && fault.KindOf(err) != fault.Internal {
				t.Errorf("%s answered %v", m, err)
			}
		}
	})
	t.Run("SEC-J1 the bulk lane requires a certificate too, and has only blobs", func(t *testing.T) {
		if err := call(t.Context(), dialWith(t, r, nil, tunnel.Bulk()), linkv1.Blobs_Fetch_FullMethodName); fault.KindOf(err) != fault.Unknown {
			t.Errorf("without a certificate: %v", err)
		}
		if err := call(t.Context(), dialWith(t, r, good, tunnel.Bulk()), linkv1.Desired_Follow_FullMethodName); fault.KindOf(err) != fault.Invalid {
			t.Errorf("desired state on the bulk lane: %v", err)
		}
	})
}

// newWorldWith is a second view of a world, for its hub's tokens.
func newWorldWith(t *testing.T, r *replica) *world {
	t.Helper()
	w := *r.world
	w.t = t
	return &w
}

func selfSigned(t *testing.T, uri string) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := url.Parse(uri)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		URIs: []*url.URL{u}, IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestHelloRefused(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	cert, v, cluster := w.credential(r, tenant())
	victim := w.join(r, r.addr, tenant(), nil)
	victim.sessions.awaitOpened(1)
	long := strings.Repeat("x", 5000)
	good := func() *linkv1.HelloRequest {
		return &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint}
	}
	cases := map[string]struct {
		change func(*linkv1.HelloRequest)
		member func(*hub.Member)
		want   fault.Kind
		says   string
	}{
		"SEC-K3 AnotherAgent":    {change: func(h *linkv1.HelloRequest) { h.AgentId = victim.vault.id.AgentID }, want: fault.Denied, says: "another agent"},
		"FT-L9 Rejected":         {member: func(m *hub.Member) { m.Rejected = []string{someFacts().Fingerprint} }, want: fault.Denied, says: "another Kubernetes cluster"},
		"FT-L9 Quarantined":      {member: func(m *hub.Member) { m.Quarantined = true }, want: fault.Denied, says: "another Kubernetes cluster"},
		"FT-L8 EnrolledAnew":     {member: func(m *hub.Member) { m.AgentID = "newer" }, want: fault.Denied, says: "another agent has enrolled"},
		"SEC-D1 Suspended":       {member: func(m *hub.Member) { m.Suspended = true }, want: fault.Denied, says: "may not connect"},
		"NoEpoch":                {change: func(h *linkv1.HelloRequest) { h.Epoch = "" }, want: fault.Invalid, says: "epoch"},
		"NoFingerprint":          {change: func(h *linkv1.HelloRequest) { h.Fingerprint = "" }, want: fault.Invalid, says: "fingerprint"},
		"SEC-K10 LongVersion":    {change: func(h *linkv1.HelloRequest) { h.AgentVersion = long }, want: fault.Invalid, says: "longer than"},
		"SEC-K10 LongReadyz":     {change: func(h *linkv1.HelloRequest) { h.Readyz = long }, want: fault.Invalid, says: "readyz"},
		"SEC-L1 ControlBytes":    {change: func(h *linkv1.HelloRequest) { h.KubeVersion = "v1\x1b[31m" }, want: fault.Invalid, says: "plain text"},
		"SEC-K10 LongAPIVersion": {change: func(h *linkv1.HelloRequest) { h.ApiVersions = []string{long} }, want: fault.Invalid, says: "API version"},
		"SEC-K10 ManyVersions":   {change: func(h *linkv1.HelloRequest) { h.ApiVersions = make([]string, 40000) }, want: fault.Exceeded, says: "40000"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			h := good()
			if c.change != nil {
				c.change(h)
			}
			if c.member != nil {
				old := w.dir.members[cluster]
				defer func() { _ = w.dir.do(func() error { w.dir.members[cluster] = old; return nil }) }()
				m := old
				c.member(&m)
				_ = w.dir.do(func() error { w.dir.members[cluster] = m; return nil })
			}
			_, err := linkv1.NewSessionClient(dialWith(t, r, cert, tunnel.Control())).Hello(t.Context(), h)
			if fault.KindOf(err) != c.want || !strings.Contains(fault.Sentence(err), c.says) {
				t.Errorf("Hello() = %q (%s), want %s with %q", fault.Sentence(err), fault.KindOf(err), c.want, c.says)
			}
		})
	}
	t.Run("a cluster that was removed may not attach", func(t *testing.T) {
		gone, id, c := w.credential(r, tenant())
		_ = w.dir.do(func() error { delete(w.dir.members, c); return nil })
		h := good()
		h.AgentId = id.id.AgentID
		_, err := linkv1.NewSessionClient(dialWith(t, r, gone, tunnel.Control())).Hello(t.Context(), h)
		if fault.KindOf(err) != fault.Denied || !strings.Contains(fault.Sentence(err), "removed") {
			t.Errorf("Hello() = %v", err)
		}
	})
	t.Run("Hello is sent once", func(t *testing.T) {
		cc := dialWith(t, r, cert, tunnel.Control())
		if _, err := linkv1.NewSessionClient(cc).Hello(t.Context(), good()); err != nil {
			t.Fatal(err)
		}
		if _, err := linkv1.NewSessionClient(cc).Hello(t.Context(), good()); fault.KindOf(err) != fault.Conflict {
			t.Errorf("the second Hello = %v", err)
		}
	})
	t.Run("SEC-K3 the other agent is not affected", func(t *testing.T) {
		if !victim.connected(t) || len(victim.sessions.opened) != 1 {
			t.Errorf("State() = %+v", victim.State())
		}
	})
}

func TestIsolation(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	a, b := w.join(r, r.addr, tenant(), nil), w.join(r, r.addr, tenant(), nil)
	w.svc.row(string(a.cluster), "app-of-a", "secret of a")
	w.svc.row(string(b.cluster), "app-of-b", "secret of b")
	w.svc.row(string(b.cluster), "app-of-b", "more of b")
	w.svc.await(func() bool { return w.svc.receipts[string(a.cluster)] == 1 && w.svc.receipts[string(b.cluster)] == 2 })
	for _, row := range a.desired.rows {
		if row.GetAppId() != "app-of-a" {
			t.Errorf("SEC-K3 ISO-1 agent a got a row of %s", row.GetAppId())
		}
	}
	a.reports.make(1)
	a.reports.await(func() bool { return a.reports.acked == 1 })
	w.svc.mu.Lock()
	defer w.svc.mu.Unlock()
	if len(w.svc.taken[string(b.cluster)]) != 0 {
		t.Error("SEC-K10 a report of a counts as one of b")
	}
}
