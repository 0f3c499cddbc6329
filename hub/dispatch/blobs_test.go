package dispatch_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

// fetch asks for blobs and gives those served, those named as missing, and
// how it ended: io.EOF, or why not all came.
func fetch(t *testing.T, conn *grpc.ClientConn, digests ...[]byte) (map[string][]byte, int, error) {
	t.Helper()
	out, missing := map[string][]byte{}, 0
	stream, err := linkv1.NewBlobsClient(conn).Fetch(t.Context(), &linkv1.FetchRequest{Digests: digests})
	if err != nil {
		return out, missing, err
	}
	for {
		reply, err := stream.Recv()
		if err != nil {
			return out, missing, err
		}
		for _, b := range reply.Blobs {
			out[string(b.Digest)] = b.Sealed
		}
		missing += len(reply.Missing)
	}
}

func TestBlobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, automated)
	w.render("r1", "a", "b")
	var digests [][]byte
	for _, o := range w.state().Target.Objects {
		digests = append(digests, o.Digest)
	}
	conn := w.link(w.tenant, w.cluster.ID)
	unknown := sha256.Sum256([]byte("unknown"))
	t.Run("the cluster's own objects are served sealed, the rest is named", func(t *testing.T) {
		got, missing, _ := fetch(t, conn, append(digests, unknown[:])...)
		if len(got) != 2 || missing != 1 {
			t.Fatalf("%d blobs, %d missing", len(got), missing)
		}
		keys, err := w.db.Keys(t.Context(), w.tenant)
		if err != nil {
			t.Fatal(err)
		}
		for digest, sealed := range got {
			plain, err := encryption.OpenBlob(keys.Object, hub.Digest([]byte(digest)), sealed)
			if err != nil || !bytes.Contains(plain, []byte("ConfigMap")) {
				t.Errorf("%q, %v", plain, err)
			}
		}
	})
	t.Run("applications whose objects are asked for at the same time get their own", func(t *testing.T) {
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() {
				mine := digests[i%2]
				got, missing, err := fetch(t, conn, mine, unknown[:])
				if _, ok := got[string(mine)]; len(got) != 1 || !ok || missing != 1 || !errors.Is(err, io.EOF) {
					t.Errorf("%d blobs, its own: %v, %d missing, %v", len(got), ok, missing, err)
				}
			})
		}
		group.Wait()
	})
	t.Run("ISO-1 another cluster of the tenant gets none of them", func(t *testing.T) {
		var other hub.Cluster
		w.in(func(ctx context.Context, tx *store.Tenant) error {
			var err error
			other, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "other"}})
			return err
		})
		if got, missing, _ := fetch(t, w.link(w.tenant, other.ID), digests...); len(got) != 0 || missing != 2 {
			t.Errorf("%d blobs, %d missing", len(got), missing)
		}
	})
	t.Run("INV-7 another tenant gets none of them, whatever cluster it says", func(t *testing.T) {
		stranger := storetest.Tenant(t, w.db, "globex")
		if got, missing, _ := fetch(t, w.link(stranger, w.cluster.ID), digests...); len(got) != 0 || missing != 2 {
			t.Errorf("%d blobs, %d missing", len(got), missing)
		}
	})
	t.Run("a digest of another length is refused", func(t *testing.T) {
		for _, bad := range [][]byte{nil, digests[0][:31], append(bytes.Clone(digests[0]), 0)} {
			if got, _, err := fetch(t, conn, digests[0], bad); len(got) != 0 || errors.Is(err, nil) || err.Error() == "EOF" {
				t.Errorf("%d bytes: %d blobs, %v", len(bad), len(got), err)
			}
		}
	})
	t.Run("INV-9 too many at once are refused", func(t *testing.T) {
		many := make([][]byte, 20_001)
		for i := range many {
			many[i] = digests[0]
		}
		if got, _, err := fetch(t, conn, many...); len(got) != 0 || err.Error() == "EOF" {
			t.Errorf("%d blobs, %v", len(got), err)
		}
	})
}

func TestBlobsNeedACertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, manual)
	refuse := func(context.Context) (hub.TenantID, hub.ClusterID, error) {
		return "", "", fault.New(fault.Unknown, "the connection brought no valid certificate")
	}
	if err := w.d.Blobs(refuse).Fetch(&linkv1.FetchRequest{}, nopStream{t: t}); fault.KindOf(err) != fault.Unknown {
		t.Errorf("error %v", err)
	}
}

// nopStream may not be sent to.
type nopStream struct {
	grpc.ServerStreamingServer[linkv1.FetchReply]
	t *testing.T
}

func (s nopStream) Send(*linkv1.FetchReply) error { s.t.Error("something was sent"); return nil }
func (s nopStream) Context() context.Context      { return s.t.Context() }
