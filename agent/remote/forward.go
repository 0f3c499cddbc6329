package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/lifecycle"
)

type forwardStream = grpc.BidiStreamingServer[linkv1.ForwardInput, linkv1.ForwardOutput]

// Forward connects to a port of a pod.
func (s *Server) Forward(stream forwardStream) error {
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	start := first.GetStart()
	port := int(start.GetPort())
	if port < 1 || port > 65535 {
		return fault.New(fault.Invalid, "there is no port %d", port)
	}
	leave, err := s.enter()
	if err != nil {
		return err
	}
	defer leave()
	t, err := s.find(stream.Context(), start.GetAppId(), start.GetNamespace(), start.GetPod(), start.GetUid(), "")
	if err != nil {
		return err
	}
	permitted := func() error {
		if !s.cfg.Cluster.Belongs(t.app, t.key) {
			return fault.With(fault.New(fault.Missing, "it does not belong to the application any more"), t.key.Describe(), "")
		}
		return fault.With(s.cfg.Policy.Forwards(t.key.Namespace, port), t.key.Describe(), "")
	}
	if err := permitted(); err != nil {
		return err
	}
	conf, err := s.as(t.app)
	if err != nil {
		return err
	}
	conn, err := dial(conf, s.address(t, "portforward", nil))
	if err != nil {
		return explain(err, t, "pods/portforward")
	}
	defer func() { _ = conn.Close() }()
	data, failed, err := connect(conn, port)
	if err != nil {
		return explainPort(err, t, port)
	}
	if err := stream.Send(&linkv1.ForwardOutput{Message: &linkv1.ForwardOutput_Started{Started: true}}); err != nil {
		return err
	}
	return whilePermitted(stream.Context(), permitted, func(ctx context.Context) error {
		return explainPort(pipe(ctx, stream, conn, data, failed), t, port)
	})
}

// dial prefers WebSockets, as API servers since 1.31 speak them for this.
func dial(conf *rest.Config, u *url.URL) (httpstream.Connection, error) {
	transport, upgrader, err := spdy.RoundTripperFor(conf)
	if err != nil {
		return nil, err
	}
	socket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(u, conf)
	if err != nil {
		return nil, err
	}
	old := spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, u)
	conn, _, err := portforward.NewFallbackDialerForStreaming(socket, old, fallsBack).Dial(portforward.PortForwardProtocolV1Name)
	return conn, err
}

// refusalTime is how long a kubelet's reason is waited for.
const refusalTime = 2 * time.Second

// connect opens the two streams of one connection. failed has what the kubelet
// says of it.
func connect(conn httpstream.Connection, port int) (data httpstream.Stream, failed <-chan error, err error) {
	headers := http.Header{}
	headers.Set(corev1.PortHeader, strconv.Itoa(port))
	headers.Set(corev1.PortForwardRequestIDHeader, "0")
	headers.Set(corev1.StreamType, corev1.StreamTypeError)
	problem, err := conn.CreateStream(headers)
	if err != nil {
		return nil, nil, err
	}
	_ = problem.Close() // nothing is written to it
	out := make(chan error, 1)
	go func() { // ends with the connection
		text, err := io.ReadAll(io.LimitReader(problem, chunk))
		switch {
		case err == nil && len(text) > 0:
			err = fmt.Errorf("%s", strings.TrimSpace(string(text)))
		case errors.Is(err, io.EOF):
			err = nil
		}
		out <- err
	}()
	headers.Set(corev1.StreamType, corev1.StreamTypeData)
	data, err = conn.CreateStream(headers)
	if err != nil { // the kubelet has refused it, and says why on the other stream
		select {
		case why := <-out:
			err = cmp.Or(why, err)
		case <-time.After(refusalTime):
		}
	}
	return data, out, err
}

// pipe passes bytes in both directions until the pod's end is closed.
func pipe(ctx context.Context, stream forwardStream, conn httpstream.Connection, data httpstream.Stream, failed <-chan error) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	g := lifecycle.NewGroup(ctx)
	done := make(chan struct{})
	g.Go(func(context.Context) error {
		defer close(done)
		_, err := io.CopyBuffer(forwardWriter{stream}, struct{ io.Reader }{data}, make([]byte, chunk))
		return err
	})
	go func() { // ends with the stream, which ends when its handler returns
		if toPod(stream, data) != nil {
			_ = conn.Close()
		}
	}()
	err := g.Wait()
	// The kubelet ends the data before it has said why, and both when all went well.
	select {
	case why := <-failed:
		if why != nil && ctx.Err() == nil && !errors.Is(why, io.ErrClosedPipe) {
			err = why
		}
	case <-time.After(refusalTime):
	case <-ctx.Done():
	}
	_ = data.Reset()
	_ = conn.Close()
	return err
}

// toPod passes on what the client sends.
func toPod(stream forwardStream, data httpstream.Stream) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetClose() {
			return data.Close() // of the direction to the pod
		}
		if _, err := data.Write(m.GetData()); err != nil {
			return err
		}
	}
}

type forwardWriter struct{ stream forwardStream }

func (w forwardWriter) Write(p []byte) (int, error) {
	return len(p), w.stream.Send(&linkv1.ForwardOutput{Message: &linkv1.ForwardOutput_Data{Data: p}})
}

// explainPort classifies what a kubelet says of a port.
func explainPort(err error, t target, port int) error {
	if err == nil {
		return nil
	}
	return fault.With(fault.Wrap(fault.Conflict, err, "port %d cannot be connected to: %s", port, err.Error()), t.key.Describe(), "see that something listens on the port")
}
