package stream

import (
	"context"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/failpoint"
	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	fetchMax   = 20_000    // digests in one request
	fetchPage  = 500       // digests read from the store at once
	fetchReply = 512 << 10 // bytes in one reply, unless one blob is larger
	// fetchFew is up to how many digests a request waits for others of its
	// cluster: an agent without a copy asks for each application apart, and what
	// a cluster may have costs one look at all of its applications.
	fetchFew = 8
)

// Blobs serves sealed objects to the cluster whose rows refer to them.
type Blobs struct {
	linkv1.UnimplementedBlobsServer
	server *Server
	caller Caller
}

// Blobs makes the link service.
func (s *Server) Blobs(caller Caller) *Blobs { return &Blobs{server: s, caller: caller} }

// Fetch streams the blobs that the calling cluster may have and names the
// others at the end.
func (s *Blobs) Fetch(req *linkv1.FetchRequest, stream grpc.ServerStreamingServer[linkv1.FetchReply]) error {
	ctx := stream.Context()
	tenant, cluster, err := s.caller(ctx)
	if err != nil {
		return err
	}
	if len(req.Digests) > fetchMax {
		return fault.New(fault.Exceeded, "%d blobs were asked for at once, at most %d are served", len(req.Digests), fetchMax)
	}
	missing := map[hub.Digest]bool{}
	var wanted []hub.Digest
	for _, b := range req.Digests {
		if len(b) != len(hub.Digest{}) {
			return fault.New(fault.Invalid, "a digest has %d bytes instead of 32", len(b))
		}
		wanted = append(wanted, hub.Digest(b))
		missing[hub.Digest(b)] = true
	}
	failpoint.Here(failpoint.HubBlobsBefore)
	for len(wanted) > 0 {
		n := min(len(wanted), fetchPage)
		objects, err := s.read(ctx, tenant, cluster, wanted[:n])
		if err != nil {
			return err
		}
		wanted = wanted[n:]
		for _, o := range objects {
			delete(missing, o.Digest)
		}
		if err := sendBlobs(stream, objects); err != nil {
			return err
		}
	}
	last := &linkv1.FetchReply{}
	for digest := range missing {
		last.Missing = append(last.Missing, digest[:])
	}
	return stream.Send(last)
}

func (s *Blobs) read(ctx context.Context, tenant hub.TenantID, cluster hub.ClusterID, digests []hub.Digest) ([]hub.SealedObject, error) {
	of := blobRequest{tenant, cluster, digests}
	if len(digests) > fetchFew {
		return s.server.reachable(ctx, of)
	}
	return s.server.batches.Do(ctx, string(tenant)+"/"+string(cluster), of)
}

// A blobRequest is what the agent of a cluster asks for.
type blobRequest struct {
	tenant  hub.TenantID
	cluster hub.ClusterID
	digests []hub.Digest
}

// bodies fulfils wishes of one cluster by one look.
func (s *Server) bodies(ctx context.Context, _ string, of []blobRequest) ([][]hub.SealedObject, error) {
	all := blobRequest{tenant: of[0].tenant, cluster: of[0].cluster}
	for _, w := range of {
		all.digests = append(all.digests, w.digests...)
	}
	found, err := s.reachable(ctx, all)
	if err != nil {
		return nil, err
	}
	have := make(map[hub.Digest]hub.SealedObject, len(found))
	for _, o := range found {
		have[o.Digest] = o
	}
	out := make([][]hub.SealedObject, len(of))
	for i, w := range of {
		for _, digest := range w.digests {
			if o, ok := have[digest]; ok {
				out[i] = append(out[i], o)
			}
		}
	}
	return out, nil
}

// reachable reads what there is of a wish and what its cluster may have.
func (s *Server) reachable(ctx context.Context, w blobRequest) (out []hub.SealedObject, err error) {
	err = s.store.ReadTenant(ctx, w.tenant, func(ctx context.Context, tx Tx) error {
		allowed, err := tx.Reachable(ctx, w.cluster, w.digests)
		if err != nil {
			return err
		}
		out, err = tx.Objects(ctx, allowed)
		return err
	})
	return out, err
}

func sendBlobs(stream grpc.ServerStreamingServer[linkv1.FetchReply], objects []hub.SealedObject) error {
	reply, size := &linkv1.FetchReply{}, 0
	for _, o := range objects {
		if size > 0 && size+len(o.Sealed) > fetchReply {
			if err := stream.Send(reply); err != nil {
				return err
			}
			reply, size = &linkv1.FetchReply{}, 0
		}
		reply.Blobs = append(reply.Blobs, &linkv1.Blob{Digest: o.Digest[:], Sealed: o.Sealed})
		size += len(o.Sealed) + 40
	}
	if size == 0 {
		return nil
	}
	return stream.Send(reply)
}
