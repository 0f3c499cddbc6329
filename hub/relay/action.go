package relay

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/plan"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

const (
	actFor    = 75 * time.Second       // an action, the connection's way back included
	backAgain = 500 * time.Millisecond // between two checks whether an agent has reconnected
)

// Actions returns what people may do with one live object.
func (r *Relay) Actions(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, o hub.ObjectRef) ([]hub.Action, error) {
	conn, ctx, cancel, err := r.conn(ctx, cluster, timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	reply, err := linkv1.NewActsClient(conn).ListActions(ctx, &linkv1.ListActionsRequest{Object: actionObject(app, o)})
	if err != nil {
		return nil, old(broken(ctx, err, cluster), err, cluster)
	}
	out := make([]hub.Action, len(reply.GetActions()))
	for i, a := range reply.GetActions() {
		out[i] = hub.Action{Name: a.GetName(), DisplayName: a.GetDisplayName(), IconClass: a.GetIconClass(), Disabled: a.GetDisabled()}
		for _, p := range a.GetParams() {
			out[i].Params = append(out[i].Params, hub.ActionParam{Name: p.GetName(), Value: p.GetValue(), Type: p.GetType(), Default: p.GetDefaultValue()})
		}
	}
	return out, nil
}

func actionObject(app hub.ApplicationID, o hub.ObjectRef) *linkv1.ActionObject {
	return &linkv1.ActionObject{AppId: string(app), Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}
}

// Act runs an action on one live object. The id is the caller's and new for
// each request. If the connection is lost, the agent is asked for the result
// once it has reconnected; it never runs the action twice.
func (r *Relay) Act(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, o hub.ObjectRef, a hub.ActionRequest) ([]hub.ActionChange, error) {
	conn, ctx, cancel, err := r.conn(ctx, cluster, actFor)
	if err != nil {
		return nil, err
	}
	defer cancel()
	request := &linkv1.RunActionRequest{
		Id: a.ID, Object: actionObject(app, o), Action: a.Name, Params: a.Params,
		Project: a.Project, Limits: plan.Limits(a.Destination, a.Project, a.Limits),
	}
	reply, err := linkv1.NewActsClient(conn).RunAction(ctx, request)
	if tunnel.IsNotHere(err) {
		return nil, away(cluster) // it has just gone, and has not been asked
	}
	if lost(err) {
		request.Recall = true
		reply, err = r.recall(ctx, cluster, request)
	}
	if err != nil {
		return nil, old(err, err, cluster)
	}
	out := make([]hub.ActionChange, len(reply.GetChanges()))
	for i, c := range reply.GetChanges() {
		out[i] = hub.ActionChange{
			Created:   c.GetCreated(),
			ObjectRef: hub.ObjectRef{Group: c.GetGroup(), Version: c.GetVersion(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: c.GetName()},
		}
	}
	return out, nil
}

// lost reports whether a call ended without the agent's reply. An error that
// the agent classified is a reply; a failed connection is not, though it has a
// kind too.
func lost(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Canceled, codes.DeadlineExceeded:
		return true
	case codes.Unknown: // nothing of gRPC
		_, classified := fault.As(err)
		return !classified
	}
	return false
}

// recall reads the result of an action whose reply was lost.
func (r *Relay) recall(ctx context.Context, cluster hub.Cluster, request *linkv1.RunActionRequest) (*linkv1.RunActionResponse, error) {
	for {
		if conn, err := r.agents.Conn(ctx, cluster); err == nil {
			reply, err := linkv1.NewActsClient(conn).RunAction(ctx, request)
			switch {
			case err == nil:
				return reply, nil
			case fault.KindOf(err) == fault.Missing:
				return nil, unknown(cluster, err, "the connection to its agent was lost while the action was on its way, and the agent knows nothing of it: it never arrived, or the agent was restarted")
			case !lost(err) && !tunnel.IsNotHere(err):
				return nil, err
			}
		}
		if err := lifecycle.Sleep(ctx, lifecycle.System{}, backAgain); err != nil {
			return nil, unknown(cluster, err, "the connection to its agent was lost while the action ran, and the agent did not come back in time; whether it was carried out is not known")
		}
	}
}

func unknown(cluster hub.Cluster, err error, sentence string) error {
	return fault.With(fault.Wrap(fault.Offline, errors.Join(err), "%s", sentence), "cluster "+cluster.Name, "check the object before you run the action again")
}

// old explains an agent that does not know of actions.
func old(answer, err error, cluster hub.Cluster) error {
	if status.Code(err) == codes.Unimplemented {
		return fault.With(fault.Wrap(fault.Conflict, err, "its agent is too old for this"), "cluster "+cluster.Name, "update the agent")
	}
	return answer
}
