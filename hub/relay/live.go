package relay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logtail"
)

// Pods returns the pods of an application that an object is or owns; those of
// all its objects for the zero reference. Beyond the limit they have no
// containers.
func (r *Relay) Pods(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.ObjectRef, limit int) ([]hub.Pod, error) {
	conn, ctx, cancel, err := r.conn(ctx, cluster, timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	reply, err := linkv1.NewLiveClient(conn).Pods(ctx, &linkv1.PodsRequest{
		AppId: string(app), Group: of.Group, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, Limit: uint32(max(limit, 0)),
	})
	if err != nil {
		return nil, old(broken(ctx, err, cluster), err, cluster)
	}
	out := make([]hub.Pod, len(reply.GetPods()))
	for i, p := range reply.GetPods() {
		out[i] = hub.Pod{Namespace: p.GetNamespace(), Name: p.GetName(), UID: p.GetUid(), Phase: p.GetPhase(), Gone: p.GetGone()}
		for _, c := range p.GetContainers() {
			container := hub.Container{
				Name: c.GetName(), Init: c.GetInit(), Ephemeral: c.GetEphemeral(), State: c.GetState(), Reason: c.GetReason(), Restarts: c.GetRestarts(),
			}
			if at := c.GetStartedUnix(); at > 0 {
				container.Started = time.Unix(at, 0)
			}
			out[i].Containers = append(out[i].Containers, container)
		}
	}
	return out, nil
}

// Logs emits the lines of a container's log until it ends, emit fails or ctx
// ends. While emit blocks, the agent sends no more of it.
func (r *Relay) Logs(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.LogTarget, follow, previous bool, o logtail.Options, emit logtail.Emit) error {
	conn, err := r.agents.Conn(ctx, cluster)
	if fault.KindOf(err) == fault.Offline {
		return away(cluster)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	request := &linkv1.LogsRequest{
		AppId: string(app), Namespace: of.Namespace, Pod: of.Pod, Uid: of.UID, Container: of.Container,
		Follow: follow, Previous: previous, SinceUnixNano: o.Since,
	}
	if o.Tail != nil {
		n := uint32(max(0, *o.Tail))
		request.Tail = &n
	}
	stream, err := linkv1.NewLiveClient(conn).Logs(ctx, request)
	if err != nil {
		return old(broken(ctx, err, cluster), err, cluster)
	}
	for {
		m, err := stream.Recv()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && ctx.Err() != nil:
			return ctx.Err()
		case err != nil:
			return old(broken(ctx, err, cluster), err, cluster)
		}
		lines := make([]logtail.Line, len(m.GetLines()))
		for i, l := range m.GetLines() {
			lines[i] = logtail.Line{Nano: l.GetUnixNano(), Text: l.GetText(), Partial: l.GetPartial(), Skipped: l.GetSkipped()}
		}
		if err := emit(lines); err != nil {
			return err
		}
	}
}

// Events returns the events of an object of an application; those of all its
// objects in some namespaces for the zero reference.
func (r *Relay) Events(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.ObjectRef, namespaces []string) ([]hub.Event, error) {
	conn, ctx, cancel, err := r.conn(ctx, cluster, timeout)
	if err != nil {
		return nil, err
	}
	defer cancel()
	reply, err := linkv1.NewLiveClient(conn).Events(ctx, &linkv1.EventsRequest{
		AppId: string(app), Group: of.Group, Kind: of.Kind, Namespace: of.Namespace, Name: of.Name, Namespaces: namespaces,
	}, grpc.MaxCallRecvMsgSize(maxReply))
	if err != nil {
		return nil, old(broken(ctx, err, cluster), err, cluster)
	}
	out := make([]hub.Event, len(reply.GetEvents()))
	for i, e := range reply.GetEvents() {
		out[i] = hub.Event{
			ObjectRef: hub.ObjectRef{Group: e.GetGroup(), Kind: e.GetKind(), Namespace: e.GetNamespace(), Name: e.GetName()},
			Type:      e.GetType(), Reason: e.GetReason(), Message: e.GetMessage(), Count: e.GetCount(),
			First: time.Unix(e.GetFirstUnix(), 0), Last: time.Unix(e.GetLastUnix(), 0), Source: e.GetSource(),
		}
	}
	return out, nil
}

// Patch changes one live object of an application, and returns it.
func (r *Relay) Patch(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, o hub.ObjectRef, p hub.ObjectPatch) (json.RawMessage, error) {
	client, ctx, cancel, err := r.client(ctx, cluster)
	if err != nil {
		return nil, err
	}
	defer cancel()
	reply, err := client.Patch(ctx, &linkv1.PatchRequest{
		AppId: string(app), Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name,
		Type: p.Type, Patch: []byte(p.Patch), DryRun: p.DryRun,
	}, grpc.MaxCallRecvMsgSize(maxReply))
	if err != nil {
		return nil, old(broken(ctx, err, cluster), err, cluster)
	}
	return text(reply.GetJson()), nil
}
