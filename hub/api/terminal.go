package api

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/capstan-cd/capstan/hub"
	"github.com/capstan-cd/capstan/hub/api/gen"
	"github.com/capstan-cd/capstan/hub/api/socket"
	"github.com/capstan-cd/capstan/hub/catalog"
	"github.com/capstan-cd/capstan/hub/relay"
	"github.com/capstan-cd/capstan/shared/apimodel"
	"github.com/capstan-cd/capstan/shared/fault"
	"github.com/capstan-cd/capstan/shared/logkey"
)

// A sessionRequest is what a request for a session in a pod names.
type sessionRequest struct {
	namespace, name string // of the application
	pod             hub.ObjectRef
	container       string
	command         []string
	tty             bool
	size            hub.TerminalSize
}

// terminal opens a terminal at the application's address.
func (s *Server) terminal(c echo.Context) error {
	q := c.Request().URL.Query()
	r := sessionRequest{
		namespace: c.Param("namespace"), name: c.Param("name"), container: q.Get("container"), command: q["command"],
		pod: hub.ObjectRef{Kind: "Pod", Namespace: q.Get("resourceNamespace"), Name: q.Get("podName")},
	}
	r.tty = len(r.command) == 0
	if v := q.Get("tty"); v != "" {
		r.tty = v == "true"
	}
	r.size = hub.TerminalSize{Columns: number(q.Get("cols")), Rows: number(q.Get("rows"))}
	return s.exec(c, r)
}

// argoTerminal opens a terminal at Argo CD's address (API-18).
func (s *Server) argoTerminal(c echo.Context) error {
	q := c.Request().URL.Query()
	r := sessionRequest{
		namespace: q.Get("appNamespace"), name: q.Get("appName"), container: q.Get("container"), tty: true,
		pod: hub.ObjectRef{Kind: "Pod", Namespace: q.Get("namespace"), Name: q.Get("pod")},
	}
	if r.namespace == "" {
		r.namespace = hub.ArgoNamespace
	}
	return s.exec(c, r)
}

// number is that of a parameter, which the document has checked; 0: absent.
func number(text string) uint32 {
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0
	}
	return uint32(n)
}

// exec runs a command in a container.
func (s *Server) exec(c echo.Context, r sessionRequest) error {
	who := callerOf(c.Request().Context())
	begun, err := s.Catalog.BeginExec(c.Request().Context(), who, r.namespace, r.name, r.pod, r.container, r.command)
	if err != nil {
		return err
	}
	request := hub.ExecRequest{
		LogTarget: hub.LogTarget{Namespace: begun.Pod.Namespace, Pod: begun.Pod.Name, Container: r.container}, TTY: r.tty, Stdin: true, Size: r.size,
	}
	if len(r.command) > 0 {
		request.Commands = [][]string{r.command}
	} else {
		for _, shell := range begun.Shells {
			request.Commands = append(request.Commands, []string{shell})
		}
	}
	return s.session(c, begun, socket.Terminal, func(ctx context.Context, ws *socket.Socket, end *catalog.RemoteEnd) error {
		return s.Relay.Exec(ctx, *begun.On, begun.ID, request, ws.Input, func(m hub.TerminalOutput) error {
			switch {
			case m.Started != nil:
				end.Started = m.Started
				return ws.Started(apimodel.TerminalStarted{
					Namespace: request.Namespace, Pod: request.Pod, Container: m.Started.Container, Command: m.Started.Argv,
					MaxSeconds: int(m.Started.Most / time.Second), IdleSeconds: int(m.Started.Idle / time.Second),
				})
			case m.Exit != nil:
				end.Exit = m.Exit
				return nil
			}
			return ws.Output(m)
		})
	})
}

// forwardPort connects to a port of a pod.
func (s *Server) forwardPort(c echo.Context) error {
	q := c.Request().URL.Query()
	of := hub.ForwardTarget{Port: int(number(q.Get("port")))}
	who := callerOf(c.Request().Context())
	pod := hub.ObjectRef{Kind: "Pod", Namespace: q.Get("resourceNamespace"), Name: q.Get("podName")}
	begun, err := s.Catalog.BeginForward(c.Request().Context(), who, c.Param("namespace"), c.Param("name"), pod, of.Port)
	if err != nil {
		return err
	}
	of.Namespace, of.Pod = begun.Pod.Namespace, begun.Pod.Name
	return s.session(c, begun, socket.PortForward, func(ctx context.Context, ws *socket.Socket, _ *catalog.RemoteEnd) error {
		return s.Relay.Forward(ctx, *begun.On, begun.ID, of, func() error { return nil }, ws.Bytes, ws.Write)
	})
}

// session runs a session that was begun, and records its end. It ends when the
// caller's sign-in or right does (SEC-F2, SEC-F3).
func (s *Server) session(c echo.Context, begun catalog.RemoteSession, protocol string, run func(context.Context, *socket.Socket, *catalog.RemoteEnd) error) error {
	r := c.Request()
	who := callerOf(r.Context())
	var end catalog.RemoteEnd
	ended := sync.OnceFunc(func() { s.sessionEnded(r.Context(), who, begun, end) })
	defer ended()
	if !s.streams.enter(who.Credential) {
		end.Reason = "too many streams"
		return errManyStreams()
	}
	leave := sync.OnceFunc(func() { s.streams.leave(who.Credential) })
	defer leave()
	if !socket.Asked(r) {
		end.Reason = "no WebSocket"
		return socket.ErrNoSocket()
	}
	ws, err := socket.Accept(c.Response(), r, protocol)
	if err != nil {
		end.Reason = "no WebSocket"
		return nil //nolint:nilerr // the client has its answer
	}
	open, stop := s.streams.until(context.WithoutCancel(r.Context()))
	defer stop()
	closed := make(chan struct{})
	running, finished := context.WithCancel(open)
	go func() { // ends with running, and is waited for
		defer close(closed)
		ws.Run(running)
	}()
	ctx, done := s.whileAllowed(running, who, rand.Text(), func() {}, func(ctx context.Context, who hub.Caller) error {
		return s.Catalog.MayRemain(ctx, who, begun)
	})
	err = run(ctx, ws, &end)
	lost := done()
	if lost != nil {
		err = lost
	}
	end.In, end.Out = ws.Received, ws.Sent
	last := s.lastMessage(c, open.Err() != nil, &end, err)
	leave()
	ended() // a client may take its time to end the connection
	if protocol == socket.Terminal {
		ws.End(last)
	} else {
		ws.Close(last.Message)
	}
	finished()
	<-closed
	return nil
}

// lastMessage is what a client is told at the end of its session.
func (s *Server) lastMessage(c echo.Context, shutdown bool, end *catalog.RemoteEnd, err error) (last apimodel.TerminalEnd) {
	switch {
	case errors.Is(err, relay.ErrGone):
		end.Reason = "the client has gone"
	case shutdown:
		end.Reason, last.Message = "the hub is shutting down", "the hub is shutting down; connect again"
	case err != nil:
		_, shown := s.present(c, err)
		s.noteInternal(c, err)
		end.Reason = fault.Sentence(err)
		last = apimodel.TerminalEnd{Code: shown.Code, Message: shown.Message, Fix: shown.Fix}
	}
	if end.Exit != nil {
		last.Exited, last.ExitCode = true, *end.Exit
	}
	return last
}

// sessionEnded records the end of a session, also when its client has gone.
func (s *Server) sessionEnded(ctx context.Context, who hub.Caller, begun catalog.RemoteSession, end catalog.RemoteEnd) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := s.Catalog.EndRemote(ctx, who, begun, end); err != nil {
		s.Log.ErrorContext(ctx, "the end of a session is not in the audit log", logkey.Error, err)
	}
}

// GetAgentPolicy returns what the owner of a cluster permits its agent to do.
func (s *Server) GetAgentPolicy(ctx context.Context, r gen.GetAgentPolicyRequestObject) (gen.GetAgentPolicyResponseObject, error) {
	cluster, _, err := s.Catalog.Cluster(ctx, callerOf(ctx), r.Name)
	if err != nil {
		return nil, err
	}
	p, err := s.Relay.Policy(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return gen.GetAgentPolicy200JSONResponse{Mode: p.Mode, Namespaces: p.Namespaces, Broken: p.Broken, Rules: p.Rules}, nil
}
