package tunnel_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/tunnel"
)

func TestFaultsAreRestored(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Invalid, fault.Unknown, fault.Denied, fault.Missing, fault.Conflict, fault.Exceeded, fault.Offline} {
		in := &fault.Error{Kind: kind, Code: "CAP-1", Object: "cluster demo", Cause: "it is so", Fix: "do this", Err: errors.New("s3cret chain")}
		st := tunnel.Status(fmt.Errorf("context: %w", in))
		if strings.Contains(st.Error(), "s3cret") {
			t.Errorf("%s: the chain travels: %v", kind, st)
		}
		out, ok := fault.As(tunnel.Fault(st))
		if !ok || out.Kind != kind || out.Code != in.Code || out.Object != in.Object || out.Cause != in.Cause || out.Fix != in.Fix {
			t.Errorf("%s came back as %+v", kind, out)
		}
	}
}

func TestStatus(t *testing.T) {
	cases := map[string]struct {
		in   error
		want codes.Code
	}{
		"Nil":        {nil, codes.OK},
		"Unknown":    {errors.New("password=hunter2"), codes.Internal},
		"Internal":   {fault.New(fault.Internal, "password=hunter2"), codes.Internal},
		"Cancelled":  {fmt.Errorf("x: %w", context.Canceled), codes.Canceled},
		"Late":       {context.DeadlineExceeded, codes.DeadlineExceeded},
		"GRPC":       {status.Error(codes.Unavailable, "gone"), codes.Unavailable},
		"LongFault":  {fault.New(fault.Invalid, "%s", strings.Repeat("é", 5000)), codes.InvalidArgument},
		"NotUnicode": {fault.New(fault.Invalid, "\xff\xfe"), codes.InvalidArgument},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			err := tunnel.Status(c.in)
			if status.Code(err) != c.want {
				t.Errorf("Status() = %v, want %s", err, c.want)
			}
			if err != nil && (strings.Contains(err.Error(), "hunter2") || len(err.Error()) > 4000) {
				t.Errorf("Status() says %.80q… (%d bytes)", err.Error(), len(err.Error()))
			}
		})
	}
}

func TestFault(t *testing.T) {
	cases := map[codes.Code]fault.Kind{
		codes.Unavailable: fault.Offline, codes.DeadlineExceeded: fault.Offline, codes.ResourceExhausted: fault.Exceeded,
		codes.Unimplemented: fault.Invalid, codes.Internal: fault.Internal, codes.Unknown: fault.Internal,
	}
	for code, want := range cases {
		if got := fault.KindOf(tunnel.Fault(status.Error(code, "text of gRPC"))); got != want {
			t.Errorf("Fault(%s) is %s, want %s", code, got, want)
		}
	}
	if err := tunnel.Fault(status.Error(codes.Canceled, "x")); !errors.Is(err, context.Canceled) {
		t.Errorf("Fault(Canceled) = %v", err)
	}
	if err := tunnel.Fault(io.EOF); !errors.Is(err, io.EOF) || tunnel.Fault(nil) != nil {
		t.Errorf("io.EOF became %v", err)
	}
}

func TestFaultsOverSession(t *testing.T) {
	agent, hub := pair(t, tunnel.Control(), somebody())
	impl := &service{failed: fault.With(fault.New(fault.Missing, "it is gone"), "object x", "look elsewhere")}
	serve(t, hub, impl)
	_, err := ops(t, agent).Get(t.Context(), &linkv1.GetRequest{})
	if got := fault.Sentence(err); fault.KindOf(err) != fault.Missing || got != "object x: it is gone (look elsewhere)" {
		t.Errorf("Get() = %q", got)
	}
	impl.failed = errors.New("password=hunter2")
	_, err = ops(t, agent).Get(t.Context(), &linkv1.GetRequest{})
	if fault.KindOf(err) != fault.Internal || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("SEC-C3 an internal error travels as %v", err)
	}
	_, err = ops(t, agent).Diff(t.Context(), &linkv1.DiffRequest{})
	if fault.KindOf(err) != fault.Invalid {
		t.Errorf("FT-L14 a call that the other side does not know = %v, want invalid", err)
	}
}
