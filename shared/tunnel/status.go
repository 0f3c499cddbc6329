package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/capstan-cd/capstan/shared/fault"
)

// faultDomain marks a status whose details are one of our faults.
const faultDomain = "capstan.dev"

// mostText bounds each text of a fault on the wire; headers have a limit.
const mostText = 1500

// mostRetry limits how long the other side may ask to wait.
const mostRetry = 5 * time.Minute

// Status is the gRPC form of an error: kind, object, cause, fix and code of a
// fault are sent, its chain is not. An unclassified error becomes a neutral
// sentence.
func Status(err error) error {
	if err == nil {
		return nil
	}
	f, ok := fault.As(err)
	if ok && f.Kind != fault.Internal {
		return faultStatus(f)
	}
	switch {
	case ok:
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the call exceeded its time limit")
	default:
		var s interface{ GRPCStatus() *status.Status }
		if errors.As(err, &s) && s.GRPCStatus().Code() != codes.Unknown {
			return s.GRPCStatus().Err()
		}
	}
	return status.Error(codes.Internal, fault.Sentence(err))
}

// unexplained reports whether the log needs more than the other side gets.
func unexplained(err error) bool { return status.Code(Status(err)) == codes.Internal }

func faultStatus(f *fault.Error) error {
	s := status.New(codeOf(f.Kind), clip(fault.Sentence(f)))
	info := &errdetails.ErrorInfo{Domain: faultDomain, Reason: string(f.Kind), Metadata: map[string]string{}}
	for name, text := range map[string]string{"code": f.Code, "object": f.Object, "cause": f.Cause, "fix": f.Fix} {
		if text != "" {
			info.Metadata[name] = clip(text)
		}
	}
	details := []protoadapt.MessageV1{info}
	if f.RetryAfter > 0 {
		details = append(details, &errdetails.RetryInfo{RetryDelay: durationpb.New(f.RetryAfter)})
	}
	if with, err := s.WithDetails(details...); err == nil {
		s = with
	}
	return s.Err()
}

func clip(text string) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + " …"
	}
	return text
}

func codeOf(k fault.Kind) codes.Code {
	switch k {
	case fault.Invalid:
		return codes.InvalidArgument
	case fault.Unknown:
		return codes.Unauthenticated
	case fault.Denied:
		return codes.PermissionDenied
	case fault.Missing:
		return codes.NotFound
	case fault.Conflict:
		return codes.Aborted
	case fault.Exceeded:
		return codes.ResourceExhausted
	case fault.Offline:
		return codes.Unavailable
	case fault.Internal:
		return codes.Internal
	}
	return codes.Internal
}

// Fault is the reverse of Status, for the caller's side: it restores a fault,
// and converts an error of gRPC itself to a kind and a sentence. io.EOF and nil
// stay unchanged.
func Fault(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	if f := travelled(s); f != nil {
		return f
	}
	switch s.Code() {
	case codes.Canceled:
		return fmt.Errorf("%w: %s", context.Canceled, s.Message())
	case codes.DeadlineExceeded:
		return fault.Wrap(fault.Offline, errors.Join(context.DeadlineExceeded, err), "the other side of the link did not answer in time")
	case codes.Unavailable:
		return fault.Wrap(fault.Offline, err, "the other side of the link is not connected")
	case codes.ResourceExhausted:
		return fault.Wrap(fault.Exceeded, err, "a message is larger, or there are more calls, than the link allows")
	case codes.Unimplemented:
		return fault.Wrap(fault.Invalid, err, "the other side of the link does not know this call; it may be older")
	case codes.OK, codes.Unknown, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.PermissionDenied,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange, codes.Internal, codes.DataLoss, codes.Unauthenticated:
	}
	return fault.Wrap(fault.Internal, err, "the other side of the link has an internal error")
}

// travelled returns the fault that a status carries, or nil.
func travelled(s *status.Status) *fault.Error {
	var f *fault.Error
	var wait time.Duration
	for _, d := range s.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			if d.GetDomain() == faultDomain {
				m := d.GetMetadata()
				f = &fault.Error{Kind: fault.Kind(d.GetReason()), Code: m["code"], Object: m["object"], Cause: m["cause"], Fix: m["fix"]}
			}
		case *errdetails.RetryInfo:
			wait = d.GetRetryDelay().AsDuration()
		}
	}
	if f != nil && wait > 0 {
		f.RetryAfter = min(wait, mostRetry)
	}
	return f
}

// faultUnary returns faults to callers instead of statuses.
func faultUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, next grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return Fault(next(ctx, method, req, reply, cc, opts...))
}

func faultStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, next grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := next(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, Fault(err)
	}
	return faultClientStream{s}, nil
}

type faultClientStream struct{ grpc.ClientStream }

func (s faultClientStream) SendMsg(m any) error { return Fault(s.ClientStream.SendMsg(m)) }
func (s faultClientStream) RecvMsg(m any) error { return Fault(s.ClientStream.RecvMsg(m)) }
func (s faultClientStream) CloseSend() error    { return Fault(s.ClientStream.CloseSend()) }
