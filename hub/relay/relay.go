// Package relay forwards reads of live objects, and deletions of single ones,
// to the agent of the cluster. It checks no rights: the catalog has checked
// that the caller may see the application, and the agent serves only objects of
// that application. A call has a deadline, and Secret values are masked when
// they arrive.
package relay

import (
	"context"
	"encoding/json"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Agents knows the way to an agent, to whichever replica it is attached.
type Agents interface {
	// Conn waits, not for long, until the agent is there. The error is
	// fault.Offline if it does not come.
	Conn(ctx context.Context, cluster hub.Cluster) (grpc.ClientConnInterface, error)
}

const (
	timeout  = 20 * time.Second
	maxReply = 32 << 20
)

// A Relay asks agents. Many goroutines may use it.
type Relay struct{ agents Agents }

// New makes a relay.
func New(agents Agents) *Relay { return &Relay{agents} }

// A Difference is one object as people compare it. A nil text: it is not
// there.
type Difference struct {
	Group     string
	Version   string
	Kind      string
	Namespace string
	Name      string
	Sync      hub.SyncStatus
	Summary   string
	Fields    []string
	Desired   json.RawMessage
	Live      json.RawMessage
	Applied   json.RawMessage
	Normal    json.RawMessage // of Live what the other two speak of
	Predicted json.RawMessage // what an apply would leave
	Problem   string          // why it would be refused
}

// Get returns one live object of an application.
func (r *Relay) Get(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, o hub.ObjectRef) (json.RawMessage, error) {
	client, ctx, cancel, err := r.client(ctx, cluster)
	if err != nil {
		return nil, err
	}
	defer cancel()
	reply, err := client.Get(ctx, &linkv1.GetRequest{
		AppId: string(app), Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
	}, grpc.MaxCallRecvMsgSize(maxReply))
	if err != nil {
		return nil, broken(ctx, err, cluster)
	}
	return text(reply.GetJson()), nil
}

// Diff returns what differs in an application, or with all everything. A kind
// asks for one object alone; predict asks the API server, too.
func (r *Relay) Diff(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, all, predict bool, o hub.ObjectRef) ([]Difference, error) {
	client, ctx, cancel, err := r.client(ctx, cluster)
	if err != nil {
		return nil, err
	}
	defer cancel()
	reply, err := client.Diff(ctx, &linkv1.DiffRequest{
		AppId: string(app), All: all, Predict: predict, Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
	}, grpc.MaxCallRecvMsgSize(maxReply))
	if err != nil {
		return nil, broken(ctx, err, cluster)
	}
	return differences(reply), nil
}

func differences(reply *linkv1.DiffResponse) []Difference {
	out := make([]Difference, len(reply.GetObjects()))
	for i, d := range reply.GetObjects() {
		out[i] = Difference{
			Group: d.GetGroup(), Version: d.GetVersion(), Kind: d.GetKind(), Namespace: d.GetNamespace(), Name: d.GetName(),
			Sync: hub.SyncStatus(d.GetSync()), Summary: d.GetSummary(), Fields: d.GetFields(),
			Desired: text(d.GetDesired()), Live: text(d.GetLive()), Applied: text(d.GetApplied()),
			Normal: text(d.GetNormalized()), Predicted: text(d.GetPredicted()), Problem: d.GetProblem(),
		}
	}
	return out
}

// Refresh makes an application compare again. A disconnected agent compares
// when it reconnects.
func (r *Relay) Refresh(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID) error {
	client, ctx, cancel, err := r.client(ctx, cluster)
	if err != nil {
		return err
	}
	defer cancel()
	if _, err := client.Refresh(ctx, &linkv1.RefreshRequest{AppId: string(app)}); err != nil {
		return broken(ctx, err, cluster)
	}
	return nil
}

// confirmTime bounds what an agent may take to confirm.
const confirmTime = 10 * time.Second

// Confirm returns when the hub has stored everything that the agent had seen of
// an application when it was called; false: the agent does not know of that.
func (r *Relay) Confirm(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID) (bool, error) {
	conn, ctx, cancel, err := r.conn(ctx, cluster, confirmTime)
	if err != nil {
		return false, err
	}
	defer cancel()
	_, err = linkv1.NewOpsClient(conn).Confirm(ctx, &linkv1.ConfirmRequest{AppId: string(app)})
	switch {
	case err == nil:
		return true, nil
	case status.Code(err) == codes.Unimplemented, fault.KindOf(err) == fault.Invalid: // the latter by way of another replica
		return false, nil
	case fault.KindOf(err) == fault.Missing:
		return false, fault.With(fault.Wrap(fault.Offline, err, "its agent has not received the application yet"), "cluster "+cluster.Name, "try again")
	}
	return false, broken(ctx, err, cluster)
}

// CheckAccess returns what the service account of an application lacks in its
// cluster.
func (r *Relay) CheckAccess(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID) (hub.AccessReport, error) {
	client, ctx, cancel, err := r.client(ctx, cluster)
	if err != nil {
		return hub.AccessReport{}, err
	}
	defer cancel()
	reply, err := client.CheckAccess(ctx, &linkv1.CheckAccessRequest{AppId: string(app)})
	if err != nil {
		return hub.AccessReport{}, old(broken(ctx, err, cluster), err, cluster)
	}
	out := hub.AccessReport{
		ServiceAccount: reply.GetServiceAccount(), Enabled: reply.GetEnabled(), Enforced: reply.GetEnforced(),
		Objects: int(reply.GetObjects()), Incomplete: reply.GetIncomplete(),
	}
	for _, m := range reply.GetMissing() {
		out.Missing = append(out.Missing, hub.MissingRight{
			Verb: m.GetVerb(), Group: m.GetGroup(), Resource: m.GetResource(), Namespace: m.GetNamespace(), Name: m.GetName(), Fix: m.GetFix(),
		})
	}
	return out, nil
}

// Delete deletes one live object of an application.
func (r *Relay) Delete(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, o hub.ObjectRef, how hub.ObjectDeletion) error {
	client, ctx, cancel, err := r.client(ctx, cluster)
	if err != nil {
		return err
	}
	defer cancel()
	_, err = client.Delete(ctx, &linkv1.DeleteRequest{
		AppId: string(app), Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
		Force: how.Force, Propagation: how.Propagation,
	})
	if err != nil {
		return broken(ctx, err, cluster)
	}
	return nil
}

func (r *Relay) client(ctx context.Context, cluster hub.Cluster) (linkv1.OpsClient, context.Context, context.CancelFunc, error) {
	conn, ctx, cancel, err := r.conn(ctx, cluster, timeout)
	if err != nil {
		return nil, ctx, nil, err
	}
	return linkv1.NewOpsClient(conn), ctx, cancel, nil
}

// conn is the way to the agent of a cluster, and what its calls may take.
func (r *Relay) conn(ctx context.Context, cluster hub.Cluster, most time.Duration) (grpc.ClientConnInterface, context.Context, context.CancelFunc, error) {
	ctx, cancel := context.WithTimeout(ctx, most)
	conn, err := r.agents.Conn(ctx, cluster)
	if fault.KindOf(err) == fault.Offline {
		err = away(cluster)
	}
	if err != nil {
		cancel()
		return nil, ctx, nil, err
	}
	return conn, ctx, cancel, nil
}

func away(cluster hub.Cluster) error {
	object := "cluster " + cluster.Name
	if cluster.AgentID == "" {
		return fault.With(fault.New(fault.Offline, "no agent speaks for it yet"), object, "install the agent that `capstan cluster enroll "+cluster.Name+"` prints")
	}
	return fault.With(fault.New(fault.Offline, "its agent is not connected, so live state can neither be read nor changed"), object, "check the agent in the cluster, or try again")
}

// broken returns the agent's classified error; anything else means that the
// call did not reach it.
func broken(ctx context.Context, err error, cluster hub.Cluster) error {
	if ctx.Err() == context.DeadlineExceeded {
		return fault.With(fault.Wrap(fault.Offline, err, "its agent did not answer in time"), "cluster "+cluster.Name, "try again")
	}
	if _, classified := fault.As(err); classified {
		return err
	}
	return fault.With(fault.Wrap(fault.Offline, err, "its agent could not be asked"), "cluster "+cluster.Name, "try again")
}

// text is JSON from an agent, or nil for none and for what is no JSON.
func text(b []byte) json.RawMessage {
	if len(b) == 0 || !json.Valid(b) {
		return nil
	}
	return b
}
