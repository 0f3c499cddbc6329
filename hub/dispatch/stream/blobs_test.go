package stream_test

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
	"github.com/capstan-cd/capstan/hub/dispatch/dispatchtest"
	"github.com/capstan-cd/capstan/hub/store"
	"github.com/capstan-cd/capstan/hub/store/storetest"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/encryption"
	"github.com/capstan-cd/capstan/shared/fault"
)

// fetch asks for blobs and gives those served, those named as missing, and
// how it ended: io.EOF, or why not all came.
func TestBlobs(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Automated)
	w.Render("r1", "a", "b")
	var digests [][]byte
	for _, o := range w.State().Target.Objects {
		digests = append(digests, o.Digest)
	}
	conn := w.Link(w.Tenant, w.Cluster.ID)
	unknown := sha256.Sum256([]byte("unknown"))
	t.Run("the cluster's own objects are served sealed, the rest is named", func(t *testing.T) {
		got, missing, _ := dispatchtest.Fetch(t, conn, append(digests, unknown[:])...)
		if len(got) != 2 || missing != 1 {
			t.Fatalf("%d blobs, %d missing", len(got), missing)
		}
		keys, err := w.DB.Keys(t.Context(), w.Tenant)
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
	t.Run("parallel requests for objects of applications get their own", func(t *testing.T) {
		var group sync.WaitGroup
		for i := range 40 {
			group.Go(func() {
				mine := digests[i%2]
				got, missing, err := dispatchtest.Fetch(t, conn, mine, unknown[:])
				if _, ok := got[string(mine)]; len(got) != 1 || !ok || missing != 1 || !errors.Is(err, io.EOF) {
					t.Errorf("%d blobs, its own: %v, %d missing, %v", len(got), ok, missing, err)
				}
			})
		}
		group.Wait()
	})
	t.Run("ISO-1 another cluster of the tenant gets none of them", func(t *testing.T) {
		var other hub.Cluster
		w.In(func(ctx context.Context, tx *store.Tenant) error {
			var err error
			other, err = tx.CreateCluster(ctx, hub.Cluster{ID: hub.NewID[hub.ClusterID](), Meta: hub.Meta{Name: "other"}})
			return err
		})
		if got, missing, _ := dispatchtest.Fetch(t, w.Link(w.Tenant, other.ID), digests...); len(got) != 0 || missing != 2 {
			t.Errorf("%d blobs, %d missing", len(got), missing)
		}
	})
	t.Run("INV-7 another tenant gets none of them, whatever cluster it names", func(t *testing.T) {
		stranger := storetest.Tenant(t, w.DB, "globex")
		if got, missing, _ := dispatchtest.Fetch(t, w.Link(stranger, w.Cluster.ID), digests...); len(got) != 0 || missing != 2 {
			t.Errorf("%d blobs, %d missing", len(got), missing)
		}
	})
	t.Run("a digest of another length is refused", func(t *testing.T) {
		for _, bad := range [][]byte{nil, digests[0][:31], append(bytes.Clone(digests[0]), 0)} {
			if got, _, err := dispatchtest.Fetch(t, conn, digests[0], bad); len(got) != 0 || errors.Is(err, nil) || err.Error() == "EOF" {
				t.Errorf("%d bytes: %d blobs, %v", len(bad), len(got), err)
			}
		}
	})
	t.Run("INV-9 too many at once are refused", func(t *testing.T) {
		many := make([][]byte, 20_001)
		for i := range many {
			many[i] = digests[0]
		}
		if got, _, err := dispatchtest.Fetch(t, conn, many...); len(got) != 0 || err.Error() == "EOF" {
			t.Errorf("%d blobs, %v", len(got), err)
		}
	})
}

func TestBlobsNeedACertificate(t *testing.T) {
	t.Parallel()
	w := dispatchtest.New(t, dispatchtest.Manual)
	refuse := func(context.Context) (hub.TenantID, hub.ClusterID, error) {
		return "", "", fault.New(fault.Unknown, "the connection brought no valid certificate")
	}
	if err := w.Streams.Blobs(refuse).Fetch(&linkv1.FetchRequest{}, nopStream{t: t}); fault.KindOf(err) != fault.Unknown {
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
