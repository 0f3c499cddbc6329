package link

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/lifecycle"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

// closing is the client of a session that is closed while calls are made; the
// calls that come later reach the next one.
type closing struct {
	grpc.ClientConnInterface
	left int // calls that come too early
}

func (c *closing) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	if c.left--; c.left >= 0 {
		return nil, tunnel.Fault(status.Error(codes.Canceled, "grpc: the client connection is closing"))
	}
	return &blobs{}, nil
}

// blobs answers with what is asked for.
type blobs struct {
	grpc.ClientStream
	asked [][]byte
}

func (b *blobs) SendMsg(m any) error {
	b.asked = m.(*linkv1.FetchRequest).GetDigests()
	return nil
}
func (b *blobs) CloseSend() error { return nil }
func (b *blobs) RecvMsg(m any) error {
	if b.asked == nil {
		return io.EOF
	}
	for _, d := range b.asked {
		m.(*linkv1.FetchReply).Blobs = append(m.(*linkv1.FetchReply).Blobs, &linkv1.Blob{Digest: d})
	}
	b.asked = nil
	return nil
}

func TestFetchWhileTheSessionIsClosed(t *testing.T) {
	t.Parallel()
	c := &Client{cfg: Config{Log: slog.New(slog.DiscardHandler), Clock: lifecycle.System{}, Random: func() float64 { return 0 }}}
	c.live = &attachment{conn: &closing{left: 3 * fetchTries}}
	n := 0
	missing, err := c.Fetch(t.Context(), [][]byte{make([]byte, digestLength)}, func(*linkv1.Blob) error { n++; return nil })
	if err != nil || len(missing) > 0 || n != 1 {
		t.Errorf("FT-L6 Fetch() = %d blobs, %d missing, %v", n, len(missing), err)
	}
}
