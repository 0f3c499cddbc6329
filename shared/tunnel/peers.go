package tunnel

import (
	"crypto/tls"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec below is made of it
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/capstan-cd/capstan/shared/fault"
)

const (
	peerConnect = 2 * time.Second  // a frozen replica accepts connections and sends nothing
	peerQuiet   = 10 * time.Second // after which a keepalive ping is sent
	peerAnswer  = 3 * time.Second
	mostPassed  = 64 << 20 // bytes of a forwarded message; its receiver has a lower limit
)

// DialPeers makes a gRPC client to another process of the hub. It connects when
// it is first used, and again when it must. Errors of its calls are plain
// statuses, which Fault converts to faults.
func DialPeers(address string, cfg *tls.Config) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+address,
		grpc.WithTransportCredentials(credentials.NewTLS(cfg)),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithMaxHeaderListSize(maxHeaderList),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: peerQuiet, Timeout: peerAnswer}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.5, MaxDelay: 2 * time.Second},
			MinConnectTimeout: peerConnect,
		}),
	)
}

// NewPeerServer makes a gRPC server for other processes of the hub. Calls of
// other services go to other.
func NewPeerServer(cfg *tls.Config, other grpc.StreamHandler) *grpc.Server {
	return grpc.NewServer(
		grpc.Creds(credentials.NewTLS(cfg)),
		grpc.ConnectionTimeout(greeting),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.MaxRecvMsgSize(mostPassed),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: peerQuiet / 2, PermitWithoutStream: true}),
		grpc.ForceServerCodecV2(passing()),
		grpc.UnknownServiceHandler(other),
	)
}

// Pass forwards one call to another connection, message by message and
// unchanged. The caller's deadline ends both.
func Pass(in grpc.ServerStream, method string, to grpc.ClientConnInterface) error {
	out, err := to.NewStream(in.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method,
		grpc.ForceCodecV2(passing()), grpc.MaxCallRecvMsgSize(mostPassed))
	if err != nil {
		return err
	}
	// The caller learns that the call reached the right replica.
	if err := in.SendHeader(metadata.MD{}); err != nil {
		return err
	}
	up := make(chan error, 1) // ends with the call's context at the latest
	go func() { up <- pump(in.RecvMsg, out.SendMsg); _ = out.CloseSend() }()
	if err := pump(out.RecvMsg, in.SendMsg); err != nil {
		return err
	}
	select {
	case err := <-up:
		return err
	default: // the other side has responded without reading more
		return nil
	}
}

// pump forwards messages until there are no more.
func pump(receive, send func(any) error) error {
	for {
		var f passed
		err := receive(&f)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := send(&f); err != nil {
			if errors.Is(err, io.EOF) {
				return nil // the receiving direction has the reason
			}
			return err
		}
	}
}

// Unreached reports whether a call to another process of the hub ended before
// it reached a handler there, or because the connection ended.
func Unreached(err error) bool {
	s, ok := status.FromError(err)
	if !ok || len(s.Details()) > 0 {
		return false
	}
	return s.Code() == codes.Unavailable || s.Code() == codes.Canceled
}

// passed is a message that is forwarded unread.
type passed struct{ data []byte }

// codec encodes such messages unchanged and everything else as protobuf.
type codec struct{ proto encoding.CodecV2 }

func passing() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if f, ok := v.(*passed); ok {
		return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
	}
	return c.proto.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if f, ok := v.(*passed); ok {
		f.data = data.Materialize()
		return nil
	}
	return c.proto.Unmarshal(data, v)
}

func (c codec) Name() string { return "proto" }

// NotHere is the error of a replica that has no connection to the agent of a
// call. The call was not started.
func NotHere(cause string) error {
	return &fault.Error{Kind: fault.Offline, Code: notHere, Cause: cause}
}

// IsNotHere reports whether an error is that of NotHere, also of another
// process.
func IsNotHere(err error) bool {
	f, ok := fault.As(Fault(err))
	return ok && f.Code == notHere
}

const notHere = "CAP-NOT-HERE"
