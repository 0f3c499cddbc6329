package relay

import (
	"cmp"
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	// previewTime bounds what the cluster may take for one call of a preview.
	previewTime = 2 * time.Minute
	// previewBytes and previewObjects bound one call: agents accept messages of
	// 1 MiB.
	previewBytes   = 768 << 10
	previewObjects = 200
	// mostPreviewed keeps the list of all keys in one message.
	mostPreviewed = 8000
)

// Preview compares rendered objects with the live ones of an application, by
// dry runs in its cluster. It changes nothing.
func (r *Relay) Preview(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, made hub.Preview) ([]Difference, error) {
	if n := len(made.Objects); n > mostPreviewed {
		return nil, fault.New(fault.Exceeded, "the revision makes %d objects, and a preview may have %d", n, mostPreviewed)
	}
	conn, ctx, cancel, err := r.conn(ctx, cluster, previewTime)
	if err != nil {
		return nil, err
	}
	defer cancel()
	client := linkv1.NewOpsClient(conn)
	request := &linkv1.PreviewRequest{AppId: string(app), Removed: true}
	for _, o := range made.Objects {
		if o.Hook == "" {
			request.Kept = append(request.Kept, &linkv1.ObjectRef{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
		}
	}
	var out []Difference
	ask := func() error {
		reply, err := client.Preview(ctx, request, grpc.MaxCallRecvMsgSize(maxReply))
		if err != nil {
			return old(broken(ctx, err, cluster), err, cluster)
		}
		out = append(out, differences(reply)...)
		request = &linkv1.PreviewRequest{AppId: string(app)}
		return nil
	}
	if err := ask(); err != nil {
		return nil, err
	}
	size := 0
	for i, o := range made.Objects {
		body := made.Bodies[i]
		switch {
		case o.Hook != "":
			continue // it is run, not compared
		case len(body) > previewBytes:
			out = append(out, Difference{
				Group: o.Group, Version: o.Version, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, Sync: "Unknown",
				Summary: "it is too large to be compared before a sync",
			})
			continue
		case size+len(body) > previewBytes, len(request.Objects) == previewObjects:
			if err := ask(); err != nil {
				return nil, err
			}
			size = 0
		}
		request.Objects = append(request.Objects, body)
		size += len(body)
	}
	if len(request.Objects) > 0 {
		if err := ask(); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return out, nil
}
