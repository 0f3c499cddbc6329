package link_test

import (
	"crypto/tls"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/replicas"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	_ "github.com/capstan-cd/capstan/proto/replica/v1" // whose calls are tried as well
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle/runtest"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// served says for each service of the protocols on which lanes of the agents'
// port the hub answers it. A service without a line fails the test. hub/replicas
// has the same for the port of replicas.
var served = map[string][]string{
	"link.v1.Session":    {tunnel.ControlProtocol},
	"link.v1.Identity":   {tunnel.ControlProtocol},
	"link.v1.Desired":    {tunnel.ControlProtocol},
	"link.v1.Observed":   {tunnel.ControlProtocol},
	"link.v1.HubObjects": {tunnel.ControlProtocol},
	"link.v1.Blobs":      {tunnel.ControlProtocol, tunnel.BulkProtocol},
	// Agents answer these; the hub forwards none of them.
	"link.v1.Ops": nil, "link.v1.Acts": nil, "link.v1.Live": nil, "link.v1.Remote": nil, "link.v1.Upgrades": nil,
	"replica.v1.Replica": nil,
}

// calls are the methods of all services of the protocols, in order.
func calls() []string {
	var out []string
	for _, name := range []protoreflect.FullName{"link.v1", "replica.v1"} {
		protoregistry.GlobalFiles.RangeFilesByPackage(name, func(f protoreflect.FileDescriptor) bool {
			for i := range f.Services().Len() {
				service := f.Services().Get(i)
				for j := range service.Methods().Len() {
					out = append(out, "/"+string(service.FullName())+"/"+string(service.Methods().Get(j).Name()))
				}
			}
			return true
		})
	}
	slices.Sort(out)
	return out
}

// A linkCaller is one kind of caller of the agents' port.
type linkCaller struct {
	name  string
	dial  func(lane tunnel.Lane) grpc.ClientConnInterface
	want  fault.Kind // of what the hub serves; empty: the call is let through
	says  string
	hello fault.Kind // of Hello, where it differs
}

// expected is the kind of error of one cell, and what its sentence has; empty:
// the guard lets the call through.
func (c linkCaller) expected(method string, lane tunnel.Lane) (kind fault.Kind, says string) {
	service := strings.Split(method, "/")[1]
	switch {
	case !slices.Contains(served[service], lane.Protocol):
		return fault.Invalid, ""
	case method == linkv1.Identity_Enroll_FullMethodName:
		return fault.Unknown, "join token" // open to all; the token decides
	case c.want == fault.Conflict && lane.Protocol == tunnel.BulkProtocol:
		return "", "" // Hello is for the control lane
	case c.hello != "" && method == linkv1.Session_Hello_FullMethodName:
		return c.hello, ""
	}
	return c.want, c.says
}

// TestLinkMatrix is the matrix of rights of the agents' port: every method of
// the descriptors, on every lane, for every kind of caller.
func TestLinkMatrix(t *testing.T) {
	w := newWorld(t)
	r := w.start()
	callers := linkCallers(t, w, r)
	t.Run("SEC-D1 SEC-J1 every call of the descriptors allows whom the table names and refuses all others", func(t *testing.T) {
		cells := 0
		for _, method := range calls() {
			if _, known := served[strings.Split(method, "/")[1]]; !known {
				t.Errorf("%s: no line says who may call the service", method)
			}
			for _, lane := range []tunnel.Lane{tunnel.Control(), tunnel.Bulk()} {
				for _, c := range callers {
					cells++
					err := call(t.Context(), c.dial(lane), method)
					want, says := c.expected(method, lane)
					guarded := fault.KindOf(err) == fault.Unknown || fault.KindOf(err) == fault.Denied || strings.Contains(fmt.Sprint(err), "Hello comes before")
					if want == "" && guarded || want != "" && (fault.KindOf(err) != want || !strings.Contains(fault.Sentence(err), says)) {
						t.Errorf("%s on %s for %s: %q (%s), want %q with %q", method, lane.Protocol, c.name, fault.Sentence(err), fault.KindOf(err), want, says)
					}
				}
			}
		}
		t.Logf("%d cells: methods by lanes by kinds of callers", cells)
		if cells < 200 {
			t.Errorf("only %d cells: the search for methods is broken", cells)
		}
	})
}

func linkCallers(t *testing.T, w *world, r *replica) []linkCaller {
	t.Helper()
	with := func(on *replica, cert *tls.Certificate) func(tunnel.Lane) grpc.ClientConnInterface {
		open := map[string]grpc.ClientConnInterface{} // of one agent only a few connections are taken at a time
		return func(l tunnel.Lane) grpc.ClientConnInterface {
			if open[l.Protocol] == nil {
				open[l.Protocol] = dialWith(t, on, cert, l)
			}
			return open[l.Protocol]
		}
	}
	hubs, err := r.authority.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	named, err := r.authority.Replica(replicas.URI("replica-2"))
	if err != nil {
		t.Fatal(err)
	}
	replica, err := named()
	if err != nil {
		t.Fatal(err)
	}
	other := newWorld(t).start()
	strangers, _, _ := newWorldWith(t, other).credential(other, tenant())
	early, _, _ := w.credential(r, tenant())
	return append([]linkCaller{
		{name: "nobody", dial: with(r, nil), want: fault.Unknown, says: "no client certificate"},
		{name: "an agent of another hub", dial: with(r, strangers), want: fault.Unknown, says: "not issued to an agent by this hub"},
		{name: "a self-signed certificate", dial: with(r, selfSigned(t, "spiffe://capstan/tenant/t/cluster/c/agent/a")), want: fault.Unknown, says: "not issued to an agent by this hub"},
		{name: "the hub's own certificate", dial: with(r, hubs), want: fault.Unknown, says: "not issued to an agent by this hub"},
		{name: "a replica", dial: with(r, replica), want: fault.Unknown, says: "does not name an agent"},
		{name: "an agent before Hello", dial: with(r, early), want: fault.Conflict, says: "Hello comes before", hello: fault.Invalid},
	}, agentCallers(t, w, r, with)...)
}

// agentCallers are agents whose certificates are good, or no longer.
func agentCallers(t *testing.T, w *world, r *replica, with func(*replica, *tls.Certificate) func(tunnel.Lane) grpc.ClientConnInterface) []linkCaller {
	t.Helper()
	org := tenant()
	out, id, _ := w.credential(r, org)
	w.dir.revoke(hub.Revocation{Tenant: org, AgentID: id.id.AgentID, Until: w.hub.Now().Add(time.Hour)})
	later := *w
	later.hub = runtest.NewClock(time.Now().Add(10 * 365 * 24 * time.Hour))
	after := later.start()
	attached := func(l tunnel.Lane) grpc.ClientConnInterface {
		cert, v, _ := w.credential(r, tenant())
		cc := dialWith(t, r, cert, l)
		if l.Protocol == tunnel.ControlProtocol {
			hello := &linkv1.HelloRequest{AgentId: v.id.AgentID, Epoch: "e", Fingerprint: someFacts().Fingerprint}
			if _, err := linkv1.NewSessionClient(cc).Hello(t.Context(), hello); err != nil {
				t.Fatal(err)
			}
		}
		return cc
	}
	expired, _, _ := w.credential(r, tenant())
	return []linkCaller{
		{name: "a revoked agent", dial: with(r, out), want: fault.Denied, says: "revoked"},
		{name: "an agent whose certificate has expired", dial: with(after, expired), want: fault.Unknown},
		{name: "an attached agent", dial: attached},
	}
}
