package replicas_test

import (
	"context"
	"crypto/tls"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/capstan-cd/capstan/hub/replicas"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	replicav1 "github.com/capstan-cd/capstan/proto/replica/v1"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// atReplicas says for each service of the protocols what the port of replicas
// does with a call of another replica. A service without a line fails the test.
var atReplicas = map[string]string{
	replicav1.Replica_ServiceDesc.ServiceName: "served",
	linkv1.Ops_ServiceDesc.ServiceName:        "passed on to an agent",
	linkv1.Acts_ServiceDesc.ServiceName:       "passed on to an agent",
	linkv1.Live_ServiceDesc.ServiceName:       "passed on to an agent",
	linkv1.Remote_ServiceDesc.ServiceName:     "passed on to an agent",
	// What agents call, and what only the replica with the agent orders.
	linkv1.Session_ServiceDesc.ServiceName: "refused", linkv1.Identity_ServiceDesc.ServiceName: "refused", linkv1.Desired_ServiceDesc.ServiceName: "refused",
	linkv1.Observed_ServiceDesc.ServiceName: "refused", linkv1.HubObjects_ServiceDesc.ServiceName: "refused", linkv1.Blobs_ServiceDesc.ServiceName: "refused",
	linkv1.Upgrades_ServiceDesc.ServiceName: "refused",
}

func methodsOfAll() []string {
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

// request makes a call of any kind with an empty message.
func request(ctx context.Context, c grpc.ClientConnInterface, method string) error {
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

// TestReplicaMatrix is the matrix of rights of the replicas' port: every method
// of the descriptors, for every kind of certificate, for an agent of the tenant
// and one of another.
func TestReplicaMatrix(t *testing.T) {
	w, other := newWorld(t), newWorld(t)
	a, _ := w.start("a")
	a.attach(cluster, "s1")
	var address string
	eventually(t, func() bool {
		w.store.mu.Lock()
		defer w.store.mu.Unlock()
		address = w.store.alive["a"].Address
		return address != ""
	})
	hubs := func(w *world, name *url.URL) tls.Certificate {
		make, err := w.auth.Replica(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := make()
		if err != nil {
			t.Fatal(err)
		}
		return *c
	}
	public, err := w.auth.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	agent := (tunnel.Peer{Tenant: string(tenant), Cluster: string(cluster), AgentID: "a"}).URI()
	callers := []struct {
		name         string
		certificates []tls.Certificate
		replica      bool
	}{
		{"nobody", nil, false},
		{"an agent", []tls.Certificate{hubs(w, agent)}, false},
		{"the hub's public face", []tls.Certificate{*public}, false},
		{"a replica of another hub", []tls.Certificate{hubs(other, replicas.URI("a"))}, false},
		{"a replica", []tls.Certificate{hubs(w, replicas.URI("b"))}, true},
	}
	places := []struct{ name, tenant, cluster string }{
		{"an agent of the tenant", string(tenant), string(cluster)},
		{"an agent under another tenant", "t2", string(cluster)},
		{"an agent that is not here", string(tenant), "c2"},
		{"no agent", "", ""},
	}
	t.Run("SEC-D1 SEC-J1 every call of the descriptors allows whom the table names and refuses all others", func(t *testing.T) {
		cells := 0
		for _, method := range methodsOfAll() {
			rule, known := atReplicas[strings.Split(method, "/")[1]]
			if !known {
				t.Errorf("%s: no line says what becomes of the service", method)
			}
			for _, c := range callers {
				conn, err := tunnel.DialPeers(address, &tls.Config{
					MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, NextProtos: []string{"h2"}, Certificates: c.certificates,
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range places {
					cells++
					ctx := metadata.AppendToOutgoingContext(t.Context(), "capstan-tenant", p.tenant, "capstan-cluster", p.cluster)
					if problem := decide(request(ctx, conn, method), c.replica, rule, p == places[0]); problem != "" {
						t.Errorf("%s for %s about %s: %s", method, c.name, p.name, problem)
					}
					if method == linkv1.Acts_RunAction_FullMethodName && c.replica && p == places[0] {
						<-a.asked
					}
				}
				_ = conn.Close()
			}
		}
		t.Logf("%d cells: methods by certificates by agents", cells)
		if cells < 300 {
			t.Errorf("only %d cells: the search for methods is broken", cells)
		}
		if len(a.asked) > 0 {
			t.Error("an agent was asked by somebody who may not")
		}
	})
}

// decide says what is wrong with the result of a call, or nothing.
func decide(err error, replica bool, rule string, attached bool) string {
	code := status.Code(err)
	switch {
	case !replica && code != codes.Unavailable:
		return "the handshake let it in: " + code.String()
	case !replica:
		return ""
	case rule == "refused" && code != codes.InvalidArgument:
		return "it is not refused: " + code.String()
	case rule == "served" && err != nil:
		return "it is not served: " + err.Error()
	case rule == "passed on to an agent" && !attached && code != codes.Unavailable:
		return "it is passed on: " + code.String()
	case rule == "passed on to an agent" && attached && err != nil && code != codes.Unimplemented && !strings.Contains(err.Error(), "not support"):
		return "it is not passed on: " + err.Error()
	}
	return ""
}
