package relay

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/capstan-cd/capstan/hub"
	linkv1 "github.com/capstan-cd/capstan/proto/link/v1"
	"github.com/capstan-cd/capstan/shared/fault"
)

// Policy returns what the owner of a cluster permits its agent to do.
func (r *Relay) Policy(ctx context.Context, cluster hub.Cluster) (hub.AgentPolicy, error) {
	conn, ctx, cancel, err := r.conn(ctx, cluster, timeout)
	if err != nil {
		return hub.AgentPolicy{}, err
	}
	defer cancel()
	reply, err := linkv1.NewRemoteClient(conn).Policy(ctx, &linkv1.PolicyRequest{})
	if err != nil {
		return hub.AgentPolicy{}, old(broken(ctx, err, cluster), err, cluster)
	}
	return hub.AgentPolicy{Mode: reply.GetMode(), Namespaces: reply.GetNamespaces(), Broken: reply.GetBroken(), Rules: text(reply.GetJson())}, nil
}

// Input returns the next message of a client. It waits for one until ctx ends.
type Input[T any] = func(ctx context.Context) (T, error)

// Exec runs a command in a container until it ends, in or out fails, or ctx
// ends. While out blocks, the agent sends no more of its output.
func (r *Relay) Exec(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.ExecRequest, in Input[hub.TerminalInput], out func(hub.TerminalOutput) error) error {
	conn, err := r.stream(ctx, cluster)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := linkv1.NewRemoteClient(conn).Exec(ctx)
	if err != nil {
		return old(broken(ctx, err, cluster), err, cluster)
	}
	start := &linkv1.ExecStart{
		AppId: string(app), Namespace: of.Namespace, Pod: of.Pod, Uid: of.UID, Container: of.Container, Tty: of.TTY, Stdin: of.Stdin,
	}
	if of.Size != (hub.TerminalSize{}) {
		start.Size = &linkv1.TerminalSize{Columns: of.Size.Columns, Rows: of.Size.Rows}
	}
	for _, argv := range of.Commands {
		start.Commands = append(start.Commands, &linkv1.Command{Argv: argv})
	}
	err = stream.Send(&linkv1.ExecInput{Message: &linkv1.ExecInput_Start{Start: start}})
	if err == nil {
		err = exchange(ctx, cancel, in, func(m hub.TerminalInput) error { return stream.Send(execInput(m)) }, func() error {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			return out(execOutput(m))
		})
	}
	return ended(ctx, err, cluster)
}

func execInput(m hub.TerminalInput) *linkv1.ExecInput {
	switch {
	case m.Size != nil:
		return &linkv1.ExecInput{Message: &linkv1.ExecInput_Resize{Resize: &linkv1.TerminalSize{Columns: m.Size.Columns, Rows: m.Size.Rows}}}
	case m.End:
		return &linkv1.ExecInput{Message: &linkv1.ExecInput_CloseStdin{CloseStdin: true}}
	}
	return &linkv1.ExecInput{Message: &linkv1.ExecInput_Stdin{Stdin: m.Data}}
}

func execOutput(m *linkv1.ExecOutput) hub.TerminalOutput {
	switch {
	case m.GetStarted() != nil:
		s := m.GetStarted()
		return hub.TerminalOutput{Started: &hub.TerminalStarted{
			UID: s.GetUid(), Container: s.GetContainer(), Argv: s.GetArgv(),
			Most: time.Duration(s.GetMaxSeconds()) * time.Second, Idle: time.Duration(s.GetIdleSeconds()) * time.Second,
		}}
	case m.GetEnd() != nil:
		code := int(m.GetEnd().GetCode())
		return hub.TerminalOutput{Exit: &code}
	}
	return hub.TerminalOutput{Stdout: m.GetStdout(), Stderr: m.GetStderr()}
}

// Forward passes bytes between a client and a port of a pod. An empty message of
// the client says that it sends nothing more. started is called first.
func (r *Relay) Forward(ctx context.Context, cluster hub.Cluster, app hub.ApplicationID, of hub.ForwardTarget, started func() error, in Input[[]byte], out func([]byte) error) error {
	conn, err := r.stream(ctx, cluster)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := linkv1.NewRemoteClient(conn).Forward(ctx)
	if err != nil {
		return old(broken(ctx, err, cluster), err, cluster)
	}
	err = stream.Send(&linkv1.ForwardInput{Message: &linkv1.ForwardInput_Start{Start: &linkv1.ForwardStart{
		AppId: string(app), Namespace: of.Namespace, Pod: of.Pod, Port: uint32(of.Port),
	}}})
	if err == nil {
		send := func(data []byte) error {
			if len(data) == 0 {
				return stream.Send(&linkv1.ForwardInput{Message: &linkv1.ForwardInput_Close{Close: true}})
			}
			return stream.Send(&linkv1.ForwardInput{Message: &linkv1.ForwardInput_Data{Data: data}})
		}
		err = exchange(ctx, cancel, in, send, func() error {
			m, err := stream.Recv()
			switch {
			case err != nil:
				return err
			case m.GetStarted():
				return started()
			}
			return out(m.GetData())
		})
	}
	return ended(ctx, err, cluster)
}

// stream is the way to the agent of a cluster for a call without a time limit.
func (r *Relay) stream(ctx context.Context, cluster hub.Cluster) (grpc.ClientConnInterface, error) {
	conn, err := r.agents.Conn(ctx, cluster)
	if fault.KindOf(err) == fault.Offline {
		return nil, away(cluster)
	}
	return conn, err
}

// exchange passes messages in both directions until the agent ends the call or
// one of them fails.
func exchange[T any](ctx context.Context, cancel func(), in Input[T], send func(T) error, receive func() error) error {
	done := make(chan error, 1)
	go func() { // ends with ctx, which is cancelled below; it is waited for
		var err error
		for err == nil {
			var m T
			if m, err = in(ctx); err == nil {
				err = send(m)
			}
		}
		if !errors.Is(err, io.EOF) { // the reason of which receive has
			cancel()
		}
		done <- err
	}()
	var err error
	for err == nil {
		err = receive()
	}
	cancel()
	if gone := <-done; errors.Is(gone, ErrGone) { // which has ended the call
		return gone
	}
	return err
}

// ended is why a call ended: nil if the agent has ended it in order.
func ended(ctx context.Context, err error, cluster hub.Cluster) error {
	switch {
	case err == nil, errors.Is(err, io.EOF):
		return nil
	case errors.Is(err, context.Canceled), errors.Is(err, ErrGone):
		return err
	}
	return old(broken(ctx, err, cluster), err, cluster)
}

// ErrGone is the error of an Input whose client has gone.
var ErrGone = errors.New("the client has gone")
